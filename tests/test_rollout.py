"""A rollout's outcomes do not depend on how many slots there are, or on when units come."""

import numpy as np
import pytest

from evolve import environments, networks
from evolve.config import EnvOptions
from evolve.numerics import backend
from evolve.rng import Purpose, Stream, environment_seed
from evolve.rollout import Rollout, Unit


def setting(env, plasticity=0.0):
    options = EnvOptions(id=env)

    def rollout(slots):
        engine = environments.make(options, slots)
        table = networks.options({"name": "hebbian-dag", "hidden": [4], "plasticity": plasticity})
        return Rollout(
            engine, networks.make(table, engine.observation_size, engine.action_size), slots, backend("auto")
        )

    engine = environments.make(options, 1)
    table = networks.options({"name": "hebbian-dag", "hidden": [4], "plasticity": plasticity})
    network = networks.make(table, engine.observation_size, engine.action_size)
    units = []
    for p in range(5):
        g = network.birth(Stream(1, Purpose.BIRTH, 0, p))
        units += [Unit(p, e, environment_seed(1, Purpose.EPISODE, 0, p, e), g.weights[0], g.mask[0]) for e in range(3)]
    return rollout, units


def finish(rollout):
    done = []
    while rollout.pending:
        done += rollout.tick()
    return done


def table(outcomes):
    return {(o.candidate, o.episode): (o.episode_return, o.length, o.trace.tobytes()) for o in outcomes}


@pytest.mark.parametrize("env", ["CartPole-v1", "toys:Memory-v0", "toys:Switches-v0"])
@pytest.mark.parametrize("slots", [1, 2, 7, 15, 64])
def test_slots_do_not_matter(env, slots):
    rollout, units = setting(env)
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
    for unit in reversed(units):
        late.submit([unit])
        done += late.tick()
    assert table(done + finish(late)) == table(finish(expected))


def test_traces_do_not_leak_from_one_candidate_to_the_next():
    # In the ancestor they did: with plasticity, the second episode of a slot would differ.
    rollout, units = setting("CartPole-v1", plasticity=0.5)
    together = rollout(1)
    together.submit(units)
    by_one = []
    for unit in units:
        alone = rollout(1)
        alone.submit([unit])
        by_one += finish(alone)
    assert table(finish(together)) == table(by_one)


def test_every_unit_comes_back_once():
    rollout, units = setting("CartPole-v1")
    ours = rollout(4)
    ours.submit(units)
    assert ours.pending == len(units)
    assert sorted((o.candidate, o.episode) for o in finish(ours)) == [(u.candidate, u.episode) for u in units]
    assert ours.pending == 0


def test_clear_forgets():
    rollout, units = setting("CartPole-v1")
    ours = rollout(4)
    ours.submit(units)
    ours.tick()
    ours.clear()
    assert ours.pending == 0
    ours.submit(units[:2])
    assert len(finish(ours)) == 2


def test_return_is_the_sum_of_rewards():
    rollout, units = setting("CartPole-v1")
    ours = rollout(3)
    ours.submit(units)
    assert all(o.episode_return == o.length for o in finish(ours))  # CartPole pays 1 a step
    assert np.isfinite([o.trace for o in finish(ours)]).all()
