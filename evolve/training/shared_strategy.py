"""A strategy with its state on every rank, so that each rank computes the genomes that it plays.

Rank 0 sends the state once. From then on each rank tells its copy the same results, a few numbers for each candidate.
Sums over all candidates are computed in parts: each rank sums some columns, and receives the other columns. So the
messages grow with P + W, and no rank ever holds P × W numbers.

This needs a portable strategy: its arithmetic is the same on every rank, and it does not need the traces of each
candidate. For other strategies rank 0 computes the candidates and sends them.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import networks, strategies
from evolve.cluster import Coordinator
from evolve.cluster.messages import frame_of, record_of
from evolve.genome import Genomes, GenomeSource
from evolve.rollouts import PopulationResults, Traces
from evolve.shapes import Float64, UInt8
from evolve.strategies import AskedGenomes, Results, Strategy, runs_on_every_rank, wanted_traces
from evolve.training.experiment import Experiment, load_config, num_threads

MAX_EACH_TRACES = 2**20
"""Up to P × T numbers, workers send the traces of each candidate, even if the strategy needs only their mean."""
MIN_SHARED_NUMBERS = 2**18
"""Fewer than P × W numbers are summed here in one thread: in the 3 ms that this takes, no worker or thread starts."""
CACHED_COLUMNS = 2**14
"""Columns that are summed together, so that they stay in a cache."""
MIN_PART_NUMBERS = 2**19
"""The smallest part of the columns × candidates that is worth a message to a worker."""
_PARTS_PER_WORKER = 4  # so that no worker waits long for another
_TOKENS = itertools.count()  # each number identifies a `SharedStrategy` in versions of the state
_START = "start/weights", "start/mask"
"""The names under which the given genome of a search travels, among the arrays of a state."""


@dataclass(frozen=True)
class HoldState:
    """To a worker: the state of a strategy before a generation; that many `StateArray` messages (`arrays`) follow.

    No array follows before generation 0, because each rank can compute the first state.
    """

    experiment: str
    observation_size: int
    action_size: int
    seed: int
    generation: int
    arrays: int


@dataclass(frozen=True)
class StateArray:
    """To a worker: an array of the state, by its name in a checkpoint."""

    name: str
    array: NDArray[Any]


@dataclass(frozen=True)
class ColumnSums:
    """To a worker: the sums of the columns from `start` on, computed by another rank."""

    start: int
    sums: Float64


@dataclass(frozen=True)
class TellResults:
    """To a worker: the results of a generation: fitness [P]; mean_traces [T], or [0] if not needed; measures [P, D]."""

    fitness: Float64
    mean_traces: Float64
    measures: Float64


@dataclass(frozen=True)
class SumRequest:
    """To a worker: sum the columns start … stop - 1 over all candidates, by their fitness [P]."""

    fitness: Float64
    start: int
    stop: int


_KINDS = HoldState, StateArray, SumRequest, ColumnSums, TellResults


class SharedStrategy:
    """A strategy and its state on rank 0.

    Args:
        experiment: The experiment.
        coordinator: The coordinator of the workers, if there are any.
        strategy: The strategy of the experiment.
        state: Its state before the next generation.
        seed: The seed of the run.
    """

    def __init__(
        self, experiment: Experiment, coordinator: Coordinator, strategy: Strategy[Any], state: Any, seed: int
    ) -> None:
        self.strategy = strategy
        self.state = state
        self._experiment = experiment
        self._coordinator = coordinator
        self._seed = seed
        self._threads = num_threads(experiment.config)
        self._token = next(_TOKENS)
        P, network = experiment.config.population, experiment.network
        self._wanted_traces = wanted_traces(strategy, network.num_traces)
        self._on_every_rank = runs_on_every_rank(strategy, network.num_traces)
        few = P * network.num_traces <= MAX_EACH_TRACES
        racing = self._wanted_traces == "mean" and bool(experiment.config.racing.rounds)
        self.traces: Traces = "each" if few or racing else self._wanted_traces
        """The traces that workers send: of each candidate if they are few, so that their fingerprints are known.

        Also of each candidate in a race, because its mean is over candidates with different numbers of episodes.
        """

    def ask(self, generation: int) -> GenomeSource:
        """Return the candidates of a generation. If workers can compute them, the workers receive the state first."""
        if not self._on_every_rank:
            return self.strategy.ask(self.state, generation)
        version = self._token, generation
        if self._coordinator.workers and self._coordinator.shared_version != version:
            network = self._experiment.network
            sizes = network.observation_size, self._experiment.action_size
            # Every rank can compute the state before generation 0, from the seed or from a given genome.
            arrays = self.strategy.to_arrays(self.state) if generation else {}
            if self._experiment.start is not None:
                genome = self._experiment.start.genome
                arrays |= dict(zip(_START, (genome.weights, genome.mask), strict=True))
            held = HoldState(self._experiment.config.to_toml(), *sizes, self._seed, generation, len(arrays))
            records = itertools.chain([held], itertools.starmap(StateArray, arrays.items()))
            # 0 stands for the rank that has the update already: all workers receive these.
            self._coordinator.update(((frame_of(record, _KINDS), 0) for record in records), version)
        P, W = self._experiment.config.population, self._experiment.network.num_weights
        return AskedGenomes(self.strategy, self.state, generation, P, W)

    def tell(
        self,
        generation: int,
        genomes: GenomeSource,
        fitness: Float64,
        results: PopulationResults,
        measures: Float64 | None = None,
    ) -> None:
        """Tell the strategy the results of a generation, on every rank that computed its candidates."""
        mean_traces = results.mean_traces if self._wanted_traces == "mean" else None
        sums = (
            None if isinstance(genomes, Genomes) else self._sum_candidates(generation, fitness, mean_traces, measures)
        )
        # A strategy takes the traces of all candidates, or none.
        traces = results.traces if len(results.traces) == len(fitness) else results.traces[:0]
        self.state = self.strategy.tell(self.state, genomes, Results(fitness, traces, mean_traces, sums, measures))

    def _sum_candidates(
        self, generation: int, fitness: Float64, mean_traces: Float64 | None, measures: Float64 | None
    ) -> Float64 | None:
        """Return the sums [W], or [W, k], over all candidates, if the strategy needs them; send workers their part."""
        W = self._experiment.network.num_weights
        workers_have_state = self._coordinator.workers and self._coordinator.shared_version == (self._token, generation)
        parts: list[tuple[int, slice, Float64]] = []
        if self.strategy.sum_shape is not None:
            if workers_have_state and len(fitness) * W > MIN_SHARED_NUMBERS:
                parts = self._sum_on_workers(generation, fitness, W)
            else:
                place = slice(0, W)
                parts = [(0, place, self._sum_here(generation, fitness, place))]
        if workers_have_state:
            traces = np.zeros(0) if mean_traces is None else mean_traces
            message = TellResults(fitness, traces, np.zeros((len(fitness), 0)) if measures is None else measures)
            # Each part of the sums goes to all workers but the one that computed it; then all tell their copies.
            self._coordinator.update(
                itertools.chain(
                    ((frame_of(ColumnSums(place.start, sums), _KINDS), worker) for worker, place, sums in parts),
                    [(frame_of(message, _KINDS), 0)],
                ),
                (self._token, generation + 1),
            )
        return np.concatenate([sums for _, _, sums in parts]) if parts else None

    def _sum_here(self, generation: int, fitness: Float64, place: slice) -> Float64:
        return _sum_columns(self.strategy, self.state, generation, fitness, place, self._threads)

    def _sum_on_workers(self, generation: int, fitness: Float64, W: int) -> list[tuple[int, slice, Float64]]:
        """Let workers sum; return (worker, columns, sums) in ascending order of columns."""
        size = max(-(-MIN_PART_NUMBERS // len(fitness)), -(-W // (_PARTS_PER_WORKER * len(self._coordinator.workers))))
        places = [slice(start, min(start + size, W)) for start in range(0, W, size)]
        asked = [frame_of(SumRequest(fitness, place.start, place.stop), _KINDS) for place in places]
        parts = []
        for place, answer in zip(places, self._coordinator.ask(asked), strict=True):
            if answer is None:  # no worker is left
                parts.append((0, place, self._sum_here(generation, fitness, place)))
            else:
                worker, content = answer
                sums = content.view(np.float64).reshape(-1, *(self.strategy.sum_shape or ()))
                parts.append((worker, place, sums))
        return parts


class StrategyReplica:
    """A strategy and its state on a worker: a `SharedState` of `evolve.cluster.worker`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop the state, because updates were missed."""
        self._held: HoldState | None = None
        self._threads = 1
        self._arrays: dict[str, NDArray[Any]] = {}
        self._sums: Float64 = np.zeros(0)
        self._asked: AskedGenomes[Any] | None = None

    def update(self, content: UInt8) -> None:
        """Take a part of a state, or the results of a generation."""
        match record_of(content, _KINDS):
            case HoldState() as held:
                self._held = held
                self._arrays = {}
                self._start_if_complete()
            case StateArray(name, array):
                self._arrays[name] = array.copy()  # not a view, which would keep the message
                self._start_if_complete()
            case ColumnSums(start, sums):
                self._sums[start : start + len(sums)] = sums
            case TellResults() as results:
                self._tell(results)

    def answer(self, content: UInt8) -> UInt8:
        """Return the sums of the requested columns."""
        asked = record_of(content, _KINDS)
        place = slice(asked.start, asked.stop)
        held = self.genomes()
        self._sums[place] = _sum_columns(
            held.strategy, held.state, held.generation, asked.fitness, place, self._threads
        )
        return self._sums[place].reshape(-1).view(np.uint8)

    def genomes(self) -> AskedGenomes[Any]:
        """Return the candidates of the present generation. Raises RuntimeError if this worker has no state."""
        if self._asked is None:
            raise RuntimeError("this rank has no state from which to compute candidates")
        return self._asked

    def _start_if_complete(self) -> None:
        """Make the strategy, once all arrays of its state have come."""
        held = self._held
        if held is None or len(self._arrays) < held.arrays:
            return
        config = load_config(held.experiment)
        self._threads = num_threads(config)
        network = networks.make(config.network, held.observation_size, held.action_size)
        given = [self._arrays.pop(name) for name in _START if name in self._arrays]
        start = Genomes(*given) if given else None
        strategy = strategies.from_table(config.strategy, network, config.population, held.seed, start)
        state = strategy.from_arrays(self._arrays) if held.generation else strategy.start()
        self._asked = AskedGenomes(strategy, state, held.generation, config.population, network.num_weights)
        has_sums = strategy.sum_shape is not None
        self._sums = np.zeros((network.num_weights if has_sums else 0, *(strategy.sum_shape or ())))
        self._held, self._arrays = None, {}

    def _tell(self, results: TellResults) -> None:
        held = self.genomes()
        mean_traces = results.mean_traces if len(results.mean_traces) else None
        sums = self._sums if len(self._sums) else None
        measures = results.measures if results.measures.shape[1] else None
        results_of_all = Results(results.fitness, mean_traces=mean_traces, sums=sums, measures=measures)
        state = held.strategy.tell(held.state, held, results_of_all)
        self._asked = AskedGenomes(held.strategy, state, held.generation + 1, held.population, held.num_weights)


def _sum_columns(
    strategy: Strategy[Any], state: Any, generation: int, fitness: Float64, place: slice, threads: int
) -> Float64:
    """Return the sums [n] or [n, k] of the n columns of `place`, computed block by block.

    threads: The number of threads that compute blocks. The sum of a column does not depend on its block.
    """
    columns = place.stop - place.start
    if columns * len(fitness) < MIN_SHARED_NUMBERS:
        threads = 1
    size = min(CACHED_COLUMNS, -(-columns // threads))
    parts = [slice(start, min(start + size, place.stop)) for start in range(place.start, place.stop, size)]
    sums = partial(strategy.sums, state, generation, fitness)
    if threads == 1:
        return np.concatenate([sums(part) for part in parts])
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(sums, parts)))
