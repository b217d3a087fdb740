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
from evolve.numerics.native import FLOAT_P, INT64, INT64_P, NativeStep, pointer
from evolve.shapes import Bool, Float32, Int64, Slots


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
        native = backend == "native"
        self._native = _native_step(observation_size, wiring, self._weights, self._nodes) if native else None

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes [k, W] into slots; nodes are 0, but for bias units. mask and seeds are not used here."""
        at = self._at(slots)
        nodes = np.zeros((len(slots), self._wiring.nodes), np.float32)
        nodes[:, self._wiring.ones] = 1
        self._weights[at] = weights
        self._nodes[at] = nodes

    def traces(self, slots: Slots) -> Float32:
        """Return [k, 0]: there are none."""
        return np.zeros((len(slots), 0), np.float32)

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots: observations [n, O] -> outputs [n, A]."""
        return self._native(observations) if self._native else self._reference(observations)

    def activity(self, slot: int) -> Activity:
        """Return what the network of a slot has done in its last step."""
        at = self._at(np.array([slot]))
        edges = [0, *(layer.first_output for layer in self._wiring.layers), self._wiring.nodes]
        nodes = self._nodes[at][0]
        return Activity(tuple(nodes[a:b] for a, b in pairwise(edges)), self._weights[at][0])

    def _reference(self, observations: Float32) -> Float32:
        n = len(observations)
        weights = self._weights[0, :, :n]  # the array back end has one tile
        nodes = self._nodes[0, :, :n]
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
        return nodes[output.first_output : output.first_output + output.fan_out].T.copy()


class _Structure(ctypes.Structure):
    """`layered` of kernels/layers.h."""

    _fields_ = (
        ("layers", INT64), ("weight_rows", INT64), ("node_rows", INT64), ("observations", INT64),
        ("wiring", INT64_P), ("feedback", INT64 * 3), ("weights", FLOAT_P), ("nodes", FLOAT_P),
    )  # fmt: skip


def _native_step(O: int, wiring: Wiring, weights: Float32, nodes: Float32) -> NativeStep:
    """Return the native step of a batch: weights [tiles, W, lanes], nodes [tiles, wiring.nodes, lanes]."""
    layers = np.array([(a.first_input, a.fan_in, a.first_output, a.fan_out) for a in wiring.layers], np.int64)
    structure = _Structure(
        layers=len(wiring.layers),
        weight_rows=weights.shape[1],
        node_rows=nodes.shape[1],
        observations=O,
        wiring=pointer(layers),
        feedback=(INT64 * 3)(*wiring.feedback),
        weights=pointer(weights),
        nodes=pointer(nodes),
    )
    return NativeStep("layered", structure, wiring.layers[-1].fan_out, kept=(layers, weights, nodes))
