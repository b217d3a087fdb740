"""One run file against this machine: all of it is run again, up to the first difference."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.cluster import Coordinator
from evolve.config import EarlyStopOptions, flatten
from evolve.errors import pluralize
from evolve.genome import GenomeSource
from evolve.store import Record, StoredRun
from evolve.strategies import ask_for
from evolve.training import Experiment, iterate, restore
from evolve.verification.causes import explain, genome_cause
from evolve.verification.diagnosis import HERE, diagnose
from evolve.verification.logs import FirstDifference, first_difference, log_of_record, same_arrays
from evolve.verification.newest_generation import NewestGeneration
from evolve.verification.reevaluation import check_rest
from evolve.verification.verdict import Side, Verdict, as_texts


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
    genome = ask_for(strategy, state, found.generation, np.array([found.candidate]))
    key = found.generation, found.candidate, found.episode
    return diagnose(run, experiment, key, log_of_record(made, found.candidate), None, manifests, genome)
