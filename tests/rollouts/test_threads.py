"""Threads play the episodes of exact tasks with the bits of one thread, and end with their rollout."""

import gc
import math
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import LONG, environment, wait_for
from episode_tables import E, P, batch_of, finish, table_of
from wire import Wire

import evolve
from evolve import environments, networks, store
from evolve.cluster import Coordinator, dismiss, serve
from evolve.config import Config, EnvOptions, parse
from evolve.networks.hebbian import HebbianDag
from evolve.numerics import native
from evolve.rollouts import exact_rollout
from evolve.rollouts.exact_rollout import ExactRollout, ThreadedRollout, ThreadsState
from evolve.store import Header
from evolve.training import StrategyReplica, experiment, iterate, make_rollout, prepare
from evolve.training import rollouts as training_rollouts
from evolve.training.rollouts import rollout_of

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
PLASTIC = {"name": "hebbian-dag", "hidden": [5], "plasticity": 1.0, "neuromodulated": True}


def made(threads, env="CartPole-v1", normalize=False, slots=4):
    """Return a rollout in so many threads, which plays few episodes at a time, and the network."""
    table = {
        "env": {"id": env, "engine": "exact", "max_episode_steps": 40},
        "network": PLASTIC,
        "normalize_observations": normalize,
        "compute": {"backend": "native", "slots": slots, "threads": threads},
    }
    engine = environments.make(EnvOptions(id=env, engine="exact"), 1)
    rollout = rollout_of(parse(Config, table))
    assert isinstance(rollout, ThreadedRollout if threads > 1 else ExactRollout)
    return rollout, networks.make(PLASTIC, engine.observation_size, engine.action_size)


def playing():
    return {thread for thread in threading.enumerate() if thread.name == "evolve-rollout"}


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


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [
        (1e-6, [1000, 1000]),  # all 64 episodes take less time than a second thread would cost
        (1e-4, [32, 32]),  # each of two threads takes half
        (1.0, [16, 8]),  # long episodes: as many as a kernel steps together, so that both threads end together
        (math.inf, [16, 8]),
    ],
)
def test_a_feed_is_worth_its_time(seconds, sizes):
    found = []
    for waiting in (64, 32):
        shared = ThreadsState(range(waiting), threads=2, least_feed=8)
        shared.fair_share, shared.episode_seconds = 32, seconds
        found.append(shared.feed_size())
    assert found == sizes


def test_a_thread_without_episodes_gets_some_that_run():
    """Or it would be idle while long episodes run in another thread."""
    parts, expected = [], None
    for _ in range(3):
        part, network = made(1, "BipedalWalker-v3", slots=64)
        parts.append(part)
    busy, empty, alone = parts
    for part in (busy, alone):
        part.submit(batch_of(network, False, traces="each"))
        part.steps = 3
    expected = table_of(finish(alone))
    given = threading.Event()
    shared = ThreadsState(range(0), threads=2, least_feed=P * E)
    shared.empty.append((empty, given))
    thread = threading.Thread(target=shared.play_parts)
    thread.start()
    shared.to_play.put(busy)
    assert given.wait(LONG)
    shared.stop(1)
    thread.join(LONG)
    assert empty.pending == P * E // 2
    found = [shared.played.get_nowait()[1] for _ in range(shared.played.qsize())]
    found = finish(empty, finish(busy, [results for results in found if results is not None]))
    assert table_of(found) == expected


def test_a_thread_waits_for_episodes_that_have_just_begun(monkeypatch):
    """Or it would be idle for the rest of a generation if it was ready before the first call of others was over."""
    monkeypatch.setattr(exact_rollout, "POLL_SECONDS", 0.001)
    part, _ = made(1, "BipedalWalker-v3")
    waiting = []

    class Beginning:
        running = can_give = True
        play = SimpleNamespace(running=4, waiting=4)

        def fill(self, _):
            pass

        def play_on(self):
            shared.to_play.put(part)
            time.sleep(0.05)
            waiting.extend(shared.empty)
            shared.stop(2)

        def take_results(self):
            pass

    shared = ThreadsState(range(0), threads=2, least_feed=8)
    threads = [threading.Thread(target=shared.play_parts) for _ in range(2)]
    for thread in threads:
        thread.start()
    shared.to_play.put(Beginning())
    for thread in threads:
        thread.join(LONG)
    assert [its for its, _ in waiting] == [part]


def test_episodes_that_often_change_threads_keep_their_bits(monkeypatch):
    """Calls of one step, in threads that give whatever they can."""
    for name, value in {"LEAST_GIVEN": 1, "POLL_SECONDS": 1e-4, "CALL_SECONDS": 1e-6, "LEAST_STEPS": 1}.items():
        monkeypatch.setattr(exact_rollout, name, value)
    given, give = [], ExactRollout.give
    monkeypatch.setattr(ExactRollout, "give", lambda part, other: (given.append(other), give(part, other)))
    alone, network = made(1, "LunarLander-v3", normalize=True, slots=64)
    several, _ = made(5, "LunarLander-v3", normalize=True, slots=64)
    for traces in ("each", "mean", "each", "mean", "each"):
        found = []
        for rollout in (several, alone):
            rollout.submit(batch_of(network, True, traces=traces))
            found.append(table_of(finish(rollout)))
        assert found[0] == found[1]
        several.submit(batch_of(network, True))
        several.tick()
        several.clear()  # at any time, so also while a thread gives
    assert given
    several.close()


@pytest.mark.parametrize(("env", "gives"), [("BipedalWalker-v3", True), ("CartPole-v1", False)])
def test_only_worlds_are_given(env, gives):
    """A kernel steps other slots in the time of a whole tile, so both threads would take as long as one."""
    part, _ = made(1, env)
    assert part.can_give is gives


def test_a_thread_does_not_wait_for_the_last_episodes():
    """Or it would poll to the end of each generation."""
    part, _ = made(1, "BipedalWalker-v3")
    shared = ThreadsState(range(0), threads=2, least_feed=8)
    thread = threading.Thread(target=shared.play_parts)
    thread.start()
    shared.to_play.put(part)
    assert shared.played.get(timeout=LONG) == (part, None, None)
    assert not shared.empty
    shared.stop(1)
    thread.join(LONG)


def test_the_memory_of_a_feed_is_limited(monkeypatch):
    """Or sixty-four threads would hold sixty-four thousand large genomes."""
    config = parse(Config, {"env": {"id": "CartPole-v1", "engine": "exact"}, "compute": {"slots": 512, "threads": 1}})
    fed = []
    for limit in (2**26, 2**12):
        monkeypatch.setattr(training_rollouts, "FEED_BYTES", limit)
        rollout = rollout_of(config)
        monkeypatch.setattr(rollout.play, "feed", lambda feed: fed.append(len(feed.seeds)))
        network = networks.make(config.network, 4, 1)
        for _ in range(20):
            rollout.submit(batch_of(network, False))
        rollout.fill()
    assert fed[0] > fed[1] == native.lanes()


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
        finish(rollout)
    monkeypatch.undo()
    rollout.clear()
    rollout.submit(batch_of(network, False))
    assert sum(map(len, finish(rollout))) == P * E


def test_threads_end_with_their_rollout():
    others = playing()
    closed, _ = made(3)
    dropped, network = made(2)
    dropped.submit(batch_of(network, False))
    finish(dropped)
    assert len(playing() - others) == 3  # the threads that call `tick` play, too
    closed.close()
    del dropped
    gc.collect()
    wait_until(lambda: playing() <= others)


def test_auto_is_the_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(experiment, "share_of_cores", lambda: 5)
    exact = {"env": {"id": "CartPole-v1", "engine": "exact"}}
    for compute, threads in (({}, 5), ({"threads": "auto"}, 5), ({"threads": 3}, 3), ({"backend": "numpy"}, 1)):
        assert experiment.num_threads(parse(Config, exact | {"compute": compute})) == threads
    assert experiment.num_threads(parse(Config, {"env": {"id": "CartPole-v1"}, "compute": {"threads": 4}})) == 1
    for threads, expected in (("auto", 1), (4, 4)):
        pooled = {"env": {"id": "CartPole-v1", "engine": "envpool"}, "compute": {"threads": threads}}
        assert experiment.num_threads(parse(Config, pooled)) == expected


def test_a_network_without_a_kernel_plays_in_one_thread(monkeypatch):
    config = parse(Config, {"env": {"id": "CartPole-v1", "engine": "exact"}, "compute": {"threads": 4}})
    assert experiment.num_threads(config) == 4
    monkeypatch.setattr(HebbianDag, "batch", lambda *_: object())
    assert experiment.num_threads(config) == 1


SETTINGS = {"env": {"id": "Acrobot-v1", "engine": "exact"}, "network": "plastic-mlp", "generations": 3}
SETTINGS |= {"population": 12, "episodes": 3, "held_out_episodes": 20, "normalize_observations": True}


def train(folder, threads, **more):
    return evolve.train(**SETTINGS | more, seed=1, compute={"threads": threads, "slots": 8}, output=folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run in one thread, without other ranks."""
    return train(tmp_path_factory.mktemp("alone"), 1)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_a_run_has_one_digest_for_any_number_of_threads(tmp_path, alone, threads):
    run = train(tmp_path, threads)
    assert run.digest == alone.digest
    assert run.held_out.returns.tobytes() == alone.held_out.returns.tobytes()
    assert alone.verify(threads=threads).equal
    assert alone.evaluate(20, threads=threads).returns.tobytes() == alone.held_out.returns.tobytes()


def test_a_resumed_run_may_have_other_threads(tmp_path, alone):
    train(tmp_path, 3, generations=1)
    assert train(tmp_path, 2, resume=True).digest == alone.digest


def test_the_threads_are_recorded_as_those_of_the_machine(tmp_path, alone, call):
    assert store.read(alone.path).header.manifest["threads"] == 1
    run = train(tmp_path, 3, generations=1)
    assert store.read(run.path).header.manifest["threads"] == 3
    for command, words in (("verify", ["--full"]), ("evaluate", ["--episodes", 20])):
        call(command, alone.path, *words, "--threads", 3).ok()
        call(command, alone.path, "--threads", 5000).refused("--threads")


class Mortal(Wire):
    """Rank 0, which MPI tells of the death of a worker."""

    dead = threading.Event()

    def find_lost(self):
        if self.dead.is_set():
            self.mark_dead([1])


class Dying(Wire):
    """A worker that dies after a few messages of the coordinator."""

    left = 4

    def probe(self):
        received = super().probe()
        self.left -= received is not None
        if not self.left:
            raise SystemExit
        return received


def digest_over(workers, threads, first=Wire):
    """Return the digest of a run by workers that are threads of this process; `first` is the first worker."""
    table = {key: {"name": value} if key == "network" else value for key, value in SETTINGS.items()}
    made = prepare(parse(Config, table | {"held_out_episodes": 0, "compute": {"threads": threads, "slots": 8}}))
    boxes = [deque() for _ in range(workers + 1)]

    def work(rank):
        wire = (first if rank == 1 else Wire)(rank, boxes)
        try:
            serve(wire, make_rollout, lambda: None, StrategyReplica())
        except SystemExit:
            Mortal.dead.set()

    ranks = [threading.Thread(target=work, args=(rank,)) for rank in range(1, workers + 1)]
    for rank in ranks:
        rank.start()
    Mortal.dead.clear()
    transport = Mortal(0, boxes)
    with tempfile.TemporaryDirectory() as folder:
        header = Header(made.config.to_toml(), {}, 1, made.config.env.id)
        file = store.create(Path(folder) / "seed-1.h5", header)
        *_, last = iterate(made, Coordinator(transport, make_rollout), file)
    dismiss(transport)
    for rank in ranks:
        rank.join(LONG)
    assert transport.gone == ({1} if first is Dying else set())
    return last.digest.decode()


@pytest.mark.parametrize(("workers", "threads"), [(3, 1), (1, 2), (3, 3), (1, 7)])
def test_ranks_with_threads_have_the_digest_of_one_process(alone, workers, threads):
    assert digest_over(workers, threads) == alone.digest


@pytest.mark.parametrize("threads", [2, 7])
def test_the_digest_survives_a_worker_with_threads_that_dies(alone, threads):
    assert digest_over(3, threads, Dying) == alone.digest


def test_threads_of_ranks_under_mpirun(command, tmp_path, alone):
    words = ["-e", "Acrobot-v1", "--engine", "exact", "-a", "plastic-mlp", "-p", 12, "-r", 3, "-s", 1, "-g", 3]
    words += ["--set", "held_out_episodes=20", "--set", "normalize_observations=true"]
    command("run", *words, "-o", "ranks", "--threads", 2, ranks=3).ok()
    run = evolve.load(tmp_path / "ranks" / "seed-1.h5")
    assert (run.digest, store.read(run.path).header.manifest["threads"]) == (alone.digest, 2)
    command("run", *words, "--threads", "many", "-o", "refused").refused("--threads")


def test_an_interrupt_stops_threads_between_generations(start, tmp_path):
    words = ["-e", "Acrobot-v1", "--engine", "exact", "-p", 12, "-r", 3, "-s", 1, "-g", 99999, "-o", "out"]
    process = start("run", *words, "--threads", 3)
    path = tmp_path / "out" / "seed-1.h5"
    wait_for(lambda: path.exists() and store.read_progress(path)[0], process.output)
    process.popen.send_signal(signal.SIGINT)
    done = process.wait()
    assert done.code == 75
    assert "stopped by SIGINT: " in done.err
    assert "Traceback" not in done.err
    assert evolve.load(path).verify(threads=2).equal


HANGING = """
import sys, threading
from evolve.cli.app import launch
from evolve.cluster import watchdog
from evolve.rollouts.exact_rollout import ExactRollout
watchdog.patience = lambda limit: 0.5
play_on, began = ExactRollout.play_on, threading.Event()
def hang(part):
    if threading.current_thread() is threading.main_thread():
        began.wait(30)  # otherwise this thread could play all episodes
        return play_on(part)
    began.set()
    threading.Event().wait()
ExactRollout.play_on = hang
launch("run", ["-e", "CartPole-v1", "--engine", "exact", "--threads", "2", "-p", "64", "-g", "1", "-o", sys.argv[1],
               "--set", "env.max_episode_seconds=1"])
"""


def test_the_watchdog_ends_a_process_whose_threads_hang(tmp_path):
    words = [sys.executable, "-c", HANGING, str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONG, check=False, env=environment())
    assert done.returncode == 1
    assert "in hang" in done.stderr  # the thread that hangs, in the traceback of all threads


STACKS = """
import threading, evolve
threading.stack_size(2**18)
evolve.train(env={"id": "BipedalWalker-v3", "engine": "exact", "max_episode_steps": 50}, population=16, episodes=1,
             generations=1, held_out_episodes=0, compute={"threads": 2})
assert threading.stack_size() == 2**18
"""


def test_threads_have_room_for_the_kernels_of_rigid_bodies(tmp_path):
    """A script may have set a small stack for its threads; a thread that exceeds its stack crashes."""
    words = [sys.executable, "-c", STACKS]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False, env=environment()
    )
    assert done.returncode == 0, done.stderr
