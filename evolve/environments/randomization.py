"""Domain randomization: the arguments of an environment that `env.randomize` draws for each episode.

The value of the argument NAME is computed from the first number of a random stream. The key of the stream consists of
the seed of the episode's environment and the purpose "env.randomize.NAME". So any rank can draw the values of any
episode, and the value of an argument does not depend on the other arguments.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evolve.config import EnvOptions, Table
from evolve.numerics.portable import exp_float64, log
from evolve.numerics.streams import Streams
from evolve.shapes import Float64, Int64


def draw(randomize: Mapping[str, Any], seeds: Int64) -> dict[str, list[Any]]:
    """Return the values of each randomized argument in k episodes, by name. seeds: [k], of their environments."""
    drawn = {}
    for name, distribution in randomize.items():
        streams = Streams(seeds, f"env.randomize.{name}", 0, np.zeros_like(seeds))
        drawn[name] = _values_at(distribution, streams.uniform(1)[:, 0])
    return drawn


def draw_tables(randomize: Mapping[str, Any], seeds: Int64) -> list[Table]:
    """Return a table of the randomized arguments for each of k episodes. seeds: [k], of their environments."""
    drawn = draw(randomize, seeds) if randomize else {}
    return [{name: values[row] for name, values in drawn.items()} for row in range(len(seeds))]


def example_arguments(randomize: Mapping[str, Any]) -> Table:
    """Return one value of each randomized argument, for an environment that is made only to inspect it."""
    return draw_tables(randomize, np.zeros(1, np.int64))[0]


def fixed(options: EnvOptions, seed: int) -> EnvOptions:
    """Return the options of the environment with a seed: its drawn values are set, and nothing is randomized."""
    kwargs = options.kwargs | draw_tables(options.randomize, np.array([seed]))[0]
    return options.model_copy(update={"kwargs": kwargs, "randomize": {}})


def may_repeat(randomize: Mapping[str, Any]) -> bool:
    """Return whether two episodes may draw the same arguments, because no argument has a continuous distribution."""
    return all(kind in ("choice", "integers") for distribution in randomize.values() for kind in distribution)


def extremes(distribution: Mapping[str, Any]) -> list[Any]:
    """Return the bounds of a distribution, or all values of a choice."""
    ((_, values),) = distribution.items()
    return list(values)


def _values_at(distribution: Mapping[str, Any], u: Float64) -> list[Any]:
    """Return the values [k] that a distribution assigns to numbers u [k], uniform on (0, 1)."""
    ((kind, parameters),) = distribution.items()
    if kind == "choice":
        return [parameters[place] for place in (u * len(parameters)).astype(np.int64).tolist()]
    low, high = parameters
    values: Any
    if kind == "integers":
        values = low + np.floor(u * (high - low + 1)).astype(np.int64)
    elif kind == "uniform":
        values = low + (high - low) * u
    else:
        log_low, log_high = log(np.array(parameters))
        values = exp_float64(log_low + (log_high - log_low) * u)
    # Rounding must not carry a value past its bounds.
    return np.clip(values, low, high).tolist()
