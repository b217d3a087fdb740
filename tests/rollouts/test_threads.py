"""Threads play the episodes of exact tasks with the bits of one thread, and end with their rollout."""

import gc
import threading
import time

import numpy as np
import pytest
from episode_tables import E, P, batch_of, finish, table_of

import evolve
from evolve import environments, networks
from evolve.config import Config, EnvOptions, parse
from evolve.numerics import native
from evolve.rollouts.exact_rollout import ExactRollout
from evolve.rollouts.threads import ThreadedRollout
from evolve.training import experiment
from evolve.training.rollouts import rollout_of

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
PLASTIC = {"name": "hebbian-dag", "hidden": [5], "plasticity": 1.0, "neuromodulated": True}


def made(threads, env="CartPole-v1", normalize=False):
    """Return a rollout in so many threads, which plays few episodes at a time, and the network."""
    table = {
        "env": {"id": env, "engine": "exact", "max_episode_steps": 40},
        "network": PLASTIC,
        "normalize_observations": normalize,
        "compute": {"backend": "native", "slots": 4, "threads": threads},
    }
    engine = environments.make(EnvOptions(id=env, engine="exact"), 1)
    rollout = rollout_of(parse(Config, table))
    assert isinstance(rollout, ThreadedRollout if threads > 1 else ExactRollout)
    return rollout, networks.make(PLASTIC, engine.observation_size, engine.action_size)


def alive():
    return sum(thread.name == "evolve-rollout" for thread in threading.enumerate())


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("threads", "traces", "env"),
    [(2, "each", "CartPole-v1"), (3, "mean", "CartPole-v1"), (7, "each", "BipedalWalker-v3")],
)
def test_the_bits_are_those_of_one_thread(threads, traces, env):
    found = []
    for number in (1, threads):
        rollout, network = made(number, env, normalize=True)
        rollout.submit(batch_of(network, True, traces=traces))
        assert rollout.pending == P * E
        found.append(table_of(finish(rollout)))
        assert rollout.pending == 0
        assert rollout.tick() is None
        rollout.close()
    assert found[0] == found[1]


def test_episodes_that_come_later_join_those_that_run():
    alone, network = made(1)
    several, _ = made(3)
    batch = batch_of(network, False)
    alone.submit(batch)
    parts = []
    for n in range(0, len(batch), 5):
        several.submit(batch.take(np.arange(n, min(n + 5, len(batch)))))
        results = several.tick()
        parts += [] if results is None else [results]
    found, expected = table_of(finish(several, parts)), table_of(finish(alone))
    for name in ("returns", "lengths", "fingerprints", "step_hashes", "traces"):
        assert found[name] == expected[name]


def test_cleared_episodes_leave_no_results():
    rollout, network = made(2)
    batch = batch_of(network, False)
    rollout.submit(batch)
    rollout.tick()
    rollout.clear()
    assert (rollout.pending, rollout.tick()) == (0, None)
    rollout.submit(batch)
    assert sum(map(len, finish(rollout))) == len(batch)


def test_an_error_in_a_thread_is_raised_by_the_tick(monkeypatch):
    rollout, network = made(2)

    def fail(_part):
        raise MemoryError("no room")

    monkeypatch.setattr(ExactRollout, "play_on", fail)
    rollout.submit(batch_of(network, False))
    with pytest.raises(MemoryError, match="no room"):
        rollout.tick()
    monkeypatch.undo()
    rollout.clear()
    rollout.submit(batch_of(network, False))
    assert sum(map(len, finish(rollout))) == P * E


def test_threads_end_with_their_rollout():
    gc.collect()
    wait_until(lambda: alive() == 0)
    closed, _ = made(3)
    dropped, network = made(2)
    dropped.submit(batch_of(network, False))
    finish(dropped)
    assert alive() == 5
    closed.close()
    del dropped
    gc.collect()
    wait_until(lambda: alive() == 0)


def test_auto_is_the_share_of_the_cores(monkeypatch):
    config = parse(Config, {"env": {"id": "CartPole-v1", "engine": "exact"}, "compute": {"threads": "auto"}})
    monkeypatch.setattr(experiment, "available_cores", lambda: 16)
    for ranks, threads in ((1, 16), (4, 4), (64, 1)):
        monkeypatch.setattr(experiment, "local_ranks", lambda ranks=ranks: (0, ranks))
        assert experiment.num_threads(config) == threads
    stepped = parse(Config, {"env": {"id": "CartPole-v1"}, "compute": {"threads": 4}})
    assert experiment.num_threads(stepped) == 1


SETTINGS = {"env": {"id": "Acrobot-v1", "engine": "exact"}, "network": "plastic-mlp", "generations": 3, "seed": 1}
SETTINGS |= {"population": 12, "episodes": 3, "held_out_episodes": 20, "normalize_observations": True}


def test_a_run_has_one_digest_for_any_number_of_threads(tmp_path):
    results = set()
    for threads in (1, 2, 7):
        compute = {"threads": threads, "slots": 8}
        run = evolve.train(**SETTINGS, compute=compute, output=tmp_path / str(threads))
        results.add((run.digest, run.held_out.returns.tobytes()))
    assert len(results) == 1


def test_threads_of_several_ranks_and_of_a_resumed_run(command, tmp_path):
    words = ["-e", "Acrobot-v1", "--engine", "exact", "-p", 12, "-r", 3, "-s", 1, "--set", "held_out_episodes=0"]
    runs = [
        (command("run", *words, "-g", 3, "-o", "alone"), "alone"),
        (command("run", *words, "-g", 3, "-o", "ranks", "--threads", 2, ranks=3), "ranks"),
        (command("run", *words, "-g", 1, "-o", "resumed", "--threads", 3), "resumed"),
    ]
    runs.append((command("run", "--resume", "resumed/seed-1.h5", "-g", 3, "--threads", 2), "resumed"))
    for done, _ in runs:
        assert done.code == 0, done.err
    digests = {evolve.load(tmp_path / folder / "seed-1.h5").digest for _, folder in runs}
    assert len(digests) == 1
    refused = command("run", *words, "--threads", "many", "-o", "refused")
    assert refused.code == 2
    assert "--threads" in refused.err
