"""ClipUp: the optimizer of gradients of which only the direction is trusted.

Toklu, Liskowski & Srivastava, "ClipUp: A Simple and Powerful Optimizer for Distribution-Based Policy Evolution" (PPSN
2020), algorithm 1:

    v    μ v + α g/‖g‖, μ the momentum and α the learning rate: every gradient makes a step of the same length
    v    v · v_max/‖v‖ where ‖v‖ is above v_max, the largest speed: so no search runs away
"""

from evolve.numerics.lengths import length
from evolve.shapes import Float64


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
