"""MountainCar: a car in a valley that has to swing back and forth to reach the top; with three actions, or a force.

Moore (1990), as in Gymnasium's MountainCar-v0 and MountainCarContinuous-v0: with x the position, v the speed and f the
force (-0.001, 0 or 0.001; or 0.0015 times an action a within ±1, times `env.action_scale`):

    v ← clip(v + (f - 0.0025 cos 3x), ±0.07)       x ← clip(x + v, -1.2, 0.6)

v is 0 where the car meets the left end. The top is at 0.5 (0.45 with a force). Each step costs 1; with a force it costs
0.1 a², and the top gives 100. At first x is uniform on [-0.6, -0.4] and v = 0.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.environments.exact.task import Draws, ExactTask, Moved, NoOptions, bounded, clipped, largest
from evolve.numerics.trigonometry import sincos
from evolve.shapes import Float32, Float64


@dataclass(frozen=True)
class MountainCar(ExactTask[NoOptions]):
    """States: x, v."""

    kernel = "mountain_car"
    observation_size = 2
    action_size = 3
    state_size = 2
    limit = 200
    fps = 30.0

    def begin(self, draws: Draws) -> Float64:
        """Return the states [2, k] in which episodes begin."""
        x = draws.between(0, -0.6, -0.4)
        return np.stack([x, np.zeros_like(x)])

    def observe(self, states: Float64) -> Float64:
        """Return the states."""
        return states

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Push the car to the left, not at all, or to the right."""
        x, v = moved = _moved(states, 0.001 * (largest(outputs) - 1).astype(np.float64))
        return Moved(moved, np.full(len(outputs), -1.0), (x >= 0.5) & (v >= 0.0))


@dataclass(frozen=True)
class MountainCarContinuous(MountainCar):
    """The same with a force."""

    kernel = "mountain_car_continuous"
    action_size = 1
    limit = 999
    discrete = False

    @property
    def constants(self) -> tuple[float, ...]:
        """The largest action."""
        return (min(self.action_scale, 1.0),)

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Push the car with a force."""
        action = self.actions(outputs)[:, 0]
        x, v = moved = _moved(states, 0.0015 * action)
        there = (x >= 0.45) & (v >= 0.0)
        return Moved(moved, np.where(there, 100.0, 0.0) - 0.1 * (action * action), there)

    def actions(self, outputs: Float32) -> Any:
        """Return the actions [k, 1]."""
        return bounded(outputs) * self.constants[0]


def _moved(states: Float64, force: Float64) -> Float64:
    x, v = states
    speed = clipped(v + (force - 0.0025 * sincos(3.0 * x)[1]), -0.07, 0.07)
    x = clipped(x + speed, -1.2, 0.6)
    return np.stack([x, np.where((x == -1.2) & (speed < 0.0), 0.0, speed)])
