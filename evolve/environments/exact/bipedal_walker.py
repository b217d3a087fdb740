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
from evolve.environments.exact.task import ExactTask, bounded
from evolve.environments.physics import layout, shapes
from evolve.numerics.trigonometry import sincos
from evolve.shapes import Float32, Float64, UInt8

SCALE = 30.0
HULL_POLY = [(34, -8), (34, 1), (6, 9), (-30, 9), (-30, -8)]
LEG_DOWN = -8 / SCALE
LEG_W, LEG_H = 8 / SCALE, 34 / SCALE
TERRAIN_STEP = 14 / SCALE
TERRAIN_LENGTH = 200
TERRAIN_HEIGHT = 400 / SCALE / 4
TERRAIN_STARTPAD = 20
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
    model["num_bodies"], model["num_joints"], model["num_edges"] = 5, 4, TERRAIN_LENGTH - 1
    model["body_order"], model["joint_order"] = (4, 3, 0, 1, 2), (3, 2, 0, 1)
    model["gravity"], model["spacing"] = -10.0, TERRAIN_STEP
    model["flag"], model["option"][0] = hardcore, scale
    model["x"] = [i * TERRAIN_STEP for i in range(TERRAIN_LENGTH)]
    x, y = TERRAIN_STEP * TERRAIN_STARTPAD / 2, TERRAIN_HEIGHT + 2 * LEG_H
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


@dataclass(frozen=True)
class BipedalWalker(ExactTask[BipedalWalkerOptions]):
    """States: records of `layout.WORLD`."""

    kernel = "bipedal_walker"
    settings = BipedalWalkerOptions
    has_world = True
    observation_size = 24
    action_size = 4
    state_size = 0
    discrete = False

    @property
    def limit(self) -> int:
        """The steps of an episode at most."""
        return 2000 if self.options.hardcore else 1600

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
