"""CartPole: a pole on a cart, to be kept upright by pushes to the left and to the right.

Barto, Sutton and Anderson (1983), as in Gymnasium's CartPole-v1: with x, v the cart's position and speed, θ, ω the
pole's angle and angular speed, F = ±10 N, τ = 0.02 s (Florian, 2007, without friction):

    u = (F + 0.05 ω² sin θ) / 1.1
    α = (9.8 sin θ - u cos θ) / (0.5 (4/3 - 0.1 cos² θ / 1.1))
    a = u - 0.05 α cos θ / 1.1

and Euler's rule: each of x, v, θ, ω moves by τ times v, a, ω, α, those of before the step. An episode ends when
|x| > 2.4 m or |θ| > 12°; each step is rewarded with 1. At first all four are uniform on ±0.05.
"""

import math
from dataclasses import dataclass

import numpy as np

from evolve.environments.exact.task import Draws, ExactTask, Moved, NoOptions
from evolve.numerics.trigonometry import sincos
from evolve.shapes import Float32, Float64

_WIDEST = 12 * 2 * math.pi / 360


@dataclass(frozen=True)
class CartPole(ExactTask[NoOptions]):
    """States: x, v, θ, ω."""

    kernel = "cart_pole"
    observation_size = 4
    action_size = 2
    state_size = 4
    limit = 500

    def begin(self, draws: Draws) -> Float64:
        """Return the states [4, k] in which episodes begin."""
        return np.stack([draws.between(row, -0.05, 0.05) for row in range(4)])

    def observe(self, states: Float64) -> Float64:
        """Return the states."""
        return states

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Push the cart."""
        x, v, angle, w = states
        force = np.where(outputs[:, 1] > outputs[:, 0], 10.0, -10.0)
        sine, cosine = sincos(angle)
        push = (force + 0.05 * (w * w) * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / 1.1))
        pull = push - 0.05 * turn * cosine / 1.1
        x, v, angle, w = moved = np.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * w, w + 0.02 * turn])
        over = (x < -2.4) | (x > 2.4) | (angle < -_WIDEST) | (angle > _WIDEST)
        return Moved(moved, np.ones(len(outputs)), over)
