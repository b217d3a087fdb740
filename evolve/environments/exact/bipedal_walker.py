"""BipedalWalker: a robot with two legs walks over rough ground; with `hardcore`, over stumps, stairs and pits.

The task is Gymnasium's BipedalWalker-v3 (Oleg Klimov, MIT licence), with Box2D's physics (Erin Catto, zlib licence; see
`environments/physics/`). The same seed gives the same ground. An episode has the bits of Gymnasium's observations and
rewards, and the same end.

In Gymnasium gravity, friction and the strengths of the legs are constants. Here they are settings, which may differ
between episodes. The strengths may also change within an episode. No observation shows these settings. With strength s
the action a of a leg becomes s·a, in the physics and in the reward. If s is negative, the motors turn the other way.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.environments.exact.task import Draws, ExactTask, Moved, Pcg64, bounded
from evolve.environments.physics import frames, polygons
from evolve.environments.physics.polygons import ray_to_blocks, ray_to_edges, vectors
from evolve.environments.physics.world import reset_bodies, step_worlds
from evolve.numerics.portable import sincos
from evolve.shapes import Float32, Float64, Int64, UInt8

SCALE = 30.0
"""The scale of Gymnasium's window, in pixels per meter."""
STEP = 14 / SCALE
"""The horizontal distance between neighbouring vertices of the ground, in meters."""
VERTICES = 200
"""The number of vertices of the ground."""
START = 400 / SCALE / 4
"""The height of the ground where the walker begins, in meters."""
START_PAD = 20
"""The number of vertices of flat ground at the beginning."""
GRASS = 10
"""There are GRASS // 2 to GRASS - 1 vertices of grass between two obstacles. The goal is vertex VERTICES - GRASS."""
CLOUDS, NUMBERS_PER_CLOUD = 10, 11
"""The number of clouds, and the number of random numbers that Gymnasium draws for each cloud."""

Corners = list[tuple[float, float]]
"""The corners (x, y) of a polygon, in meters."""

# Gymnasium's constants of the walker, with its names. Lengths are in meters, except where a comment names a unit.
HULL_FRICTION, LEG_FRICTION = 0.1, 0.2
HULL_POLY = [(34, -8), (34, 1), (6, 9), (-30, 9), (-30, -8)]  # pixels
LEG_DOWN = -8 / SCALE
LEG_W, LEG_H = 8 / SCALE, 34 / SCALE
INITIAL_RANDOM = 5  # newtons, the largest horizontal push of the hull at the beginning
LIDAR_RANGE = 160 / SCALE
NUM_RAYS = 10  # of the lidar
MOTORS_TORQUE = 80  # N·m
SPEED_HIP, SPEED_KNEE = 4, 6  # rad/s, of the motors


@dataclass
class Terrain:
    """The ground of one episode.

    Attributes:
        heights: [VERTICES], in meters, from left to right.
        blocks: The corners of each obstacle, from left to right.
    """

    heights: list[float] = field(default_factory=list)
    blocks: list[Corners] = field(default_factory=list)

    def add_block(self, x1: float, x2: float, y1: float, y2: float) -> None:
        """Add a rectangular obstacle from x1 to x2 and from y1 to y2, in meters."""
        self.blocks.append([(x1, y1), (x2, y1), (x2, y2), (x1, y2)])


def draw_terrain(generator: Pcg64, hardcore: bool, obstacles: float = 1.0) -> Terrain:
    """Draw the ground of an episode.

    Args:
        generator: The generator of the episode.
        hardcore: Whether there are obstacles.
        obstacles: The height and depth of the obstacles, as a share of Gymnasium's.
    """
    # This is Gymnasium's state machine, with the same order of random numbers. `state` is the kind of ground at vertex
    # i, and `counter` the number of vertices before the next kind. `begins` marks the first vertex of a kind, but not
    # the first vertex of all. `original` is the height of the ground before the present pit or stairs.
    terrain = Terrain()
    step_height, depth = STEP * obstacles, 4 * STEP * obstacles
    grass, stump, stairs, pit = range(4)
    state, counter, begins = grass, START_PAD, False
    velocity, y, original = 0.0, START, 0.0
    direction = width = steps = 0
    for i in range(VERTICES):
        x = i * STEP
        if state == grass and not begins:
            # A random slope that leads back to the height START.
            below = START - y
            sign = (below > 0) - (below < 0)
            velocity = 0.8 * velocity + 0.01 * sign
            if i > START_PAD:
                velocity += generator.uniform(-1, 1) / SCALE
            y += velocity
        elif state == pit and begins:
            # A pit is between two blocks, each one step wide, and the ground there has its original height.
            counter = generator.integer(3, 5)
            for shift in (0.0, STEP * counter):
                terrain.add_block(x + shift, x + STEP + shift, y, y - depth)
            counter += 2
            original = y
        elif state == pit:
            y = original - depth if counter > 1 else original
        elif state == stump and begins:
            counter = generator.integer(1, 3)
            terrain.add_block(x, x + counter * STEP, y, y + counter * step_height)
        elif state == stairs and begins:
            direction = 1 if generator.random() > 0.5 else -1
            width, steps = generator.integer(4, 5), generator.integer(3, 5)
            original = y
            for s in range(steps):
                low, high = y + (-1 + s * direction) * step_height, y + (s * direction) * step_height
                terrain.add_block(x + (s * width) * STEP, x + ((1 + s) * width) * STEP, low, high)
            counter = steps * width
        elif state == stairs:
            # The ground under the stairs is a slope: it changes by one stair within `width` vertices.
            y = original + ((steps * width - counter - direction) / width * direction) * step_height
        begins = False
        terrain.heights.append(y)
        counter -= 1
        if counter == 0:
            counter = generator.integer(GRASS // 2, GRASS)
            # Obstacles and grass alternate.
            state = generator.integer(1, 4) if state == grass and hardcore else grass
            begins = True
    return terrain


def skip_clouds(generator: Pcg64) -> None:
    """Skip the random numbers for clouds, which Gymnasium draws after the ground and before the push of the hull."""
    for _ in range(CLOUDS * NUMBERS_PER_CLOUD):
        generator.word()


class BipedalWalkerOptions(Options):
    """The settings of the walker. Gymnasium has only `hardcore`; the other defaults are Gymnasium's constants."""

    hardcore: bool = False
    """Whether there are stumps, stairs and pits on the ground."""
    gravity: float = Field(-10.0, ge=-30.0, le=0.0)
    """The vertical acceleration of a free fall, in m/s²; negative values point down."""
    friction: float = Field(2.5, ge=0.0, le=100.0)
    """The friction of the ground. A contact has the coefficient √(friction of the ground · friction of the body)."""
    leg_1: float = Field(1.0, ge=-1.0, le=1.0)
    """The strength of the first leg, a factor of its actions; if it is negative, the motors turn the other way."""
    leg_2: float = Field(1.0, ge=-1.0, le=1.0)
    """The strength of the second leg."""
    changes_at: int = Field(0, ge=0, le=1_000_000)
    """The number of steps after which `leg_1_later` and `leg_2_later` replace the strengths; 0 means never."""
    leg_1_later: float = Field(1.0, ge=-1.0, le=1.0)
    """The strength of the first leg after `changes_at` steps."""
    leg_2_later: float = Field(1.0, ge=-1.0, le=1.0)
    """The strength of the second leg after `changes_at` steps."""
    obstacles: float = Field(1.0, ge=0.05, le=1.0)
    """The height of stumps and stairs and the depth of pits, as a share of Gymnasium's; only used with `hardcore`."""
    fall: float = Field(-100.0, ge=-100.0, le=0.0)
    """The reward of the step in which the walker falls."""


def _draw_episode(state: Any, seed: int, hardcore: bool) -> float:
    """Draw an episode's ground into a record of `frames.WORLD`; return the horizontal force of the first push."""
    generator = Pcg64.seeded(seed)
    terrain = draw_terrain(generator, hardcore, float(_parameter(state, "obstacles")))
    skip_clouds(generator)
    push = generator.uniform(-INITIAL_RANDOM, INITIAL_RANDOM)
    state["height"], state["num_blocks"] = terrain.heights, len(terrain.blocks)
    for number, corners in enumerate(terrain.blocks):
        state["block"][number] = polygons.block(corners)
    state["generator"] = generator.to_record()
    return push


def _shaping(states: Any) -> Float64:
    """Return Gymnasium's shaping term [k] of states [k]: higher for a hull that is farther right, and upright."""
    hull = states["body"][:, 0]
    return 130 * hull["p"][:, 0].astype(np.float64) / SCALE - 5.0 * np.abs(hull["a"].astype(np.float64))


_PARAMETERS = (
    "gravity", "friction", "leg_1", "leg_2", "leg_1_later", "leg_2_later", "changes_at", "obstacles", "fall"
)  # fmt: skip
"""The options in the field `parameter` of a world, in the order of kernels/bipedal_walker.h."""


def _parameter(states: Any, name: str) -> Any:
    """Return an option of the episodes with states [k], by its name: [k] float64."""
    return states["parameter"][..., _PARAMETERS.index(name)]


class BipedalWalker(ExactTask[BipedalWalkerOptions]):
    """The walker as an exact task. Its states are records of `frames.WORLD` [k]."""

    kernel = "bipedal_walker"
    options_class = BipedalWalkerOptions
    has_world = True
    observation_size = 24
    action_size = 4
    state_size = len(_PARAMETERS)
    randomizable = own_options = _PARAMETERS
    default_limit = 1600  # Gymnasium's limit for this id, with or without obstacles
    discrete = False

    @cached_property
    def model(self) -> Any:
        """The bodies and joints, a record of `frames.MODEL`. Bodies: the hull, then the thigh and shin of each leg.

        The kernel also reads `hardcore` and `action_share` from the model.
        """
        # `begin` sets gravity and friction, because they may differ between episodes.
        model = np.zeros((), frames.MODEL)
        model["num_bodies"], model["num_joints"], model["num_edges"] = 5, 4, VERTICES - 1
        # The order in which Box2D's island solver finds the bodies: first the one created last, then along the joints.
        model["body_order"], model["joint_order"] = (4, 3, 0, 1, 2), (3, 2, 0, 1)
        model["spacing"] = STEP
        model["flag"], model["option"][0] = self.options.hardcore, self.action_share
        model["x"] = [i * STEP for i in range(VERTICES)]
        x, y = STEP * START_PAD / 2, START + 2 * LEG_H
        corners = np.array([(a / SCALE, b / SCALE) for a, b in HULL_POLY], np.float32)
        hull = polygons.hull(corners, 5.0, [0.0] * 2)
        hull["p"] = x, y
        model["hull"][0] = hull
        for leg, side in enumerate((-1, 1)):
            # For thigh and shin: half of the width, and the distance of the centre below y - LEG_DOWN.
            for part, (half_width, down) in enumerate(((LEG_W / 2, LEG_H / 2), (0.8 * LEG_W / 2, LEG_H * 3 / 2))):
                limb = polygons.box(half_width, LEG_H / 2, 1.0, [0.0] * 2)
                limb["p"], limb["a"] = (x, y - down - LEG_DOWN), side * 0.05
                model["hull"][1 + 2 * leg + part] = limb
            # Two hinges: the hip joins hull and thigh, the knee joins thigh and shin.
            hinges = model["hinge"][2 * leg : 2 * leg + 2]
            hinges["a"], hinges["b"] = (0, 1 + 2 * leg), (1 + 2 * leg, 2 + 2 * leg)
            hinges["anchor_a"], hinges["anchor_b"] = ((0, LEG_DOWN), (0, -LEG_H / 2)), (0, LEG_H / 2)
            hinges["lower"], hinges["upper"] = (-0.8, -1.6), (1.1, -0.1)
        polygons.finish_hinges(model)
        return model

    @cached_property
    def rays(self) -> Float64:
        """The end of each lidar ray, [10, 2]: meters forward and down from the hull."""
        sine, cosine = sincos(np.array([1.5 * i / 10.0 for i in range(NUM_RAYS)]))
        return np.stack([sine * LIDAR_RANGE, cosine * LIDAR_RANGE], axis=1)

    def kernel_constants(self) -> UInt8:
        """Return the bytes of the model and the rays, in the layout of the kernel."""
        return np.frombuffer(self.model.tobytes() + self.rays.tobytes(), np.uint8)

    def begin(self, draws: Draws) -> Any:
        """Return the states, records of `frames.WORLD` [k], after a first step: Gymnasium's `reset` makes one, too."""
        states = self.blank_worlds(draws.seeds)
        pairs = zip(states, draws.seeds.tolist(), strict=True)
        pushes = [_draw_episode(state, seed, self.options.hardcore) for state, seed in pairs]
        reset_bodies(states, self.model)
        states["gravity"] = _parameter(states, "gravity").astype(np.float32)
        ground_friction = _parameter(states, "friction").astype(np.float32)
        body_frictions = np.array([HULL_FRICTION, *[LEG_FRICTION] * 4], np.float32)
        # A body has two coefficients (the last axis) for two kinds of ground. They are equal: here all ground is alike.
        states["body"]["friction"] = np.sqrt(ground_friction[:, None] * body_frictions)[..., None]
        states["body"]["force"][:, 0, 0] = pushes
        # Gymnasium's first step has actions of 0, so the motors have no torque.
        states["joint"]["speed"] = states["joint"]["torque"] = 0
        step_worlds(states, self.model)
        states["shaping"] = _shaping(states)
        return states

    def observe(self, states: Any) -> Float64:
        """Return Gymnasium's observations [24, k].

        These are 4 numbers of the hull (angle and velocities), 5 of each leg (angles and speeds of hip and knee, and
        whether the foot touches the ground), and 10 lidar distances.
        """
        bodies, reference = states["body"], self.model["hinge"]["reference"]
        angle, w = bodies["a"].T, bodies["w"].T  # [bodies, k]
        vx, vy = bodies["v"][:, 0].astype(np.float64).T
        # Gymnasium's window has 600 × 400 pixels, and a second has 50 steps.
        hull_w = w[0].astype(np.float64)
        rows = [angle[0], 2.0 * hull_w / 50, 0.3 * vx * (600 / SCALE) / 50, 0.3 * vy * (400 / SCALE) / 50]
        for thigh, shin, hip, knee in ((1, 2, 0, 1), (3, 4, 2, 3)):
            # Box2D computes angles and speeds of joints in float32. Gymnasium's formulas continue in float64.
            knee_angle = angle[shin] - angle[thigh] - reference[knee]
            rows += [
                angle[thigh] - angle[0] - reference[hip],
                (w[thigh] - w[0]).astype(np.float64) / SPEED_HIP,
                knee_angle.astype(np.float64) + 1.0,
                (w[shin] - w[thigh]).astype(np.float64) / SPEED_KNEE,
                bodies["grounded"][:, shin] != 0,
            ]
        return np.array([*rows, *self._lidar(states)])

    def _lidar(self, states: Any) -> Float32:
        """Return the distances at which the rays meet the ground, as shares of the rays' length: [10, k]."""
        p = vectors(states["body"]["p"][:, 0])  # the position of the hull, [2, k]
        # Box2D gets both ends of a ray in float32. So round the far end first, and then subtract the hull's position.
        from_hull = (self.rays * (1, -1)).T  # (x, y) of the ends, [2, 10]; y points up, and the rays point down
        ends = p[:, None].astype(np.float64) + from_hull[..., None]
        rays = ends.astype(np.float32) - p[:, None]
        shares = ray_to_edges(states, self.model, p, rays)
        return ray_to_blocks(states, p, rays, shares) if self.options.hardcore else shares

    def step(self, states: Any, outputs: Float32, draws: Draws) -> Moved:
        """Step the walkers [k]; network outputs [k, 4] move hips and knees."""
        states = states.copy()
        actions = self.actions(outputs) * self._strengths(states, draws.steps)
        speeds = np.array([SPEED_HIP, SPEED_KNEE] * 2, np.float32)
        states["joint"]["speed"] = np.where(actions > 0, speeds, np.where(actions < 0, -speeds, np.float32(0.0)))
        states["joint"]["torque"] = np.float32(MOTORS_TORQUE) * np.abs(actions)
        step_worlds(states, self.model)
        shaping, x = _shaping(states), states["body"]["p"][:, 0, 0].astype(np.float64)
        # Gymnasium subtracts the cost of each action, a float32. So it rounds the reward to float32 before the first
        # cost, and again after each cost.
        rewards = (shaping - states["shaping"]).astype(np.float32)
        for action in actions.T:
            rewards -= np.float32(0.00035 * MOTORS_TORQUE) * np.abs(action)
        states["shaping"] = shaping
        fallen = (states["crashed"] != 0) | (x < 0.0)
        over = fallen | (x > (VERTICES - GRASS) * STEP)
        return Moved(states, np.where(fallen, _parameter(states, "fall"), rewards.astype(np.float64)), over)

    def _strengths(self, states: Any, steps: Int64) -> Float32:
        """Return the strengths [k, 4] of the hip and the knee of each leg, after `steps` [k] steps."""
        changes_at = _parameter(states, "changes_at")
        has_changed = (changes_at > 0) & (steps >= changes_at)
        strengths = []
        for leg in ("leg_1", "leg_2"):
            first, later = _parameter(states, leg), _parameter(states, f"{leg}_later")
            strengths.append(np.where(has_changed, later, first))
        return np.repeat(np.stack(strengths, axis=1).astype(np.float32), 2, axis=1)

    def actions(self, outputs: Float32) -> Any:
        """Return the actions [k, 4] of outputs [k, 4], in [-1, 1]; 0 for NaN."""
        return bounded(outputs * np.float64(self.action_share)).astype(np.float32)


class HardcoreOptions(BipedalWalkerOptions):
    """The settings of the walker, with obstacles by default."""

    hardcore: bool = True
    """Whether there are stumps, stairs and pits on the ground."""


class BipedalWalkerHardcore(BipedalWalker):
    """The walker with obstacles."""

    options_class = HardcoreOptions
    default_limit = 2000
