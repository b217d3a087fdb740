"""Search strategies: `ask` returns the genomes of a generation, and `tell` takes in the fitness that they reached.

`STRATEGIES` is the registry. Each entry is one file with a subclass of `Strategy` (see `strategy`), and every
entry passes the same conformance suite. A strategy knows nothing of networks and environments; `make` returns one that
searches any function of a vector:

    strategy = make("openai-es", genome_size=100)
    state = strategy.start()
    genomes = strategy.ask(state, generation=0)
    fitness = …  # [P] float64, of genomes.weights [P, W]
    state = strategy.tell(state, genomes, Results(fitness))
"""

from typing import Any

from evolve.config import Registry, Section
from evolve.errors import InputError, check_whole
from evolve.genome import GenomeLayout
from evolve.strategies.cma import Cma, CmaOptions
from evolve.strategies.elitist import Ga, GaOptions, Random, RandomOptions, Umda, UmdaOptions
from evolve.strategies.openai_es import OpenAiEs, OpenAiEsOptions
from evolve.strategies.pgpe import Pgpe, PgpeOptions
from evolve.strategies.prune import Prune, PruneOptions
from evolve.strategies.pruning_rounds import with_pruning_rounds
from evolve.strategies.sep_cma import SepCma, SepCmaOptions
from evolve.strategies.strategy import (
    AskedGenomes,
    Results,
    Strategy,
    initial_genomes,
    is_made_anywhere,
    ranking,
    wanted_traces,
)
from evolve.strategies.vector_layout import VectorLayout
from evolve.strategies.wrapper import with_restarts, with_starts

__all__ = [
    "STRATEGIES",
    "AskedGenomes",
    "Results",
    "Strategy",
    "VectorLayout",
    "bytes_per_weight",
    "from_table",
    "initial_genomes",
    "is_made_anywhere",
    "make",
    "portable",
    "ranking",
    "shared_mask",
    "wanted_traces",
]

STRATEGIES = Registry(
    "strategy",
    {
        "cma-es": (CmaOptions, Cma),
        "ga": (GaOptions, Ga),
        "umda": (UmdaOptions, Umda),
        "openai-es": (OpenAiEsOptions, OpenAiEs),
        "pgpe": (PgpeOptions, Pgpe),
        "prune": (PruneOptions, Prune),
        "random": (RandomOptions, Random),
        "sep-cma-es": (SepCmaOptions, SepCma),
    },
    Strategy,
    aliases={"mk2": "umda"},  # its name in runs of earlier versions
)


def portable(table: Section) -> bool:
    """Return whether the strategy that `[strategy]` names gives the same bits on every machine."""
    return bool(getattr(STRATEGIES.kind(table), "portable", False))  # an added kind may be a function


def bytes_per_weight(table: Section, layout: GenomeLayout, population: int) -> int:
    """Return how many bytes for each weight a rank holds of the strategy that `[strategy]` names, about."""
    strategy = from_table(table, layout, population, 0)
    if not is_made_anywhere(strategy, layout.num_traces):
        return 40 * population  # rank 0 makes all candidates
    return 256 if strategy.sum_shape is not None else 40 * (strategy.capacity or population)  # a centre, or an elite


def shared_mask(table: Section) -> bool:
    """Return whether the strategy that `[strategy]` names gives all candidates the same connections."""
    return bool(getattr(STRATEGIES.kind(table), "shared_mask", False))


def from_table(table: Section, layout: GenomeLayout, population: int, seed: int) -> Strategy[Any]:
    """Return the strategy that the `[strategy]` table of an experiment describes.

    Args:
        table: The name of the strategy and its options, validated or not.
        layout: That of the genomes, most often a network.
        population: P, the candidates of a generation.
        seed: That of the experiment.

    Raises:
        InputError: The table has a wrong name or option.
    """
    choice = STRATEGIES.parse(table)

    def for_layout(layout: GenomeLayout) -> Strategy[Any]:
        made = STRATEGIES.make(choice, layout, population, seed)
        return with_starts(with_restarts(made, choice.options), choice.options)

    return with_pruning_rounds(for_layout, choice.options, layout, seed)


def make(
    name: str,
    genome_size: int | None = None,
    *,
    layout: GenomeLayout | None = None,
    population: int = 64,
    seed: int = 0,
    **options: Any,
) -> Strategy[Any]:
    """Return a strategy whose ask and tell are called by hand, for any function of the genomes.

    Args:
        name: One of `STRATEGIES`, or of those that other packages add.
        genome_size: W, for genomes that are vectors whose initial weights are N(0, 1).
        layout: Of other genomes, in place of `genome_size`: a `VectorLayout`, a network or your own.
        population: P, the candidates of a generation.
        seed: Of all random numbers that are drawn; with another seed the search goes another way.
        **options: The settings of the strategy, such as `sigma`; the others have their defaults.

    Raises:
        InputError: A name, an option or a size is wrong; says which.
    """
    if (layout is None) == (genome_size is None):
        raise InputError("genome_size", "it, or a layout in its place", "both" if layout is not None else "neither")
    if layout is None:
        layout = VectorLayout(genome_size or 0)
    population, seed = check_whole("population", population, 2), check_whole("seed", seed, 0)
    table = {"name": name, **options}
    STRATEGIES.validate(table, layout)
    return from_table(table, layout, population, seed)
