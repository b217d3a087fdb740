"""Pendulum: to be swung up and held upright by a torque that is too weak to lift it.

As in Gymnasium's Pendulum-v1: with θ the angle from upright, ω its speed and u the torque within ±2 N m (times
`env.action_scale`), the reward is -(θ² + 0.1 ω² + 0.001 u²), θ within ±π, and

    ω ← clip(ω + 0.05 (15 sin θ + 3 u), ±8)        θ ← θ + 0.05 ω

At first θ is uniform on ±π, ω on ±1. θ itself is never wrapped; θ / 2π is rounded to the nearest integer for the
reward.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.environments.exact.task import Draws, ExactTask, Moved, NoOptions, bounded, clipped
from evolve.numerics.portable import ROUND
from evolve.numerics.trigonometry import sincos
from evolve.shapes import Float32, Float64


@dataclass(frozen=True)
class Pendulum(ExactTask[NoOptions]):
    """States: θ, sin θ, cos θ, ω."""

    kernel = "pendulum"
    observation_size = 3
    action_size = 1
    state_size = 4
    limit = 200
    discrete = False
    fps = 30.0

    @property
    def constants(self) -> tuple[float, ...]:
        """The largest torque."""
        return (2.0 * min(self.action_scale, 1.0),)

    def begin(self, draws: Draws) -> Float64:
        """Return the states [4, k] in which episodes begin."""
        angle = draws.between(0, -math.pi, math.pi)
        return np.stack([angle, *sincos(angle), draws.between(1, -1.0, 1.0)])

    def observe(self, states: Float64) -> Float64:
        """Return cos θ, sin θ, ω."""
        return states[[2, 1, 3]]

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Apply a torque."""
        angle, sine, _, speed = states
        torque = self.actions(outputs)[:, 0]
        turns = angle * (1.0 / (2.0 * math.pi)) + ROUND
        off = angle - (turns - ROUND) * (2.0 * math.pi)
        reward = -(off * off + 0.1 * (speed * speed) + 0.001 * (torque * torque))
        speed = clipped(speed + (15.0 * sine + 3.0 * torque) * 0.05, -8.0, 8.0)
        angle = angle + speed * 0.05
        return Moved(np.stack([angle, *sincos(angle), speed]), reward, np.zeros(len(outputs), np.bool_))

    def actions(self, outputs: Float32) -> Any:
        """Return the torques [k, 1]."""
        return bounded(outputs) * self.constants[0]
