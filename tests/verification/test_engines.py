"""Runs of one engine that another engine plays: an exact walker's episodes are Gymnasium's, to the bit."""

import json
import re
import shutil

import h5py
import numpy as np
import pytest
from conftest import ROOT, run_on

import evolve
from evolve import store
from evolve.errors import InputError

WALKER = ("BipedalWalker-v3", "--set", "env.max_episode_steps=40", "--set", "output.genomes=all")
OTHER = {"exact": "gymnasium", "gymnasium": "exact"}


@pytest.fixture
def walker(record):
    """Return a function from an engine to the run file of a walker."""
    return lambda engine: record(*WALKER, "--engine", engine)


def test_both_engines_give_a_walker_the_same_digests(call, walker, tmp_path):
    exact, theirs = (store.read(walker(engine)) for engine in OTHER)
    assert [record.digest for record in exact.records] == [record.digest for record in theirs.records]
    done = call("verify", exact.path, theirs.path)
    assert (done.code, done.out.startswith("equal: "), exact.digest in done.out) == (0, True, True)
    assert done.out.splitlines()[1] == "engines: exact against gymnasium"
    found = json.loads(call("verify", exact.path, theirs.path, "--json").out)
    assert (found["equal"], found["configuration"]) == (True, [["env.engine", "exact", "gymnasium"]])
    changed = tmp_path / "changed.h5"
    shutil.copy(theirs.path, changed)
    with h5py.File(changed, "r+") as file:
        file["evaluation/returns"][0] += 1.0
    done = call("verify", exact.path, changed, "--json")
    assert (done.code, json.loads(done.out)["what"]) == (1, "log")


@pytest.mark.parametrize("env", ["BipedalWalkerHardcore-v3", "LunarLander-v3", "LunarLanderContinuous-v3"])
def test_the_other_worlds_are_equal_by_both_engines(call, record, env):
    exact, theirs = (record(env, *WALKER[1:3], "--engine", engine) for engine in OTHER)
    done = call("verify", exact, theirs)
    assert (done.code, done.out.splitlines()[1]) == (0, "engines: exact against gymnasium")
    done = call("verify", theirs, "--engine", "exact", "--full")
    assert (done.code, done.out.splitlines()[-1]) == (0, "engines: gymnasium against exact")


@pytest.mark.parametrize("engine", OTHER)
def test_a_run_is_verified_by_another_engine(call, command, walker, engine):
    path, names = walker(engine), f"engines: {engine} against {OTHER[engine]}\n"
    done = call("verify", path, "--engine", OTHER[engine])
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"^equal: .*\b2 generations, 2 episodes .*\b1 held-out.*\n{names}", done.out, re.M), done.out
    many = command("verify", path, "--engine", OTHER[engine], "--full", ranks=2).ok()
    assert many.out.endswith(f"digest {store.read(path).digest}\n{names}")
    own = call("verify", path, "--engine", engine, "--full")
    assert (own.code, "engines" in own.out) == (0, False)


def test_runs_on_three_ranks_have_the_digest_of_either_engine(walker, tmp_path):
    sizes = ("-p", 4, "-g", 2, "-r", 1, "-d", 2, "--set", "held_out_episodes=0")
    run_on(3, "-e", *WALKER[:3], *sizes, "--set", f"sweep.env.engine={list(OTHER)}", "-o", "out", where=tmp_path)
    digests = {store.read(path).digest for path in tmp_path.glob("out/*/seed-0.h5")}
    assert len(list(tmp_path.glob("out/*/seed-0.h5"))) == len(OTHER)
    assert digests == {store.read(walker(engine)).digest for engine in OTHER}


def test_engines_that_play_other_episodes_are_named(verdict, record, walker):
    pool, exact = record(*WALKER, "--engine", "envpool"), walker("exact")
    for words in ((pool, "--engine", "exact"), (pool, "--engine", "exact", "--full"), (pool, exact)):
        found = verdict(*words)
        assert (found["cause"], found["generation"], found["step"]) == ("environment", 0, 0)
        assert found["configuration"] == [["env.engine", "envpool", "exact"]]
    other = record("CartPole-v1", "--engine", "exact"), record("CartPole-v1", "--set", "env.action_scale=0.5")
    assert ["env.action_scale", 1.0, 0.5] in verdict(*other)["configuration"]


def test_a_champion_is_verified_by_another_engine(call, record, walker, tmp_path):
    file = tmp_path / "walker.champion"
    call("export", walker("exact"), "-o", file).ok()
    for how in ((), ("--full",)):
        done = call("verify", file, "--engine", "gymnasium", *how)
        assert (done.code, "walker.champion: equal: " in done.out, "engines: exact" in done.out) == (0, True, True)
    pool = tmp_path / "pool.champion"
    call("export", record(*WALKER, "--engine", "envpool"), "-o", pool).ok()
    done = call("verify", pool, "--engine", "exact")
    assert done.code == 1
    assert "1 of 1 held-out episode" in done.out
    assert "episode 0: " in done.out
    assert "\nengines: envpool against exact\n" in done.out


def test_a_champion_needs_an_engine_for_its_held_out_episodes_alone(call, record, tmp_path):
    # Gymnasium's walker has no `fall`; held-out episodes have the value that Gymnasium's walker always has.
    fall = ("--set", "env.randomize.fall={choice=[-50.0]}", "--set", "evaluation_randomize.fall={choice=[-100.0]}")
    file = tmp_path / "walker.champion"
    call("export", record(*WALKER, "--engine", "exact", *fall), "-o", file).ok()
    done = call("verify", file, "--engine", "gymnasium")
    assert (done.code, done.out.splitlines()[-1]) == (0, "engines: exact against gymnasium")
    assert evolve.load(file).verify(engine="gymnasium").equal
    refused = call("verify", file, "--engine", "gymnasium", "--full")  # repeats training, too
    assert (refused.code, "env.randomize.fall: " in refused.err) == (2, True)
    with pytest.raises(InputError, match=r"env\.randomize\.fall"):
        evolve.load(file).verify(full=True, engine="gymnasium")


def test_the_engine_of_the_file_need_not_be_installed(call, record, absent):
    path = record("CartPole-v1", "--engine", "envpool")
    absent("envpool")
    assert "Install it" in call("verify", path).err
    assert "engines: envpool against exact" in call("verify", path, "--engine", "exact").out
    assert "engine exact" in call("replay", path, "--engine", "exact").out
    assert "CartPole-v1 (engine exact)" in call("evaluate", path, "--engine", "exact", "--episodes", 3).out


@pytest.mark.parametrize(
    ("words", "name", "got"),
    [
        (("mujoco",), "env.engine (--engine)", "mujoco"),
        (("exact",), "env.id", "InvertedPendulum-v5"),
        (("exact", "there.h5"), "FILE", "2 run files"),
    ],
)
def test_an_engine_that_cannot_play_is_refused(call, record, words, name, got, tmp_path):
    path = record("InvertedPendulum-v5", "--set", "env.max_episode_steps=20")
    shutil.copy(path, tmp_path / "there.h5")
    done = call("verify", path, "--engine", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"evolve.verify: {name}: "), done.err
    assert f"got {got}." in done.err
    if len(words) == 1:
        assert call("replay", path, "--engine", *words).err == done.err.replace("evolve.verify", "evolve.replay")


def test_an_episode_is_replayed_by_another_engine(call, record, walker):
    done = call("replay", walker("exact"), "--engine", "gymnasium")
    assert (done.code, done.out.splitlines()[-1].startswith("equal")) == (0, True)
    assert ", engine gymnasium)" in done.out
    done = call("replay", record(*WALKER, "--engine", "envpool"), "--engine", "exact")
    assert (done.code, ", engine exact)" in done.out, ", engine envpool)" in done.err) == (1, True, True)


def test_python_verifies_and_evaluates_by_another_engine(walker):
    run = evolve.load(walker("exact"))
    verdict = run.verify(engine="gymnasium")
    assert (verdict.equal, str(verdict).splitlines()[-1]) == (True, "engines: exact against gymnasium")
    assert str(run.verify()) == f"equal: {verdict.summary}"
    ours, theirs = run.evaluate(5), run.evaluate(5, engine="gymnasium")
    assert np.array_equal(ours.returns, theirs.returns)
    with pytest.raises(InputError, match=r"^env\.engine: .*got none"):
        run.verify(engine="none")


def test_an_argument_that_the_other_engine_lacks_can_be_dropped(record):
    """A training with milder falls, and Gymnasium's own falls in the held-out episodes of both engines."""
    run = evolve.load(record(*WALKER, "--engine", "exact", "--set", "env.randomize={fall={choice=[-50.0]}}"))
    with pytest.raises(InputError, match="'fall'"):
        run.evaluate(3, engine="gymnasium")
    ours, theirs = (run.evaluate(3, env={"randomize": {}}, engine=engine) for engine in ("exact", "gymnasium"))
    assert np.array_equal(ours.returns, theirs.returns)


def test_a_champion_that_cannot_be_played_does_not_keep_others_from_being_verified(call):
    cheetah, pole = (ROOT / "zoo" / f"{name}.champion" for name in ("cheetah", "cartpole"))
    done = call("verify", cheetah, pole, "--engine", "exact")
    assert done.code == 2
    assert f"{pole}: equal: " in done.out
    assert done.err.count("\n") == 1
    assert f"{cheetah}: not verified: env.id: expected" in done.err
    assert done.err.endswith(" Or use --engine gymnasium.\n")
    verdicts = json.loads(call("verify", cheetah, pole, "--engine", "exact", "--json").out)
    assert verdicts[str(pole)]["equal"] is True
    assert verdicts[str(cheetah)]["equal"] is None
    assert verdicts[str(cheetah)]["error"].startswith("env.id: expected")
    alone = call("verify", cheetah, "--engine", "exact")
    assert (alone.code, "not verified" in alone.err) == (2, False)
