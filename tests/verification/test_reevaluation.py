"""One run file played again on this machine: a changed file, network or environment is reported with its first step."""

import json
import re
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from tampering import edit_config, spoil, tamper

from evolve import store
from evolve.cluster import Coordinator, Transport
from evolve.training import make_rollout, reload
from evolve.verification import repetition
from evolve.verification.logs import inconsistency


def test_one_file_is_evaluated_again(call, command, runs):
    done = call("verify", runs["a"])
    assert (done.code, re.findall(r"\d+", done.out)) == (0, ["3", "6"])  # generations, episodes
    assert done.out.startswith("equal: ")
    many = command("verify", runs["a"], ranks=3)
    assert (many.code, many.out) == (0, done.out)


def test_some_generations_may_be_enough(runs):
    champion = int(store.read(runs["b"]).records[1].champion_candidate)
    tamper(runs["b"], "generation/returns", (1, champion, 0), -3.0)
    run = store.read(runs["b"])
    alone = Transport()
    repeated = repetition(run, reload(run), Coordinator(alone, make_rollout), alone)
    found = repeated.reevaluate((0, 2))
    assert (found.equal, re.findall(r"\d+", str(found))) == (True, ["2", "3", "4"])
    assert repeated.reevaluate((0, 1)).generation == 1


def test_a_champion_that_left_the_race_plays_only_its_own_episodes(call, record):
    words = ("--engine", "exact", "-a", "mlp", "-r", 3, "-g", 4, "--set", "env.max_episode_steps=9")
    path = record("Pendulum-v1", *words, "--set", "racing.rounds=[1]", "--set", "racing.keep=0.1")
    champions = [each.returns[each.champion_candidate] for each in store.read(path).records]
    played = np.count_nonzero(np.isfinite(champions), axis=1)
    assert set(played.tolist()) == {1, 3}  # its fitness may equal the fitness of the only candidate that stayed
    done = call("verify", path)
    assert (done.code, re.findall(r"[0-9]+", done.out)) == (0, ["4", str(played.sum()), "1"]), done.out


def test_a_race_with_episodes_that_failed_in_reset_is_repeated(call, record):
    settings = ("env.on_failure=worst", "env.kwargs.where=reset", "env.kwargs.share=0.5", "racing.rounds=[1]",
                "racing.keep=0.9", "compute.check=false")  # fmt: skip
    path = record("toys:Faulty-v0", "-r", 2, *(word for setting in settings for word in ("--set", setting)))
    assert any(
        (np.isfinite(each.returns).any(axis=1) & np.isnan(each.fitness)).any() for each in store.read(path).records
    )
    call("verify", path).ok()


def test_a_changed_return_is_found_to_the_last_bit(call, runs):
    with h5py.File(runs["a"]) as file:
        candidate = int(file["champion/candidate"][2])
        value = file["generation/returns"][2, candidate, 1]
    tamper(runs["a"], "generation/returns", (2, candidate, 1), np.nextafter(value, np.inf))
    done = call("verify", runs["a"])
    assert done.code == 1
    assert f"generation 2: candidate {candidate}, episode 1" in done.out


def test_one_changed_weight_is_distinguished_from_a_changed_network(verdict, runs):
    with h5py.File(runs["d"]) as file:
        mask, weights = file["champion/mask"][1], file["champion/weights"][1]
    some = int(np.flatnonzero(mask)[0])
    tamper(runs["d"], "champion/weights", (1, some), -weights[some])
    found = verdict(runs["d"])
    assert (found["cause"], found["what"], found["generation"]) == ("network", "weights", 1)
    assert found["step"] == 0  # the first observation has no zeros
    assert len(found["sides"][1]["step_observation"]) == 4


def test_a_champion_that_is_not_the_best_candidate_is_a_contradiction(record):
    first = store.read(record("toys:Elsewhere-v0")).records[0]
    assert inconsistency(first) is None
    fitness = first.fitness.copy()
    fitness[first.champion_candidate - 1] = first.champion_fitness + 1
    assert inconsistency(replace(first, fitness=fitness)) == "the champion is not the candidate of the best fitness"


def test_a_changed_fingerprint_of_an_initial_genome_does_not_accuse_the_champion(whole, tmp_path, verdict):
    path = shutil.copy(whole, tmp_path / "changed.h5")
    spoil(path, "initial genome's fingerprint")
    found = verdict(path)
    assert (found["cause"], found["generation"], found["candidate"]) == ("log", 0, None)
    assert found["summary"] == "generation 0: a fingerprint of its genomes does not follow from the seed"


def test_a_changed_seed_is_reported(command, verdict, runs):
    with h5py.File(runs["d"], "r+") as file:
        file.attrs["seed"] = 5
    found = verdict(runs["d"], how=command, ranks=2)
    assert (found["cause"], found["generation"], found["step"]) == ("random stream", 0, 0)
    assert "seed 5" in found["why"]


def test_a_changed_constant_of_the_environment_is_found_with_its_step(call, verdict, runs):
    """The run was made by another environment of the same name, which differs from step 6 on."""
    found = verdict(runs["e"])
    assert (found["cause"], found["what"], found["step"]) == ("environment", "observations", 6)
    here = found["sides"][1]
    assert len(here["step_observation"]) == 4
    assert len(here["step_action"]) == 2
    assert found["manifests"][0]["packages.numpy"] == np.__version__
    text = call("verify", runs["e"]).out
    assert re.search(r"environment: .*\bstep 6\b", text), text
    assert text.endswith("manifests are the same: versions, machine and ranks\n")


def test_a_changed_constant_of_the_network_is_found_with_its_step(verdict, runs):
    edit_config(runs["d"], "trace_rate = 1.0", "trace_rate = 1.5")
    found = verdict(runs["d"])
    assert (found["cause"], found["what"], found["step"]) == ("network", "actions", 1)  # the first step has no traces
    edit_config(runs["a"], "trace_rate = 1.0", "trace_rate = 1.5")
    found = verdict(runs["a"])  # without plasticity no action depends on traces
    assert (found["cause"], found["what"], found["step"]) == ("network", "traces", None)


def test_kept_genomes_prove_the_digests(call, verdict, runs):
    call("verify", runs["a"]).ok()
    tamper(runs["a"], "population/weights", (1, 2, 3), 7.0)
    found = verdict(runs["a"])
    assert (found["cause"], found["generation"]) == ("log", 1)


def test_held_out_episodes_are_played_again(call, verdict, runs):
    call("evaluate", runs["a"], "--episodes", 5).ok()
    done = call("verify", runs["a"])
    assert (done.code, "and 5 held-out ones" in done.out) == (0, True)
    tamper(runs["a"], "evaluation/returns", 3, -7.0)
    found = verdict(runs["a"])
    assert (found["what"], found["episode"], found["sides"][0]["returned"]) == ("held-out", 3, -7.0)
    assert len(found["manifests"]) == 2


def test_the_validation_that_ended_a_run_is_played_again(verdict, record, tmp_path):
    settings = "early_stop.mean_return=1", "early_stop.episodes=2", "early_stop.every=1"
    words = (word for setting in settings for word in ("--set", setting))
    path = shutil.copy(record("CartPole-v1", "--engine", "exact", *words), tmp_path / "a.h5")
    tamper(path, "validation/returns", (0, 1), 500.0)
    found = verdict(path)
    assert (found["what"], found["cause"]) == ("validation", "environment")
    assert "2 validation episodes after 1 generation differ" in found["summary"]


def test_what_fails_here_only_is_reported(call, runs):
    """Elsewhere the third observation was a number."""
    done = call("verify", runs["d"], "--json", TOY_GRAVITY="nan")
    found = json.loads(done.out)
    assert (done.code, found["cause"], found["what"]) == (1, "environment", "end")
    assert 5 <= found["step"] <= 7


@pytest.mark.parametrize("candidate", [77, -3])
def test_a_champion_outside_the_population_is_refused(call, runs, candidate):
    tamper(runs["a"], "champion/candidate", 0, candidate)
    assert call("verify", runs["a"]).code == 2


def test_a_difference_names_the_setting_by_which_objects_are_used_again(call, tmp_path):
    task = ("-e", "toys:Memory-v0", "-p", 4, "-r", 3, "-g", 1, "-d", 2, "-o", "out")
    more = ("--set", "compute.check=false", "--set", "env.reuse=true", "--set", "compute.slots=1")
    call("run", *task, *more).ok()
    done = call("verify", store.path_of(tmp_path / "out", 0))
    assert (done.code, "with env.reuse = true" in done.out) == (1, True), done.out
