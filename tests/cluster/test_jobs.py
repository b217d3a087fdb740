"""The jobs: their messages, what they do with results, and how episodes that fail are named."""

import logging
import re

import numpy as np
import pytest
from some_results import results

from evolve.cluster.jobs import Evaluation, Inquiry
from evolve.cluster.messages import Answer, ChunkResults, FailedEpisode, Heartbeat
from evolve.cluster.workers import Fate, Loss, WorkQueue
from evolve.errors import EpisodeError, RunError
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, EpisodeFailure, PopulationResults, RolloutSpec, generation_keys

P, E = 10, 2
HOSTS = ["here", "there", "there"]
SERIAL = 9


def batch_of(purpose=Purpose.EPISODE, keys=None, episodes=range(E), **more):
    keys = generation_keys(0, P) if keys is None else np.array(keys)
    ones = Genomes(np.arange(len(keys), dtype=np.float32)[:, None], np.ones((len(keys), 1), np.bool_))
    return EpisodeBatch.of(1, purpose, ones, keys, episodes, **more)


def evaluation(batch, on_failure="worst"):
    spec = RolloutSpec("", 1, 0, 10.0, on_failure)
    shown = []
    sizes, progress = (lambda *_: iter([])), (lambda *progress: shown.append(progress))
    job = Evaluation(spec, batch, HOSTS, SERIAL, sizes, progress, PopulationResults.of(batch, 0))
    return job, shown


def queue_of(job, workers=(1, 2)):
    hands = {worker: [] for worker in workers}
    queue = WorkQueue(
        len(job), workers, lambda *_: iter([2] * 99), lambda worker, items: hands[worker].append(items), job.uneven
    )
    queue.hand_out()
    return queue, hands


def test_chunks_have_the_genomes_that_they_need():
    batch = batch_of()
    job, _ = evaluation(batch)
    chunk = job.message(np.array([3, 2, 7]))
    assert chunk.serial == SERIAL
    assert chunk.batch.genomes.weights[:, 0].tolist() == chunk.batch.genome_ids.tolist() == [1, 3]
    assert chunk.batch.genome_ids[chunk.batch.rows].tolist() == [1, 1, 3]
    assert chunk.batch.episodes.tolist() == [1, 0, 1]


def test_results_are_collected_once_in_any_order():
    """As a round of a race has them: some genomes only, and later episodes."""
    batch = batch_of(episodes=range(1, 4), rows=np.array([7, 2, 9]))
    job, shown = evaluation(batch)
    queue, _ = queue_of(job)
    for n in np.random.Generator(np.random.Philox(3)).permutation(len(batch)).tolist():
        key = {"genomes": batch.rows[[n]], "episodes": batch.episodes[[n]], "lengths": np.ones(1, np.int32)}
        for _ in range(2):  # the second time it is dropped
            job.handle(ChunkResults(SERIAL, 0.5, 0.25, results(**key)), 1, queue)
    assert not queue.unfinished
    assert [done for _, done, _, _ in shown] == list(range(1, 10))
    assert job.seconds.tolist() == [[0, 9, 0], [0, 4.5, 0]]
    found = job.finish()
    assert np.argwhere(found.played).tolist() == [[genome, episode] for genome in (2, 7, 9) for episode in (1, 2, 3)]


@pytest.mark.parametrize("fate", [Fate.DEATH, Fate.HANG])
def test_episodes_that_end_workers_count_as_failed(fate, caplog):
    job, shown = evaluation(batch_of())
    with caplog.at_level(logging.WARNING, "evolve"):
        job.fail(np.array([3]), Loss(2, fate, "was lost"), num_idle=1)
    assert [counts[1:] for counts in shown] == [(1, 20, 1)]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("generation 0, candidate 1, episode 1 failed and counts as the worst, on rank 2 (there): ")
    assert ("(env.max_episode_seconds)" in said) == (fate == Fate.HANG)
    found = job.finish()
    assert np.argwhere(found.played).tolist() == [[1, 1]]
    assert np.isnan(found.returns).all()


def test_an_episode_that_two_workers_report_is_described_once(caplog):
    job, _ = evaluation(batch_of())
    queue, _ = queue_of(job)
    with caplog.at_level(logging.WARNING, "evolve"):
        for worker, episode in [(1, 0), (2, 0), (2, 1)]:
            failure = EpisodeFailure(1, episode, seed=3, step=1, message="ValueError: x")
            job.handle(FailedEpisode(SERIAL, failure), worker, queue)
    assert [re.findall(r"episode \d", record.getMessage()) for record in caplog.records] == [
        ["episode 0"],
        ["episode 1"],
    ]


def test_rank_0_goes_on_alone_unless_the_last_worker_hangs(caplog):
    job, _ = evaluation(batch_of())
    queue, hands = queue_of(job, (1,))
    queue.remove(1, Fate.DEATH)
    with caplog.at_level(logging.WARNING, "evolve"):
        job.announce_takeover(queue, Loss(1, Fate.DEATH, ""))
    assert caplog.text.count("generation 0, candidate ") == 3
    assert len(np.concatenate(hands[1])) > 3
    caplog.clear()
    job.announce_takeover(queue, Loss(1, Fate.CUT_OFF, ""))  # whose script has ended
    assert "rank 0 evaluates the rest by itself" in caplog.text
    assert "died" not in caplog.text
    with pytest.raises(RunError, match="20 episodes"):
        job.announce_takeover(queue, Loss(1, Fate.HANG, ""))


@pytest.mark.parametrize(
    ("purpose", "keys", "candidates", "genome", "which", "key"),
    [
        (Purpose.EPISODE, [[2, 0], [2, 0]], None, 1, "generation 2, candidate 1, episode 9", (2, 1, 9)),
        (Purpose.EPISODE, [[0, 7], [1, 3]], [7, 3], 1, "generation 1, candidate 3, episode 9", (1, 3, 9)),
        (Purpose.HELD_OUT, [[0, 0]], None, 0, "held-out episode 9 of the champion", (0, 0, 9)),
        (Purpose.VALIDATION, [[4, 0]], None, 0, "validation episode 9 of the champion", (4, 0, 9)),
    ],
)
def test_a_batch_names_its_episodes(purpose, keys, candidates, genome, which, key):
    """Common random numbers give all candidates the key of the first: names do not come from keys."""
    candidates = None if candidates is None else np.array(candidates)
    job, _ = evaluation(batch_of(purpose, keys, range(20), candidates=candidates), "stop")
    with pytest.raises(EpisodeError) as wrong:
        job.report(EpisodeFailure(genome, 9, 5, 1, "it fell"), 0)
    assert wrong.value.which == which
    assert wrong.value.key == (int(purpose), *key)


def test_some_of_many_episodes_are_named():
    job, _ = evaluation(batch_of(keys=[[2, 0], [2, 1]], episodes=range(20)))
    assert job.first_names(np.array([21])) == "generation 2, candidate 1, episode 1"
    assert job.first_names(np.arange(5)).count("episode") == 3
    assert job.first_names(np.arange(5)).endswith("episode 2 …")


def content(number):
    return np.array([number], np.uint8)


class Asking:
    """Five questions to two workers, and the questions that each worker has in hand."""

    def __init__(self, size=5, workers=(1, 2)):
        self.job = Inquiry(SERIAL, [content(number) for number in range(size)], 0.0)
        self.hands = {worker: [] for worker in workers}
        self.queue = WorkQueue(size, workers, self.job.chunk_sizes, self._send, self.job.uneven)
        self.queue.hand_out()

    def _send(self, worker, items):
        question = self.job.message(items)
        assert question.content.tolist() == [question.number]
        self.hands[worker].append(question.number)

    def answer(self, worker):
        number = self.hands[worker].pop(0)
        self.job.handle(Answer(SERIAL, number, content(number + 100)), worker, self.queue)


def test_every_question_is_answered_once_by_any_worker():
    asking = Asking()
    assert {worker: len(hand) for worker, hand in asking.hands.items()} == {1: 2, 2: 2}
    asking.job.handle(Heartbeat(), 1, asking.queue)
    asking.answer(1)
    while asking.queue.unfinished:
        asking.answer(2 if asking.hands[2] else 1)
    assert [found[1].tolist() for found in asking.job.answers] == [[n + 100] for n in range(5)]
    assert {found[0] for found in asking.job.answers} == {1, 2}


def test_the_questions_of_a_lost_worker_are_asked_of_the_others():
    asking = Asking()
    del asking.hands[2]
    asking.queue.remove(2, Fate.HANG)
    asking.queue.hand_out()
    while asking.queue.unfinished:
        asking.answer(1)
    assert [found[0] for found in asking.job.answers] == [1] * 5


@pytest.mark.parametrize("size", [0, 1])
def test_there_may_be_more_workers_than_questions(size):
    asking = Asking(size, (1, 2, 3))
    assert asking.queue.unfinished == size
    if size:
        asking.answer(1)
    assert asking.queue.unfinished == 0
