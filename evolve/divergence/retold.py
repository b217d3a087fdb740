"""One logged episode played again, before a run goes on where its file ends."""

from collections.abc import Callable
from contextlib import closing

import numpy as np

from evolve.divergence.logs import Log, differs, of_record
from evolve.errors import EpisodeError, Stopped
from evolve.experiment import Experiment
from evolve.playback import EachStep, Episode, choose, make_engine, play
from evolve.store import Run


class _LongerError(Exception):
    """An episode goes on where it ended in the log."""


def retold(run: Run, experiment: Experiment, stopped: Callable[[], str | None]) -> str | None:
    """Play the first episode of the newest champion; return how it parts from the log, in words, None for not at all.

    An episode that failed may fail again in any way. stopped: asked in every step; why to stop, or None. Raises Stopped
    then, and InputError for a file that does not have that episode.
    """
    chosen = choose(run, experiment, None, None, 0)
    kept = of_record(run.records[-1], chosen.candidate)

    def each_step(step: int, _returned: float) -> None:
        if (why := stopped()) is not None:
            raise Stopped(why)
        if step > kept.lengths[0]:
            raise _LongerError

    try:
        made = _played(run, experiment, chosen, each_step)
    except _LongerError:
        words = f"goes on here after step {kept.lengths[0]}"
    except EpisodeError as wrong:
        words = f"fails here: {str(wrong).splitlines()[-1]}"
    else:
        failed = np.isnan(made.returns[0]) and np.isnan(kept.returns[0])
        if failed or not differs(made, kept)[0]:
            return None
        words = f"has a return of {made.track(0).words} here"
    words += f" (in the log {kept.track(0).words})"
    return f"generation {chosen.generation}, candidate {chosen.candidate}, episode 0, which {words}"


def _played(run: Run, experiment: Experiment, chosen: Episode, each_step: EachStep) -> Log:
    """Return the log [E = 1] of an episode that is played here. Raises EpisodeError."""
    with closing(make_engine(experiment, chosen)) as engine:
        done = play(run, experiment, chosen, engine, each_step)
    return Log(done.returns, done.lengths, done.fingerprints, 0, [done.trails])
