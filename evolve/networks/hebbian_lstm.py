"""hebbian-lstm: a long short-term memory whose gates have Hebbian traces; two of its cells control the traces.

obs [O] is the observation, c [H] are the cells, H ≥ 2, and x = [obs, c]. Each gate k = f, j, o, i has a matrix W_k
[O + H, H] and traces T_k of the same shape. W_a is [H, A], σ the sigmoid, limit the setting `update_limit`:

    g       = c[0]
    f, j, o = σ(x (W_k + g T_k) - 1)
    i       = tanh(x (W_i + g T_i))                  each summed over the rows of W_k in ascending order
    c'      = tanh(c f + i j)
    action  = tanh((c' o) W_a)
    T_k    ← T_k + clip((c'[1] x)ᵀ gate_k, ±limit)   after the action; never at a pruned connection

Cell 0 thus scales the effect of the traces, and cell 1 their change. c and all T_k are zero when an episode starts, so
after n steps no trace exceeds n · limit. W_a has no traces; where a trace is expected for every weight, they are zero.
All numbers are float32. Initial weights are N(0, 1), a share of `init_sparsity` of them pruned. The gates follow
Hochreiter and Schmidhuber (1997) and Gers et al. (2000). The traces follow the script of 2020 that this project began
with (`experiments/script-2020.toml`).
"""

import ctypes
from functools import cached_property

import numpy as np
from pydantic import Field

from evolve.genome import Block
from evolve.networks.network import (
    Activity,
    BaseNetwork,
    NetworkOptions,
    Share,
    SlotArrays,
    TwoOrMore,
    end_to_end,
    structure,
)
from evolve.numerics import Backend, sequential_sum, sigmoid, tanh
from evolve.numerics.native import ADDRESS, FLOAT, INT64
from evolve.shapes import Bool, Float32, Int64, Slots


class HebbianLstmOptions(NetworkOptions):
    """Settings of `[network]` for hebbian-lstm."""

    hidden: TwoOrMore = (8,)
    """H, the size of the one hidden layer."""
    update_limit: float = Field(0.1, gt=0, le=1e6)
    """The largest change of a trace in a step."""
    init_sparsity: Share = 0.025
    """The share of connections that is pruned initially."""


class HebbianLstm(BaseNetwork[HebbianLstmOptions]):
    """A hebbian-lstm of given sizes: the layout of its genome, without weights."""

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Two blocks for each gate, the rows of W_k for obs and the rows for c; then W_a."""
        O, H, A = self.sizes
        # (layer, source, rows, columns): layer 0 computes the cells, layer 1 the action; source 0 is obs, 1 the cells.
        names = [f"W_{gate}_{source}" for gate in "fjoi" for source in ("obs", "c")]
        return end_to_end([(0, 0, O, H), (0, 1, H, H)] * 4 + [(1, 1, H, A)], [*names, "W_a"])

    @property
    def modulators(self) -> tuple[tuple[int, int], ...]:
        """The neurons (layer, number) that scale the effect and the change of traces: c[0] and c[1]."""
        return (1, 0), (1, 1)

    @property
    def num_traces(self) -> int:
        """T = W: one trace per connection, zero in W_a."""
        return self.num_weights

    @property
    def nodes(self) -> int:
        """The number of inputs and intermediate results of a step: obs, c, four gates, c', c' o, action."""
        O, H, A = self.sizes
        return O + 7 * H + A

    @property
    def slot_size(self) -> int:
        """The number of float32 of a slot: weights, traces and mask, and the nodes."""
        return 3 * self.num_weights + self.nodes

    @property
    def weight_scale(self) -> np.float32:
        """The standard deviation of initial weights: 1."""
        return np.float32(1)

    def batch(self, slots: int, backend: Backend) -> "HebbianLstmBatch":
        """Return an empty batch of B = `slots` slots."""
        return HebbianLstmBatch(self, slots, backend)


class HebbianLstmBatch(SlotArrays):
    """The genomes, traces and cells of B slots."""

    def __init__(self, network: HebbianLstm, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._network = network
        self._sizes = network.sizes
        self._limit = np.float32(network.options.update_limit)
        self._weights = self._hold(network.num_weights)
        self._mask = self._hold(network.num_weights)
        self._traces = self.kept_traces = self._hold(network.num_weights)
        self._cells = self._hold(self._sizes[1])
        if self._compiled:
            O, H, A = self._sizes
            self.kernel = self._arrays.kernel("hebbian_lstm", self._structure(), (O, A, max(H, A)))
        self._last_step: tuple[Float32, ...] = ()  # observations and actions of `_reference`

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return weights, mask, traces and cells of slots at the start of an episode."""
        return weights, mask.astype(np.float32), None, None

    def weights(self, slots: Slots) -> Float32:
        """Return W_k + g T_k and W_a, [k, W], of slots, with which their next step computes."""
        O, H, _ = self._sizes
        gate_weights = 4 * (O + H) * H
        self._settle(slots)
        weights: Float32 = self._weights.take(slots).copy()
        weights[:, :gate_weights] += self._cells.take(slots)[:, :1] * self._traces.take(slots)[:, :gate_weights]
        return weights

    def activity(self, slot: int) -> Activity:
        """Return the last step of a slot's network."""
        slots = np.array([slot])
        observations, actions = self._last_step
        return Activity((observations[slot], self._cells.take(slots)[0], actions[slot]), self.weights(slots)[0])

    def _reference(self, observations: Float32) -> Float32:
        n = len(observations)
        O, H, _ = self._sizes
        cells = self._cells.array[0, :, :n]
        x = np.concatenate([observations.T, cells])
        weights, mask, traces = (a.array[0, :, :n] for a in (self._weights, self._mask, self._traces))
        gate_weights = 4 * (O + H) * H
        W, M, T = (a[:gate_weights].reshape(4, O + H, H, n) for a in (weights, mask, traces))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # the native kernel ignores them, too
            f, j, o, i = gates = _gates(x, x[O], W, T)
            cells[:] = tanh(cells * f + i * j)
            actions = tanh(sequential_sum((cells * o)[:, None] * weights[gate_weights:].reshape(H, -1, n)))
            change = (cells[1] * x)[:, None] * np.stack(gates)[:, None]
            T += M * np.minimum(np.maximum(change, -self._limit), self._limit)
        self._last_step = observations.copy(), actions.T.copy()
        return self._last_step[1]

    def _structure(self) -> ctypes.Structure:
        """Return the C structure `hebbian_lstm` of kernels/hebbian_lstm.h."""
        O, H, A = self._sizes
        nodes = self._network.nodes
        return structure(
            observations=(INT64, O),
            num_cells=(INT64, H),
            actions=(INT64, A),
            weight_rows=(INT64, self._network.num_weights),
            node_rows=(INT64, nodes),
            weights=(ADDRESS, self._weights.address),
            left=(ADDRESS, self._mask.address),
            traces=(ADDRESS, self._traces.address),
            cells=(ADDRESS, self._cells.address),
            nodes=(ADDRESS, self._arrays.zeros(2 * nodes)),
            age=(ADDRESS, self._arrays.counters()),
            update_limit=(FLOAT, self._limit),
        )


def _gates(x: Float32, g: Float32, weights: Float32, traces: Float32) -> list[Float32]:
    """Return f, j, o and i, each [H, n], from x [O + H, n], g [n], and matrices [4, O + H, H, n]."""
    sums = [sequential_sum(x[:, None] * (w + g * trace)) for w, trace in zip(weights, traces, strict=True)]
    return [*(sigmoid(z - np.float32(1)) for z in sums[:3]), tanh(sums[3])]
