"""Digests of candidates and states of portable strategies, for tests/golden.json: `python -m strategy_digests`."""

import hashlib
import json

import numpy as np

from evolve import networks, strategies
from evolve.numerics import ordered_sum
from evolve.strategies import STRATEGIES, Results

# The digests are older than the present defaults of these strategies.
OPENAI_ES = {"name": "openai-es", "sigma": 0.1, "learning_rate": 0.05}
PGPE = {"name": "pgpe", "max_speed": 0.15, "initial_radius": 2.25}
SETS = {
    "low rank": {**OPENAI_ES, "perturbation_rank": 2},
    "pruning by flow": {**OPENAI_ES, "pruning": 0.9, "pruning_generations": 5, "pruning_by": "flow"},
    "pgpe": {**PGPE, "sigma_learning_rate": 0.5},
    "snes": {"name": "snes", "sigma": 0.3},
    "sep-cma-es": {"name": "sep-cma-es", "sigma": 0.3},
    "cma-es": {"name": "cma-es", "sigma": 0.3},
    "map-elites": {"name": "map-elites", "descriptors": ["connections"], "line_noise": 0.4},
    "map-elites with emitters": {"name": "map-elites", "descriptors": ["connections"], "emitters": 1},
    "nsga2": {"name": "nsga2", "parents": 4, "regrowth": 0.05},
    "restarts": {**OPENAI_ES, "restart_after": 1},
    "restarts anew": {**PGPE, "restart_after": 1, "restart_from": "anew"},
    "several starts": {**OPENAI_ES, "starts": 2, "start_generations": 2},
    "pruning rounds": {**PGPE, "pruning_every": 2, "sigma_learning_rate": 0.5},
    "pruning rounds with controls": {"name": "sep-cma-es", "pruning_every": 1, "pruning_control": True},
}
P = 11
GENERATIONS = 6


def digest(table):
    """Return the digest of the candidates of a few generations and of the states after them, on a sphere."""
    network = networks.make({"name": "hebbian-dag", "hidden": [9], "init_sparsity": 0.2}, 20, 3)
    strategy = strategies.from_table(table, network, P, 3)
    state = strategy.start()
    found = hashlib.sha256()
    for generation in range(GENERATIONS):
        genomes = strategy.ask(state, generation)
        found.update(genomes.weights.tobytes())
        found.update(genomes.mask.tobytes())
        distances = genomes.weights.astype(np.float64) - 0.5
        fitness = -ordered_sum(distances * distances) - 100.0 * (generation % 3)  # stalls: some strategies restart
        state = strategy.tell(state, genomes, Results(fitness))
        for _, array in sorted(strategy.to_arrays(state).items()):
            found.update(array.tobytes())
    return found.hexdigest()


def all_digests():
    """Return the digest of each set of options."""
    assert all(STRATEGIES.kind(table).portable for table in SETS.values())
    return {name: digest(table) for name, table in SETS.items()}


if __name__ == "__main__":
    print(json.dumps(all_digests(), indent=2))
