"""What the strategies cma-es, sep-cma-es, openai-es and pgpe share: they search around one genome, an initial one."""

from typing import Any, ClassVar, Generic

from numpy.typing import NDArray

from evolve.genome import GenomeLayout, Genomes
from evolve.numerics.perturbation import StreamsKey
from evolve.numerics.streams import Purpose
from evolve.strategies.strategy import State, other_weights


class EvolutionStrategy(Generic[State]):
    """A strategy for P = `population` candidates of a layout, all of which have the connections of an initial genome.

    The state is a dataclass of arrays. A subclass says in `_started` which one the search begins with.
    """

    portable: ClassVar[bool] = True
    shared_mask: ClassVar[bool] = True

    def __init__(self, layout: GenomeLayout, population: int, seed: int, initial: Genomes) -> None:
        self._layout = layout
        self._W = layout.num_weights
        self._P = population
        self._seed = seed
        self._initial = initial

    def start(self) -> State:
        """Return the state before generation 0: the search begins at an initial genome."""
        return self._started(self._initial)

    def start_anew(self, generation: int) -> State:
        """Return a state like that of `start`, with the initial weights of a generation's key."""
        return self._started(other_weights(self._layout, self._seed, generation, self._initial))

    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return dict(vars(state))

    def _started(self, initial: Genomes) -> State:
        """Return the state of a search that begins at a genome (P = 1)."""
        raise NotImplementedError

    def _key(self, generation: int) -> StreamsKey:
        """Return the key of the streams of a generation's deviates, numbered as candidates are, or as their pairs."""
        return self._seed, Purpose.WEIGHT_NOISE, generation
