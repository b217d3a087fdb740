"""What would become of runs and their files: found out by reading alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evolve import store
from evolve.store import StoredRun
from evolve.training.new_run_checks import validate_new_run
from evolve.training.plan import PlannedRun, RunSize, size_of
from evolve.training.resume import check_configuration, check_replaceable, has_more_to_do


@dataclass(frozen=True)
class Outlook:
    """A run, and what is in its place already.

    Attributes:
        run: The run.
        action: Whether its file is made anew, continued, or replaced; or kept, since nothing is left to do.
        stored: The run file that is there; None for none, or one without a generation.
    """

    run: PlannedRun
    action: Literal["begin", "resume", "replace", "keep"]
    stored: StoredRun | None = None

    @property
    def size(self) -> RunSize:
        """What there is to do."""
        if self.action == "keep":
            return RunSize(0, 0)
        done = self.stored.num_generations if self.stored is not None and self.action == "resume" else 0
        return size_of(self.run.experiment.config, done)


def foresee(runs: Sequence[PlannedRun], resume: bool = False, overwrite: bool = False) -> list[Outlook]:
    """Return what would become of runs; nothing is written.

    Args:
        runs: What is planned.
        resume: Whether runs whose files exist are resumed.
        overwrite: Whether they are replaced.

    Raises:
        InputError: A run would be refused.
    """
    return [_outlook(run, resume, overwrite) for run in runs]


def _outlook(run: PlannedRun, resume: bool, overwrite: bool) -> Outlook:
    store.check_unlocked(run.path)
    if not store.exists(run.path) or (not resume and store.is_empty(run.path)):
        validate_new_run(run.experiment)
        store.check_can_begin(run.path)
        return Outlook(run, "begin")
    if not (resume or overwrite):
        raise store.taken(run.path)
    stored = store.read(run.path)
    if overwrite:
        check_replaceable(run, stored)
        validate_new_run(run.experiment)
        return Outlook(run, "replace", stored)
    check_configuration(run, stored)
    unfinished = not stored.complete or has_more_to_do(stored, run.experiment.config)
    return Outlook(run, "resume" if unfinished else "keep", stored)
