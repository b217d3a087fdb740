"""plastic-mlp: a perceptron whose weights change during an episode, by rules that evolve (Najarro and Risi, 2020).

The layers have n_0, n_1, … neurons, from the observation x_0 to the action. w_i [n_i, n_{i+1}] are the weights from
layer i to layer i + 1:

    x_{i+1} = tanh(x_i w_i)                          summed over rows in ascending order
    w_i    ← w_i + η (A x y + B x + C y + D)         every `update_every` steps, after the action; x = x_i, y = x_{i+1}
    w_i    ← w_i / max |w_i|                         then, with `max_norm`, unless all are zero

Each update is (((A (x y) + B x) + C y) + D) η in this order, in float32. A genome holds learning rules instead of
weights. A rule has five coefficients, A, B, C, D and η. `rules` determines the connections that share a rule:

    "synapse"    each connection has its own rule; a coefficient of a layer is [n_i, n_{i+1}]
    "neuron"     all connections into a neuron share a rule, [1, n_{i+1}]
    "layer"      all connections of a layer share a rule, [1, 1]

There are no biases and no traces. When an episode starts, weights are drawn uniformly from ±`initial_scale`. The seed
of their stream is the seed of the episode's environment. If all five coefficients of a rule are pruned, its connections
are pruned, too: their weights are 0. In an initial genome, coefficients are `init_scale` · N(0, 1) (not
`initial_scale`, which is for weights), and a share of `init_sparsity` of them is pruned.
"""

import ctypes
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np
from pydantic import Field

from evolve.genome import Block
from evolve.networks.network import Activity, BaseNetwork, Hidden, NetworkOptions, Scale, Share, SlotArrays, structure
from evolve.numerics import Backend, sequential_sum, tanh
from evolve.numerics.native import ADDRESS, FLOAT, INT64
from evolve.numerics.streams import Purpose, Streams
from evolve.shapes import Bool, Float32, Int64, Slots

_COEFFICIENTS = ("A", "B", "C", "D", "eta")
_NUM_COEFFICIENTS = len(_COEFFICIENTS)


class PlasticMlpOptions(NetworkOptions):
    """Settings of `[network]` for plastic-mlp."""

    hidden: Hidden = (16,)
    """The sizes of the hidden layers."""
    rules: Literal["synapse", "neuron", "layer"] = "synapse"
    """The connections that share a learning rule: none, all connections into a neuron, or all of a layer."""
    max_norm: bool = False
    """Whether a layer's weights are divided by their largest absolute value after each update."""
    update_every: int = Field(1, ge=1, le=1_000_000)
    """The number of steps between updates of weights."""
    initial_scale: Scale = 0.1
    """The largest absolute value of a weight at the start of an episode."""
    init_scale: Scale = 0.1
    """The standard deviation of initial coefficients."""
    init_sparsity: Share = 0.0
    """The share of coefficients that is pruned initially."""


class PlasticMlp(BaseNetwork[PlasticMlpOptions]):
    """The description of a plastic-mlp."""

    @property
    def num_connections(self) -> int:
        """The number of connections. Each has a weight."""
        return sum(rows * columns for rows, columns in pairwise(self.sizes))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """A, B, C, D and η of each layer."""
        rules = self.options.rules
        blocks: list[Block] = []
        start = 0
        # `span` is the shape of the connections of a layer, see `Block`.
        for layer, span in enumerate(pairwise(self.sizes)):
            rows = span[0] if rules == "synapse" else 1
            columns = 1 if rules == "layer" else span[1]
            for coefficient in _COEFFICIENTS:
                blocks.append(Block(layer, layer, start, rows, columns, span, f"{coefficient}_{layer}"))
                start = blocks[-1].stop
        return tuple(blocks)

    @property
    def slot_size(self) -> int:
        """The number of float32 values in a slot: coefficients, weights, nodes, and steps since the last update."""
        return self.num_weights + self.num_connections + sum(self.sizes) + 1

    def first_weights(self, seeds: Int64) -> Float32:
        """Return the weights [k, connections] at the start of k episodes. seeds: [k], the seeds of the environments."""
        streams = Streams(seeds, Purpose.INITIAL_WEIGHTS, 0, np.zeros(len(seeds), np.int64))
        uniform = 2 * streams.uniform(self.num_connections) - 1
        return (uniform * self.options.initial_scale).astype(np.float32)

    def unpruned(self, mask: Bool) -> Bool:
        """Return [k, connections]: whether the rule of each connection has an unpruned coefficient. mask: [k, W]."""
        parts = []
        # `block` is the coefficient A of a layer. B, C, D and η have the same shape, and follow in the genome.
        for block in self.blocks[::_NUM_COEFFICIENTS]:
            size = block.rows * block.columns
            coefficients = mask[:, block.start : block.start + _NUM_COEFFICIENTS * size]
            present = coefficients.reshape(-1, _NUM_COEFFICIENTS, block.rows, block.columns).any(axis=1)
            # Repeat each rule for all connections that share it. `block.shape` is the shape of the connections.
            parts.append(np.broadcast_to(present, (len(mask), *block.shape)).reshape(len(mask), -1))
        return np.concatenate(parts, axis=1)

    def batch(self, slots: int, backend: Backend) -> "PlasticMlpBatch":
        """Return an empty batch of B = `slots` slots."""
        return PlasticMlpBatch(self, slots, backend)


class PlasticMlpBatch(SlotArrays):
    """The rules and weights of B slots, and the number of steps since the last update of the weights."""

    seeded = True  # `initial` depends on the seeds of the episodes

    def __init__(self, network: PlasticMlp, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._network = network
        self._rules = self._hold(network.num_weights)
        self._weights = self._hold(network.num_connections)
        # The steps since the last update of the weights, as a float32. It is exact, because `update_every` is at most
        # 1,000,000 < 2^24.
        self._age = self._hold(1)
        self._compile("plastic_mlp", network)
        if not self._compiled:
            self._nodes = np.zeros((sum(network.sizes), slots), np.float32)

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return rules, weights and age of slots at the start of an episode; None stands for zeros."""
        # The genomes of this network have coefficients of rules as `weights`.
        drawn = self._network.first_weights(seeds)
        return weights, np.where(self._network.unpruned(mask), drawn, np.float32(0)), None

    def weights(self, slots: Slots) -> Float32:
        """Return the current weights [k, connections] of slots."""
        return self._weights.take(slots)

    def activity(self, slot: int) -> Activity:
        """Return the nodes of a slot's last step, and the weights of its next step. Needs the back end numpy."""
        *layer_ends, _ = accumulate(self._network.sizes)
        nodes = np.split(self._nodes[:, slot].copy(), layer_ends)
        return Activity(tuple(nodes), self.weights(np.array([slot]))[0])

    def _reference(self, observations: Float32) -> Float32:
        n = len(observations)
        # Arrays in NumPy have one tile. `age` and `weights` are views, so changing them changes the slots.
        age = self._age.array[0, 0, :n]
        x = observations.T
        start = 0
        layers = []
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # the native kernel does not warn, either
            for rows, columns in pairwise(self._network.sizes):
                weights = self._weights.array[0, start : start + rows * columns, :n].reshape(rows, columns, n)
                y = tanh(sequential_sum(x[:, None] * weights))
                layers.append((x, y, weights))
                x = y
                start += rows * columns
            self._nodes[:, :n] = np.concatenate([observations.T, *(y for _, y, _ in layers)])
            age += 1
            due = age == self._network.options.update_every
            if due.any():
                self._update(layers, due)
        return x.T.copy()

    def _update(self, layers: list[tuple[Float32, Float32, Float32]], due: Bool) -> None:
        """Update the weights of the slots that are due.

        layers: For each layer x [rows, n], y [columns, n], and the weights [rows, columns, n] between them.
        due: [n], whether the weights of each slot are due for an update.
        """
        n = len(due)
        # `block` is the coefficient A of a layer, as in `unpruned`.
        for (x, y, weights), block in zip(layers, self._network.blocks[::_NUM_COEFFICIENTS], strict=True):
            stop = block.start + _NUM_COEFFICIENTS * block.rows * block.columns
            shape = _NUM_COEFFICIENTS, block.rows, block.columns, n
            A, B, C, D, eta = self._rules.array[0, block.start : stop, :n].reshape(shape)
            # Compute the weights of all slots; only the slots that are due keep them.
            moved = weights + (A * (x[:, None] * y) + B * x[:, None] + C * y + D) * eta
            if self._network.options.max_norm:
                # `fmax` ignores NaN, as the comparison in the kernel does.
                largest = np.fmax.reduce(np.abs(moved).reshape(-1, n), axis=0, initial=0)
                moved /= np.where(largest > 0, largest, np.float32(1))
            weights[:] = np.where(due, moved, weights)
        self._age.array[0, 0, :n][due] = 0

    def _structure(self) -> ctypes.Structure:
        """Return the C structure `plastic_mlp` of kernels/plastic_mlp.h."""
        options = self._network.options
        sizes = self._network.sizes
        return structure(
            layers=(INT64, len(sizes) - 1),
            sizes=(ADDRESS, self._arrays.constant(np.array(sizes, np.int64))),
            weight_rows=(INT64, self._network.num_connections),
            rule_rows=(INT64, self._network.num_weights),
            node_rows=(INT64, sum(sizes)),
            # Whether each row, and each column, has its own coefficients.
            own_rows=(INT64, options.rules == "synapse"),
            own_columns=(INT64, options.rules != "layer"),
            weights=(ADDRESS, self._weights.address),
            nodes=(ADDRESS, self._arrays.zeros(sum(sizes))),
            age=(ADDRESS, self._age.address),
            rules=(ADDRESS, self._rules.address),
            every=(FLOAT, options.update_every),
            max_norm=(INT64, options.max_norm),
        )
