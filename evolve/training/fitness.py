"""Evaluates a generation: plays its episodes (`evaluate_population`), and computes the fitness (`Scores`).

A candidate's fitness is a function of the returns of its episodes, less the cost of its connections. By default this
function is the mean. Mean and quantiles use exactly rounded operations in a fixed order, so they have the same bits on
every machine. The user may name another function `module:function`. Only rank 0 imports and calls it, and its results
may have other bits on another machine.

All episodes are played at once, with two exceptions. A race drops the worst candidates after a few episodes, so that
the others can play more. A population that grows adds candidates until the generation has enough steps.
"""

import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evolve import rollouts
from evolve.cluster import Coordinator
from evolve.config import Config, RacingOptions, names_function, quantile_of
from evolve.errors import FAILURES, InputError, RunError, Setting, describe_error, import_user_module, one_line
from evolve.genome import GenomeSource
from evolve.numerics import ordered_sum
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, PopulationResults
from evolve.shapes import Bool, Float32, Float64, Int32, read_only
from evolve.strategies import ranking

if TYPE_CHECKING:
    from evolve.training.experiment import Experiment

_IMPORTING = threading.local()  # its attribute `name` is the environment or function that this thread is importing

Metrics = Mapping[str, NDArray[Any]]
"""The metrics of episodes by name, [n, E] each: float64, int64 or bool."""

FitnessFunction = Callable[[Float64, Metrics, Int32], Float64]
"""Returns the fitness [n] of n candidates from their returns [n, E], metrics, and numbers of connections [n].

The fitness of a candidate is NaN if one of its returns is NaN, because the episode failed.
"""


def fitness_function(setting: str) -> FitnessFunction:
    """Return the function that a value of the setting `fitness` names. Raises InputError if it cannot be imported."""
    if names_function(setting):
        return _UserFunction(setting)
    quantile = quantile_of(setting)
    if quantile is None:  # the setting is "mean"
        return lambda returns, _metrics, _connections: ordered_sum(returns) / returns.shape[1]
    return lambda returns, _metrics, _connections: quantile_of_returns(returns, quantile)


def check_fitness(config: Config, num_weights: int) -> None:
    """Raise InputError if the fitness function cannot be imported, or if a trial of it fails."""
    function = fitness_function(config.fitness)
    # There is no trial with metrics, because their types are not known yet. A trial with 1000 episodes is quick.
    if isinstance(function, _UserFunction) and not config.env.metrics:
        function.try_out(min(config.episodes, 1000), num_weights)


def quantile_of_returns(returns: Float64, quantile: float) -> Float64:
    """Return the quantile [n] of each row of returns [n, E] by linear interpolation; NaN if a return is NaN.

    The definition: sort the E returns to r[0] ≤ … ≤ r[E - 1]. Let position be quantile · (E - 1), and k = ⌊position⌋.
    The result is r[k] + (position - k) · (r[k + 1] - r[k]) in float64, each operation rounded. A position without a
    fraction gives r[k] itself. -0.0 counts as 0.0.
    """
    position = quantile * (returns.shape[1] - 1)
    k = math.floor(position)
    fraction = position - k
    # Adding 0.0 turns -0.0 into 0.0. Equal returns then have equal bits, so it does not matter how they are sorted.
    ordered = np.sort(returns + 0.0, axis=1)
    result: Float64 = ordered[:, k].copy()
    # Without a fraction, r[k] is the result, and r[k + 1] may not exist.
    if fraction:
        result += fraction * (ordered[:, k + 1] - ordered[:, k])
    result[np.isnan(returns).any(axis=1)] = np.nan
    return result


def mean_metrics(metrics: Metrics, returns: Float64) -> dict[str, Float64]:
    """Return the means [P] of metrics [P, E] over each candidate's episodes with a return; NaN without such episodes.

    returns: [P, E]. NaN for an episode that failed or was not played: it has no metrics.
    """
    played = ~np.isnan(returns)
    counts = np.count_nonzero(played, axis=1)
    means = {}
    for name, values in metrics.items():
        total = ordered_sum(np.where(played, values.astype(np.float64), 0.0))
        means[name] = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    return means


class _UserFunction:
    """A function `module:function` of the user. It receives read-only arrays, and its result is checked.

    The function does not receive candidates with a failed episode. Their fitness is NaN.
    """

    def __init__(self, setting: str) -> None:
        self._setting = setting
        self._function = import_function(setting)
        self._is_repeatable = False  # True once a second call has returned the same result

    def __call__(self, returns: Float64, metrics: Metrics, connections: Int32) -> Float64:
        fitness: Float64 = np.full(len(returns), np.nan)
        rows = np.flatnonzero(~np.isnan(returns).any(axis=1))
        if not len(rows):
            return fitness
        own_metrics = {name: read_only(values[rows]) for name, values in metrics.items()}
        arguments = read_only(returns[rows]), MappingProxyType(own_metrics), read_only(connections[rows])
        try:
            result = self._function(*arguments)
            # A run cannot be repeated if its function draws random numbers or counts its calls. So call the function
            # twice the first time. Copy its first result, because the second call may change the same array.
            first = result.copy() if isinstance(result, np.ndarray) else result
            second = first if self._is_repeatable else self._function(*arguments)
        except FAILURES as error:
            missing = error.args[0] if isinstance(error, KeyError) and error.args else None
            cure: tuple[str | Setting, ...] = ()
            if isinstance(missing, str) and missing not in own_metrics:
                cure = "\nIf it is a metric, name it: ", Setting("env.metrics", (*own_metrics, missing))
            message = f": {self._setting} raised an error:\n{describe_error(error)}"
            raise RunError(Setting("fitness"), message, *cure) from error
        # A function of the user may return anything, so check both results.
        values, second_values = (self._as_numbers(each, len(rows)) for each in (first, second))
        different = np.flatnonzero((values != second_values) & ~(np.isnan(values) & np.isnan(second_values)))
        if len(different):
            i = different[0]
            expected = f"{self._setting} to return the same numbers for the same arguments"
            got = f"{values[i]} and {second_values[i]} for candidate {rows[i]} in two calls"
            seeded = "If it draws random numbers, let it seed their generator in each call."
            raise InputError("fitness", expected, got, seeded)
        self._is_repeatable = True
        invalid = np.flatnonzero(~np.isfinite(values))
        if len(invalid):
            expected = f"{self._setting} to return finite numbers"
            raise InputError("fitness", expected, f"{values[invalid[0]]} at position {invalid[0]} of {len(rows)}")
        fitness[rows] = values
        return fitness

    def try_out(self, episodes: int, connections: int) -> None:
        """Call the function with two made-up candidates. Raise InputError for a TypeError, or if it returns no numbers.

        The function may raise other errors because of the made-up returns. They are ignored.
        """
        returns = np.arange(2.0 * episodes).reshape(2, episodes)
        try:
            with np.errstate(all="ignore"):
                result = self._function(read_only(returns), {}, read_only(np.full(2, connections, np.int32)))
        except TypeError as error:
            expected = "a function of returns, metrics and connections"
            raise InputError("fitness", expected, f"{self._setting} ({one_line(error)})") from error
        except FAILURES:
            return
        self._as_numbers(result, 2)

    def _as_numbers(self, result: Any, n: int) -> Float64:
        """Return the result [n] of the function as float64. Raises InputError unless it is n numbers."""
        try:
            values = np.asarray(result)
        except FAILURES:  # such as for nested lists of different lengths
            values = np.asarray(None)  # an array of type object, which the check below refuses
        if values.shape != (n,) or values.dtype.kind not in "fiu":
            expected = f"{self._setting} to return an array [{n}] of numbers, one for each candidate"
            got = f"{values.dtype}{list(values.shape)}" if isinstance(result, np.ndarray) else result
            raise InputError("fitness", expected, got)
        return values.astype(np.float64)


@contextmanager
def importing(name: str) -> Iterator[None]:
    """Let `check_not_importing` raise InputError in this thread while the context lasts.

    name: The environment or the function `module:name` that is imported in the context. The import must not begin runs.
    """
    outer = getattr(_IMPORTING, "name", None)  # set if the import of one such module imports another one
    _IMPORTING.name = name
    try:
        yield
    finally:
        _IMPORTING.name = outer


def check_not_importing() -> None:
    """Raise InputError if this thread is importing a module that an experiment names.

    Call it before a run begins or workers are started. The module is usually the script that began the run. So every
    process that imports it would begin the run again, or start workers again.
    """
    if name := getattr(_IMPORTING, "name", None):
        expected = "a module that begins no run and starts no workers when it is imported"
        raise InputError("experiment", expected, name, 'Put such calls below: if __name__ == "__main__":')


def import_function(setting: str) -> Callable[..., Any]:
    """Return the function `module:function` for `fitness`. Raises InputError unless it exists and takes 3 arguments."""
    module, _, name = setting.partition(":")
    expected = "a function `module:function` that can be imported"
    try:
        with importing(setting):
            function = getattr(import_user_module(module), name)
    except FAILURES as error:  # an import runs the code of the module
        cure = "Modules are looked for in the working directory and on PYTHONPATH."
        raise InputError("fitness", expected, f"{setting} ({one_line(error)})", cure) from error
    if not callable(function):
        raise InputError("fitness", expected, f"{setting}, whose type is {type(function).__name__}")
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError as error:
        expected = "a function of three arguments: returns, metrics, connections"
        raise InputError("fitness", expected, f"{setting} ({error})") from None
    except ValueError:  # some compiled functions have no signature
        pass
    return function


# A test forbids the text `np.mean` here, because the bits of its result depend on the processor. So use `getattr`.
_STATISTICS = (min, *(getattr(np, name) for name in ("min", "mean", "median")))
"""Functions of one array that a user may pass by mistake. The setting `fitness` takes their names instead."""
_EXAMPLES: dict[str, tuple[str, str, str | tuple[str, ...]]] = {
    "env": ("class or a function", "tasks.py", "tasks:Task"),
    "env.wrappers": ("class", "tasks.py", ("tasks:Wrapper",)),
    "fitness": ("function", "scores.py", "scores:function"),
}
"""Texts for errors, by setting: the expected kind of object, an example of a file, and an example of a value."""


def setting_of(definition: Callable[..., Any], key: str = "fitness") -> str:
    """Return the value `module:name` with which a setting names a function or a class.

    Args:
        definition: The function or the class.
        key: The setting, for errors: "env", "env.wrappers" or "fitness".

    Raises:
        InputError: No other process can import the object. Or it is a function of one array, such as `min`.
    """
    if key == "fitness" and definition in _STATISTICS:
        expected = "a function of returns, metrics and connections, or the name of a statistic"
        raise InputError(key, expected, definition, "Name it: ", Setting(key, definition.__name__), ".")
    module = getattr(definition, "__module__", None) or "__main__"
    name = getattr(definition, "__qualname__", "")
    full_name = f"{module}:{name}"
    current = getattr(sys.modules.get(module), name, None)
    # Another process can import the object if the module has it under this name. But `__main__` is another module in
    # each process.
    if module != "__main__" and current is definition:
        return full_name
    kind, file, example = _EXAMPLES[key]
    # After a reload, the module has another object of this name.
    if module != "__main__" and type(current) is type(definition):
        cure = "The module was loaded again, or the name has another value since. Name it: "
        setting = Setting(key, full_name if isinstance(example, str) else (full_name,))
        raise InputError(key, f"the {kind} that {module} has now", f"an earlier {name}", cure, setting, ".")
    expected = f"a {kind} at the top level of a module"
    cure = f"Put it into a module, such as {file}, because another process has to import it to resume or to verify: "
    alternative = " For use in this process alone, register it with gymnasium.register." if key == "env" else ""
    raise InputError(key, expected, definition, cure, Setting(key, example), f".{alternative}")


@dataclass(frozen=True)
class Scores:
    """The data from which the fitness of P candidates is computed.

    Attributes:
        function: The fitness function of the experiment.
        returns: [P, E], NaN for episodes that failed or were not played. During a race, later rounds are not played.
        metrics: The metrics of the episodes by name, [P, E] each.
        connections: [P], the numbers of connections.
        costs: [P], subtracted from the result of the function.
    """

    function: FitnessFunction
    returns: Float64
    metrics: Metrics
    connections: Int32
    costs: Float64

    @classmethod
    def of(cls, config: Config, returns: Float64, metrics: Metrics, connections: Int32, num_weights: int) -> "Scores":
        """Return the scores of an experiment's candidates. Each costs `connection_cost` × connections / W."""
        costs: Float64 = config.connection_cost * (connections / num_weights)
        return cls(fitness_function(config.fitness), returns, metrics, connections, costs)

    def fitness_after(self, episodes: int, candidates: NDArray[Any] | slice) -> Float64:
        """Return the fitness [n] of some candidates [n], computed from the first `episodes` of each."""
        metrics = {name: values[candidates, :episodes] for name, values in self.metrics.items()}
        values = self.function(self.returns[candidates, :episodes], metrics, self.connections[candidates])
        return values - self.costs[candidates]

    def fitness(self, played: Bool) -> Float64:
        """Return the fitness [P] from the played episodes; NaN if a candidate has not played, or has a return of NaN.

        A candidate that left the race gets at most the lowest fitness of the candidates that stayed longer, because a
        good result in few episodes may be luck.

        Args:
            played: [P, E], whether an episode was played. Each candidate plays its episodes in ascending order.
        """
        counts = np.count_nonzero(played, axis=1)
        # Without a race, all candidates have played equally many episodes.
        if counts.min() == counts.max() > 0:
            return self.fitness_after(int(counts[0]), slice(None))
        fitness = np.full(len(counts), np.nan)
        # Group the candidates by the number of played episodes, the largest number first. The lowest fitness of each
        # group is the upper bound of the next groups.
        upper_bound = np.inf
        for count in np.unique(counts)[::-1].tolist():
            if count:
                rows = np.flatnonzero(counts == count)
                fitness[rows] = np.minimum(self.fitness_after(count, rows), upper_bound)
                # `fmin` ignores the NaN of failed candidates.
                upper_bound = min(upper_bound, float(np.fmin.reduce(fitness[rows], initial=np.inf)))
        return fitness


@dataclass(frozen=True)
class Round:
    """Candidates [n], and the range of their episodes that they play together.

    These are the whole population, the remaining candidates of a race, or the next candidates of a growing population.
    """

    candidates: NDArray[Any]
    episodes: range


def first_round(options: RacingOptions, population: int, episodes: int) -> Round:
    """Return the round in which all P candidates play. Without a race it is the only round, with all E episodes."""
    return Round(np.arange(population), range(round_limits(options, episodes)[0]))


def next_round(last: Round, options: RacingOptions, scores: Scores) -> Round | None:
    """Return the round of a race after `last`; None after the final round.

    Args:
        last: The round that was played last.
        options: The settings of the race.
        scores: The scores of all P candidates so far.
    """
    played = last.episodes.stop
    later_limits = [limit for limit in round_limits(options, scores.returns.shape[1]) if limit > played]
    if not later_limits:
        return None
    racing = last.candidates
    num_remaining = max(1, round(len(racing) * options.keep))
    best_first = racing[ranking(scores.fitness_after(played, racing))]
    # Sort the candidates by number, because a rank generates neighbouring genomes together.
    return Round(np.sort(best_first[:num_remaining]), range(played, later_limits[0]))


def round_limits(options: RacingOptions, episodes: int) -> list[int]:
    """Return for each round the number of episodes that a candidate has played when the round ends."""
    return [*(limit for limit in options.rounds if limit < episodes), episodes]


def evaluate_population(
    experiment: "Experiment",
    coordinator: Coordinator,
    seed: int,
    generation: int,
    genomes: GenomeSource,
    normalizer: Float32 | None = None,
    traces: rollouts.Traces = "each",
    meanwhile: Callable[[], None] | None = None,
) -> PopulationResults:
    """Play the episodes of a generation, in several rounds if candidates race or the population grows.

    Args:
        experiment: The experiment, with the step limit of the generation.
        coordinator: Distributes the episodes.
        seed: The seed of the run.
        generation: The number of the generation, a part of the episodes' keys.
        genomes: The P candidates.
        normalizer: [2, O], None if observations are not normalized.
        traces: The traces that workers send, see `EpisodeBatch`.
        meanwhile: Called once while other ranks or threads play, see `Coordinator.evaluate`.

    Raises the errors of `Coordinator.evaluate`, and in a race the errors of the fitness function.
    """
    config = experiment.config
    P, E = len(genomes), config.episodes
    least = config.least_population
    keys = rollouts.generation_keys(generation, P, config.common_random_numbers)
    spec = experiment.rollout_spec
    # If fitness is the mean return, a worker knows its best candidate, and sends the step hashes of this one only.
    is_mean_return = config.fitness == "mean" and not config.connection_cost and not config.racing.rounds
    best_of = E if is_mean_return else 0
    # All rounds fill the same tables, so the results of earlier rounds stay.
    results = PopulationResults(P, E, spec.num_traces, traces)
    current: Round | None = first_round(config.racing, P, E) if least is None else Round(np.arange(least), range(E))
    while current is not None:
        batch = EpisodeBatch.of(
            seed, Purpose.EPISODE, genomes, keys, current.episodes, normalizer, current.candidates, traces=traces
        )
        coordinator.evaluate(spec, replace(batch, describe=True, best_of=best_of), meanwhile, results)
        meanwhile = None
        current = _round_after(current, config, genomes, results)
    return results


def _round_after(last: Round, config: Config, genomes: GenomeSource, results: PopulationResults) -> Round | None:
    """Return the round after `last`; None after the final round."""
    # If the population grows, the next candidates play, until the generation has enough steps.
    if config.least_population is not None and config.num_interactions is not None:
        first, P = int(last.candidates[-1]) + 1, len(genomes)
        if first == P or int(results.lengths.sum(dtype=np.int64)) >= config.num_interactions:
            return None
        return Round(np.arange(first, min(first + config.least_population, P)), last.episodes)
    if last.episodes.stop == config.episodes:
        return None
    # In a race, the best candidates play the next episodes.
    connections = results.descriptions(genomes).connections
    metrics = results.metrics(config.env.metrics)
    scores = Scores.of(config, results.returns, metrics, connections, genomes.num_weights)
    return next_round(last, config.racing, scores)
