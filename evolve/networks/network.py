"""The contract of a network (`Network`, `Batch`), and the base classes of the built-in networks and batches.

A slot holds the network of one running episode. The built-in batches keep their state in arrays (`SlotArrays`). An
array holds a column of numbers for each of B slots. The arrays are in the memory of the back end: on the host, or on a
device (`evolve.numerics.device`). The native kernel processes a tile of slots at a time. With NumPy there is one tile
of B slots. `layered` has the simplest networks.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.genome import Block, GenomeLayout, Genomes, pruned
from evolve.numerics import Backend, aligned, native
from evolve.numerics.device import DeviceArrays, DeviceColumns, DeviceStep
from evolve.numerics.streams import AnyStream
from evolve.shapes import Bool, Float32, Int64, Slots, ceil_div

_Size = Annotated[int, Field(ge=1, le=65536)]

Hidden = Annotated[tuple[_Size, ...], Field(max_length=64, strict=False)]
"""The sizes of hidden layers, from the observation on."""

_OneLayer = Field(min_length=1, max_length=1, strict=False)

OneHidden = Annotated[tuple[_Size, ...], _OneLayer]
"""The size of the one hidden layer."""

OneHiddenOfTwoOrMore = Annotated[tuple[Annotated[int, Field(ge=2, le=65536)], ...], _OneLayer]
"""The size of the one hidden layer, which needs two neurons or more."""

Share = Annotated[float, Field(ge=0, lt=1)]
"""A share of connections."""

Scale = Annotated[float, Field(gt=0, le=1e6)]
"""A factor of weights."""

OptionsT = TypeVar("OptionsT", bound=Any)
_NATIVE_PUT = 2**12  # from this number of values on, the native function `put` is faster than an array operation


class NetworkOptions(Options):
    """Base of the settings of `[network]`. `aliases` maps names of settings in earlier versions to the present ones."""

    aliases: ClassVar[Mapping[str, str]] = {"birth_scale": "init_scale", "birth_pruning": "init_sparsity"}


def blocks_end_to_end(matrices: Sequence[tuple[int, int, int, int]], names: Sequence[str]) -> tuple[Block, ...]:
    """Return blocks that lie end to end in a genome.

    matrices: The layer, source, rows and columns of each block. names: The name of each block, see `Block`.
    """
    blocks: list[Block] = []
    for (layer, source, rows, columns), name in zip(matrices, names, strict=True):
        start = blocks[-1].stop if blocks else 0
        blocks.append(Block(layer, source, start, rows, columns, name=name))
    return tuple(blocks)


def dag_blocks(sizes: tuple[int, ...]) -> tuple[Block, ...]:
    """Return the blocks of a directed acyclic graph, in which each layer reads the observation and all earlier layers.

    sizes: The sizes of the observation and of each layer.
    """
    matrices = []
    for layer, columns in enumerate(sizes[1:]):
        matrices += [(layer, source, sizes[source], columns) for source in range(layer + 1)]
    return blocks_end_to_end(matrices, [""] * len(matrices))


@dataclass(frozen=True)
class Activity:
    """The last step of the network of one slot, for drawings.

    Attributes:
        nodes: The observation, and then for each layer the outputs of its neurons. Each array ends with the context
            units and bias units that the next layer reads, if there are any.
        weights: [W], the current weight of each connection, in genome order. If the genome has learning rules, the
            shape is [connections]: the matrices of the connections that learn, of shapes `Block.span`, end to end.
    """

    nodes: tuple[Float32, ...]
    weights: Float32


class Batch(Protocol):
    """The running state of B slots. A method that works on k of the slots takes their numbers [k], all different.

    A batch may also have two optional methods:

    - `weights(slots)` returns the current weights of the slots, [k, W] or [k, connections], see `Activity`. The method
      `Policy.weights` needs it.
    - `activity(slot)` returns the `Activity` of a slot. Films of the network need it, with the back end numpy.
    """

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes into slots and clear all other state of these slots.

        Args:
            slots: [k].
            weights: [k, W], the weights of the genomes, read-only.
            mask: [k, W], the masks of the genomes, read-only.
            seeds: [k], the seeds of the episodes' environments. A network may draw its initial state from them.
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the genomes and the state of the source slots to the target slots."""

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> new actions [n, A] in [-1, 1]."""

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: the traces of the slots' episodes. Callers ignore the traces of pruned connections."""


class Network(GenomeLayout, Protocol):
    """The description of a network of given sizes. A class may also have these attributes:

    - `validate(options)`, a static method. It raises InputError for options that make no sense in a new run. Existing
      runs with such options can still be resumed and examined.
    - `modulators`: the neurons (layer, number) that modulate learning. The last A neurons of the last layer must then
      be the action. The other neurons of this layer have no effect unless they are modulators.
    - `is_static`: whether the blocks alone define the network. It can then be exported as a graph. Its weights do not
      change in an episode. Each layer is tanh of the sum of its sources times their matrices. A sum runs over the rows
      of all sources in ascending order. The last A outputs of the last layer are the action.
    - `sums_by_source`: whether a static network sums the rows of each source first, and then adds these sums.
    """

    @property
    def observation_size(self) -> int:
        """O, the inputs."""

    @property
    def slot_size(self) -> int:
        """The approximate number of float32 values in one slot of a batch."""

    def batch(self, slots: int, backend: Backend) -> Batch:
        """Return an empty batch of B = `slots` slots. Every back end must give the same bits."""


@dataclass(frozen=True)
class BaseNetwork(Generic[OptionsT]):
    """The base of all built-in networks, with O = observation_size inputs and A = action_size outputs.

    A subclass defines at least `blocks`, `slot_size` and `batch`. `init` reads the option `init_sparsity`, and
    `weight_scale` reads the option `init_scale`. A subclass without one of these options overrides its reader.
    """

    options: OptionsT
    observation_size: int
    action_size: int

    batched_init = True  # see `GenomeLayout`
    has_traces = False
    """Whether each connection has a trace."""
    sums_by_source = False  # see `Network`
    activation: ClassVar[str | None] = "tanh"
    """The activation function of all layers; None if layers have different ones."""

    @property
    def is_static(self) -> bool:
        """Whether the blocks define the network, see `Network`."""
        return False

    @property
    def sizes(self) -> tuple[int, ...]:
        """D, the layer sizes from observation to action."""
        return (self.observation_size, *self.options.hidden, self.action_size)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The matrices, in genome order."""
        raise NotImplementedError

    @property
    def num_weights(self) -> int:
        """W, the length of a genome."""
        return self.blocks[-1].stop

    @property
    def num_traces(self) -> int:
        """T, the number of traces of one episode."""
        return self.num_weights if self.has_traces else 0

    @property
    def weight_scale(self) -> Float32 | np.float32:
        """The standard deviation of initial weights, one number or [W]; by default the option `init_scale`."""
        return np.float32(self.options.init_scale)

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome for each stream: normal weights, a share of them pruned."""
        weights = self.weight_scale * stream.normal_rows(self.num_weights)
        return pruned(weights, stream.at_least(self.options.init_sparsity, self.num_weights))


def structure(**fields: tuple[Any, Any]) -> ctypes.Structure:
    """Return a C structure. fields: The type and the value of each field by its name, in the order of the C header."""
    types = [(name, ctype) for name, (ctype, _) in fields.items()]
    made = type("Structure", (ctypes.Structure,), {"_fields_": types})
    return made(**{name: value for name, (_, value) in fields.items()})


class HostColumns:
    """A column of n float32 numbers for each slot, on the host: an array [tiles, n, lanes].

    The `lanes` slots of a tile lie side by side, because vector instructions process several slots together. A method
    that works on k slots takes their numbers [k], all different.

    Attributes:
        rows: n.
        address: The address of the array.
    """

    def __init__(self, tiles: int, n: int, lanes: int, backend: Backend) -> None:
        self.array = aligned(tiles, n, lanes)
        self.rows = n
        self.address = self.array.ctypes.data
        self._lanes = lanes
        self._native = backend == "native"

    def put(self, slots: Slots, values: NDArray[Any]) -> None:
        """Write the columns of slots [k], values [k, n]."""
        if self._native and values.size >= _NATIVE_PUT:
            native.call("put", self.array, slots.astype(np.int64), values.astype(np.float32, copy=False), *values.shape)
        else:
            self.array[self._index(slots)] = values

    def clear(self, slots: Slots) -> None:
        """Write zeros into the columns of slots [k]."""
        self.array[self._index(slots)] = 0

    def take(self, slots: Slots) -> Float32:
        """Return [k, n]: the columns of slots [k]."""
        return self.array[self._index(slots)]

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the columns of the source slots to the target slots."""
        self.array[self._index(targets)] = self.array[self._index(sources)]

    def _index(self, slots: Slots) -> tuple[Slots, slice, Slots]:
        """Return the index of the columns of slots [k] in the array."""
        # A slice separates the two index arrays, so NumPy puts the axis of the slots first: columns are [k, n].
        tile, lane = np.divmod(slots, self._lanes)
        return tile, slice(None), lane


class HostArrays:
    """Makes arrays for B slots on the host, and the compiled step that works on them."""

    def __init__(self, slots: int, backend: Backend) -> None:
        self._backend = backend
        self._lanes = native.lanes() if backend == "native" else slots
        self._tiles = ceil_div(slots, self._lanes)
        self._kept: list[NDArray[Any]] = []  # kernels have only addresses, so this list keeps the arrays alive

    def columns(self, n: int) -> HostColumns:
        """Return a column of n zeros for each slot."""
        return HostColumns(self._tiles, n, self._lanes, self._backend)

    def zeros(self, n: int) -> int:
        """Return the address of n float32 for each slot, initially 0."""
        return self._keep(aligned(self._tiles, n, self._lanes))

    def counters(self) -> int:
        """Return the address of an int64 for each tile, initially 0."""
        return self._keep(np.zeros(self._tiles, np.int64))

    def constant(self, array: NDArray[Any]) -> int:
        """Return the address of a copy of an array."""
        return self._keep(np.array(array))

    def compiled_step(self, name: str, structure: ctypes.Structure, sizes: tuple[int, int, int]) -> native.NativeStep:
        """Return the step of a batch, which calls the native kernel `evolve_<name>`.

        Args:
            name: The name of the kernel.
            structure: The first argument of the kernel.
            sizes: O, A and the size of the largest layer, as for `DeviceStep`. Only A is used.
        """
        return native.NativeStep(name, structure, sizes[1], self._lanes)

    def _keep(self, array: NDArray[Any]) -> int:
        """Keep an array alive, and return its address."""
        self._kept.append(array)
        return int(array.ctypes.data)


Columns = HostColumns | DeviceColumns
"""A column of numbers for each slot, in the memory of the back end."""


class SlotArrays:
    """The base of the built-in batches: the arrays of B slots.

    Attributes:
        held: The columns with the state of the slots, made by `_hold`. `load` and `move` copy them.
        kept_traces: The traces that an episode leaves for the strategy; None if it leaves none.
        seeded: Whether `initial` depends on the seeds of the episodes.
        kernel: The compiled step; None with the back end numpy, whose array operations (`_reference`) define the step.
            A kernel may delay updates of traces for some steps; `_settle` applies them.
    """

    seeded = False

    def __init__(self, slots: int, backend: Backend | HostArrays | DeviceArrays) -> None:
        self._compiled = backend != "numpy"
        # The export to C passes `RecordedArrays`, which record the arrays that the batch requests.
        if isinstance(backend, str):
            backend = DeviceArrays(slots) if backend == "cupy" else HostArrays(slots, backend)
        self._arrays = backend
        self.held: list[Columns] = []
        self.kept_traces: Columns | None = None
        self.kernel: native.NativeStep | DeviceStep | None = None

    def _compile(self, name: str, network: BaseNetwork[Any]) -> None:
        """Set `kernel` to the compiled step `evolve_<name>`, unless the back end is numpy.

        Call it after all calls of `_hold`, because `_structure` has the addresses of the columns.
        """
        if self._compiled:
            sizes = network.observation_size, network.action_size, max(network.sizes[1:])
            self.kernel = self._arrays.compiled_step(name, self._structure(), sizes)

    def _structure(self) -> ctypes.Structure:
        """Return the first argument of the kernel, with the addresses of the arrays."""
        raise NotImplementedError

    def _hold(self, n: int) -> Any:
        """Return new columns of n zeros, and add them to `held`: `HostColumns`, or the columns of a device."""
        columns = self._arrays.columns(n)
        self.held.append(columns)
        return columns

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return the contents of slots at the start of an episode, [k, n] for each column in `held`; None for zeros.

        Args:
            weights: [k, W], as for `load`.
            mask: [k, W], as for `load`.
            seeds: [k], as for `load`.
        """
        raise NotImplementedError

    def fits(self, _genomes: Genomes) -> bool:
        """Return whether episodes of these genomes may run beside the episodes that are running.

        They may not if `columns_of` gives their columns another layout than the running episodes have.
        """
        return True

    def columns_of(self, genomes: Genomes, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return the initial columns of k genomes for a kernel that plays whole episodes.

        They equal `initial`, or have factors (`FactoredGenomes`) from which the kernel computes weights. seeds: [k].
        """
        return self.initial(genomes.weights, genomes.mask, seeds)

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes [k, W] into slots, and clear all other state of these slots."""
        # A pending update would otherwise change the traces of the next genome.
        self._settle(slots)
        for columns, values in zip(self.held, self.initial(weights, mask, seeds), strict=True):
            if values is None:
                columns.clear(slots)
            else:
                columns.put(slots, values)

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: the traces of slots; T = 0 if the network has no traces."""
        if self.kept_traces is None:
            return np.zeros((len(slots), 0), np.float32)
        self._settle(slots)
        return self.kept_traces.take(slots)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the genomes and the state of the source slots to the target slots."""
        # Pending updates belong to tiles. The columns do not carry them, so apply them before the copy.
        self._settle(np.concatenate([sources, targets]))
        for columns in self.held:
            columns.move(sources, targets)

    @property
    def can_give(self) -> bool:
        """Whether `give` is possible: the columns must have the same layout as in all batches of this network."""
        return True

    def give(self, other: "SlotArrays", sources: Slots, targets: Slots) -> None:
        """Copy the genomes and the state of the source slots to the target slots of another batch of this network.

        `can_give` must be True for both batches.
        """
        self._settle(sources)
        other._settle(targets)
        for from_columns, to_columns in zip(self.held, other.held, strict=True):
            to_columns.put(targets, from_columns.take(sources))

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> new actions [n, A]."""
        return self._reference(observations) if self.kernel is None else self.kernel(observations)

    def _reference(self, observations: Float32) -> Float32:
        """Do what `step` does, by array operations, which define the step."""
        raise NotImplementedError

    def _settle(self, slots: Slots) -> None:
        """Apply the trace updates that the kernel has delayed, in all tiles that contain the given slots."""
        # The kernels of networks without traces have no `settle`.
        if self.kernel is not None and self.kept_traces is not None:
            self.kernel.settle(slots)
