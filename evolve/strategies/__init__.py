"""Strategies: how a population is asked for and what it learns from being told.

`STRATEGIES` is the registry; each entry is one file behind the contract in `contract`, and every entry is held to
the same conformance suite.
"""

from typing import Any

from pydantic import Field

from evolve import config
from evolve.errors import InputError
from evolve.networks import Network
from evolve.strategies.contract import Strategy, ranking
from evolve.strategies.prune import Prune, PruneOptions

__all__ = ["STRATEGIES", "Strategy", "make", "options", "ranking"]

STRATEGIES: dict[str, tuple[type[config.Options], Any]] = {"prune": (PruneOptions, Prune)}


class _Named(config.Options):
    model_config = config.Options.model_config | {"extra": "ignore"}
    name: str = Field("prune")


def options(table: config.Table) -> config.Table:
    """Return the `[strategy]` table with every default spelled out. Raises InputError for a bad name or option."""
    name = config.parse(_Named, table, "strategy").name
    if name not in STRATEGIES:
        cure = config.nearest(name, STRATEGIES)
        raise InputError("strategy.name (--strategy)", "a known strategy", name, cure)
    given = {key: value for key, value in table.items() if key != "name"}
    parsed = config.parse(STRATEGIES[name][0], given, "strategy")
    return {"name": name} | parsed.model_dump(mode="json", exclude_none=True)


def make(table: config.Table, network: Network, population: int, seed: int) -> Strategy[Any]:
    """Return the strategy that a complete `[strategy]` table describes, for P = `population` candidates."""
    model, strategy = STRATEGIES[table["name"]]
    parsed = config.parse(model, {key: value for key, value in table.items() if key != "name"}, "strategy")
    made: Strategy[Any] = strategy(parsed, network, population, seed)
    return made
