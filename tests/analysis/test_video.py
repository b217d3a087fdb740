"""Films: frames written while an episode is played; a film is written whole or not at all."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from films import read_film
from PIL import Image

from evolve import store
from evolve.analysis import video
from evolve.analysis.champion import NetworkObserver
from evolve.analysis.figures import network_of
from evolve.analysis.video import Film, Label, Subject, encoders, film_episodes, open_film
from evolve.analysis.video.picture import NEGATIVE, POSITIVE, NetworkPanel, Painter, fitting_font, font, shortened
from evolve.environments import Recorder
from evolve.errors import RunError
from evolve.genome import Genomes
from evolve.training import reload
from evolve.verification import choose_episode, make_engine

END = 25  # pictures, at 50 a second
TITLE = 50


def subject_of(path):
    run = store.read(path)
    experiment = reload(run)
    return Subject(run, experiment, choose_episode(run, experiment, 1), "the walker")


def test_a_film_may_be_short_and_narrow(record, tmp_path):
    subject = subject_of(record("BipedalWalker-v3", "--set", "env.max_episode_steps=30"))
    (results,) = film_episodes([subject], tmp_path / "clip.mp4", width=301, condense_to=0.2)
    assert float(results.returns[0]) == subject.episode.logged
    pictures, _ = read_film(tmp_path / "clip.mp4")
    assert len(pictures) - TITLE - END <= 10 + 2
    assert pictures.shape[1:3] == (162, 302)  # two rows, and even
    assert (tmp_path / "clip.mp4").stat().st_size < 100_000


def test_a_film_may_be_cut(record, tmp_path):
    subject = subject_of(record("BipedalWalker-v3", "--set", "env.max_episode_steps=30"))
    (results,) = film_episodes([subject], tmp_path / "clip.mp4", width=320, cut_after=0.1)
    assert float(results.returns[0]) == subject.episode.logged  # played to its end all the same
    assert len(read_film(tmp_path / "clip.mp4")[0]) == TITLE + 6 + END


def test_a_film_that_was_cut_ends_with_the_cut_and_keeps_no_observations(record, tmp_path, monkeypatch):
    """A GIF at 50 steps a second shows every second one, so the cut may come between two pictures."""
    subject = subject_of(record("BipedalWalker-v3", "--set", "env.max_episode_steps=30"))
    shot, kept, recorders = [], [], []
    add = Film.add

    class Watched(Recorder):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            recorders.append(self)

    def shoot(film, frame, label, *more):
        shot.append(label.step)
        add(film, frame, label, *more)

    monkeypatch.setattr(video, "Recorder", Watched)
    monkeypatch.setattr(Film, "add", shoot)
    film_episodes([subject], tmp_path / "clip.gif", cut_after=0.1, check=lambda *_: kept.append(
        len(recorders[0].running[0].observations)
    ))  # fmt: skip
    assert shot
    assert max(shot) <= 5
    assert len(kept) > 40  # the episode is played twice
    assert max(kept) <= 1  # the newest only


def lit(picture):
    """Return the number of pixels in the colours of an active network."""
    pixels = np.asarray(picture).reshape(-1, 3).astype(int)
    return sum(int((np.abs(pixels - colour).max(axis=1) < 40).sum()) for colour in (POSITIVE, NEGATIVE))


def test_a_network_lights_up_while_it_acts(record):
    subject = subject_of(record("BipedalWalker-v3", "--set", "env.max_episode_steps=30"))
    panel = NetworkPanel(subject.network(), (400, 400))
    observer = NetworkObserver(subject.run, subject.experiment, subject.episode)
    size = subject.experiment.network.observation_size
    dark = panel.paint(observer.see(np.zeros(size, np.float32)))
    light = panel.paint(observer.see(np.ones(size, np.float32)))
    assert lit(dark) == 0
    assert lit(light) > 500


def test_the_observer_sees_the_actions_of_the_episode(record):
    subject = subject_of(record("BipedalWalker-v3", "--set", "env.max_episode_steps=30"))
    recorder = Recorder(make_engine(subject.experiment, subject.episode), 1, observations=True)
    subject.play(recorder)
    episode = recorder.running[0]
    observer = subject.observer()
    for observation, outputs in zip(episode.observations, episode.outputs, strict=False):
        np.testing.assert_array_equal(observer.see(observation).nodes[-1][-len(outputs) :], outputs)


def test_a_network_without_connections_is_not_shown(record):
    subject = subject_of(record("BipedalWalker-v3", "--set", "env.max_episode_steps=30"))
    genome = subject.episode.genome
    none = Genomes(0 * genome.weights, np.zeros_like(genome.mask))
    assert not len(network_of(none, subject.experiment).acting)
    bare = replace(subject, episode=replace(subject.episode, genome=none))
    assert bare.network() is None


def test_weights_without_effect_are_drawn_as_the_weights_that_the_network_has(record):
    subject = subject_of(record("CartPole-v1", "-a", "binary-mask-mlp", "-d", 2))
    genome = subject.episode.genome
    odd = Genomes(np.full_like(genome.weights, -3.0), np.ones_like(genome.mask))
    assert set(network_of(odd, subject.experiment).acting.strength) == {1.0}


@pytest.mark.parametrize("width", [640, 200])
def test_a_long_text_about_the_episode_does_not_run_into_the_numbers(width):
    frame = np.zeros((100, width, 3), np.uint8)
    painter = Painter(frame, None)
    name = "BipedalWalker-v3"
    short, long = (
        np.asarray(painter.paint(frame, Label(name, playing, 388, 123.81)))
        for playing in ("held-out episode 0", "held-out episode 0, " + "changes_at=150, " * 20)
    )
    strip = painter.size[1] - 100 * (painter.size[0] // width)
    if width == 640:  # the numbers are at the right of the text
        assert (short[:strip, -200:] == long[:strip, -200:]).all()
    else:  # the numbers are below the text
        assert (short[strip // 2 + 4 : strip] == long[strip // 2 + 4 : strip]).all()
    assert (short != long).any()
    assert (long[: strip - 1, -6:] > 240).all(), "the text ends before the margin"


def test_a_long_text_is_measured_a_few_times_and_not_in_each_picture():
    letters = Mock()
    letters.getlength = Mock(side_effect=len)
    for _ in range(2):
        assert shortened("x" * 400, letters, 200) == "x" * 199 + "…"
    assert letters.getlength.call_count < 15
    assert [shortened("abc", letters, room) for room in (3, 2, 1, 0)] == ["abc", "a…", "…", "…"]


@pytest.mark.parametrize("width", [640, 200])
def test_a_long_title_is_not_cut(width):
    frame = np.zeros((400, width, 3), np.uint8)
    painter = Painter(frame, None)
    title, below = "Best with at most 10 acting connections", "BipedalWalker-v3, env.kwargs.gravity=12.0: return 123.45"
    for more in ("", ", the episode of median return"):
        card = np.asarray(painter.card(title + more, below + more, None)) < 200
        used = np.flatnonzero(card.any(axis=(0, 2)))
        assert used[0] > 0, "the text begins after the margin"
        assert used[-1] < painter.size[0] - 1, "the text ends before the margin"
    letters = fitting_font(20, 300, "BipedalWalker-v3", title)
    assert letters.getlength("BipedalWalker-v3") + letters.getlength(title) <= 300
    assert letters.size < 20 == fitting_font(20, 900, "BipedalWalker-v3", title).size


def test_letters_outside_ascii_are_no_boxes():
    assert bytes(font(16, "Größe").getmask("ö")) != bytes(font(16, "Größe").getmask("ß"))
    assert font(16, "walker", "generation 3") is font(16)


def test_one_thread_encodes_a_film(tmp_path):
    """With several threads equal pictures may become different bytes. The encoder writes its settings to the file."""
    film = encoders.Encoder(tmp_path / "film.mp4", 25.0)
    film.write(Image.new("RGB", (64, 48)), 2)
    film.close()
    assert b" threads=1 " in (tmp_path / "film.mp4").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the threads of a process")
def test_a_film_starts_no_thread(tmp_path):
    before, during = set(os.listdir("/proc/self/task")), set()
    for name in ("x.mp4", "x.gif"):
        with open_film(tmp_path / name, 12.5, check=lambda _: during.update(os.listdir("/proc/self/task"))) as film:
            for _ in range(3):
                film.add(np.zeros((480, 640, 3), np.uint8), Label("x", "y", 0, 0.0))
                during.update(os.listdir("/proc/self/task"))
    assert during <= before


def test_a_film_that_is_not_finished_leaves_nothing(tmp_path):
    frame = np.zeros((40, 61, 3), np.uint8)
    for name in ("x.mp4", "x.gif"):
        with contextlib.suppress(KeyError), open_film(tmp_path / name, 50, width=61) as film:
            for _ in range(100):  # more than the encoder keeps before it writes
                film.add(frame, Label("x", "y", 0, 0.0))
            if name == "x.mp4":  # a GIF is written at the end
                assert len(list(tmp_path.iterdir())) == 1
            raise KeyError
    assert not list(tmp_path.iterdir())
    with pytest.raises(RunError, match="nothing has been filmed, as an"), open_film(tmp_path / "x.gif", 50):
        pass
    assert not list(tmp_path.iterdir())


def of_many_colours():
    """Return a picture [150, 200, 3] in which every column and every row has colours of its own."""
    y, x = np.mgrid[0:150, 0:200]
    return np.stack([x * 255 // 200, y * 255 // 150, 255 - (x + y) * 255 // 350], axis=-1).astype(np.uint8)


def shown_by_gif(frames, folder):
    """Return the pictures of a GIF, [N, H, W, 3]."""
    with open(folder / "film.mkv", "w+b") as lossless:
        film = encoders.Encoder(lossless, 12.5)
        for frame in frames:
            film.write(Image.fromarray(frame), times=1)
        film.close()
        encoders.convert_to_gif(lossless, folder / "film.gif", 12.5, None)
    return read_film(folder / "film.gif")[0].astype(int)


def test_a_small_part_of_a_gif_keeps_its_colour(tmp_path):
    """The colours of large areas leave some for goals of 400 and of 36 pixels."""
    frame = of_many_colours()
    frame[50:70, 20:40] = red = (200, 0, 0)
    frame[50:56, 50:56] = green = (0, 160, 60)
    (shown,) = shown_by_gif([frame], tmp_path)
    assert np.abs(shown[50:70, 20:40] - red).max() < 16
    assert np.abs(shown[50:56, 50:56] - green).max() < 16
    assert np.abs(shown - frame).max() < 64


def test_a_small_part_beside_a_gradient_keeps_its_colour(tmp_path):
    y, x = np.mgrid[:480, :640]
    frame = np.stack([x * 255 // 640, y * 255 // 480, 255 - (x + y) * 255 // 1120], -1).astype(np.uint8)
    frame[50:62, 50:62] = green = (0, 160, 60)
    (shown,) = shown_by_gif([frame], tmp_path)
    assert np.abs(shown[50:62, 50:62] - green).max() < 32


def test_a_body_that_moves_in_a_gif_leaves_no_shadow(tmp_path):
    """The white that the second picture uncovers is the white of the first."""
    frames = []
    for place in (0, 50):
        frame = of_many_colours()
        frame[:, :100] = 255
        frame[:60, place : place + 40] = (255, 253, 253)
        frames.append(frame)
    assert (shown_by_gif(frames, tmp_path)[1, :, :45] == 255).all()


def test_the_network_is_below_a_wide_frame():
    width, height = Painter(np.zeros((100, 600, 3), np.uint8), None, with_network=True).size
    assert (width, height > 400) == (600, True)
    assert Painter(np.zeros((400, 600, 3), np.uint8), None, with_network=True).size[0] == 1000


def test_a_high_and_narrow_frame_is_not_enlarged_beyond_a_screen():
    assert Painter(np.zeros((400, 100, 3), np.uint8), None).size[1] < 1000
    assert Painter(np.zeros((40, 100, 3), np.uint8), None).size[0] == 400
