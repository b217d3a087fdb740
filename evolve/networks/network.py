"""What a network is to the rest of the engine, and the types of its options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from evolve.config import Options
from evolve.genome import Block, GenomeLayout
from evolve.numerics import Backend
from evolve.shapes import Bool, Float32, Int64, Slots

_Size = Annotated[int, Field(ge=1, le=65536)]

Hidden = Annotated[tuple[_Size, ...], Field(max_length=64, strict=False)]
"""The sizes of hidden layers, from the observation on."""

TwoOrMore = Annotated[tuple[Annotated[int, Field(ge=2, le=65536)]], Field(strict=False)]
"""The size of the one hidden layer, at least two."""

OneHidden = Annotated[tuple[_Size, ...], Field(min_length=1, max_length=1, strict=False)]
"""The size of the one hidden layer."""

Share = Annotated[float, Field(ge=0, lt=1)]
"""A share of connections."""

Scale = Annotated[float, Field(gt=0, le=1e6)]
"""A factor of weights."""


class NetworkOptions(Options):
    """Base of the settings of `[network]`."""

    aliases: ClassVar[Mapping[str, str]] = {"birth_scale": "init_scale", "birth_pruning": "init_sparsity"}


def all_earlier(sizes: tuple[int, ...]) -> tuple[Block, ...]:
    """Return the matrices of a network in which each layer reads all earlier ones; sizes from the observation on."""
    blocks: list[Block] = []
    start = 0
    for layer, columns in enumerate(sizes[1:]):
        for source in range(layer + 1):
            blocks.append(Block(layer, source, start, sizes[source], columns))
            start = blocks[-1].stop
    return tuple(blocks)


@dataclass(frozen=True)
class Activity:
    """What the network of one slot has done in its last step, to be looked at.

    Attributes:
        nodes: What the neurons of each layer passed on, from the observation on; biases, which are 1, come last.
        weights: [W], with which each connection passes it on now, in genome order; of a genome of learning rules
            [connections], in the order of its blocks' spans.
    """

    nodes: tuple[Float32, ...]
    weights: Float32


class Batch(Protocol):
    """The running state of B slots; k of them are named by their numbers [k], all different.

    A batch of the back end numpy may also have a method `activity(slot)` that returns the `Activity` of a slot. Films
    show the network at work then.
    """

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes into slots and clear all other state of these slots.

        Args:
            slots: [k].
            weights: [k, W] of the genomes.
            mask: [k, W] of the genomes.
            seeds: [k], those of the episodes' environments, for what a network draws at the start of an episode.
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the genomes and the state of slots onto as many others."""

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> new actions [n, A] in [-1, 1]."""

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: what the slots' episodes leave for the strategy; ignore the values of pruned connections."""


class Network(GenomeLayout, Protocol):
    """A description of one kind of network at given sizes.

    A class may also have a static method `validate(options)`, which raises InputError for options that make no sense in
    a new run. Runs that were begun with such options can still be resumed and examined.

    It may have an attribute `modulators`: the neurons (layer, number) that act on the network itself. The outputs
    before the last A of its last layer act on nothing then, unless they are among them.
    """

    @property
    def observation_size(self) -> int:
        """O, the inputs."""

    @property
    def slot_size(self) -> int:
        """How many float32 numbers one slot of a batch holds, about."""

    def batch(self, slots: int, backend: Backend) -> Batch:
        """Return an empty batch of B = `slots` slots; every back end gives the same bits."""
