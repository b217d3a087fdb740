"""Fitness functions: one number for each candidate from its returns, as the setting `fitness` asks.

Mean and quantiles use exactly rounded operations in a fixed order, so they have the same bits on every machine. A
function of the user is imported and called by rank 0 alone. The function may compute anything, so nothing is promised
about its bits on another machine.
"""

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.config import names_function, quantile_of
from evolve.errors import FAILURES, InputError, RunError, Setting, describe, one_line
from evolve.numerics import ordered_sum
from evolve.shapes import Float64, Int32

Metrics = Mapping[str, NDArray[Any]]
"""The metrics of episodes by name, [n, E] each: float64, int64 or bool."""

FitnessFunction = Callable[[Float64, Metrics, Int32], Float64]
"""Returns the fitness [n] of returns [n, E], metrics and connections [n]; NaN if a return is NaN."""


def fitness_function(setting: str) -> FitnessFunction:
    """Return the function that a setting `fitness` names. Raises InputError if it cannot be imported."""
    if names_function(setting):
        return _UserFunction(setting)
    quantile = quantile_of(setting)
    if quantile is None:
        return lambda returns, _metrics, _connections: ordered_sum(returns) / returns.shape[1]
    return lambda returns, _metrics, _connections: quantile_of_returns(returns, quantile)


def quantile_of_returns(returns: Float64, quantile: float) -> Float64:
    """Return the quantile [n] of each row of returns [n, E] by linear interpolation; NaN if a return is NaN.

    The definition: sort the E returns to r[0] ≤ … ≤ r[E - 1], and compute position = quantile · (E - 1),
    k = ⌊position⌋ and the result r[k] + (position - k) · (r[k + 1] - r[k]), in float64 with each operation rounded on
    its own. A position without a fraction gives r[k] itself. -0.0 counts as 0.0.
    """
    position = quantile * (returns.shape[1] - 1)
    below = math.floor(position)
    fraction = position - below
    # Adding 0.0 turns -0.0 into 0.0. Equal returns then have equal bits, so the order of a sort cannot matter.
    ordered = np.sort(returns + 0.0, axis=1)
    result: Float64 = ordered[:, below].copy()
    if fraction:
        result += fraction * (ordered[:, below + 1] - ordered[:, below])
    result[np.isnan(returns).any(axis=1)] = np.nan
    return result


class _UserFunction:
    """A function `module:function` of the user, which gets read-only arrays; its result is checked.

    Candidates with a failed episode are not passed to the function, and their fitness is NaN.
    """

    def __init__(self, setting: str) -> None:
        self._setting = setting
        self._function = import_function(setting)

    def __call__(self, returns: Float64, metrics: Metrics, connections: Int32) -> Float64:
        fitness: Float64 = np.full(len(returns), np.nan)
        rows = np.flatnonzero(~np.isnan(returns).any(axis=1))
        if not len(rows):
            return fitness
        given = {name: _read_only(values[rows]) for name, values in metrics.items()}
        try:
            result = self._function(_read_only(returns[rows]), MappingProxyType(given), _read_only(connections[rows]))
        except FAILURES as error:
            raise RunError(Setting("fitness"), f": {self._setting} raised an error:\n{describe(error)}") from error
        fitness[rows] = self._checked(result, len(rows))
        return fitness

    def _checked(self, result: Any, n: int) -> Float64:
        """Return the result [n] of the function as float64. Raises InputError unless it is n finite numbers."""
        try:
            values = np.asarray(result)
        except ValueError:  # nested lists of different lengths
            values = np.asarray(None)
        if values.shape != (n,) or values.dtype.kind not in "fiu":
            expected = f"{self._setting} to return an array [{n}] of numbers, one for each candidate"
            came = f"{values.dtype}{list(values.shape)}" if isinstance(result, np.ndarray) else repr(result)
            raise InputError("fitness", expected, came)
        fitness = values.astype(np.float64)
        strange = np.flatnonzero(~np.isfinite(fitness))
        if len(strange):
            expected = f"{self._setting} to return finite numbers"
            raise InputError("fitness", expected, f"{fitness[strange[0]]} at position {strange[0]} of {n}")
        return fitness


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def import_function(setting: str) -> Callable[..., Any]:
    """Return the function `module:function`. Raises InputError if it is missing or takes other arguments."""
    module, _, name = setting.partition(":")
    expected = "a function `module:function` that can be imported"
    try:
        found = getattr(importlib.import_module(module), name)
    except FAILURES as error:  # an import runs the code of the module
        cure = "Modules are looked for in the working directory and on PYTHONPATH."
        raise InputError("fitness", expected, f"{setting} ({one_line(error)})", cure) from error
    if not callable(found):
        raise InputError("fitness", expected, f"{setting}, which is a {type(found).__name__}")
    try:
        inspect.signature(found).bind(None, None, None)
    except TypeError as error:
        expected = "a function of three arguments: returns, metrics, connections"
        raise InputError("fitness", expected, f"{setting} ({error})") from None
    except ValueError:  # some compiled functions do not tell their arguments
        pass
    return found  # type: ignore[no-any-return]


_EXAMPLES = {"env": ("tasks.py", "tasks:Task"), "fitness": ("scores.py", "scores:function")}


def setting_of(found: Callable[..., Any], key: str = "fitness") -> str:
    """Return the setting `module:name` of a function or a class.

    Args:
        found: The function or the class.
        key: The setting, for the error: "env" or "fitness".

    Raises:
        InputError: No other process could import it.
    """
    module, name = getattr(found, "__module__", None) or "__main__", getattr(found, "__qualname__", "")
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is found:
        return f"{module}:{name}"
    file, example = _EXAMPLES[key]
    expected = f"a {'class or a function' if key == 'env' else 'function'} at the top level of a module"
    cure = f"Put it into a module, such as {file}, because another process has to import it to resume or to verify: "
    raise InputError(key, expected, repr(found), cure, Setting(key, example), ".")
