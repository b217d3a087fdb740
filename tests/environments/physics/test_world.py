"""A step of worlds has the bits of the kernels, record by record."""

import numpy as np
import pytest
from rigid_bodies import WALKERS, Worlds, differences, model_of, random, used_parts

from evolve.environments.physics.world import reset_bodies, step_worlds
from evolve.numerics import native

K = 5
needs_kernels = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")


def outputs_of(step, generator):
    outputs = generator.uniform(-1, 1, (K, 4)).astype(np.float32)
    outputs[::3] = np.sign(outputs[::3])
    outputs[step % K] = [np.nan, np.inf, -np.inf, 0.0]
    return outputs


@needs_kernels
@pytest.mark.parametrize(("name", "speed", "lead"), [(WALKERS[0], 0.0, 0), (WALKERS[1], 1.5, 30)])
def test_records_are_those_of_the_kernels(name, speed, lead):
    """From the beginning; and from the kernels' states after `lead` steps, when thrown walkers hit blocks and crash."""
    kernel, ours = (Worlds(name, range(40, 40 + K), compiled) for compiled in (True, False))
    generator, touched, impacts, limits = random(6), 0, 0, set()
    if lead:
        kernel.throw(speed)
        for step in range(lead):
            kernel.step(outputs_of(step, generator))
        ours.states[:] = kernel.states
    for step in range(4):
        outputs = outputs_of(step, generator)
        results = [each.step(outputs) for each in (kernel, ours)]
        expected, found = (used_parts(each.states) for each in (kernel, ours))
        assert not list(differences(expected, found)), step
        assert kernel.observations.tobytes() == ours.observations.tobytes(), step
        for one, other in zip(*results, strict=True):
            assert one.tobytes() == other.tobytes(), step
        touched += (found["contact"]["touching"] * (found["contact"]["piece"] < found["num_blocks"][:, None])).sum()
        impacts += kernel.states["contact"]["impacts"].sum()
        limits |= {*found["joint"]["limit"].flat}
    assert found["crashed"].any() == (touched > 0) == (lead > 0)
    assert impacts > 10
    assert limits == ({-1, 0, 1} if lead else {0, 1})


@needs_kernels
def test_bodies_of_a_lander_move_as_in_the_kernel():
    """Without its engines; its ground has a base, and it comes to rest."""
    worlds, model = Worlds("LunarLander-v3", range(4), compiled=True), model_of("LunarLander-v3")
    worlds.states["body"]["v"][..., 1] -= 4
    nothing = np.eye(4, dtype=np.float32)[[0] * 4]
    for step in range(60):
        ours = worlds.states.copy()
        worlds.step(nothing)
        if step < 40 or step % 4:
            continue
        step_worlds(ours, model)
        ours["generator"], ours["shaping"] = worlds.states["generator"], worlds.states["shaping"]
        assert not list(differences(used_parts(worlds.states), used_parts(ours))), step
    assert worlds.states["num_contacts"].any()


def test_a_world_is_stepped_alone_as_among_others():
    worlds, model = Worlds("BipedalWalkerHardcore-v3", range(4)), model_of("BipedalWalkerHardcore-v3")
    worlds.throw(0.5)
    together, alone = worlds.states.copy(), worlds.states[2:3].copy()
    for _ in range(3):
        step_worlds(together, model)
        step_worlds(alone, model)
        assert not list(differences(used_parts(together[2:3]), used_parts(alone)))


def test_bodies_that_have_rested_sleep_until_the_next_step():
    model, states = model_of(), Worlds("BipedalWalker-v3", range(2)).states
    states["joint"]["torque"] = 0
    states["body"]["rested"][0] = 0.49
    states["body"]["p"][:, :, 1] += 5
    states["body"]["c"][:, :, 1] += 5  # in the air, where nothing pushes
    states["gravity"] = 0
    states["body"]["v"] = states["body"]["w"] = 0
    states["joint"]["impulse"] = states["joint"]["limit_impulse"] = states["joint"]["motor_impulse"] = 0
    states["num_contacts"] = 0
    step_worlds(states, model)
    assert states["body"]["awake"].tolist() == [[0] * 5, [1] * 5]
    assert not states["body"]["rested"][0].any()
    assert (states["body"]["rested"][1] > 0).all()
    step_worlds(states, model)
    assert states["body"]["awake"].all()


def test_bodies_begin_where_the_model_says():
    model, states = model_of(), Worlds("BipedalWalker-v3", range(2)).states
    ground = states["height"].copy()
    reset_bodies(states, model)
    assert (states["body"]["p"] == model["hull"]["p"]).all()
    assert (states["body"]["a"] == model["hull"]["a"]).all()
    assert states["fresh"].all()
    assert not states["num_contacts"].any()
    assert (states["height"] == ground).all()
    for name in ("v", "w", "force", "torque", "grounded"):
        assert not states["body"][name].any()
