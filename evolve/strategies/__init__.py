"""Search strategies: `ask` returns the genomes of a generation, and `tell` takes the fitness that they reached.

`STRATEGIES` is the registry of subclasses of `Strategy`. All pass the same conformance suite. A strategy knows nothing
of networks and environments, so it can also maximize any function of a vector:

    strategy = make("openai-es", genome_size=100)
    state = strategy.start()
    genomes = strategy.ask(state, generation=0)
    fitness = …  # [P] float64, of genomes.weights [P, W]
    state = strategy.tell(state, genomes, Results(fitness))
"""

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from evolve.config import Choice, ImportedOnDemand, Kind, Registry, Section, plain
from evolve.config.options import fold
from evolve.config.registry import meanings
from evolve.errors import InputError, Setting, check_whole
from evolve.genome import GenomeLayout, Genomes, VectorLayout, check_genomes, one_genome
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Float64, check_shape
from evolve.strategies.pruning_schedules import PruningOptions, PruningRounds
from evolve.strategies.strategy import (
    AskedGenomes,
    Results,
    StartLayout,
    Strategy,
    best_candidate,
    initial_genomes,
    ranking,
    runs_on_every_rank,
    wanted_traces,
)
from evolve.strategies.wrapper import StartOptions, beginnings, wrapped

__all__ = [
    "STRATEGIES", "AskedGenomes", "Results", "Strategy", "VectorLayout", "best_candidate", "bytes_per_weight",
    "choosing_generations", "from_table", "guarded", "initial_genomes", "is_added", "make", "portable", "ranking",
    "runs_on_every_rank", "searches", "shared_mask", "wanted_traces",
]  # fmt: skip

# Limits of the check of a strategy of another package: the generations, the candidates of a generation, and the seconds
# after which a slow strategy plays no further generation.
_MOST_CHECKED, _CHECKED_CANDIDATES, _RESUMED_SECONDS = 8, 16, 1.0
_PROPOSALS = {
    "openes": "openai-es", "es": "openai-es", "ars": "openai-es", "nes": "openai-es", "pepg": "pgpe", "cma": "cma-es",
    "xnes": "cma-es", "simplega": "ga", "genetic": "ga", "geneticalgorithm": "ga", "steadystatega": "ga",
    "deepga": "ga", "randomsearch": "random", "neat": "prune", "nsgaii": "nsga2", "nsga3": "nsga2", "moea": "nsga2",
    "mapelites": "map-elites", "cmaesme": "map-elites", "cmame": "map-elites", "qd": "map-elites",
}  # fmt: skip
"""The strategy that an error proposes for the name of a strategy in another tool."""

STRATEGIES = Registry(
    "strategy",
    ImportedOnDemand[Kind](
        __name__,
        {
            "cma-es": ("cma", "CmaOptions", "Cma"),
            "ga": ("elitist", "GaOptions", "Ga"),
            "umda": ("elitist", "UmdaOptions", "Umda"),
            "map-elites": ("map_elites", "MapElitesOptions", "MapElites"),
            "nsga2": ("nsga2", "Nsga2Options", "Nsga2"),
            "openai-es": ("openai_es", "OpenAiEsOptions", "OpenAiEs"),
            "pgpe": ("search_gradients", "PgpeOptions", "Pgpe"),
            "prune": ("prune", "PruneOptions", "Prune"),
            "random": ("elitist", "RandomOptions", "Random"),
            "snes": ("search_gradients", "SnesOptions", "Snes"),
            "sep-cma-es": ("cma", "SepCmaOptions", "SepCma"),
        },
    ),
    Strategy,
    aliases={"mk2": "umda"},  # its name in runs of earlier versions
    proposals=_PROPOSALS,
)


def portable(table: Section) -> bool:
    """Return whether the strategy that `[strategy]` names gives the same bits on every machine."""
    return bool(getattr(STRATEGIES.kind(table), "portable", False))  # a kind of another package may be a function


def is_added(section: Section) -> bool:
    """Return whether another package adds the strategy that `[strategy]` names."""
    # Lenient, because the package may be missing here, as when two run files are compared.
    return STRATEGIES.parse(section, lenient=True).name not in STRATEGIES.kinds


def bytes_per_weight(table: Section, layout: GenomeLayout, population: int) -> int:
    """Return the estimated memory, in bytes per weight, that a rank needs for the strategy that `[strategy]` names.

    The estimate is 40 bytes per weight for a genome, and 256 for a centre with its sums.
    """
    strategy = from_table(table, layout, population, 0)
    if not runs_on_every_rank(strategy, layout.num_traces):
        return 40 * population  # rank 0 computes all candidates
    if strategy.sum_shape is not None:
        return 256  # a rank keeps a centre and sums, whose size does not depend on the population
    with STRATEGIES.as_input_error(table, "capacity"):
        # A rank keeps the genomes of a state, such as an elite.
        return 40 * operator.index(strategy.capacity or population)


def shared_mask(table: Section) -> bool:
    """Return whether the strategy that `[strategy]` names gives all candidates the same connections."""
    return bool(getattr(STRATEGIES.kind(table), "shared_mask", False))


def choosing_generations(table: Section) -> int:
    """Return the number of generations until the best of several starts goes on alone; 0 with one start."""
    options = STRATEGIES.parse(table).options
    return options.choosing_generations if isinstance(options, StartOptions) and options.starts > 1 else 0


def searches(table: Section, fitness: Sequence[Float64]) -> list[tuple[int, str]]:
    """Return the first generation and the kind of each search of a run, except the first search.

    The kind is a text, such as "start 2", "restart", "round 2" or "control".

    Args:
        table: The name of the strategy and its options.
        fitness: The fitness of all candidates, for each generation.
    """
    options = STRATEGIES.parse(table).options
    rounds = options if isinstance(options, PruningOptions) else PruningOptions()
    every = rounds.pruning_every or max(1, len(fitness))  # without rounds of pruning, the whole run is one round
    found = []
    for number, first in enumerate(range(0, len(fitness), every)):
        last = min(first + every, len(fitness))
        if number:
            searches_per_round = 2 if rounds.pruning_control else 1
            round_title = f"round {number // searches_per_round + 1}"
            found.append((first, "control" if rounds.is_control(number) else round_title))
        # A start or restart after the last generation of a round, or of the run, plays no generation.
        inner = beginnings(options, fitness[first:last])
        found += [(first + generation, kind) for generation, kind in inner if first + generation < last]
    return found


def from_table(
    table: Section, layout: GenomeLayout, population: int, seed: int, start: Genomes | None = None
) -> Strategy[Any]:
    """Return the strategy that a `[strategy]` table describes, with its restarts, starts and rounds.

    Args:
        table: The name of the strategy and its options, validated or not.
        layout: The layout of the genomes, most often a network.
        population: P, the candidates of a generation.
        seed: The seed of the experiment.
        start: The genome (P = 1) with which the search begins; None for initial genomes of the layout.

    Raises:
        InputError: The table has a wrong name or option. Or there is a start, but the strategy, or its control of
            pruning, cannot begin with a given genome.
    """
    choice = STRATEGIES.parse(table)
    options = choice.options
    if start is not None:
        # A strategy draws its initial genomes from the layout, so every search begins with the given genome.
        layout = StartLayout(layout, start)

    for_layout = partial(_for_layout, choice, population, seed)
    # Rounds of pruning are outermost, because each round makes a new strategy, for the remaining connections.
    if isinstance(options, PruningOptions) and options.pruning_every:
        if start is not None and options.pruning_control:
            expected = "false if the search begins with a given genome, because the control needs other weights"
            raise InputError("strategy.pruning_control", expected, True)
        made: Strategy[Any] = PruningRounds(for_layout, options, layout, seed)
    else:
        made = for_layout(layout)
    if start is not None and not made.warm_starts:
        expected = "a strategy that can begin with a given genome (Strategy.warm_starts)"
        able = f"These can: {', '.join(STRATEGIES)}, and strategies of other packages with warm_starts = True."
        raise InputError("strategy.name", expected, choice.name, able)
    if start is not None and is_added(choice):
        with STRATEGIES.as_input_error(choice, "start"):
            if made.champion(made.start()) != start:
                raise ValueError("the champion of the first state is not the given genome")
    return made


def _for_layout(choice: Choice, population: int, seed: int, layout: GenomeLayout) -> Strategy[Any]:
    """Return a strategy with its restarts and starts. This function can be pickled, unlike a closure."""
    return wrapped(STRATEGIES.make(choice, layout, population, seed), choice.options)


def check(
    section: Section,
    make: Callable[[], Strategy[Any]],
    layout: GenomeLayout,
    population: int,
    metrics: Sequence[str] = (),
    generations: int = _MOST_CHECKED + 1,
) -> None:
    """Call the methods of a strategy of another package, and check results that `guarded` does not check.

    Args:
        section: The section of the experiment that names the strategy. Nothing is checked for a built-in one.
        make: Returns a new strategy that the section describes (`guarded`).
        layout: The layout of the genomes.
        population: P.
        metrics: The metrics that episodes report.
        generations: The number of generations of the run.

    Raises:
        InputError: A method raises an exception, returns a wrong type or shape, or reads a metric that episodes do not
            report. Or a candidate has other bits in a second call, after `tell`, or in a new strategy that has read the
            stored state.
    """
    if not is_added(section):
        return
    strategy, W = make(), layout.num_weights

    def ask_last(state: Any, generation: int, n: int = 1) -> Genomes:
        """Return the last n candidates, or all if there are fewer."""
        return strategy.ask(state, generation, np.arange(population)[-n:])

    def ask_twice(state: Any, generation: int) -> bytes:
        """Return the weights of the last candidate, which must not depend on the other candidates in the call."""
        asked = ask_last(state, generation).weights.tobytes()
        first, second = (ask_last(state, generation, _CHECKED_CANDIDATES) for _ in range(2))
        with STRATEGIES.as_input_error(section, "ask"):
            if first != second or first.weights[-1].tobytes() != asked:
                raise ValueError("a second call gives a candidate other weights; draw from Stream only")
        return asked

    state = strategy.start()
    # Generation 0, with made-up results.
    asked = ask_twice(state, 0)
    results = _made_up_results(section, strategy, layout, population, metrics, state, ask_last(state, 0))
    # `AskedGenomes` calls `ask` with the old state even after `tell`, for the log. So `tell` must not change it.
    genomes = AskedGenomes(strategy, state, 0, population, W)
    before, state = state, strategy.tell(state, genomes, results)
    with STRATEGIES.as_input_error(section, "tell"):
        if ask_last(before, 0).weights.tobytes() != asked:
            raise ValueError("after tell, ask gives other genomes for the same state; return a new state instead")
    strategy.champion(state)
    with STRATEGIES.as_input_error(section, "outcome"):
        if unknown := set(strategy.outcome(state)) - {"front", "archive"}:
            raise ValueError(f"expected front or archive, got {', '.join(map(str, unknown))}")
    following = ask_twice(state, 1)
    with STRATEGIES.as_input_error(section, "tell"):
        if ask_last(strategy.tell(before, genomes, results), 1).weights.tobytes() != following:
            raise ValueError("a second call with the same results gives other candidates; draw from Stream only")
    with STRATEGIES.as_input_error(section, "to_arrays or from_arrays"):
        read = strategy.from_arrays(strategy.to_arrays(state))
        if ask_last(read, 1).weights.tobytes() != following:
            raise ValueError("the state that was read back gives other candidates")
        _check_resumed(make, population, W, results, min(generations - 1, _MOST_CHECKED))


def _check_resumed(
    make: Callable[[], Strategy[Any]], population: int, W: int, results: Results, generations: int
) -> None:
    """Raise ValueError unless a run that is resumed after each of some generations has the same candidates.

    A resumed run makes a new strategy, which reads the state. So the runs differ if a strategy keeps something outside
    of its state, such as an archive in an attribute.

    Args:
        make: Returns a new strategy.
        population: P.
        W: The number of weights.
        results: Valid results of a generation. The check replaces all but the traces by made-up numbers.
        generations: The largest number of generations to play. A slow strategy plays fewer, but at least two.
    """
    end = time.perf_counter() + _RESUMED_SECONDS
    whole, resumed = make(), make()
    state, read = whole.start(), resumed.start()
    for generation in range(generations):
        if generation >= 2 and time.perf_counter() > end:
            break
        numbers = Stream(0, Purpose.CHECK, generation)
        fitness, measures = numbers.uniform(population), results.measures
        sums = None if results.sums is None else whole.sums(state, generation, fitness, slice(0, W))
        measures = None if measures is None else numbers.uniform(*measures.shape)
        made_up = replace(results, fitness=fitness, sums=sums, measures=measures)
        state = whole.tell(state, AskedGenomes(whole, state, generation, population, W), made_up)
        read = resumed.tell(read, AskedGenomes(resumed, read, generation, population, W), made_up)
        arrays = resumed.to_arrays(read)
        resumed = make()
        read = resumed.from_arrays(arrays)
        candidates = np.arange(population)[-_CHECKED_CANDIDATES:]
        asked = [each.ask(at, generation + 1, candidates) for each, at in ((whole, state), (resumed, read))]
        if asked[0] != asked[1] or whole.champion(state) != resumed.champion(read):
            raise ValueError(
                "a resumed run has other candidates or another champion; keep all that tell changes in the state"
            )


def guarded(
    section: Section, layout: GenomeLayout, population: int, seed: int, start: Genomes | None = None
) -> Strategy[Any]:
    """Return the strategy of a run: `from_table` makes it. Errors of a strategy of another package are InputErrors.

    A method of such a strategy raises an InputError that names it if it fails, or if its result cannot be played or
    stored. So no invalid result gets into the log. The exception is `from_arrays`, which `training.resume` checks.
    """
    strategy = from_table(section, layout, population, seed, start)
    if not is_added(section):
        return strategy
    W = layout.num_weights

    def guard(name: str, check: Callable[..., Any] | None = None) -> None:
        method = getattr(strategy, name)

        def call(*given: Any, **named: Any) -> Any:
            with STRATEGIES.as_input_error(section, name):
                result = method(*given, **named)
                return result if check is None else check(result, *given, **named)

        # An attribute of the instance hides the method of the class, so calls inside the strategy are checked, too.
        object.__setattr__(strategy, name, call)  # the strategy may be a frozen data class

    # The strategy itself may call its methods with keywords, so the parameters have the names of `Strategy`.
    def asked(genomes: Any, state: Any, generation: int, candidates: Any = None) -> Genomes:
        return check_genomes(genomes, population if candidates is None else len(candidates), W)

    def next_state(after: Any, state: Any, genomes: Any, results: Any) -> Any:
        if after is None and state is not None:
            raise TypeError("expected the next state, got None; end tell with: return state")
        return after

    def stored(arrays: Any, state: Any) -> Any:
        _check_arrays(arrays)
        return arrays

    guard("ask", asked)
    guard("tell", next_state)
    guard("champion", lambda genomes, state: check_genomes(genomes, 1, W))
    guard("to_arrays", stored)
    # Only the exceptions of these methods are caught here.
    unchecked = ("start", "sums", "measures", "outcome", "survivors", "select", "origin", "champion_generation")
    for name in unchecked:
        guard(name)
    return strategy


def _check_arrays(arrays: Any) -> None:
    """Raise TypeError or ValueError unless the arrays of a state can be sent to workers and stored in a run file."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"expected a dictionary of arrays, got {type(arrays).__name__}")
    for name, array in arrays.items():
        # Only these types fit in messages to workers and in files.
        fits = isinstance(array, np.ndarray) and array.dtype.kind in "biuf" and array.dtype.itemsize <= 8
        if not (isinstance(name, str) and name and fits and array.dtype.isnative):
            got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(f"expected arrays of numbers by name, got {name!r}: {got}")
        if "/" in name or not name.strip("."):  # HDF5 would take such a name for a group
            raise ValueError(f"expected names without /, got {name!r}")


class _Metrics(dict[str, Float64]):
    """Metrics by name. Raises InputError for a metric that the experiment does not name."""

    def __missing__(self, name: str) -> Float64:
        expected = f"{name} among the metrics, because `measures` of the strategy reads it"
        raise InputError("env.metrics", expected, list(self), "Name it: ", Setting("env.metrics", (*self, name)), ".")


def _made_up_results(
    section: Section,
    strategy: Strategy[Any],
    layout: GenomeLayout,
    population: int,
    metrics: Sequence[str],
    state: Any,
    genome: Genomes,
) -> Results:
    """Return results for `tell`, and check what the strategy needs for them: traces, sums and measures.

    genome: A candidate (P = 1), whose measures are checked.
    """
    W, T = layout.num_weights, layout.num_traces
    with STRATEGIES.as_input_error(section, "traces"):
        if strategy.traces not in ("each", "mean", "none"):
            raise ValueError(f"expected each, mean or none, got {strategy.traces}")
    fitness, sums, measures = np.arange(population, dtype=np.float64), None, None
    with STRATEGIES.as_input_error(section, "sums"):
        if strategy.sum_shape is not None:
            sums = np.zeros((W, *strategy.sum_shape))
            # A rank may ask for the sums of any columns, so one column is enough to check the shape.
            found, expected = np.shape(strategy.sums(state, 0, fitness, slice(0, 1))), sums[:1].shape
            if found != expected:
                raise ValueError(f"expected an array of shape {list(expected)} for one column, got {list(found)}")
    with STRATEGIES.as_input_error(section, "measures"):
        if D := len(strategy.measured):
            measures = np.zeros((population, D))
            of_one = strategy.measures(genome, _Metrics.fromkeys(metrics, np.zeros(1)))
            check_shape(of_one, "measures", "P D", np.float64, P=1, D=D)
    # The traces that the strategy declares: a row for each candidate, the mean, or none.
    traces = np.zeros((population if strategy.traces == "each" else 0, T), np.float32)
    return Results(fitness, traces, np.zeros(T) if strategy.traces == "mean" else None, sums, measures)


def make(
    name: str,
    genome_size: int | None = None,
    *,
    layout: GenomeLayout | None = None,
    population: int = 64,
    seed: int = 0,
    x0: Any = None,
    **options: Any,
) -> Strategy[Any]:
    """Return a strategy for callers of `ask` and `tell`, who may evaluate the genomes in any way.

    Args:
        name: A strategy in `STRATEGIES`, or a strategy of another package.
        genome_size: W, for genomes that are vectors with initial weights N(0, 1).
        layout: The layout of other genomes, in place of `genome_size`: a `VectorLayout`, a network or your own.
        population: P, the number of candidates of a generation, at least 2.
        seed: The seed of all random numbers of the search.
        x0: The vector with which the search begins, [W] numbers, or a genome such as `policy.genome`. With `x0`,
            `genome_size` is not needed. `x0` is the first centre of an evolution strategy. In other strategies, it is
            candidate 0 of generation 0. The other candidates are mutants of it; with `random`, they are random vectors.
            By default the search begins with random vectors.
        **options: The settings of the strategy, such as `sigma`; all others have their defaults.

    Raises:
        InputError: A name, an option or a size is wrong; the message names it.
    """
    start = None if x0 is None else one_genome(x0, "x0")
    if layout is None and genome_size is None and start is not None:
        genome_size = start.num_weights
    if (layout is None) == (genome_size is None):
        raise InputError("genome_size", "either genome_size or a layout", "both" if layout is not None else "neither")
    if layout is None:
        given: Any = genome_size
        if np.ndim(given):
            raise InputError("genome_size", "a whole number", "an array", "A vector to begin with is x0=….")
        # `or 0` is for the type checker, which does not know that there is a size here. `VectorLayout` refuses 0.
        layout = VectorLayout(genome_size or 0)
    elif not hasattr(layout, "num_weights"):
        raise InputError("layout", "a network, or another layout of genomes, such as VectorLayout", repr(layout))
    if start is not None and start.num_weights != layout.num_weights:
        raise InputError("x0", f"{layout.num_weights:,} numbers, the size of a genome", f"{start.num_weights:,}")
    population, seed = check_whole("population", population, 2), check_whole("seed", seed, 0)
    # The registry takes the types of TOML, so convert tuples and NumPy's numbers.
    table = plain({"name": name, **options})
    for option in options:
        if meanings().get(fold(option)) == "population":
            raise InputError(
                f"strategy.{option}", "a setting that the strategy has", option, "Did you mean population?"
            )
    # Refuse settings without effect, as in a new run.
    STRATEGIES.validate(table, layout)
    return from_table(table, layout, population, seed, start)
