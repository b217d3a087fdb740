"""Two run files compared: all stored values count, and the first difference is explained."""

import shutil

import numpy as np
import pytest
from tampering import edit_manifest, tamper

from evolve.verification.logs import EpisodeLog, describe_difference

ELSEWHERE = ("-e", "toys:Elsewhere-v0", "--set", "env.max_episode_steps=40", "--set", "network.plasticity=0.1")
QUICK = ("-p", 6, "-r", 2, "-g", 3, "-d", 3, "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=0")


def test_the_first_difference_is_named_with_both_values(call, runs):
    tamper(runs["b"], "generation/returns", (1, 4, 1), 7.25)
    tamper(runs["b"], "generation/digest", 1, b"f" * 64)
    done = call("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 1: candidate 4, episode 1: return " in done.out
    assert "against 7.25 in" in done.out


def test_a_difference_in_the_genomes_alone_is_named(verdict, runs):
    tamper(runs["b"], "generation/digest", 2, b"f" * 64)
    found = verdict(runs["a"], runs["b"])
    assert (found["generation"], found["candidate"]) == (2, None)


def test_a_longer_run_is_not_equal(call, runs):
    call("run", *QUICK, "--engine", "exact", "-g", 4, "-s", 1, "-o", "b", "--resume").ok()
    done = call("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "3 generations" in done.out


def test_everything_stored_is_compared_not_digests_alone(call, runs):
    tamper(runs["b"], "generation/returns", (0, 0, 0), -1.0)
    done = call("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 0: candidate 0, episode 0" in done.out


def test_a_difference_is_explained_without_gymnasium(verdict, record, absent, tmp_path):
    path = record("CartPole-v1")
    changed = shutil.copy(path, tmp_path / "changed.h5")
    tamper(changed, "generation/returns", (1, 2, 0), -1.0)
    tamper(changed, "generation/digest", 1, b"0" * 64)  # as if another episode was played
    absent("evolve.environments.gymnasium_engine", "evolve.environments.gymnasium_making")
    found = verdict(path, changed)
    assert (found["generation"], found["candidate"], found["cause"]) == (1, 2, "environment")


def test_another_start_is_found(verdict, record, tmp_path):
    path = record("CartPole-v1", "--engine", "exact", "--start-from", record("CartPole-v1", "--engine", "exact"))
    changed = shutil.copy(path, tmp_path / "changed.h5")
    tamper(changed, "start/weights", 0, 9.0)
    assert verdict(path, changed)["summary"].startswith("the genomes with which the runs began differ")


def test_held_out_episodes_of_other_environments_are_not_compared_and_the_verdict_says_so(call, record):
    cart_pole = "CartPole-v1", "--engine", "exact"
    shorter = record(*cart_pole, "--set", "evaluation_max_episode_steps=9")
    done = call("verify", record(*cart_pole), shorter).ok()
    assert "held-out episodes were not compared" in done.out
    assert "not compared" not in call("verify", shorter, shorter).ok().out


def test_the_name_of_another_strategy_stands_for_its_options(verdict, record):
    cart_pole = "CartPole-v1", "--engine", "exact"
    found = verdict(record(*cart_pole, "--set", "strategy.weight_noise=0.5"), record(*cart_pole, "--strategy", "nsga2"))
    keys = [key for key, _, _ in found["configuration"]]
    assert keys == ["strategy.name", "strategy.regrowth", "strategy.weight_noise"]  # options that both have
    assert "strategy.parents" not in found["why"]


def test_times_may_differ(call, runs):
    for column in ("generation/episode_seconds", "generation/seconds", "rank/busy_seconds"):
        tamper(runs["b"], column, 1, 99.0)
    call("verify", runs["a"], runs["b"]).ok()


@pytest.mark.parametrize("other", ["e", "f"])
def test_two_files_of_one_configuration_are_distinguished_by_their_step_hashes(verdict, runs, other):
    """One was made here, so its observation can be shown; the other's observation cannot."""
    found = verdict(runs["d"], runs[other])
    assert (found["cause"], found["what"], found["step"]) == ("environment", "observations", 6)
    assert found["configuration"] == []
    ours, theirs = found["sides"]
    assert len(ours["step_observation"]) == 4
    assert theirs["step_observation"] is None


def test_two_configurations_are_both_played_here(call, verdict, runs):
    other = ("--set", "network.trace_rate=1.5", "-s", 1, "-o", "g")
    call("run", *QUICK, *ELSEWHERE, *other).ok()
    found = verdict(runs["d"], "g/seed-1.h5")
    assert (found["cause"], found["what"], found["step"]) == ("configuration", "actions", 1)
    assert found["configuration"] == [["network.trace_rate", 1.0, 1.5]]
    ours, theirs = found["sides"]
    assert ours["step_observation"] == theirs["step_observation"]
    assert ours["step_action"] != theirs["step_action"]


@pytest.mark.parametrize(
    ("strategy", "generation", "cpu", "cause"),
    [
        ("not portable: a library's linear algebra", 2, "another", "strategy"),
        ("not portable: a library's linear algebra", 2, None, "random stream"),  # on one machine it repeats itself
        ("not portable: a library's linear algebra", 0, "another", "random stream"),  # no generation is complete yet
        ("portable", 2, "another", "random stream"),  # its arithmetic is ours
    ],
)
def test_other_genomes_on_another_machine_may_be_the_strategy(
    record, verdict, tmp_path, strategy, generation, cpu, cause
):
    ours = record("CartPole-v1", "--engine", "exact", "-g", 3, "--strategy", "openai-es")
    edit_manifest(ours, strategy=strategy)
    theirs = shutil.copy(ours, tmp_path / "theirs.h5")
    tamper(theirs, "fingerprint/genomes", (generation, 3), 1)
    tamper(theirs, "generation/digest", generation, b"0" * 64)  # as if other genomes were evaluated
    if cpu:
        edit_manifest(theirs, cpu=cpu)
    for words in ((ours, theirs), (theirs, "--full")):
        found = verdict(*words)
        assert (found["cause"], found["generation"], found["candidate"]) == (cause, generation, 3)
    assert found["manifests"][0]["strategy"] == strategy


def test_a_difference_names_the_metrics_of_another_value_not_of_another_type():
    """A column of a file has the widest type of all generations, the metrics of an episode here have their own."""
    here = {"hits": 5, "misses": 1, "speed": np.nan}
    ours, theirs = (
        EpisodeLog(1.0, 9, np.zeros(2, np.uint64), None, m) for m in (here, here | {"hits": 5.0, "misses": 2.0})
    )
    assert describe_difference(3, 0, ours, theirs) == "candidate 3, episode 0: its metric misses is 1 against 2.0"
