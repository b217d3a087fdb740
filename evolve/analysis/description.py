"""What a run file or a champion file holds, in a few lines; nothing is played, and no environment is needed."""

from collections.abc import Mapping

import numpy as np

from evolve.analysis.champion import champion_of
from evolve.analysis.formatting import duration, number, words
from evolve.analysis.groups import mask_unit
from evolve.analysis.statistics import summary
from evolve.config import Config
from evolve.errors import pluralize, sanitize
from evolve.store import Stored, StoredChampion, StoredRun
from evolve.training import load_config


def describe_file(stored: Stored) -> dict[str, str]:
    """Return what a file holds, by what it is called: experiment, seed, generations, champion, digest …"""
    config = load_config(stored.header.config, str(stored.path))
    lines = {
        "experiment": f"{config.env.id}: {config.network.name} evolved by {config.strategy.name}",
        "population": f"{config.population:,}, {pluralize(config.episodes, 'episode')} each",
        "seed": f"{stored.header.seed}",
        "generations": _generations(stored, config),
    }
    if stored.num_generations:
        lines |= _results(stored, mask_unit(config))
    return lines | {"written by": _writer(stored.header.manifest)}


def _generations(stored: Stored, config: Config) -> str:
    """Return how many are complete, and of how many."""
    done = f"{stored.num_generations:,} of {config.generations:,}"
    if isinstance(stored, StoredChampion):
        return f"the champion after {done}"
    if not stored.complete:
        return f"{done}, not complete"
    return f"{done}, {'stopped early' if stored.num_generations < config.generations else 'complete'}"


def _results(stored: Stored, unit: str) -> dict[str, str]:
    """Return what came of the generations. unit: what masks count."""
    lines = {}
    if isinstance(stored, StoredRun):
        fitness = [float(record.champion_fitness) for record in stored.records]
        best = int(np.nanargmax(fitness)) if np.isfinite(fitness).any() else 0
        lines["best fitness"] = f"{number(fitness[best])} in generation {best:,}, {number(fitness[-1])} in the last one"
    champion = champion_of(stored)
    held_out = "not evaluated" if stored.held_out is None else summary(stored.held_out.returns)
    episodes = "" if stored.held_out is None else f", {pluralize(len(stored.held_out.returns), 'episode')}"
    return lines | {
        "work": f"{stored.steps:,} environment steps in {duration(stored.seconds)}",
        unit: f"{np.count_nonzero(champion.mask):,} of {len(champion.mask):,} in the {champion.title}",
        f"held out{episodes}": held_out,
        "digest": stored.digest,
    }


def _writer(manifest: Mapping[str, object]) -> str:
    """Return which code wrote a file, and where."""
    revision = manifest.get("revision")
    code = f"evolve {words(manifest.get('evolve'))}" + (f" ({sanitize(str(revision)[:12])})" if revision else "")
    ranks = manifest.get("ranks")
    number_of = pluralize(ranks, "rank") if isinstance(ranks, int) else "unknown ranks"
    return f"{code}, Python {words(manifest.get('python'))}, on {words(manifest.get('cpu'))}, {number_of}"
