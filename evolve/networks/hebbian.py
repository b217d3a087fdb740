"""hebbian-dag and hebbian-lstm, networks with Hebbian traces. Each connection has a trace, a sum over the steps.

In **hebbian-dag** every layer reads all earlier layers. The layers have the sizes D = [O, h1, …, hL, A + 1], and x_0 is
the observation. W_ij [D_j, D_{i+1}] are the weights from layer j (rows) to layer i + 1 (columns), and H_ij are the
traces of these connections. So i numbers the layers that compute, without the observation, and j numbers all layers.

    z_ij    = x_j (W_ij + m H_ij)                    summed over the nodes of layer j in ascending order
    x_{i+1} = tanh((z_i0 + z_i1) + … + z_ii)
    H_ij   ← clip(H_ij + ρ (x_jᵀ z_ij), ±limit)      after all layers have been computed

Outputs 1 … A are the action. If `neuromodulated` is set, output 0 is ρ. Otherwise ρ is `trace_rate`, and output 0 has
no effect. m is `plasticity`; at a pruned connection m is 0. With `plasticity` 0 the traces have no effect on the
network: they only help a strategy to choose the connections to prune. limit is `trace_limit`. Initial weights are
N(0, init_scale²).

**hebbian-lstm** is a long short-term memory with traces in its gates. Two of its cells control the traces. obs [O] is
the observation, c [H] are the cells, H ≥ 2, and x = [obs, c]. Each gate k = f, j, o, i has a matrix W_k [O + H, H] and
traces T_k of the same shape. W_a is [H, A]. σ is the sigmoid, and limit the setting `update_limit`:

    g       = c[0]
    f, j, o = σ(x (W_k + g T_k) - 1)
    i       = tanh(x (W_i + g T_i))                  each summed over the rows of W_k in ascending order
    c'      = tanh(c f + i j)
    action  = tanh((c' o) W_a)
    T_k    ← T_k + clip((c'[1] x)ᵀ k, ±limit)        after the action; never at a pruned connection

So cell 0 scales the effect of the traces, and cell 1 scales their change. c is zero when an episode starts. After n
steps no trace exceeds n · limit. W_a does not learn: arrays have a trace for every weight, but the traces of W_a are 0.
Initial weights are N(0, 1). The gates follow Hochreiter and Schmidhuber (1997) and Gers et al. (2000). The traces
follow the script of 2020 with which this project began (`experiments/script-2020.toml`).

In both networks, traces are zero when an episode starts, and all numbers are float32. In an initial genome, a share of
`init_sparsity` of the connections is pruned.
"""

import ctypes
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import Block
from evolve.networks import network as base
from evolve.numerics import Backend, sequential_sum, sigmoid, tanh
from evolve.numerics.native import ADDRESS, FLOAT, INT64
from evolve.shapes import Bool, Float32, Int64, Slots

_SMALLEST_NONZERO = 0.001  # the smallest trace rate other than 0, and the smallest trace limit
# A kernel may delay the trace updates of at most this number of steps, including the current step. The header
# kernels/hebbian_dag.h has the same number.
_LONGEST_HISTORY = 8


class HebbianDagOptions(base.NetworkOptions):
    """Settings of `[network]` for hebbian-dag."""

    hidden: base.Hidden = (8, 8)
    """The sizes of the hidden layers."""
    plasticity: float = Field(0.0, ge=-1e6, le=1e6)
    """m, the strength with which traces act on the network; with 0 they only decide which connections are pruned."""
    trace_rate: float = Field(1.0, ge=-1e6, le=1e6)
    """ρ, the rate at which traces grow; if it is not 0, its absolute value is at least 0.001."""
    trace_limit: float = Field(10.0, gt=0, le=1e6)
    """The largest absolute value of a trace, at least 0.001."""
    neuromodulated: bool = False
    """Whether output 0 of the network replaces ρ."""
    init_scale: base.Scale = 1.0
    """The standard deviation of initial weights."""
    init_sparsity: base.Share = 0.025
    """The share of connections that is pruned initially."""


class HebbianDag(base.BaseNetwork[HebbianDagOptions]):
    """The description of a hebbian-dag."""

    has_traces = True
    sums_by_source = True  # a layer sums over each source separately, and then adds these sums, see `Network`

    @staticmethod
    def validate(options: HebbianDagOptions) -> None:
        """Raise InputError for a rate without effect, and for a rate or limit that makes traces too small."""
        default = HebbianDagOptions().trace_rate
        if options.neuromodulated and options.trace_rate != default:
            expected = f"its default, {default}, because output 0 replaces it"
            raise InputError("network.trace_rate", expected, options.trace_rate)
        # Strategies receive traces rounded to multiples of 2^-20, so smaller traces would become 0.
        if 0 < abs(options.trace_rate) < _SMALLEST_NONZERO:
            expected = f"0, or an absolute value of at least {_SMALLEST_NONZERO}"
            raise InputError("network.trace_rate", expected, options.trace_rate)
        if options.trace_limit < _SMALLEST_NONZERO:
            raise InputError("network.trace_limit", f"at least {_SMALLEST_NONZERO}", options.trace_limit)

    @property
    def sizes(self) -> tuple[int, ...]:
        """D, the layer sizes from observation to output."""
        return (self.observation_size, *self.options.hidden, self.action_size + 1)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The matrices W_ij: W_00, W_10, W_11, W_20, … The adjacent matrices into a layer form one matrix."""
        return base.dag_blocks(self.sizes)

    @property
    def modulators(self) -> tuple[tuple[int, int], ...]:
        """The neuron (layer, number) of output 0 if output 0 is ρ, otherwise none; see `Network`."""
        return ((len(self.sizes) - 1, 0),) if self.options.neuromodulated else ()

    @property
    def is_static(self) -> bool:
        """Whether the traces have no effect on the network."""
        return not self.options.plasticity

    @property
    def slot_size(self) -> int:
        """The approximate number of float32 values in a slot: a weight, a trace and a gain for each connection."""
        return 3 * self.num_weights

    def batch(self, slots: int, backend: Backend) -> "HebbianDagBatch":
        """Return an empty batch of B = `slots` slots."""
        return HebbianDagBatch(self, slots, backend)


class HebbianDagBatch(base.SlotArrays):
    """The genomes and traces of B slots.

    The kernel may delay updates of traces for some steps. `_settle` applies them before traces are read or replaced.
    """

    def __init__(self, network: HebbianDag, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._network = network
        self._weights = self._hold(network.num_weights)
        self._traces = self._hold(network.num_weights)
        self.kept_traces = self._traces  # for the strategy, see `SlotArrays`
        # The gain of a connection is m, or 0 if the connection is pruned. There are no gains if m is 0.
        self._gains = self._hold(network.num_weights) if network.options.plasticity else None
        self._compile("hebbian_dag", network)
        # Only the back end numpy needs these attributes, for `_reference` and `activity`. A kernel has its own nodes,
        # see `_structure`.
        if not self._compiled:
            D = network.sizes
            bounds = np.cumsum([0, *D]).tolist()
            self._nodes = np.zeros((sum(D), slots), np.float32)
            self._rows = [slice(a, b) for a, b in pairwise(bounds)]  # the rows of x_0, x_1, … in the nodes
            # The matrices into one layer form a stack, with a row for each node of all earlier layers. Each element
            # has the begin and the end of a stack in the genome, and its number of columns.
            self._stacks = []
            begin = 0
            for inputs, columns in zip(bounds[1:-1], D[1:], strict=True):
                self._stacks.append((begin, begin + inputs * columns, columns))
                begin += inputs * columns

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return weights, traces and gains (if any) of slots at the start of an episode; None stands for zeros."""
        if self._gains is None:
            return weights, None
        return weights, None, np.float32(self._network.options.plasticity) * mask

    def weights(self, slots: Slots) -> Float32:
        """Return [k, W]: W + m H of slots [k], the effective weights of their next step."""
        self._settle(slots)
        weights = self._weights.take(slots)
        if self._gains is None:
            return weights
        return weights + self._gains.take(slots) * self._traces.take(slots)

    def activity(self, slot: int) -> base.Activity:
        """Return the nodes and the effective weights of a slot after its last step. Needs the back end numpy."""
        weights = self.weights(np.array([slot]))[0]
        return base.Activity(tuple(self._nodes[rows, slot].copy() for rows in self._rows), weights)

    def _reference(self, observations: Float32) -> Float32:
        n, rows, options = len(observations), self._rows, self._network.options
        x, limit = self._nodes[:, :n], np.float32(options.trace_limit)
        x[rows[0]] = observations.T
        layers = []
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # the native kernel does not warn, either
            for i, target in enumerate(rows[1:]):
                # All matrices into layer i + 1, stacked in the order of their inputs x_0, x_1, …
                weights, traces = self._stack(self._weights, i, n), self._stack(self._traces, i, n)
                if self._gains is not None:
                    weights = weights + self._stack(self._gains, i, n) * traces
                # The nodes of all earlier layers times their weights, [rows, columns, n].
                products = x[: target.start, None] * weights
                # `sequential_sum` returns a row of `products`. Copy the row, because changes of traces overwrite it.
                z = [sequential_sum(products[source]).copy() for source in rows[: i + 1]]
                x[target] = tanh(reduce(np.add, z))
                layers.append((traces, z, products))
            outputs = x[rows[-1]]
            rate = outputs[0] if options.neuromodulated else np.float32(options.trace_rate)
            # Change the traces after all layers have been computed. The changes overwrite the products to save memory.
            for traces, z, change in layers:
                # `rows` is longer than z: it also has the layers that this layer does not read.
                for source, z_ij in zip(rows, z, strict=False):
                    np.multiply(x[source, None], z_ij, out=change[source])
                # (x z) ρ and then the limits, in the order of the kernel.
                np.multiply(change, rate, out=change)
                np.add(traces, change, out=traces)
                np.maximum(traces, -limit, out=traces)
                np.minimum(traces, limit, out=traces)
        return outputs[1:].T.copy()

    def _stack(self, columns: base.HostColumns, i: int, n: int) -> Float32:
        """Return [rows, columns, n]: a view of the stacked matrices into layer i + 1, for the first n slots."""
        begin, end, width = self._stacks[i]
        # `array` is [tiles, weights, lanes], and NumPy's arrays have one tile.
        return columns.array[0, begin:end, :n].reshape(-1, width, n)

    def _structure(self) -> ctypes.Structure:
        """Return the C structure `hebbian_dag` of kernels/hebbian_dag.h."""
        D = self._network.sizes
        options = self._network.options
        # The kernel keeps the nodes and sums of the last `history` steps, including the current step. With plasticity,
        # a step needs current traces, so it first applies the update of the step before. Without plasticity, every
        # `history`-th step applies the updates of the last `history` steps. The kernel computes the number of a step
        # modulo `history` by a mask, so `history` is a power of two.
        history = 2 if self._gains is not None else _LONGEST_HISTORY
        # The sums of layer i + 1 are z_i0 … z_ii.
        num_sums = sum((layer + 1) * columns for layer, columns in enumerate(D[1:]))
        return base.structure(
            layers=(INT64, len(D) - 1),
            sizes=(ADDRESS, self._arrays.constant(np.array(D, np.int64))),
            weight_rows=(INT64, self._network.num_weights),
            node_rows=(INT64, sum(D)),
            sum_rows=(INT64, num_sums),
            history=(INT64, history),
            weights=(ADDRESS, self._weights.address),
            traces=(ADDRESS, self._traces.address),
            gains=(ADDRESS, None if self._gains is None else self._gains.address),
            nodes=(ADDRESS, self._arrays.zeros(history * sum(D))),
            sums=(ADDRESS, self._arrays.zeros(history * num_sums)),
            age=(ADDRESS, self._arrays.counters()),  # for each tile, the steps since its last update of traces
            trace_rate=(FLOAT, options.trace_rate),
            trace_limit=(FLOAT, options.trace_limit),
            neuromodulated=(INT64, options.neuromodulated),
        )


class HebbianLstmOptions(base.NetworkOptions):
    """Settings of `[network]` for hebbian-lstm."""

    hidden: base.OneHiddenOfTwoOrMore = (8,)
    """H, the size of the one hidden layer."""
    update_limit: float = Field(0.1, gt=0, le=1e6)
    """The largest change of a trace in a step."""
    init_sparsity: base.Share = 0.025
    """The share of connections that is pruned initially."""


class HebbianLstm(base.BaseNetwork[HebbianLstmOptions]):
    """The description of a hebbian-lstm."""

    activation = None  # three gates have sigmoids, the other layers tanh
    has_traces = True  # the traces of W_a are always 0
    weight_scale = np.float32(1)  # there is no option `init_scale`

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Two blocks for each gate, the rows of W_k for obs and the rows for c; then W_a."""
        O, H, A = self.sizes
        names = ["W_f_obs", "W_f_c", "W_j_obs", "W_j_c", "W_o_obs", "W_o_c", "W_i_obs", "W_i_c", "W_a"]
        # (layer, source, rows, columns). Layers are numbered without the observation: 0 computes the cells, 1 the
        # action. Sources are numbered with it: 0 is the observation, 1 the cells.
        return base.blocks_end_to_end([(0, 0, O, H), (0, 1, H, H)] * 4 + [(1, 1, H, A)], names)

    @property
    def modulators(self) -> tuple[tuple[int, int], ...]:
        """The neurons (layer, number) that scale the effect and the change of traces: c[0] and c[1]."""
        # Numbered like the sources in `blocks`: 1 has the cells.
        return (1, 0), (1, 1)

    @property
    def num_nodes(self) -> int:
        """The number of inputs and results of a step: obs, c, f, j, o, i, c', c' o and action."""
        O, H, A = self.sizes
        return O + 7 * H + A

    @property
    def slot_size(self) -> int:
        """The approximate number of float32 values in a slot: weights, traces, mask and nodes."""
        return 3 * self.num_weights + self.num_nodes

    def batch(self, slots: int, backend: Backend) -> "HebbianLstmBatch":
        """Return an empty batch of B = `slots` slots."""
        return HebbianLstmBatch(self, slots, backend)


class HebbianLstmBatch(base.SlotArrays):
    """The genomes, traces and cells of B slots."""

    def __init__(self, network: HebbianLstm, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._network = network
        self._num_gate_weights = network.blocks[-1].start  # all weights before W_a
        self._limit = np.float32(network.options.update_limit)
        self._weights = self._hold(network.num_weights)
        self._mask = self._hold(network.num_weights)
        self._traces = self.kept_traces = self._hold(network.num_weights)
        self._cells = self._hold(network.sizes[1])
        self._compile("hebbian_lstm", network)
        self._last_step: tuple[Float32, ...] = ()  # observations and actions of `_reference`, for `activity`

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return weights, mask, traces and cells of slots at the start of an episode."""
        return weights, mask.astype(np.float32), None, None

    def weights(self, slots: Slots) -> Float32:
        """Return [k, W]: W_k + g T_k and W_a of slots, the effective weights of their next step."""
        self._settle(slots)
        weights = self._weights.take(slots)
        n = self._num_gate_weights
        weights[:, :n] += self._cells.take(slots)[:, :1] * self._traces.take(slots)[:, :n]  # g is cell 0
        return weights

    def activity(self, slot: int) -> base.Activity:
        """Return the nodes of a slot's last step, and the weights of its next step. Needs the back end numpy."""
        slots = np.array([slot])
        observations, actions = self._last_step
        return base.Activity((observations[slot], self._cells.take(slots)[0], actions[slot]), self.weights(slots)[0])

    def _reference(self, observations: Float32) -> Float32:
        n = len(observations)
        O, H, _ = self._network.sizes
        cells = self._cells.array[0, :, :n]
        # x is a copy, because the change of the traces below needs the old cells after `cells` has the new ones.
        x = np.concatenate([observations.T, cells])
        # Arrays in NumPy have one tile.
        weights, mask, traces = (columns.array[0, :, :n] for columns in (self._weights, self._mask, self._traces))
        # Views [4, O + H, H, n], a matrix for each gate. The change of T below changes the stored traces.
        W, M, T = (rows[: self._num_gate_weights].reshape(4, O + H, H, n) for rows in (weights, mask, traces))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # the native kernel does not warn, either
            # x[O] is the old c[0], which is g in the formula.
            sums = [sequential_sum(x[:, None] * (w + x[O] * trace)) for w, trace in zip(W, T, strict=True)]
            f, j, o = (sigmoid(z - np.float32(1)) for z in sums[:3])
            i = tanh(sums[3])
            cells[:] = tanh(cells * f + i * j)
            W_a = weights[self._num_gate_weights :].reshape(H, -1, n)
            actions = tanh(sequential_sum((cells * o)[:, None] * W_a))
            # [O + H, 1, n] times [4, 1, H, n] is the change of all four matrices.
            change = (cells[1] * x)[:, None] * np.stack([f, j, o, i])[:, None]
            T += M * np.minimum(np.maximum(change, -self._limit), self._limit)
        self._last_step = observations.copy(), actions.T.copy()
        return self._last_step[1]

    def _structure(self) -> ctypes.Structure:
        """Return the C structure `hebbian_lstm` of kernels/hebbian_lstm.h."""
        O, H, A = self._network.sizes
        num_nodes = self._network.num_nodes
        return base.structure(
            observations=(INT64, O),
            num_cells=(INT64, H),
            actions=(INT64, A),
            weight_rows=(INT64, self._network.num_weights),
            node_rows=(INT64, num_nodes),
            weights=(ADDRESS, self._weights.address),
            left=(ADDRESS, self._mask.address),  # 1 for a connection that is left, else 0
            traces=(ADDRESS, self._traces.address),
            cells=(ADDRESS, self._cells.address),
            # The nodes of this step, and of the step before. This step first applies the trace updates of that one.
            nodes=(ADDRESS, self._arrays.zeros(2 * num_nodes)),
            age=(ADDRESS, self._arrays.counters()),  # for each tile, the steps since its last update of traces
            update_limit=(FLOAT, self._limit),
        )
