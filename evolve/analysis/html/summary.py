"""Episodes of a run, played again for its report: a check whether it can be repeated here, and a film."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve import verification
from evolve.analysis import video
from evolve.analysis.champion import champion_of
from evolve.analysis.formatting import number
from evolve.cluster import Coordinator, Transport
from evolve.errors import EvolveError, Stopped
from evolve.numerics import backend
from evolve.numerics.streams import Purpose
from evolve.store import StoredRun
from evolve.training import Experiment, is_portable, manifest, reload

_MOST_CHECKED = 10  # generations whose champions are evaluated again
_FILM_WIDTH = 800  # pixels
_FILM_SECONDS = 12.0


@dataclass(frozen=True)
class VerificationSummary:
    """Whether a run can be repeated on this machine.

    Attributes:
        equal: The answer; None if it cannot be checked.
        message: The parts that were compared, the first difference, or the reason why it cannot be checked.
    """

    equal: bool | None
    message: str


@dataclass(frozen=True)
class Clip:
    """A short film.

    Attributes:
        mp4: The film.
        jpeg: A still of it, shown before it is played.
        shows: Its subject, in words.
    """

    mp4: bytes
    jpeg: bytes
    shows: str


@dataclass(frozen=True)
class RunSummary:
    """A run with a complete generation, and the results of playing its episodes again.

    Attributes:
        run: The run file.
        film: A film of its champion, if there is one.
        why_no_film: The reason for a missing film; empty if none was asked for.
        verification: None if it was not asked for.
    """

    run: StoredRun
    film: Clip | None = None
    why_no_film: str = ""
    verification: VerificationSummary | None = None


def summarize_run(run: StoredRun, coordinator: Coordinator, transport: Transport, filmed: bool = True) -> RunSummary:
    """Evaluate champions of a run again, and film the last one.

    Failures are not raised: the summary says why something is missing.

    Args:
        run: The run file.
        coordinator: Plays the episodes.
        transport: The ranks, for the description of this machine.
        filmed: Whether a film is wanted.

    Raises:
        Stopped: A stop was requested.
    """
    try:
        experiment = reload(run)
        verified = _verify(run, verification.with_failures_allowed(experiment), coordinator, transport)
    except Stopped:
        raise
    except EvolveError as error:
        why = _last_line(error)
        unknown = VerificationSummary(None, f"It cannot be checked: {why}")
        return RunSummary(run, why_no_film=f"No film: {why}", verification=unknown)
    if not filmed:
        return RunSummary(run, verification=verified)
    try:
        return RunSummary(run, _film(run, experiment), verification=verified)
    except EvolveError as error:
        return RunSummary(run, why_no_film=f"No film: {_last_line(error)}", verification=verified)


def _last_line(error: EvolveError) -> str:
    return str(error).splitlines()[-1]


def _verify(
    run: StoredRun, experiment: Experiment, coordinator: Coordinator, transport: Transport
) -> VerificationSummary:
    config = experiment.config
    some = np.unique(np.linspace(0, run.num_generations - 1, _MOST_CHECKED).round().astype(int)).tolist()
    here = manifest(transport, backend(config.compute.backend), is_portable(config))
    verdict = verification.reevaluate(run, experiment, coordinator, here, some)
    if verdict.equal:
        return VerificationSummary(True, f"{verdict.summary}, on {here['cpu']}, {here['libc']}")
    cause = f" {verdict.cause.capitalize()}: {verdict.why}." if verdict.cause else ""
    return VerificationSummary(False, f"{verdict.summary}.{cause}")


def _film(run: StoredRun, experiment: Experiment) -> Clip:
    """Return a short film of the champion: its median held-out episode, or its first episode if it has none."""
    champion = champion_of(run)
    if champion.generation is None and run.held_out is not None:
        middle = int(np.argsort(run.held_out.returns, kind="stable")[(len(run.held_out.returns) - 1) // 2])
        chosen = verification.choose_episode(run, experiment, episode=middle, purpose=Purpose.HELD_OUT)
        which = f"the episode of median return, number {middle}"
    else:
        chosen = verification.choose_episode(run, experiment, champion.generation)
        which = "its first episode"
    shown, instead = video.drawable(experiment)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "film.mp4"
        playing = f"{champion.title}, in Gymnasium" if instead else champion.title
        subject = video.Subject(run, shown, chosen, playing)
        (results,) = video.film_episodes([subject], path, _FILM_WIDTH, at_most=_FILM_SECONDS)
        shows = f"{champion.title}: {instead or which}, return {number(float(results.returns[0]))}"
        return Clip(path.read_bytes(), video.still(path), shows)
