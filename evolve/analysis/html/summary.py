"""Play episodes of a run again for its report: verify that this machine repeats them, and make a film."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve import verification
from evolve.analysis import video
from evolve.analysis.champion import champion_of, typical_episode
from evolve.analysis.statistics import number
from evolve.cluster import Coordinator, Transport
from evolve.errors import EvolveError, Stopped
from evolve.store import StoredRun
from evolve.training import Experiment, manifest, reload

_MAX_CHECKED = 10  # generations whose champions are evaluated again
_FILM_WIDTH = 800  # pixels
_FILM_SECONDS = 12.0


@dataclass(frozen=True)
class VerificationSummary:
    """Whether a run can be repeated on this machine.

    Attributes:
        equal: Whether the compared parts are equal; None if nothing can be compared.
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
        shows: The caption: the champion, the episode and its return.
    """

    mp4: bytes
    jpeg: bytes
    shows: str


@dataclass(frozen=True)
class RunSummary:
    """A run with at least one complete generation, and the results of playing its episodes again.

    Attributes:
        run: The run file.
        film: A film of its champion, or None.
        why_no_film: The reason why a film could not be made; empty if there is a film, or if no film was requested.
        verification: The result of the verification; None if it was not requested.
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
        filmed: Whether to make a film.

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
        unchecked = VerificationSummary(None, f"It cannot be checked: {why}")
        return RunSummary(run, why_no_film=f"No film: {why}", verification=unchecked)
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
    """Evaluate the champions of some generations again, evenly spaced from the first to the last."""
    generations = np.unique(np.linspace(0, run.num_generations - 1, _MAX_CHECKED).round().astype(int)).tolist()
    local_manifest = manifest(experiment, transport)
    verdict = verification.RunRepetition(run, experiment, coordinator, local_manifest).reevaluate(generations)
    if verdict.equal:
        return VerificationSummary(True, f"{verdict.summary}, on {local_manifest['cpu']}, {local_manifest['libc']}")
    cause = f" {verdict.cause.capitalize()}: {verdict.why}." if verdict.cause else ""
    return VerificationSummary(False, f"{verdict.summary}.{cause}")


def _film(run: StoredRun, experiment: Experiment) -> Clip:
    """Return a short film of the champion in a typical episode."""
    champion = champion_of(run)
    episode, description = typical_episode(run, experiment, champion)
    # If the environment cannot be drawn, another one plays instead, and the remark says so.
    shown, remark = video.drawable(experiment)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "film.mp4"
        title = f"{champion.title}, in Gymnasium" if remark else champion.title
        subject = video.Subject(run, shown, episode, title)
        (results,) = video.film_episodes([subject], path, _FILM_WIDTH, at_most=_FILM_SECONDS)
        shows = f"{champion.title}: {remark or description}, return {number(float(results.returns[0]))}"
        return Clip(path.read_bytes(), video.still(path), shows)
