"""What a search strategy is to the rest of the engine: a pure ask and a pure tell over an explicit state.

A strategy is asked for the genomes of a generation and then told how they did, which gives the state of the next one.
All randomness comes from streams keyed by (seed, purpose, generation, candidate), so the state is nothing but arrays,
and a strategy whose state was stored and restored asks for the same genomes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, concatenate
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Float32, Float64, check_shape

State = TypeVar("State")
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Results:
    """What a strategy learns about the P candidates of a generation.

    fitness: [P] float64, higher is better, NaN is worst.
    traces: [P, T] float32, the traces of each candidate's network, averaged over its episodes; [P, 0] by default.

    Raises ValueError for other shapes or types.
    """

    fitness: Float64
    traces: Float32 = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def __post_init__(self) -> None:
        check_shape(self.fitness, "fitness", "P", np.float64)
        P = len(self.fitness)
        if not self.traces.size:
            object.__setattr__(self, "traces", np.zeros((P, 0), np.float32))
        check_shape(self.traces, "traces", "P T", np.float32, P=P)


class Strategy(Protocol[State]):
    """A strategy for P candidates of one genome layout.

    portable: whether ask and tell give the same bits on every machine; otherwise they do on machines of one kind only.
    shared_mask: whether all candidates have the same connections.

    A class may also have a static method `validate(options, layout)`, which raises InputError for options that make no
    sense in a new run. Runs that were begun with such options can still be resumed and examined.
    """

    portable: ClassVar[bool]
    shared_mask: ClassVar[bool] = False

    def start(self) -> State:
        """Return the state before generation 0."""

    def ask(self, state: State, generation: int) -> Genomes:
        """Return the P candidates of a generation."""

    def tell(self, state: State, genomes: Genomes, results: Results) -> State:
        """Return the state after a generation.

        Args:
            state: That the genomes were asked for with.
            genomes: The P candidates that `ask` returned, unchanged.
            results: What their evaluation gave.
        """

    def champion(self, state: State) -> Genomes:
        """Return the genome (P = 1) the strategy believes to be best. Needs one tell."""

    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""

    def from_arrays(self, arrays: Arrays) -> State:
        """Return the state those arrays stand for. Raises ValueError when a shape does not fit."""


def check_population(genomes: Genomes, results: Results, P: int, W: int) -> None:
    """Check what a strategy is told.

    Args:
        genomes: The candidates.
        results: Those of the candidates.
        P: How many candidates there must be.
        W: How many weights each must have.

    Raises:
        ValueError: There are more or fewer, of genomes or of results.
    """
    check_shape(genomes.weights, "genomes.weights", "P W", np.float32, P=P, W=W)
    check_shape(results.fitness, "fitness", "P", np.float64, P=P)


def ranking(fitness: Float64) -> NDArray[np.intp]:
    """Return [P]: candidates from best to worst; equals keep their order, NaN comes last."""
    missing = np.isnan(fitness)
    return np.lexsort((np.where(missing, 0.0, -fitness), missing))


def need_weights(layout: GenomeLayout, strategy: str) -> None:
    """Raise InputError where weights have no effect, for a strategy that changes nothing else."""
    if not getattr(layout, "evolves_weights", True):
        cure = "Others change masks: prune, umda, random."
        expected = "one that changes masks, for weights have no effect on the network"
        raise InputError("strategy.name", expected, strategy, cure)


def initial_genomes(layout: GenomeLayout, seed: int, generation: int, candidates: range) -> Genomes:
    """Return new genomes, one for each of the candidates, drawn from the streams of their keys.

    Args:
        layout: That of the genomes.
        seed: That of the experiment.
        generation: In which the candidates are.
        candidates: Their numbers in the population.
    """
    return concatenate(*(layout.init(Stream(seed, Purpose.INIT, generation, p)) for p in candidates))
