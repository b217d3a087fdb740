"""The layered networks without plasticity: mlp, binary-mask-mlp, dag and elman.

`mlp` is the multilayer perceptron (Rosenblatt, 1962): each layer reads the layer before it, and a bias unit. In
`binary-mask-mlp` every connection has the weight 1, and only the mask evolves. In `dag` every layer reads all earlier
layers. `elman` is the simple recurrent network (Elman, "Finding Structure in Time", 1990).

The nodes of a network lie end to end: the observation, the outputs of each layer, and bias units. A bias unit is always
1. `elman` also has context units. A layer reads a contiguous slice x of earlier nodes. Sums run over the rows of W in
ascending order:

    y_k = tanh(((x_0 W_0k + x_1 W_1k) + x_2 W_2k) + …)

After a step, some nodes are copied to the context units (`feedback`), which the next step reads. Context units are 0
when an episode starts. All arithmetic is float32.
"""

import ctypes
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.genome import Block, FactoredGenomes, Genomes, pruned
from evolve.networks import network as base
from evolve.numerics import Backend, native, sequential_sum, tanh
from evolve.numerics.native import ADDRESS, INT64
from evolve.numerics.perturbation import Factors, PerturbedMatrix
from evolve.numerics.streams import AnyStream
from evolve.shapes import Bool, Float32, Int64, Slots


@dataclass(frozen=True)
class Layer:
    """One layer: it reads `fan_in` nodes from `first_input` on, and writes `fan_out` nodes from `first_output` on."""

    first_input: int
    fan_in: int
    first_output: int
    fan_out: int

    @property
    def num_weights(self) -> int:
        """The number of weights of the layer."""
        return self.fan_in * self.fan_out


@dataclass(frozen=True)
class Wiring:
    """The nodes of a network and the layers that read and write them.

    num_nodes: The number of nodes.
    layers: The layers, in genome order.
    bias_units: The numbers of the nodes that are bias units.
    feedback: (source, target, n). After each step nodes[source : source + n] are copied to the context units,
        nodes[target : target + n].
    """

    num_nodes: int
    layers: tuple[Layer, ...]
    bias_units: tuple[int, ...] = ()
    feedback: tuple[int, int, int] = (0, 0, 0)


def chain(sizes: tuple[int, ...], biased: bool) -> Wiring:
    """Return the wiring in which each layer reads the layer before it and, if `biased`, a bias unit.

    sizes: The sizes of the observation and of each layer.
    """
    layers = []
    first_input = 0
    for inputs, outputs in pairwise(sizes):
        fan_in = inputs + int(biased)
        # A bias unit lies between the inputs and the outputs of its layer, so the layer reads one slice of nodes.
        layers.append(Layer(first_input, fan_in, first_input + fan_in, outputs))
        first_input += fan_in
    bias_units = tuple(layer.first_output - 1 for layer in layers) if biased else ()
    return Wiring(first_input + sizes[-1], tuple(layers), bias_units)


class LayeredNetwork(base.BaseNetwork[base.OptionsT]):
    """The description of a layered network."""

    is_static = True

    @property
    def wiring(self) -> Wiring:
        """The nodes, and the layers that read and write them."""
        raise NotImplementedError

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The matrix of each layer: W_0, W_1, … If a layer reads a bias unit, the last row holds the biases."""
        # Layer n reads source n.
        matrices = [(n, n, layer.fan_in, layer.fan_out) for n, layer in enumerate(self.wiring.layers)]
        return base.blocks_end_to_end(matrices, [f"W_{number}" for number in range(len(matrices))])

    @property
    def slot_size(self) -> int:
        """The number of float32 values in a slot: weights and nodes."""
        return self.num_weights + self.wiring.num_nodes

    def batch(self, slots: int, backend: Backend) -> "LayeredBatch":
        """Return an empty batch of B = `slots` slots."""
        return LayeredBatch(self, slots, backend)


class ScaledNetwork(LayeredNetwork[base.OptionsT]):
    """A layered network that divides initial weights by the square root of the number of inputs of their layer."""

    @property
    def weight_scale(self) -> Float32:
        """The standard deviation of each initial weight, [W]. A bias unit counts as an input."""
        layers = self.wiring.layers
        inputs = np.array([layer.fan_in for layer in layers], np.float32)
        scale = np.float32(self.options.init_scale) / np.sqrt(inputs)
        return np.repeat(scale, [layer.num_weights for layer in layers])


class LayeredBatch(base.SlotArrays):
    """The weights and nodes of B slots."""

    def __init__(self, network: LayeredNetwork[Any], slots: int, backend: Backend) -> None:
        super().__init__(slots, backend)
        self._O, self._W = network.observation_size, network.num_weights
        self._wiring = network.wiring
        self._weights = self._hold(self._W)
        self._nodes = self._hold(self._wiring.num_nodes)
        # If slots hold factors: rows, rank and first row of the factors of each matrix, see `_set_weight_layout`.
        self._matrices: NDArray[np.int64] = np.zeros(0, np.int64)
        self._centre: Float32 | None = None
        """The common centre of all candidates if slots hold factors, see `Factors`; None if slots hold weights."""
        self._compile("layered", network)

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return weights and nodes of slots at the start of an episode; nodes are 0, bias units 1."""
        nodes = np.zeros((len(weights), self._wiring.num_nodes), np.float32)
        nodes[:, self._wiring.bias_units] = 1
        return weights, nodes

    def fits(self, genomes: Genomes) -> bool:
        """Return whether slots and genomes both have weights, or both have factors around the same centre."""
        factors = self._usable_factors(genomes)
        centre = None if factors is None else factors.centre
        # Compare the objects, because all candidates of a generation share one array, see `OpenAiEs`.
        return self._centre is centre

    @property
    def can_give(self) -> bool:
        """Whether other batches can take the columns: the slots must hold weights, not factors."""
        return self._centre is None

    def columns_of(self, genomes: Genomes, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return the initial columns of k genomes, with factors instead of weights if the kernel can use factors.

        From then on the kernel reads the columns of all slots in this way. So call it only if `fits` is True, or if no
        episode runs.
        """
        weights, *other_columns = self.initial(genomes.weights, genomes.mask, seeds)
        factors = self._usable_factors(genomes)
        if factors is not None:
            self._set_weight_layout(factors.values.shape[1], factors.centre, factors.matrices)
            return factors.values, *other_columns
        self._set_weight_layout(self._W, None, ())
        return weights, *other_columns

    def _usable_factors(self, genomes: Genomes) -> Factors | None:
        """Return the factors of genomes if the kernel can compute weights from them; otherwise None.

        Only the native kernel can compute weights. Above rank 1, computing a weight takes longer than reading it. A
        column holds W numbers, but the factors of small matrices may be more.
        """
        if not isinstance(genomes, FactoredGenomes) or not isinstance(self.kernel, native.NativeStep):
            return None
        factors = genomes.factors
        fit_in_columns = factors.values.shape[1] <= self._W
        have_low_rank = all(matrix.rank <= 1 for matrix in factors.matrices)
        return factors if fit_in_columns and have_low_rank else None

    def _set_weight_layout(self, rows: int, centre: Float32 | None, matrices: tuple[PerturbedMatrix, ...]) -> None:
        """Set what the kernel reads in the first `rows` rows of a column.

        They are weights if `centre` is None; otherwise they are the factors of `matrices` around the centre [W].
        """
        if self._centre is centre:  # then the layout is set already, because a centre has only one list of matrices
            return
        # `_usable_factors` returns factors only for this kernel, so no other batch has a centre.
        assert isinstance(self.kernel, native.NativeStep)
        layout = []
        first_row = 0  # at which the factors of a matrix begin
        for matrix in matrices:
            layout.append((matrix.rows, matrix.rank, first_row))
            first_row += matrix.factors_size
        # The structure has only addresses, so these attributes keep the arrays alive.
        self._centre, self._matrices = centre, np.array(layout, np.int64)
        centre_address = None if centre is None else centre.ctypes.data
        self.kernel.set(weight_rows=rows, centre=centre_address, matrices=self._matrices.ctypes.data)

    def weights(self, slots: Slots) -> Float32:
        """Return the weights [k, W] of slots."""
        return self._weights.take(slots)

    def activity(self, slot: int) -> base.Activity:
        """Return the last step of a slot's network."""
        slots = np.array([slot])
        # Split the nodes where the outputs of each layer begin.
        outputs_begin = [layer.first_output for layer in self._wiring.layers]
        nodes = np.split(self._nodes.take(slots)[0], outputs_begin)
        return base.Activity(tuple(nodes), self.weights(slots)[0])

    def _structure(self) -> ctypes.Structure:
        """Return the C structure `layered` of kernels/layered.h."""
        wiring = self._wiring
        layers = np.array([astuple(layer) for layer in wiring.layers], np.int64)
        return base.structure(
            layers=(INT64, len(wiring.layers)),
            weight_rows=(INT64, self._W),
            node_rows=(INT64, wiring.num_nodes),
            observations=(INT64, self._O),
            wiring=(ADDRESS, self._arrays.constant(layers)),
            feedback=(INT64 * 3, (INT64 * 3)(*wiring.feedback)),
            weights=(ADDRESS, self._weights.address),
            nodes=(ADDRESS, self._nodes.address),
            # `_set_weight_layout` sets the last two if slots hold factors.
            centre=(ADDRESS, None),
            matrices=(ADDRESS, None),
        )

    def _reference(self, observations: Float32) -> Float32:
        n = len(observations)
        weights = self._weights.array[0, :, :n]  # arrays in NumPy have one tile
        nodes = self._nodes.array[0, :, :n]
        # Bias units are never an output of a layer, so they stay 1, as `initial` has set them.
        nodes[: self._O] = observations.T
        first = 0  # the first weight of the layer
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # the native kernel does not warn, either
            for layer in self._wiring.layers:
                last = first + layer.num_weights
                matrix = weights[first:last].reshape(layer.fan_in, layer.fan_out, n)
                products = nodes[layer.first_input : layer.first_input + layer.fan_in, None] * matrix
                nodes[layer.first_output : layer.first_output + layer.fan_out] = tanh(sequential_sum(products))
                first = last
        source, target, num_copied = self._wiring.feedback  # (0, 0, 0) without context units
        nodes[target : target + num_copied] = nodes[source : source + num_copied]
        output = self._wiring.layers[-1]
        return nodes[output.first_output : output.first_output + output.fan_out].T.copy()


class MlpOptions(base.NetworkOptions):
    """Settings of `[network]` for mlp."""

    hidden: base.Hidden = (16, 16)
    """The sizes of the hidden layers."""
    init_scale: base.Scale = 1.0
    """The standard deviation of initial weights, before division by the square root of the number of their inputs."""
    init_sparsity: base.Share = 0.0
    """The share of connections that is pruned initially."""


class Mlp(ScaledNetwork[MlpOptions]):
    """The description of a multilayer perceptron."""

    @cached_property
    def wiring(self) -> Wiring:
        """Each layer reads the layer before it and a bias unit."""
        return chain(self.sizes, biased=True)


class BinaryMaskMlpOptions(base.NetworkOptions):
    """Settings of `[network]` for binary-mask-mlp."""

    hidden: base.Hidden = (8, 8)
    """The sizes of the hidden layers."""
    init_sparsity: base.Share = 0.25
    """The share of connections that is pruned initially."""


class BinaryMaskMlp(LayeredNetwork[BinaryMaskMlpOptions]):
    """The description of a multilayer perceptron whose weights are all 1."""

    evolves_weights = False

    @cached_property
    def wiring(self) -> Wiring:
        """Each layer reads the layer before it."""
        return chain(self.sizes, biased=False)

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome for each stream: ones, a share of them pruned."""
        mask = stream.at_least(self.options.init_sparsity, self.num_weights)
        return pruned(np.ones(mask.shape, np.float32), mask)

    def batch(self, slots: int, backend: Backend) -> LayeredBatch:
        """Return an empty batch of B = `slots` slots."""
        return _MaskBatch(self, slots, backend)


class _MaskBatch(LayeredBatch):
    """A batch that uses the masks of its genomes as weights."""

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        return super().initial(mask.astype(np.float32), mask, seeds)


class DagOptions(base.NetworkOptions):
    """Settings of `[network]` for dag."""

    hidden: base.Hidden = (8, 8)
    """The sizes of the hidden layers."""
    init_scale: base.Scale = 1.0
    """The standard deviation of initial weights."""
    init_sparsity: base.Share = 0.025
    """The share of connections that is pruned initially."""


class Dag(LayeredNetwork[DagOptions]):
    """The description of a dag, a directed acyclic graph: every layer reads the observation and all earlier layers."""

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W_layer_source: W_0_0, W_1_0, W_1_1, W_2_0, … The matrices into a layer are adjacent and form one matrix."""
        return base.dag_blocks(self.sizes)

    @cached_property
    def wiring(self) -> Wiring:
        """Each layer reads all nodes before its own."""
        *fan_ins, num_nodes = accumulate(self.sizes)
        layers = [Layer(0, fan_in, fan_in, fan_out) for fan_in, fan_out in zip(fan_ins, self.sizes[1:], strict=True)]
        return Wiring(num_nodes, tuple(layers))


class ElmanOptions(base.NetworkOptions):
    """Settings of `[network]` for elman."""

    hidden: base.OneHidden = (16,)
    """H, the size of the one hidden layer."""
    init_scale: base.Scale = 1.0
    """The standard deviation of initial weights, before division by the square root of the number of their inputs."""
    init_sparsity: base.Share = 0.0
    """The share of connections that is pruned initially."""


class Elman(ScaledNetwork[ElmanOptions]):
    """The description of a simple recurrent network."""

    @cached_property
    def wiring(self) -> Wiring:
        """The nodes x_t, h_{t-1}, 1, which layer 0 reads; h_t, 1, which layer 1 reads; and the action."""
        O, H, A = self.sizes
        h = O + H + 1  # the first node of h_t
        action = h + H + 1  # the first node of the action
        layers = (Layer(0, O + H + 1, h, H), Layer(h, H + 1, action, A))
        return Wiring(action + A, layers, bias_units=(O + H, h + H), feedback=(h, O, H))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W from x_t to h_t, U from h_{t-1} to h_t, V from h_t to the action. The last rows of U and V are biases."""
        O, H, A = self.sizes
        return base.blocks_end_to_end([(0, 0, O, H), (0, 1, H + 1, H), (1, 1, H + 1, A)], "WUV")
