"""Fitness shaping, and the optimizers that turn an estimated gradient, which is to be climbed, into a step.

An optimizer is a frozen object of settings. Its memory of earlier steps is a part of the strategy's state. `step` takes

    memory         the memory before the step
    gradient       [W], `divisor` times the gradient; ClipUp uses its direction only
    learning_rate  α

and returns the step, in units of the learning rate, and the new m and v; each is a new array [W].
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evolve.numerics.portable import length
from evolve.shapes import Float64

_AT_ONCE = 2**16  # numbers
_EPSILON = 1e-8


def centred_ranks(fitness: Float64) -> Float64:
    """Return [N]: each fitness [N] as 1/2 - r/(N - 1), r its rank from the best, 0, to the worst, N - 1.

    So the best is 1/2, the worst -1/2, and the sum 0. Equal fitness shares the mean of its ranks, so a population of
    equal fitness has no gradient. NaN is worst. Salimans et al. (2017), section 2.1, as in their code; N is at least 2.
    """
    size = -fitness
    in_order = np.sort(size)  # NaN comes last
    first, behind = (np.searchsorted(in_order, size, side=side) for side in ("left", "right"))
    return 0.5 - (first + behind - 1) / 2 / (len(fitness) - 1)


def parts(size: int) -> Iterator[slice]:
    """Yield slices that cover range(size), each so short that several arrays of its length fit in a cache."""
    for start in range(0, size, _AT_ONCE):
        yield slice(start, min(start + _AT_ONCE, size))


@dataclass(frozen=True)
class OptimizerMemory:
    """The memory of an optimizer.

    m, v: [W] float64, see the optimizers.
    beta1_power, beta2_power: β1^t and β2^t, t the number of steps, the next one included.
    """

    m: Float64
    v: Float64
    beta1_power: float
    beta2_power: float


@dataclass(frozen=True)
class Adam:
    """Kingma & Ba, "Adam" (2015), algorithm 1: m and v are exponential means of gradients and of their squares.

    beta1, beta2: β1 and β2, the weights of the past in m and v.
    """

    beta1: float
    beta2: float

    def step(
        self, memory: OptimizerMemory, gradient: Float64, divisor: float, _learning_rate: float
    ) -> tuple[Float64, Float64, Float64]:
        """Return m/(1 - β1^t) / (sqrt(v/(1 - β2^t)) + 1e-8), m and v, each [W]."""
        step, m, v = (np.empty(len(gradient)) for _ in range(3))
        # In parts, because whole arrays of a large network would go through memory once for each operation.
        for part in parts(len(gradient)):
            g = gradient[part] / divisor
            m[part] = self.beta1 * memory.m[part] + (1 - self.beta1) * g
            v[part] = self.beta2 * memory.v[part] + (1 - self.beta2) * (g * g)
            step[part] = (m[part] / (1 - memory.beta1_power)) / (np.sqrt(v[part] / (1 - memory.beta2_power)) + _EPSILON)
        return step, m, v


@dataclass(frozen=True)
class ClipUp:
    """Toklu, Liskowski & Srivastava, "ClipUp" (2020): steps of one length along the gradient, and a limited velocity.

    Only the direction of a gradient counts. m is the velocity; v is not used.

    momentum: μ, the share of the velocity that stays.
    max_speed: v_max, the largest length of the velocity; by default twice the learning rate.
    """

    momentum: float
    max_speed: float | None = None

    def step(
        self, memory: OptimizerMemory, gradient: Float64, _divisor: float, learning_rate: float
    ) -> tuple[Float64, Float64, Float64]:
        """Return the velocity in units of the learning rate, the velocity, and v as it was, each [W]."""
        velocity = self.velocity(memory.m, gradient, learning_rate)
        return velocity / learning_rate, velocity, memory.v.copy()

    def velocity(self, before: Float64, gradient: Float64, learning_rate: float) -> Float64:
        """Return the velocity [W] after a gradient; a gradient of 0 has no direction.

        Args:
            before: [W], the velocity before.
            gradient: [W], of any length.
            learning_rate: α, the length of a gradient's step.
        """
        size = length(gradient)
        velocity = self.momentum * before
        if size > 0:
            velocity += (learning_rate / size) * gradient
        speed = length(velocity)
        most = self.max_speed or 2 * learning_rate
        if speed > most:
            velocity *= most / speed
        return velocity
