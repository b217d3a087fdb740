"""CartPole by evolve."""

import tempfile
from pathlib import Path

import numpy as np

from evolve import iterate, load


def train(seed, workers, steps, engine="gymnasium"):
    with tempfile.TemporaryDirectory() as folder:
        total = 0
        for generation in iterate(
            env={"id": "CartPole-v1", "engine": engine},
            network={"name": "mlp", "hidden": [8]},
            strategy={"name": "openai-es", "sigma": 0.3, "learning_rate": 0.2},
            population=65,
            episodes=4,
            generations=100_000,
            seed=seed,
            output=folder,
        ):
            total += int(generation.record.steps)
            yield total, generation.digest, lambda: champion(Path(folder) / f"seed-{seed}.h5")
            if total >= steps:
                return


def champion(path):
    policy = load(path).champion()
    return lambda observations: np.array([policy(observation) for observation in observations])
