"""Chunks: every unit is handed out once, in sizes that shrink, with the genomes it needs."""

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evolve.cluster import Task, keys_of
from evolve.cluster.backlog import Backlog, shrinking
from evolve.genome import Genomes
from evolve.rng import Purpose

many = st.integers(0, 5000)


@given(many, st.integers(1, 70), st.integers(1, 2048), st.integers(0, 3000))
def test_sizes_add_up_and_shrink(units, workers, most, least):
    sizes = list(shrinking(units, workers, most, least))
    assert sum(sizes) == units
    assert all(1 <= size <= most for size in sizes)
    assert all(size <= -(-units // workers) for size in sizes)
    rounds = [max(sizes[i : i + workers]) for i in range(0, len(sizes), workers)]
    assert rounds == sorted(rounds, reverse=True)


def test_small_chunks_are_not_worth_it():
    assert list(islice(shrinking(4096, 2, 2048, 0), 4)) == [1024, 1024, 512, 512]
    assert list(islice(shrinking(4096, 2, 2048, 5000), 2)) == [2048, 2048]
    assert list(shrinking(3, 2, 8, 8)) == [2, 1]


def backlog(P=5, E=3):
    draw = np.random.Generator(np.random.Philox(0))
    genomes = Genomes(draw.normal(size=(P, 4)).astype(np.float32), draw.random((P, 4)) < 0.5)
    return Backlog(7, Task(1, Purpose.EPISODE, keys_of(2, P)), genomes, E, np.arange(P * E)), genomes


@given(st.lists(st.integers(1, 6), min_size=15, max_size=15), st.sets(st.integers(0, 14)))
def test_every_unit_is_handed_out_with_its_genome(sizes, lost):
    work, genomes = backlog()
    seen = []
    for size in sizes:
        units, chunk = work.take(size)
        rows, candidates, episodes = chunk.units.T
        assert np.array_equal(candidates * 3 + episodes, units)
        assert np.array_equal(chunk.weights[rows], genomes.weights[candidates])
        assert np.array_equal(chunk.mask[rows], genomes.mask[candidates])
        assert np.array_equal(chunk.keys[rows], np.stack([np.full(len(units), 2), candidates], axis=1))
        seen += units.tolist()
    assert seen == list(range(15))
    work.put_back(np.array(sorted(lost), np.int64), alone=False)
    assert len(work) == len(lost)
    assert work.take(15)[0].tolist() == sorted(lost)


def test_suspects_come_first_and_alone():
    work, _ = backlog()
    work.take(6)
    work.put_back(np.array([4, 5]), alone=True)
    work.put_back(np.array([0]), alone=False)
    work.put_back(np.array([1]), alone=True)
    assert [work.take(4)[0].tolist() for _ in range(4)] == [[1], [4], [5], [0, 6, 7, 8]]


def test_a_task_names_its_episodes():
    task = Task(1, Purpose.EPISODE, keys_of(2, 5, common=True))
    assert task.name(4, 1) == ("generation 2, candidate 4, episode 1", "--generation 2 --candidate 4 --episode 1")
    champions = Task(1, Purpose.EPISODE, np.array([[0, 7], [1, 3]]), candidates=np.array([7, 3]))
    assert champions.name(1, 0)[0] == "generation 1, candidate 3, episode 0"
    assert Task(1, Purpose.HELD_OUT, keys_of(0, 1)).name(0, 9)[1] == "--held-out --episode 9"
