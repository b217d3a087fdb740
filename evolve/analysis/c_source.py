"""A policy as one C file without dependencies. Its outputs equal the outputs of evolve to the bit.

The file contains the headers of the network's kernel, which evolve itself uses, for one network at a time. It also
contains the network's arrays. The C code updates traces, cells and plastic weights, too. `policy.c` is the template of
the file.

`RecordedArrays` finds these arrays: it takes the place of the back end that usually makes them. The network makes a
batch of one slot, and the batch requests its arrays from `RecordedArrays`. For each array the batch gets a number
instead of an address. The kernel's first argument, a structure, then has these numbers in the fields for addresses.
"""

import ctypes
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evolve
from evolve.environments.spaces import (
    action_decoder,
    box_map,
    divisor_of,
    is_rounded,
    kind_of,
    members_of,
    observation_encoder,
)
from evolve.errors import InputError, sanitize
from evolve.genome import Genomes
from evolve.numerics.native import ADDRESS, FLOAT
from evolve.shapes import Float32, Slots
from evolve.training import Experiment

_NUMBERS_PER_LINE = 8
_HEADER_FOLDERS = [Path(__file__).parents[1] / package / "kernels" for package in ("numerics", "networks")]
_C_TYPES = {np.dtype(np.float32): "float", np.dtype(np.int64): "int64_t"}

_TEMPLATE = Path(__file__).with_name("policy.c")
# A program may have several policies, so each function is `static`, which hides it from other files. A policy needs
# only some of the functions, and clang would warn of the others. The headers compile a copy of each kernel for every
# instruction set, but a policy needs one copy.
_MACROS = """
#undef DISPATCH
#define DISPATCH static inline __attribute__((unused))
#undef INLINE
#define INLINE static inline __attribute__((always_inline, unused))
"""
# The function of numerics/kernels/normalization.h, without the sums of moments that training needs.
_NORMALIZATION = """\
    float seen[POLICY_OBSERVATIONS];
    for (int o = 0; o < POLICY_OBSERVATIONS; o++) {
        float y = (observation[o] - subtracted[o]) * multiplied[o];
        y = y < -5.0f ? -5.0f : y;
        seen[o] = y > 5.0f ? 5.0f : y;
    }
"""


@dataclass
class RecordedArray:
    """One array of the single slot. It has the methods of a back end's array, but they only record values.

    Attributes:
        address: The number of the array, in place of its address in the structure.
        start: Its values at the start of an episode, [n].
        constant: Whether the kernel only reads it.
    """

    address: int
    start: NDArray[Any]
    constant: bool = False

    def put(self, slots: Slots, values: NDArray[Any]) -> None:
        """Record the values [1, n] at the start of an episode."""
        self.start = np.array(values[0], self.start.dtype)

    def clear(self, slots: Slots) -> None:
        """Record zeros."""
        self.start = np.zeros_like(self.start)


class RecordedArrays:
    """A back end that only records the arrays of one slot, and the kernel that steps it.

    Attributes:
        arrays: All arrays, in the order of their creation.
        kernel_name: The kernel's name without the prefix `evolve_`.
        structure: The kernel's first argument.
    """

    def __init__(self) -> None:
        self.arrays: list[RecordedArray] = []
        self.kernel_name = ""
        self.structure: ctypes.Structure | None = None

    def columns(self, n: int) -> RecordedArray:
        """Record n float32 values that the batch may set at the start of an episode."""
        return self._record(np.zeros(n, np.float32))

    def zeros(self, n: int) -> int:
        """Record n float32 values that start at zero; return the number of the array."""
        return self.columns(n).address

    def counters(self) -> int:
        """Record one int64 counter that starts at zero; return the number of the array."""
        return self._record(np.zeros(1, np.int64)).address

    def constant(self, array: NDArray[Any]) -> int:
        """Record an array that the kernel only reads; return its number."""
        return self._record(np.array(array).ravel(), constant=True).address

    def compiled_step(self, name: str, structure: ctypes.Structure, sizes: tuple[int, int, int]) -> SimpleNamespace:
        """Record the kernel and its structure. Return a kernel without `step`, because the batch makes no step here."""
        self.kernel_name = name
        self.structure = structure
        # `settle` does the pending updates of weights. Before the first step there are none.
        return SimpleNamespace(settle=lambda _slots: None)

    def _record(self, start: NDArray[Any], constant: bool = False) -> RecordedArray:
        self.arrays.append(RecordedArray(len(self.arrays) + 1, start, constant))  # 0 is the null pointer
        return self.arrays[-1]


def c_source(experiment: Experiment, genome: Genomes, normalizer: Float32 | None, title: str) -> str:
    """Return the C source of a policy. Raises InputError if the network has no kernel in C.

    genome: A single genome (P = 1).
    normalizer: [2, O]; None without normalization of observations.
    title: One line for the head of the file.
    """
    recorded = RecordedArrays()
    batch = experiment.network.batch(1, recorded)  # type: ignore[arg-type]  # in place of the arrays of a back end
    # Only the batch of a network with a C kernel asks for a kernel.
    if not recorded.kernel_name:
        cure = "Export it as JSON (.json), which holds every network."
        raise InputError("network", "a network with a C kernel", experiment.config.network.name, cure)
    # `load` puts the values at the start of an episode into the arrays. plastic-mlp draws its first weights from the
    # environment seed: take seed 0.
    seeds = np.zeros(1, np.int64)
    batch.load(np.zeros(1, np.intp), genome.weights, genome.mask, seeds)
    _drop_traces(recorded)
    _mark_constants(recorded)
    # The C file has three kinds of constants: arrays that the kernel only reads, start values that are not all zero,
    # and the normalizer. An array with such start values counts as a constant and as state.
    state = [array for array in recorded.arrays if not array.constant]
    constant_bytes = sum(array.start.nbytes for array in recorded.arrays if array.constant or array.start.any())
    # The structure has the addresses of the arrays, so C needs the arrays first.
    definitions = [*map(_definition, recorded.arrays), _structure(recorded)]
    if normalizer is not None:
        definitions += [_array("subtracted", normalizer[0]), _array("multiplied", normalizer[1])]
        constant_bytes += normalizer.nbytes
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        # `sanitize` makes the title one line, so that no `*/` can be divided by a line break.
        title=sanitize(title).replace("*/", "* /"),
        spaces="\n".join(f" * {line.replace('*/', '* /')}" for line in describe_spaces(experiment)),
        version=evolve.__version__,
        observations=experiment.network.observation_size,
        outputs=experiment.action_size,
        constants=f"{constant_bytes:,}",
        state=f"{sum(array.start.nbytes for array in state):,}",
        headers=_inlined(f"{recorded.kernel_name}.h", set()),
        arrays="\n".join(definitions),
        reset="\n".join(map(_reset, state)),
        normalization="" if normalizer is None else _NORMALIZATION,
        seen="observation" if normalizer is None else "seen",
        kernel=recorded.kernel_name,
    )


def _drop_traces(recorded: RecordedArrays) -> None:
    """Drop the traces of a hebbian-dag without plasticity. They change no output, and only decide about pruning."""
    structure: Any = recorded.structure
    if recorded.kernel_name != "hebbian_dag" or structure.gains:
        return
    # A step stores its nodes and sums for later updates of traces. Without updates, one step is enough.
    for name in ("nodes", "sums"):
        array = recorded.arrays[getattr(structure, name) - 1]
        array.start = array.start[: len(array.start) // structure.history]
    structure.history = 1
    del recorded.arrays[structure.traces - 1]
    structure.traces = None


def _mark_constants(recorded: RecordedArrays) -> None:
    """Mark the arrays that the kernel only reads as constants: its header declares their fields `const`."""
    header = _header_path(f"{recorded.kernel_name}.h").read_text()
    structure = re.search(rf"typedef struct {{([^}}]*)}} {recorded.kernel_name};", header)
    assert structure is not None
    declarations = " ".join(re.findall(r"const \w+ (\*[^;]*);", structure[1]))
    addresses = {getattr(recorded.structure, name) for name in re.findall(r"\*(\w+)", declarations)}
    for array in recorded.arrays:
        array.constant |= array.address in addresses


def describe_spaces(experiment: Experiment) -> list[str]:
    """Return lines about the spaces for the head of a C file.

    They have the indices of each part of the observation, and a formula for each part of the action.
    """
    spaces, scale = experiment.spaces, experiment.config.env.action_scale
    lines = []
    first = 0
    # The parts of the observation. An observation that is one array needs no line, unless its numbers are divided, as
    # in an image.
    for name, space in _parts("observation", spaces.observation):
        size, _ = observation_encoder(space)
        divisor = divisor_of(space)
        if divisor != 1 or kind_of(spaces.observation) in ("Dict", "Tuple"):
            scaled = "" if divisor == 1 else f", divided by {divisor}"
            lines.append(f"{_range('observation', first, size)}: {name}{scaled}")
        first += size
    if spaces.action is None:
        return [*lines, "The task reads the outputs in its own way; docs/exact.md describes the tasks of evolve."]
    # The parts of the action. `first` is the number of the first output of a part.
    first = 0
    for name, space in _parts("action", spaces.action):
        size, _ = action_decoder(space, scale)
        if kind_of(space) == "Box":
            lines += _describe_box(name, space, scale, first)
        else:
            lines.append(f"{_range('output', first, size)}: {name} {_describe_choice(space)}")
        first += size
    return lines


def _parts(name: str, space: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the space of each part that is neither a Dict nor a Tuple, in the order of the flat array.

    A part has the name of a Python expression: `observation["camera"]`.
    """
    if kind_of(space) not in ("Dict", "Tuple"):
        yield name, space
        return
    for key, member in members_of(space):
        yield from _parts(f"{name}[{json.dumps(key)}]", member)


def _range(array: str, first: int, size: int) -> str:
    """Return the indices of a part of an array in words: "output[2]" or "output[2..4]"."""
    return f"{array}[{first}]" if size == 1 else f"{array}[{first}..{first + size - 1}]"


def _describe_choice(space: Any) -> str:
    """Return the action of a Discrete, a MultiDiscrete or a MultiBinary space in words."""
    if kind_of(space) == "MultiBinary":
        return "has a 1 for each output above 0"
    if kind_of(space) == "Discrete":
        added = f"{space.start} + " if space.start else ""
        return f"is {added}the index of the largest output"
    start = space.start.ravel().tolist()
    added = f", plus {start}" if any(start) else ""
    groups = f"the groups have {space.nvec.ravel().tolist()} outputs"
    return f"has the index of the largest output of each group{added}; {groups}"


def _describe_box(name: str, space: Any, scale: float, first: int) -> list[str]:
    """Return lines about the action of a Box: one line for all numbers if they are alike, otherwise one for each."""
    columns = [column.tolist() for column in box_map(space, scale)]
    # A row for each number of the Box: the centre and half of its range, and its limits.
    rows = list(zip(*columns, strict=True))
    # Each line is about `size` outputs: all of them if they are alike, otherwise one.
    size = len(rows) if len(set(rows)) == 1 else 1
    lines = []
    for place in range(0, len(rows), size):
        centre, half, floor, ceiling = rows[place]
        number = name if size == len(rows) else f"number {place} of {name}"
        stretched = "output" if half == 1 else f"{_decimal(half)} * output"
        value = f"{_decimal(centre)} + {stretched}" if centre else stretched
        # An output is in [-1, 1], so the value is in centre ± half. Limits equal to this range need no words.
        is_whole_range = (floor, ceiling) == (centre - half, centre + half)
        limits = "" if is_whole_range else f", in [{_decimal(floor)}, {_decimal(ceiling)}]"
        rounded = ", rounded to whole numbers" if is_rounded(space) else ""
        lines.append(f"{_range('output', first + place, size)}: {number} is {value}{limits}{rounded}")
    return lines


def _decimal(value: float) -> str:
    """Return the shortest decimal number that is exactly this float64."""
    return repr(value).removesuffix(".0")


def _inlined(header: str, inlined: set[str]) -> str:
    """Return a header with the headers that it includes, each once, and without the parts for CUDA compilers.

    inlined: The names of the headers that are in the text already. This function adds its own.
    """
    if header in inlined:
        return ""
    inlined.add(header)
    lines = []
    for line in without_cuda(_header_path(header).read_text()).splitlines():
        included = re.fullmatch(r'#include "(.+)"', line)
        if included:
            lines.append(_inlined(included[1], inlined))
        elif line != "#pragma once":
            lines.append(re.sub(r"^( *)(?=(int|void) evolve_)", r"\1static inline __attribute__((unused)) ", line))
    # lanes.h defines both macros otherwise.
    if header == "lanes.h":
        lines.append(_MACROS)
    return "\n".join(lines)


def _header_path(name: str) -> Path:
    """Return the path of a header of the kernels."""
    paths = [folder / name for folder in _HEADER_FOLDERS]
    return next(path for path in paths if path.exists())


def without_cuda(text: str) -> str:
    """Return a header without the parts that only a CUDA compiler sees."""
    lines: list[str] = []
    # For each open #if: whether a host compiler sees its present branch; None if the #if does not test for CUDA.
    is_visible: list[bool | None] = []
    for line in text.splitlines():
        words = line.split()
        # A host compiler does not define __CUDACC__, so it sees the lines after #ifndef. All other tests stay in the
        # text, for the compiler of the policy.
        if line.startswith("#if"):
            tests_cuda = words[1:] == ["__CUDACC__"]
            is_visible.append((words[0] == "#ifndef") if tests_cuda else None)
            if tests_cuda:
                continue
        elif line.startswith("#else") and is_visible[-1] is not None:
            is_visible[-1] = not is_visible[-1]
            continue
        elif line.startswith("#endif") and is_visible.pop() is not None:
            continue
        if False not in is_visible:
            lines.append(line)
    return "\n".join(lines)


def _definition(array: RecordedArray) -> str:
    """Return the C definition of an array, with its values at the start if these are not all zero."""
    if array.constant:
        return _array(f"array_{array.address}", array.start)
    # C has no arrays of length 0.
    memory = f"static {_C_TYPES[array.start.dtype]} array_{array.address}[{max(1, len(array.start))}];"
    start = _array(f"start_{array.address}", array.start) if array.start.any() else ""
    return start + memory


def _reset(array: RecordedArray) -> str:
    """Return the C statement that sets an array to its values at the start of an episode."""
    name = f"array_{array.address}"
    call = f"memcpy({name}, start_{array.address}" if array.start.any() else f"memset({name}, 0"
    return f"    {call}, sizeof {name});"


def _structure(recorded: RecordedArrays) -> str:
    """Return the C definition of a kernel's structure."""
    structure = recorded.structure
    assert structure is not None
    # The initializer gives the values in the order of the fields, and the names in comments only: C++ before C++20 has
    # no designated initializers.
    lines = [f"    {_field(getattr(structure, name), kind)}, /* {name} */" for name, kind, *_ in structure._fields_]
    return f"static const {recorded.kernel_name} net = {{\n" + "\n".join(lines) + "\n};"


def _field(value: Any, kind: Any) -> str:
    """Return the value of a structure's field in C. kind: the field's type."""
    # `RecordedArrays` counts from 1, so 0 and None are the null pointer.
    if kind is ADDRESS:
        return f"array_{value}" if value else "0"
    if kind is FLOAT:
        return _number(np.float32(value))
    if isinstance(value, ctypes.Array):
        return "{" + ", ".join(map(str, value)) + "}"
    return str(value)


def _array(name: str, values: NDArray[Any]) -> str:
    """Return the C definition of a constant array."""
    numbers = [_number(value) for value in values.ravel()]
    lines = [", ".join(numbers[n : n + _NUMBERS_PER_LINE]) for n in range(0, len(numbers), _NUMBERS_PER_LINE)]
    body = ",\n    ".join(lines)
    return f"static const {_C_TYPES[values.dtype]} {name}[{len(numbers)}] = {{\n    {body}\n}};\n"


def _number(value: Any) -> str:
    """Return a number in C. A float32 is hexadecimal, and thus exact."""
    if isinstance(value, np.integer):
        return str(value)
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    # Leave out zeros at the end of the fraction: "0x1.8000000000000p+1" becomes "0x1.8p+1".
    return re.sub(r"\.?0*p", "p", float(value).hex()) + "f"
