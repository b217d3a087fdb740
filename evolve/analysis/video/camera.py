"""Filming episodes while they are played."""

import math
from pathlib import Path

import numpy as np

from evolve.analysis.video.film import Film
from evolve.analysis.video.picture import Label
from evolve.environments import Engine
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeResults
from evolve.store import StoredRun
from evolve.training import Experiment
from evolve.verification import Episode, make_engine, play

_TITLE = 1.0  # seconds for which a title is shown
_END = 0.5  # and the last picture


class Camera:
    """What `play` calls at each step to film an episode.

    Args:
        film: That the pictures are added to.
        engine: One that draws frames.
        chosen: The episode.
        every: Of so many steps one is filmed.
        titled: Whether a title card comes first.
    """

    def __init__(self, film: Film, engine: Engine, chosen: Episode, every: int = 1, titled: bool = False) -> None:
        self._film = film
        self._engine = engine
        self._titled = titled
        self._every = every * film.every
        self._playing = f"{chosen.title}, {every}x speed" if every > 1 else chosen.title
        self._skipped: tuple[int, float] | None = None

    def __call__(self, step: int, return_so_far: float) -> None:
        """Film a step."""
        self._skipped = (step, return_so_far) if step % self._every else None
        if self._skipped is None:
            self._shoot(step, return_so_far)

    def _shoot(self, step: int, return_so_far: float) -> None:
        frame = self._engine.frame(0)
        if step == 0 and self._titled:
            self._film.card(frame, self._playing[:1].upper() + self._playing[1:], self._engine.id, _TITLE)
        self._film.add(frame, Label(self._engine.id, self._playing, step, return_so_far))

    def end(self, results: EpisodeResults) -> None:
        """Show how the episode ended for a moment; an episode that failed cannot be drawn any more."""
        if self._skipped is not None and not np.isnan(results.returns[0]):
            self._shoot(*self._skipped)
        self._film.hold(_END)


def clip(
    run: StoredRun,
    experiment: Experiment,
    chosen: Episode,
    path: Path,
    seconds: float = 12.0,
    width: int = 480,
) -> EpisodeResults:
    """Film an episode and return its results; where it takes longer than the film, only every k-th step is shown.

    Args:
        run: The run that it belongs to.
        experiment: That of the run.
        chosen: The episode.
        path: Of the film.
        seconds: How long the film may be, about.
        width: How wide, in pixels.

    Raises:
        InputError: The environment cannot be drawn, or the film not be written.
        EpisodeError: The episode fails.
    """
    engine = make_engine(experiment, chosen, "rgb_array")
    try:
        every = max(1, math.ceil(_num_steps(run, experiment, chosen, engine) / (seconds * engine.fps)))
        with Film(path, engine.fps, width) as film:
            camera = Camera(film, engine, chosen, every)
            results = play(run, experiment, chosen, engine, camera)
            camera.end(results)
    finally:
        engine.close()
    return results


def _num_steps(run: StoredRun, experiment: Experiment, chosen: Episode, engine: Engine) -> int:
    """Return the steps of an episode; where the log does not say, it is played for that."""
    if chosen.purpose is Purpose.EPISODE and chosen.generation < run.num_generations:
        return int(run.records[chosen.generation].lengths[chosen.candidate, chosen.episode])
    return int(play(run, experiment, chosen, engine).lengths[0])
