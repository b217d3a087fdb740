"""The two jobs that rank 0 gives to its workers: to evaluate a batch of episodes, and to answer questions.

A job consists of items. It makes the messages that hand items out, and takes the results. A `WorkQueue` decides which
worker gets which items.
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

_MAX_DESCRIBED = 3  # failed episodes of an evaluation that are described
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
        tables: Takes the results of all workers.
    """

    spec: RolloutSpec
    batch: EpisodeBatch
    hosts: Sequence[str]
    serial: int
    chunk_sizes: ChunkSizes
    progress: Progress
    tables: PopulationResults

    item = "episode"
    """The name of an item, for messages."""
    uneven = True
    """Whether items may take unequal times."""

    def __post_init__(self) -> None:
        # A worker that hangs prints a traceback after `patience(…)` seconds. Rank 0 waits one second longer.
        self.patience = patience(self.spec.max_episode_seconds) + 1.0
        """Seconds that a worker may be silent while it has items of this job."""
        self.seconds = np.zeros((2, len(self.hosts)))
        """[2, R]: the seconds of each rank at work, and in environments."""
        # Results name genomes and episodes, but the queue counts indices in the batch.
        # [C, most]: the index in the batch of each pair (genome, episode).
        most = int(self.batch.episodes.max(initial=0)) + 1
        self._indices: Int64 = np.zeros((len(self.batch.genomes), most), np.int64)
        self._indices[self.batch.rows, self.batch.episodes] = np.arange(len(self.batch))
        self._done = 0
        self._described: set[int] = set()  # the indices of the failed episodes that a warning has described

    def __len__(self) -> int:
        return len(self.batch)

    def message(self, items: Int64) -> Chunk:
        """Return the message that hands out some episodes [n], with their genomes."""
        return Chunk(self.serial, self.batch.take(items))

    def take(self, message: JobMessage, worker: int, queue: WorkQueue) -> None:
        """Collect new results, and tell the queue that their episodes are finished; or report a failed episode."""
        match message:
            case FailedEpisode(_, failure):
                self.report(failure, worker)
            case ChunkResults(_, busy_seconds, environment_seconds, results):
                # The worker has spent this time, even if the results of another worker came first.
                self.seconds[:, worker] += busy_seconds, environment_seconds
                if queue.finish(worker, self._indices[results.genomes, results.episodes]):
                    self.collect(results, queue.idle)

    def collect(self, results: EpisodeResults, idle: int) -> None:
        """Collect results, and report the progress. idle: the number of idle workers."""
        self.tables.add(results)
        self._advance(len(results), idle)

    def _advance(self, n: int, idle: int) -> None:
        self._done += n
        self.progress(Purpose(self.batch.purpose), self._done, len(self), idle)

    def report(self, failure: EpisodeFailure, rank: int) -> None:
        """Raise EpisodeError, or warn that the episode failed, as the experiment asks."""
        which, key = self._name(failure.genome, failure.episode)
        where = f"on rank {rank} ({self.hosts[rank]})"
        if failure.seed >= 0:  # the rank that played the episode was not lost
            step = f"step {failure.step}" if failure.step else "reset"
            where = f"in {step}, environment seed {failure.seed}, {where}"
        message = failure.message.rstrip()
        if self.spec.on_failure == "stop":
            raise EpisodeError(which, f"{where}:\n{message}", key)
        index = int(self._indices[failure.genome, failure.episode])
        # A worker may be lost between this report and its results. Another worker then reports the episode again.
        if index not in self._described and len(self._described) < _MAX_DESCRIBED:
            self._described.add(index)
            # In training the candidate's fitness is NaN, the worst. Means of held-out returns leave the episode out.
            counts = "counts as the worst" if self.batch.purpose == Purpose.EPISODE else "has no return"
            _LOG.warning("%s failed and %s, %s: %s", which, counts, where, exception_line(message))

    def fail(self, items: Int64, loss: Loss, idle: int) -> None:
        """Record episodes [n] as failed, because workers hang or die in them.

        loss: The loss of the last worker that played them. idle: The number of idle workers.
        """
        why = "a worker died whenever it played this episode"
        if loss.fate == Fate.HANG:
            limit = f"{self.spec.max_episode_seconds:g} s (env.max_episode_seconds)"
            why = f"it hangs in native code, for longer than {limit}"
        # The size O of the moments of observations: 0 if observations are not normalized.
        observation_size = self.batch.normalizers.shape[2]
        for item in items.tolist():
            genome, episode = int(self.batch.rows[item]), int(self.batch.episodes[item])
            self.report(EpisodeFailure(genome, episode, seed=-1, step=-1, message=why), loss.worker)
            self.tables.add_failure(genome, episode, observation_size, self.spec.num_metrics)
        if len(items):
            self._advance(len(items), idle)

    def announce_takeover(self, queue: WorkQueue, loss: Loss) -> None:
        """Warn that rank 0 plays all remaining episodes. Raises RunError if the last worker was lost by hanging."""
        if loss.fate == Fate.HANG:
            left = pluralize(queue.unfinished, "episode")
            raise RunError(f"every remaining worker hangs, with {left} to play; rank 0 could hang on them, too")
        named = self.name_some(queue.last_in_hand) if loss.fate == Fate.DEATH else ""
        last = f"; the episodes with which the last worker died come last: {named}" if named else ""
        _LOG.warning("no worker is left: rank 0 evaluates the rest by itself%s", last)

    def finish(self) -> PopulationResults:
        """Return all results so far. Warn of failed episodes that were not described."""
        failed = int(np.count_nonzero(np.isnan(self.tables.returns[self.batch.rows, self.batch.episodes])))
        if failed > len(self._described):
            _LOG.warning("… and %d more", failed - len(self._described))
        return self.tables

    def name_some(self, items: Int64) -> str:
        """Return the names of the first few of some episodes [n]."""
        rows, episodes = self.batch.rows[items], self.batch.episodes[items]
        some = zip(rows[:_MAX_DESCRIBED].tolist(), episodes[:_MAX_DESCRIBED].tolist(), strict=True)
        more = " …" if len(items) > _MAX_DESCRIBED else ""
        return "; ".join(self._name(row, episode)[0] for row, episode in some) + more

    def _name(self, genome: int, episode: int) -> tuple[str, tuple[int, int, int, int]]:
        """Return the name of an episode, and its key (purpose, generation, candidate, episode)."""
        purpose = Purpose(self.batch.purpose)
        generation = int(self.batch.keys[genome, 0])
        candidate = int(self.batch.candidates[genome])
        key = int(purpose), generation, candidate, episode
        if purpose is Purpose.EPISODE:
            return f"generation {generation}, candidate {candidate}, episode {episode}", key
        return f"{purpose.title} episode {episode} of the champion", key


class Inquiry:
    """Questions, which workers answer.

    Args:
        serial: The number of the job.
        questions: The questions; each is an item.
        max_episode_seconds: The limit of an episode in seconds. Rank 0 waits at least this long for an answer, because
            a worker may first finish an episode of an abandoned evaluation.
    """

    item = "question"
    uneven = False

    def __init__(self, serial: int, questions: Sequence[Buffer], max_episode_seconds: float) -> None:
        self.serial = serial
        self.patience = max(_LONGEST_ANSWER, max_episode_seconds)
        # A message has one question.
        self.chunk_sizes = lambda _items, _workers: itertools.repeat(1)
        self.answers: list[tuple[int, Buffer] | None] = [None] * len(questions)
        """The worker that answered each question, with its answer; None for a question without an answer."""
        self._questions = questions

    def __len__(self) -> int:
        return len(self._questions)

    def message(self, items: Int64) -> Question:
        """Return one question."""
        (number,) = items.tolist()
        return Question(self.serial, number, self._questions[number])

    def take(self, message: JobMessage, worker: int, queue: WorkQueue) -> None:
        """Keep an answer."""
        if isinstance(message, Answer) and queue.finish(worker, np.array([message.number])):
            self.answers[message.number] = worker, message.content

    def fail(self, items: Int64, loss: Loss, idle: int) -> None:
        """Do nothing: a question that kills or hangs workers has no answer."""

    def announce_takeover(self, queue: WorkQueue, loss: Loss) -> None:
        """Warn that rank 0 answers the remaining questions, because no worker is left."""
        _LOG.warning("no worker is left: rank 0 answers the rest by itself")


Job = Evaluation | Inquiry
"""Work for the workers, in items that a `WorkQueue` hands out."""
