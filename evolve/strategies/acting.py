"""Connections that can act: connections on a path from an observation or a bias to an action.

A path may contain recurrent connections. The neurons that act on the network itself (`modulators`) count as actions. If
the genome consists of learning rules, a connection is present as long as any coefficient of its rule is present.

The flow through a connection measures its effect. Consider all paths through the connection from an observation or a
bias to an action. A path contributes the product of its |weights|, and the flow is the sum over the paths (Tanaka,
Kunin, Yamins & Ganguli, "Pruning Neural Networks without Any Data by Iteratively Conserving Synaptic Flow", 2020,
section 6). The flow is above 0 if and only if the connection can act.

Recurrent connections lead to infinitely many paths, so the number of recurrent connections in a path is limited. The
search goes forwards from the observations and biases, and again backwards from the actions. Each round of a search
allows one recurrent connection more than the round before, until a round reaches no further neuron.

`measure` counts connections for nsga2 and map-elites. `pruning_schedules` prunes by flow.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby

import numpy as np

from evolve.errors import InputError
from evolve.genome import Block, GenomeLayout, GenomeSource
from evolve.numerics.portable import ordered_sum
from evolve.shapes import Bool, Float64, Int64

_WEIGHTS_AT_ONCE = 2**24  # limits the genomes in memory while connections are counted

ACTING, CONNECTIONS = "acting_connections", "connections"
GENOME_MEASURES = ACTING, CONNECTIONS
"""The names of the measures of genomes; other measures are metrics of episodes."""


class Paths:
    """The matrices of a genome layout, and the paths through them. Layer 0 is the observation."""

    def __init__(self, layout: GenomeLayout) -> None:
        self.layout = layout

    @cached_property
    def matrices(self) -> list[tuple[Block, ...]]:
        """The matrices. Each is one block of weights, or all blocks of coefficients of one learning rule.

        All blocks of a matrix have the same layer, source and shape, so the methods read these from the first block.
        """

        def matrix_of(block: Block) -> object:
            # Only blocks of coefficients have a span. A learning rule has a block for each of its coefficients, all
            # between the same two layers. Any other block is a matrix of its own, which its start identifies.
            return (block.layer, block.source) if block.span else block.start

        return [tuple(group) for _, group in groupby(self.layout.blocks, matrix_of)]

    @cached_property
    def sizes(self) -> list[int]:
        """The number of neurons in each layer. A bias counts as the last neuron of its layer."""
        # The rows of a matrix belong to its source. The columns belong to the output of its layer l. The output has the
        # number l + 1 here, because the observation is layer 0.
        sizes: dict[int, int] = {}
        for block, *_ in self.matrices:
            for layer, size in zip((block.source, block.layer + 1), block.shape, strict=True):
                sizes[layer] = max(sizes.get(layer, 0), size)
        return [sizes.get(layer, 0) for layer in range(max(sizes) + 1)]

    @cached_property
    def unused(self) -> tuple[int, ...]:
        """The neurons of the last layer that are neither actions nor modulators."""
        # In a layout without `modulators`, all neurons of the last layer are actions.
        if not hasattr(self.layout, "modulators"):
            return ()
        last = len(self.sizes) - 1
        # The actions are the last neurons of the last layer. A layout with `modulators` also has `action_size`.
        first_action: int = self.sizes[-1] - self.layout.action_size  # type: ignore[attr-defined]
        return tuple(neuron for neuron in range(first_action) if (last, neuron) not in self.layout.modulators)

    def present(self, mask: Bool) -> list[Bool]:
        """Return the connections that are present in masks [P, W]: for each matrix an array [P, rows, columns]."""
        masks = []
        for first, *further in self.matrices:
            present = mask[:, first.start : first.stop]
            for block in further:
                present = present | mask[:, block.start : block.stop]
            # A row or a column of coefficients that several connections share is repeated for each of them.
            masks.append(np.broadcast_to(present.reshape(-1, first.rows, first.columns), (len(mask), *first.shape)))
        return masks

    def acting(self, mask: Bool) -> list[Bool]:
        """Return the connections of masks [P, W] that are present and can act: for each matrix [P, rows, columns]."""
        all_present = self.present(mask)
        # `fed` neurons depend on an observation or a bias; an action depends on `used` neurons. Both are lists of an
        # array [P, size] for each layer. They begin with the ends of the paths, and `_spread` adds the neurons that
        # paths reach.
        sources, actions = self._ends
        fed = [np.repeat(neurons[None], len(mask), axis=0) for neurons in sources]
        used = [np.repeat(neurons[None], len(mask), axis=0) for neurons in actions]
        self._spread(all_present, fed, forwards=True)
        self._spread(all_present, used, forwards=False)
        all_acting = []
        for (block, *_), present in zip(self.matrices, all_present, strict=True):
            _, rows, columns = present.shape
            # The last neuron of a layer may be a bias. Some matrices do not read the bias, and no matrix computes it.
            has_input = fed[block.source][:, :rows, None]
            has_use = used[block.layer + 1][:, None, :columns]
            all_acting.append(present & has_input & has_use)
        return all_acting

    def count(self, mask: Bool) -> Int64:
        """Return [P]: the number of connections that can act."""
        counts = np.zeros(len(mask), np.int64)
        for acting in self.acting(mask):
            counts += np.count_nonzero(acting, axis=(1, 2))
        return counts

    def flow(self, weights: Float64) -> Float64:
        """Return the flow [W] through the connections of a genome with weights [W]; 0 for absent connections.

        The flow of a coefficient of a learning rule is the sum over the connections that learn by this rule.
        """
        # The |weights| [rows, columns] of each block.
        absolute = {b: np.abs(weights[b.start : b.stop]).reshape(b.rows, b.columns) for b in self.layout.blocks}
        # The strength of a connection is its |weight|, or the sum of the |coefficients| of its learning rule.
        strengths = []
        for matrix in self.matrices:
            no_strength = np.zeros(matrix[0].shape)
            strengths.append(sum((absolute[block] for block in matrix), no_strength))
        # The flow through a connection is a product of three factors: the flow of all paths to its source, its
        # strength, and the flow of all paths from its target.
        flow_in, flow_out = self._flows(strengths, forwards=True), self._flows(strengths, forwards=False)
        flow_of_blocks = []
        for matrix in self.matrices:
            rows, columns = matrix[0].shape
            # The first and the last factor.
            paths = flow_in[matrix[0].source][:rows, None] * flow_out[matrix[0].layer + 1][None, :columns]
            for block in matrix:
                # If a block of learning rules has only one row (or column), all connections of a column (or row) share
                # a coefficient: sum over them.
                paths_of_block = paths
                if block.rows < rows:
                    paths_of_block = ordered_sum(paths_of_block.T)[None]
                if block.columns < columns:
                    paths_of_block = ordered_sum(paths_of_block)[:, None]
                flow_of_blocks.append((absolute[block] * paths_of_block).ravel())
        return np.concatenate(flow_of_blocks)

    @cached_property
    def _ends(self) -> tuple[list[Bool], list[Bool]]:
        """Both ends of all paths, [size] for each layer: observations and biases, then actions and modulators."""
        sources = [np.zeros(size, np.bool_) for size in self.sizes]
        actions = [np.zeros(size, np.bool_) for size in self.sizes]
        # If no matrix computes a neuron, the neuron is an observation or a bias.
        for layer, neurons in enumerate(sources):
            computed = max((block.shape[1] for block, *_ in self.matrices if block.layer + 1 == layer), default=0)
            neurons[computed:] = True
        # All used neurons of the last layer are actions or modulators. Other modulators may be in any layer.
        actions[-1][:] = True
        actions[-1][list(self.unused)] = False
        for layer, neuron in getattr(self.layout, "modulators", ()):
            actions[layer][neuron] = True
        return sources, actions

    def _spread(self, all_present: Sequence[Bool], reached: list[Bool], forwards: bool) -> None:
        """Add to the reached neurons [P, size] of each layer all neurons that follow them, or precede them.

        all_present: For each matrix the connections [P, rows, columns] that are present.
        """
        steps = list(zip(self.matrices, all_present, strict=True))
        if not forwards:
            steps.reverse()
        # Neurons are only added, so an equal number means that a round has reached no further neuron.
        before, now = -1, sum(map(np.count_nonzero, reached))
        # The matrices are in the order of their layers, so only recurrent connections need several rounds.
        while now != before:
            for (block, *_), present in steps:
                rows, columns = present.shape[1:]
                # The neurons at which the connections begin and end. Both arrays are views, so the operations below
                # change `reached`.
                begin, end = reached[block.source][:, :rows], reached[block.layer + 1][:, :columns]
                if forwards:
                    end |= (present & begin[:, :, None]).any(axis=1)
                else:
                    begin |= (present & end[:, None]).any(axis=2)
            before, now = now, sum(map(np.count_nonzero, reached))

    def _flows(self, strengths: Sequence[Float64], forwards: bool) -> list[Float64]:
        """Return the flow [size] of each layer: of all paths to a neuron, or, backwards, of all paths from a neuron.

        strengths: For each matrix the strengths [rows, columns] of its connections, see `flow`.
        """
        ends = [neurons.astype(np.float64) for neurons in self._ends[0 if forwards else 1]]
        steps = list(zip(self.matrices, strengths, strict=True))
        if not forwards:
            steps.reverse()
        flows = ends
        before, now = -1, sum(map(np.count_nonzero, flows))
        # Each round adds the paths with one recurrent connection more, until no further neuron is reached.
        while now != before:
            earlier = flows
            # Each round computes the flow of all paths anew, even of paths that earlier rounds have followed.
            flows = [neurons.copy() for neurons in ends]
            for (block, *_), strength in steps:
                rows, columns = strength.shape
                # Sources are numbered from the observation on, so the output of layer l is source l + 1. A recurrent
                # connection reads the output of its own or a later layer. It passes on the flow of the earlier round:
                # those paths have one recurrent connection less.
                incoming = earlier if block.source > block.layer else flows
                if forwards:
                    flows[block.layer + 1][:columns] += ordered_sum(incoming[block.source][:rows] * strength.T)
                else:
                    flows[block.source][:rows] += ordered_sum(strength * incoming[block.layer + 1][:columns])
            before, now = now, sum(map(np.count_nonzero, flows))
        return flows


def measure(
    paths: Paths, names: Sequence[str], genomes: GenomeSource, metrics: Mapping[str, Float64], settings: Sequence[str]
) -> Float64:
    """Return the measures [P, D] of P candidates, see `Strategy.measures`.

    Args:
        paths: The paths of the candidates' layout.
        names: The names of the D measures, in `GENOME_MEASURES` or `metrics`.
        genomes: The P genomes.
        metrics: The mean metrics of the candidates' episodes by name, [P] each.
        settings: The setting that names each measure, for errors.
    """
    P = len(genomes)
    measures = np.zeros((P, len(names)))
    # First the metrics of the episodes, which need no genomes.
    for column, (name, setting) in enumerate(zip(names, settings, strict=True)):
        if name not in GENOME_MEASURES:
            if name not in metrics:
                cure = f"Without episodes, give it to tell: Results(fitness, measures=…), an array [{P}, {len(names)}]."
                raise InputError(setting, f"{ACTING}, {CONNECTIONS} or a metric of the episodes", name, cure)
            measures[:, column] = metrics[name]
    counted = [column for column, name in enumerate(names) if name in GENOME_MEASURES]
    if not counted:
        return measures
    # Then count connections. A lazy source computes the genomes here, so take only as many at a time as fit in memory.
    at_once = max(1, _WEIGHTS_AT_ONCE // genomes.num_weights)
    for first in range(0, P, at_once):
        mask = genomes.take(np.arange(first, min(first + at_once, P))).mask
        for column in counted:
            counts = paths.count(mask) if names[column] == ACTING else np.count_nonzero(mask, axis=1)
            measures[first : first + len(mask), column] = counts
    return measures
