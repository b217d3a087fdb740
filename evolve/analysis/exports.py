"""Policies for use without this package: JSON, ONNX, PyTorch, and one C file (`c_source`).

ONNX and PyTorch store a graph of operations. It contains the normalization of observations, the layers, and the
decoding of actions. It needs a network whose weights do not change within an episode (`Network.is_static`). C can store
every network that has a kernel, and JSON every network.

`_results_of` builds the graph of both formats. Its argument `functions` has the operations of ONNX or of PyTorch.
"""

import inspect
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

import evolve
from evolve.analysis.c_source import c_source
from evolve.environments.spaces import box_map, is_rounded, kind_of, members_of
from evolve.errors import InputError, import_extra
from evolve.genome import Block
from evolve.networks import NETWORKS
from evolve.rollouts.inference import CLIP
from evolve.shapes import Float32
from evolve.store.disk import check_writable, write_output

if TYPE_CHECKING:
    from evolve.analysis.policy import Policy

FORMATS = {"c": ".c", "json": ".json", "onnx": ".onnx", "torch": ".pt2"}
"""The formats of a policy, and the endings of their files."""
JSON_VERSION = 1
_MOST_ROWS = 1024  # a PyTorch program adds up the rows of a matrix one by one up to this number of rows
_OPSET, _IR = 17, 8  # versions of ONNX's operators and of its format; they are old, so every runtime reads them


def export_policy(policy: "Policy", path: Path) -> Path:
    """Write a policy in the format that the ending of the path names; see `Policy.export`."""
    check_writable(path, tuple(FORMATS.values()))
    if path.suffix == ".c":
        content = c_source(policy.experiment, policy.acting_genome, policy.normalizer, _title(policy)).encode()
    elif path.suffix == ".json":
        content = (json.dumps(to_json(policy), indent=1) + "\n").encode()
    elif path.suffix == ".onnx":
        content = onnx_model(policy)
    else:
        content = torch_program(policy)
    write_output(path, content)
    return path


def _title(policy: "Policy") -> str:
    """Return the network, the environment with its wrappers, and the origin of a policy in words."""
    config = policy.experiment.config
    # Observations and actions are those of the outermost wrapper, so a reader must know the wrappers.
    wrappers = ", ".join(wrapper.name.partition(":")[2] for wrapper in config.env.wrappers)
    wrapped = f" in the wrappers {wrappers}" if wrappers else ""
    origin = f": {policy.origin}" if policy.origin else ""
    return f"{config.network.name} for {config.env.id}{wrapped}{origin}"


def to_json(policy: "Policy") -> dict[str, Any]:
    """Return a policy as a table for JSON, see docs/champions.md. Raises InputError if a weight is not finite."""
    experiment = policy.experiment
    network, settings = experiment.network, experiment.config.network.table()
    genome = policy.acting_genome
    mask = genome.mask[0]
    if not np.isfinite(genome.weights[0, mask]).all():
        raise InputError("network", "finite weights, because JSON has no others", "NaN or infinity")
    is_static = bool(getattr(network, "is_static", False))
    if is_static:
        layers_of(policy, "JSON")  # raises InputError if a network of another package has no tanh layers
    # A static network may compute its weights from the genome: binary-mask-mlp computes them from the mask.
    static_weights = policy.weights if is_static else {}
    matrices = []
    for block in network.blocks:
        place = slice(block.start, block.stop)
        weights = _matrix(static_weights, block) if is_static else genome.weights[0, place]
        sizes = {"layer": block.layer, "source": block.source, "rows": block.rows, "columns": block.columns}
        span = {} if block.span is None else {"span": list(block.span)}
        numbers = {"weights": _numbers(weights), "mask": mask[place].astype(int).tolist()}
        matrices.append({"name": block.title, **sizes, **span, **numbers})
    # A static network has tanh layers (`Network`). If another package's network is not static, its activation and the
    # order of its sums are unknown.
    is_known = is_static or settings["name"] in NETWORKS
    activation = getattr(network, "activation", "tanh" if is_static else None)
    sums = "by source" if getattr(network, "sums_by_source", False) else "all rows"
    normalizer = None
    if policy.normalizer is not None:
        subtract, multiply = map(_numbers, policy.normalizer)
        normalizer = {"subtract": subtract, "multiply": multiply, "clip": float(CLIP)}
    return {
        "format": "evolve-policy",
        "version": JSON_VERSION,
        "title": _title(policy),
        "written_by": f"evolve {evolve.__version__}",
        "environment": experiment.config.env.id,
        "observation_size": network.observation_size,
        "action_size": experiment.action_size,
        **experiment.spaces.to_json(),
        "decode": _decoding(experiment.spaces.action, experiment.config.env.action_scale),
        "normalizer": normalizer,
        "network": {
            "name": settings["name"],
            "options": {key: value for key, value in settings.items() if key != "name"},
            "is_static": is_static,
            "activation": activation if isinstance(activation, str) else None,
            "sums": sums if is_known else None,
            "formulas": _formulas(network),
        },
        "matrices": matrices,
    }


def _formulas(network: Any) -> str | None:
    """Return the docstring of a network's module, otherwise of its class; None if there is none."""
    module = sys.modules[type(network).__module__]
    return inspect.cleandoc(module.__doc__ or type(network).__doc__ or "") or None


def _numbers(values: Any) -> list[float]:
    """Return an array as a flat list, row by row: the shortest decimal numbers that become the same float32 numbers."""
    return [float(str(value)) for value in np.asarray(values, np.float32).ravel()]


def _action_array_space(policy: "Policy") -> Any:
    """Return the space of actions; None without a space, and for a Dict or Tuple, whose action is not one array."""
    space = policy.experiment.spaces.action
    return None if space is None or kind_of(space) in ("Dict", "Tuple") else space


def _decoding(space: Any, scale: float) -> Any:
    """Return the numbers with which outputs become an action of a space.

    For a Box, return a table. For a Dict or a Tuple, return a list with an entry for each member. Other spaces need no
    numbers, so return None.
    """
    kind = None if space is None else kind_of(space)
    if kind in ("Dict", "Tuple"):
        return [_decoding(member, scale) for _, member in members_of(space)]
    if kind != "Box":
        return None
    numbers = {name: values.tolist() for name, values in box_map(space, scale)._asdict().items()}
    return numbers | {"rounded": is_rounded(space)}


class Term(NamedTuple):
    """A term of the sum in a layer: the values of one or more sources, end to end, times a matrix, plus a bias.

    Source 0 is the observation, and source l + 1 is the output of layer l.

    sources: The number of each source, and whether the layer reads the source's values of the previous step.
    matrix: [rows, columns]: a row for each value, and a column for each neuron of the layer.
    bias: [columns]; None without biases.
    """

    sources: list[tuple[int, bool]]
    matrix: Float32
    bias: Float32 | None


@dataclass(frozen=True)
class Layers:
    """A static network as matrices.

    Attributes:
        terms: The terms of each layer. A layer adds up the rows of each term in ascending order, and then the terms.
            evolve's own networks have the same order.
        sizes: The number of values of each source.
        remembered: The sources whose values the next step reads.
    """

    terms: list[list[Term]]
    sizes: list[int]
    remembered: list[int]

    @property
    def memory_size(self) -> int:
        """M, the number of values that the next step reads."""
        return sum(self.sizes[source] for source in self.remembered)


def layers_of(policy: "Policy", format_name: str) -> Layers:
    """Return the layers of a policy's network.

    Raises InputError if its weights change within an episode, or if it does not consist of tanh layers.

    format_name: The name of the format, for errors.
    """
    network, kind = policy.experiment.network, policy.experiment.config.network.name
    if not getattr(network, "is_static", False):
        expected = f"for {format_name} a static network such as mlp or elman, with weights that do not change"
        cure = "Export it as C (.c), which can hold every built-in network, or as JSON (.json)."
        if not hasattr(network, "is_static"):  # a network of another package, which has no kernel for C
            cure = "If it consists of tanh layers, say so: is_static = True. Or export it as JSON (.json)."
        raise InputError("network", expected, kind, cure)
    weights = policy.weights
    # Each block of a layer has a column for each neuron of the layer.
    columns = {block.layer: block.columns for block in network.blocks}
    sizes = [network.observation_size, *columns.values()]
    terms_of_layers: list[list[Term]] = []
    remembered: list[int] = []
    for layer, blocks in groupby(network.blocks, lambda block: block.layer):
        terms = []
        for block in blocks:
            matrix = _matrix(weights, block)
            is_recurrent = block.source > layer  # source l + 1 is layer l: this layer or a later one
            if is_recurrent and block.source not in remembered:
                remembered.append(block.source)
            # A matrix with biases has one row more than its source has nodes. The biases are the last row.
            rows = sizes[block.source]
            bias = matrix[rows] if block.rows > rows else None
            terms.append(Term([(block.source, is_recurrent)], matrix[:rows], bias))
        if not getattr(network, "sums_by_source", False):
            # The layer has one sum over all rows, so stack the matrices. Only the last one may have a bias.
            sources = [source for term in terms for source in term.sources]
            terms = [Term(sources, np.concatenate([term.matrix for term in terms]), terms[-1].bias)]
        terms_of_layers.append(terms)
    layers = Layers(terms_of_layers, sizes, remembered)
    if kind not in NETWORKS and not _has_outputs_of(layers, policy):
        expected = f"for {format_name} a network of tanh layers, because it has is_static = True"
        got = f"{kind}, whose outputs are not the ones of tanh layers"
        raise InputError("network", expected, got, "Leave is_static out, and export the policy as JSON (.json).")
    return layers


def _has_outputs_of(layers: Layers, policy: "Policy") -> bool:
    """Return whether a policy's network has the outputs of `layers`, tried in three steps with made-up observations.

    A network of another package may state `is_static = True` although it does not consist of tanh layers.
    """
    batch = policy.experiment.network.batch(1, "numpy")
    genome = policy.acting_genome
    batch.load(np.zeros(1, np.intp), genome.weights, genome.mask, np.zeros(1, np.int64))
    # The operations of NumPy. They add in another order than the network, so compare with a tolerance.
    functions = SimpleNamespace(
        constant=np.asarray, add=np.add, tanh=np.tanh, concatenate=np.hstack, ordered_sum=np.matmul
    )
    values = {source: np.zeros((1, size), np.float32) for source, size in enumerate(layers.sizes)}
    for step in range(3):
        observation = np.sin(np.arange(layers.sizes[0], dtype=np.float32) + 2 * step)[None]
        values = _values_of(functions, layers, observation, previous=values)
        if not np.allclose(batch.step(observation), values[len(layers.terms)], atol=1e-4):
            return False
    return True


def _matrix(weights: Mapping[str, Float32], block: Block) -> Float32:
    """Return the matrix [rows, columns] of a block from the weights of a policy with a static network."""
    # The weights of a policy with a batch are [N, rows, columns]. All N matrices are equal, so take the first.
    return weights[block.title].reshape(-1, block.rows, block.columns)[0]


def _values_of(functions: Any, layers: Layers, observation: Any, previous: Mapping[int, Any]) -> dict[int, Any]:
    """Return the values [N, n] of all sources in a step, by the number of the source.

    functions: Operations on values, such as `_Onnx` and `_Torch`.
    previous: The values of the previous step.
    """
    values = {0: observation}
    for layer, terms in enumerate(layers.terms):
        sums = []
        for term in terms:
            inputs = [(previous if is_recurrent else values)[source] for source, is_recurrent in term.sources]
            total = functions.ordered_sum(functions.concatenate(inputs), term.matrix)
            sums.append(total if term.bias is None else functions.add(total, functions.constant(term.bias)))
        values[layer + 1] = functions.tanh(reduce(functions.add, sums))
    return values


def _results_of(functions: Any, policy: "Policy", layers: Layers, observation: Any, memory: Any) -> dict[str, Any]:
    """Return the results of a step by name: the action, if actions can be decoded, the outputs, and the next memory.

    functions: Operations on values, `_Onnx` or `_Torch`.
    observation: [N, O], flat, before the normalization.
    memory: [N, M], the values of the remembered sources in the previous step, end to end. It is not read if there are
        no remembered sources.
    """
    if policy.normalizer is not None:
        subtract, multiply = map(functions.constant, policy.normalizer)
        low, high = map(functions.constant, (-CLIP, CLIP))
        scaled = functions.multiply(functions.subtract(observation, subtract), multiply)
        observation = functions.clamp(scaled, low, high)
    # The columns of each remembered source in the memory begin and end at two neighbouring edges.
    edges = np.cumsum([0, *(layers.sizes[source] for source in layers.remembered)]).tolist()
    previous = {}
    for source, (start, stop) in zip(layers.remembered, pairwise(edges), strict=True):
        previous[source] = functions.columns(memory, start, stop)
    values = _values_of(functions, layers, observation, previous)
    # The last A neurons of the last layer are the outputs; the others have no effect.
    size = layers.sizes[-1]
    outputs = functions.columns(values[len(layers.terms)], size - policy.experiment.action_size, size)
    results = {}
    space = _action_array_space(policy)
    if space is not None:
        results["action"] = _action_of(functions, space, policy.experiment.config.env.action_scale, outputs)
    results["outputs"] = outputs
    if layers.remembered:
        results["next_memory"] = functions.concatenate([values[source] for source in layers.remembered])
    return results


def _action_of(functions: Any, space: Any, scale: float, outputs: Any) -> Any:
    """Return the actions of a space for network outputs [N, A]."""
    kind = kind_of(space)
    if kind in ("Discrete", "MultiDiscrete"):
        # Each number of the action has a group of outputs. The groups lie end to end, between neighbouring edges.
        sizes = [space.n] if kind == "Discrete" else space.nvec.ravel()
        edges = np.cumsum([0, *sizes]).tolist()
        choices = [functions.argmax(functions.columns(outputs, start, stop)) for start, stop in pairwise(edges)]
        least = functions.constant(np.ravel(space.start).astype(np.int64))
        value = functions.add(functions.concatenate(choices), least)
    elif kind == "MultiBinary":
        value = functions.is_positive(outputs)
    else:
        # `box_map` returns float64 numbers, so the environments decode actions in float64.
        centre, half, floor, ceiling = map(functions.constant, box_map(space, scale))
        value = functions.add(centre, functions.multiply(half, functions.cast(outputs, np.float64)))
        value = functions.clamp(value, floor, ceiling)
        if is_rounded(space):
            value = functions.round(value)
    return functions.reshape(functions.cast(value, _dtype_of(space)), [-1, *space.shape])


def _dtype_of(space: Any) -> np.dtype[Any]:
    """Return the type of the numbers of an action: int64 for a Discrete space, otherwise the type of the space."""
    return np.dtype(np.int64 if kind_of(space) == "Discrete" else space.dtype)


def onnx_model(policy: "Policy") -> bytes:
    """Return a policy as a model of ONNX.

    The input is `observation` [N, O], flat. The outputs are `action`, if actions can be decoded, and `outputs` [N, A].
    A recurrent network also has the input `memory` [N, M] and the output `next_memory` [N, M]: the M outputs of all
    layers that the next step reads. Memory is zero at the start of an episode.
    """
    layers = layers_of(policy, "ONNX")
    onnx = import_extra("onnx", extra="onnx", argument="export", title="ONNX")
    helper = onnx.helper
    graph = _Onnx(onnx)
    results = _results_of(graph, policy, layers, "observation", "memory")
    # Values have numbered names, so an Identity node gives each output its public name.
    for name, value in results.items():
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
    # The type and the shape of each input and output, without the first axis.
    float32 = np.dtype(np.float32)
    described = {"observation": (float32, [layers.sizes[0]]), "outputs": (float32, [policy.experiment.action_size])}
    described["memory"] = described["next_memory"] = (float32, [layers.memory_size])
    space = _action_array_space(policy)
    if space is not None:
        described["action"] = (_dtype_of(space), space.shape)

    def describe(name: str) -> Any:
        dtype, shape = described[name]
        # An axis with a name, "N", may have any length.
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), ["N", *shape])

    inputs = ["observation", *(["memory"] if layers.remembered else [])]
    signature = [list(map(describe, names)) for names in (inputs, results)]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", *signature, graph.constants),
        producer_name="evolve",
        producer_version=evolve.__version__,
        doc_string=_title(policy),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    onnx.checker.check_model(model)
    return model.SerializeToString()


class _Onnx:
    """A graph of ONNX under construction. Each method adds nodes or a constant, and returns the name of the value."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        kinds = "Add", "Sub", "Mul", "Round"
        self.add, self.subtract, self.multiply, self.round = (partial(self.node, kind) for kind in kinds)

    def constant(self, values: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(values, order="C"), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def ordered_sum(self, value: str, matrix: Float32) -> str:
        """Multiply a value [N, rows] by a matrix [rows, columns], summed in the order of the rows as evolve does.

        The node MatMul has another order, and thus errors of up to 4e-6 after tanh.
        """
        # [N, rows, 1] times [rows, columns] is [N, rows, columns]. The last of the running sums over the rows is the
        # whole sum.
        wide = self.node("Unsqueeze", value, self.constant([2]))
        sums = self.node("CumSum", self.multiply(wide, self.constant(matrix)), self.constant(1))
        return self.node("Gather", sums, self.constant(len(matrix) - 1), axis=1)

    def tanh(self, value: str) -> str:
        # In float64, because runtimes approximate tanh in float32, and the errors grow from layer to layer.
        return self.cast(self.node("Tanh", self.cast(value, np.float64)), np.float32)

    def columns(self, value: str, start: int, stop: int) -> str:
        return self.node("Slice", value, *(self.constant([edge]) for edge in (start, stop, 1)))

    def concatenate(self, values: Sequence[str]) -> str:
        return self.node("Concat", *values, axis=1)

    def clamp(self, value: str, low: str, high: str) -> str:
        return self.node("Min", self.node("Max", value, low), high)

    def argmax(self, value: str) -> str:
        return self.node("ArgMax", value, axis=1, keepdims=1)

    def is_positive(self, value: str) -> str:
        return self.node("Greater", value, self.constant(np.float32(0)))

    def cast(self, value: str, dtype: DTypeLike) -> str:
        return self.node("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reshape(self, value: str, shape: list[int]) -> str:
        return self.node("Reshape", value, self.constant(shape))


def torch_program(policy: "Policy") -> bytes:
    """Return a policy as a saved program of `torch.export`.

    `torch.export.load(path).module()` takes the observation [N, O], flat. A recurrent network also takes the memory
    [N, M]. The result is (action, outputs), to which a recurrent network adds the next memory. If actions cannot be
    decoded, the result has no action.
    """
    layers = layers_of(policy, "PyTorch")
    torch: Any = import_extra("torch", extra="torch", argument="export", title="PyTorch")

    class Network(torch.nn.Module):  # type: ignore[misc]  # torch is imported on demand, so its type is Any
        def forward(self, observation: Any, memory: Any = None) -> tuple[Any, ...]:
            return tuple(_results_of(_Torch(torch), policy, layers, observation, memory).values())

    rows = 2  # an example of one row would give a program for one row only
    arguments = [torch.zeros(rows, layers.sizes[0])]
    if layers.remembered:
        arguments.append(torch.zeros(rows, layers.memory_size))
    shapes = tuple({0: torch.export.Dim("N", min=1)} for _ in arguments)
    program = torch.export.export(Network().eval(), tuple(arguments), dynamic_shapes=shapes, strict=False)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


class _Torch:
    """The functions of `_Onnx` for tensors of PyTorch."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.constant = torch.tensor
        self.add, self.subtract, self.multiply = torch.add, torch.subtract, torch.multiply
        self.clamp, self.round, self.tanh = torch.clamp, torch.round, torch.tanh
        self.reshape, self.concatenate = torch.reshape, torch.hstack

    def ordered_sum(self, value: Any, matrix: Float32) -> Any:
        # With very many rows the program would be too long. A product in float64 is close to the ordered sum.
        if len(matrix) > _MOST_ROWS:
            return (value.double() @ self.constant(matrix).double()).float()
        products = value.unsqueeze(2) * self.constant(matrix)  # [N, rows, columns]
        return reduce(self.add, products.unbind(1))

    def columns(self, value: Any, start: int, stop: int) -> Any:
        return value[:, start:stop]

    def argmax(self, value: Any) -> Any:
        return self.torch.argmax(value, 1, keepdim=True)

    def is_positive(self, value: Any) -> Any:
        return value > 0

    def cast(self, value: Any, dtype: DTypeLike) -> Any:
        return value.to(getattr(self.torch, np.dtype(dtype).name))
