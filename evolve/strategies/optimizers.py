"""What gradient strategies share: fitness shaping, and the optimizer ClipUp."""

import numpy as np

from evolve.numerics.portable import length
from evolve.shapes import Float64


def centred_ranks(fitness: Float64) -> Float64:
    """Return [N]: each fitness [N] as 1/2 - r/(N - 1), r its rank from the best, 0, to the worst, N - 1.

    So the best is 1/2, the worst -1/2, and the sum 0. Equals share the mean of their ranks (where all are equal there
    is nothing to learn), and NaN is worst. Salimans et al. (2017), section 2.1, as in their code; N is at least 2.
    """
    size = -fitness
    in_order = np.sort(size)  # NaN comes last
    first, behind = (np.searchsorted(in_order, size, side=side) for side in ("left", "right"))
    return 0.5 - (first + behind - 1) / 2 / (len(fitness) - 1)


def clip_up(velocity: Float64, gradient: Float64, learning_rate: float, momentum: float, max_speed: float) -> Float64:
    """Return the velocity [W] after a gradient [W], which is to be climbed; a gradient of 0 has no direction.

    Args:
        velocity: [W], the one before.
        gradient: [W], of any length.
        learning_rate: α, how long the step of a gradient is.
        momentum: μ, which share of the velocity stays.
        max_speed: v_max, how long the velocity may be.
    """
    size = length(gradient)
    velocity = momentum * velocity
    if size > 0:
        velocity += (learning_rate / size) * gradient
    speed = length(velocity)
    if speed > max_speed:
        velocity *= max_speed / speed
    return velocity
