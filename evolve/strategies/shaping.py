"""Fitness shaping: what is left of a fitness when only its order may count."""

import numpy as np

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
