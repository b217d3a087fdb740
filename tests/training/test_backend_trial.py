"""With backend "auto" a trial decides: a GPU is used if it is fast enough, and the choice is printed."""

import re

import pytest

from evolve.config import Config, parse
from evolve.errors import RunError
from evolve.numerics import host_backend
from evolve.rollouts import RolloutInHalves
from evolve.training import prepare, rollouts
from evolve.training.rollouts import BackendTrial, RolloutSpeed, choose_backend

SMALL = {"env": {"id": "CartPole-v1"}, "network": {"name": "hebbian-dag"}, "population": 6, "episodes": 2}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(rollouts, "TRIAL_SECONDS", 0.01)


def experiment(**compute):
    return prepare(parse(Config, SMALL | {"compute": {"slots": 8} | compute}))


def test_a_trial_names_its_choice_and_the_reason():
    pays = BackendTrial("native", "NVIDIA H200", 1e5, 2.5e5)
    assert pays.prefers_device
    assert str(pays).startswith("backend cupy: ")
    for said in ("NVIDIA H200", "2.50 ×", "250,000", "100,000"):
        assert said in str(pays)
    does_not = BackendTrial("native", "NVIDIA H200", 1e5, 1.2e5)
    assert not does_not.prefers_device
    assert str(does_not).startswith("backend native: ")
    assert "1.20 ×" in str(does_not)


@pytest.mark.parametrize(("speeds", "taken"), [((1.0, 1.31), "cupy"), ((1.0, 1.29), host_backend("auto"))])
def test_the_faster_back_end_is_taken(emulated_device, monkeypatch, speeds, taken):
    measured = iter(RolloutSpeed(step_seconds=1 / speed, environment_seconds=0.0) for speed in speeds)
    monkeypatch.setattr(rollouts, "rollout_speed", lambda *_: next(measured))
    monkeypatch.setattr(rollouts, "with_fitting_slots", lambda same: same)
    chosen, trial = choose_backend(experiment())
    assert trial is not None
    assert chosen.backend == taken
    assert f'backend = "{taken}"' in chosen.rollout_spec.experiment
    assert chosen.config.compute.backend == "auto"  # it is no part of the experiment


@pytest.mark.parametrize("normalize", [False, True])
def test_a_trial_measures_network_and_environment(emulated_device, quick, normalize):
    there = prepare(parse(Config, SMALL | {"compute": {"slots": 8}, "normalize_observations": normalize}))
    _, trial = choose_backend(there)
    assert trial.host_speed > 0
    assert trial.device_speed > 0


def test_a_trial_of_whole_episodes_counts_all_of_their_steps(emulated_device, quick, monkeypatch):
    env, network = {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 5}, {"name": "hebbian-lstm"}
    there = prepare(parse(Config, SMALL | {"env": env, "network": network, "compute": {"slots": 8}}))
    played = []
    tick = RolloutInHalves.tick

    def counted(rollout):
        results = tick(rollout)
        played.append((0 if results is None else int(results.lengths.sum()), rollout.environment_seconds))
        return results

    monkeypatch.setattr(RolloutInHalves, "tick", counted)
    speed = rollouts.rollout_speed(there, "cupy", 0.01)
    steps = sum(made for made, _ in played[rollouts.WARM_UP :])
    assert steps >= 5 * 4  # of one half at least
    assert speed.environment_seconds == pytest.approx(played[-1][1] / steps)


def test_a_device_without_memory_for_the_slots_is_not_taken(emulated_device, quick, monkeypatch):
    monkeypatch.setattr(emulated_device, "capacity", 2**20)
    chosen, trial = choose_backend(experiment())
    assert trial.device_speed == 0
    assert chosen.backend == host_backend("auto")


def test_a_device_that_fails_is_not_taken(emulated_device, quick, monkeypatch):
    def fail(*_):
        raise RunError("the GPU failed")

    monkeypatch.setattr(emulated_device, "run", fail)
    chosen, trial = choose_backend(experiment())
    assert trial.device_speed == 0
    assert chosen.backend == host_backend("auto")


def test_a_backend_that_is_asked_for_needs_no_trial(emulated_device):
    assert choose_backend(experiment(backend="numpy"))[1] is None
    assert choose_backend(experiment(backend="cupy"))[0].backend == "cupy"


def test_auto_is_silent_without_a_gpu(call, no_device, absent):
    absent("cupy")
    words = ("-g", 1, "-p", 4, "-r", 1, "--set", "held_out_episodes=0", "-o", "run")
    done = call("run", *words).ok()
    assert "backend" not in done.err + done.out


def test_the_command_line_names_the_back_end_it_takes(call, emulated_device, quick):
    done = call("run", "-g", 1, "-p", 4, "-r", 1, "--set", "held_out_episodes=0", "-o", "run").ok()
    assert "evolve.run: backend " in done.err
    assert "an emulated device" in done.err


def test_a_network_from_outside_runs_on_the_host_and_that_is_said(call, emulated_device):
    words = ("-a", "leaky", "-g", 1, "-p", 4, "-r", 1, "--set", "held_out_episodes=0", "-o", "run")
    done = call("run", *words, "--strategy", "hill-climber", "--backend", "cupy").ok()
    assert re.search(rf"network leaky .*: .*{host_backend('auto')}", done.err), done.err


def test_a_run_is_resumed_on_another_back_end(call, emulated_device):
    words = ("-p", 4, "-r", 1, "-s", 3, "--set", "held_out_episodes=0")
    call("run", *words, "-g", 2, "-o", "one", "--backend", "native").ok()
    call("run", *words, "-g", 1, "-o", "two", "--backend", "cupy").ok()
    call("run", *words, "-g", 2, "-o", "two", "--backend", "numpy", "--resume").ok()
    call("verify", "one/seed-3.h5", "two/seed-3.h5").ok()
