"""The replay command: episodes that it plays, options that it refuses, and films, which are read back."""

import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ROOT
from films import read_film

import evolve
from evolve import environments, store
from evolve.analysis import video
from evolve.cli import replay
from evolve.cli.parser import parser_of
from evolve.config import EnvOptions
from evolve.errors import EpisodeError, InputError, Stopped
from evolve.numerics.streams import Purpose
from evolve.training.resume import replay_command
from evolve.verification import play

SHORT = ("--set", "env.max_episode_steps=10")
END, TITLE = 25, 50  # pictures at 50 a second
GIF_END, GIF_TITLE = 7, 13  # pictures of a GIF, at 12.5 a second
HEADLESS = {"DISPLAY": None, "WAYLAND_DISPLAY": None, "SDL_VIDEODRIVER": None, "MUJOCO_GL": None}


def length(path, generation):
    record = store.read(path).records[generation]
    return int(record.lengths[record.champion_candidate, 0])


def gif_pictures(path, generation=1):
    """The number of pictures of a GIF of a champion, which shows every fourth step and the last step."""
    return GIF_TITLE + -(-length(path, generation) // 4) + 1 + GIF_END


def gif_durations(path):
    """The milliseconds for which each picture is shown."""
    from PIL import Image, ImageSequence

    with Image.open(path) as film:
        return [picture.info["duration"] for picture in ImageSequence.Iterator(film)]


def check_title(picture):
    """Large dark letters on light paper."""
    assert (picture.min(axis=2) > 230).mean() > 0.9
    assert (picture.max(axis=2) < 90).sum() > 300


def check_strip(pictures, high):
    """The strip has dark letters on a light ground, and its text changes."""
    strip = pictures[:, : high - 2].astype(int)
    assert ((strip.max(axis=3) < 90).sum(axis=(1, 2)) > 50).all()
    assert (strip.min(axis=3) > 230).mean() > 0.7
    assert np.abs(strip[0] - strip[8]).max() > 100


def test_a_walker_is_filmed_and_the_episode_is_that_of_the_log(call, record, tmp_path):
    path = record("BipedalWalker-v3", *SHORT)
    done = call("replay", path, "--video", "walk.mp4", **HEADLESS)
    assert (done.code, done.err) == (0, "")
    assert "equal to the log, to the bit" in done.out
    pictures, said = read_film(tmp_path / "walk.mp4")
    assert said == ("h264", 50, "yuv420p")
    assert pictures.shape == (TITLE + length(path, 1) + 1 + END, 442, 1000, 3)
    check_title(pictures[10])
    pictures = pictures[TITLE:]
    check_strip(pictures, 42)
    assert np.abs(pictures[0, 42:, :600].astype(int) - pictures[8, 42:, :600]).max() > 100
    network = pictures[:11:4, 42:, 600:].astype(int)
    assert (network.max(axis=3) < 60).mean() > 0.7  # a network at night,
    assert np.abs(network[0] - network[2]).max() > 100  # which does something
    assert (np.abs(pictures[-END::8, 42:].astype(int) - pictures[-1, 42:]) < 30).mean() > 0.999
    assert [p.name for p in tmp_path.glob("*walk*")] == ["walk.mp4"]
    assert not list(tmp_path.glob(".*partial*"))


@pytest.mark.parametrize("env", ["BipedalWalker-v3", "LunarLander-v3"])
def test_an_exact_world_is_filmed_without_a_display(call, absent, record, tmp_path, env):
    path = record(env, "--engine", "exact", *SHORT)
    done = call("replay", path, "--video", "exact.gif", **HEADLESS)
    assert (done.code, done.err) == (0, "")
    assert "equal to the log, to the bit" in done.out
    pictures, _ = read_film(tmp_path / "exact.gif")
    assert len(pictures) == gif_pictures(path)
    assert np.abs(pictures[GIF_TITLE, 30:, :384].astype(int) - pictures[-1, 30:, :384]).max() > 100
    absent("Box2D", "pygame")
    none = call("replay", path, "--video", "none.gif", **HEADLESS)
    assert (none.code, "[box2d]" in none.err) == (2, True)
    call("replay", path).ok()


def test_the_champions_of_several_generations_make_one_film(call, record, tmp_path):
    path = record("CartPole-v1", *SHORT)
    done = call("replay", path, "--generations", "0,last", "--video", "learning.gif", **HEADLESS).ok()
    assert done.out.count("equal to the log, to the bit") == 2
    said = [line.split(":")[0] for line in done.out.splitlines()[::2]]
    assert said == ["generation 0", "generation 1", "learning.gif"]
    pictures, _ = read_film(tmp_path / "learning.gif")
    parts = [gif_pictures(path, generation) for generation in (0, 1)]
    assert len(pictures) == sum(parts)
    assert set(gif_durations(tmp_path / "learning.gif")) == {80}
    for first in (0, parts[0]):
        check_title(pictures[first])
        assert (pictures[first + GIF_TITLE, 42:].min(axis=2) > 230).mean() < 0.9


def test_several_champions_can_be_played_unseen(call, record):
    done = call("replay", record("CartPole-v1"), "--generations", "1,0,last").ok()
    assert done.out.count("equal to the log, to the bit") == 3
    assert done.out.startswith("generation 1: return ")


def test_a_champion_plays_in_a_changed_environment(call, record, tmp_path):
    path = record("CartPole-v1", "--engine", "exact", *SHORT)
    long = ("--set", "env.kwargs.length=5.0")
    done = call("replay", path, "--held-out", *long, "--video", "long.gif", **HEADLESS)
    assert (done.code, done.err) == (0, "")
    assert (
        "not compared with the log: an episode in another environment, CartPole-v1 with env.kwargs.length=5" in done.out
    )
    returned = float(done.out.split()[1])
    assert evolve.load(path).evaluate(1, env={"kwargs": {"length": 5.0}}).returns.tolist() == [returned]
    pictures, _ = read_film(tmp_path / "long.gif")
    call("replay", path, "--held-out", "--video", "own.gif", **HEADLESS).ok()
    own, _ = read_film(tmp_path / "own.gif")
    difference = np.abs(pictures[GIF_TITLE].astype(int) - own[GIF_TITLE].astype(int)).max(axis=2)
    assert (difference > 60).sum() > 400  # the pole is longer, and the caption says so
    drawn = call("replay", path, "--set", "env.randomize.length={uniform=[0.9, 1.1]}")
    assert re.search(r"environment seed \d+, length=(0\.9|1\.0)\d+\)", drawn.out)
    assert call("replay", path, "--set", "env.id=Pendulum-v1").code == 2
    assert "--set: expected a key of env or of network" in call("replay", path, "--set", "population=3").err


def test_an_interrupt_is_not_forgotten_in_the_next_episode(call, record, monkeypatch):
    def played(*given):
        signal.raise_signal(signal.SIGINT)
        return play(*given)

    monkeypatch.setattr(replay, "play", played)
    done = call("replay", record("CartPole-v1"), "--generations", "0,last")
    assert (done.code, done.err) == (75, "evolve.replay: stopped by SIGINT before generation 1\n")
    assert done.out.startswith("generation 0: return ")


def test_a_generation_that_is_not_complete_has_no_log(call, record):
    done = call("replay", record("CartPole-v1"), "--generation", 2)
    assert (done.code, done.err) == (0, "")
    asked = "candidate 0 has the genome that the strategy will ask for"
    assert done.out.splitlines()[1:] == [f"nothing in the log: generation 2 is not complete yet, and {asked}"]


def test_a_gif_leaves_frames_out(call, record, tmp_path):
    path = record("CartPole-v1", *SHORT)
    call("replay", path, "--video", "cart.gif", **HEADLESS).ok()
    from PIL import Image

    with Image.open(tmp_path / "cart.gif") as film:
        assert (film.size, film.info["loop"]) == ((640, 290), 0)
    shown = gif_durations(tmp_path / "cart.gif")
    assert len(shown) == gif_pictures(path)
    assert set(shown) == {80}
    pictures, _ = read_film(tmp_path / "cart.gif")
    check_title(pictures[0])
    body = pictures[GIF_TITLE:, 34:, :384]
    assert (body < 30).all(axis=3).any(axis=(1, 2)).all()  # the cart is in each
    assert np.abs(pictures[-1, :30].astype(int) - pictures[GIF_TITLE, :30]).max() > 100
    assert (tmp_path / "cart.gif").stat().st_size < 30_000 * len(shown)


@pytest.fixture(scope="session")
def mujoco_draws():
    way = next((way for way, name in (("egl", "EGL"), ("osmesa", "OSMesa")) if find_library(name)), None)
    if way is None:
        pytest.skip("neither EGL nor OSMesa is installed, so MuJoCo cannot draw")
    code = f"from mujoco.{way} import GLContext; GLContext(8, 8).free()"
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip(f"{way} does not work here, so MuJoCo cannot draw")


@pytest.mark.usefixtures("mujoco_draws")
def test_mujoco_is_filmed_without_a_display(command, record, tmp_path):
    path = record("InvertedPendulum-v5", *SHORT, "--set", "env.kwargs.reset_noise_scale=0.1")
    done = command("replay", path, "--generation", 0, "--video", "pole.mp4", **HEADLESS)
    assert (done.code, done.err) == (0, "")
    pictures, said = read_film(tmp_path / "pole.mp4")
    assert said == ("h264", 25, "yuv420p")
    assert pictures.shape[:3] == (25 + length(path, 0) + 1 + 13, 522, 840)
    pictures = pictures[25:]
    assert np.abs(pictures[0, 42:, :480].astype(int) - pictures[3, 42:, :480]).max() > 30
    assert ((pictures[:, :30].max(axis=3) < 90).sum(axis=(1, 2)) > 50).all()


def test_envpool_is_filmed_where_it_can_draw(call, record, tmp_path):
    path = record("CartPole-v1", "--engine", "envpool", *SHORT)
    done = call("replay", path, "--video", "pool.gif", **HEADLESS).ok()
    assert "equal to the log, to the bit" in done.out
    pictures, _ = read_film(tmp_path / "pool.gif")
    assert len(pictures) == gif_pictures(path)
    assert np.abs(pictures[GIF_TITLE, 32:].astype(int) - pictures[-1, 32:]).max() > 100
    with pytest.raises(InputError, match=r"env\.engine: expected an environment that can be drawn as frames"):
        environments.drawable_options(EnvOptions(id="HalfCheetah-v4", engine="envpool"), "rgb_array")
    with pytest.raises(InputError, match=r"in a window, got CartPole-v1 of EnvPool\. Draw it as frames: mode="):
        environments.drawable_options(EnvOptions(id="CartPole-v1", engine="envpool"), "human")


def test_the_title_of_a_film_names_the_genome(call, record, monkeypatch):
    seen = []

    def film(subjects, *_, **__):
        seen.extend(subjects)
        raise Stopped("seen")

    monkeypatch.setattr(video, "film_episodes", film)
    path = record("CartPole-v1", "--set", "strategy.name=nsga2", *SHORT)
    assert call("replay", path, "--connections", 400, "--video", "small.gif", **HEADLESS).code == 75
    assert [subject.changes for subject in seen] == [", best with at most 400 acting connections"]


def test_an_envpool_environment_without_frames_is_filmed_in_gymnasium(call, record, tmp_path, monkeypatch):
    monkeypatch.setattr(
        video, "envpool_can_draw", lambda _id: False
    )  # as of MuJoCo's tasks, which few machines can draw
    path = record("CartPole-v1", "--engine", "envpool", *SHORT)
    done = call("replay", path, "--video", "twin.gif", **HEADLESS).ok()
    assert "not compared with the log: an episode of CartPole-v1 of Gymnasium, since EnvPool" in done.out
    assert (tmp_path / "twin.gif").exists()
    assert "equal to the log, to the bit" in call("replay", path).out


def test_an_experiment_may_have_a_render_mode_of_its_own(call, record):
    path = record("CartPole-v1", *SHORT, "--set", 'env.kwargs.render_mode="ansi"')
    for how in ((), ("--video", "own.gif")):
        done = call("replay", path, *how, **HEADLESS).ok()
        assert "equal to the log, to the bit" in done.out


def test_a_window_needs_a_display(call, command, record):
    path = record("CartPole-v1")
    done = call("replay", path, "--window", **HEADLESS)
    assert done.code == 2
    assert "--window: expected a display" in done.err
    assert "--video" in done.err
    begun = command("replay", path, "--window", **HEADLESS | {"SDL_VIDEODRIVER": "dummy"}).ok()
    assert "equal to the log, to the bit" in begun.out
    assert begun.seconds > length(path, 1) / 50  # at its natural speed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--video", "x.avi"), "x.avi cannot be written: the name has to end with .mp4 or .gif."),
        (("--video", "/proc/x.mp4"), "/proc/x.mp4 cannot be written: '/proc' takes no files."),
        (("--video", "x.mp4", "--window"), "--window: expected no --video with it"),
        (("--seconds", "3"), "--seconds: expected a time above 0, and --video with it, got no --video"),
        (("--video", "x.mp4", "--seconds", "0"), "--seconds: expected a time above 0, and --video with it, got 0.0"),
        (("--generations", "0,one"), "--generations: expected a list of complete generations, like 0,1 or 0,last"),
        (("--generations", ""), "--generations: expected a list of complete generations"),
        (("--generations", "0,2"), "got 0,2"),
        (("--generations", "0,-1"), "got 0,-1"),
        (("--generations", "0,1", "--episode", "1"), "episode (--episode): expected 0, got 1"),
        (("--generations", "0,1", "--generation", "1"), "--generation: expected no --generations with it"),
        (("--generations", "0,1", "--held-out"), "--held-out: expected no --generations with it"),
        (("--candidate", "1", "--held-out"), "--candidate: expected no --generations, --held-out or --validation with"),
    ],
)
def test_wrong_input(call, record, arguments, message):
    call("replay", record("CartPole-v1"), *arguments).refused(message)


@pytest.mark.parametrize("missing", ["av", "PIL"])
def test_without_the_libraries(call, record, missing, absent):
    path = record("CartPole-v1")
    absent(missing)
    call("replay", path, "--video", "x.mp4").refused(f"pip install -e '{ROOT}[video]'")
    absent("av", "PIL")
    call("replay", path).ok()


def test_an_environment_without_frames_is_refused(call, record, tmp_path):
    call("replay", record("toys:Slow-v0"), "--video", "x.mp4").refused(
        "the render mode 'rgb_array', got toys:Slow-v0, which has no render mode"
    )
    assert not list(tmp_path.glob("*.mp4"))


@pytest.mark.parametrize(
    ("owner", "work", "words"),
    [(video.Film, "add", "in step 1"), (video.Camera, "end", "while the GIF was written")],
)
def test_a_film_can_be_interrupted(call, record, tmp_path, monkeypatch, owner, work, words):
    path = record("CartPole-v1", "--set", "env.max_episode_steps=1")
    unchanged = getattr(owner, work)

    def interrupt_and_work(self, *arguments):
        signal.raise_signal(signal.SIGINT)
        unchanged(self, *arguments)

    monkeypatch.setattr(owner, work, interrupt_and_work)
    done = call("replay", path, "--video", "x.gif", **HEADLESS)
    assert (done.code, done.err) == (75, f"evolve.replay: stopped by SIGINT {words}\n")
    assert not list(tmp_path.glob("*x.gif*"))


@contextmanager
def largest_file(size):
    """Let no file of this process grow beyond a size in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["x.mp4", "x.gif"])
def test_a_disk_that_is_full_is_reported_plainly(call, record, tmp_path, name):
    path = record("CartPole-v1", *SHORT)
    with largest_file(3000):
        done = call("replay", path, "--video", name, **HEADLESS)
    done.refused(f"{name} cannot be written: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((Purpose.EPISODE, 2, 4, 1), "--generation 2 --candidate 4 --episode 1"),
        ((Purpose.HELD_OUT, 0, 0, 9), "--held-out --episode 9"),
        ((Purpose.VALIDATION, 3, 0, 9), "--validation --episode 9"),
    ],
)
def test_a_failed_episode_is_played_alone_by_a_command(key, words):
    line = replay_command(Path("my runs/seed-0.h5"), EpisodeError("it", "failed", tuple(map(int, key))))
    assert line == f"python -m evolve.replay 'my runs/seed-0.h5' {words}"
    parser_of("replay").parse_args(shlex.split(line)[3:])


def test_initial_candidates_need_not_be_stored(call, record):
    done = call("replay", record("CartPole-v1"), "--generation", 0, "--candidate", 3)
    assert (done.code, "equal to the log, to the bit" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (-1, "candidate (--candidate): expected one of the 4 candidates (0 to 3), got -1"),
        (4, "got 4"),
        (None, "which alone is stored"),
    ],
)
def test_candidates_that_are_not_there(call, record, candidate, message):
    path = record("CartPole-v1")
    if candidate is None:
        candidate = (store.read(path).records[1].champion_candidate + 1) % 4
    call("replay", path, "--generation", 1, "--candidate", candidate).refused(message)


@pytest.mark.parametrize("generation", [-1, 3])
def test_generations_that_are_not_there(call, record, generation):
    call("replay", record("CartPole-v1"), "--generation", generation).refused(
        f"generation (--generation): expected one of 0 to 2 (the next one), got {generation}"
    )


def test_a_log_that_was_changed_is_reported(call, record, tmp_path):
    path = tmp_path / "seed-0.h5"
    shutil.copy(record("CartPole-v1"), path)
    with h5py.File(path, "r+") as file:
        for generation in (0, 1):
            best = int(file["champion/candidate"][generation])
            logged = file["generation/returns"][generation, best, 0]
            file["generation/returns"][generation, best, 0] = np.nextafter(logged, 0)
    one, two = (call("replay", path, "--generations", generations) for generations in ("0", "0,1"))
    assert (one.code, two.code) == (1, 1)
    assert "has a return of" in one.err
    assert two.err == one.err.replace("\n", " (and 1 more episode)\n")
