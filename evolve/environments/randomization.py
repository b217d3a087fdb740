"""Domain randomization: the arguments of an environment that `env.randomize` draws for each episode.

The values follow from the seed of the episode's environment: the value of an argument is the first number of the stream
with this seed, whose purpose is "env.randomize." and the name of the argument. So any rank can draw the values of any
episode, and they do not depend on the other arguments.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evolve.config import EnvOptions, Table
from evolve.numerics.portable import exponential, log
from evolve.numerics.streams import Streams
from evolve.shapes import Float64, Int64


def draw(randomize: Mapping[str, Any], seeds: Int64) -> dict[str, list[Any]]:
    """Return the k values of each randomized argument, for episodes with the environment seeds [k]."""
    zeros = np.zeros_like(seeds)
    return {
        name: _values(distribution, Streams(seeds, f"env.randomize.{name}", 0, zeros).uniform(1)[:, 0])
        for name, distribution in randomize.items()
    }


def draw_tables(randomize: Mapping[str, Any], seeds: Int64) -> list[Table]:
    """Return the randomized arguments of each of k episodes, by the seeds [k] of their environments."""
    drawn = draw(randomize, seeds) if randomize else {}  # most environments randomize nothing
    return [{name: values[row] for name, values in drawn.items()} for row in range(len(seeds))]


def example(randomize: Mapping[str, Any]) -> Table:
    """Return one value of each randomized argument, for an environment that is made to be looked at."""
    return draw_tables(randomize, np.zeros(1, np.int64))[0]


def fixed(options: EnvOptions, seed: int) -> EnvOptions:
    """Return an environment with the arguments that it has in one episode, by the seed of its environment."""
    kwargs = options.kwargs | draw_tables(options.randomize, np.array([seed]))[0]
    return options.model_copy(update={"kwargs": kwargs, "randomize": {}})


def extremes(distribution: Mapping[str, Any]) -> list[Any]:
    """Return the bounds of a distribution, or all values of a choice."""
    ((_, values),) = distribution.items()
    return list(values)


def _values(distribution: Mapping[str, Any], u: Float64) -> list[Any]:
    """Return the values at numbers u [k], uniform on (0, 1)."""
    ((kind, given),) = distribution.items()
    if kind == "choice":
        return [given[place] for place in (u * len(given)).astype(np.int64).tolist()]
    low, high = given
    values: Any
    if kind == "integers":
        values = low + np.floor(u * (high - low + 1)).astype(np.int64)
    elif kind == "uniform":
        values = low + (high - low) * u
    else:
        logarithms = log(np.array(given))
        values = exponential(logarithms[0] + (logarithms[1] - logarithms[0]) * u)
    # Rounding must not carry a value past its bounds.
    inside: list[Any] = np.clip(values, low, high).tolist()
    return inside
