"""The contract of a network, the base of the built-in networks, and the types of their options."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.genome import Block, GenomeLayout, Genomes, pruned
from evolve.numerics import Backend
from evolve.numerics.streams import AnyStream
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


OptionsT = TypeVar("OptionsT")


class NetworkOptions(Options):
    """Base of the settings of `[network]`."""

    aliases: ClassVar[Mapping[str, str]] = {"birth_scale": "init_scale", "birth_pruning": "init_sparsity"}


def end_to_end(matrices: Iterable[tuple[int, int, int, int]]) -> tuple[Block, ...]:
    """Return the blocks of matrices (layer, source, rows, columns) that lie end to end in a genome."""
    blocks: list[Block] = []
    for layer, source, rows, columns in matrices:
        blocks.append(Block(layer, source, blocks[-1].stop if blocks else 0, rows, columns))
    return tuple(blocks)


def all_earlier(sizes: tuple[int, ...]) -> tuple[Block, ...]:
    """Return the matrices of a network in which each layer reads all earlier ones; sizes from the observation on."""
    layers = enumerate(sizes[1:])
    return end_to_end((layer, source, sizes[source], to) for layer, to in layers for source in range(layer + 1))


@dataclass(frozen=True)
class Activity:
    """The last step of the network of one slot, for drawings.

    Attributes:
        nodes: The outputs of each layer's neurons, from the observation on; biases, which are 1, come last.
        weights: [W], the present weight of each connection, in genome order; with a genome of learning rules
            [connections], in the order of its blocks' spans.
    """

    nodes: tuple[Float32, ...]
    weights: Float32


class Batch(Protocol):
    """The running state of B slots. A method for k of the slots takes their numbers [k], all different.

    A batch of the back end numpy may also have a method `activity(slot)` that returns the `Activity` of a slot. Films
    then show the network at work.
    """

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes into slots and clear all other state of these slots.

        Args:
            slots: [k].
            weights: [k, W] of the genomes.
            mask: [k, W] of the genomes.
            seeds: [k], the seeds of the episodes' environments. A network may draw its initial state from them.
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the genomes and the state of the source slots to the target slots."""

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> new actions [n, A] in [-1, 1]."""

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: the traces of the slots' episodes; ignore the values of pruned connections."""


class Network(GenomeLayout, Protocol):
    """A description of one kind of network at given sizes.

    A class may also have a static method `validate(options)`, which raises InputError for options that make no sense in
    a new run. Runs that were begun with such options can still be resumed and examined.

    It may have an attribute `modulators`: the neurons (layer, number) that act on the network itself. Other outputs
    before the last A of its last layer then act on nothing.
    """

    @property
    def observation_size(self) -> int:
        """O, the inputs."""

    @property
    def slot_size(self) -> int:
        """The float32 numbers of one slot of a batch, about."""

    def batch(self, slots: int, backend: Backend) -> Batch:
        """Return an empty batch of B = `slots` slots; every back end gives the same bits."""


@dataclass(frozen=True)
class BaseNetwork(Generic[OptionsT]):
    """The description of a network with O = observation_size inputs and A = action_size outputs.

    All built-in networks have this base. A subclass defines at least `blocks`, `slot_size` and `batch`. If it does not
    define `init`, its options must have `init_sparsity`.
    """

    options: OptionsT
    observation_size: int
    action_size: int

    batched_init = True

    @property
    def sizes(self) -> tuple[int, ...]:
        """D, the layer sizes from observation to action."""
        options: Any = self.options
        return (self.observation_size, *options.hidden, self.action_size)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The matrices, in genome order."""
        raise NotImplementedError

    @property
    def num_weights(self) -> int:
        """W, the numbers of one genome."""
        return self.blocks[-1].stop

    @property
    def num_traces(self) -> int:
        """T, the traces of one episode: 0 unless a network overrides it."""
        return 0

    @property
    def weight_scale(self) -> Float32 | np.float32:
        """The standard deviation of initial weights, one number or [W]: the option `init_scale`."""
        options: Any = self.options
        return np.float32(options.init_scale)

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome (P = 1), or one for each of many streams: normal weights, a share of them pruned."""
        options: Any = self.options
        weights = self.weight_scale * stream.normal_rows(self.num_weights)
        return pruned(weights, stream.at_least(options.init_sparsity, self.num_weights))
