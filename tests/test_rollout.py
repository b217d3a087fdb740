"""A rollout's outcomes do not depend on how many slots there are, or on when units come."""

import numpy as np
import pytest

from evolve import environments, networks
from evolve.config import EnvOptions
from evolve.genome import concatenate
from evolve.numerics import backend
from evolve.rng import Purpose, Stream, environment_seeds
from evolve.rollout import Rollout, Units


def setting(env, **settings):
    options = EnvOptions(id=env)
    table = networks.options({"name": "hebbian-dag", "hidden": [4]} | settings)

    def rollout(slots):
        engine = environments.make(options, slots)
        return Rollout(
            engine, networks.make(table, engine.observation_size, engine.action_size), slots, backend("auto")
        )

    engine = environments.make(options, 1)
    network = networks.make(table, engine.observation_size, engine.action_size)
    genomes = concatenate(*(network.birth(Stream(1, Purpose.BIRTH, 0, p)) for p in range(5)))
    p, e = np.divmod(np.arange(15), 3)
    seeds = environment_seeds(1, Purpose.EPISODE, np.zeros_like(p), p, e)
    p = p.astype(np.int32)
    return rollout, Units(p, e.astype(np.int32), seeds, p, genomes)


def tick(rollout):
    """The outcomes of one step as rows: candidate, episode, return, length, bytes of the trace."""
    done = rollout.tick()
    if done is None:
        return []
    columns = (done.candidates, done.episodes, done.returns, done.lengths)
    return list(zip(*(c.tolist() for c in columns), map(bytes, done.traces), strict=True))


def finish(rollout):
    done = []
    while rollout.pending:
        done += tick(rollout)
    return done


def table(outcomes):
    return {row[:2]: row[2:] for row in outcomes}


REMEMBERING = [  # networks that have a state besides their weights
    {"name": "hebbian-dag", "plasticity": 0.5},
    {"name": "elman", "birth_scale": 3.0},
    {"name": "hebbian-lstm", "update_limit": 1.0},
    {"name": "plastic-mlp", "birth_scale": 1.0, "update_every": 2},
]


@pytest.mark.parametrize("env", ["CartPole-v1", "toys:Memory-v0", "toys:Switches-v0"])
@pytest.mark.parametrize("slots", [1, 2, 7, 15, 64])
def test_slots_do_not_matter(env, slots):
    rollout, units = setting(env)
    expected = rollout(1)
    expected.submit(units)
    ours = rollout(slots)
    ours.submit(units)
    assert table(finish(ours)) == table(finish(expected))


@pytest.mark.parametrize("network", REMEMBERING, ids=lambda n: n["name"])
@pytest.mark.parametrize("slots", [2, 7, 15])
def test_slots_do_not_matter_to_networks_that_remember(network, slots):
    rollout, units = setting("toys:Switches-v0", **network)
    expected = rollout(1)
    expected.submit(units)
    ours = rollout(slots)
    ours.submit(units)
    assert table(finish(ours)) == table(finish(expected))


def test_arrival_does_not_matter():
    rollout, units = setting("CartPole-v1")
    expected = rollout(4)
    expected.submit(units)
    late, done = rollout(4), []
    for n in reversed(range(15)):
        late.submit(units.cut(n, n + 1))
        done += tick(late)
    assert table(done + finish(late)) == table(finish(expected))


@pytest.mark.parametrize("network", REMEMBERING, ids=lambda n: n["name"])
def test_nothing_leaks_from_one_candidate_to_the_next(network):
    # In the ancestor traces did: with plasticity, the second episode of a slot would differ.
    rollout, units = setting("toys:Switches-v0", **network)
    together = rollout(1)
    together.submit(units)
    by_one = []
    for n in range(15):
        alone = rollout(1)
        alone.submit(units.cut(n, n + 1))
        by_one += finish(alone)
    assert table(finish(together)) == table(by_one)


def test_every_unit_comes_back_once():
    rollout, units = setting("CartPole-v1")
    ours = rollout(4)
    ours.submit(units)
    assert ours.pending == len(units)
    assert sorted(row[:2] for row in finish(ours)) == [(p, e) for p in range(5) for e in range(3)]
    assert ours.pending == 0


def test_clear_forgets():
    rollout, units = setting("CartPole-v1")
    ours = rollout(4)
    ours.submit(units)
    ours.tick()
    ours.clear()
    assert ours.pending == 0
    ours.submit(units.cut(0, 2))
    assert len(finish(ours)) == 2


def test_return_is_the_sum_of_rewards():
    rollout, units = setting("CartPole-v1")
    ours = rollout(3)
    ours.submit(units)
    done = finish(ours)
    assert len(done) == 15
    assert all(row[2] == row[3] for row in done)  # CartPole pays 1 a step
    assert all(np.isfinite(np.frombuffer(row[4], np.float32)).all() for row in done)


def test_what_is_cleared_leaves_no_faults_behind():
    rollout, units = setting("toys:Faulty-v0")
    ours = rollout(2)
    ours._engine.faults[0] = "from before"
    ours.clear()
    ours.submit(units.cut(0, 2))
    assert not np.isnan([row[2] for row in finish(ours)]).any()
    assert ours.take_faults() == []
