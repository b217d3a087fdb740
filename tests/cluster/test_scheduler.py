"""Who gets which episodes, who is given up on, and which episode is then to blame."""

from types import SimpleNamespace

import numpy as np
import pytest

from evolve.cluster import messages
from evolve.cluster.work_queue import Fate, Scheduler
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, generation_keys

P, E = 10, 2


class FakeTransport:
    """Only remembers what was sent: worker -> the episodes it has in hand, as n = candidate · E + episode."""

    def __init__(self):
        self.hands = {}
        self.chunks = []

    def send(self, worker, frame):
        chunk = messages.decode(frame)
        self.chunks.append(chunk)
        episodes = chunk.batch.genome_ids[chunk.batch.rows] * E + chunk.batch.episodes
        self.hands.setdefault(worker, []).extend(episodes.tolist())


def batch_of(genomes=P, episodes=E):
    ones = Genomes(np.arange(genomes, dtype=np.float32)[:, None], np.ones((genomes, 1), np.bool_))
    return EpisodeBatch.of(1, Purpose.EPISODE, ones, generation_keys(0, genomes), range(episodes))


def schedule(workers, batch):
    transport = FakeTransport()
    scheduler = Scheduler(transport, workers, batch, 7, 1, lambda episodes, _: iter([2] * episodes))
    scheduler.start()
    return transport, scheduler


@pytest.fixture
def scene():
    workers = [1, 2, 3]
    return *schedule(workers, batch_of()), workers


def results(episodes):
    genomes, numbers = np.divmod(np.array(episodes, np.int32), np.int32(E))
    return SimpleNamespace(genomes=genomes, episodes=numbers)


def finish(transport, scheduler, worker):
    episodes, transport.hands[worker] = transport.hands[worker], []
    assert scheduler.mark_done(results(episodes))
    scheduler.refill(worker, len(episodes))


def test_everything_is_done_once(scene):
    transport, scheduler, _ = scene
    assert {w: len(hand) for w, hand in transport.hands.items()} == {1: 4, 2: 4, 3: 4}  # a chunk each, and one ahead
    assert scheduler.unfinished == P * E
    while scheduler.unfinished:
        finish(transport, scheduler, max(transport.hands, key=lambda w: len(transport.hands[w])))
    assert sum(len(chunk.batch) for chunk in transport.chunks) == P * E
    assert scheduler.idle == 3


def test_chunks_have_the_genomes_that_they_need_and_say_what_they_are_for(scene):
    transport, scheduler, _ = scene
    while scheduler.unfinished:
        finish(transport, scheduler, max(transport.hands, key=lambda w: len(transport.hands[w])))
    for chunk in transport.chunks:
        assert (chunk.serial, chunk.setup) == (7, 1)
        assert chunk.batch.genomes.weights[:, 0].tolist() == chunk.batch.genome_ids.tolist()
        assert len(chunk.batch.genomes) == len(set(chunk.batch.rows.tolist()))


def test_results_that_come_twice_change_nothing(scene):
    transport, scheduler, _ = scene
    once = transport.hands[1]
    assert scheduler.mark_done(results(once))
    assert scheduler.unfinished == P * E - len(once)
    assert not scheduler.mark_done(results(once))
    assert scheduler.unfinished == P * E - len(once)


def test_the_episodes_of_a_dead_worker_go_to_the_others(scene):
    transport, scheduler, workers = scene
    lost = transport.hands.pop(1)
    assert scheduler.remove(1, Fate.DEATH)[0] == len(lost)
    assert workers == [2, 3]
    while any(transport.hands.values()):
        for worker in (2, 3):
            finish(transport, scheduler, worker)
    assert not scheduler.unfinished


def test_when_the_last_worker_is_lost_what_it_had_in_hand_comes_last(scene):
    transport, scheduler, workers = scene
    for worker in (1, 2, 3):
        in_hand = transport.hands.pop(worker)
        scheduler.remove(worker, Fate.DEATH)
    assert workers == []
    assert scheduler.lost_last.tolist() == sorted(in_hand)
    assert scheduler.unfinished == len(scheduler.pending) == P * E
    assert sorted(scheduler.pending.take(P * E).tolist()) == list(range(P * E))


def test_an_episode_that_hangs_is_found(scene):
    """Whoever has it in hand never answers: its episodes are then tried one by one; the next victim convicts it."""
    transport, scheduler, workers = scene
    guilty, victims = transport.hands[1][1], []
    for _ in range(100):
        stuck = next((w for w in workers if guilty in transport.hands.get(w, ())), None)
        if stuck is None:
            break
        for worker in [w for w in workers if w != stuck]:
            finish(transport, scheduler, worker)
        if not any(transport.hands[w] for w in workers if w != stuck):
            victims.append(stuck)
            _, blamed = scheduler.remove(stuck, Fate.HANG)
            if len(blamed):
                assert blamed.tolist() == [guilty]
                break
    assert len(victims) == 2
    while any(transport.hands[w] for w in workers):
        for worker in workers:
            finish(transport, scheduler, worker)
    assert not scheduler.unfinished


def test_dying_is_no_proof_until_it_has_happened_often():
    workers = [1, 2, 3, 4, 5]
    transport, scheduler = schedule(workers, batch_of(1, 1))
    deaths = 0
    while True:
        victim = next(w for w in workers if transport.hands.get(w))
        again, blamed = scheduler.remove(victim, Fate.DEATH)
        deaths += 1
        assert again + len(blamed) == 1
        if len(blamed):
            break
    assert deaths == 4
    assert not scheduler.unfinished


def test_silence_is_counted_only_while_there_is_work(scene):
    transport, scheduler, _ = scene
    assert scheduler.add_silence(3.0, lambda _: 5.0) == []
    scheduler.reset_silence(2)
    assert scheduler.add_silence(3.0, lambda _: 5.0) == [1, 3]
    while any(transport.hands.values()):
        for worker in (1, 2, 3):
            finish(transport, scheduler, worker)
    assert scheduler.add_silence(100.0, lambda _: 5.0) == []


def test_episodes_of_a_batch_in_any_order_are_found_again():
    """As a round of a race has them: some genomes only, and later episodes."""
    genomes = Genomes(np.ones((P, 1), np.float32), np.ones((P, 1), np.bool_))
    batch = EpisodeBatch.of(
        1, Purpose.EPISODE, genomes, generation_keys(0, P), range(1, 4), rows=np.array([7, 2, 9], np.int64)
    )
    _, scheduler = schedule([1], batch)
    for n in np.random.Generator(np.random.Philox(3)).permutation(len(batch)).tolist():
        one = batch.take(np.array([n]))
        waiting = scheduler.unfinished
        done = SimpleNamespace(genomes=one.genome_ids[one.rows], episodes=one.episodes)
        assert scheduler.mark_done(done)
        assert scheduler.unfinished == waiting - 1
