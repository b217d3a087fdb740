"""Episodes wait for a slot, and their genomes are made a few at a time."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from evolve.genome import Genomes, candidate_digests, select
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, EpisodeQueue, generation_keys, queue
from evolve.rollouts.queue import GenomeWindow

C, W = 40, 3
ALL = Genomes(np.arange(C * W, dtype=np.float32).reshape(C, W) + 1, np.ones((C, W), np.bool_))


class Made:
    """Makes genomes, and remembers which."""

    num_weights = W

    def __init__(self):
        self.asked = []

    def __len__(self):
        return C

    def take(self, candidates):
        self.asked.append(candidates.tolist())
        return ALL.take(candidates)


@pytest.fixture
def few(monkeypatch):
    """As if so much memory were wanted that a window has four genomes."""
    monkeypatch.setattr(queue, "WINDOW_BYTES", 4 * 5 * W)


def window(source):
    waiting = queue.WaitingBatch(batch(source), np.zeros(2 * C, np.int64), np.zeros(C, np.bool_))
    return GenomeWindow(waiting, ahead=True, lock=threading.Lock(), described=[])


def weights_of(ours, rows):
    genomes, numbers = ours.take(np.array(rows))
    assert len(genomes) <= len(rows)
    return genomes.weights[numbers]


@pytest.mark.usefixtures("few")
def test_genomes_are_made_once_and_a_few_ahead():
    source = Made()
    ours = window(source)
    for row in range(C):
        assert np.array_equal(weights_of(ours, [row, row]), ALL.weights[[row, row]])
    assert source.asked == [list(range(n, n + 4)) for n in range(0, C, 4)]


@pytest.mark.usefixtures("few")
def test_more_than_fit_are_made_if_they_are_needed_at_once():
    source = Made()
    ours = window(source)
    assert np.array_equal(weights_of(ours, range(10)), ALL.weights[:10])
    assert np.array_equal(weights_of(ours, [3, 2]), ALL.weights[[3, 2]])
    assert np.array_equal(weights_of(ours, [9, 3]), ALL.weights[[9, 3]])
    assert source.asked == [list(range(10))]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("limits", [[9] * 20, [3] * 30, [1] * 80, [5, 1, 2, 60] * 10])
def test_a_queue_makes_no_more_at_once_than_a_window_has_and_none_twice(limits):
    source, episodes = Made(), EpisodeQueue()
    episodes.append(batch(source))
    played = []
    for limit in limits:
        if len(episodes):
            taken = episodes.take(limit)
            assert len(taken) <= limit
            assert np.array_equal(taken.genomes.weights[taken.numbers], ALL.weights[taken.genome_ids])
            assert np.array_equal(taken.genome_of_each().weights, ALL.weights[taken.genome_ids])
            played += zip(taken.genome_ids.tolist(), taken.episodes.tolist(), strict=True)
    assert played == [(candidate, episode) for candidate in range(C) for episode in range(2)]
    assert source.asked == [list(range(n, n + 4)) for n in range(0, C, 4)]


@pytest.mark.usefixtures("few")
def test_a_queue_makes_no_more_at_once_than_a_window_has_before_the_present_window():
    source, episodes = Made(), EpisodeQueue()
    episodes.append(batch(source, rows=np.r_[20:24, 0:20]))
    while len(episodes):
        taken = episodes.take(60)
        assert np.array_equal(taken.genome_of_each().weights, ALL.weights[taken.genome_ids])
    assert source.asked == [list(range(n, n + 4)) for n in (20, *range(0, 20, 4))]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("feed", [20, 13])
def test_a_device_gets_whole_feeds_whatever_a_window_has(feed):
    source, episodes = Made(), EpisodeQueue()
    episodes.fill_feeds(feed)
    episodes.append(batch(source))
    sizes = []
    while len(episodes):
        taken = episodes.take(feed)
        sizes.append(len(taken))
        assert np.array_equal(taken.genome_of_each().weights, ALL.weights[taken.genome_ids])
    assert sizes == [min(feed, 2 * C - begun) for begun in range(0, 2 * C, feed)]
    last = [(min(begun + feed, 2 * C) - 1) // 2 for begun in range(0, 2 * C, feed)]
    assert [made[-1] for made in source.asked] == last  # none ahead


@pytest.mark.usefixtures("few")
def test_each_is_described_once_where_it_is_asked_for():
    episodes = EpisodeQueue()
    episodes.append(batch(Made()).take(np.array([0, 1, 2 * 5, 2 * 6])))
    for _ in range(4):
        episodes.take(1)
    described = episodes.take_descriptions()
    assert described["described"].tolist() == [0, 5, 6]
    assert np.array_equal(described["digests"], candidate_digests(ALL.take(np.array([0, 5, 6]))))
    assert not len(episodes.take_descriptions()["described"])


def batch(source, describe=True, rows=None):
    whole = EpisodeBatch.of(1, Purpose.EPISODE, source, generation_keys(0, C), range(2), rows=rows, traces="none")
    return replace(whole, describe=describe)


def test_a_genome_is_described_with_its_first_episode():
    episodes = EpisodeQueue()
    whole = batch(Made())
    episodes.append(whole.take(np.array([1, 2, 3, 5])))  # 0: second episode only, 1: both, 2: the second
    taken = episodes.take(9)
    assert taken.genome_ids.tolist() == [0, 1, 1, 2]
    assert taken.episodes.tolist() == [1, 0, 1, 1]
    assert np.array_equal(taken.genome_of_each().weights, ALL.weights[[0, 1, 1, 2]])
    assert episodes.take_descriptions()["described"].tolist() == [1]
    episodes.append(batch(Made(), describe=False))
    episodes.take(9)
    assert not len(episodes.take_descriptions()["described"])


def test_episodes_leave_in_order_batch_after_batch():
    episodes = EpisodeQueue()
    episodes.append(batch(ALL, rows=np.array([3, 4])))
    episodes.append(batch(Made(), rows=np.array([7])))
    assert len(episodes) == 6
    parts = [episodes.take(3) for _ in range(3)]
    assert [part.genome_ids.tolist() for part in parts] == [[3, 3, 4], [4], [7, 7]]
    assert all(np.array_equal(part.genome_of_each().weights, ALL.weights[part.genome_ids]) for part in parts)
    episodes.append(batch(ALL))
    episodes.clear()
    assert len(episodes) == 0


def test_queues_of_threads_share_episodes_and_each_makes_and_describes_only_its_own():
    source, one = Made(), EpisodeQueue()
    other = EpisodeQueue(shared_with=one)
    one.append(batch(source))
    taken = [(one, other)[n % 2].take(5) for n in range(16)]
    assert (len(one), len(other), one.take(1), other.take(1)) == (0, 0, None, None)
    played = [(g, e) for part in taken for g, e in zip(part.genome_ids.tolist(), part.episodes.tolist(), strict=True)]
    assert played == [(candidate, episode) for candidate in range(C) for episode in range(2)]
    assert all(len(rows) == 3 for rows in source.asked)
    described = [queue.take_descriptions()["described"].tolist() for queue in (one, other)]
    assert sorted(described[0] + described[1]) == list(range(C))
    assert min(map(len, described)) > 0


def test_a_selection_of_a_selection_names_those_of_the_source():
    source = Made()
    some = select(select(source, np.arange(10, 20)), np.array([5, 1]))
    assert source.asked == []
    assert len(some) == 2
    assert some.num_weights == W
    assert np.array_equal(some.take(np.array([1, 0])).weights, ALL.weights[[11, 15]])
    assert isinstance(select(ALL, np.array([3])), Genomes)
