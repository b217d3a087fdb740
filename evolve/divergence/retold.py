"""One logged episode played again, before a run goes on where its file ends."""

from contextlib import closing

import numpy as np

from evolve.divergence.logs import Log, differs, of_record
from evolve.errors import EpisodeError
from evolve.experiment import Experiment
from evolve.playback import Episode, choose, make_engine, play
from evolve.store import Run


def retold(run: Run, experiment: Experiment) -> str | None:
    """Play the first episode of the newest champion; return how it parts from the log, in words, None for not at all.

    An episode that failed may fail again in any way. Raises InputError for a file that does not have it.
    """
    chosen = choose(run, experiment, None, None, 0)
    kept = of_record(run.records[-1], chosen.candidate)
    try:
        made = _played(run, experiment, chosen)
    except EpisodeError as wrong:
        words = f"fails here: {str(wrong).splitlines()[-1]}"
    else:
        failed = np.isnan(made.returns[0]) and np.isnan(kept.returns[0])
        if failed or not differs(made, kept)[0]:
            return None
        words = f"has a return of {made.track(0).words} here"
    words += f" (in the log {kept.track(0).words})"
    return f"generation {chosen.generation}, candidate {chosen.candidate}, episode 0, which {words}"


def _played(run: Run, experiment: Experiment, chosen: Episode) -> Log:
    """Return the log [E = 1] of an episode that is played here. Raises EpisodeError."""
    with closing(make_engine(experiment, chosen)) as engine:
        done = play(run, experiment, chosen, engine)
    return Log(done.returns, done.lengths, done.fingerprints, 0, [done.trails])
