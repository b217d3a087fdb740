"""The held-out evaluation: keyed episodes, whatever the ranks, kept in the run file."""

import json
import shutil
from contextlib import closing

import numpy as np
import pytest
import toys
from conftest import make_runs, without
from gymnasium.envs.classic_control import CartPoleEnv

import evolve
from evolve import store
from evolve.analysis import statistics

QUICK = ("-p", 6, "-r", 2, "-g", 3, "-d", 2, "--set", "env.max_episode_steps=40", "-o", "out")
FILE = "out/seed-0.h5"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The run file of a champion that was evaluated on five episodes."""
    where = tmp_path_factory.mktemp("evaluated")
    make_runs(where, *QUICK, "--set", "held_out_episodes=5")
    return where / FILE


@pytest.fixture
def evaluated(shared, tmp_path):
    """A copy of this file in the test's folder."""
    (tmp_path / "out").mkdir()
    shutil.copy(shared, tmp_path / FILE)


def kept(tmp_path):
    return store.read(tmp_path / FILE)


@pytest.mark.usefixtures("evaluated")
def test_more_episodes_begin_with_the_same_ones(call, command, tmp_path):
    first, digests = kept(tmp_path).held_out.returns, [r.digest for r in kept(tmp_path).records]
    done = command("evaluate", FILE, "--episodes", 40, ranks=2).ok()
    run = kept(tmp_path)
    assert run.complete
    assert [r.digest for r in run.records] == digests
    assert len(run.held_out.returns) == 40
    assert run.held_out.returns[:5].tolist() == first.tolist()
    line = done.out.splitlines()[-1]
    assert line == statistics.summary(run.held_out.returns)
    assert f"mean {run.held_out.returns.mean():.2f} (95 % interval " in line
    assert f"worst {run.held_out.returns.min():.2f}   best {run.held_out.returns.max():.2f}" in line
    call("evaluate", FILE, "--episodes", 10).ok()
    assert len(kept(tmp_path).held_out.returns) == 40  # fewer do not take the place of more
    assert "already complete" in call("run", *QUICK, "--set", "held_out_episodes=5", "--resume").out


@pytest.mark.usefixtures("evaluated")
def test_an_equal_evaluation_leaves_the_file_as_it_is(call, tmp_path):
    before = (tmp_path / FILE).stat()
    call("evaluate", FILE, "--episodes", 5).ok()
    assert (tmp_path / FILE).stat().st_mtime_ns == before.st_mtime_ns  # by which make and others tell what is new


@pytest.mark.usefixtures("evaluated")
def test_other_returns_of_the_same_episodes_are_told_and_not_kept(call, monkeypatch, tmp_path):
    before = (tmp_path / FILE).read_bytes()
    monkeypatch.setattr(CartPoleEnv, "reset", lambda self, **_: (np.zeros(4, np.float32), {}))
    monkeypatch.setattr(CartPoleEnv, "step", lambda self, _: (np.zeros(4, np.float32), 0.5, True, False, {}))
    done = call("evaluate", FILE, "--episodes", 9)
    assert (done.code, "mean 0.50" in done.out) == (1, True)
    assert done.err == (
        "evolve.evaluate: the first 5 episodes have other returns in out/seed-0.h5, so nothing is stored. "
        "Has the environment changed? Compare with evolve verify.\n"
    )
    assert (tmp_path / FILE).read_bytes() == before


def test_other_metrics_and_the_first_of_many_episodes_are_compared(call, monkeypatch, tmp_path):
    task = ("-e", "toys:Measured-v0", "-a", "mlp", "-p", 4, "-r", 1, "-g", 1, "-d", 2, "-s", 0, "-o", "out")
    call("run", *task, "--set", "env.metrics=['distance']", "--set", "held_out_episodes=5").ok()
    before = (tmp_path / FILE).read_bytes()
    step = toys.Measured.step

    def measured(env, action, more=1.0, reward=0.0):
        *stepped, info = step(env, action)
        stepped[1] += reward
        return *stepped, info | {"distance": info["distance"] + more} if "distance" in info else info

    monkeypatch.setattr(toys.Measured, "step", measured)
    for episodes, shared in ((9, 5), (3, 3)):
        done = call("evaluate", FILE, "--episodes", episodes)
        assert done.code == 1
        assert f"the first {shared} episodes have other values of the metric distance in out/seed-0.h5" in done.err
    monkeypatch.setattr(toys.Measured, "step", lambda env, action: measured(env, action, 0.0, 1.0))
    done = call("evaluate", FILE, "--episodes", 3)
    assert (done.code, "the first 3 episodes have other returns" in done.err) == (1, True)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_metric_that_is_no_number_is_null_in_json(call, monkeypatch):
    task = ("-e", "toys:Measured-v0", "-a", "mlp", "-p", 2, "-r", 1, "-g", 1, "-d", 2, "-s", 0, "-o", "out")
    call("run", *task, "--set", "env.metrics=['distance']", "--set", "held_out_episodes=0").ok()
    step = toys.Measured.step
    monkeypatch.setattr(toys.Measured, "step", lambda *given: (*step(*given)[:4], {"distance": np.nan}))
    done = call("evaluate", FILE, "--episodes", 3, "--json").ok()
    found = json.loads(done.out, parse_constant=pytest.fail)
    assert (found["failed"], found["metrics"]) == (0, {"distance": [None, None, None]})


@pytest.mark.usefixtures("evaluated")
def test_elsewhere_nothing_is_kept(call, command, monkeypatch, tmp_path):
    before = (tmp_path / FILE).read_bytes()
    short = command("evaluate", FILE, "--episodes", 4, "--set", "env.max_episode_steps=7", "--json", ranks=2).ok()
    known = json.loads(short.out)
    assert known["returns"] == [7.0] * 4  # a pole cannot fall in seven steps
    assert (known["mean"], known["interval"], known["failed"]) == (7.0, [7.0, 7.0], 0)
    assert (known["generation"], known["env"]["max_episode_steps"]) == (2, 7)
    call("evaluate", FILE, "-e", "toys:Faulty-v0").refused(
        "env: expected an environment of the champion's 4 observations and 2 actions", "got toys:Faulty-v0, of 3 and 2"
    )
    same = call("evaluate", FILE, "--episodes", 5, "--engine", "envpool")
    assert "in another environment, CartPole-v1 (engine envpool): not stored in the run file" in same.out
    assert (tmp_path / FILE).read_bytes() == before
    begin = CartPoleEnv.reset
    monkeypatch.setattr(CartPoleEnv, "reset", lambda env, **seed: (print("an episode begins"), begin(env, **seed))[1])
    own = call("evaluate", FILE, "--episodes", 5, "--json")
    assert json.loads(own.out)["returns"] == kept(tmp_path).held_out.returns.tolist()
    assert "an episode begins" in own.err
    assert json.loads(call("verify", FILE, "--json").out)["equal"]


@pytest.mark.usefixtures("evaluated")
def test_the_own_environment_and_engine_may_be_named(call, tmp_path):
    done = call("evaluate", FILE, "--episodes", 7, "-e", "CartPole-v1", "--engine", "gymnasium").ok()
    assert f"{FILE}: champion after generation 2, 7 held-out episodes\n" in done.out
    assert len(kept(tmp_path).held_out.returns) == 7


def test_learning_is_switched_off_and_nothing_is_kept(call, tmp_path):
    plastic = ("--set", "network.plasticity=1.0", "--set", "held_out_episodes=5")
    call("run", *QUICK, *plastic).ok()
    before = (tmp_path / FILE).read_bytes()
    done = call("evaluate", FILE, "--episodes", 5, "--set", "network.plasticity=0.0").ok()
    assert "5 held-out episodes with network.plasticity=0.0: not stored in the run file" in done.out
    known = json.loads(call("evaluate", FILE, "--episodes", 5, "--set", "network.plasticity=0.0", "--json").out)
    assert known["network"]["plasticity"] == 0.0
    assert done.out.splitlines()[-1] == statistics.summary(np.array(known["returns"]))
    assert known["returns"] != kept(tmp_path).held_out.returns.tolist()
    assert (tmp_path / FILE).read_bytes() == before
    for words, message in (
        ("network.hidden=[3]", "network: expected settings with which a hebbian-dag has the champion's connections"),
        ("strategy.parents=3", "--set: expected a key of env or of network"),
    ):
        call("evaluate", FILE, "--set", words).refused(message)


@pytest.mark.usefixtures("evaluated")
def test_an_earlier_champion_is_evaluated_and_not_kept(call, tmp_path):
    before = (tmp_path / FILE).read_bytes()
    done = call("evaluate", FILE, "--episodes", 5, "--generation", 0).ok()
    assert f"{FILE}: best of generation 0, 5 held-out episodes: not stored in the run file" in done.out
    known = json.loads(call("evaluate", FILE, "--episodes", 5, "--generation", 0, "--json").out)
    run = evolve.load(tmp_path / FILE)
    assert (known["generation"], known["returns"]) == (0, run.evaluate(5, generation=0).returns.tolist())
    assert (tmp_path / FILE).read_bytes() == before
    assert call("evaluate", FILE, "--generation", 3).code == 2
    call("export", FILE, "-o", "it.champion").ok()
    refused = call("evaluate", "it.champion", "--generation", 0)
    assert "generation (--generation): expected none with it.champion, which has the final champion" in refused.err


def test_a_run_that_is_being_written_is_evaluated_and_not_changed(call, tmp_path):
    assert call("run", *QUICK).code == 0
    before = (tmp_path / FILE).read_bytes()
    with closing(store.reopen(tmp_path / FILE)):
        done = call("evaluate", FILE, "--episodes", 2)
    assert done.code == 0, done.err
    assert "not stored in the run file, because another process is writing it\n" in done.out
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.usefixtures("evaluated")
def test_the_directory_of_the_file_and_not_of_a_link_to_it_is_written(call, monkeypatch, tmp_path):
    before = (tmp_path / FILE).read_bytes()
    (tmp_path / "seed-0.h5").symlink_to(tmp_path / FILE)
    read_only = (tmp_path / "out").resolve()
    monkeypatch.setattr("evolve.cli.evaluate.os.access", lambda path, _: path != read_only)
    done = call("evaluate", "seed-0.h5", "--episodes", 7).ok()
    assert "not stored in the run file, because its directory cannot be written" in done.out
    assert (tmp_path / FILE).read_bytes() == before


def test_the_champion_of_an_earlier_reading_is_not_kept(call, monkeypatch, tmp_path):
    call("run", *QUICK, "--set", "held_out_episodes=0", "-g", 2).ok()
    earlier = kept(tmp_path)
    call("run", "--resume", FILE, "-g", 3).ok()
    with monkeypatch.context() as patched:
        patched.setattr(store, "read_any", lambda _: earlier)
        done = call("evaluate", FILE)
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith(f"{FILE} has more generations than when it was read. Evaluate it again.\n")
    assert kept(tmp_path).held_out is None


def test_wrong_input(call, tmp_path):
    store.create(store.path_of(tmp_path, 0), store.Header("", {}, 0, "x")).close()
    for words, code, message in (
        (("seed-0.h5",), 1, "there is no champion"),
        (("none.h5",), 2, "no such file"),
        (("seed-0.h5", "--episodes", 0), 2, "--episodes: expected 1 to 2,147,483,647, got 0"),
        (("seed-0.h5", "--episodes", -5, "--workers", "auto"), 2, "--episodes: expected 1 to 2,147,483,647, got -5"),
    ):
        done = call("evaluate", *words)
        assert done.code == code
        assert message in done.err
        assert done.err.count("\n") == 1


def test_nothing_needs_scipy_and_every_command_says_the_same_of_the_same_returns(call, command, tmp_path, absent):
    ran = command("run", *QUICK, "--set", "held_out_episodes=9", **without("scipy")).ok()
    returns = kept(tmp_path).held_out.returns
    absent("scipy")
    low, high = statistics.interval_of_returns(returns)
    done = call("evaluate", FILE, "--episodes", 9)
    assert done.out.splitlines()[-1] == statistics.summary(returns)
    for text in (ran.out, done.out):
        assert f"(95 % interval {low:.2f} to {high:.2f})" in text
    known = json.loads(call("evaluate", FILE, "--episodes", 9, "--json").out)
    assert (known["mean"], known["interval"]) == (statistics.mean(returns), [low, high])
