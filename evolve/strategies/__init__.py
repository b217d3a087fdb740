"""Strategies: how a population is asked for and what it learns from being told.

`STRATEGIES` is the registry; each entry is one file behind the contract in `contract`, and every entry is held to
the same conformance suite.
"""

from typing import Any

from evolve.config import Table
from evolve.networks import Network
from evolve.registry import Registry
from evolve.strategies.cma import Cma, CmaOptions, SepCma
from evolve.strategies.contract import Strategy, newborns, ranking
from evolve.strategies.ga import Ga, GaOptions
from evolve.strategies.mk2 import Mk2, Mk2Options
from evolve.strategies.openai_es import OpenAiEs, OpenAiEsOptions
from evolve.strategies.prune import Prune, PruneOptions
from evolve.strategies.random_search import Random, RandomOptions

__all__ = ["STRATEGIES", "Strategy", "make", "newborns", "one_mask", "options", "portable", "ranking"]

STRATEGIES = Registry(
    "strategy",
    "--strategy",
    {
        "cma-es": (CmaOptions, Cma),
        "ga": (GaOptions, Ga),
        "mk2": (Mk2Options, Mk2),
        "openai-es": (OpenAiEsOptions, OpenAiEs),
        "prune": (PruneOptions, Prune),
        "random": (RandomOptions, Random),
        "sep-cma-es": (CmaOptions, SepCma),
    },
    Strategy,
)
options = STRATEGIES.options


def portable(table: Table) -> bool:
    """Return whether the strategy of a `[strategy]` table gives the same bits on every machine."""
    return bool(getattr(STRATEGIES.kind(table), "portable", False))  # an added kind may be a function


def one_mask(table: Table) -> bool:
    """Return whether all candidates of the strategy of a `[strategy]` table have the same connections."""
    return bool(getattr(STRATEGIES.kind(table), "one_mask", False))


def make(table: Table, network: Network, population: int, seed: int) -> Strategy[Any]:
    """Return the strategy that a `[strategy]` table describes, for P = `population` candidates."""
    strategy: Strategy[Any] = STRATEGIES.make(table, network, population, seed)
    return strategy
