"""Layered networks: what `dag`, `mlp`, `binary-mask-mlp` and `elman` have in common.

The nodes of a network lie end to end: the observation, the outputs of each layer, and bias units, which are always 1. A
layer reads a contiguous slice x of earlier nodes; its sums run over the rows of W in ascending order:

    y_k = tanh(((x_0 W_0k + x_1 W_1k) + x_2 W_2k) + …)

After a step, `feedback` copies nodes to where the next step reads them; these are 0 when an episode starts. All of it
is float32.
"""

import ctypes
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np

from evolve.genome import Block
from evolve.networks.network import Activity
from evolve.networks.slot_arrays import SlotArrays
from evolve.numerics import Backend, sequential_sum, tanh
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Bool, Float32, Int64


@dataclass(frozen=True)
class Layer:
    """One layer: it reads `fan_in` nodes from `first_input` on, and writes `fan_out` nodes from `first_output` on."""

    first_input: int
    fan_in: int
    first_output: int
    fan_out: int


@dataclass(frozen=True)
class Wiring:
    """How many nodes there are, which layers read and write them, and which of them are bias units (`ones`).

    feedback: (source, target, n): after each step nodes[source : source + n] are copied to nodes[target : target + n],
    the context units of an Elman network.
    """

    nodes: int
    layers: tuple[Layer, ...]
    ones: tuple[int, ...] = ()
    feedback: tuple[int, int, int] = (0, 0, 0)

    @property
    def num_weights(self) -> int:
        """W, the weights of all layers."""
        return sum(layer.fan_in * layer.fan_out for layer in self.layers)


def chain(sizes: tuple[int, ...], biased: bool) -> Wiring:
    """Return the feed-forward wiring of layers of these sizes, each with a bias unit beside its inputs if `biased`."""
    layers = []
    at = 0
    for inputs, outputs in pairwise(sizes):
        fan_in = inputs + int(biased)
        layers.append(Layer(at, fan_in, at + fan_in, outputs))
        at += fan_in
    ones = tuple(layer.first_output - 1 for layer in layers) if biased else ()
    return Wiring(at + sizes[-1], tuple(layers), ones)


def chain_blocks(wiring: Wiring) -> tuple[Block, ...]:
    """Return the weight matrix of each layer of a feed-forward network."""
    blocks: list[Block] = []
    start = 0
    for number, layer in enumerate(wiring.layers):
        blocks.append(Block(number, number, start, layer.fan_in, layer.fan_out))
        start = blocks[-1].stop
    return tuple(blocks)


def scaled(weights: Float32, wiring: Wiring, scale: float) -> Float32:
    """Return weights times scale/sqrt(fan-in).

    Args:
        weights: [n, W].
        wiring: Whose layers the weights belong to. Bias units count as fan-in.
        scale: For all layers.
    """
    parts = []
    start = 0
    for layer in wiring.layers:
        stop = start + layer.fan_in * layer.fan_out
        parts.append(weights[:, start:stop] * (np.float32(scale) / np.sqrt(np.float32(layer.fan_in))))
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
    def num_weights(self) -> int:
        """W, the weights of one genome."""
        return self.wiring.num_weights

    @property
    def num_traces(self) -> int:
        """T = 0: episodes leave no traces."""
        return 0

    @property
    def slot_size(self) -> int:
        """How many float32 values a slot takes: weights and nodes."""
        return self.num_weights + self.wiring.nodes

    def batch(self, slots: int, backend: Backend) -> "LayeredBatch":
        """Return an empty batch of B = `slots` slots."""
        return LayeredBatch(self.observation_size, self.wiring, slots, backend)


class LayeredBatch(SlotArrays):
    """The weights and nodes of B slots."""

    def __init__(self, observation_size: int, wiring: Wiring, slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._O = observation_size
        self._wiring = wiring
        self._weights = self._hold(wiring.num_weights)
        self._nodes = self._hold(wiring.nodes)
        if self._compiled:
            widest = max(layer.fan_out for layer in wiring.layers)
            sizes = observation_size, wiring.layers[-1].fan_out, widest
            self.kernel = self._arrays.kernel("layered", self._structure(), sizes)

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return weights and nodes of slots at the start of an episode; nodes are 0, but for bias units."""
        nodes = np.zeros((len(weights), self._wiring.nodes), np.float32)
        nodes[:, self._wiring.ones] = 1
        return weights, nodes

    def activity(self, slot: int) -> Activity:
        """Return what the network of a slot has done in its last step."""
        slots = np.array([slot])
        edges = [0, *(layer.first_output for layer in self._wiring.layers), self._wiring.nodes]
        nodes = self._nodes.take(slots)[0]
        return Activity(tuple(nodes[a:b] for a, b in pairwise(edges)), self._weights.take(slots)[0])

    def _structure(self) -> ctypes.Structure:
        wiring = self._wiring
        layers = np.array([(a.first_input, a.fan_in, a.first_output, a.fan_out) for a in wiring.layers], np.int64)
        return _Structure(
            layers=len(wiring.layers),
            weight_rows=wiring.num_weights,
            node_rows=wiring.nodes,
            observations=self._O,
            wiring=self._arrays.constant(layers),
            feedback=(INT64 * 3)(*wiring.feedback),
            weights=self._weights.address,
            nodes=self._nodes.address,
        )

    def _reference(self, observations: Float32) -> Float32:
        n = len(observations)
        weights = self._weights.array[0, :, :n]  # the array back end has one tile
        nodes = self._nodes.array[0, :, :n]
        nodes[: self._O] = observations.T
        first = 0
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # as the native kernel does
            for layer in self._wiring.layers:
                last = first + layer.fan_in * layer.fan_out
                matrix = weights[first:last].reshape(layer.fan_in, layer.fan_out, n)
                products = nodes[layer.first_input : layer.first_input + layer.fan_in, None] * matrix
                nodes[layer.first_output : layer.first_output + layer.fan_out] = tanh(sequential_sum(products))
                first = last
        source, target, copied = self._wiring.feedback
        nodes[target : target + copied] = nodes[source : source + copied]
        output = self._wiring.layers[-1]
        outputs: Float32 = nodes[output.first_output : output.first_output + output.fan_out].T.copy()
        return outputs


class _Structure(ctypes.Structure):
    """`layered` of kernels/layered.h."""

    _fields_ = (
        ("layers", INT64), ("weight_rows", INT64), ("node_rows", INT64), ("observations", INT64),
        ("wiring", ADDRESS), ("feedback", INT64 * 3), ("weights", ADDRESS), ("nodes", ADDRESS),
    )  # fmt: skip
