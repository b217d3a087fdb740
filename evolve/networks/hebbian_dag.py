"""hebbian-dag: every layer reads all earlier layers; each connection keeps a Hebbian trace of the episode.

With D = [O, h1, …, hL, A + 1], x_0 the observation and W_ij the [D_j, D_{i+1}] matrix from layer j to layer i + 1:

    z_ij    = x_j (W_ij + m H_ij)                    summed over the rows of j in ascending order
    x_{i+1} = tanh((z_i0 + z_i1) + … + z_ii)
    H_ij   ← clip(H_ij + ρ (x_jᵀ z_ij), ±limit)      after all layers have been computed

Output 0 is the neuromodulator, outputs 1 … A are the action. ρ is `trace_rate`, or output 0 when neuromodulated.
m is `plasticity`, 0 at a pruned connection; with m = 0 traces do not act on the network and only steer pruning. H is
zero when an episode starts. All of it is float32. Initial weights are N(0, init_scale²), a share of `init_sparsity` of
them pruned.
"""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import Block, Genomes, pruned
from evolve.networks.network import Activity, all_earlier
from evolve.networks.option_types import Hidden, NetworkOptions, Scale, Share
from evolve.networks.slot_arrays import SlotArrays
from evolve.numerics import Backend, aligned, normal_quantile, sequential_sum, tanh
from evolve.numerics.native import ADDRESS, FLOAT, FLOAT_P, INT64, INT64_P, NativeStep, address, bind, pointer
from evolve.numerics.streams import Stream
from evolve.shapes import Bool, Float32, Int64, Slots

_FAINTEST = 0.001  # of traces


class HebbianDagOptions(NetworkOptions):
    """Settings of `[network]` for hebbian-dag.

    hidden: the sizes of the hidden layers.
    plasticity: m, how strongly traces act on the network; with 0 they only steer pruning.
    trace_rate: ρ, how fast traces grow.
    trace_limit: the largest absolute value of a trace.
    neuromodulated: whether output 0 of the network takes the place of ρ.
    init_scale: the standard deviation of initial weights.
    init_sparsity: the share of connections pruned at first.
    """

    hidden: Hidden = (8, 8)
    plasticity: float = Field(0.0, ge=-1e6, le=1e6)
    trace_rate: float = Field(1.0, ge=-1e6, le=1e6)
    trace_limit: float = Field(10.0, gt=0, le=1e6)
    neuromodulated: bool = False
    init_scale: Scale = 1.0
    init_sparsity: Share = 0.025


@dataclass(frozen=True)
class HebbianDag:
    """The description of a hebbian-dag with O = observation_size inputs and A = action_size outputs."""

    options: HebbianDagOptions
    observation_size: int
    action_size: int

    @staticmethod
    def validate(options: HebbianDagOptions) -> None:
        """Raise InputError for traces so small that the strategy, which gets them in units of 2^-20, sees zeros."""
        if 0 < abs(options.trace_rate) < _FAINTEST:
            raise InputError("network.trace_rate", f"0, or at least {_FAINTEST} away from it", options.trace_rate)
        if options.trace_limit < _FAINTEST:
            raise InputError("network.trace_limit", f"at least {_FAINTEST}", options.trace_limit)

    @property
    def sizes(self) -> tuple[int, ...]:
        """D, the layer sizes from observation to output."""
        return (self.observation_size, *self.options.hidden, self.action_size + 1)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W_00, W_10, W_11, W_20, …: layer by layer, so that all inputs of a layer form one matrix."""
        return all_earlier(self.sizes)

    @property
    def modulators(self) -> tuple[tuple[int, int], ...]:
        """Output 0, where it is the rate of the traces."""
        return ((len(self.sizes) - 1, 0),) if self.options.neuromodulated else ()

    @property
    def num_weights(self) -> int:
        """W, the weights of one genome."""
        return self.blocks[-1].stop

    @property
    def num_traces(self) -> int:
        """T = W: one trace per connection."""
        return self.num_weights

    @property
    def slot_size(self) -> int:
        """Weights, traces and gains."""
        return 3 * self.num_weights

    def init(self, stream: Stream) -> Genomes:
        """Return one genome (P = 1)."""
        weights = np.float32(self.options.init_scale) * normal_quantile(stream.uniform(1, self.num_weights))
        return pruned(weights, stream.uniform(1, self.num_weights) >= self.options.init_sparsity)

    def batch(self, slots: int, backend: Backend) -> "HebbianDagBatch":
        """Return an empty batch of B = `slots` slots."""
        return _NativeBatch(self, slots) if backend == "native" else _ArrayBatch(self, slots)


class HebbianDagBatch(SlotArrays):
    """The genomes and traces of B slots, [tiles, W, lanes]."""

    def __init__(self, network: HebbianDag, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._network = network
        self._weights = self._hold(network.num_weights)
        self._traces = self._hold(network.num_weights)
        # m where a connection is left, 0 where it is not
        self._gains = self._hold(network.num_weights) if network.options.plasticity else None

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes [k, W] into slots and clear their traces."""
        at = self._at(slots)
        self._weights[at] = weights
        self._traces[at] = 0
        if self._gains is not None:
            self._gains[at] = np.float32(self._network.options.plasticity) * mask

    def traces(self, slots: Slots) -> Float32:
        """Return [k, W]: the traces of slots."""
        return self._traces[self._at(slots)]

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots: observations [n, O] -> new actions [n, A]."""
        raise NotImplementedError


class _Structure(ctypes.Structure):
    """`hebbian_dag` of kernels/hebbian_dag.h."""

    _fields_ = (
        ("layers", INT64), ("sizes", INT64_P), ("weight_rows", INT64), ("node_rows", INT64), ("sum_rows", INT64),
        ("delay", INT64), ("weights", FLOAT_P), ("traces", FLOAT_P), ("gains", FLOAT_P), ("nodes", FLOAT_P),
        ("sums", FLOAT_P), ("due", INT64_P), ("trace_rate", FLOAT), ("trace_limit", FLOAT), ("neuromodulated", INT64),
    )  # fmt: skip


class _NativeBatch(HebbianDagBatch):
    """Steps by the native kernel.

    Without plasticity the kernel updates traces several steps at a time. `_settle` makes the updates that are due, and
    is called before traces are read or replaced.
    """

    def __init__(self, network: HebbianDag, slots: int) -> None:
        super().__init__(network, slots, "native")
        most_delay = bind("hebbian_dag_most_delay", returns=ctypes.c_int)
        delay = 1 if self._gains is not None else int(most_delay())
        D = network.sizes
        num_nodes = sum(D)
        num_sums = sum((layer + 1) * columns for layer, columns in enumerate(D[1:]))
        sizes = np.array(D, np.int64)
        due = np.zeros(self._tiles, np.int64)
        nodes = aligned(self._tiles, delay * num_nodes, self._lanes)
        sums = aligned(self._tiles, delay * num_sums, self._lanes)
        structure = _Structure(
            layers=len(D) - 1,
            sizes=pointer(sizes),
            weight_rows=network.num_weights,
            node_rows=num_nodes,
            sum_rows=num_sums,
            delay=delay,
            weights=pointer(self._weights),
            traces=pointer(self._traces),
            gains=FLOAT_P() if self._gains is None else pointer(self._gains),
            nodes=pointer(nodes),
            sums=pointer(sums),
            due=pointer(due),
            trace_rate=network.options.trace_rate,
            trace_limit=network.options.trace_limit,
            neuromodulated=network.options.neuromodulated,
        )
        kept = (sizes, due, nodes, sums, self._weights, self._traces, self._gains)
        self._kernel = NativeStep("hebbian_dag", structure, network.action_size, kept)
        self._settle_tiles = bind("hebbian_dag_settle", [ADDRESS, ADDRESS, INT64])

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        self._settle(slots)
        super().load(slots, weights, mask, seeds)

    def move(self, sources: Slots, targets: Slots) -> None:
        self._settle(np.concatenate([sources, targets]))
        super().move(sources, targets)

    def traces(self, slots: Slots) -> Float32:
        self._settle(slots)
        return super().traces(slots)

    def step(self, observations: Float32) -> Float32:
        return self._kernel(observations)

    def _settle(self, slots: Slots) -> None:
        """Bring the traces of slots up to date, with those of the other slots in their tiles."""
        tiles: Int64 = slots // self._lanes
        if len(tiles) > 1:
            tiles = np.unique(tiles)
        self._settle_tiles(self._kernel.address, address(tiles), len(tiles))


@dataclass(frozen=True)
class _Layer:
    """Views of one layer for the first n slots: R input nodes (all earlier layers), K output nodes."""

    inputs: Float32  # [R, n]
    outputs: Float32  # [K, n]
    weights: Float32  # [R, K, n]
    traces: Float32  # [R, K, n]
    gains: Float32 | None  # [R, K, n]
    scratch: Float32  # [R, K, n]
    sources: tuple[slice, ...]  # rows of each earlier layer


class _ArrayBatch(HebbianDagBatch):
    """Steps by array operations: the reference, and the definition."""

    def __init__(self, network: HebbianDag, slots: int) -> None:
        super().__init__(network, slots, "numpy")
        self._nodes = np.zeros((sum(network.sizes), slots), np.float32)
        self._scratch = np.zeros((network.num_weights, slots), np.float32)
        self._views: tuple[_Layer, ...] = ()
        self._live = -1

    def step(self, observations: Float32) -> Float32:
        self._focus(len(observations))
        self._nodes[: self._network.observation_size, : self._live] = observations.T
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # as the native kernel does
            partial_sums = [self._forward(layer) for layer in self._views]
            outputs = self._views[-1].outputs
            options = self._network.options
            rate = outputs[0] if options.neuromodulated else np.float32(options.trace_rate)
            for layer, sums in zip(self._views, partial_sums, strict=True):
                self._update_traces(layer, sums, rate)
        return outputs[1:].T.copy()

    def activity(self, slot: int) -> Activity:
        """Return what the network of a slot has done in its last step."""
        edges = np.cumsum([0, *self._network.sizes]).tolist()
        nodes = tuple(self._nodes[a:b, slot].copy() for a, b in pairwise(edges))
        weights = self._weights[0, :, slot].copy()
        if self._gains is not None:
            weights += self._gains[0, :, slot] * self._traces[0, :, slot]
        return Activity(nodes, weights)

    def _forward(self, layer: _Layer) -> list[Float32]:
        """Compute x_{i+1}; return the z_ij, each [K, n]."""
        products = layer.scratch
        if layer.gains is None:
            np.multiply(layer.inputs[:, None], layer.weights, out=products)
        else:
            np.multiply(layer.gains, layer.traces, out=products)
            np.add(layer.weights, products, out=products)
            np.multiply(layer.inputs[:, None], products, out=products)
        sums = [sequential_sum(products[rows]).copy() for rows in layer.sources]
        total = sums[0]
        for z in sums[1:]:
            total = total + z
        layer.outputs[:] = tanh(total)
        return sums

    def _update_traces(self, layer: _Layer, sums: list[Float32], rate: Float32 | np.float32) -> None:
        limit = np.float32(self._network.options.trace_limit)
        change = layer.scratch
        for rows, z in zip(layer.sources, sums, strict=True):
            np.multiply(layer.inputs[rows, None], z, out=change[rows])
        np.multiply(change, rate, out=change)
        np.add(layer.traces, change, out=layer.traces)
        np.maximum(layer.traces, -limit, out=layer.traces)
        np.minimum(layer.traces, limit, out=layer.traces)

    def _focus(self, live: int) -> None:
        """Make the views of the first `live` slots, unless they stand already."""
        if live == self._live:
            return
        self._live = live
        self._views = tuple(self._view(layer) for layer in range(len(self._network.sizes) - 1))

    def _view(self, layer: int) -> _Layer:
        """Return the views of a layer."""
        D = self._network.sizes
        edges = np.cumsum([0, *D[: layer + 1]]).tolist()
        rows = edges[-1]
        columns = D[layer + 1]
        first = next(block.start for block in self._network.blocks if block.layer == layer)
        span = slice(first, first + rows * columns)

        def cut(array: Float32) -> Float32:
            return array.reshape(-1, array.shape[-1])[span].reshape(-1, columns, array.shape[-1])[:, :, : self._live]

        return _Layer(
            inputs=self._nodes[:rows, : self._live],
            outputs=self._nodes[rows : rows + columns, : self._live],
            weights=cut(self._weights),
            traces=cut(self._traces),
            gains=None if self._gains is None else cut(self._gains),
            scratch=cut(self._scratch),
            sources=tuple(slice(a, b) for a, b in pairwise(edges)),
        )
