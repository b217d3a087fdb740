"""Gymnasium's classic control in exact arithmetic: Acrobot, CartPole, MountainCar, Pendulum.

The equations, constants and rewards are Gymnasium's. The options have the names of Gymnasium's arguments and
attributes. `parameters` turns them into constants of the equations. A state ends with these constants, because each
episode may draw its own options. The states of Acrobot and Pendulum also have sines and cosines, because the
observation and the next step need them.
"""

import math
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.environments.exact.task import Draws, ExactTask, Moved, NoOptions, clipped, largest
from evolve.numerics.portable import ROUND, sincos
from evolve.shapes import Float32, Float64

_MAX_POLE_ANGLE = 12 * 2 * math.pi / 360  # 12° in radians, computed as in Gymnasium


class Acrobot(ExactTask[NoOptions]):
    """States: θ1, sin θ1, cos θ1, θ2, sin θ2, cos θ2, ω1, ω2, with the angles θ and angular speeds ω of the links."""

    kernel = "acrobot"
    observation_size = 6
    action_size = 3
    state_size = 8
    default_limit = 500
    fps = 15.0

    def begin(self, draws: Draws) -> Float64:
        """Return the states [8, k] in which episodes begin."""
        return _state(np.stack([draws.between(number, -0.1, 0.1) for number in range(4)]))

    def observe(self, states: Float64) -> Float64:
        """Return cos θ1, sin θ1, cos θ2, sin θ2, ω1, ω2."""
        return states[[2, 1, 5, 4, 6, 7]]

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Apply a torque of -1, 0 or 1 to the joint between the links, in one Runge-Kutta step of fourth order."""
        torque = (largest(outputs) - 1).astype(np.float64)
        start = states[[0, 3, 6, 7]]  # θ1, θ2, ω1, ω2; `_state` adds the sines and cosines
        stages = [_derivatives(states, torque)]
        for seconds in (0.1, 0.1, 0.2):  # a step takes 0.2 s: two stages are in its middle, and the last at its end
            stages.append(_derivatives(_state(start + seconds * stages[-1]), torque))
        weighted_sum = ((stages[0] + 2.0 * stages[1]) + 2.0 * stages[2]) + stages[3]
        angle1, angle2, w1, w2 = start + (0.2 / 6.0) * weighted_sum
        # Gymnasium wraps an angle in a loop. Here all episodes do the same work, and two rounds are always enough.
        angle1, angle2 = _wrap_once(_wrap_once(angle1)), _wrap_once(_wrap_once(angle2))
        w1, w2 = clipped(w1, -4 * math.pi, 4 * math.pi), clipped(w2, -9 * math.pi, 9 * math.pi)
        moved = _state(np.stack([angle1, angle2, w1, w2]))
        _, sine1, cosine1, _, sine2, cosine2, _, _ = moved
        # The height above the fixed joint is -cos θ1 - cos(θ1 + θ2).
        height_of_tip = -cosine1 - (cosine1 * cosine2 - sine1 * sine2)
        over = height_of_tip > 1.0
        return Moved(moved, np.where(over, 0.0, -1.0), over)


def _state(motion: Float64) -> Float64:
    """Return the states [8, k] of angles and speeds [4, k]."""
    angle1, angle2, w1, w2 = motion
    return np.stack([angle1, *sincos(angle1), angle2, *sincos(angle2), w1, w2])


def _derivatives(states: Float64, torque: Float64) -> Float64:
    """Return the time derivatives [4, k] of θ1, θ2, ω1, ω2. d1, d2, phi1 and phi2 are names of Sutton and Barto."""
    _, sine1, cosine1, _, sine2, cosine2, w1, w2 = states
    # The constants follow from g = 9.8, from links with masses, lengths and moments of inertia of 1, and from their
    # centers of mass at 0.5. sin θ takes the place of Gymnasium's cos(θ - π/2).
    d1, d2 = 2.25 + (1.25 + cosine2), 1.25 + 0.5 * cosine2
    phi2 = 4.9 * (sine1 * cosine2 + cosine1 * sine2)
    phi1 = ((14.7 * sine1 - 0.5 * (w2 * w2) * sine2) - w2 * w1 * sine2) + phi2
    ratio = d2 / d1
    acceleration2 = (((torque + ratio * phi1) - 0.5 * (w1 * w1) * sine2) - phi2) / (1.25 - d2 * ratio)
    return np.stack([w1, w2, -(d2 * acceleration2 + phi1) / d1, acceleration2])


def _wrap_once(angle: Float64) -> Float64:
    """Return an angle [k], moved by one turn towards the range [-π, π] if it is outside."""
    raised = np.where(angle < -math.pi, angle + 2 * math.pi, angle)
    return np.where(angle > math.pi, angle - 2 * math.pi, raised)


class CartPoleOptions(Options):
    """The settings of the cart and the pole, with the names of Gymnasium's attributes."""

    gravity: float = Field(9.8, ge=0, le=100)
    """The acceleration of a free fall, in m/s²."""
    masscart: float = Field(1.0, ge=0.01, le=100)
    """The mass of the cart, in kg."""
    masspole: float = Field(0.1, ge=0.01, le=100)
    """The mass of the pole, in kg."""
    length: float = Field(0.5, ge=0.01, le=100)
    """Half the length of the pole, in m."""
    force_mag: float = Field(10.0, ge=0, le=100)
    """The force of a push, in N."""


class CartPole(ExactTask[CartPoleOptions]):
    """States: position x and speed v of the cart, angle θ and angular speed ω of the pole, and the parameters."""

    kernel = "cart_pole"
    options_class = CartPoleOptions
    randomizable = tuple(CartPoleOptions.model_fields)
    observation_size = 4
    action_size = 2
    state_size = 10
    default_limit = 500

    def parameters(self, options: Any) -> tuple[Any, ...]:
        """Return gravity, mass × half length of the pole, total mass, the pole's mass, its half length, the force."""
        o = options
        return o.gravity, o.masspole * o.length, o.masspole + o.masscart, o.masspole, o.length, o.force_mag

    def begin(self, draws: Draws) -> Float64:
        """Return the states [10, k] in which episodes begin."""
        motion = [draws.between(index, -0.05, 0.05) for index in range(4)]
        return np.concatenate([motion, self.parameters_of(draws.seeds)])

    def observe(self, states: Float64) -> Float64:
        """Return x, v, θ, ω."""
        return states[:4]

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Push the cart to the left or to the right."""
        x, v, angle, w, gravity, moment, total_mass, masspole, length, force_mag = states
        # The comparison chooses as `largest` does, also for equal outputs and NaN.
        force = np.where(outputs[:, 1] > outputs[:, 0], force_mag, -force_mag)
        sine, cosine = sincos(angle)
        force_per_mass = (force + moment * (w * w) * sine) / total_mass
        inertia = length * (4.0 / 3.0 - masspole * (cosine * cosine) / total_mass)
        angular = (gravity * sine - cosine * force_per_mass) / inertia  # the accelerations of the pole and of the cart
        linear = force_per_mass - moment * angular * cosine / total_mass
        # Explicit Euler with steps of 0.02 s: positions change by the speeds before the step.
        moved = np.stack([x + 0.02 * v, v + 0.02 * linear, angle + 0.02 * w, w + 0.02 * angular])
        x, _, angle, _ = moved
        # The task is over beyond 2.4 m or 12°.
        over = (x < -2.4) | (x > 2.4) | (angle < -_MAX_POLE_ANGLE) | (angle > _MAX_POLE_ANGLE)
        return Moved(np.concatenate([moved, states[4:]]), np.ones(len(outputs)), over)


class _HillOptions(Options):
    """The settings that both cars have."""

    gravity: float = Field(0.0025, ge=0, le=1)
    """The pull of the steepest slope, as a change of speed in each step."""
    goal_velocity: float = Field(0.0, ge=0, le=0.07)
    """The least speed at the goal."""


class MountainCarOptions(_HillOptions):
    """The settings of the car, with the names of Gymnasium's arguments and attributes."""

    force: float = Field(0.001, ge=0, le=1)
    """The push of the car, as a change of speed in each step."""


class MountainCarContinuousOptions(_HillOptions):
    """The settings of the car, named as in Gymnasium. Only `gravity` is a constant in Gymnasium."""

    power: float = Field(0.0015, ge=0, le=1)
    """The push of the car at full force, as a change of speed in each step."""


class MountainCar(ExactTask[Any]):
    """States: position x and speed v of the car, and the parameters."""

    kernel = "mountain_car"
    options_class: ClassVar[type[Options]] = MountainCarOptions
    randomizable = tuple(MountainCarOptions.model_fields)
    observation_size = 2
    action_size = 3
    state_size = 5
    default_limit = 200
    fps = 30.0

    def parameters(self, options: Any) -> tuple[Any, ...]:
        """Return the push, gravity, and the least speed at the goal."""
        return options.force, options.gravity, options.goal_velocity

    def begin(self, draws: Draws) -> Float64:
        """Return the states [5, k] in which episodes begin."""
        x = draws.between(0, -0.6, -0.4)
        return np.concatenate([[x, np.zeros_like(x)], self.parameters_of(draws.seeds)])

    def observe(self, states: Float64) -> Float64:
        """Return x and v."""
        return states[:2]

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Push the car to the left, not at all, or to the right."""
        moved = _drive(states, (largest(outputs) - 1).astype(np.float64))
        x, v, _, _, goal_velocity = moved
        return Moved(moved, np.full(len(outputs), -1.0), (x >= 0.5) & (v >= goal_velocity))


class MountainCarContinuous(MountainCar):
    """MountainCar with a force as its action."""

    kernel = "mountain_car_continuous"
    options_class = MountainCarContinuousOptions
    randomizable = tuple(MountainCarContinuousOptions.model_fields)
    action_size = 1
    default_limit = 999
    discrete = False

    def parameters(self, options: Any) -> tuple[Any, ...]:
        """Return the push at full force, gravity, and the least speed at the goal."""
        return options.power, options.gravity, options.goal_velocity

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Push the car with the force of the output."""
        action = self.actions(outputs)[:, 0]
        moved = _drive(states, action)
        x, v, _, _, goal_velocity = moved
        at_goal = (x >= 0.45) & (v >= goal_velocity)
        return Moved(moved, np.where(at_goal, 100.0, 0.0) - 0.1 * (action * action), at_goal)


def _drive(states: Float64, action: Float64) -> Float64:
    """Return the states of cars after a step with actions [k] from -1 to 1. The wall on the left stops a car."""
    x, v, push, gravity, _ = states
    _, slope = sincos(3.0 * x)  # the height of the hill is sin 3x, so its slope is proportional to cos 3x
    speed = clipped(v + (push * action - gravity * slope), -0.07, 0.07)
    x = clipped(x + speed, -1.2, 0.6)
    at_wall = (x == -1.2) & (speed < 0.0)
    return np.concatenate([[x, np.where(at_wall, 0.0, speed)], states[2:]])


class PendulumOptions(Options):
    """The settings of the pendulum, with the names of Gymnasium's argument and attributes."""

    g: float = Field(10.0, ge=0, le=100)
    """The acceleration of a free fall, in m/s²."""
    m: float = Field(1.0, ge=0.01, le=100)
    """The mass of the rod, in kg."""
    l: float = Field(1.0, ge=0.01, le=100)
    """The length of the rod, in m."""


class Pendulum(ExactTask[PendulumOptions]):
    """States: the angle θ from upright, sin θ, cos θ, the angular speed ω, and the parameters."""

    kernel = "pendulum"
    options_class = PendulumOptions
    randomizable = tuple(PendulumOptions.model_fields)
    observation_size = 3
    action_size = 1
    state_size = 6
    default_limit = 200
    discrete = False
    action_bound = 2.0
    fps = 30.0

    def parameters(self, options: Any) -> tuple[Any, ...]:
        """Return two angular accelerations: by gravity when the rod is horizontal, and by a torque of 1 N·m."""
        return 3.0 * options.g / (2.0 * options.l), 3.0 / (options.m * (options.l * options.l))

    def begin(self, draws: Draws) -> Float64:
        """Return the states [6, k] in which episodes begin."""
        angle = draws.between(0, -math.pi, math.pi)
        motion = [angle, *sincos(angle), draws.between(1, -1.0, 1.0)]
        return np.concatenate([motion, self.parameters_of(draws.seeds)])

    def observe(self, states: Float64) -> Float64:
        """Return cos θ, sin θ, ω."""
        return states[[2, 1, 3]]

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Apply the torque of the output. An episode ends only at its limit of steps."""
        angle, sine, _, speed, by_gravity, by_torque = states
        torque = self.actions(outputs)[:, 0]
        # Subtract the nearest whole number of turns from the angle. Adding `ROUND` and subtracting it again rounds.
        turns = (angle * (1.0 / (2.0 * math.pi)) + ROUND) - ROUND
        from_upright = angle - turns * (2.0 * math.pi)
        # As in Gymnasium, the reward depends on the angle and speed before the step.
        reward = -(from_upright * from_upright + 0.1 * (speed * speed) + 0.001 * (torque * torque))
        # Semi-implicit Euler with steps of 0.05 s: the angle changes by the new speed.
        speed = clipped(speed + (by_gravity * sine + by_torque * torque) * 0.05, -8.0, 8.0)
        angle = angle + speed * 0.05
        moved = np.concatenate([[angle, *sincos(angle), speed], states[4:]])
        return Moved(moved, reward, np.zeros(len(outputs), np.bool_))
