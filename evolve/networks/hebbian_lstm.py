"""hebbian-lstm: a long short-term memory whose gates have Hebbian traces, driven by two of its own cells.

With observation obs [O], cells c [H], H ≥ 2, x = [obs, c], matrices W_k [O + H, H] of the gates k = f, j, o, i with
traces H_k of that shape, and W_a [H, A] (σ is the sigmoid):

    g       = c[0]
    f, j, o = σ(x (W_k + g H_k) - 1)
    i       = tanh(x (W_i + g H_i))                  each summed over the rows of W_k in ascending order
    c'      = tanh(c f + i j)
    action  = tanh((c' o) W_a)
    H_k    ← H_k + clip((c'[1] x)ᵀ gate_k, ±limit)   after the action; never at a pruned connection

c[0] thus says how strongly traces act, and c[1] how fast they are learnt; limit is `update_limit`. c and H are zero
when an episode starts, so H is at most limit times its steps. W_a has no traces: they count as zero. All of it is
float32. Weights are N(0, 1) at birth, a share of `birth_pruning` of them pruned. The gates are those of Hochreiter and
Schmidhuber (1997) and of Gers and others (2000), their traces the ancestor's of 2020.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.genome import Genomes, pruned
from evolve.networks.contract import Block
from evolve.networks.settings import Share, TwoOrMore
from evolve.networks.slots import SlotArrays
from evolve.numerics import Backend, normal_quantile, sequential_sum, sigmoid, tanh
from evolve.numerics.steps import HebbianLstmStep
from evolve.rng import Stream
from evolve.shapes import Bool, Float32, Int64, Slots


class HebbianLstmOptions(Options):
    """Settings of `[network]` for hebbian-lstm: `hidden` is [H]; `birth_pruning` is the share missing at birth."""

    hidden: TwoOrMore = (8,)
    update_limit: float = Field(0.1, gt=0, le=1e6)
    birth_pruning: Share = 0.025


@dataclass(frozen=True)
class HebbianLstm:
    """The description of a hebbian-lstm with O = observation_size inputs and A = action_size outputs."""

    options: HebbianLstmOptions
    observation_size: int
    action_size: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """O, H, A."""
        return self.observation_size, *self.options.hidden, self.action_size

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Of each gate what reads obs and what reads c, which are one matrix W_k; then W_a."""
        (O, H, A), blocks, start = self.sizes, [], 0
        for _ in range(4):
            for source, rows in ((0, O), (1, H)):
                blocks.append(Block(0, source, start, rows, H))
                start = blocks[-1].stop
        return (*blocks, Block(1, 1, start, H, A))

    @property
    def weights(self) -> int:
        """W, the weights of one genome."""
        return self.blocks[-1].stop

    @property
    def traces(self) -> int:
        """T = W: one trace per connection, zero in W_a."""
        return self.weights

    @property
    def nodes(self) -> int:
        """How many numbers a step makes: obs, c, four gates, c', c' o, action."""
        O, H, A = self.sizes
        return O + 7 * H + A

    @property
    def slot_size(self) -> int:
        """Weights, traces, which connections are left, and nodes."""
        return 3 * self.weights + self.nodes

    def birth(self, stream: Stream) -> Genomes:
        """Return one genome (P = 1)."""
        weights = normal_quantile(stream.uniform(1, self.weights))
        return pruned(weights, stream.uniform(1, self.weights) >= self.options.birth_pruning)

    def batch(self, slots: int, backend: Backend) -> "HebbianLstmBatch":
        """Return an empty batch of B = `slots` slots."""
        return HebbianLstmBatch(self, slots, backend)


class HebbianLstmBatch(SlotArrays):
    """The genomes, traces and cells of B slots."""

    def __init__(self, network: HebbianLstm, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        W = network.weights
        self._weights, self._left, self._traces = self._hold(W), self._hold(W), self._hold(W)
        self._nodes = self._hold(network.nodes)
        self._sizes, limit = network.sizes, network.options.update_limit
        self._limit, self._native = np.float32(limit), None
        if backend == "native":
            arrays = self._weights, self._left, self._traces, self._nodes
            self._native = HebbianLstmStep(self._sizes, *arrays, limit)

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes [k, W] into slots; clear their traces and cells."""
        at = self._at(slots)
        self._weights[at], self._left[at] = weights, mask
        self._traces[at], self._nodes[at] = 0, 0

    def traces(self, slots: Slots) -> Float32:
        """Return [k, W]: the traces of slots."""
        return self._traces[self._at(slots)]

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots: observations [n, O] -> new actions [n, A]."""
        return self._native(observations) if self._native else self._reference(observations)

    def _reference(self, observations: Float32) -> Float32:
        n, (O, H, _) = len(observations), self._sizes
        x = self._nodes[0, : O + H, :n]
        x[:O] = observations.T
        weights, left, traces = (a[0, :, :n] for a in (self._weights, self._left, self._traces))
        gate_weights = 4 * (O + H) * H
        W, M, T = (a[:gate_weights].reshape(4, O + H, H, n) for a in (weights, left, traces))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # as the native kernel does
            f, j, o, i = gates = _gates(x, x[O], W, T)
            cells = tanh(x[O:] * f + i * j)
            actions = tanh(sequential_sum((cells * o)[:, None] * weights[gate_weights:].reshape(H, -1, n)))
            change = (cells[1] * x)[:, None] * np.stack(gates)[:, None]
            T += M * np.minimum(np.maximum(change, -self._limit), self._limit)
        x[O:] = cells
        return actions.T.copy()


def _gates(x: Float32, g: Float32, weights: Float32, traces: Float32) -> list[Float32]:
    """Return f, j, o and i, each [H, n], from x [O + H, n], g [n], and matrices [4, O + H, H, n]."""
    sums = [sequential_sum(x[:, None] * (w + g * trace)) for w, trace in zip(weights, traces, strict=True)]
    return [*(sigmoid(z - np.float32(1)) for z in sums[:3]), tanh(sums[3])]
