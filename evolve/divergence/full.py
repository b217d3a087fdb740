"""One run file against this machine: all of it is run again, up to the first difference."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import store
from evolve.cluster import Coordinator
from evolve.config import EarlyStopOptions
from evolve.divergence.again import rest
from evolve.divergence.causes import explain, genome_apart
from evolve.divergence.here import HERE, judge
from evolve.divergence.logs import Place, first_difference, of_record, same_arrays
from evolve.divergence.verdict import Side, Verdict, flat
from evolve.errors import counted
from evolve.evolution import evolve
from evolve.experiment import Experiment, restore
from evolve.genome import Genomes
from evolve.store import Record, Run


def from_the_beginning(
    run: Run,
    experiment: Experiment,
    farm: Coordinator,
    here: Mapping[str, Any],
    watch: Callable[[Record], None],
) -> Verdict:
    """Run an experiment again, as far as it was told; compare all that is stored. farm: one that lets episodes fail."""
    rerun = _Rerun(run)
    once = experiment.config.model_copy(
        update={"generations": run.told, "held_out_episodes": 0, "early_stop": EarlyStopOptions()}
    )
    try:
        evolve(replace(experiment, config=once), farm, rerun, watch)
    except _Parted:
        return _verdict(run, experiment, rerun, flat(here))
    if not same_arrays(run.checkpoint, rerun.checkpoint):
        told = "the checkpoint is not the one that belongs to its generations"
        return Verdict(False, told, *explain("log", None), what="log")
    return rest(run, experiment, farm) or Verdict(
        True, f"{counted(run.told, 'generation')}, digest {run.records[-1].digest.decode()}"
    )


class _Rerun:
    """Takes the place of a run file: compares each generation with the log, and keeps the newest state only."""

    def __init__(self, run: Run) -> None:
        self.path, self.header, self._log = run.path, run.header, run
        self.told = self.steps = 0
        self.last: Record | None = None
        self.checkpoint: Mapping[str, NDArray[Any]] = {}
        self.held_out: store.HeldOut | None = None
        self.complete = False
        self.apart: tuple[Place, Record] | None = None

    def append(self, record: Record, checkpoint: Mapping[str, NDArray[Any]], genomes: Genomes | None = None) -> None:
        """Compare a generation; end the run at the first difference."""
        place = first_difference(self.told, self._log.records[self.told], record)
        if place is not None:
            self.apart = place, record
            raise _Parted
        self.told, self.last, self.checkpoint = self.told + 1, record, checkpoint

    def flush(self) -> None:
        """Keep nothing."""


class _Parted(Exception):  # noqa: N818 - what was looked for
    """The run that is made here and its log have parted."""


def _verdict(run: Run, experiment: Experiment, rerun: _Rerun, here: dict[str, str]) -> Verdict:
    assert rerun.apart is not None
    place, made = rerun.apart
    manifests = flat(run.header.manifest), here
    if place.what != "episode" or place.candidate is None or place.episode is None:
        what = "birth" if place.what == "genome" and place.generation == 0 else place.what
        known = genome_apart(place.generation, manifests) if what == "genome" else what
        cause, why = explain(known, None, run.header.seed)
        at = place.generation, place.candidate, place.episode
        return Verdict(False, place.told, cause, why, *at, None, what, (Side(str(run.path)), Side(HERE)), (), manifests)
    strategy, state = restore(experiment, rerun)
    genome = strategy.ask(state, place.generation).take(np.array([place.candidate]))
    key = place.generation, place.candidate, place.episode
    return judge(run, experiment, key, of_record(made, place.candidate), None, manifests, genome)
