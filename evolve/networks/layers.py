"""Layered networks: what `dag`, `mlp`, `prunable-mlp` and `elman` have in common.

The nodes of a network lie end to end: the observation, what each layer says, and ones, whose weights are biases. A
layer reads a run x of nodes that stand already; its sums run over the rows of W in ascending order:

    y_k = tanh(((x_0 W_0k + x_1 W_1k) + x_2 W_2k) + …)

After a step, `feedback` copies nodes to where the next step reads them; these are zero when an episode starts. All of
it is float32.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np

from evolve.networks.contract import Block
from evolve.networks.slots import SlotArrays
from evolve.numerics import Backend, sequential_sum, tanh
from evolve.numerics.steps import LayeredStep
from evolve.shapes import Bool, Float32, Int64, Slots


@dataclass(frozen=True)
class Layer:
    """One layer: it reads `rows` nodes from node `reads` on, and says `columns` nodes from node `says` on."""

    reads: int
    rows: int
    says: int
    columns: int


@dataclass(frozen=True)
class Wiring:
    """How many nodes there are, which layers read and say them, and which of them are always one.

    feedback: (source, target, n): after each step n nodes are copied.
    """

    nodes: int
    layers: tuple[Layer, ...]
    ones: tuple[int, ...] = ()
    feedback: tuple[int, int, int] = (0, 0, 0)


def chain(sizes: tuple[int, ...], biased: bool) -> Wiring:
    """Return the wiring in which each layer reads the one before, and a one after it where it is biased."""
    layers, at = [], 0
    for inputs, outputs in pairwise(sizes):
        rows = inputs + biased
        layers.append(Layer(at, rows, at + rows, outputs))
        at += rows
    ones = tuple(layer.says - 1 for layer in layers) if biased else ()
    return Wiring(at + sizes[-1], tuple(layers), ones)


def chain_blocks(wiring: Wiring) -> tuple[Block, ...]:
    """Return the one matrix of each layer of a chain."""
    blocks, start = [], 0
    for number, layer in enumerate(wiring.layers):
        blocks.append(Block(number, number, start, layer.rows, layer.columns))
        start = blocks[-1].stop
    return tuple(blocks)


def scaled(weights: Float32, wiring: Wiring, scale: float) -> Float32:
    """Return weights [n, W] times scale/sqrt(fan-in), the rows of their layer; a bias is one of them."""
    parts, start = [], 0
    for layer in wiring.layers:
        stop = start + layer.rows * layer.columns
        parts.append(weights[:, start:stop] * (np.float32(scale) / np.sqrt(np.float32(layer.rows))))
        start = stop
    return np.concatenate(parts, axis=1)


OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True)
class LayeredNetwork(Generic[OptionsT]):
    """The description of a layered network with O = observation_size inputs and A = action_size outputs."""

    options: OptionsT
    observation_size: int
    action_size: int

    @property
    def wiring(self) -> Wiring:
        """The layers, in genome order."""
        raise NotImplementedError

    @property
    def weights(self) -> int:
        """W, the weights of one genome."""
        return sum(layer.rows * layer.columns for layer in self.wiring.layers)

    @property
    def traces(self) -> int:
        """T = 0: episodes leave no traces."""
        return 0

    @property
    def slot_size(self) -> int:
        """Weights and nodes."""
        return self.weights + self.wiring.nodes

    def batch(self, slots: int, backend: Backend) -> "LayeredBatch":
        """Return an empty batch of B = `slots` slots."""
        return LayeredBatch(self.observation_size, self.wiring, slots, backend)


class LayeredBatch(SlotArrays):
    """The weights and nodes of B slots."""

    def __init__(self, observation_size: int, wiring: Wiring, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._O, self._wiring = observation_size, wiring
        rows = [(layer.reads, layer.rows, layer.says, layer.columns) for layer in wiring.layers]
        self._weights = self._hold(sum(layer.rows * layer.columns for layer in wiring.layers))
        self._nodes = self._hold(wiring.nodes)
        self._native = None
        if backend == "native":
            self._native = LayeredStep(self._O, rows, wiring.feedback, self._weights, self._nodes)

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes [k, W] into slots; every node is zero, except the ones."""
        at, nodes = self._at(slots), np.zeros((len(slots), self._wiring.nodes), np.float32)
        nodes[:, self._wiring.ones] = 1
        self._weights[at], self._nodes[at] = weights, nodes

    def traces(self, slots: Slots) -> Float32:
        """Return [k, 0]: there are none."""
        return np.zeros((len(slots), 0), np.float32)

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots: observations [n, O] -> new actions [n, A]."""
        return self._native(observations) if self._native else self._reference(observations)

    def _reference(self, observations: Float32) -> Float32:
        n, first = len(observations), 0
        weights, nodes = self._weights[0, :, :n], self._nodes[0, :, :n]
        nodes[: self._O] = observations.T
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # as the native kernel does
            for layer in self._wiring.layers:
                last = first + layer.rows * layer.columns
                matrix = weights[first:last].reshape(layer.rows, layer.columns, n)
                products = nodes[layer.reads : layer.reads + layer.rows, None] * matrix
                nodes[layer.says : layer.says + layer.columns] = tanh(sequential_sum(products))
                first = last
        source, target, many = self._wiring.feedback
        nodes[target : target + many] = nodes[source : source + many]
        return nodes[layer.says : layer.says + layer.columns].T.copy()
