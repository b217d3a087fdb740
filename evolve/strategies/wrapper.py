"""What strategies share that are built around another one, and keep the best of its states beside the newest."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve.genome import Genomes
from evolve.shapes import Float64, Int64
from evolve.strategies.scored_genomes import stored_array
from evolve.strategies.strategy import Arrays, Strategy


class Startable(Strategy[Any], Protocol):
    """A strategy that can begin anew."""

    def start_anew(self, generation: int) -> Any:
        """Return a state like that of `start`, with the initial weights of a generation's key."""


class WrapperState(Protocol):
    """The state of a wrapper. now: the newest of the strategy's. best: the one whose champion is the wrapper's."""

    @property
    def now(self) -> Any:
        """Of which candidates are asked."""

    @property
    def best(self) -> Any:
        """Of which the champion is."""


class Wrapper:
    """A strategy around another one, which can do what that one can do.

    A subclass says in `_started` which state a search begins with, and writes `tell`, `to_arrays` and `from_arrays`.
    Its state has `begun` [1] int64, the generation of the run that the search begins with, so that a control, or what
    restarts, begins elsewhere than searches before it.

    Args:
        strategy: The other one.
        prefix: Of the names of arrays of its best state.
    """

    def __init__(self, strategy: Startable, prefix: str) -> None:
        self._strategy = strategy
        self._prefix = prefix
        take_abilities(self, strategy)
        if hasattr(strategy, "sums"):
            self.sums = self._sums
        if hasattr(strategy, "survivors"):
            self.survivors = self._survivors
        if hasattr(strategy, "capacity"):
            self.capacity = 2 * strategy.capacity
            """How many genomes a state holds at most, where it holds some."""

    def start(self) -> Any:
        """Return the state before generation 0."""
        return self._started(self._strategy.start(), np.zeros(1, np.int64))

    def start_anew(self, generation: int) -> Any:
        """Return a state like that of `start`, with the initial weights of a generation's key."""
        return self._started(self._strategy.start_anew(generation), np.array([generation], np.int64))

    def ask(self, state: WrapperState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates."""
        return self._strategy.ask(state.now, generation, candidates)

    def distribution(self, state: WrapperState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation [W] of weights in the best state so far, of a strategy that has them."""
        moments: tuple[Float64, Float64] = self._strategy.distribution(state.best)  # type: ignore[attr-defined]
        return moments

    def champion(self, state: WrapperState) -> Genomes:
        """Return the champion of the best state so far."""
        return self._strategy.champion(state.best)

    def _started(self, state: Any, begun: Int64) -> WrapperState:
        """Return the state of a search that begins with a state of the strategy, in a generation [1]."""
        raise NotImplementedError

    def _best_to_arrays(self, best: Any) -> dict[str, NDArray[Any]]:
        return {f"{self._prefix}{name}": array for name, array in self._strategy.to_arrays(best).items()}

    def _best_from_arrays(self, arrays: Arrays) -> Any:
        mine = {name: array for name, array in arrays.items() if name.startswith(self._prefix)}
        return self._strategy.from_arrays({name.removeprefix(self._prefix): array for name, array in mine.items()})

    def _survivors(self, state: WrapperState) -> int:
        """Return how many candidates of the next generation, its first ones, have been evaluated before."""
        known: int = self._strategy.survivors(state.now)  # type: ignore[attr-defined]
        return known

    def _sums(self, state: WrapperState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return some columns of what the strategy adds up."""
        sums: Float64 = self._strategy.sums(state.now, generation, fitness, columns)  # type: ignore[attr-defined]
        return sums


def begun_of(arrays: Arrays, name: str) -> Int64:
    """Return [1], `begun`; 0 for files of earlier versions, which lack it. Raises ValueError when it is damaged."""
    return stored_array(arrays, name, "1", np.int64) if name in arrays else np.zeros(1, np.int64)


def joined(*parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all parts of a state. Raises ValueError where two of them have one name."""
    arrays = {name: array for part in parts for name, array in part.items()}
    if len(arrays) < sum(map(len, parts)):
        raise ValueError(f"two arrays of one name among {[sorted(part) for part in parts]}")
    return arrays


def take_abilities(wrapper: object, strategy: object) -> None:
    """Give a strategy around another one the attributes by which that one says what it can do."""
    for name in ("portable", "shared_mask", "traces", "sums_per_weight", "grows"):
        if hasattr(strategy, name):
            setattr(wrapper, name, getattr(strategy, name))
