"""What playing the episodes of a run again shows: whether it can be repeated here, and a film of its champion."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve.analysis.champion import champion_of
from evolve.analysis.formatting import number
from evolve.analysis.video import Subject, drawable, film_episodes, still
from evolve.cluster import Coordinator, Transport
from evolve.errors import EvolveError, Stopped
from evolve.numerics import backend
from evolve.numerics.streams import Purpose
from evolve.store import StoredRun
from evolve.training import Experiment, is_portable, manifest, reload
from evolve.verification import Verdict, choose, reevaluate, tolerant

_MOST_CHECKED = 10
"""Generations whose champions are evaluated again."""
_FILM_WIDTH = 800  # pixels
_FILM_SECONDS = 12.0


@dataclass(frozen=True)
class VerificationSummary:
    """Whether a run can be repeated on this machine.

    Attributes:
        equal: The answer; None where it cannot be checked.
        message: What was compared, what differs first, or why it cannot be checked.
    """

    equal: bool | None
    message: str


@dataclass(frozen=True)
class Clip:
    """A short film.

    Attributes:
        mp4: The film.
        jpeg: A picture out of it, for where it is not played yet.
        shows: What can be seen in it.
    """

    mp4: bytes
    jpeg: bytes
    shows: str


@dataclass(frozen=True)
class RunSummary:
    """A run with a complete generation, and what playing its episodes again has shown.

    Attributes:
        run: The run file.
        film: Of its champion, if there is one.
        why_no_film: Said in its place; empty where none was wanted.
        verification: None where nobody has asked.
    """

    run: StoredRun
    film: Clip | None = None
    why_no_film: str = ""
    verification: VerificationSummary | None = None


def summarize_run(run: StoredRun, coordinator: Coordinator, transport: Transport, filmed: bool = True) -> RunSummary:
    """Evaluate champions of a run again, and film the last one.

    What cannot be done here is said in the summary.

    Args:
        run: The run file.
        coordinator: Who has the episodes played.
        transport: To the ranks; the machine is described with it.
        filmed: Whether a film is wanted.

    Raises:
        Stopped: Somebody asked for it.
    """
    try:
        experiment = reload(run)
        verification = _verify(run, tolerant(experiment), coordinator, transport)
    except Stopped:
        raise
    except EvolveError as error:
        why = _last_line(error)
        unknown = VerificationSummary(None, f"It cannot be checked: {why}")
        return RunSummary(run, why_no_film=f"No film: {why}", verification=unknown)
    if not filmed:
        return RunSummary(run, why_no_film="", verification=verification)
    try:
        film = _film(run, experiment)
    except EvolveError as error:
        return RunSummary(run, why_no_film=f"No film: {_last_line(error)}", verification=verification)
    return RunSummary(run, film, verification=verification)


def _last_line(error: EvolveError) -> str:
    return str(error).splitlines()[-1]


def _verify(
    run: StoredRun, experiment: Experiment, coordinator: Coordinator, transport: Transport
) -> VerificationSummary:
    config = experiment.config
    some = np.unique(np.linspace(0, run.num_generations - 1, _MOST_CHECKED).round().astype(int)).tolist()
    here = manifest(transport, backend(config.compute.backend), is_portable(config))
    verdict = reevaluate(run, experiment, coordinator, here, some)
    if verdict.equal:
        return VerificationSummary(True, f"{verdict.summary}, on {here['cpu']}, {here['libc']}")
    return VerificationSummary(False, _difference(verdict))


def _difference(verdict: Verdict) -> str:
    cause = f" {verdict.cause.capitalize()}: {verdict.why}." if verdict.cause else ""
    return f"{verdict.summary}.{cause}"


def _film(run: StoredRun, experiment: Experiment) -> Clip:
    """Return a short film of the champion: its median held-out episode, if it has any."""
    champion = champion_of(run)
    if champion.generation is None and run.held_out is not None:
        middle = int(np.argsort(run.held_out.returns, kind="stable")[(len(run.held_out.returns) - 1) // 2])
        chosen = choose(run, experiment, episode=middle, purpose=Purpose.HELD_OUT)
        which = f"the episode of median return, number {middle}"
    else:
        chosen = choose(run, experiment, champion.generation)
        which = "its first episode"
    shown, instead = drawable(experiment)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "film.mp4"
        playing = f"{champion.title}, in Gymnasium" if instead else champion.title
        subject = Subject(run, shown, chosen, playing)
        (results,) = film_episodes([subject], path, _FILM_WIDTH, at_most=_FILM_SECONDS)
        shows = f"{champion.title}: {instead or which}, return {number(float(results.returns[0]))}"
        return Clip(path.read_bytes(), still(path), shows)
