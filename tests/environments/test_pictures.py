"""Pictures of exact worlds equal Gymnasium's pictures of the same episode and step, pixel by pixel."""

import sys

import gymnasium
import numpy as np
import pytest

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments import rendering
from evolve.environments.exact import Draws
from evolve.environments.exact.bipedal_walker import LIDAR_RANGE, NUM_RAYS, STEP
from evolve.errors import InputError, how_to_install

pytest.importorskip("pygame")
pytest.importorskip("Box2D")
WORLDS = [name for name, task in environments.TASKS.items() if task.has_world]
CASES = [*((name, {}) for name in WORLDS), ("LunarLander-v3", {"enable_wind": True, "gravity": -5.0})]

ANOTHER = EnvOptions(id="MountainCar-v0", engine="exact")
"""Only the environment that was drawn last is kept."""


class Pair:
    """The same episode in a slot of the exact engine and in a fresh environment of Gymnasium."""

    def __init__(self, name, kwargs=(), slot=2):
        self.engine = environments.make(EnvOptions(id=name, engine="exact", kwargs=dict(kwargs)), slots=4)
        self.env = gymnasium.make(name, render_mode="rgb_array", **dict(kwargs)).unwrapped
        self.slots = np.array([slot])
        self.seen = np.zeros((4, self.engine.observation_size), np.float32)
        self.random = np.random.Generator(np.random.Philox(5))

    def reset(self, seed):
        self.engine.reset(self.slots, np.array([seed]), self.seen)
        self.env.reset(seed=seed)

    def step(self, outputs=None):
        """Make a step, by default a random one; return whether the episode has ended."""
        if outputs is None:
            outputs = self.random.uniform(-1, 1, self.engine.action_size)
        outputs = np.asarray(outputs, np.float32)[None]
        _, (ended,) = self.engine.step(self.slots, outputs, self.seen)
        observation, _, terminated, _, _ = self.env.step(self.engine.decode(outputs)[0])
        assert observation.tobytes() == self.seen[self.slots[0]].tobytes()
        assert ended == terminated
        return ended

    def frames(self):
        """Return both pictures, without the flames of a lander, which are not part of a state."""
        if hasattr(self.env, "particles"):
            self.env._clean_particles(True)
        return self.engine.frame(self.slots[0]), self.env.render()


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_a_world_looks_as_in_gymnasium(name, kwargs):
    pair = Pair(name, kwargs)
    pair.reset(7)
    shown = [pair.frames()]
    while len(shown) < 24 and not pair.step():
        shown.append(pair.frames())
    assert len(shown) == 24
    for ours, theirs in shown:
        assert (ours.dtype, ours.shape) == (np.uint8, (400, 600, 3))
        assert np.array_equal(ours, theirs)
    assert (shown[0][0] != shown[-1][0]).any()


@pytest.mark.parametrize("name", WORLDS)
def test_a_picture_does_not_depend_on_the_picture_before(name):
    pair = Pair(name)
    for seed in (1, 2):
        pair.reset(seed)
        for _ in range(25):
            pair.step()
    before = pair.engine.frame(2)
    assert environments.try_drawing(ANOTHER)
    assert np.array_equal(pair.engine.frame(2), before)
    pair.engine.reset(np.array([0]), np.array([9]), pair.seen)
    assert not np.array_equal(pair.engine.frame(0), before)
    assert np.array_equal(pair.engine.frame(2), before)
    pair.engine.move(np.array([2]), np.array([1]))
    assert np.array_equal(pair.engine.frame(1), before)


def test_a_walker_that_walks_stays_in_the_picture():
    """By Gymnasium's own walker, which tries to keep its balance; its rays and the ground move with it."""
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics

    pair = Pair("BipedalWalker-v3")
    pair.reset(3)
    walker, steps = BipedalWalkerHeuristics(), 0
    while steps < 300 and not pair.step(walker.step_heuristic(pair.seen[2])):
        steps += 1
        if steps % 9 == 0:
            ours = pair.engine.frame(2)
            red = (ours == (255, 0, 0)).all(axis=2).any()  # a ray
            assert red == ((steps + 1) % 100 < 20)
            pair.env.lidar_render = steps  # Gymnasium counts frames: here it has not drawn one in each step
            assert np.array_equal(ours, pair.env.render()), steps
    assert pair.env.scroll > 5


def test_lower_obstacles_are_drawn():
    """Also after others of the same episode, as the environment that draws is kept."""
    pictures = {}
    for obstacles in (0.1, 1.0, 0.5, 0.1, 1.0):
        pair = Pair("BipedalWalkerHardcore-v3")
        pair.engine = environments.make(
            EnvOptions(id="BipedalWalkerHardcore-v3", engine="exact", kwargs={"obstacles": obstacles}), slots=4
        )
        pair.reset(7)
        ours, theirs = pair.frames()
        assert np.array_equal(ours, theirs) == (obstacles == 1)
        assert np.array_equal(pictures.setdefault(obstacles, ours), ours)
    assert (pictures[0.1] != pictures[0.5]).any()


def test_rays_end_at_ground_that_lower_obstacles_have_moved(monkeypatch):
    """They are drawn as long as they are observed, wherever the walker stands."""
    name, draws = "BipedalWalkerHardcore-v3", Draws(np.array([3]), np.zeros(1, np.int64))
    task = environments.exact_task(EnvOptions(id=name, engine="exact", kwargs={"obstacles": 0.3}))
    begun = task.begin(draws)
    monkeypatch.setattr(rendering, "as_frame", lambda _, render: render.__self__)
    for vertex in range(40, 180, 20):
        world = begun.copy()
        for place in ("p", "c"):
            world["body"][place] += (vertex - 10) * STEP, world["height"][0, vertex] - world["height"][0, 10]
        env = rendering.picture(name, task, world[0], seed=3, step=0)
        drawn = [np.hypot(*np.subtract(ray.p2, ray.p1)) / LIDAR_RANGE for ray in env.lidar]
        np.testing.assert_allclose(drawn, task.observe(world)[-NUM_RAYS:, 0], atol=1e-4)


@pytest.mark.parametrize(
    ("missing", "name", "extra"),
    [("Box2D", "BipedalWalker-v3", "box2d"), ("pygame", "LunarLander-v3", "box2d"), ("pygame", "CartPole-v1", "video")],
)
def test_a_library_that_draws_is_named(absent, missing, name, extra, monkeypatch):
    options = EnvOptions(id=name, engine="exact")
    assert environments.try_drawing(options)
    assert environments.try_drawing(ANOTHER)
    absent(missing)
    for module in [known for known in sys.modules if known.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)  # it imports Box2D when it is imported
    with pytest.raises(InputError) as raised:
        environments.try_drawing(options)
    assert str(raised.value).endswith(how_to_install(extra))
    assert f"{missing} is not installed" in str(raised.value)
