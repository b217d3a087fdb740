"""Filming episodes while they are played."""

import math
from pathlib import Path

import numpy as np

from evolve.environments import Engine
from evolve.evaluation import Outcomes
from evolve.experiment import Experiment
from evolve.film import Film, Label
from evolve.playback.playing import make_engine, play
from evolve.playback.selection import Episode
from evolve.rng import Purpose
from evolve.store import Run

_TITLE, _END = 1.0, 0.5  # seconds for which a title, and the last picture, are shown


class Camera:
    """What `play` calls at each step to film an episode.

    engine: one that draws frames; every: of so many steps one is filmed; titled: whether a title card comes first.
    """

    def __init__(self, film: Film, engine: Engine, chosen: Episode, every: int = 1, titled: bool = False) -> None:
        self._film, self._engine, self._titled = film, engine, titled
        self._every = every * film.every
        self._playing = f"{chosen.title}, {every}x speed" if every > 1 else chosen.title
        self._skipped: tuple[int, float] | None = None

    def __call__(self, step: int, returned: float) -> None:
        """Film a step."""
        self._skipped = (step, returned) if step % self._every else None
        if self._skipped is None:
            self._shoot(step, returned)

    def _shoot(self, step: int, returned: float) -> None:
        frame = self._engine.frame(0)
        if step == 0 and self._titled:
            self._film.card(frame, self._playing[:1].upper() + self._playing[1:], self._engine.id, _TITLE)
        self._film.add(frame, Label(self._engine.id, self._playing, step, returned))

    def end(self, outcomes: Outcomes) -> None:
        """Show how the episode ended for a moment; what failed cannot be drawn any more."""
        if self._skipped is not None and not np.isnan(outcomes.returns[0]):
            self._shoot(*self._skipped)
        self._film.hold(_END)


def _length(run: Run, experiment: Experiment, chosen: Episode, engine: Engine) -> int:
    """Return the steps of an episode; one that is not of a told generation has to be played for that."""
    if chosen.purpose is Purpose.EPISODE and chosen.generation < run.told:
        return int(run.records[chosen.generation].lengths[chosen.candidate, chosen.episode])
    return int(play(run, experiment, chosen, engine).lengths[0])


def clip(
    run: Run, experiment: Experiment, chosen: Episode, path: Path, seconds: float = 12.0, width: int = 480
) -> Outcomes:
    """Film an episode in no more than about so many seconds and pixels.

    Where it takes longer, only every k-th step is shown. Returns its outcome. Raises InputError when it cannot be
    drawn, and EpisodeError when it fails.
    """
    engine = make_engine(experiment, chosen, "rgb_array")
    try:
        every = max(1, math.ceil(_length(run, experiment, chosen, engine) / (seconds * engine.fps)))
        with Film(path, engine.fps, width) as film:
            camera = Camera(film, engine, chosen, every)
            outcomes = play(run, experiment, chosen, engine, camera)
            camera.end(outcomes)
    finally:
        engine.close()
    return outcomes
