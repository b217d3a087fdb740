"""Networks: from an observation to an action, with a genome of weights and a mask.

`NETWORKS` is the registry; each entry is one file behind the contract in `contract`, and every entry is held to
the same conformance suite.
"""

from typing import Any

from pydantic import Field

from evolve import config
from evolve.errors import InputError
from evolve.networks.contract import Batch, Block, Network
from evolve.networks.hebbian_dag import HebbianDag, HebbianDagOptions

__all__ = ["NETWORKS", "Batch", "Block", "Network", "make", "options"]

NETWORKS: dict[str, tuple[type[config.Options], Any]] = {"hebbian-dag": (HebbianDagOptions, HebbianDag)}


class _Named(config.Options):
    model_config = config.Options.model_config | {"extra": "ignore"}
    name: str = Field("hebbian-dag")


def options(table: config.Table) -> config.Table:
    """Return the `[network]` table with every default spelled out. Raises InputError for a bad name or option."""
    name = config.parse(_Named, table, "network").name
    if name not in NETWORKS:
        cure = config.nearest(name, NETWORKS)
        raise InputError("network.name (-a/--agent)", "a known network", name, cure)
    given = {key: value for key, value in table.items() if key != "name"}
    parsed = config.parse(NETWORKS[name][0], given, "network")
    return {"name": name} | parsed.model_dump(mode="json", exclude_none=True)


def make(table: config.Table, observation_size: int, action_size: int) -> Network:
    """Return the network that a complete `[network]` table describes, for O observations and A actions."""
    model, network = NETWORKS[table["name"]]
    parsed = config.parse(model, {key: value for key, value in table.items() if key != "name"}, "network")
    made: Network = network(parsed, observation_size, action_size)
    return made
