"""Bare environments of every engine that has the environment, side by side: CPU time for a step."""

import time
from typing import Any

from evolve import environments
from evolve.cli.bench.recording import record
from evolve.environments import ENGINES
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.numerics import native
from evolve.training import Experiment, prepare

_EPISODES = {"exact": 256, "envpool": 64, "gymnasium": 16}
"""About how many each plays: the fast engines play more."""


def rows(experiment: Experiment, genomes: Genomes) -> list[dict[str, Any]]:
    """Return a row for each engine that has the environment: its name, steps, and microseconds of CPU time per step.

    Each plays the outputs that the same networks had in its own episodes, so that no network is timed.
    """
    found = []
    config = experiment.config
    for engine in ENGINES:
        if engine == "exact" and not native.available():  # array operations are for comparisons, not for speed
            continue
        options = config.env.model_copy(update={"engine": engine})
        try:
            other = prepare(config.model_copy(update={"env": options}))
        except InputError:
            continue
        candidates = range(min(len(genomes), -(-_EPISODES[engine] // config.episodes)))
        steps, seconds = environments.replay(options, record(other, genomes, candidates), time.process_time)
        found.append({"engine": engine, "steps": steps, "microseconds": seconds / steps * 1e6})
    return sorted(found, key=lambda row: row["microseconds"])
