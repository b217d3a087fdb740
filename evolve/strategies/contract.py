"""What a search strategy is to the rest of the engine: a pure ask and a pure tell over an explicit state.

All randomness comes from streams keyed by (seed, purpose, generation, candidate), so the state is nothing but
arrays, and a run resumed from stored arrays asks the same questions.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError
from evolve.genome import Genomes, concatenate
from evolve.networks import Network
from evolve.rng import Purpose, Stream
from evolve.shapes import Float32, Float64

State = TypeVar("State")
Arrays = Mapping[str, NDArray[Any]]


class Strategy(Protocol[State]):
    """A strategy for P candidates of one network.

    portable: whether ask and tell give the same bits on every machine; if not, then only on machines of one kind.
    one_mask: whether all candidates have the same connections. A kind may also have a static method
    `refuse(options, network)` that raises InputError for what makes no sense in a new run.
    """

    portable: ClassVar[bool]
    one_mask: ClassVar[bool] = False

    def start(self) -> State:
        """Return the state before generation 0."""

    def ask(self, state: State, generation: int) -> Genomes:
        """Return the P candidates of a generation."""

    def tell(self, state: State, genomes: Genomes, fitness: Float64, traces: Float32) -> State:
        """Return the next state, given what was asked, fitness [P] (higher is better, NaN is worst), traces [P, T]."""

    def champion(self, state: State) -> Genomes:
        """Return the genome (P = 1) the strategy believes to be best. Needs one tell."""

    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""

    def from_arrays(self, arrays: Arrays) -> State:
        """Return the state those arrays stand for. Raises ValueError when a shape does not fit."""


def ranking(fitness: Float64) -> NDArray[np.intp]:
    """Return [P]: candidates from best to worst; equals keep their order, NaN comes last."""
    missing = np.isnan(fitness)
    return np.lexsort((np.where(missing, 0.0, -fitness), missing))


def need_weights(network: Network, strategy: str) -> None:
    """Raise InputError where weights mean nothing, for a strategy that changes nothing else."""
    if getattr(network, "only_masks", False):
        cure = "Others change masks: prune, mk2, random."
        expected = "one that changes masks, for weights mean nothing to the network"
        raise InputError("strategy.name (--strategy)", expected, strategy, cure)


def newborns(network: Network, seed: int, generation: int, candidates: range) -> Genomes:
    """Return the genomes that the given candidates of a generation are born with."""
    return concatenate(*(network.birth(Stream(seed, Purpose.BIRTH, generation, p)) for p in candidates))
