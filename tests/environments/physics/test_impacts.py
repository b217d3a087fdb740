"""Bodies that move fast stop at the ground."""

import numpy as np
from rigid_bodies import Worlds, model_of

from evolve.environments.physics import world
from evolve.environments.physics.frames import Frame, Rotation, frame_around, placed
from evolve.environments.physics.polygons import hull_polygons, vectors
from evolve.environments.physics.world import set_frames


def lowest(states, model):
    """Return how far the corners of bodies are above the ground at least."""
    bodies = states["body"]
    frame = Frame(vectors(bodies["p"]), Rotation(bodies["sine"], bodies["cosine"])).per_corner()
    x, y = placed(frame, hull_polygons(model["hull"]).corner[:, :, None])
    above = [y[:, i] - np.interp(x[:, i], model["x"], state["height"]) for i, state in enumerate(states)]
    return min(each.min() for each in above)


def dropped(states, model):
    """Return how far above the ground walkers stay at least that are thrown down at 90 m/s."""
    states = states.copy()
    for name in ("c", "c0", "p", "low", "high"):
        states["body"][name][..., 1] += 2
    states["body"]["v"][..., 1] = -90
    least = np.inf
    for _ in range(4):
        world.step_worlds(states, model)
        least = min(least, lowest(states, model))
    return least


def test_bodies_do_not_fall_through_the_ground(monkeypatch):
    model, states = model_of(), Worlds("BipedalWalker-v3", range(1)).states
    assert dropped(states, model) > -0.1
    monkeypatch.setattr(world, "solve_impacts", lambda states, model: None)
    assert dropped(states, model) < -3


def test_frames_follow_centers_of_mass():
    model, states = model_of(), Worlds("BipedalWalker-v3", range(2)).states
    states["body"]["c"] += 1
    states["body"]["a"] += np.float32(0.5)
    before = states["body"].copy()
    set_frames(states, model, slice(1, 3))
    now = states["body"]
    for name in ("p", "sine", "cosine"):
        assert (now[name][:, [0, 3, 4]] == before[name][:, [0, 3, 4]]).all()
    frame = frame_around(now["c"][1, 2], now["a"][1, 2], model["hull"]["center"][2])
    assert (now["p"][1, 2] == frame.p).all()
    assert (now["sine"][1, 2], now["cosine"][1, 2]) == frame.q
