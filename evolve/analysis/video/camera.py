"""The camera: play an episode again and yield its frames."""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evolve import environments
from evolve.analysis.champion import Champion, NetworkObserver
from evolve.analysis.figures import DrawnNetwork, network_of
from evolve.analysis.formatting import number
from evolve.analysis.video.film import Film
from evolve.analysis.video.picture import Label, fits
from evolve.environments import Engine, Recorder
from evolve.environments.envpool_engine import can_draw
from evolve.environments.rendering import Mode
from evolve.errors import InputError, pluralize
from evolve.networks import Activity
from evolve.rollouts import EpisodeResults
from evolve.shapes import Float32
from evolve.store import Stored
from evolve.training import Experiment
from evolve.verification import EachStep, Episode, make_engine, play

_TITLE = 1.0  # seconds for which a title is shown
_END = 0.5  # seconds for which the last picture stays


def drawable(experiment: Experiment, mode: Mode = "rgb_array") -> tuple[Experiment, str]:
    """Return an experiment whose environment can be drawn, and what has to be said of it.

    What EnvPool cannot draw is shown in Gymnasium's environment of the same name, where there is one. That plays other
    episodes from the same seeds.

    Args:
        experiment: Whose champion is shown.
        mode: How: as frames, or in a window.

    Raises:
        InputError: Gymnasium's environment has other observations or actions, or cannot be made.
    """
    env = experiment.config.env
    if env.engine != "envpool" or (mode == "rgb_array" and can_draw(env.id)):
        return experiment, ""
    config = experiment.config.model_copy(update={"env": env.model_copy(update={"engine": "gymnasium"})})
    with closing(environments.make(config.env, slots=1)) as engine:
        network = experiment.network
        if (engine.observation_size, engine.action_size) != (network.observation_size, experiment.action_size):
            raise InputError("env.engine", "an environment of Gymnasium that is EnvPool's twin", env.id)
    name = f"{engine.id} of Gymnasium"
    why = "has no window" if mode == "human" else "draws none of its own"
    said = f"an episode of {name}, since EnvPool, where it evolved and was evaluated, {why}"
    return replace(experiment, config=config), said


@dataclass(frozen=True)
class Subject:
    """What is filmed: an episode of a run.

    Attributes:
        run: The run.
        experiment: That of the run, or one that is shown in its place.
        chosen: The episode.
        playing: What it is, in words.
    """

    run: Stored
    experiment: Experiment
    chosen: Episode
    playing: str

    def network(self) -> DrawnNetwork | None:
        """Return the network that can be shown at work, None for none."""
        genome = self.chosen.genome
        drawn = network_of(Champion(genome.weights[0], genome.mask[0], None), self.experiment)
        return drawn if self.observer().shows and fits(drawn) else None

    def observer(self) -> NetworkObserver:
        """Return what looks at the network while it plays."""
        return NetworkObserver(self.run, self.experiment, self.chosen)

    def play(self, engine: Engine, each_step: EachStep | None = None) -> EpisodeResults:
        """Play the episode. Raises EpisodeError when it fails and does not in the log."""
        return play(self.run, self.experiment, self.chosen, engine, each_step)

    def title(self, env: str, results: EpisodeResults) -> tuple[str, str]:
        """Return what is played, and a line that says how it ends."""
        ends = f"return {number(float(results.returns[0]))} in {pluralize(int(results.lengths[0]), 'step')}"
        return self.playing[:1].upper() + self.playing[1:], f"{env.rpartition(':')[2]}: {ends}"


class Camera:
    """What `play` calls at each step to film an episode.

    Args:
        film: That the pictures are added to.
        recorder: The engine, which draws frames and keeps observations.
        subject: What is filmed.
        network: Its network, if that is shown.
        every: Of so many pictures one is filmed.
        seconds: After so many of the film the episode is cut.
        check: Called at each step, too; may raise to give the film up.
        title: The page that comes first: what is played, and how it ends.
    """

    def __init__(
        self,
        film: Film,
        recorder: Recorder,
        subject: Subject,
        network: DrawnNetwork | None,
        every: int = 1,
        seconds: float = math.inf,
        check: EachStep | None = None,
        title: tuple[str, str] | None = None,
    ) -> None:
        self._film = film
        self._title = title
        self._recorder = recorder
        self._playing = f"{subject.playing}, {every}x speed" if every > 1 else subject.playing
        self._observer = subject.observer() if network is not None else None
        self._every = every * film.every
        self._last = seconds * recorder.fps * every
        self._check = check
        self._skipped: tuple[int, float, Activity | None] | None = None
        film.show_network(network)

    def __call__(self, step: int, return_so_far: float) -> None:
        """Film a step."""
        if self._check is not None:
            self._check(step, return_so_far)
        newest = self._newest_observation()
        if step > self._last:
            self._skipped = None  # the picture of the cut is the last one
            return
        activity = None if self._observer is None else self._observer.see(newest)
        self._skipped = (step, return_so_far, activity) if step % self._every else None
        if self._skipped is None:
            self._shoot(step, return_so_far, activity)

    def _newest_observation(self) -> Float32:
        """Return it, and forget all: images would fill the memory."""
        seen = self._recorder.running[0].observations
        newest = seen[-1]
        seen.clear()
        return newest

    def _shoot(self, step: int, return_so_far: float, activity: Activity | None) -> None:
        frame = self._recorder.frame(0)
        if step == 0 and self._title is not None:
            self._film.card(frame, *self._title, _TITLE)
        self._film.add(frame, Label(self._recorder.id, self._playing, step, return_so_far), activity)

    def end(self, results: EpisodeResults) -> None:
        """Show how the episode ended for a moment; an episode that failed cannot be drawn any more."""
        if self._skipped is not None and not np.isnan(results.returns[0]):
            self._shoot(*self._skipped)
        self._film.hold(_END)


def film_episodes(
    subjects: Sequence[Subject],
    path: Path,
    width: int | None = None,
    at_most: float = math.inf,
    seconds: float = math.inf,
    check: EachStep | None = None,
) -> list[EpisodeResults]:
    """Film episodes one after another, each with a title card; return their results.

    Each is played twice: once to know how it ends, which the title says.

    Args:
        subjects: What is filmed; all in one environment.
        path: Of the film.
        width: How wide it may be, in pixels.
        at_most: Seconds that an episode may take, about; of a longer one only every k-th step is shown.
        seconds: Seconds of the film after which an episode is cut.
        check: Called at each step; may raise to give the film up.

    Raises:
        InputError: The environment cannot be drawn, or the film not be written.
        EpisodeError: An episode fails.
    """
    networks = [subject.network() for subject in subjects]
    first = subjects[0]
    found = []
    with closing(make_engine(first.experiment, first.chosen, "rgb_array")) as engine:
        recorder = Recorder(engine, 1, observations=True)
        with Film(path, engine.fps, width, any(networks)) as film:
            for subject, network in zip(subjects, networks, strict=True):
                ahead = subject.play(engine, check)
                every = max(1, math.ceil(int(ahead.lengths[0]) / (at_most * engine.fps)))
                title = subject.title(engine.id, ahead)
                camera = Camera(film, recorder, subject, network, every, seconds, check, title)
                results = subject.play(recorder, camera)
                camera.end(results)
                found.append(results)
    return found
