"""One champion file against this machine: its held-out episodes are played again, or its whole run."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evolve.cluster import Coordinator
from evolve.config import EarlyStopOptions, flatten
from evolve.errors import pluralize
from evolve.genome import Genomes
from evolve.store import Record, StoredChampion
from evolve.training import Experiment, evaluate_champion, iterate, restore
from evolve.verification.causes import explain
from evolve.verification.diagnosis import HERE
from evolve.verification.newest_generation import NewestGeneration
from evolve.verification.verdict import Side, Verdict, as_texts


def reevaluate_champion(
    champion: StoredChampion, experiment: Experiment, coordinator: Coordinator, here: Mapping[str, Any]
) -> Verdict:
    """Play all held-out episodes of a champion file again; compare their returns to the bit.

    Args:
        champion: The file.
        experiment: Its own, one whose episodes may fail (`tolerant`).
        coordinator: Who has the episodes played.
        here: The manifest of this process.
    """
    kept = champion.held_out
    made = evaluate_champion(champion, experiment, coordinator, len(kept.returns))
    different = ~((made.returns == kept.returns) | (np.isnan(made.returns) & np.isnan(kept.returns)))
    episodes = pluralize(len(kept.returns), "held-out episode")
    if not different.any() and np.array_equal(made.seeds, kept.seeds):
        return Verdict(True, f"the champion of {pluralize(champion.num_generations, 'generation')}, {episodes} again")
    if not different.any():
        return _different(
            champion, here, "the environment seeds of its held-out episodes are not those of its seed", "log"
        )
    episode = int(np.argmax(different))
    returns = float(kept.returns[episode]), float(made.returns[episode])
    summary = f"{np.count_nonzero(different)} of {episodes} have other returns, the first is episode {episode}: "
    summary += f"{returns[0]!r} against {returns[1]!r} on {HERE}"
    return replace(_different(champion, here, summary, "held-out", returns), episode=episode)


def _different(
    champion: StoredChampion,
    here: Mapping[str, Any],
    summary: str,
    what: str,
    returns: tuple[float | None, float | None] = (None, None),
) -> Verdict:
    """Return the verdict on a champion file that differs. returns: its own, and what they are here."""
    names = str(champion.path), HERE
    sides = tuple(Side(name, returned) for name, returned in zip(names, returns, strict=True))
    manifests = as_texts(flatten(champion.header.manifest)), as_texts(flatten(here))
    cause, why = explain(what, None)
    return Verdict(False, summary, cause, why, what=what, sides=sides, manifests=manifests)


def rerun_champion(
    champion: StoredChampion,
    experiment: Experiment,
    coordinator: Coordinator,
    here: Mapping[str, Any],
    on_generation: Callable[[Record], None],
) -> Verdict:
    """Run the experiment of a champion file again; compare the digest, the champion and its held-out returns.

    Args:
        champion: The file.
        experiment: Its own, one whose episodes may fail (`tolerant`).
        coordinator: Who has the episodes played.
        here: The manifest of this process.
        on_generation: Called with each generation.
    """
    log = NewestGeneration(champion.path, champion.header)
    settings = {"generations": champion.num_generations, "held_out_episodes": 0, "early_stop": EarlyStopOptions()}
    config = experiment.config.model_copy(update=settings)
    for record in iterate(replace(experiment, config=config), coordinator, log):
        on_generation(record)
    digest = "" if log.last is None else log.last.digest.decode()
    if digest != champion.digest:
        return _different(
            champion, here, f"on {HERE} its run ends with digest {digest}, not {champion.digest}", "digest"
        )
    strategy, state = restore(experiment, log)
    made = strategy.champion(state)
    kept = Genomes(champion.held_out.weights[None], champion.held_out.mask[None])
    if not np.array_equal(made.fingerprints(), kept.fingerprints()):
        return _different(
            champion, here, "its genome is not the champion of its run, though the digest is equal", "log"
        )
    found = reevaluate_champion(champion, experiment, coordinator, here)
    return replace(found, summary=f"{found.summary}; digest {digest}") if found.equal else found
