"""One logged episode played again, before a run goes on where its file ends."""

from collections.abc import Callable
from contextlib import closing

import numpy as np

from evolve.errors import EpisodeError, Stopped
from evolve.store import StoredRun
from evolve.training import Experiment
from evolve.verification.logs import CandidateLog, different_episodes, log_of_record
from evolve.verification.playing import EachStep, make_engine, play
from evolve.verification.selection import Episode, choose


class _LongerError(Exception):
    """An episode goes on where it ended in the log."""


def spot_check(run: StoredRun, experiment: Experiment, stop_reason: Callable[[], str | None]) -> str | None:
    """Play the first episode of the newest champion; return how it differs from the log, None for not at all.

    An episode that failed may fail again in any way. stop_reason: called in every step; why to stop, or None. Raises
    Stopped where it says why, and InputError for a file that does not have that episode.
    """
    chosen = choose(run, experiment)
    kept = log_of_record(run.records[-1], chosen.candidate)

    def each_step(step: int, _returned: float) -> None:
        if (why := stop_reason()) is not None:
            raise Stopped(why)
        if step > kept.lengths[0]:
            raise _LongerError

    try:
        made = _played(run, experiment, chosen, each_step)
    except _LongerError:
        words = f"goes on here after step {kept.lengths[0]}"
    except EpisodeError as error:
        words = f"fails here: {str(error).splitlines()[-1]}"
    else:
        failed = np.isnan(made.returns[0]) and np.isnan(kept.returns[0])
        if failed or not different_episodes(made, kept)[0]:
            return None
        words = f"has a return of {made.episode_log(0).summary} here"
    words += f" (in the log {kept.episode_log(0).summary})"
    return f"generation {chosen.generation}, candidate {chosen.candidate}, episode 0, which {words}"


def _played(run: StoredRun, experiment: Experiment, chosen: Episode, each_step: EachStep) -> CandidateLog:
    """Return the log [E = 1] of an episode that is played here. Raises EpisodeError."""
    with closing(make_engine(experiment, chosen)) as engine:
        done = play(run, experiment, chosen, engine, each_step)
    return CandidateLog(done.returns, done.lengths, done.fingerprints, 0, [done.step_hashes])
