"""Environments that fail, hang, crash or do not repeat: one message, the right exit code, no process left."""

import re
import signal
import time

import numpy as np
import pytest
from conftest import wait_for

from evolve import store
from evolve.errors import EpisodeTimeout

RUN = ("-e", "toys:Faulty-v0", "-p", 8, "-r", 3, "-g", 2, "-d", 2, "--set", "held_out_episodes=0", "-o", "out")

ONE = 0.075  # the share at which just one of these 48 episodes fails: candidate 6, episode 1 of generation 0


def faulty(how, share=0.12, **env):
    env = {"kwargs.how": f"'{how}'", "kwargs.share": share, **env}
    words = (word for key, value in env.items() for word in ("--set", f"env.{key}={value}"))
    return (*RUN, "--set", f"compute.check={str('max_episode_seconds' not in env).lower()}", *words)


def shown(done):
    """The output of evolve, without the launcher's own lines."""
    return done.err + done.out


WAYS = {
    "raise": "RuntimeError: the motor burnt out",
    "exit": "SystemExit: the environment wants to leave",
    "reward nan": "reward: expected a finite number, got nan",
    "reward inf": "reward: expected a finite number, got -inf",
    "observation": "observation: expected finite numbers, got inf at position 1 of 3",
    "shape": "has the shape (7,), not (3,)",
}


@pytest.mark.parametrize("how", WAYS)
def test_a_failed_episode_ends_the_run_and_is_named(call, how):
    done = call("run", *faulty(how))
    assert done.code == 1
    first = done.err.splitlines()[0]
    named = re.fullmatch(r"evolve\.run: generation (\d+), candidate (\d+), episode (\d+) failed in step 3, "
                         r"environment seed (\d+), on rank 0 \(.+\):", first)  # fmt: skip
    assert named, first
    assert WAYS[how] in done.err
    generation, candidate, episode, seed = (int(word) for word in named.groups())
    are = "generation is" if generation == 1 else "generations are"
    assert f"{generation} {are} complete in out/seed-0.h5" in done.err
    words = re.search(r"Play it alone: python -m evolve\.replay (.+)", done.err)[1].split()
    assert words == ["out/seed-0.h5", "--generation", str(generation), "--candidate", str(candidate),
                     "--episode", str(episode)]  # fmt: skip
    again = call("replay", *words)
    assert again.code == 1
    assert f"evolve.replay: the episode failed in step 3, environment seed {seed}:" in again.err
    assert WAYS[how] in again.err


def test_reset_can_fail_too(call, tmp_path):
    for how in ("raise", "observation"):
        done = call("run", *faulty(how, **{"kwargs.where": "'reset'"}))
        assert done.code == 1
        assert "failed in reset, environment seed" in done.err
        (tmp_path / "out" / "seed-0.h5").unlink()


@pytest.mark.parametrize(("ranks", "mpi"), [(3, "openmpi"), (3, "mpich"), (3, "ulfm")])
def test_many_ranks_report_one_failure_once(command, ranks, mpi):
    """Every worker plays failing episodes; one message is printed, and not a traceback for each."""
    done = command("run", *faulty("raise", share=1), ranks=ranks, mpi=mpi)
    assert done.code == 1
    assert shown(done).count("Traceback") == 1
    assert shown(done).count("the motor burnt out") == 2  # the line that raised it, and the error itself
    assert shown(done).count("evolve.run: generation 0, candidate ") == 1


@pytest.mark.parametrize("how", ["raise", "observation"])
def test_failed_episodes_may_count_as_the_worst(call, command, tmp_path, how):
    worst = {"on_failure": "'worst'"}
    alone = call("run", *faulty(how, **worst)).ok()
    assert alone.err.count("failed and counts as the worst") == alone.err.count("in step 3, environment seed")
    one = store.read(store.path_of(tmp_path / "out", 0))
    if how == "raise":  # a worker reports all failures alike
        command("run", *faulty(how, **worst), "-o", "many", ranks=2).ok()
        many = store.read(store.path_of(tmp_path / "many", 0))
        assert [r.digest for r in one.records] == [r.digest for r in many.records]
    failed = np.isnan(np.array([r.returns for r in one.records]))
    assert failed.any()
    assert (np.array([r.lengths for r in one.records])[failed] == 3).all()
    assert "… and" in alone.err or failed.sum() <= 6
    for record in one.records:
        assert (np.isnan(record.fitness) == np.isnan(record.returns).any(axis=1)).all()
        assert not np.isnan(record.champion_fitness)


@pytest.mark.parametrize("how", ["hang", "swallow", "endless"])
def test_an_episode_that_never_ends_is_ended(call, how):
    done = call("run", *faulty(how, max_episode_seconds=0.5))
    assert done.code == 1
    assert "(env.max_episode_seconds)" in done.err
    assert re.search(r"candidate \d+, episode \d+ failed in step \d+", done.err)


def test_the_first_episode_that_hangs_ends_the_run(call, monkeypatch):
    """The trial before the run hangs, too; the other seven slots need not wait for the limit one after another."""
    timeouts = []

    class Counted(EpisodeTimeout):
        def __init__(self, *words):
            timeouts.append(words)
            super().__init__(*words)

    monkeypatch.setattr("evolve.cluster.watchdog.EpisodeTimeout", Counted)
    for where, step in (("step", "step 3"), ("reset", "reset")):
        timeouts.clear()
        every = ("-e", "toys:Faulty-v0", "--set", "env.kwargs.share=1.0", "--set", "env.kwargs.how=hang")
        done = call("run", *every, "--set", f"env.kwargs.where={where}", "--set", "env.max_episode_seconds=0.2", *RUN)
        assert (done.code, len(timeouts)) == (1, 2)
        assert f"generation 0, candidate 0, episode 0 failed in {step}, " in done.err


def test_hanging_episodes_may_count_as_the_worst(call, command, tmp_path):
    """Only they fail: neither the episodes stepped beside one that hangs, nor the episodes after it."""
    slow = {"max_episode_seconds": 0.3, "on_failure": "'worst'"}
    digests = []
    for slots, ranks in ((1, None), (24, None), (8, 3)):
        more = ("--set", f"compute.slots={slots}", "-o", f"{slots}")
        words = (*faulty("hang", share=0.09, **slow), *more)
        done = command("run", *words, ranks=ranks) if ranks else call("run", *words)
        assert done.code == 0, done.err
        assert shown(done).count("EpisodeTimeout: no answer for 0.3 s") == 3
        run = store.read(store.path_of(tmp_path / f"{slots}", 0))
        assert np.isnan(np.array([r.returns for r in run.records])).sum() == 3
        digests.append(run.records[-1].digest)
    assert len(set(digests)) == 1


def test_several_episodes_that_hang_at_once_do_not_make_a_worker_look_dead(call, command, tmp_path):
    """Half of them hang in the same step, one after another: longer than a worker may be silent."""
    all_of_them = ("-p", 12, "-r", 1, "-g", 1, "--set", "compute.slots=12")
    worst = {"max_episode_seconds": 0.3, "on_failure": "'worst'"}
    done = command("run", *faulty("hang", share=1.0, **worst), *all_of_them, ranks=2).ok()
    assert "given up" not in shown(done)
    assert "no longer answers" not in shown(done)
    run = store.read(store.path_of(tmp_path / "out", 0))
    assert np.isnan(run.records[0].returns).all()
    assert run.records[0].busy_seconds[1] > 12 * 0.3
    call("run", *faulty("raise", share=1.0, **worst), *all_of_them, "-o", "alone").ok()
    expected = store.read(store.path_of(tmp_path / "alone", 0))
    assert [r.digest for r in run.records] == [r.digest for r in expected.records]


def test_a_suspended_process_fails_no_episode(start, tmp_path):
    """It is suspended for longer than an episode may take."""
    slow = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.02", "--set", "env.max_episode_seconds=1.5")
    mark = ("--set", f"env.kwargs.mark='{tmp_path}/now'", "--set", "compute.check=false", "--set", "compute.slots=2")
    process = start("run", *slow, *RUN[2:], "-g", 1, *mark)
    wait_for((tmp_path / "now").exists, process.output)
    time.sleep(0.1)
    process.popen.send_signal(signal.SIGSTOP)
    time.sleep(3)
    process.popen.send_signal(signal.SIGCONT)
    done = process.wait()
    assert done.code == 0, done.err


def test_a_constructor_that_leaves_is_refused(call):
    call("run", "-e", "toys:Leaves-v0", *RUN[2:]).refused(
        "expected an environment that can be made, got toys:Leaves-v0 (SystemExit: no licence)"
    )


def test_rank_0_names_the_episodes_that_it_tries_alone(command):
    """Two workers are too few to prove that an episode kills workers: rank 0 plays it too, after a warning."""
    done = command("run", *faulty("crash", share=ONE, max_episode_seconds=60), ranks=3, mpi="ulfm")
    said = shown(done)
    assert "evaluates the rest by itself; the episodes with which the last worker died come last: generation 0" in said
    assert "in _crash" in said


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow), "ulfm"])
def test_a_worker_stuck_in_native_code_is_given_up(command, tmp_path, mpi):
    """Its episodes go to other workers. The one that hangs again, alone, fails; all others are evaluated."""
    stuck = {"max_episode_seconds": 0.1, "on_failure": "'worst'"}
    done = command("run", *faulty("hang in C", share=ONE, **stuck), ranks=5, mpi=mpi)
    crashed = mpi == "openmpi" and done.code == -signal.SIGSEGV  # Open MPI's mpirun, having ended the job: seen once
    assert done.code == 0 or (crashed and "Errorcode: 0" in shown(done)), shown(done)
    assert "no longer answers, and is given up" in shown(done)
    assert "_hang_in_c" in shown(done)
    run = store.read(store.path_of(tmp_path / "out", 0))
    assert run.complete
    failed = np.isnan(np.array([r.returns for r in run.records]))
    assert failed.sum() == shown(done).count("it hangs in native code") == 1


def test_rank_0_does_not_hang_where_all_workers_did(command):
    stuck = {"max_episode_seconds": 0.1}
    done = command("run", *faulty("hang in C", share=0.5, **stuck), "--set", "compute.slots=2", ranks=2)
    assert done.code == 1
    assert "every remaining worker hangs" in shown(done)


def test_a_crash_ends_a_plain_job_with_a_traceback(command, tmp_path):
    done = command("run", *faulty("crash", max_episode_seconds=60), ranks=3)
    assert done.code != 0
    assert "in _crash" in shown(done)
    assert not store.read(store.path_of(tmp_path / "out", 0)).complete


@pytest.mark.parametrize(
    ("where", "named"),
    [("ear", "observation['ear'][1] ("), ("step", "of step 4"), ("reward", "reward (")],
)
def test_an_environment_that_does_not_repeat_is_refused_before_the_run(call, tmp_path, where, named):
    words = ("-e", "toys:Unrepeatable-v0", *RUN[2:], "--set", f"env.kwargs.where='{where}'")
    call("run", *words).refused("repeats an episode to the bit", named)
    assert not (tmp_path / "out").exists()
    call("run", *words, "--set", "compute.check=false").ok()


def test_an_object_that_remembers_is_refused_where_it_would_be_used_again(call):
    words = ("-e", "toys:Memory-v0", *RUN[2:])
    call("run", *words, "--set", "env.reuse=true").refused("a used and a new environment differ: reward")
    call("run", *words).ok()


def test_an_environment_whose_objects_share_something_is_played_in_one_slot_alone(call, tmp_path):
    words = ("-e", "toys:SharedGoal", *RUN[2:])
    call("run", *words).refused("an episode changes another one", "--set compute.slots=1")
    call("run", *words, "--set", "compute.slots=1").ok()
    for full in ((), ("--full",)):
        assert "equal: " in call("verify", store.path_of(tmp_path / "out", 0), *full).ok().out
