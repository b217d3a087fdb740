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


def nearest(returns, metrics, connections):
    """The smallest value of the metrics of toys:Measured-v0: 0 if it reached the goal, else minus the distance."""
    assert metrics["reached"].dtype == bool
    assert not metrics["distance"].flags.writeable
    return np.where(metrics["reached"], 0.0, -metrics["distance"]).min(axis=1)
