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
from evolve.shapes import Bool, Float32


@dataclass(frozen=True)
class Block:
    """One weight matrix inside a genome: weights[start:stop] is [rows, columns], row-major.

    layer: the layer it feeds; the blocks of one layer are contiguous, so a run of them can be swapped whole.
    """

    layer: int
    start: int
    rows: int
    columns: int

    @property
    def stop(self) -> int:
        """End of the block inside a genome."""
        return self.start + self.rows * self.columns


class Batch(Protocol):
    """The running state of up to B slots; live slots are always the first n."""

    def load(self, slot: int, weights: Float32, mask: Bool) -> None:
        """Put a genome (weights [W], mask [W]) into a slot and clear every other state of that slot."""

    def move(self, source: int, target: int) -> None:
        """Copy a slot's genome and state onto another slot."""

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> new actions [n, A] in [-1, 1]."""

    def trace(self, slot: int) -> Float32:
        """Return [T]: what the slot's episode leaves for the strategy to see."""


class Network(Protocol):
    """A description of one kind of network at given sizes."""

    @property
    def observation_size(self) -> int:
        """O, the inputs."""

    @property
    def weights(self) -> int:
        """W, the weights of one genome."""

    @property
    def traces(self) -> int:
        """T, the trace values one episode leaves: W or 0."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The weight matrices, in genome order."""

    def birth(self, stream: Stream) -> Genomes:
        """Return one new genome, P = 1."""

    def batch(self, slots: int, backend: Backend) -> Batch:
        """Return an empty batch of B = `slots` slots; every back end gives the same bits."""
