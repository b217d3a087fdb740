"""Models, shapes and worlds for the tests of the physics, and their counterparts in Box2D."""

import numpy as np

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.exact import exact_task
from evolve.environments.physics import frames, polygons
from evolve.environments.physics.polygons import Polygons, hull_polygons

WALKERS = ("BipedalWalker-v3", "BipedalWalkerHardcore-v3")


def random(key):
    return np.random.Generator(np.random.Philox(key))


def model_of(name="BipedalWalker-v3", **kwargs):
    return exact_task(EnvOptions(id=name, engine="exact", kwargs=kwargs)).model


def hulls():
    """Return records of HULL: a walker's hull, thigh and shin, and a lander."""
    return np.concatenate([model_of()["hull"][:3], model_of("LunarLander-v3")["hull"][:1]])


def box2d_shape(hull):
    """Return the shape of Box2D of a record of HULL."""
    from Box2D import b2PolygonShape

    corners = hull["corner"][: hull["count"]]
    if hull["count"] == 4:
        return b2PolygonShape(box=tuple(map(float, corners[2])))
    return b2PolygonShape(vertices=corners.tolist())


def edges(ends):
    """Return edges as polygons: ends [N, 2 ends, 2]."""
    ends = np.asarray(ends, np.float32)
    corner = ends.transpose(2, 1, 0)[:, [0, 1, 0, 0]]
    return Polygons(np.full(len(ends), 2), corner, np.zeros_like(corner), np.zeros_like(corner[:, 0]))


def blocks(points):
    """Return rectangles as polygons: points [N, 4 corners, 2]."""
    records = np.array([polygons.block(corners) for corners in points], frames.BLOCK)
    corner, normal = (records[name].transpose(2, 1, 0) for name in ("corner", "normal"))
    return Polygons(np.full(len(records), 4), corner, normal, records["centroid"].T)


def bodies(records):
    return hull_polygons(np.asarray(records))


class Worlds:
    """k episodes in the array reference, or in the kernels.

    Attributes:
        states: Their worlds, [k].
        observations: [k, O].
    """

    def __init__(self, name, seeds, compiled=False, **kwargs):
        self.engine = environments.make(EnvOptions(id=name, engine="exact", kwargs=kwargs), len(seeds), compiled)
        self.slots = np.arange(len(seeds))
        self.observations = np.zeros((len(seeds), self.engine.observation_size), np.float32)
        self.engine.reset(self.slots, np.array(seeds), self.observations)
        slots = self.engine.slots
        self.states = slots.worlds[: len(seeds)] if compiled else slots.states

    def throw(self, speed, key=0):
        """Throw all bodies to the right, and most of them down."""
        generator, shape = random(key), (len(self.states), 1, 2)
        bodies = self.states["body"]
        bodies["v"] += generator.uniform((2, -8), (9, 2), shape) * speed + generator.normal(size=bodies["v"].shape)
        bodies["w"] += 3 * generator.normal(size=bodies["w"].shape)

    def step(self, outputs):
        """Return rewards and ends [k]; episodes go on beyond their ends."""
        return self.engine.step(self.slots, outputs, self.observations)


def used_parts(states):
    """Return worlds with zeros in all unused parts: scratch memory and empty places."""
    states = states.copy()
    states["body"]["alpha0"] = 0
    contacts = states["contact"]
    contacts[np.arange(frames.MAX_CONTACTS) >= states["num_contacts"][:, None]] = np.zeros((), frames.CONTACT)
    states["block"][np.arange(frames.MAX_BLOCKS) >= states["num_blocks"][:, None]] = np.zeros((), frames.BLOCK)
    for name in ("impact_known", "impacts", "impact"):
        contacts[name] = 0
    for name in ("by_body", "normal", "local"):
        contacts[name][contacts["count"] == 0] = 0
    for place in range(2):
        contacts["points"][contacts["count"] <= place, place] = np.zeros((), frames.POINT)
    return states


def differences(one, other, path=""):
    """Yield the fields of two arrays of records that have different bits, with the first index."""
    for name in one.dtype.names:
        a, b = one[name], other[name]
        if a.dtype.names:
            yield from differences(a, b, f"{path}{name}.")
        elif a.tobytes() != b.tobytes():
            yield f"{path}{name}", np.argwhere(a != b)[:1].tolist()
