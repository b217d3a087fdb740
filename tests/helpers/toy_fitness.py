"""Fitness functions of a user, named by module:function."""

import numpy as np


def worst_two(returns, metrics, connections):
    """The mean of the two worst returns, less a tenth of the connections."""
    assert not any(array.flags.writeable for array in (returns, connections, *metrics.values()))
    return np.sort(returns, axis=1)[:, :2].mean(axis=1) - connections / 10


def two_arguments(returns, metrics):
    """A function that cannot be called with connections."""
    return returns[:, 0]


NUMBER = 3
