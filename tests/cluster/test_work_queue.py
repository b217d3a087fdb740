"""The work queue: every item is handed out once, lost items again, and an item that ends workers is found."""

import itertools
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.cluster.workers import Fate, PendingItems, WorkQueue, shrinking_sizes, suitable_sizes
from evolve.rollouts import RolloutSpec

N = 20
many = st.integers(0, 5000)


@given(many, st.integers(1, 70), st.integers(1, 2048), st.integers(0, 3000))
def test_sizes_add_up_and_shrink(episodes, workers, largest, least):
    sizes = list(shrinking_sizes(episodes, workers, largest, least))
    assert sum(sizes) == episodes
    assert all(1 <= size <= largest for size in sizes)
    assert all(size <= -(-episodes // workers) for size in sizes)
    rounds = [max(sizes[i : i + workers]) for i in range(0, len(sizes), workers)]
    assert rounds == sorted(rounds, reverse=True)


def test_small_chunks_are_not_worth_it():
    assert list(islice(shrinking_sizes(4096, 2, 2048, 0), 4)) == [1024, 1024, 512, 512]
    assert list(islice(shrinking_sizes(4096, 2, 2048, 5000), 2)) == [2048, 2048]
    assert list(shrinking_sizes(3, 2, 8, 8)) == [2, 1]


def test_chunks_are_large_if_that_is_no_risk():
    def sizes(episodes, workers, slots, seconds, **spec):
        return suitable_sizes(episodes, workers, RolloutSpec("", slots, 0, 60.0, **spec), seconds)

    assert list(sizes(20, 2, 4, 0.0))[:2] == [4, 4]  # the duration of an episode is not known yet
    assert max(sizes(6400, 4, 1, 0.05)) == 20  # a second
    assert max(sizes(320, 4, 1, 0.05)) == 10
    assert max(sizes(160, 4, 1, 0.05)) == 5  # an eighth of a fair share
    assert max(sizes(6400, 4, 16, 10.0)) == 16  # the slots of a worker
    assert max(sizes(10**6, 4, 1, 1e-5)) == 8192
    assert min(islice(sizes(10**6, 1000, 64, 1e-3), 999)) >= 300  # rank 0 has a thousand workers
    assert max(sizes(6400, 4, 1, 10.0, least_chunk=16)) == 16  # a kernel steps these in the time of one
    for episodes in (1, 7, 6400):
        assert sum(sizes(episodes, 4, 1, 0.05)) == episodes


def test_workers_have_episodes_in_advance_until_the_last_few():
    sent = []
    queue = WorkQueue(40, [1, 2], lambda *_: itertools.repeat(8), lambda worker, items: sent.append((worker, items)))
    queue.hand_out()
    assert (len(sent), queue.items_ahead) == (4, 8)
    queue.finish(*sent[0])
    assert (len(queue.pending), queue.items_ahead) == (0, 0)
    few = WorkQueue(6, [1, 2], lambda *_: itertools.repeat(1), lambda *_: None)
    few.hand_out()
    assert (len(few.pending), few.items_ahead) == (2, 0)
    questions = WorkQueue(40, [1, 2], lambda *_: itertools.repeat(8), lambda *_: None, uneven=False)
    questions.hand_out()
    assert questions.items_ahead == 0


def test_no_worker_has_suspects_in_advance():
    queue = WorkQueue(40, [1, 2, 3], lambda *_: itertools.repeat(4), lambda *_: None)
    queue.hand_out()
    assert queue.items_ahead == 4
    queue.remove(1, Fate.HANG)
    assert queue.items_ahead == 0


@given(st.lists(st.integers(1, 6), min_size=15, max_size=15), st.sets(st.integers(0, 14)))
def test_every_item_is_pending_once_and_again_if_it_was_lost(sizes, lost):
    pending = PendingItems(15)
    taken = [item for size in sizes for item in pending.take(size).tolist()]
    assert taken == list(range(15))
    pending.put_back(np.array(sorted(lost), np.int64), are_suspects=False)
    assert len(pending) == len(lost)
    assert pending.take(15).tolist() == sorted(lost)


def test_suspects_come_first_and_alone():
    pending = PendingItems(15)
    pending.take(6)
    pending.put_back(np.array([4, 5]), are_suspects=True)
    pending.put_back(np.array([0]), are_suspects=False)
    pending.put_back(np.array([1]), are_suspects=True)
    assert [pending.take(4).tolist() for _ in range(4)] == [[1], [4], [5], [0, 6, 7, 8]]


def test_if_no_worker_is_left_suspects_come_last_and_together():
    pending = PendingItems(5)
    pending.put_back(pending.take(2), are_suspects=True)
    pending.put_last(pending.take(1))
    assert pending.suspects == 0
    assert pending.items.tolist() == [1, 2, 3, 4, 0]


class Scene:
    """A queue of N items in chunks of two, with the items that each worker has in hand."""

    def __init__(self, workers=(1, 2, 3), size=N, chunk=2, uneven=True):
        self.hands = {worker: [] for worker in workers}
        self.sent = []
        self.queue = WorkQueue(size, workers, lambda *_: itertools.repeat(chunk), self._send, uneven)
        self.queue.hand_out()

    def _send(self, worker, items):
        self.hands[worker].extend(items.tolist())
        self.sent.extend(items.tolist())

    def finish(self, worker):
        items, self.hands[worker] = self.hands[worker], []
        if items:
            assert self.queue.finish(worker, np.array(items))

    def lose(self, worker, fate):
        del self.hands[worker]
        found = self.queue.remove(worker, fate)
        self.queue.hand_out()
        return found

    def finish_all(self):
        while any(self.hands.values()):
            for worker in self.hands:
                self.finish(worker)


def test_everything_is_done_once():
    scene = Scene()
    assert {worker: len(hand) for worker, hand in scene.hands.items()} == {1: 4, 2: 4, 3: 4}  # a chunk, and one ahead
    assert scene.queue.unfinished == N
    assert scene.queue.num_idle == 0
    while scene.queue.unfinished:
        scene.finish(max(scene.hands, key=lambda worker: len(scene.hands[worker])))
    assert sorted(scene.sent) == list(range(N))
    assert scene.queue.num_idle == 3


def test_the_last_few_items_go_to_idle_workers_if_they_are_uneven():
    assert [len(hand) for hand in Scene((1, 2), 5, 1, uneven=True).hands.values()] == [2, 1]
    assert [len(hand) for hand in Scene((1, 2), 5, 1, uneven=False).hands.values()] == [2, 2]


def test_results_that_come_twice_change_nothing():
    scene = Scene()
    items = np.array(scene.hands[1])
    assert scene.queue.finish(1, items)
    assert scene.queue.unfinished == N - len(items)
    assert not scene.queue.finish(1, items)
    assert scene.queue.unfinished == N - len(items)


def test_the_items_of_a_dead_worker_go_to_the_others():
    scene = Scene()
    lost = len(scene.hands[1])
    assert scene.lose(1, Fate.DEATH)[0] == lost
    scene.finish_all()
    assert not scene.queue.unfinished


def test_workers_that_die_together_leave_their_items_once():
    """No item of one goes to another that is dead, too, which would be a second strike against it."""
    scene = Scene()
    hands = scene.hands.pop(1) + scene.hands.pop(2)
    for worker in (1, 2):
        scene.queue.remove(worker, Fate.DEATH)
    assert scene.queue.pending.suspects == 0
    scene.queue.hand_out()
    scene.finish_all()
    assert not scene.queue.unfinished
    assert all(scene.sent.count(item) == 2 for item in hands)


def test_when_the_last_worker_is_lost_the_items_in_its_hand_come_last():
    scene = Scene()
    for worker in (1, 2, 3):
        in_hand = scene.hands[worker]
        scene.lose(worker, Fate.DEATH)
    assert scene.queue.items_of_last_worker.tolist() == sorted(in_hand)
    assert scene.queue.unfinished == len(scene.queue.pending) == N
    left = scene.queue.pending.items.tolist()
    assert sorted(left) == list(range(N))
    assert left[-len(in_hand) :] == sorted(in_hand)


def test_an_item_that_hangs_is_found():
    """The worker that has it never answers. Its items are then handed out one by one; the next victim convicts one."""
    scene = Scene()
    guilty, victims = scene.hands[1][1], []
    for _ in range(100):
        stuck = next((worker for worker in scene.hands if guilty in scene.hands[worker]), None)
        if stuck is None:
            break
        for worker in scene.hands:
            if worker != stuck:
                scene.finish(worker)
        if not any(hand for worker, hand in scene.hands.items() if worker != stuck):
            victims.append(stuck)
            _, blamed = scene.lose(stuck, Fate.HANG)
            if len(blamed):
                assert blamed.tolist() == [guilty]
                break
    assert len(victims) == 2
    scene.finish_all()
    assert not scene.queue.unfinished


@pytest.mark.parametrize(("fate", "losses"), [(Fate.DEATH, 4), (Fate.HANG, 2)])
def test_dying_is_no_proof_until_it_has_happened_often(fate, losses):
    scene = Scene((1, 2, 3, 4, 5), 1)
    victims = []
    while scene.queue.unfinished:
        victim = next(worker for worker, hand in scene.hands.items() if hand)
        again, blamed = scene.lose(victim, fate)
        assert again + len(blamed) == 1
        victims.append(victim)
    assert len(victims) == losses


def test_a_host_that_is_cut_off_is_no_strike():
    scene = Scene((1, 2, 3, 4, 5, 6, 7), 1)
    for _ in range(6):
        victim = next(worker for worker, hand in scene.hands.items() if hand)
        assert scene.lose(victim, Fate.CUT_OFF)[0] == 1
    assert scene.queue.unfinished == 1
    assert scene.queue.pending.suspects == 0
