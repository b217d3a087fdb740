"""The faults of the 2020 script, one test for each, by the commands if a user of the script could see the fault."""

import os
import sys

import gymnasium
import numpy as np
import pytest
from conftest import Process, environment, launcher, make_runs
from gymnasium import spaces

from evolve import networks, store, strategies
from evolve.environments.spaces import action_decoder
from evolve.strategies import Results, ranking

SMALL = ("-e", "CartPole-v1", "-p", 9, "-r", 2, "-g", 4, "-d", 3, "--set", "env.max_episode_steps=60")
NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3]}, 4, 2)


BY_TRACES = (*SMALL, "--set", "strategy.trace_pruning=0.3", "--set", "strategy.uniform_pruning=0.0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of seed 13 by one rank and by three, and one of seed 41337, pruned by traces alone."""
    place = tmp_path_factory.mktemp("script-2020")
    words = (*BY_TRACES, "--set", "held_out_episodes=7")
    for name, seed in (("one", 13), ("other", 41337)):
        make_runs(place, *words, "-s", seed, "-o", name)
    three = [*launcher(3), sys.executable, "-m", "evolve.run", *map(str, words), "-s", "13", "-o", "three"]
    process = Process(three, environment(), place)
    done = process.wait()
    process.close()
    assert done.code == 0, done.err
    (place / "three.txt").write_text(done.out)
    return place


def read(runs, name, seed=13):
    return store.read(runs / name / f"seed-{seed}.h5")


def test_the_seed_flag_has_an_effect(runs):
    assert read(runs, "one").records[0].digest != read(runs, "other", 41337).records[0].digest


def test_environments_are_seeded(runs):
    one, three = read(runs, "one").records, read(runs, "three").records
    assert all(np.array_equal(a.fingerprints, b.fingerprints) for a, b in zip(one, three, strict=True))
    assert np.array_equal(read(runs, "one").held_out.returns, read(runs, "three").held_out.returns)


def test_traces_leave_the_workers_and_steer_pruning(runs):
    one, three = read(runs, "one"), read(runs, "three")
    traces = three.checkpoint["recent_traces"]
    assert np.count_nonzero(traces)
    assert np.array_equal(traces, one.checkpoint["recent_traces"])
    assert min(three.records[-1].connections) < min(three.records[0].connections)  # nothing else prunes


def test_traces_do_not_leak_from_one_candidate_to_the_next(runs):
    """One slot plays all candidates one after another; with many, each has its own."""
    known = read(runs, "one").records[0]
    make_runs(runs, *BY_TRACES, "-s", 13, "-g", 1, "--set", "compute.slots=1", "-o", "slot")
    assert np.array_equal(read(runs, "slot").records[0].trace_fingerprints, known.trace_fingerprints)


def test_the_champion_is_stored_as_it_was_evaluated(runs, call):
    done = call("replay", runs / "three" / "seed-13.h5", "--generations", "0,1,2,last").ok()
    assert done.out.count("equal to the log") == 4


def test_nan_ranks_last():
    assert ranking(np.array([np.nan, -1e9, 3.0, np.nan])).tolist() == [2, 1, 0, 3]


def test_populations_do_not_grow(runs):
    assert {record.returns.shape for record in read(runs, "three").records} == {(9, 2)}


def test_discrete_actions_are_integers():
    size, decode = action_decoder(spaces.Discrete(3), 1.0)
    assert size == 3
    (action,) = decode(np.array([[0.1, 0.9, -0.3]], np.float32))
    assert action == 1
    assert np.issubdtype(type(action), np.integer)
    assert gymnasium.make("Acrobot-v1").action_space.contains(action)


def test_the_final_test_plays_and_prints_as_many_episodes_as_it_says(runs):
    assert "7 held-out episodes: mean " in (runs / "three.txt").read_text()
    assert len(read(runs, "three").held_out.returns) == 7


def test_a_wrong_agent_name_hangs_no_rank(command):
    done = command("run", "-a", "hebian-dag", ranks=2)
    assert (done.code, done.err.count("Did you mean hebbian-")) == (2, 1)


def test_an_exception_at_a_worker_does_not_hang_the_job(command):
    done = command("run", "-e", "toys:Faulty-v0", "-p", 8, "-r", 3, "-g", 2, ranks=2)
    assert done.code == 1
    assert "the motor burnt out" in done.err


def test_elites_do_not_keep_their_luckiest_score():
    strategy = strategies.from_table({"name": "prune"}, NETWORK, 9, 1)
    state, lucky = strategy.start(), None
    for generation in range(4):
        genomes = strategy.ask(state, generation)
        fitness = np.full(9, 10.0)
        if generation == 0:
            lucky, fitness[5] = genomes.weights[5], 1000.0
        elif generation == 1:
            assert np.array_equal(genomes.weights[0], lucky)
        if generation:
            fitness[0] = -2000.0  # a survivor is evaluated again
        traces = np.zeros((9, NETWORK.num_traces), np.float32)
        state = strategy.tell(state, genomes, Results(fitness, traces))
    assert not np.array_equal(strategy.champion(state).weights[0], lucky)


def test_no_rank_starts_another_mpirun(command, tmp_path):
    trap = tmp_path / "bin"
    trap.mkdir()
    for name in ("mpirun", "mpiexec", "prterun"):
        (trap / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/trapped\n")
        (trap / name).chmod(0o755)
    path = os.pathsep.join([str(trap), os.environ["PATH"]])
    command("run", *SMALL, "--set", "held_out_episodes=0", ranks=2, PATH=path).ok()
    assert not (tmp_path / "trapped").exists()
    assert len(list(tmp_path.glob("runs/**/*.h5"))) == 1
