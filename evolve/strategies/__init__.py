"""Search strategies: `ask` returns the genomes of a generation, and `tell` takes the fitness that they reached.

`STRATEGIES` is the registry of subclasses of `Strategy`. All pass the same conformance suite. A strategy knows nothing
of networks and environments, so it can also maximize any function of a vector:

    strategy = make("openai-es", genome_size=100)
    state = strategy.start()
    genomes = strategy.ask(state, generation=0)
    fitness = …  # [P], the value of the function for each row of genomes.weights [P, W]
    state = strategy.tell(state, genomes, Results(fitness))

Read the contract in `strategy` first, then the strategies in `elitist`.
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
from evolve.config.registry import foreign_names
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

# Limits of `check`, the check of a strategy of another package.
_MAX_CHECKED_GENERATIONS = 8
_CHECKED_CANDIDATES = 16  # of a generation
_MAX_CHECK_SECONDS = 1.0  # after this time, a slow strategy plays no further generation
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


def portable(section: Section) -> bool:
    """Return whether the strategy that `[strategy]` names gives the same bits on every machine."""
    # In another package the kind may be a function that makes the strategy, without this attribute.
    return bool(getattr(STRATEGIES.kind(section), "portable", False))


def is_added(section: Section) -> bool:
    """Return whether another package adds the strategy that `[strategy]` names."""
    # Lenient, because the package may be missing on this machine, as when two run files are compared.
    return STRATEGIES.parse(section, lenient=True).name not in STRATEGIES.kinds


def bytes_per_weight(section: Section, layout: GenomeLayout, population: int) -> int:
    """Return the estimated memory, in bytes per weight, that a rank needs for the strategy that `[strategy]` names.

    The estimate is 40 bytes per weight for a genome, and 256 for a centre with its sums.
    """
    strategy = from_table(section, layout, population, 0)
    if not runs_on_every_rank(strategy, layout.num_traces):
        return 40 * population  # rank 0 computes all candidates
    if strategy.sum_shape is not None:
        return 256  # a rank keeps a centre and sums; their size does not depend on the population
    with STRATEGIES.as_input_error(section, "capacity"):
        # A rank keeps the genomes of a state, such as an elite. Without a capacity, assume one genome per candidate.
        return 40 * operator.index(strategy.capacity or population)


def shared_mask(section: Section) -> bool:
    """Return whether the strategy that `[strategy]` names gives all candidates the same connections."""
    return bool(getattr(STRATEGIES.kind(section), "shared_mask", False))


def choosing_generations(section: Section) -> int:
    """Return the number of generations until the best of several starts goes on alone; 0 with one start."""
    options = STRATEGIES.parse(section).options
    return options.choosing_generations if isinstance(options, StartOptions) and options.starts > 1 else 0


def searches(section: Section, fitness: Sequence[Float64]) -> list[tuple[int, str]]:
    """Return the first generation and the kind of each search of a run, except the first search.

    The kind is a text, such as "start 2", "restart", "round 2" or "control".

    Args:
        section: The name of the strategy and its options.
        fitness: The fitness of all candidates, for each generation.
    """
    options = STRATEGIES.parse(section).options
    rounds = options if isinstance(options, PruningOptions) else PruningOptions()
    every = rounds.pruning_every or max(1, len(fitness))  # without rounds of pruning, the whole run is one round
    begun = []
    # A round, or its control, plays the generations from `first` to `stop` - 1. It may consist of several starts.
    for number, first in enumerate(range(0, len(fitness), every)):
        stop = min(first + every, len(fitness))
        if number:
            searches_per_round = 2 if rounds.pruning_control else 1
            round_title = f"round {number // searches_per_round + 1}"
            begun.append((first, "control" if rounds.is_control(number) else round_title))
        for generation, kind in beginnings(options, fitness[first:stop]):
            # A start or restart after the last generation of the round plays no generation.
            if first + generation < stop:
                begun.append((first + generation, kind))
    return begun


def from_table(
    section: Section, layout: GenomeLayout, population: int, seed: int, start: Genomes | None = None
) -> Strategy[Any]:
    """Return the strategy that the table `[strategy]` describes, with its restarts, starts and rounds.

    Args:
        section: The name of the strategy and its options, validated or not.
        layout: The layout of the genomes, most often a network.
        population: P, the candidates of a generation.
        seed: The seed of the experiment.
        start: The genome (P = 1) with which the search begins; None for initial genomes of the layout.

    Raises:
        InputError: The section has a wrong name or option. Or there is a start, but the strategy, or its control of
            pruning, cannot begin with a given genome.
    """
    choice = STRATEGIES.parse(section)
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
        strategy: Strategy[Any] = PruningRounds(for_layout, options, layout, seed)
    else:
        strategy = for_layout(layout)
    if start is not None and not strategy.warm_starts:
        expected = "a strategy that can begin with a given genome (Strategy.warm_starts)"
        cure = f"These can: {', '.join(STRATEGIES)}, and strategies of other packages with warm_starts = True."
        raise InputError("strategy.name", expected, choice.name, cure)
    if start is not None and is_added(choice):
        with STRATEGIES.as_input_error(choice, "start"):
            if strategy.champion(strategy.start()) != start:
                raise ValueError("the champion of the first state is not the given genome")
    return strategy


def _for_layout(choice: Choice, population: int, seed: int, layout: GenomeLayout) -> Strategy[Any]:
    """Return a strategy with its restarts and starts. This function can be pickled, unlike a closure."""
    return wrapped(STRATEGIES.make(choice, layout, population, seed), choice.options)


def check(
    section: Section,
    make: Callable[[], Strategy[Any]],
    layout: GenomeLayout,
    population: int,
    metrics: Sequence[str] = (),
    generations: int = _MAX_CHECKED_GENERATIONS + 1,
) -> None:
    """Call the methods of a strategy of another package, and make the checks that `guarded` does not make.

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

    def weights_of_last(state: Any, generation: int) -> bytes:
        """Return the weights of the last candidate, asked alone."""
        return ask_last(state, generation).weights.tobytes()

    def checked_weights(state: Any, generation: int) -> bytes:
        """Return the same weights. Raise InputError if they depend on the call, or on the other candidates in it."""
        weights = weights_of_last(state, generation)
        first, second = (ask_last(state, generation, _CHECKED_CANDIDATES) for _ in range(2))
        with STRATEGIES.as_input_error(section, "ask"):
            if first != second or first.weights[-1].tobytes() != weights:
                raise ValueError("a second call gives a candidate other weights; draw from Stream only")
        return weights

    # Generation 0, with made-up results.
    start = strategy.start()
    weights_0 = checked_weights(start, 0)
    results = _made_up_results(section, strategy, layout, population, metrics, start, ask_last(start, 0))
    genomes = AskedGenomes(strategy, start, 0, population, W)
    state = strategy.tell(start, genomes, results)
    # `AskedGenomes` calls `ask` with the old state even after `tell`, for the log. So `tell` must not change it.
    with STRATEGIES.as_input_error(section, "tell"):
        if weights_of_last(start, 0) != weights_0:
            raise ValueError("after tell, ask gives other genomes for the same state; return a new state instead")
    strategy.champion(state)
    with STRATEGIES.as_input_error(section, "outcome"):
        if unknown := set(strategy.outcome(state)) - {"front", "archive"}:
            raise ValueError(f"expected front or archive, got {', '.join(map(str, unknown))}")
    # Generation 1 must not depend on whether `tell` was called again, or the state was stored and read.
    weights_1 = checked_weights(state, 1)
    with STRATEGIES.as_input_error(section, "tell"):
        if weights_of_last(strategy.tell(start, genomes, results), 1) != weights_1:
            raise ValueError("a second call with the same results gives other candidates; draw from Stream only")
    with STRATEGIES.as_input_error(section, "to_arrays or from_arrays"):
        if weights_of_last(strategy.from_arrays(strategy.to_arrays(state)), 1) != weights_1:
            raise ValueError("the state that was read back gives other candidates")
        _check_resumed(make, population, W, results, min(generations - 1, _MAX_CHECKED_GENERATIONS))


def _check_resumed(
    make: Callable[[], Strategy[Any]], population: int, W: int, results: Results, generations: int
) -> None:
    """Raise ValueError unless a run that is resumed after every generation has the candidates of a run without a stop.

    A resumed run makes a new strategy, which reads the state. So the runs differ if a strategy keeps something outside
    of its state, such as an archive in an attribute.

    Args:
        make: Returns a new strategy.
        population: P.
        W: The number of weights.
        results: Valid results of a generation. The check replaces all but the traces by made-up numbers.
        generations: The largest number of generations to play. A slow strategy plays fewer, but at least two.
    """
    end = time.perf_counter() + _MAX_CHECK_SECONDS
    candidates = np.arange(population)[-_CHECKED_CANDIDATES:]
    whole, resumed = make(), make()
    state, resumed_state = whole.start(), resumed.start()
    for generation in range(generations):
        if generation >= 2 and time.perf_counter() > end:
            break
        # Both runs get the same made-up results.
        numbers = Stream(0, Purpose.CHECK, generation)
        fitness = numbers.uniform(population)
        sums = None if results.sums is None else whole.sums(state, generation, fitness, slice(0, W))
        measures = None if results.measures is None else numbers.uniform(*results.measures.shape)
        made_up = replace(results, fitness=fitness, sums=sums, measures=measures)
        state = whole.tell(state, AskedGenomes(whole, state, generation, population, W), made_up)
        resumed_genomes = AskedGenomes(resumed, resumed_state, generation, population, W)
        arrays = resumed.to_arrays(resumed.tell(resumed_state, resumed_genomes, made_up))
        resumed = make()
        resumed_state = resumed.from_arrays(arrays)
        asked = whole.ask(state, generation + 1, candidates)
        resumed_asked = resumed.ask(resumed_state, generation + 1, candidates)
        if asked != resumed_asked or whole.champion(state) != resumed.champion(resumed_state):
            raise ValueError(
                "a resumed run has other candidates or another champion; keep all that tell changes in the state"
            )


def guarded(
    section: Section, layout: GenomeLayout, population: int, seed: int, start: Genomes | None = None
) -> Strategy[Any]:
    """Return the strategy of a run, made by `from_table`. If another package adds the strategy, guard its methods.

    A guarded method raises an InputError with its name if it fails, or if its result cannot be played or stored. So no
    invalid result gets into the run file. The exception is `from_arrays`, which `training.resume` checks.
    """
    strategy = from_table(section, layout, population, seed, start)
    if not is_added(section):
        return strategy
    W = layout.num_weights

    def guard(name: str, checked: Callable[..., Any] | None = None) -> None:
        """Replace a method of the strategy. `checked` gets its result and its arguments, and returns the result."""
        method = getattr(strategy, name)

        def guarded_method(*arguments: Any, **keywords: Any) -> Any:
            with STRATEGIES.as_input_error(section, name):
                result = method(*arguments, **keywords)
                return result if checked is None else checked(result, *arguments, **keywords)

        # An attribute of the instance hides the method of the class, so calls inside the strategy are checked, too.
        object.__setattr__(strategy, name, guarded_method)  # the strategy may be a frozen data class

    # The strategy itself may call its methods with keywords, so the parameters have the names of `Strategy`.
    def checked_ask(genomes: Any, state: Any, generation: int, candidates: Any = None) -> Genomes:
        return check_genomes(genomes, population if candidates is None else len(candidates), W)

    def checked_tell(next_state: Any, state: Any, genomes: Any, results: Any) -> Any:
        if next_state is None and state is not None:
            raise TypeError("expected the next state, got None; end tell with: return state")
        return next_state

    guard("ask", checked_ask)
    guard("tell", checked_tell)
    guard("champion", lambda genomes, state: check_genomes(genomes, 1, W))
    guard("to_arrays", lambda arrays, state: _check_arrays(arrays))
    # The results of these methods are not checked here, but their exceptions become InputErrors, too.
    for name in ("start", "sums", "measures", "outcome", "survivors", "select", "origin", "champion_generation"):
        guard(name)
    return strategy


def _check_arrays(arrays: Any) -> Any:
    """Return the arrays of a state. Raise TypeError or ValueError unless messages and run files can hold them."""
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
    return arrays


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
    """Return results for `tell`. Raise InputError if the strategy's traces, sums or measures are invalid.

    genome: A candidate (P = 1) to compute measures of.
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
            shape, expected = np.shape(strategy.sums(state, 0, fitness, slice(0, 1))), sums[:1].shape
            if shape != expected:
                raise ValueError(f"expected an array of shape {list(expected)} for one column, got {list(shape)}")
    with STRATEGIES.as_input_error(section, "measures"):
        if D := len(strategy.measured):
            measures = np.zeros((population, D))
            measures_of_one = strategy.measures(genome, _Metrics.fromkeys(metrics, np.zeros(1)))
            check_shape(measures_of_one, "measures", "P D", np.float64, P=1, D=D)
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
    """Return a strategy for a program that calls `ask` and `tell`, and evaluates the genomes in its own way.

    Args:
        name: A strategy in `STRATEGIES`, or a strategy of another package.
        genome_size: W, for genomes that are vectors with initial weights N(0, 1).
        layout: The layout of other genomes, in place of `genome_size`: a `VectorLayout`, a network or your own.
        population: P, the number of candidates of a generation, at least 2.
        seed: The seed of all random numbers of the search.
        x0: The vector with which the search begins, [W] numbers, or a genome such as `policy.genome`. With `x0`,
            `genome_size` is not needed. `x0` is the first centre of an evolution strategy. In other strategies, `x0` is
            candidate 0 of generation 0. The other candidates are mutants of `x0`; with `random`, they are random
            vectors. By default the search begins with random vectors.
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
        # The annotations do not tell the type checker that there is a size here, and that it may be an array.
        size: Any = genome_size
        if np.ndim(size):
            raise InputError("genome_size", "a whole number", "an array", "A vector to begin with is x0=….")
        layout = VectorLayout(size)
    elif not hasattr(layout, "num_weights"):
        raise InputError("layout", "a network, or another layout of genomes, such as VectorLayout", repr(layout))
    if start is not None and start.num_weights != layout.num_weights:
        raise InputError("x0", f"{layout.num_weights:,} numbers, the size of a genome", f"{start.num_weights:,}")
    population, seed = check_whole("population", population, 2), check_whole("seed", seed, 0)
    # The registry takes the types of TOML, so convert tuples and NumPy's numbers.
    section = plain({"name": name, **options})
    # Other libraries call the population popsize, for example. Here it is an argument, and no setting.
    for option in options:
        if foreign_names().get(fold(option)) == "population":
            raise InputError(
                f"strategy.{option}", "a setting that the strategy has", option, "Did you mean population?"
            )
    # Refuse settings without effect, as in a new run.
    STRATEGIES.validate(section, layout)
    return from_table(section, layout, population, seed, start)
