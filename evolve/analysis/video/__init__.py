"""Films of episodes: frames of an environment under a strip of text, with the network at work beside them.

`film_episodes` plays episodes again, and for each step a `Camera` adds a picture to the `Film`. `picture` paints the
pictures, and `encoders` writes them as MP4 or GIF. Only this package imports PyAV and Pillow (extra `video`).
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evolve import environments, verification
from evolve.analysis.champion import NetworkObserver
from evolve.analysis.figures import DrawnNetwork, network_of
from evolve.analysis.statistics import number
from evolve.analysis.video.encoders import FORMATS, Encoder, check_library, convert_to_gif, still
from evolve.analysis.video.picture import Label, Painter, fits
from evolve.environments import Engine, Mode, Recorder
from evolve.environments.envpool_engine import envpool_can_draw
from evolve.errors import InputError, RunError, pluralize
from evolve.networks import Activity
from evolve.rollouts import EpisodeResults
from evolve.shapes import UInt8
from evolve.store import Stored, disk
from evolve.training import Experiment
from evolve.verification import EachStep, Episode

_TITLE_SECONDS = 1.0  # for which a title card is shown
_END_SECONDS = 0.5  # for which the last picture of an episode stays
# GIFs are large, so by default they have a small width in pixels, and about this number of pictures per second.
_GIF_WIDTH = 640
_GIF_FPS = 12.5
PAGE_WIDTH = 800
"""The largest width of a film for a page or a notebook, in pixels."""


@dataclass
class Film:
    """A film that is being made, see `open_film`.

    Attributes:
        encoder: Writes the pictures.
        fps: Pictures per second.
        frames_per_picture: The number of the environment's frames for each picture.
        width: The largest width, in pixels.
        with_network: Whether the film has space for a network beside the frames.
        last: The last picture; None if the film has no picture yet.
    """

    encoder: Encoder
    fps: float
    frames_per_picture: int
    width: int | None
    with_network: bool
    last: Any = None
    _painter: Painter | None = None

    def add(self, frame: UInt8, label: Label, activity: Activity | None = None) -> None:
        """Add a frame [H, W, 3], its label and the activity of the network."""
        self.last = self._painter_for(frame).paint(frame, label, activity)
        self.encoder.write(self.last, 1)

    def card(self, frame: UInt8, title: str, below: str, network: DrawnNetwork | None) -> None:
        """Add a title card with a text below the title. The next pictures show the network, if there is one.

        frame: [H, W, 3], a frame of the size of all frames.
        """
        self.last = self._painter_for(frame).card(title, below, network)
        self.hold(_TITLE_SECONDS)

    def hold(self, seconds: float) -> None:
        """Show the last picture for some more seconds."""
        if self.last is not None:
            self.encoder.write(self.last, math.ceil(seconds * self.fps))

    def _painter_for(self, frame: UInt8) -> Painter:
        """Return the painter of all pictures. The first frame decides their size."""
        if self._painter is None:
            self._painter = Painter(frame, self.width, self.with_network)
        return self._painter


@contextmanager
def open_film(
    path: Path,
    fps: float,
    width: int | None = None,
    with_network: bool = False,
    check: Callable[[str], None] | None = None,
) -> Iterator[Film]:
    """Yield a film, and write it while it is made. The complete film replaces `path`; an error leaves `path` as it was.

    path: Its name ends with one of `FORMATS`.
    fps: Frames of the environment per second.
    width: The largest width, in pixels. A GIF has 640 by default.
    with_network: Whether the film has space for a network beside the frames.
    check: Called with a few words about the current work; may raise an error to give up the film.

    Raises InputError if the file cannot be written, and RunError if the film has no picture.
    """
    is_gif = path.suffix == ".gif"
    frames_per_picture = 1
    if is_gif:
        width = width or _GIF_WIDTH
        frames_per_picture = max(1, round(fps / _GIF_FPS))
    pictures_per_second = fps / frames_per_picture
    with (
        disk.explain_write_errors(path),
        disk.atomic_write(path) as partial,
        tempfile.TemporaryFile(dir=partial.parent) as lossless,  # the film of which a GIF is made
    ):
        encoder = Encoder(lossless if is_gif else partial, pictures_per_second)
        film = Film(encoder, pictures_per_second, frames_per_picture, width, with_network)
        try:
            yield film
            if film.last is None:
                raise RunError("nothing has been filmed, as an episode that fails in reset has no picture")
        except BaseException:
            # Close the incomplete film. An error meanwhile must not replace the first error.
            with suppress(Exception):
                encoder.close()
            raise
        encoder.close()
        if is_gif:
            convert_to_gif(lossless, partial, pictures_per_second, check)


def drawable(experiment: Experiment, mode: Mode = "rgb_array") -> tuple[Experiment, str]:
    """Return an experiment whose environment can be drawn, and a remark if this environment is a substitute.

    If EnvPool cannot draw an environment, Gymnasium's environment of the same name replaces it. It plays other episodes
    from the same seeds. The remark is empty if the experiment is returned unchanged.

    Raises InputError if Gymnasium's environment has observations or actions of another size, or cannot be made.

    mode: "rgb_array" for frames, "human" for a window.
    """
    env = experiment.config.env
    if env.engine != "envpool" or (mode == "rgb_array" and envpool_can_draw(env.id)):
        return experiment, ""
    config = experiment.config.with_section("env", engine="gymnasium")
    with closing(environments.make(config.env, slots=1)) as engine:
        network = experiment.network
        if (engine.observation_size, engine.action_size) != (network.observation_size, experiment.action_size):
            raise InputError("env.engine", "a Gymnasium environment with EnvPool's observations and actions", env.id)
    why = "has no window" if mode == "human" else "draws no frames of it"
    remark = f"an episode of {engine.id} of Gymnasium, since EnvPool, the engine of the experiment, {why}"
    return replace(experiment, config=config), remark


@dataclass(frozen=True)
class Subject:
    """An episode of a run that is filmed.

    Attributes:
        run: The run.
        experiment: The experiment of the run, or its substitute, see `drawable`.
        episode: The episode.
        episode_title: The name of the episode in the strip and on the title card, such as "held-out episode 0".
        changes: The changed settings of the environment or network, for titles, such as ", env.kwargs.gravity=12.0".
    """

    run: Stored
    experiment: Experiment
    episode: Episode
    episode_title: str
    changes: str = ""

    def network(self) -> DrawnNetwork | None:
        """Return the network to show; None if it does not report its activity, or does not fit into a film."""
        drawn = network_of(self.episode.genome, self.experiment)
        return drawn if self.observer().has_activity and fits(drawn) else None

    def observer(self) -> NetworkObserver:
        """Return an observer of the network in this episode."""
        return NetworkObserver(self.run, self.experiment, self.episode)

    def play(self, engine: Engine, each_step: EachStep | None = None) -> EpisodeResults:
        """Play the episode. Raises EpisodeError if it fails, but did not fail in the log."""
        return verification.play(self.run, self.experiment, self.episode, engine, each_step)

    def title_card(self, env: str, results: EpisodeResults) -> tuple[str, str]:
        """Return the texts of the title card: the title of the episode, and a text about its result."""
        result = f"return {number(float(results.returns[0]))} in {pluralize(int(results.lengths[0]), 'step')}"
        title = self.episode_title[:1].upper() + self.episode_title[1:]
        return title, f"{env.rpartition(':')[2]}{self.changes}: {result}"


@dataclass
class Camera:
    """Films an episode; `play` calls it at each step.

    Attributes:
        film: Receives the pictures.
        recorder: The engine, which draws frames and keeps observations.
        subject: The episode.
        network: The network that plays; None if the film does not show it.
        stride: 1 to film all steps of the episode, k to film every k-th step.
        cut_after: The seconds of film after which the episode is cut.
        check: See `film_episodes`.
        title_card: The title of the episode, and the text below it.
    """

    film: Film
    recorder: Recorder
    subject: Subject
    network: DrawnNetwork | None
    stride: int
    cut_after: float
    check: Callable[[str], None] | None
    title_card: tuple[str, str]

    def __post_init__(self) -> None:
        self._observer = None if self.network is None else self.subject.observer()
        self._skipped: tuple[int, float, Activity | None] | None = None  # the last step, if it was not filmed

    def __call__(self, step: int, return_so_far: float) -> None:
        """Film a step."""
        if self.check is not None:
            self.check(f" in step {step}")
        observations = self.recorder.running[0].observations
        newest = observations[-1]
        observations.clear()  # older image observations would fill the memory
        if step > self.cut_after * self.recorder.fps * self.stride:  # a second of film shows fps · stride steps
            self._skipped = None  # `end` adds no picture after the cut
            return
        # The network sees the observation even if the step is not filmed, because the network may have a memory.
        activity = None if self._observer is None else self._observer.see(newest)
        if step % (self.stride * self.film.frames_per_picture) == 0:
            self._skipped = None
            self._shoot(step, return_so_far, activity)
        else:
            self._skipped = step, return_so_far, activity

    def _shoot(self, step: int, return_so_far: float, activity: Activity | None) -> None:
        """Add the picture of a step to the film. The title card comes before the picture of step 0."""
        frame = self.recorder.frame(0)
        if step == 0:
            self.film.card(frame, *self.title_card, self.network)
        speed = f", {self.stride}x speed" if self.stride > 1 else ""
        changes = self.subject.changes.replace("env.kwargs.", "")  # the strip has little space
        label = Label(self.recorder.id, f"{self.subject.episode_title}{changes}{speed}", step, return_so_far)
        self.film.add(frame, label, activity)

    def end(self, results: EpisodeResults) -> None:
        """Film the last step if it was skipped, and hold the last picture for a moment."""
        if self._skipped is not None and not np.isnan(results.returns[0]):  # a failed episode cannot be drawn
            self._shoot(*self._skipped)
        self.film.hold(_END_SECONDS)


def film_in_memory(
    subjects: Sequence[Subject], condense_to: float, check: Callable[[str], None] | None = None
) -> tuple[bytes, bytes, tuple[int, int], list[EpisodeResults]]:
    """Film episodes; return the MP4, a still as JPEG, the still's width and height, and the results of the episodes.

    condense_to, check: See `film_episodes`.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "film.mp4"
        results = film_episodes(subjects, path, PAGE_WIDTH, condense_to, check=check)
        return path.read_bytes(), *still(path), results


def film_episodes(
    subjects: Sequence[Subject],
    path: Path,
    width: int | None = None,
    condense_to: float = math.inf,
    cut_after: float = math.inf,
    check: Callable[[str], None] | None = None,
) -> list[EpisodeResults]:
    """Film episodes one after another, each with a title card; return their results.

    Each episode is played twice: the first time for its result, which the title card states. All episodes are in one
    environment.

    width: The largest width, in pixels.
    condense_to: The longest film of an episode, in seconds. Of a longer episode, only every k-th step is shown.
    cut_after: The seconds of film after which an episode is cut.
    check: Called at each step and picture with a few words about the current work, such as " in step 7"; may raise an
        error to give up the film.

    Raises InputError if the environment cannot be drawn or the film cannot be written. Raises EpisodeError if an
    episode fails, but did not fail in the log.
    """
    networks = [subject.network() for subject in subjects]
    first = subjects[0]
    all_results = []
    # `env.max_episode_seconds` limits an episode only if it is played without a callback.
    each_step = None if check is None else lambda step, _return: check(f" in step {step}")
    with closing(verification.make_engine(first.experiment, first.episode, "rgb_array")) as engine:
        recorder = Recorder(engine, 1, observations=True)
        with open_film(path, engine.fps, width, any(networks), check) as film:
            for subject, network in zip(subjects, networks, strict=True):
                # Only `recorder` keeps observations, so the first play, without the camera, needs no memory for them.
                unfilmed = subject.play(engine, each_step)
                # `condense_to` seconds of film show condense_to · fps steps. A longer episode shows every k-th step.
                stride = max(1, math.ceil(int(unfilmed.lengths[0]) / (condense_to * engine.fps)))
                title_card = subject.title_card(engine.id, unfilmed)
                camera = Camera(film, recorder, subject, network, stride, cut_after, check, title_card)
                results = subject.play(recorder.engine, camera)
                camera.end(results)
                all_results.append(results)
    return all_results
