"""Who gets which units, who is given up on, and which unit is then to blame."""

import numpy as np
import pytest

from evolve.cluster import Task, keys_of, messages
from evolve.cluster.backlog import Backlog
from evolve.cluster.farm import Farm
from evolve.genome import Genomes
from evolve.rng import Purpose

P, E = 10, 2


class Post:
    """A world that only remembers what was posted: worker -> the units it has in hand."""

    def __init__(self):
        self.hands = {}

    def post(self, worker, frame):
        candidates, episodes = messages.decode(frame).units[:, 1:].T
        self.hands.setdefault(worker, []).extend((candidates * E + episodes).tolist())


@pytest.fixture
def scene():
    world, workers = Post(), [1, 2, 3]
    genomes = Genomes(np.ones((P, 1), np.float32), np.ones((P, 1), np.bool_))
    backlog = Backlog(1, Task(1, Purpose.EPISODE, keys_of(0, P)), genomes, E, np.arange(P * E))
    farm = Farm(world, workers, backlog, lambda units: iter([2] * units))
    return world, workers, farm, np.zeros((P, E), np.bool_)


def finish(world, farm, done, worker):
    units, world.hands[worker] = world.hands[worker], []
    done.ravel()[units] = True
    farm.returned(worker, len(units))


def test_everything_is_done_once(scene):
    world, _, farm, done = scene
    assert {w: len(u) for w, u in world.hands.items()} == {1: 4, 2: 4, 3: 4}  # a chunk each, and one ahead
    while not done.all():
        finish(world, farm, done, max(world.hands, key=lambda w: len(world.hands[w])))
    assert done.all()


def test_the_units_of_a_dead_worker_go_to_the_others(scene):
    world, workers, farm, done = scene
    lost = world.hands.pop(1)
    assert farm.lose(1, done, hung=False)[0] == len(lost)
    assert workers == [2, 3]
    while any(world.hands.values()):
        for worker in (2, 3):
            finish(world, farm, done, worker)
    assert done.all()


def test_a_unit_that_hangs_is_found(scene):
    """Whoever has it in hand never answers: its units are then tried one by one, and the next victim convicts it."""
    world, workers, farm, done = scene
    guilty, victims = world.hands[1][1], []
    for _ in range(100):
        stuck = next((w for w in workers if guilty in world.hands.get(w, ())), None)
        if stuck is None:
            break
        for worker in [w for w in workers if w != stuck]:
            finish(world, farm, done, worker)
        if not any(world.hands[w] for w in workers if w != stuck):
            victims.append(stuck)
            _, blamed = farm.lose(stuck, done, hung=True)
            if len(blamed):
                assert blamed.tolist() == [guilty]
                done.ravel()[guilty] = True
                break
    assert len(victims) == 2
    while any(world.hands[w] for w in workers):
        for worker in workers:
            finish(world, farm, done, worker)
    assert done.all()


def test_dying_is_no_proof_until_it_has_happened_often():
    world, workers = Post(), [1, 2, 3, 4, 5]
    genomes = Genomes(np.ones((1, 1), np.float32), np.ones((1, 1), np.bool_))
    backlog = Backlog(1, Task(1, Purpose.EPISODE, keys_of(0, 1)), genomes, 1, np.arange(1))
    farm, done, deaths = Farm(world, workers, backlog, lambda units: iter([2] * units)), np.zeros((1, 1), np.bool_), 0
    while True:
        victim = next(w for w in workers if world.hands.get(w))
        again, blamed = farm.lose(victim, done, hung=False)
        deaths += 1
        assert again + len(blamed) == 1
        if len(blamed):
            break
    assert deaths == 4


def test_silence_is_counted_only_while_there_is_work(scene):
    world, _, farm, done = scene
    assert farm.silent(3.0, lambda _: 5.0) == []
    farm.heard(2)
    assert farm.silent(3.0, lambda _: 5.0) == [1, 3]
    while any(world.hands.values()):
        for worker in (1, 2, 3):
            finish(world, farm, done, worker)
    assert farm.silent(100.0, lambda _: 5.0) == []
