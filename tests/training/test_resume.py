"""A run that is stopped, killed or extended, and resumed, has the digests of an uninterrupted run."""

import os
import re
import shutil
import signal
from contextlib import closing
from pathlib import Path

import h5py
import pytest
from conftest import ROOT, make_runs, wait_for
from tampering import edit_config, edit_manifest

import evolve
from evolve import __version__, store
from evolve.cli.parser import command_line
from evolve.cli.run import load
from evolve.cluster import Transport
from evolve.config import Config
from evolve.errors import InputError
from evolve.training import config_of, load_config, prepare
from evolve.training.manifest import revision
from evolve.training.plan import plan_runs
from evolve.training.resume import check_and_create_runs, open_run, replace_run, restore

G = 12
# Each generation takes its time while there is a brake: there is always something to interrupt.
RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.008", "--set", "env.kwargs.brake=brake", "-p", 6, "-r", 2,
       "-g", G, "-d", 4, "-s", 5, "--set", "held_out_episodes=3", "-o", "out")  # fmt: skip
QUICK = ("-p", 4, "-r", 1, "-g", 2, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")


def num_generations(tmp_path):
    try:
        return store.read_progress(store.path_of(tmp_path / "out", 5))[0]
    except Exception:  # not there yet
        return 0


def wait_for_generations(process, tmp_path, generations):
    """Wait until the file holds that many generations; fail at once if the process ends before."""

    def ready():
        there = num_generations(tmp_path) >= generations
        assert there or process.popen.poll() is None, process.output()
        return there

    wait_for(ready, process.output)


def wait_for_progress(process, generations):
    """Wait until that many generations are printed: on a slow disk the file has them later."""

    def ready():
        there = "".join(process.output()).count("  best fitness ") >= generations
        assert there or process.popen.poll() is None, process.output()
        return there

    wait_for(ready, process.output)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    where = tmp_path_factory.mktemp("uninterrupted")
    make_runs(where, *RUN)
    return store.read(store.path_of(where / "out", 5))


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    where = tmp_path_factory.mktemp("quick")
    make_runs(where, *QUICK)
    return where / "out"


@pytest.fixture
def quick(quick_run, tmp_path):
    """The file of a complete run of QUICK, which the test may change."""
    shutil.copytree(quick_run, tmp_path / "out")
    return tmp_path / "out" / "seed-0.h5"


def same(tmp_path, expected):
    run = store.read(store.path_of(tmp_path / "out", 5))
    assert [r.digest for r in run.records] == [r.digest for r in expected.records]
    assert run.complete
    assert run.held_out.returns.tolist() == expected.held_out.returns.tolist()


@pytest.mark.parametrize(
    ("ranks", "mpi", "then", "number"),
    [(None, "openmpi", 2, signal.SIGINT), (None, "openmpi", 2, signal.SIGTERM),
     (None, "openmpi", None, signal.SIGHUP), (2, "mpich", None, signal.SIGINT), (2, "mpich", None, signal.SIGUSR1),
     (2, "openmpi", None, signal.SIGTERM), (2, "openmpi", None, signal.SIGUSR1),
     pytest.param(None, "openmpi", 2, signal.SIGUSR1, marks=pytest.mark.slow),  # each of these is above, elsewhere
     pytest.param(2, "mpich", None, signal.SIGTERM, marks=pytest.mark.slow)],
)  # fmt: skip
def test_signals_end_with_75_and_a_whole_file(
    start, call, command, tmp_path, brake, uninterrupted, number, ranks, mpi, then
):
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("nohup ignores this signal, also in all processes that this one starts")
    process = start("run", *RUN, ranks=ranks, mpi=mpi)
    wait_for_progress(process, 2)
    if mpi == "openmpi" and ranks:
        # Open MPI's mpirun ends with 1, whatever its ranks do, when it is signalled itself (but forwards SIGUSR1).
        process.ranks()[1 if number == signal.SIGTERM else 0].send_signal(number)
    else:
        process.popen.send_signal(number)
    done = process.wait()
    assert done.code == 75, done.err + done.out
    message = done.err + done.out
    assert message.count("--resume: ") == 1
    assert "Traceback" not in message
    assert 2 <= num_generations(tmp_path) < G
    with h5py.File(tmp_path / "out" / "seed-5.h5") as file:
        assert not file.attrs["complete"]
    brake.unlink()
    many = then and number == signal.SIGTERM
    resumed = command("run", *RUN, "--resume", ranks=then) if many else call("run", *RUN, "--resume")
    assert resumed.code == 0, resumed.err
    same(tmp_path, uninterrupted)


@pytest.mark.cold
def test_open_mpis_own_mpirun_signalled_leaves_a_whole_file(start, call, tmp_path, brake, uninterrupted):
    process = start("run", *RUN, ranks=3)
    wait_for_generations(process, tmp_path, 1)
    process.popen.send_signal(signal.SIGTERM)
    done = process.wait()
    assert done.code != 0
    resume = f"mpirun -n 3 {command_line('run', '--resume', 'out/seed-5.h5')}"  # rank 0 prints it: mpirun is silent now
    assert re.search(rf"^evolve\.run: .*out/seed-5\.h5.*: {re.escape(resume)}$", done.err, re.M), done.err
    brake.unlink()
    call("run", *RUN, "--resume").ok()
    same(tmp_path, uninterrupted)


@pytest.mark.parametrize("ranks", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_killed_outright_after_any_generation(start, call, command, tmp_path, brake, uninterrupted, ranks):
    for generations in (1, 4):
        process = start("run", *RUN, "--resume", ranks=ranks)
        wait_for_generations(process, tmp_path, generations)
        process.kill()
        process.popen.wait()
    brake.unlink()
    resumed = call("run", *RUN, "--resume") if ranks else command("run", *RUN, "--resume", ranks=2)
    assert resumed.code == 0, resumed.err
    same(tmp_path, uninterrupted)


def test_a_killed_worker_ends_the_job_and_resume_continues(start, call, tmp_path, brake, uninterrupted):
    process = start("run", *RUN, "--workers", 2)
    wait_for_generations(process, tmp_path, 1)
    process.ranks()[2].kill()
    assert process.wait().code == 1
    brake.unlink()
    call("run", *RUN, "--resume").ok()
    same(tmp_path, uninterrupted)


def test_the_time_limit_ends_with_75(call, tmp_path, brake, uninterrupted):
    done = call("run", *RUN, "--time-limit", "1s")
    assert done.code == 75
    assert re.search(r"time limit: .*out/seed-5\.h5.*--resume: ", done.err), done.err
    brake.unlink()
    call("run", *RUN, "--resume").ok()
    same(tmp_path, uninterrupted)


def shorter(generations):
    return [generations if word is G else word for word in RUN]


def test_a_run_file_is_all_that_resuming_needs(call, command, tmp_path, uninterrupted):
    call("run", *shorter(3), "--set", "compute.slots=3", "--time-limit", "1h").ok()
    path = (tmp_path / "out" / "seed-5.h5").rename(tmp_path / "of another name.h5")
    call("run", path.name, "-g", 5, "--resume").ok()
    done = command("run", "--resume", path, "-g", G, ranks=2)
    assert (done.code, re.search(rf"^{re.escape(str(path))}: .*\({G - 1}\) ", done.out, re.M) is not None) == (0, True)
    assert [p.name for p in tmp_path.glob("**/*.h5")] == [path.name]
    config = load_config(store.read(path).header.config)
    assert (config.generations, config.compute.time_limit) == (G, None)
    (tmp_path / "out" / "seed-5.h5").write_bytes(path.read_bytes())
    same(tmp_path, uninterrupted)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("a.h5",), "python -m evolve.run --resume a.h5"),
        (("a.h5", "--resume", "-s", "4"), "seeds, resuming a.h5: expected 3 "),
        (("a.h5", "--resume", "-o", "there"), "output.directory, resuming a.h5: expected '.'"),
        (("a.h5", "--resume", "-a", "mlp"), "network.name, resuming a.h5: expected 'hebbian-dag'"),
        (("a.h5", "--resume", "--set", "sweep.episodes=[2]"), "resuming a.h5"),
        (("b.h5", "--resume"), "b.h5: "),
        (("c.h5", "--resume"), "c.h5, which"),
    ],
)
def test_a_run_file_in_the_place_of_an_experiment(tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    header = store.Header(Config().to_toml(), {}, 3, "CartPole-v1")
    store.create(Path("a.h5"), header).close()
    Path("b.h5").write_text("no run file")
    with pytest.raises(InputError) as wrong:
        load(list(words))
    assert named in str(wrong.value)
    (config,), file, resume, *_ = load(["a.h5", "--resume", "-g", "7", "-o", "./"])
    assert (config.generations, config.seeds, file, resume) == (7, (3,), Path("a.h5"), True)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        (("-p", 17), "population (-p/--population), resuming out/seed-0.h5: "),
        (("-d", 5), "network.hidden (-d/--hidden), resuming out/seed-0.h5: "),
        (("-a", "elman"), "network.name (-a/--network), resuming out/seed-0.h5: "),
        (("--strategy", "ga"), "strategy.name (--strategy), resuming out/seed-0.h5: "),
        (("--set", "strategy.weight_noise=0.5"), "strategy.weight_noise, resuming out/seed-0.h5: "),
        (("-e", "Pendulum-v1"), "env.id (-e/--env), resuming out/seed-0.h5: "),
        (("-g", 1), "generations (-g/--generations): expected at least 2"),
    ],
)
def test_resuming_something_else_is_refused(call, quick, change, setting):
    before = quick.read_bytes()
    call("run", *QUICK, *change, "--resume").refused(setting)
    assert quick.read_bytes() == before


def test_a_task_that_was_changed_meanwhile_is_refused(call, tmp_path):
    task = ("-e", "toys:Elsewhere-v0", "-p", 4, "-r", 2, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    call("run", *task, "-g", 2).ok()
    before = (tmp_path / "out" / "seed-0.h5").read_bytes()
    longer = (*task, "-g", 3, "--resume")
    done = call("run", *longer, "-s", 9, 0, TOY_GRAVITY="12")
    done.refused("The environment has changed", "python -m evolve.verify out/seed-0.h5", "--set compute.check=false")
    assert re.search(r"generation 1, candidate \d, episode 0,.* step \d+ ", done.err), done.err
    assert (tmp_path / "out" / "seed-0.h5").read_bytes() == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["seed-0.h5"]
    call("run", *task, "-g", 2, "--resume", TOY_GRAVITY="12").ok()
    call("run", *longer, "--set", "compute.check=false", TOY_GRAVITY="12").ok()


def test_used_environments_need_not_repeat_themselves(call, tmp_path):
    """In one slot, the champion's episode is not the first one of its environment, which a new one does not repeat."""
    walk = ("-e", "BipedalWalker-v3", "-p", 4, "-r", 1, "-d", 2, "--set", "held_out_episodes=0", "-o", "out")
    used = ("--set", "env.reuse=true", "--set", "env.max_episode_steps=60", "--set", "compute.slots=1")
    call("run", *walk, *used, "-g", 2).ok()
    call("run", *walk, *used, "-g", 3, "--resume").ok()


def test_a_stop_is_noticed_before_any_episode_is_played_again(call, tmp_path):
    task = ("-e", "toys:Elsewhere-v0", "-p", 4, "-r", 1, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    call("run", *task, "-g", 1).ok()
    done = call("run", *task, "-g", 2, "--resume", "--time-limit", "0s", TOY_GRAVITY="12")
    assert (done.code, "time limit" in done.err) == (75, True), done.err


def test_resuming_a_file_of_another_version_warns(call, quick):
    edit_manifest(quick, evolve="0.0.9", revision=f"{'12' * 20}+")
    done = call("run", *QUICK, "-g", 3, "--resume")
    assert (done.code, done.err.count("\n")) == (0, 1), done.err
    assert "evolve 0.0.9 121212121212+, and this is" in done.err
    assert "python -m evolve.verify --full out/seed-0.h5" in done.err
    assert "with other source files" not in call("run", *QUICK, "-g", 4, "--resume").err
    edit_manifest(quick, evolve=__version__, revision=revision(), source="0123456789abcdef")
    done = call("run", *QUICK, "-g", 5, "--resume").ok()
    assert "was written by the same version of evolve with other source files: python" in done.err


def test_a_run_that_begins_when_it_is_resumed_has_its_own_manifest(call, tmp_path):
    """The first process creates the files of all seeds; another one may begin the later runs."""
    assert call("run", *QUICK, "-s", 0, 1, "--time-limit", "0s").code == 75
    for seed in (0, 1):
        edit_manifest(tmp_path / "out" / f"seed-{seed}.h5", evolve="0.0.9", ranks=64)
    done = call("run", *QUICK, "-s", 0, 1, "--resume")
    assert (done.code, done.err) == (0, "")
    for seed in (0, 1):
        manifest = store.read(tmp_path / "out" / f"seed-{seed}.h5").header.manifest
        assert (manifest["evolve"], manifest["ranks"], "resumed" in manifest) == (__version__, 1, False)


def test_another_seeds_file_is_refused(call, tmp_path):
    call("run", *QUICK, "-s", 1).ok()
    shutil.copy(tmp_path / "out" / "seed-1.h5", tmp_path / "out" / "seed-7.h5")
    call("run", *QUICK, "-s", 7, "-g", 3, "--resume").refused(
        "seed (-s/--seed), resuming out/seed-7.h5: expected 1 ", "got 7"
    )


def test_a_damaged_checkpoint_is_refused(call, quick):
    with h5py.File(quick, "r+") as file:
        del file["checkpoint/leaderboard_total"]
    call("run", *QUICK, "-g", 3, "--resume").refused("checkpoint")


@pytest.mark.parametrize(
    ("from_arrays", "fault"),
    [
        (lambda _, arrays: arrays["memory"], "'memory'"),  # a strategy of another package may not check
        (lambda made, _: made.start(), "state: expected a state that `tell` has returned"),
    ],
)
def test_a_checkpoint_that_a_strategy_cannot_read_is_called_damaged(quick, monkeypatch, from_arrays, fault):
    monkeypatch.setattr("evolve.strategies.prune.Prune.from_arrays", from_arrays)
    run = store.read(quick)
    with pytest.raises(InputError, match=rf"an undamaged checkpoint, got a damaged one \({fault}"):
        restore(prepare(config_of(run)), run)


@pytest.mark.parametrize("damage", ["[]", '{"observation": {"type": "Dict", "spaces": []}, "action": null}'])
def test_damaged_spaces_are_stored_again(call, quick, damage):
    with h5py.File(quick, "r+") as file:
        before, file.attrs["spaces"] = file.attrs["spaces"], damage
    call("run", *QUICK, "-g", 3, "--resume").ok()
    with h5py.File(quick) as file:
        assert file.attrs["spaces"] == before


def test_more_held_out_episodes_may_be_asked_for_later(call, tmp_path):
    anew = call("run", *QUICK, "--set", "held_out_episodes=2", "--resume")
    assert (anew.code, anew.err.count("\n"), anew.err.count("out/seed-0.h5")) == (0, 1, 1)
    again = call("run", *QUICK, "--set", "held_out_episodes=7", "--resume")
    assert (again.code, again.err) == (0, "")
    assert len(store.read(store.path_of(tmp_path / "out", 0)).held_out.returns) == 7


@pytest.mark.usefixtures("quick")
def test_what_cannot_reach_a_fitness_may_change(call):
    call("run", *QUICK, "-g", 3, "--resume", "--set", "compute.slots=2", "--set", "held_out_episodes=5").ok()


@pytest.mark.cold
def test_the_second_signal_kills(start, tmp_path):
    endless = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=300", "--set", f"env.kwargs.mark='{tmp_path}/now'")
    process = start("run", *endless, "-p", 4, "-r", 1, "--set", "compute.check=false", "--set", "compute.slots=4")
    wait_for((tmp_path / "now").exists, process.output)
    caught = Path(f"/proc/{process.popen.pid}/status")

    def catches_sigterm():
        line = next(line for line in caught.read_text().splitlines() if line.startswith("SigCgt:"))
        return bool(int(line.split()[1], 16) & 1 << (signal.SIGTERM - 1))

    assert catches_sigterm()
    os.kill(process.popen.pid, signal.SIGTERM)
    wait_for(lambda: not catches_sigterm(), process.output)
    os.kill(process.popen.pid, signal.SIGTERM)
    assert process.wait().code == -signal.SIGTERM


@pytest.mark.parametrize("young", ["init_scale = 1.0\n", "constant_generations = 0\n"], ids=["network", "strategy"])
def test_settings_that_are_younger_than_a_file_have_their_defaults(call, tmp_path, young):
    small = ("-p", 4, "-r", 1, "-d", 2, "--strategy", "openai-es", "--set", "held_out_episodes=0", "-o", "out")
    call("run", *small, "-g", 1).ok()
    edit_config(tmp_path / "out" / "seed-0.h5", young, "")
    done = call("verify", "out/seed-0.h5")
    assert (done.code, done.out.startswith("equal: ")) == (0, True)
    call("run", *small, "-g", 2, "--resume").ok()


def test_held_out_episodes_are_kept_until_the_next_generation(call, tmp_path, monkeypatch):
    """`evolve evaluate` may have stored many. The next generation replaces their champion; no stop does."""
    quick = ("-p", 4, "-r", 1, "-d", 3, "--set", "held_out_episodes=3", "-o", "out")
    call("run", *quick, "-g", 2).ok()
    path = store.path_of(tmp_path / "out", 0)
    with closing(store.reopen(path)) as file:
        file.complete = False
        file.flush()
    assert len(store.read(path).held_out.returns) == 3
    monkeypatch.chdir(tmp_path)
    (config,), *_ = load([str(word) for word in (*quick, "-g", 4)])
    (run,) = plan_runs([prepare(config)])
    with closing(open_run(run, Transport())) as file:
        assert (file.complete, len(file.held_out.returns), file.num_generations) == (False, 3, 2)
    call("run", *quick, "-g", 3, "--resume", "--set", "held_out_episodes=0").ok()
    assert store.read(path).held_out is None
    call("run", *quick, "-g", 4, "--resume").ok()
    call("verify", path).ok()


def test_a_file_that_another_experiment_has_taken_meanwhile_is_refused(call, tmp_path, monkeypatch):
    """All seeds are checked at first, but the file of a later seed is not locked until its turn."""
    quick = ("-p", "4", "-r", "1", "-d", "3", "--set", "held_out_episodes=0", "-o", "out")
    monkeypatch.chdir(tmp_path)
    (config,), *_ = load([*quick, "-g", "3", "-s", "1", "2"])
    first, second = plan_runs([prepare(config)])
    check_and_create_runs([first, second], False, Transport(), lambda *_: None)
    call("run", *quick, "-g", 2, "-s", 2, "--strategy", "openai-es").ok()
    with pytest.raises(InputError, match=r"^strategy\.name, resuming out/seed-2\.h5: expected 'openai-es'"):
        open_run(second, Transport())
    with closing(open_run(first, Transport())) as file:
        assert file.num_generations == 0
    call("verify", "out/seed-2.h5").ok()


def test_if_one_run_is_refused_no_file_is_made(call, tmp_path):
    call("run", *QUICK, "-s", 2).ok()
    done = call("run", *QUICK, "-s", 1, 2)
    assert (done.code, [path.name for path in (tmp_path / "out").iterdir()]) == (2, ["seed-2.h5"])


def test_a_file_is_checked_once_more_before_it_is_replaced(call, tmp_path, monkeypatch):
    quick = ("-p", "4", "-r", "1", "-d", "3", "-g", "1", "--set", "held_out_episodes=0", "-o", "out")
    monkeypatch.chdir(tmp_path)
    call("run", *quick).ok()
    (config,), *_ = load([*quick])
    (run,) = plan_runs([prepare(config)])
    check_and_create_runs([run], False, Transport(), lambda *_: None, overwrite=True)
    run.path.write_text("a poem")
    with pytest.raises(InputError, match=r"^out/seed-0\.h5: expected a readable run file"):
        replace_run(run, Transport())
    assert run.path.read_text() == "a poem"
    store.check_unlocked(run.path)


def test_an_interrupt_while_a_run_is_opened_releases_its_file(quick, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    (run,) = plan_runs([prepare(config_of(store.read(quick)))], quick)
    monkeypatch.setattr("evolve.training.resume.is_unfinished", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_run(run, Transport())
    store.check_unlocked(quick)


MINE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register("Mine-v0", CartPoleEnv, max_episode_steps=20)
"""


def test_changed_code_behind_an_entry_point_and_another_version_are_mentioned(command, tmp_path):
    package = tmp_path / "rover"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import gymnasium\ngymnasium.register('Rover-v0', 'rover.task:Rover', max_episode_steps=20)\n"
    )
    (package / "task.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\nfrom rover.wheels import SPEED\n"
        "class Rover(CartPoleEnv): pass\n"
    )
    (package / "wheels.py").write_text("SPEED = 1\n")
    (installed := tmp_path / "rover-1.3.0.dist-info").mkdir()
    (installed / "METADATA").write_text("Name: rover\nVersion: 1.3.0\n")
    words = ("run", "-e", "rover:Rover-v0", *QUICK)
    command(*words).ok()
    assert "with other code" not in command(*words, "-g", 3, "--resume").err
    (package / "wheels.py").write_text("SPEED = 2\n")
    done = command(*words, "-g", 4, "--resume").ok()
    assert "with other code of rover.wheels: python" in done.err
    (installed / "METADATA").write_text("Name: rover\nVersion: 1.4.0\n")
    assert "with other code of rover.wheels, rover 1.3.0 (now 1.4.0): " in command(*words, "-g", 5, "--resume").ok().err


def test_changed_code_of_a_users_module_is_mentioned(command, tmp_path):
    """One episode is played again, but others may differ."""
    words = ("run", "-e", "mine:Mine-v0", *QUICK)
    (tmp_path / "mine.py").write_text(MINE)
    command(*words).ok()
    assert "with other code" not in command(*words, "-g", 3, "--resume").err
    (tmp_path / "mine.py").write_text(f"{MINE}# A comment changes no episode.\n")
    done = command(*words, "-g", 4, "--resume")
    assert done.code == 0, done.err
    assert "seed-0.h5 was written with other code of mine: python -m evolve.verify --full out/seed-0.h5 " in done.err


def test_changed_code_of_an_own_network_is_named_in_place_of_the_environment(command, tmp_path):
    words = ("run", "-e", "Pendulum-v1", "-a", "mine:leaky", "--strategy", "ga", *QUICK[:6], *QUICK[8:])
    code = (ROOT / "examples" / "outside" / "outside.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    command(*words).ok()
    (tmp_path / "mine.py").write_text(code.replace("return tanh(", "return -tanh("), encoding="utf-8")
    done = command(*words, "-g", 3, "--resume")
    assert done.code == 2, done.err
    assert "seed-0.h5: expected code with which the newest champion plays" in done.err
    assert "with other code of mine, or this" in done.err
    assert "environment has changed" not in done.err


def test_one_slot_stays_one_slot(tmp_path, monkeypatch):
    """The library of such an environment has one world in each process, so a second object is refused."""
    (tmp_path / "worlds.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n\n"
        "class OneWorld(CartPoleEnv):\n    live = 0\n\n"
        "    def __init__(self):\n        assert not OneWorld.live, 'only one world'\n"
        "        OneWorld.live += 1\n        super().__init__()\n\n"
        "    def close(self):\n        OneWorld.live -= 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    env = {"id": "worlds:OneWorld", "max_episode_steps": 20}
    small = {"population": 4, "episodes": 1, "held_out_episodes": 2, "network": "mlp", "env": env, "seed": 1}
    whole = evolve.train(**small, generations=2, compute={"slots": 1}, output=tmp_path / "whole")
    begun = evolve.train(**small, generations=1, compute={"slots": 1}, output=tmp_path / "begun")
    resumed = evolve.train(begun.path, resume=True, generations=2)
    assert (resumed.config.compute.slots, resumed.digest) == (1, whole.digest)
    assert resumed.verify(full=True).equal
    assert resumed.evaluate(2).mean == resumed.held_out.mean
