"""What a network is to the rest of the engine.

A network is a frozen description: it knows how many weights a genome has and how they lie, how a genome is born,
and makes batches. A batch holds the mutable state of B slots while episodes run; each slot is one (candidate,
episode), and no slot can influence another's bits.
"""

from dataclasses import dataclass
from typing import Protocol

from evolve.genome import Genomes
from evolve.numerics import Backend
from evolve.rng import Stream
from evolve.shapes import Bool, Float32, Int64, Slots


@dataclass(frozen=True)
class Block:
    """One weight matrix inside a genome: weights[start:stop] is [rows, columns], row-major.

    layer: the layer it feeds; the blocks of one layer are contiguous, so a run of them can be swapped whole.
    source: the layer it reads. Layer 0 is fed by the observation, which is source 0; source l + 1 is what layer l says,
    or said in the step before where l is not an earlier layer. A row more than the source has is its biases.
    span: where the numbers are no weights but coefficients of learning rules, the [rows, columns] of the connections
    that have these rules: a row or a column of the block that is alone counts for all.
    """

    layer: int
    source: int
    start: int
    rows: int
    columns: int
    span: tuple[int, int] | None = None

    @property
    def stop(self) -> int:
        """End of the block inside a genome."""
        return self.start + self.rows * self.columns


def all_earlier(sizes: tuple[int, ...]) -> tuple[Block, ...]:
    """Return the matrices of a network in which each layer reads all earlier ones; sizes from the observation on."""
    blocks, start = [], 0
    for layer, columns in enumerate(sizes[1:]):
        for source in range(layer + 1):
            blocks.append(Block(layer, source, start, sizes[source], columns))
            start = blocks[-1].stop
    return tuple(blocks)


class Batch(Protocol):
    """The running state of B slots; k of them are named by their numbers [k], all different."""

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes (weights [k, W], mask [k, W]) into slots and clear every other state of these.

        seeds: [k], those of the episodes' environments, for what a network draws at the start of an episode.
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the genomes and the state of slots onto as many others."""

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> new actions [n, A] in [-1, 1]."""

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: what the slots' episodes leave for the strategy; nothing is meant by a pruned connection's."""


class Network(Protocol):
    """A description of one kind of network at given sizes.

    A kind may also say `only_masks = True`, where weights mean nothing, and have a static method `refuse(options)` that
    raises InputError for what makes no sense in a new run.
    """

    @property
    def observation_size(self) -> int:
        """O, the inputs."""

    @property
    def weights(self) -> int:
        """W, the weights of one genome."""

    @property
    def traces(self) -> int:
        """T, the trace values one episode leaves: W, one for each connection, or 0."""

    @property
    def slot_size(self) -> int:
        """How many float32 numbers one slot of a batch holds, about."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The weight matrices, in genome order."""

    def birth(self, stream: Stream) -> Genomes:
        """Return one new genome, P = 1."""

    def batch(self, slots: int, backend: Backend) -> Batch:
        """Return an empty batch of B = `slots` slots; every back end gives the same bits."""
