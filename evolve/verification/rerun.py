"""Run a whole run again on this machine, up to the first difference.

A champion file has no log: its held-out episodes are played again, or its whole run is compared by digest.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.cluster import Coordinator
from evolve.config import EarlyStopOptions, flatten
from evolve.errors import pluralize
from evolve.genome import Genomes, GenomeSource
from evolve.store import Header, HeldOut, Record, StoredChampion, StoredRun
from evolve.training import Experiment, evaluate_champion, iterate, restore
from evolve.verification.logs import (
    FirstDifference,
    explain,
    first_difference,
    genome_cause,
    log_of_record,
    same_arrays,
)
from evolve.verification.playing import HERE, diagnose
from evolve.verification.reevaluation import check_rest
from evolve.verification.verdict import Side, Verdict, as_texts


class NewestGeneration:
    """A run log that forgets all but its newest generation.

    Args:
        path: Of the file whose run is made again, for messages.
        header: What was known when that run began.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.num_generations = 0
        self.steps = 0
        self.last: Record | None = None
        self.checkpoint: Mapping[str, NDArray[Any]] = {}
        self.held_out: HeldOut | None = None
        self.complete = False

    def append(
        self,
        record: Record,
        checkpoint: Mapping[str, NDArray[Any]],
        genomes: GenomeSource | None = None,
        flush: bool = True,
    ) -> None:
        """Take the place of the last generation."""
        self.num_generations += 1
        self.last = record
        self.checkpoint = checkpoint

    def flush_if_due(self) -> None:
        """Keep nothing."""

    def flush(self) -> None:
        """Keep nothing."""


def rerun(
    run: StoredRun,
    experiment: Experiment,
    coordinator: Coordinator,
    here: Mapping[str, Any],
    on_generation: Callable[[Record], None],
) -> Verdict:
    """Run an experiment again, as far as the file goes, and compare all that is stored.

    Args:
        run: The run file.
        experiment: That of the run, one whose episodes may fail (`tolerant`).
        coordinator: Who has the episodes played.
        here: The manifest of this process.
        on_generation: Called with each generation that is equal.
    """
    comparing = _ComparingLog(run)
    settings = {"generations": run.num_generations, "held_out_episodes": 0, "early_stop": EarlyStopOptions()}
    config = experiment.config.model_copy(update=settings)
    try:
        for record in iterate(replace(experiment, config=config), coordinator, comparing):
            on_generation(record)
    except _DifferenceFound:
        return _verdict(run, experiment, comparing, as_texts(flatten(here)))
    if not same_arrays(run.checkpoint, comparing.checkpoint):
        summary = "the checkpoint is not the one that belongs to its generations"
        return Verdict(False, summary, *explain("log", None), what="log")
    digest = run.digest
    equal = Verdict(True, f"{pluralize(run.num_generations, 'generation')}, digest {digest}")
    return check_rest(run, experiment, coordinator) or equal


class _ComparingLog(NewestGeneration):
    """Compares each generation with the log."""

    def __init__(self, run: StoredRun) -> None:
        super().__init__(run.path, run.header)
        self._log = run
        self.difference: tuple[FirstDifference, Record] | None = None

    def append(
        self,
        record: Record,
        checkpoint: Mapping[str, NDArray[Any]],
        genomes: GenomeSource | None = None,
        flush: bool = True,
    ) -> None:
        """Compare a generation; end the run at the first difference."""
        found = first_difference(self.num_generations, self._log.records[self.num_generations], record)
        if found is not None:
            self.difference = found, record
            raise _DifferenceFound
        super().append(record, checkpoint, genomes)


class _DifferenceFound(Exception):  # noqa: N818 - what was looked for
    """A generation that is made here is not the one of the log."""


def _verdict(run: StoredRun, experiment: Experiment, comparing: _ComparingLog, here: dict[str, str]) -> Verdict:
    assert comparing.difference is not None
    found, made = comparing.difference
    manifests = as_texts(flatten(run.header.manifest)), here
    if found.what != "episode" or found.candidate is None or found.episode is None:
        what = "init" if found.what == "genome" and found.generation == 0 else found.what
        known = genome_cause(found.generation, manifests) if what == "genome" else what
        cause, why = explain(known, None, run.header.seed)
        at = found.generation, found.candidate, found.episode
        sides = Side(str(run.path)), Side(HERE)
        return Verdict(False, found.summary, cause, why, *at, None, what, sides, (), manifests)
    strategy, state = restore(experiment, comparing)
    genome = strategy.ask(state, found.generation, np.array([found.candidate]))
    key = found.generation, found.candidate, found.episode
    return diagnose(run, experiment, key, log_of_record(made, found.candidate), None, manifests, genome)


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
