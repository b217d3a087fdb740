"""The two jobs that rank 0 gives to its workers: to evaluate a batch of episodes, and to answer questions.

A job consists of items: episodes or questions. It makes the messages that hand out items, and collects the results. A
`WorkQueue` decides which worker gets which items. `Coordinator` runs jobs.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evolve.cluster.messages import Answer, Chunk, ChunkResults, FailedEpisode, JobMessage, Question
from evolve.cluster.transport import Buffer
from evolve.cluster.watchdog import patience
from evolve.cluster.workers import ChunkSizes, Fate, Loss, WorkQueue
from evolve.errors import EpisodeError, RunError, exception_line, pluralize
from evolve.numerics.streams import Purpose
from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults, RolloutSpec
from evolve.rollouts.results import PopulationResults
from evolve.shapes import Int64

Progress = Callable[[Purpose, int, int, int], None]
"""Called with the purpose of a batch, and the numbers of finished episodes, of all episodes, and of idle workers."""

_MAX_NAMED = 3  # the most episodes of an evaluation that warnings name
_LONGEST_ANSWER = 600.0  # seconds until a worker that does not answer a question is abandoned
_LOG = logging.getLogger("evolve")


@dataclass(eq=False)
class Evaluation:
    """The evaluation of a batch of N episodes. Items are the indices of episodes in the batch.

    Attributes:
        spec: The settings of the rollouts that play the batch.
        batch: The episodes.
        hosts: The name of the host of each rank.
        serial: The number of the job.
        chunk_sizes: Called with the numbers of items and of workers; yields the number of episodes of each chunk.
        progress: Called whenever results have arrived.
        tables: The tables that collect the results of all ranks.
    """

    spec: RolloutSpec
    batch: EpisodeBatch
    hosts: Sequence[str]
    serial: int
    chunk_sizes: ChunkSizes
    progress: Progress
    tables: PopulationResults

    item_noun = "episode"
    """The word for an item in warnings."""
    uneven = True
    """Whether items may take unequal times."""

    def __post_init__(self) -> None:
        # A worker that hangs prints a traceback after `patience(…)` seconds. Rank 0 waits one second longer.
        self.patience = patience(self.spec.max_episode_seconds) + 1.0
        """Seconds that a worker may be silent while it has items of this job."""
        self.seconds = np.zeros((2, len(self.hosts)))
        """[2, R]: the seconds of each rank at work, and in environments."""
        # Results name genomes and episodes, but the queue knows only indices in the batch. So this table [C, E] has the
        # index of each pair (genome, episode).
        E = int(self.batch.episodes.max(initial=0)) + 1
        self._indices: Int64 = np.zeros((len(self.batch.genomes), E), np.int64)
        self._indices[self.batch.rows, self.batch.episodes] = np.arange(len(self.batch))
        self._num_finished = 0
        self._named: set[int] = set()  # the indices of the failed episodes that a warning has named

    def __len__(self) -> int:
        return len(self.batch)

    def message(self, items: Int64) -> Chunk:
        """Return the message that hands out some episodes [n], with their genomes."""
        return Chunk(self.serial, self.batch.take(items))

    def handle(self, message: JobMessage, worker: int, queue: WorkQueue) -> None:
        """Collect new results, and mark their episodes as finished in the queue; or report a failed episode."""
        match message:
            case FailedEpisode(_, failure):
                self.report(failure, worker)
            case ChunkResults(_, busy_seconds, environment_seconds, results):
                # Count the worker's time also if the queue already has results of these episodes from another worker.
                self.seconds[:, worker] += busy_seconds, environment_seconds
                if queue.finish(worker, self._indices[results.genomes, results.episodes]):
                    self.collect(results, queue.num_idle)

    def collect(self, results: EpisodeResults, num_idle: int) -> None:
        """Collect results, and report the progress. num_idle: the number of idle workers."""
        self.tables.add(results)
        self._advance(len(results), num_idle)

    def _advance(self, n: int, num_idle: int) -> None:
        """Report the progress after n further episodes."""
        self._num_finished += n
        self.progress(Purpose(self.batch.purpose), self._num_finished, len(self), num_idle)

    def report(self, failure: EpisodeFailure, rank: int) -> None:
        """Raise EpisodeError if `spec.on_failure` is "stop", else warn that the episode failed."""
        name, key = self._name_and_key(failure.genome, failure.episode)
        place = f"on rank {rank} ({self.hosts[rank]})"
        if failure.seed >= 0:  # -1 if the rank that played the episode was lost
            step = f"step {failure.step}" if failure.step else "reset"
            place = f"in {step}, environment seed {failure.seed}, {place}"
        message = failure.message.rstrip()
        if self.spec.on_failure == "stop":
            raise EpisodeError(name, f"{place}:\n{message}", key)
        index = int(self._indices[failure.genome, failure.episode])
        # A worker may be lost between this report and its results. Another worker then reports the episode again.
        if index not in self._named and len(self._named) < _MAX_NAMED:
            self._named.add(index)
            # In training the candidate's fitness is NaN, the worst. Means of held-out returns leave the episode out.
            effect = "counts as the worst" if self.batch.purpose == Purpose.EPISODE else "has no return"
            _LOG.warning("%s failed and %s, %s: %s", name, effect, place, exception_line(message))

    def fail(self, items: Int64, loss: Loss, num_idle: int) -> None:
        """Record episodes [n] as failed, because workers hang or die in them.

        Args:
            items: The episodes.
            loss: The loss of the last worker that played them.
            num_idle: The number of idle workers.
        """
        reason = "a worker died whenever it played this episode"
        if loss.fate == Fate.HANG:
            limit = f"{self.spec.max_episode_seconds:g} s (env.max_episode_seconds)"
            reason = f"it hangs in native code, for longer than {limit}"
        observation_size = self.batch.normalizers.shape[2]  # 0 if observations are not normalized
        for item in items.tolist():
            genome, episode = int(self.batch.rows[item]), int(self.batch.episodes[item])
            self.report(EpisodeFailure(genome, episode, seed=-1, step=-1, message=reason), loss.worker)
            self.tables.add_failure(genome, episode, observation_size, self.spec.num_metrics)
        if len(items):
            self._advance(len(items), num_idle)

    def announce_takeover(self, queue: WorkQueue, loss: Loss) -> None:
        """Warn that rank 0 plays all remaining episodes. Raises RunError if the last worker was lost by hanging."""
        if loss.fate == Fate.HANG:
            unfinished = pluralize(queue.unfinished, "episode")
            raise RunError(f"every remaining worker hangs, with {unfinished} to play; rank 0 could hang on them, too")
        names = self.first_names(queue.items_of_last_worker) if loss.fate == Fate.DEATH else ""
        order = f"; the episodes with which the last worker died come last: {names}" if names else ""
        _LOG.warning("no worker is left: rank 0 evaluates the rest by itself%s", order)

    def finish(self) -> PopulationResults:
        """Return all results. Warn of the number of failed episodes that no warning has named."""
        failed = int(np.count_nonzero(np.isnan(self.tables.returns[self.batch.rows, self.batch.episodes])))
        if failed > len(self._named):
            _LOG.warning("… and %d more", failed - len(self._named))
        return self.tables

    def first_names(self, items: Int64) -> str:
        """Return the names of the first episodes among the items [n]."""
        first = items[:_MAX_NAMED]
        pairs = zip(self.batch.rows[first].tolist(), self.batch.episodes[first].tolist(), strict=True)
        more = " …" if len(items) > _MAX_NAMED else ""
        return "; ".join(self._name_and_key(genome, episode)[0] for genome, episode in pairs) + more

    def _name_and_key(self, genome: int, episode: int) -> tuple[str, tuple[int, int, int, int]]:
        """Return the name of an episode, and its key (purpose, generation, candidate, episode)."""
        purpose = Purpose(self.batch.purpose)
        generation = int(self.batch.keys[genome, 0])
        candidate = int(self.batch.candidates[genome])
        key = int(purpose), generation, candidate, episode
        if purpose is Purpose.EPISODE:
            return f"generation {generation}, candidate {candidate}, episode {episode}", key
        return f"{purpose.title} episode {episode} of the champion", key


class Inquiry:
    """Questions that workers answer.

    Args:
        serial: The number of the job.
        questions: The questions; each is an item.
        max_episode_seconds: The limit of an episode in seconds. Rank 0 waits at least this long for an answer, because
            a worker may first finish an episode of an evaluation that was stopped.
    """

    item_noun = "question"
    uneven = False

    def __init__(self, serial: int, questions: Sequence[Buffer], max_episode_seconds: float) -> None:
        self.serial = serial
        self.patience = max(_LONGEST_ANSWER, max_episode_seconds)
        self.chunk_sizes = lambda _items, _workers: itertools.repeat(1)  # a message has one question
        self.answers: list[tuple[int, Buffer] | None] = [None] * len(questions)
        """The worker that answered each question, with its answer; None for a question without an answer."""
        self._questions = questions

    def __len__(self) -> int:
        return len(self._questions)

    def message(self, items: Int64) -> Question:
        """Return one question."""
        (number,) = items.tolist()
        return Question(self.serial, number, self._questions[number])

    def handle(self, message: JobMessage, worker: int, queue: WorkQueue) -> None:
        """Keep an answer, and mark its question as finished in the queue."""
        if isinstance(message, Answer) and queue.finish(worker, np.array([message.number])):
            self.answers[message.number] = worker, message.content

    def fail(self, items: Int64, loss: Loss, num_idle: int) -> None:
        """Do nothing: a question that kills or hangs workers has no answer."""

    def announce_takeover(self, queue: WorkQueue, loss: Loss) -> None:
        """Warn that rank 0 answers the remaining questions, because no worker is left."""
        _LOG.warning("no worker is left: rank 0 answers the rest by itself")


Job = Evaluation | Inquiry
"""Work for the workers, in items that a `WorkQueue` hands out."""
