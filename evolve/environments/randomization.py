"""Domain randomization: `env.randomize` draws arguments of an environment for each episode.

`env.randomize` is a table with a *distribution* for each argument, such as {gravity = {uniform = [9, 11]}}. A
distribution is itself a table with one entry: its kind, and its parameters. The kinds are uniform, log_uniform,
integers (two bounds each) and choice (a list of values).

The value of the argument NAME is computed from the first number of a random stream. The stream depends only on the seed
of the episode's environment and on the purpose "env.randomize.NAME". So any rank can draw the values of any episode,
and the value of an argument does not depend on the other arguments.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evolve.config import EnvOptions, Table
from evolve.numerics.portable import exp_float64, log
from evolve.numerics.streams import Streams
from evolve.shapes import Float64, Int64


def draw(randomize: Mapping[str, Any], seeds: Int64) -> dict[str, list[Any]]:
    """Return the k values of each randomized argument, by its name. seeds: [k], the seeds of the environments."""
    drawn = {}
    for name, distribution in randomize.items():
        streams = Streams(seeds, f"env.randomize.{name}", 0, np.zeros_like(seeds))
        drawn[name] = _values_from_uniform(distribution, streams.uniform(1)[:, 0])
    return drawn


def draw_tables(randomize: Mapping[str, Any], seeds: Int64) -> list[Table]:
    """Return k tables, each with the randomized arguments of one episode. seeds: [k], the seeds of the environments."""
    drawn = draw(randomize, seeds) if randomize else {}
    return [{name: values[row] for name, values in drawn.items()} for row in range(len(seeds))]


def example_arguments(randomize: Mapping[str, Any]) -> Table:
    """Return one value of each randomized argument, for an environment that is only inspected."""
    return draw_tables(randomize, np.zeros(1, np.int64))[0]


def with_drawn_arguments(options: EnvOptions, seed: int) -> EnvOptions:
    """Return options in which `kwargs` has the values that a seed draws for the randomized arguments."""
    kwargs = options.kwargs | draw_tables(options.randomize, np.array([seed]))[0]
    return options.model_copy(update={"kwargs": kwargs, "randomize": {}})


def may_draw_equal_arguments(randomize: Mapping[str, Any]) -> bool:
    """Return whether two episodes may draw the same arguments. No argument then has a continuous distribution."""
    kinds = {kind for distribution in randomize.values() for kind in distribution}
    return kinds <= {"choice", "integers"}


def bounds_or_choices(distribution: Mapping[str, Any]) -> list[Any]:
    """Return the two bounds of a distribution, or all values of a choice."""
    (parameters,) = distribution.values()
    return list(parameters)


def _values_from_uniform(distribution: Mapping[str, Any], u: Float64) -> list[Any]:
    """Return k values of a distribution, from k uniform numbers u on (0, 1)."""
    ((kind, parameters),) = distribution.items()
    if kind == "choice":
        return [parameters[index] for index in (u * len(parameters)).astype(np.int64).tolist()]
    low, high = parameters
    values: Any
    if kind == "integers":
        values = low + np.floor(u * (high - low + 1)).astype(np.int64)
    elif kind == "uniform":
        values = low + (high - low) * u
    else:
        # log_uniform. `log` and `exp_float64` are the project's own, because NumPy's results depend on the processor.
        log_low, log_high = log(np.array(parameters))
        values = exp_float64(log_low + (log_high - log_low) * u)
    # Clip, because rounding errors may put a value outside the bounds.
    return np.clip(values, low, high).tolist()
