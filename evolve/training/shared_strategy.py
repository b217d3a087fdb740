"""Copies a strategy and its state to every rank, so that each rank computes the genomes that it plays.

`SharedStrategy` is the original on rank 0, and `StrategyReplica` is the copy on a worker. Rank 0 sends the state once.
After each generation it sends the results, a few numbers for each candidate, with which each rank updates its copy.

A strategy may need sums over all P candidates for each of the W weights, such as a gradient. A column is one weight of
all candidates. Each worker sums some columns, and receives the sums of the other columns. So the messages grow with
P + W, and no rank ever holds P × W numbers.

A strategy is copied if it is portable (the same arithmetic on every rank), is not `central` (see `Strategy`), and does
not need the traces of each candidate. For other strategies rank 0 computes the candidates and sends them.
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
from evolve.shapes import Float64, UInt8, ceil_div
from evolve.strategies import AskedGenomes, Results, Strategy, runs_on_every_rank, wanted_traces
from evolve.training.experiment import Experiment, load_config, num_threads

MAX_LOGGED_TRACES = 2**20
"""The largest P × T for which workers always send the traces of each candidate. The log then has their fingerprints."""
MIN_SHARED_NUMBERS = 2**18
"""The smallest P × W that is divided among workers or threads. One thread sums fewer numbers in less than 3 ms."""
CACHED_COLUMNS = 2**14
"""The largest number of columns that are summed together, so that they stay in a cache."""
MIN_PART_NUMBERS = 2**19
"""The smallest number of columns × candidates that is worth a message to a worker."""
_PARTS_PER_WORKER = 4  # the parts are small, so that no worker waits long for another
_TOKENS = itertools.count()  # each `SharedStrategy` takes a number, which tells its states from others (see `ask`)
_START_ARRAYS = "start/weights", "start/mask"
"""The names of the arrays of the genome with which the user lets the search begin. They are sent with the state."""


@dataclass(frozen=True)
class StateHeader:
    """To a worker: the head of a strategy's state before a generation. Each array follows in a `StateArray`.

    The arrays of the state follow only after generation 0, because each rank can compute the first state. If the user
    lets the search begin with a genome, its arrays follow in every generation (`_START_ARRAYS`).

    experiment: The experiment as TOML text.
    generation: The number of the generation that begins with the state.
    num_arrays: The number of arrays that follow.
    """

    experiment: str
    observation_size: int
    action_size: int
    seed: int
    generation: int
    num_arrays: int


@dataclass(frozen=True)
class StateArray:
    """To a worker: an array of the state, by its name in a checkpoint."""

    name: str
    values: NDArray[Any]


@dataclass(frozen=True)
class ColumnSums:
    """To a worker: the sums of the columns from `start` on, computed by another rank."""

    start: int
    sums: Float64


@dataclass(frozen=True)
class TellResults:
    """To a worker: the results of a generation.

    fitness: [P]; fewer if a growing population had enough steps before all P candidates played.
    mean_traces: [T]; [0] if the strategy does not need them.
    measures: [P, D]; D = 0 if the strategy does not need them.
    """

    fitness: Float64
    mean_traces: Float64
    measures: Float64


@dataclass(frozen=True)
class SumRequest:
    """To a worker: return `Strategy.sums` of columns `start` to `stop` - 1. fitness: as in `TellResults`."""

    fitness: Float64
    start: int
    stop: int


_MESSAGES = StateHeader, StateArray, SumRequest, ColumnSums, TellResults


class SharedStrategy:
    """A strategy and its state on rank 0. This object keeps the workers' copies up to date.

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
        self._wanted_traces = wanted_traces(strategy, network.num_traces)  # what the strategy needs
        self._on_every_rank = runs_on_every_rank(strategy, network.num_traces)
        traces_are_few = P * network.num_traces <= MAX_LOGGED_TRACES
        # In a race workers cannot compute the mean, because candidates play different numbers of episodes.
        needs_each = self._wanted_traces == "mean" and bool(experiment.config.racing.rounds)
        self.traces: Traces = "each" if traces_are_few or needs_each else self._wanted_traces
        """The traces that workers send. If it is "each", the log has fingerprints of the traces, too."""

    def ask(self, generation: int) -> GenomeSource:
        """Return the candidates of a generation. Workers that can compute candidates first receive the state.

        Workers that received the results of the previous generation have computed the present state themselves.
        """
        if not self._on_every_rank:
            return self.strategy.ask(self.state, generation)
        # Workers may still have the state of an earlier run, so the version also has the token of this object.
        version = self._token, generation
        if self._coordinator.workers and self._coordinator.shared_version != version:
            network = self._experiment.network
            sizes = network.observation_size, self._experiment.action_size
            # Every rank can compute the state before generation 0 from the seed and the user's genome, if any.
            arrays = dict(self.strategy.to_arrays(self.state)) if generation else {}
            if self._experiment.start is not None:
                genome = self._experiment.start.genome
                weights, mask = _START_ARRAYS
                arrays |= {weights: genome.weights, mask: genome.mask}
            header = StateHeader(self._experiment.config.to_toml(), *sizes, self._seed, generation, len(arrays))
            records = [header, *(StateArray(name, np.asarray(array)) for name, array in arrays.items())]
            # `update` takes pairs of a frame and the rank of a worker that does not get it. Rank 0 is no worker, so all
            # workers get these frames.
            no_worker = 0
            self._coordinator.update(((frame_of(record, _MESSAGES), no_worker) for record in records), version)
        P, W = self._experiment.config.population, self._experiment.network.num_weights
        return AskedGenomes(self.strategy, self.state, generation, P, W)

    def tell(
        self, genomes: GenomeSource, fitness: Float64, results: PopulationResults, measures: Float64 | None = None
    ) -> None:
        """Update the strategy on every rank that has a copy of it.

        Args:
            genomes: The candidates of the generation, as `ask` returned them.
            fitness: [P]; fewer if a growing population had enough steps before all P candidates played.
            results: The results of the generation.
            measures: [P, D], see `Strategy.measures`; None if the strategy does not need them.
        """
        mean_traces = results.mean_traces if self._wanted_traces == "mean" else None
        sums = None
        if isinstance(genomes, AskedGenomes):
            sums = self._sum_and_tell_workers(genomes, fitness, mean_traces, measures)
        # The strategy gets one row of traces for each fitness. It gets no rows if workers sent only the mean, or if not
        # all candidates of a growing population played.
        traces = results.traces if len(results.traces) == len(fitness) else results.traces[:0]
        self.state = self.strategy.tell(self.state, genomes, Results(fitness, traces, mean_traces, sums, measures))

    def _sum_and_tell_workers(
        self, asked: AskedGenomes[Any], fitness: Float64, mean_traces: Float64 | None, measures: Float64 | None
    ) -> Float64 | None:
        """Update the copies on the workers. Return the sums [W] or [W, k] over all candidates; None if none are needed.

        Workers with the state compute parts of the sums. Then they receive the other parts, and the results. They
        receive the results even if the strategy needs no sums.
        """
        W, version = asked.num_weights, (self._token, asked.generation)
        workers_have_state = self._coordinator.workers and self._coordinator.shared_version == version
        # Compute the sums. Each part has the rank that computed it, its columns, and their sums.
        parts: list[tuple[int, slice, Float64]] = []
        if self.strategy.sum_shape is not None:
            if workers_have_state and len(fitness) * W >= MIN_SHARED_NUMBERS:
                parts = self._sum_on_workers(asked, fitness)
            else:
                every_column = slice(0, W)
                parts = [(0, every_column, _sum_columns(asked, fitness, every_column, self._threads))]
        # Send each part to all workers but the one that computed it. Then send the results to all workers (all but 0).
        if workers_have_state:
            traces = np.zeros(0) if mean_traces is None else mean_traces
            sent_measures = np.zeros((len(fitness), 0)) if measures is None else measures
            updates = [(ColumnSums(columns.start, sums), rank) for rank, columns, sums in parts]
            updates_and_results = [*updates, (TellResults(fitness, traces, sent_measures), 0)]
            # A generator, so that the frames of large sums are not all in memory at once.
            frames = ((frame_of(record, _MESSAGES), skipped) for record, skipped in updates_and_results)
            # In the next generation, `ask` finds this version, and need not send the state.
            self._coordinator.update(frames, (self._token, asked.generation + 1))
        return np.concatenate([sums for _, _, sums in parts]) if parts else None

    def _sum_on_workers(self, asked: AskedGenomes[Any], fitness: Float64) -> list[tuple[int, slice, Float64]]:
        """Return (rank, columns, sums) in ascending order of columns. If all workers are lost, rank 0 sums the rest."""
        W = asked.num_weights
        # There are at most _PARTS_PER_WORKER parts for each worker. Only the last may be below MIN_PART_NUMBERS.
        most_parts = _PARTS_PER_WORKER * len(self._coordinator.workers)
        size = max(ceil_div(MIN_PART_NUMBERS, len(fitness)), ceil_div(W, most_parts))
        requested = [slice(start, min(start + size, W)) for start in range(0, W, size)]
        requests = [frame_of(SumRequest(fitness, columns.start, columns.stop), _MESSAGES) for columns in requested]
        parts = []
        for columns, answer in zip(requested, self._coordinator.ask(requests), strict=True):
            if answer is None:  # all workers are lost
                parts.append((0, columns, _sum_columns(asked, fitness, columns, self._threads)))
            else:
                worker, content = answer
                # The answer of a worker is bytes, see `StrategyReplica.answer`.
                sums = content.view(np.float64).reshape(-1, *(self.strategy.sum_shape or ()))
                parts.append((worker, columns, sums))
        return parts


class StrategyReplica:
    """A strategy and its state on a worker: a `SharedState` of `evolve.cluster.worker`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop the state, because this worker missed updates."""
        self._header: StateHeader | None = None  # the header of a state that has not arrived completely
        self._arrays: dict[str, NDArray[Any]] = {}  # the arrays of this state that have arrived
        self._threads = 1
        self._sums: Float64 = np.zeros(0)  # the sums of the generation: [W, …], or [0] if the strategy needs no sums
        self._asked: AskedGenomes[Any] | None = None  # the candidates of the present generation, with the state

    def update(self, content: UInt8) -> None:
        """Process a message: a part of a state, sums of another rank, or the results of a generation."""
        match record_of(content, _MESSAGES):
            case StateHeader() as header:
                self._header, self._arrays = header, {}
            case StateArray(name, values):
                self._arrays[name] = values.copy()  # not a view, which would keep the message
            case ColumnSums(start, sums):
                self._sums[start : start + len(sums)] = sums
            case TellResults() as results:
                self._tell(results)
        # Make the strategy when all arrays have arrived. There may be none.
        if self._header is not None and len(self._arrays) == self._header.num_arrays:
            self._start(self._header)
            self._header, self._arrays = None, {}

    def answer(self, content: UInt8) -> UInt8:
        """Return the sums of the requested columns."""
        request = record_of(content, _MESSAGES)
        columns = slice(request.start, request.stop)
        # Keep the sums, because `ColumnSums` brings only the sums of other ranks.
        self._sums[columns] = _sum_columns(self.genomes(), request.fitness, columns, self._threads)
        return self._sums[columns].reshape(-1).view(np.uint8)

    def genomes(self) -> AskedGenomes[Any]:
        """Return the candidates of the present generation. Raises RuntimeError if this worker has no state."""
        if self._asked is None:
            raise RuntimeError("this rank has no state from which to compute candidates")
        return self._asked

    def _start(self, header: StateHeader) -> None:
        """Make the strategy, and make its state from the arrays that have arrived."""
        config = load_config(header.experiment)
        self._threads = num_threads(config)
        network = networks.make(config.network, header.observation_size, header.action_size)
        # Take the user's genome out of the arrays, because it is no part of the state.
        start_arrays = [self._arrays.pop(name) for name in _START_ARRAYS if name in self._arrays]
        start = Genomes(*start_arrays) if start_arrays else None
        strategy = strategies.guarded(config.strategy, network, config.population, header.seed, start)
        state = strategy.from_arrays(self._arrays) if header.generation else strategy.start()
        self._asked = AskedGenomes(strategy, state, header.generation, config.population, network.num_weights)
        # The sums of all columns: this rank will compute some, and receive the others.
        shape = strategy.sum_shape
        self._sums = np.zeros(0) if shape is None else np.zeros((network.num_weights, *shape))

    def _tell(self, results: TellResults) -> None:
        """Update the state by the results of a generation."""
        asked = self.genomes()
        mean_traces = results.mean_traces if len(results.mean_traces) else None
        # `answer` has computed some columns of this generation, and `ColumnSums` has brought all others.
        sums = self._sums if len(self._sums) else None
        measures = results.measures if results.measures.shape[1] else None
        strategy_results = Results(results.fitness, mean_traces=mean_traces, sums=sums, measures=measures)
        state = asked.strategy.tell(asked.state, asked, strategy_results)
        self._asked = AskedGenomes(asked.strategy, state, asked.generation + 1, asked.population, asked.num_weights)


def _sum_columns(asked: AskedGenomes[Any], fitness: Float64, columns: slice, threads: int) -> Float64:
    """Return the sums [n] or [n, k] of n columns over all candidates as float64, computed block by block.

    The sum of a column does not depend on its block. threads: The largest number of threads that compute blocks.
    """
    n = columns.stop - columns.start
    if n * len(fitness) < MIN_SHARED_NUMBERS:
        threads = 1
    # Each thread sums an equal share of the columns, or smaller blocks if the share is too large for a cache.
    size = min(CACHED_COLUMNS, ceil_div(n, threads))
    parts = [slice(start, min(start + size, columns.stop)) for start in range(columns.start, columns.stop, size)]
    sums = partial(asked.strategy.sums, asked.state, asked.generation, fitness)
    # Convert the sums to float64 for messages, because a strategy of another package may return another type.
    if threads == 1:
        return np.concatenate([sums(part) for part in parts], dtype=np.float64)
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(sums, parts)), dtype=np.float64)
