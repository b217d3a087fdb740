"""Networks: from an observation to an action, with a genome of weights and a mask.

`NETWORKS` is the registry; each entry is one file behind the contract in `contract`, and every entry is held to
the same conformance suite.
"""

from evolve.config import Table
from evolve.networks.contract import Batch, Block, Network
from evolve.networks.dag import Dag, DagOptions
from evolve.networks.elman import Elman, ElmanOptions
from evolve.networks.hebbian_dag import HebbianDag, HebbianDagOptions
from evolve.networks.hebbian_lstm import HebbianLstm, HebbianLstmOptions
from evolve.networks.mlp import Mlp, MlpOptions
from evolve.networks.plastic_mlp import PlasticMlp, PlasticMlpOptions
from evolve.networks.prunable_mlp import PrunableMlp, PrunableMlpOptions
from evolve.registry import Registry

__all__ = ["NETWORKS", "Batch", "Block", "Network", "make", "options"]

NETWORKS = Registry(
    "network",
    "-a/--agent",
    {
        "hebbian-dag": (HebbianDagOptions, HebbianDag),
        "dag": (DagOptions, Dag),
        "mlp": (MlpOptions, Mlp),
        "prunable-mlp": (PrunableMlpOptions, PrunableMlp),
        "elman": (ElmanOptions, Elman),
        "hebbian-lstm": (HebbianLstmOptions, HebbianLstm),
        "plastic-mlp": (PlasticMlpOptions, PlasticMlp),
    },
    Network,
)
options = NETWORKS.options


def make(table: Table, observation_size: int, action_size: int) -> Network:
    """Return the network that a `[network]` table describes, for O observations and A actions."""
    network: Network = NETWORKS.make(table, observation_size, action_size)
    return network
