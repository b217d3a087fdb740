"""BipedalWalker: two legs with hips and knees carry a hull over rough ground; hardcore, over stumps, stairs and pits.

Gymnasium's BipedalWalker-v3 and BipedalWalkerHardcore-v3 (Oleg Klimov, MIT licence), whose physics is Box2D's (Erin
Catto, zlib licence): the same seed gives the same terrain and push, and each episode has Gymnasium's observations,
rewards and end, to the bit. `environments/physics/` has the physics.

The four outputs are torques of hip and knee, of the left leg and of the right one. A step is rewarded with 130/30 for
each meter forward, less 5 for each radian that the hull leans more than before, and less 0.028 for each unit of torque.
An episode ends when the hull touches the ground (-100), or at the end of the terrain.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evolve.config import Options
from evolve.environments.exact.task import Draws, ExactTask, Moved, bounded
from evolve.environments.exact.walker_terrain import (
    GRASS,
    SCALE,
    START,
    START_PAD,
    STEP,
    VERTICES,
    draw_terrain,
    skip_clouds,
)
from evolve.environments.physics import layout, shapes
from evolve.environments.physics.pcg64 import Pcg64
from evolve.environments.physics.polygons import vectors
from evolve.environments.physics.rays import ray_to_blocks, ray_to_edges
from evolve.environments.physics.world import reset_bodies, step_worlds
from evolve.numerics.trigonometry import sincos
from evolve.shapes import Float32, Float64, UInt8

HULL_POLY = [(34, -8), (34, 1), (6, 9), (-30, 9), (-30, -8)]
LEG_DOWN = -8 / SCALE
LEG_W, LEG_H = 8 / SCALE, 34 / SCALE
INITIAL_RANDOM = 5
FRICTION = 2.5
LIDAR_RANGE = 160 / SCALE
LIDAR = 10
MOTORS_TORQUE = 80
SPEED_HIP, SPEED_KNEE = 4, 6


class BipedalWalkerOptions(Options):
    """Settings: whether there are obstacles."""

    hardcore: bool = False


def _model(hardcore: bool, scale: float) -> Any:
    model = np.zeros((), layout.MODEL)
    model["num_bodies"], model["num_joints"], model["num_edges"] = 5, 4, VERTICES - 1
    model["body_order"], model["joint_order"] = (4, 3, 0, 1, 2), (3, 2, 0, 1)
    model["gravity"], model["spacing"] = -10.0, STEP
    model["flag"], model["option"][0] = hardcore, scale
    model["x"] = [i * STEP for i in range(VERTICES)]
    x, y = STEP * START_PAD / 2, START + 2 * LEG_H
    corners = np.array([(a / SCALE, b / SCALE) for a, b in HULL_POLY], np.float32)
    hull = shapes.hull(corners, 5.0, [shapes.mixed(FRICTION, 0.1)] * 2)
    hull["p"] = x, y
    model["hull"][0] = hull
    for leg, side in enumerate((-1, 1)):
        for part, (width, down) in enumerate(((LEG_W / 2, LEG_H / 2), (0.8 * LEG_W / 2, LEG_H * 3 / 2))):
            limb = shapes.box(width, LEG_H / 2, 1.0, [shapes.mixed(FRICTION, 0.2)] * 2)
            limb["p"], limb["a"] = (x, y - down - LEG_DOWN), side * 0.05
            model["hull"][1 + 2 * leg + part] = limb
        hinges = model["hinge"][2 * leg : 2 * leg + 2]
        hinges["a"], hinges["b"] = (0, 1 + 2 * leg), (1 + 2 * leg, 2 + 2 * leg)
        hinges["anchor_a"], hinges["anchor_b"] = ((0, LEG_DOWN), (0, -LEG_H / 2)), (0, LEG_H / 2)
        hinges["lower"], hinges["upper"] = (-0.8, -1.6), (1.1, -0.1)
    shapes.finish_hinges(model)
    return model


def _draw_episode(state: Any, seed: int, hardcore: bool) -> float:
    """Draw the ground of an episode into a record of `layout.WORLD`; return the push that its hull gets."""
    generator = Pcg64.seeded(seed)
    terrain = draw_terrain(generator, hardcore)
    skip_clouds(generator)
    push = generator.uniform(-INITIAL_RANDOM, INITIAL_RANDOM)
    state["height"], state["num_blocks"] = terrain.heights, len(terrain.blocks)
    for number, corners in enumerate(terrain.blocks):
        state["block"][number] = shapes.block(corners)
    state["generator"] = generator.record()
    return push


def _shaping(states: Any) -> Float64:
    """Return how good states [k] are: far to the right, with the hull upright."""
    hull = states["body"][:, 0]
    shaping: Float64 = 130 * hull["p"][:, 0].astype(np.float64) / SCALE - 5.0 * np.abs(hull["a"].astype(np.float64))
    return shaping


@dataclass(frozen=True)
class BipedalWalker(ExactTask[BipedalWalkerOptions]):
    """States: records of `layout.WORLD`."""

    kernel = "bipedal_walker"
    settings = BipedalWalkerOptions
    has_world = True
    observation_size = 24
    action_size = 4
    state_size = 0
    limit = 1600  # that of the name, whether there are obstacles or not
    discrete = False

    @cached_property
    def model(self) -> Any:
        """The bodies and joints, a record of `layout.MODEL`."""
        return _model(self.options.hardcore, min(self.action_scale, 1.0))

    @cached_property
    def rays(self) -> Float64:
        """Where the ends of the lidar's rays are, forward and down from the hull: [10, 2]."""
        sine, cosine = sincos(np.array([1.5 * i / 10.0 for i in range(LIDAR)]))
        return np.stack([sine * LIDAR_RANGE, cosine * LIDAR_RANGE], axis=1)

    def kernel_constants(self) -> UInt8:
        """Return the model and the rays, as the kernel takes them."""
        return np.frombuffer(self.model.tobytes() + self.rays.tobytes(), np.uint8)

    def begin(self, draws: Draws) -> Any:
        """Return the states, records of `layout.WORLD` [k], after a first step, which Gymnasium does not count."""
        states = self.blank(len(draws.seeds))
        pushes = [
            _draw_episode(state, seed, self.options.hardcore)
            for state, seed in zip(states, draws.seeds.tolist(), strict=True)
        ]
        reset_bodies(states, self.model)
        states["body"]["force"][:, 0, 0] = pushes
        states["joint"]["speed"] = states["joint"]["torque"] = 0
        step_worlds(states, self.model)
        states["shaping"] = _shaping(states)
        return states

    def observe(self, states: Any) -> Float64:
        """Return what is seen [24, k]: the hull, hip, knee and foot of either leg, and ten distances of the lidar."""
        bodies, reference = states["body"], self.model["hinge"]["reference"]
        hull, w = bodies[:, 0], bodies["w"].astype(np.float64)
        v = hull["v"].astype(np.float64)
        seen = [
            hull["a"],
            2.0 * w[:, 0] / 50,
            0.3 * v[:, 0] * (600 / SCALE) / 50,
            0.3 * v[:, 1] * (400 / SCALE) / 50,
        ]
        for thigh, shin, hip, knee in ((1, 2, 0, 1), (3, 4, 2, 3)):
            bend = bodies["a"][:, shin] - bodies["a"][:, thigh] - reference[knee]
            seen += [
                bodies["a"][:, thigh] - hull["a"] - reference[hip],
                (bodies["w"][:, thigh] - bodies["w"][:, 0]).astype(np.float64) / SPEED_HIP,
                bend.astype(np.float64) + 1.0,
                (bodies["w"][:, shin] - bodies["w"][:, thigh]).astype(np.float64) / SPEED_KNEE,
                bodies["grounded"][:, shin] != 0,
            ]
        return np.array([*seen, *self._lidar(states)])

    def _lidar(self, states: Any) -> Float32:
        """Return how far the rays go until they meet the ground, as shares of their length: [10, k]."""
        p = vectors(states["body"]["p"][:, 0])
        ends = p[:, None].astype(np.float64) + (self.rays * (1, -1)).T[..., None]
        rays = ends.astype(np.float32) - p[:, None]
        shares = ray_to_edges(states, self.model, p, rays)
        return ray_to_blocks(states, p, rays, shares) if self.options.hardcore else shares

    def step(self, states: Any, outputs: Float32, draws: Draws) -> Moved:
        """Turn hips and knees."""
        states = states.copy()
        actions = self.actions(outputs)
        speeds = np.array([SPEED_HIP, SPEED_KNEE] * 2, np.float32)
        states["joint"]["speed"] = np.where(actions > 0, speeds, np.where(actions < 0, -speeds, np.float32(0.0)))
        states["joint"]["torque"] = np.float32(MOTORS_TORQUE) * np.abs(actions)
        step_worlds(states, self.model)
        shaping, x = _shaping(states), states["body"]["p"][:, 0, 0].astype(np.float64)
        rewards = (shaping - states["shaping"]).astype(np.float32)
        for action in actions.T:
            rewards -= np.float32(0.00035 * MOTORS_TORQUE) * np.abs(action)
        states["shaping"] = shaping
        fallen = (states["crashed"] != 0) | (x < 0.0)
        over = fallen | (x > (VERTICES - GRASS) * STEP)
        return Moved(states, np.where(fallen, -100.0, rewards.astype(np.float64)), over)

    def actions(self, outputs: Float32) -> Any:
        """Return the torques [k, 4] as shares of the largest; 0 for NaN."""
        return bounded(outputs * np.float64(min(self.action_scale, 1.0))).astype(np.float32)


class HardcoreOptions(BipedalWalkerOptions):
    """The same settings; there are obstacles by default."""

    hardcore: bool = True


@dataclass(frozen=True)
class BipedalWalkerHardcore(BipedalWalker):
    """The walker with obstacles."""

    settings = HardcoreOptions
    limit = 2000
