"""Acrobot: two links that hang from a point, to be swung up by a torque at the joint between them.

Sutton (1996), in the equations of Sutton and Barto's book, as in Gymnasium's Acrobot-v1: with θ1 the angle of the first
link from hanging down, θ2 that of the second relative to the first, ω1, ω2 their speeds, and a torque u of -1, 0 or 1:

    d1 = 2.25 + (1.25 + cos θ2)    d2 = 1.25 + 0.5 cos θ2
    φ2 = 4.9 sin(θ1 + θ2)          φ1 = 14.7 sin θ1 - 0.5 ω2² sin θ2 - ω1 ω2 sin θ2 + φ2
    α2 = (u + d2/d1 φ1 - 0.5 ω1² sin θ2 - φ2) / (1.25 - d2²/d1)
    α1 = -(d2 α2 + φ1) / d1

over 0.2 s by one step of the classical Runge-Kutta rule; sin(θ1 + θ2) by the rule for sums. Angles are wrapped to ±π,
speeds are limited to ±4π and ±9π. Each step costs 1, but the one that ends an episode: -cos θ1 - cos(θ1 + θ2) > 1. At
first all four are uniform on ±0.1.
"""

import math
from dataclasses import dataclass

import numpy as np

from evolve.environments.exact.task import Draws, ExactTask, Moved, NoOptions, clipped, largest
from evolve.numerics.trigonometry import sincos
from evolve.shapes import Float32, Float64


@dataclass(frozen=True)
class Acrobot(ExactTask[NoOptions]):
    """States: θ1, sin θ1, cos θ1, θ2, sin θ2, cos θ2, ω1, ω2."""

    kernel = "acrobot"
    observation_size = 6
    action_size = 3
    state_size = 8
    limit = 500
    fps = 15.0

    def begin(self, draws: Draws) -> Float64:
        """Return the states [8, k] in which episodes begin."""
        return _state(np.stack([draws.between(number, -0.1, 0.1) for number in range(4)]))

    def observe(self, states: Float64) -> Float64:
        """Return cos θ1, sin θ1, cos θ2, sin θ2, ω1, ω2."""
        return states[[2, 1, 5, 4, 6, 7]]

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Apply a torque."""
        torque = (largest(outputs) - 1).astype(np.float64)
        start = states[[0, 3, 6, 7]]
        slopes = [_slope(states, torque)]
        for ahead in (0.1, 0.1, 0.2):
            slopes.append(_slope(_state(start + ahead * slopes[-1]), torque))
        angle1, angle2, w1, w2 = start + (0.2 / 6.0) * (((slopes[0] + 2.0 * slopes[1]) + 2.0 * slopes[2]) + slopes[3])
        moved = _state(
            np.stack([
                *(_wrapped(_wrapped(angle)) for angle in (angle1, angle2)),
                clipped(w1, -4 * math.pi, 4 * math.pi),
                clipped(w2, -9 * math.pi, 9 * math.pi),
            ])
        )  # fmt: skip
        _, sine1, cosine1, _, sine2, cosine2, _, _ = moved
        over = -cosine1 - (cosine1 * cosine2 - sine1 * sine2) > 1.0
        return Moved(moved, np.where(over, 0.0, -1.0), over)


def _state(motion: Float64) -> Float64:
    """Return the states [8, k] of angles and speeds [4, k]."""
    angle1, angle2, w1, w2 = motion
    return np.stack([angle1, *sincos(angle1), angle2, *sincos(angle2), w1, w2])


def _slope(states: Float64, torque: Float64) -> Float64:
    """Return the derivatives [4, k] of angles and speeds."""
    _, sine1, cosine1, _, sine, cosine, w1, w2 = states
    d1, d2 = 2.25 + (1.25 + cosine), 1.25 + 0.5 * cosine
    phi2 = 4.9 * (sine1 * cosine + cosine1 * sine)
    phi1 = ((14.7 * sine1 - 0.5 * (w2 * w2) * sine) - w2 * w1 * sine) + phi2
    share = d2 / d1
    faster2 = (((torque + share * phi1) - 0.5 * (w1 * w1) * sine) - phi2) / (1.25 - d2 * share)
    return np.stack([w1, w2, -(d2 * faster2 + phi1) / d1, faster2])


def _wrapped(angle: Float64) -> Float64:
    return np.where(
        angle > math.pi, angle - 2 * math.pi, np.where(angle < -math.pi, angle + 2 * math.pi, angle)
    )  # fmt: skip
