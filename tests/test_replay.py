"""The replay command: what is played, what is refused, and films of it read back."""

import os
import shutil
import signal
import subprocess
import sys
from ctypes.util import find_library

import h5py
import numpy as np
import pytest
from conftest import environment, launcher
from test_run import without

from evolve import environments, playback, store
from evolve.config import EnvOptions
from evolve.errors import EpisodeError, InputError, RunError, Stopped
from evolve.experiment import reload
from evolve.film import Film, Label
from evolve.playback import choose, make_engine, play
from evolve.replay import _interruptible
from evolve.stopping import StopFlag

SMALL = ("-p", "4", "-g", "2", "-r", "1", "-d", "2", "--set", "held_out_episodes=1")
SHORT = ("--set", "env.max_episode_steps=30")
END, TITLE = 25, 50  # pictures at 50 a second
HEADLESS = {"DISPLAY": None, "WAYLAND_DISPLAY": None, "SDL_VIDEODRIVER": None, "MUJOCO_GL": None}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Return a function that makes a run file of an environment, once."""
    from evolve.run import main

    made = {}

    def run(env, *more):
        if (env, *more) not in made:
            folder = tmp_path_factory.mktemp("runs")
            assert main(["-e", env, *SMALL, *more, "-o", str(folder)]) == 0
            made[env, *more] = store.path_of(folder, 0)
        return made[env, *more]

    return run


def read(path):
    """Return the pictures of a film, [N, H, W, 3], and what its file says of itself."""
    import imageio.v3 as iio

    how = {"plugin": "pyav"} if path.suffix == ".mp4" else {"plugin": "pillow", "mode": "RGB"}
    return np.stack(list(iio.imiter(path, **how))), iio.immeta(path, plugin=how["plugin"])


def length(path, generation):
    record = store.read(path).records[generation]
    return int(record.lengths[record.champion_candidate, 0])


def check_strip(pictures, high):
    """The strip has dark letters on light paper, and what it says changes."""
    strip = pictures[:, : high - 2].astype(int)
    assert ((strip.max(axis=3) < 90).sum(axis=(1, 2)) > 50).all()
    assert (strip.min(axis=3) > 230).mean() > 0.7
    assert np.abs(strip[0] - strip[20]).max() > 100


def test_a_walker_is_filmed_and_the_episode_is_that_of_the_log(command, record, tmp_path):
    path = record("BipedalWalker-v3", *SHORT)
    done = command("replay", path, "--video", "walk.mp4", **HEADLESS)
    assert (done.code, done.err) == (0, "")
    assert "equal to the log, to the bit" in done.out
    pictures, said = read(tmp_path / "walk.mp4")
    assert (said["codec"], said["fps"], said["video_format"]) == ("h264", 50, "yuv420p")
    assert pictures.shape == (length(path, 1) + 1 + END, 432, 600, 3)
    check_strip(pictures, 32)
    assert np.abs(pictures[0, 32:].astype(int) - pictures[20, 32:]).max() > 100
    assert (np.abs(pictures[-END:, 32:].astype(int) - pictures[-1, 32:]) < 30).mean() > 0.999
    assert [p.name for p in tmp_path.glob("*walk*")] == ["walk.mp4"]
    assert not list(tmp_path.glob(".*partial*"))


def test_the_champions_of_several_generations_make_one_film(command, record, tmp_path):
    path = record("BipedalWalker-v3", *SHORT)
    done = command("replay", path, "--generations", "0,last", "--video", "learning.mp4", **HEADLESS)
    assert done.code == 0, done.err
    assert done.out.count("equal to the log, to the bit") == 2
    assert [line.split(":")[0] for line in done.out.splitlines()[::2]] == [
        "generation 0",
        "generation 1",
        "learning.mp4",
    ]
    pictures, _ = read(tmp_path / "learning.mp4")
    parts = [TITLE + length(path, g) + 1 + END for g in (0, 1)]
    assert len(pictures) == sum(parts)
    for first in (0, parts[0]):
        assert (pictures[first + 10].min(axis=2) > 230).mean() > 0.9  # a title on paper
        assert (pictures[first + 10].max(axis=2) < 90).sum() > 300
        assert (pictures[first + TITLE, 32:].min(axis=2) > 230).mean() < 0.9


def test_several_champions_can_be_played_unseen(command, record):
    done = command("replay", record("CartPole-v1"), "--generations", "1,0,last")
    assert done.code == 0, done.err
    assert done.out.count("equal to the log, to the bit") == 3
    assert done.out.startswith("generation 1: return ")


def test_of_a_generation_that_is_not_told_yet_there_is_no_log(command, record):
    done = command("replay", record("CartPole-v1"), "--generation", 2)
    assert (done.code, done.err) == (0, "")
    untold = "generation 2 is not told yet: candidate 0 as it would be asked for; nothing in the log"
    assert done.out.splitlines()[1:] == [untold]


def test_a_gif_leaves_frames_out(command, record, tmp_path):
    path = record("CartPole-v1", *SHORT)
    done = command("replay", path, "--video", "cart.gif", **HEADLESS)
    assert done.code == 0, done.err
    from PIL import Image

    with Image.open(tmp_path / "cart.gif") as film:
        assert (film.size, film.info["loop"]) == ((600, 432), 0)
        shown = []
        for number in range(film.n_frames):
            film.seek(number)
            shown.append(film.info["duration"])
    steps = length(path, 1)
    assert len(shown) == steps // 2 + 1 + steps % 2  # the last step is always there
    assert set(shown[:-1]) == {40}
    assert shown[-1] == 40 + 520  # half a second, in pictures
    pictures, _ = read(tmp_path / "cart.gif")
    assert (pictures[:, 32:] < 20).all(axis=3).any(axis=(1, 2)).all()  # the cart is in each
    check = pictures[-1, :30].astype(int)
    assert np.abs(check - pictures[0, :30]).max() > 100


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
    pictures, said = read(tmp_path / "pole.mp4")
    assert said["fps"] == 25
    assert pictures.shape[:3] == (length(path, 0) + 1 + 13, 506, 480)
    assert np.abs(pictures[0, 32:].astype(int) - pictures[3, 32:]).max() > 30
    assert ((pictures[:, :30].max(axis=3) < 90).sum(axis=(1, 2)) > 50).all()


def test_mujoco_without_a_library_to_draw_with_is_refused(monkeypatch):
    for name in HEADLESS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="apt-get install libegl1"):
        environments.drawn(EnvOptions(id="InvertedPendulum-v5"), "rgb_array")


def test_the_camera_follows_who_would_leave_the_picture(monkeypatch):
    """But a camera that the experiment names is kept."""
    monkeypatch.setenv("DISPLAY", ":0")
    for name, kwargs, camera in (
        ("HalfCheetah-v5", {}, "track"),
        ("InvertedPendulum-v5", {}, None),
        ("HalfCheetah-v5", {"camera_id": -1}, None),
        ("CartPole-v1", {}, None),
    ):
        drawn = environments.drawn(EnvOptions(id=name, kwargs=kwargs), "rgb_array").kwargs
        assert drawn == kwargs | {"render_mode": "rgb_array"} | ({"camera_name": camera} if camera else {})


@pytest.mark.parametrize("found", ["EGL", "OSMesa", None])
def test_how_mujoco_draws_is_chosen_unless_the_user_has(monkeypatch, found):
    from evolve.environments import drawing

    monkeypatch.setattr(drawing, "find_library", lambda name: name if name == found else None)
    monkeypatch.setattr(os, "environ", {})
    environments.without_display()
    assert os.environ.get("MUJOCO_GL") == (found and found.lower())
    monkeypatch.setattr(os, "environ", {"MUJOCO_GL": "glfw"})
    environments.without_display()
    assert os.environ["MUJOCO_GL"] == "glfw"
    monkeypatch.setattr(os, "environ", {"DISPLAY": ":0"})
    environments.without_display()
    assert os.environ == {"DISPLAY": ":0"}


def test_envpool_is_filmed_where_it_can_draw(command, record, tmp_path):
    path = record("CartPole-v1", "--engine", "envpool", *SHORT)
    done = command("replay", path, "--video", "pool.mp4", **HEADLESS)
    assert done.code == 0, done.err
    assert "equal to the log, to the bit" in done.out
    pictures, _ = read(tmp_path / "pool.mp4")
    assert len(pictures) == length(path, 1) + 1 + END
    assert np.abs(pictures[0, 32:].astype(int) - pictures[-1, 32:]).max() > 100
    with pytest.raises(InputError, match=r"env\.engine: expected an environment that can be drawn as frames"):
        environments.drawn(EnvOptions(id="HalfCheetah-v4", engine="envpool"), "rgb_array")
    with pytest.raises(InputError, match=r"in a window, got CartPole-v1 of EnvPool\. Use --video"):
        environments.drawn(EnvOptions(id="CartPole-v1", engine="envpool"), "human")


def test_an_experiment_may_have_a_render_mode_of_its_own(command, record):
    path = record("CartPole-v1", *SHORT, "--set", 'env.kwargs.render_mode="ansi"')
    for how in ((), ("--video", "own.mp4")):
        done = command("replay", path, *how, **HEADLESS)
        assert done.code == 0, done.err
        assert "equal to the log, to the bit" in done.out


def test_a_window_needs_a_display(command, record):
    path = record("CartPole-v1", *SHORT)
    done = command("replay", path, "--window", **HEADLESS)
    assert done.code == 2
    assert "--window: expected a display" in done.err
    assert "--video" in done.err
    begun = command("replay", path, "--window", **HEADLESS | {"SDL_VIDEODRIVER": "dummy"})
    assert begun.code == 0, begun.err
    assert "equal to the log, to the bit" in begun.out
    assert begun.seconds > length(path, 1) / 50  # at its natural speed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--video", "x.avi"), "--video: expected a name that ends with .mp4 or .gif, got x.avi"),
        (("--video", "/proc/x.mp4"), "--video: expected a file that can be written, got /proc/x.mp4 (No such file"),
        (("--video", "x.mp4", "--window"), "not allowed with argument"),
        (("--generations", "0,one"), "--generations: expected a list of told generations, like 0,1 or 0,last"),
        (("--generations", ""), "--generations: expected a list of told generations"),
        (("--generations", "0,2"), "got 0,2"),
        (("--generations", "0,-1"), "got 0,-1"),
        (("--generations", "0,1", "--episode", "1"), "--episode: expected one of the 1 episodes"),
        (("--generations", "0,1", "--generation", "1"), "not allowed with argument"),
        (
            ("--generations", "0,1", "--held-out"),
            "--generations: expected no --candidate, --held-out or --validation with it",
        ),
    ],
)
def test_wrong_input(record, capfd, arguments, message):
    from evolve.replay import main

    path = str(record("CartPole-v1"))
    capfd.readouterr()
    assert main([path, *arguments]) == 2
    said = capfd.readouterr()
    assert (said.out, message in said.err, said.err.count("\n")) == ("", True, 1), said.err


@pytest.mark.parametrize("missing", ["imageio", "av", "PIL"])
def test_without_the_libraries(command, record, missing):
    path = record("CartPole-v1")
    done = command("replay", path, "--video", "x.mp4", **without(missing))
    assert done.code == 2
    assert "pip install -e '.[video]'" in done.err
    assert (missing != "imageio") or command("replay", path, **without("imageio,av,PIL")).code == 0


def test_what_cannot_be_drawn_is_refused(command, record, tmp_path):
    done = command("replay", record("toys:Slow-v0"), "--video", "x.mp4")
    assert done.code == 2
    assert (
        "env.id: expected an environment with the render mode 'rgb_array', got toys:Slow-v0, which has none" in done.err
    )
    assert not list(tmp_path.glob("*.mp4"))


def test_a_clip_is_short_and_narrow(record, tmp_path):
    path = record("BipedalWalker-v3", *SHORT)
    run = store.read(path)
    experiment = reload(run)
    chosen = playback.choose(run, experiment, 1, None, 0)
    outcomes = playback.clip(run, experiment, chosen, tmp_path / "clip.mp4", seconds=0.2, width=301)
    assert float(outcomes.returns[0]) == chosen.logged
    pictures, _ = read(tmp_path / "clip.mp4")
    shown = len(pictures) - END
    assert shown <= 10 + 2
    assert pictures.shape[1:3] == (242, 302)  # two rows, and even
    assert (tmp_path / "clip.mp4").stat().st_size < 100_000


def test_an_episode_can_be_played_through_a_recorder(record):
    run = store.read(record("CartPole-v1"))
    experiment = reload(run)
    chosen = playback.choose(run, experiment, 0, None, 0)
    engine, seen = environments.Recorder(playback.make_engine(experiment, chosen), slots=1, observations=True), []
    outcomes = playback.play(run, experiment, chosen, engine, lambda step, returned: seen.append((step, returned)))
    recorded = engine.finished[0]
    assert recorded.returned == chosen.logged == float(outcomes.returns[0])
    assert recorded.seed == playback.environment_seed(run, experiment, chosen)
    assert seen == [(n, float(n)) for n in range(len(recorded.rewards) + 1)]


def test_a_step_that_fails_is_not_shown(record):
    run = store.read(record("toys:Slow-v0"))
    experiment = reload(run)
    broken = experiment.config.env.model_copy(update={"id": "toys:Broken-v0"})
    chosen = playback.choose(run, experiment, 0, None, 0)
    seen = []
    with pytest.raises(EpisodeError, match="in step 5"):
        playback.play(run, experiment, chosen, environments.make(broken, 1), lambda step, _: seen.append(step))
    assert seen == [0, 1, 2, 3, 4]


def test_a_film_that_is_not_finished_leaves_nothing(tmp_path):
    frame = np.zeros((40, 61, 3), np.uint8)
    for name in ("x.mp4", "x.gif"):
        film = Film(tmp_path / name, 50)
        film.add(frame, Label("x", "y", 0, 0.0))
        assert len(list(tmp_path.iterdir())) == 1
        film.__exit__(KeyError, KeyError(), None)
    assert not list(tmp_path.iterdir())
    with pytest.raises(RunError, match="nothing has been filmed"), Film(tmp_path / "x.gif", 50):
        pass
    assert not list(tmp_path.iterdir())


def test_a_film_can_be_interrupted():
    stop = StopFlag()
    each_step = _interruptible(stop, None)
    each_step(0, 0.0)
    stop.signal = signal.SIGINT
    with pytest.raises(Stopped, match="SIGINT in step 1"):
        each_step(1, 0.0)


def test_a_disk_that_is_full_is_told_plainly(record, tmp_path):
    """A file may grow to so many bytes, and no further."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
    code = f"{limit}from evolve.replay import main; sys.exit(main())"
    for name in ("x.mp4", "x.gif"):
        words = [sys.executable, "-c", code, str(record("CartPole-v1", *SHORT)), "--video", name]
        done = subprocess.run(
            words, capture_output=True, text=True, cwd=tmp_path, env=environment(**HEADLESS), check=False
        )
        assert done.returncode == 2, done.stderr
        assert f"--video: expected a file that can be written, got {name}" in done.stderr
        assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def everybody(tmp_path_factory):
    """A BipedalWalker run, made by three ranks, that keeps every genome."""
    folder = tmp_path_factory.mktemp("everybody")
    words = ("-e", "BipedalWalker-v3", "-p", 12, "-r", 3, "-g", 4, "-d", 8, 8, "--set", "output.genomes=all",
             "--set", "held_out_episodes=0", "-o", folder)  # fmt: skip
    run = [*launcher(3), sys.executable, "-m", "evolve.run", *map(str, words)]
    subprocess.run(run, env=environment(), cwd=folder, check=True, timeout=100, capture_output=True)
    return store.read(store.path_of(folder, 0))


def test_any_episode_of_any_candidate_is_that_of_the_log_to_the_bit(everybody):
    experiment = reload(everybody)
    places = np.random.Generator(np.random.Philox(7)).integers(0, [4, 12, 3], (50, 3)).tolist()
    for generation, candidate, episode in places:
        chosen = choose(everybody, experiment, generation, candidate, episode)
        engine = make_engine(experiment, chosen)
        outcomes = play(everybody, experiment, chosen, engine)
        engine.close()
        record = everybody.records[generation]
        assert outcomes.returns[0] == record.returns[candidate, episode] == chosen.logged
        assert outcomes.lengths[0] == record.lengths[candidate, episode]
        assert (outcomes.fingerprints[0] == record.fingerprints[candidate, episode]).all()


def test_a_stored_candidate_is_replayed_by_the_command(command, everybody):
    best = everybody.records[2].champion_candidate
    done = command("replay", everybody.path, "--generation", 2, "--candidate", (best + 1) % 12, "--episode", 1)
    assert (done.code, done.out.endswith("equal to the log, to the bit\n")) == (0, True)
    returned = everybody.records[2].returns[(best + 1) % 12, 1]
    assert done.out.startswith(f"return {float(returned)!r} in ")


def test_newborn_candidates_need_not_be_stored(record):
    from evolve.replay import main

    assert main([str(record("CartPole-v1")), "--generation", "0", "--candidate", "3"]) == 0


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (-1, "--candidate: expected one of the 4 candidates (0 to 3), got -1"),
        (4, "got 4"),
        (None, "which alone is stored"),
    ],
)
def test_candidates_that_are_not_there(record, capfd, candidate, message):
    from evolve.replay import main

    path = record("CartPole-v1")
    if candidate is None:
        candidate = (store.read(path).records[1].champion_candidate + 1) % 4
    capfd.readouterr()
    assert main([str(path), "--generation", "1", "--candidate", str(candidate)]) == 2
    assert message in capfd.readouterr().err


def test_a_log_that_was_changed_is_told(command, record, tmp_path):
    path = tmp_path / "seed-0.h5"
    shutil.copy(record("CartPole-v1"), path)
    with h5py.File(path, "r+") as file:
        best = int(file["champion/candidate"][1])
        file["generation/returns"][1, best, 0] = np.nextafter(file["generation/returns"][1, best, 0], 0)
    done = command("replay", path)
    assert done.code == 1
    assert "has a return of" in done.err
