"""Runs with randomized arguments: the same on any ranks, slots and back ends, after a restart, and when repeated."""

import json

import numpy as np
import pytest

from evolve import store
from evolve.cli.app import launch
from evolve.config import Config, EnvOptions, parse
from evolve.environments import with_drawn_arguments
from evolve.training import load_config

SMALL = ("-p", 8, "-r", 2, "-a", "mlp", "-d", 3, "--strategy", "openai-es", "-s", 3, "--set", "held_out_episodes=3")
EXACT = ("-e", "CartPole-v1", "--engine", "exact", "--set", "env.randomize.length={uniform=[0.2, 1.0]}")
PENDULUM = ("-e", "Pendulum-v1", "--set", "env.randomize.g={choice=[5.0, 10.0, 15.0]}", "--set",
            "env.max_episode_steps=20")  # fmt: skip
ELSEWHERE = ("--set", "evaluation_randomize.g={uniform=[18.0, 20.0]}")


def whole(tmp_path, name):
    """Return all that a run has computed."""
    run = store.read(tmp_path / name / "seed-3.h5")
    assert run.complete
    return run.digest, run.held_out.returns.tolist(), [record.returns.tolist() for record in run.records]


@pytest.mark.parametrize("env", [EXACT, PENDULUM + ELSEWHERE], ids=["exact", "gymnasium"])
def test_ranks_slots_and_restarts_change_nothing(call, command, tmp_path, env):
    words = (*SMALL, *env)
    call("run", *words, "-g", 3, "-o", "one").ok()
    command("run", *words, "-g", 3, "-o", "three", ranks=3).ok()
    call("run", *words, "-g", 1, "--set", "compute.slots=1", "--backend", "numpy", "-o", "again").ok()
    call("run", *words, "-g", 3, "--set", "compute.slots=1", "--backend", "numpy", "-o", "again", "--resume").ok()
    one = whole(tmp_path, "one")
    assert one == whole(tmp_path, "three") == whole(tmp_path, "again")
    for full in ((), ("--full",)):
        call("verify", "one/seed-3.h5", *full).ok()
    replayed = call("replay", "one/seed-3.h5", "--generation", 1, "--episode", 1)
    assert "equal to the log, to the bit" in replayed.out
    other = call("run", *words, "-g", 3, "-o", "other", "--set", "env.randomize.length={uniform=[0.2, 1.1]}")
    assert (other.code == 0) == (env is EXACT)  # Gymnasium's pendulum has no length
    if other.code == 0:
        assert whole(tmp_path, "other")[0] != one[0]


def test_candidates_meet_the_same_values_with_common_random_numbers(call, tmp_path):
    """Every step of `toys:Values-v0` is rewarded with its arguments."""
    words = (*SMALL, "-e", "toys:Values-v0", "--set", "env.randomize.x={uniform=[0.0, 1.0]}", "-g", 2)
    call("run", *words, "-o", "own").ok()
    call("run", *words, "-o", "common", "--set", "common_random_numbers=true").ok()
    own, common = (
        np.array([r.returns for r in store.read(tmp_path / name / "seed-3.h5").records]) for name in ("own", "common")
    )
    assert len(np.unique(own)) == own.size
    assert (common == common[:, :1]).all()
    assert len(np.unique(common)) == 4  # one for each episode of each generation


def test_pairs_meet_the_same_values_with_common_random_numbers_of_pairs(call, tmp_path):
    """Nine candidates are four pairs and the centre, which has episodes of its own."""
    words = (*SMALL, "-p", 9, "-e", "toys:Values-v0", "--set", "env.randomize.x={uniform=[0.0, 1.0]}", "-g", 2)
    call("run", *words, "-o", "pairs", "--set", "common_random_numbers=pairs").ok()
    returns = np.array([r.returns for r in store.read(tmp_path / "pairs" / "seed-3.h5").records])
    assert (returns[:, 0:8:2] == returns[:, 1:8:2]).all()
    assert len(np.unique(returns)) == returns[:, ::2].size  # no two pairs, episodes or generations share a value


@pytest.mark.parametrize("strategy", ["openai-es", "pgpe"])
def test_pairs_share_episodes_on_any_ranks_threads_and_after_restarts(call, command, tmp_path, strategy):
    words = (*SMALL, "-p", 9, *EXACT, "--strategy", strategy, "--set", "common_random_numbers=pairs")
    call("run", *words, "-g", 3, "--threads", 1, "-o", "one").ok()
    if strategy == "pgpe":
        command("run", *words, "-g", 3, "-o", "three", ranks=3).ok()
        assert whole(tmp_path, "three") == whole(tmp_path, "one")
    call("run", *words, "-g", 1, "--backend", "numpy", "-o", "again").ok()
    call("run", *words, "-g", 3, "--threads", 2, "-o", "again", "--resume").ok()
    assert whole(tmp_path, "again") == whole(tmp_path, "one")
    assert call("verify", "one/seed-3.h5").code == call("verify", "one/seed-3.h5", "--full").code == 0
    best = [record.champion_candidate for record in store.read(tmp_path / "one" / "seed-3.h5").records]
    for generation, candidate in enumerate(best):
        replayed = call("replay", "one/seed-3.h5", "--generation", generation, "--episode", 1)
        assert "equal to the log, to the bit" in replayed.out, candidate


def test_pairs_are_refused_without_antithetic_pairs(call):
    expected = "common_random_numbers: expected true or false with ga, whose candidates are not antithetic pairs"
    words = (*SMALL, *EXACT, "--strategy", "ga", "--set", "common_random_numbers=pairs", "-o", "x")
    call("run", *words).refused(expected, "openai-es, pgpe and snes")
    assert call("run", *SMALL, *EXACT, "--set", "common_random_numbers=both", "-o", "x").code == 2


def test_evaluation_may_have_other_distributions(call, tmp_path):
    words = (*SMALL, "-e", "toys:Values-v0", "--set", "env.randomize.x={uniform=[0.0, 1.0]}", "-g", 1)
    far = ("--set", "evaluation_randomize.x={uniform=[7.0, 8.0]}")
    call("run", *words, *far, "-o", "far").ok()
    call("run", *words, "-o", "near").ok()
    far_run, near_run = (store.read(tmp_path / name / "seed-3.h5") for name in ("far", "near"))
    assert far_run.digest == near_run.digest
    assert ((near_run.held_out.returns > 0) & (near_run.held_out.returns < 1)).all()
    assert ((far_run.held_out.returns > 7) & (far_run.held_out.returns < 8)).all()
    config = load_config(far_run.header.config).in_evaluation()
    drawn = [with_drawn_arguments(config.env, seed).kwargs["x"] for seed in far_run.held_out.seeds.tolist()]
    assert drawn == far_run.held_out.returns.tolist()
    # It changes no generation, so a run may be evaluated in another way when it is resumed.
    call("run", *words, *far, "-o", "near", "--resume").ok()
    again = store.read(tmp_path / "near" / "seed-3.h5")
    assert again.held_out.returns.tolist() == far_run.held_out.returns.tolist()
    call("run", *words, "--set", "evaluation_randomize={}", "-o", "fixed").ok()
    assert store.read(tmp_path / "fixed" / "seed-3.h5").held_out.returns.tolist() == [0.5] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("env.randomize.y={uniform=[0, 1]}", "env.randomize.y: expected arguments that toys:Values-v0 takes"),
        ("evaluation_randomize.y={uniform=[0, 1]}", "evaluation_randomize.y: expected arguments that"),
        ("evaluation_randomize.x={uniform=[1, 0]}", "evaluation_randomize.x.uniform: expected two numbers"),
        ("env.randomize.x=3", "env.randomize.x: expected one of uniform, log_uniform and integers"),
    ],
)
def test_wrong_distributions_are_refused_before_anything_is_written(call, tmp_path, words, message):
    call("run", *SMALL, "-e", "toys:Values-v0", "--set", words, "-o", "out").refused(message)
    assert not (tmp_path / "out").exists()


def test_the_environment_of_a_run_is_changed_in_training_and_evaluation():
    table = {"id": "Pendulum-v1", "kwargs": {"a": 1}, "randomize": {"g": {"uniform": [1, 2]}}}
    config = parse(Config, {"env": table, "evaluation_max_episode_steps": 9})
    assert config.with_env_changes({"kwargs": {"g": 3.0}}).env == EnvOptions(
        id="Pendulum-v1", kwargs={"a": 1, "g": 3.0}
    )
    assert config.with_env_changes({"kwargs": {"g": 3.0}}).evaluation_max_episode_steps == 9
    assert config.with_env_changes({"max_episode_steps": 3}).in_evaluation().env.max_episode_steps == 3
    moved = config.with_env_changes({"randomize": {"a": {"choice": [1, 2]}}}).env
    assert (moved.kwargs, sorted(moved.randomize)) == ({}, ["a", "g"])
    other = config.with_env_changes({"id": "CartPole-v1"}).env
    assert (other.kwargs, other.randomize) == ({}, {})
    far = parse(Config, {"env": table, "evaluation_randomize": {"g": {"uniform": [8, 9]}}})
    assert far.with_env_changes({"kwargs": {"g": 3.0}}).in_evaluation().env.randomize == {}
    assert far.with_env_changes({"engine": "exact"}).in_evaluation().env.randomize == {"g": {"uniform": [8.0, 9.0]}}


def test_a_configuration_reads_back_the_same(tmp_path):
    (tmp_path / "it.toml").write_text(
        '[env]\nid = "Pendulum-v1"\n[env.randomize]\ng = { integers = [5, 9] }\n'
        'm = { choice = ["a", 1.5, true] }\n[evaluation_randomize]\n'
    )
    assert launch("run", [str(tmp_path / "it.toml"), "--settings"]) == 0
    table = {"env": {"randomize": {"g": {"integers": [5, 9]}}}, "evaluation_randomize": {}}
    config = parse(Config, table)
    assert load_config(config.to_toml()) == config
    assert config.evaluation_randomize == {}
    assert json.dumps(config.env.randomize) == '{"g": {"integers": [5, 9]}}'
