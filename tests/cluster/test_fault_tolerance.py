"""A run goes on without workers that die, and its bits stay the same."""

import random
import subprocess
import time

import psutil
import pytest
from conftest import LONG, make_runs, wait_for

from evolve import store

SLOW = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.01", "--set", "env.kwargs.brake=brake", "-p", 12, "-r", 2,
        "-g", 6, "-d", 2, "--set", "held_out_episodes=0", "--set", "compute.slots=2")  # fmt: skip


def run_of(folder, seed=0):
    run = store.read(store.path_of(folder, seed))
    assert run.complete
    return [record.digest for record in run.records]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    make_runs(folder, *SLOW, "-o", "out")
    return run_of(folder / "out")


def begun(process, ranks):
    """Wait until a generation is complete and all ranks are there; return them."""
    wait_for(lambda: "generation" in process.output()[0] and len(process.ranks()) == ranks, process.output)
    return process.ranks()


@pytest.mark.parametrize("victims", [pytest.param((2, 3), marks=pytest.mark.slow), (1, 2, 3)])
def test_a_run_goes_on_without_dead_workers(start, expected, tmp_path, brake, victims):
    """Down to the coordinator alone, which then evaluates by itself."""
    process = start("run", *SLOW, "-o", "run", ranks=4, mpi="ulfm")
    ranks = begun(process, 4)
    for victim in victims:
        ranks[victim].kill()
        time.sleep(0.05)
    brake.unlink()
    done = process.wait()
    assert done.code == 0, done.err
    assert run_of(tmp_path / "run") == expected
    for victim in victims:
        assert f"rank {victim} on " in done.err
    assert done.err.count("was lost") == len(victims)


LEAVING = """
import os
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Leaving(CartPoleEnv):
    def step(self, action):
        if os.environ.get("OMPI_COMM_WORLD_RANK") == "{rank}":
            os._exit(3)  # as a library may do in C
        return super().step(action)

gymnasium.register("Leaving-v0", Leaving, max_episode_steps=50)
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_ends_itself_is_lost(start, tmp_path, rank):
    """Open MPI reports a rank that was killed, but no rank that ends by `exit(3)`."""
    (tmp_path / "leaving.py").write_text(LEAVING.format(rank=rank))
    words = ("-e", "leaving:Leaving-v0", "-p", 16, "-g", 2, "-d", 2, "--set", "held_out_episodes=0", "-o", "out")
    done = start("run", *words, ranks=3, mpi="ulfm").wait(100)
    if rank == 0:  # rank 0 plays the trial before the run
        assert done.code not in (0, 2)  # mpirun may drop the message of the other ranks
    else:
        assert done.code in (0, 3), done.err  # mpirun returns the code of the rank
        assert "was lost; other ranks take over its" in done.err
        assert len(run_of(tmp_path / "out")) == 2


@pytest.mark.slow
def test_kills_at_random_instants(start, tmp_path, brake, expected):
    draw = random.Random(time.time_ns())
    for trial in range(2):
        brake.touch()
        process = start("run", *SLOW, "-o", f"run{trial}", ranks=3, mpi="ulfm")
        ranks = begun(process, 3)
        time.sleep(draw.random() * 0.4)
        ranks[draw.choice([1, 2])].kill()
        brake.unlink()
        done = process.wait()
        assert done.code == 0, done.err
        assert run_of(tmp_path / f"run{trial}") == expected


def test_without_fault_tolerance_the_job_ends_and_can_be_resumed(start, call, expected, tmp_path, brake):
    process = start("run", *SLOW, "-o", "run", ranks=3)
    begun(process, 3)[2].kill()
    assert process.wait().code != 0
    brake.unlink()
    call("run", *SLOW, "-o", "run", "--resume").ok()
    assert run_of(tmp_path / "run") == expected


@pytest.mark.usefixtures("brake")
def test_no_rank_works_on_without_a_coordinator(start):
    process = start("run", *SLOW, "-o", "run", ranks=3, mpi="ulfm")
    ranks = begun(process, 3)
    ranks[0].kill()
    _, alive = psutil.wait_procs(list(ranks.values()), timeout=LONG)
    assert not alive
    try:
        assert process.popen.wait(20) != 0
    except subprocess.TimeoutExpired:  # Open MPI's launcher, told by two ranks at once to abort, was seen to stay
        process.kill()
