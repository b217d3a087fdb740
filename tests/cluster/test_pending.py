"""Chunks: every episode is handed out once, in sizes that shrink."""

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evolve.cluster.work_queue import PendingEpisodes, shrinking_sizes, suitable_sizes

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


@given(st.lists(st.integers(1, 6), min_size=15, max_size=15), st.sets(st.integers(0, 14)))
def test_every_episode_is_handed_out_once_and_again_where_it_was_lost(sizes, lost):
    pending = PendingEpisodes(15)
    taken = [place for size in sizes for place in pending.take(size).tolist()]
    assert taken == list(range(15))
    pending.put_back(np.array(sorted(lost), np.int64), alone=False)
    assert len(pending) == len(lost)
    assert pending.take(15).tolist() == sorted(lost)


def test_suspects_come_first_and_alone():
    pending = PendingEpisodes(15)
    pending.take(6)
    pending.put_back(np.array([4, 5]), alone=True)
    pending.put_back(np.array([0]), alone=False)
    pending.put_back(np.array([1]), alone=True)
    assert [pending.take(4).tolist() for _ in range(4)] == [[1], [4], [5], [0, 6, 7, 8]]


def test_where_nobody_is_left_suspects_come_last_and_together():
    pending = PendingEpisodes(5)
    pending.put_back(pending.take(2), alone=True)
    pending.put_last(pending.take(1))
    assert pending.suspects == 0
    assert pending.take_all().tolist() == [1, 2, 3, 4, 0]
    assert len(pending) == 0


def test_chunks_are_large_where_that_is_no_risk():
    assert list(suitable_sizes(20, 2, 4, 0.01, 0.0))[:2] == [4, 4]  # nothing is known of the first batch
    assert max(suitable_sizes(6400, 4, 1, 0.01, 0.05)) == 10  # half a second
    assert max(suitable_sizes(320, 4, 1, 0.01, 0.05)) == 10
    assert max(suitable_sizes(160, 4, 1, 0.01, 0.05)) == 5  # an eighth of a fair share
    assert max(suitable_sizes(6400, 4, 16, 0.01, 10.0)) == 16  # the slots of a worker
    assert max(suitable_sizes(10**6, 4, 1, 0.01, 1e-5)) == 2048
    for episodes in (1, 7, 6400):
        assert sum(suitable_sizes(episodes, 4, 1, 0.01, 0.05)) == episodes
