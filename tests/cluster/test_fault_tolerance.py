"""A worker that dies is done without, and the bits stay the same."""

import random
import time

import pytest

from evolve import store

SLOW = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.005", "-p", 12, "-r", 2, "-g", 3, "-d", 2,
        "--set", "held_out_episodes=0", "--set", "compute.slots=2")  # fmt: skip


def run_of(folder, seed=0):
    run = store.read(store.path_of(folder, seed))
    assert run.complete
    return [record.digest for record in run.records]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    from evolve.run import main

    folder = tmp_path_factory.mktemp("alone")
    assert main([str(a) for a in (*SLOW, "-o", folder)]) == 0
    return run_of(folder)


def begun(process, ranks, limit=30):
    """Wait until a generation is told and all ranks are there; return them."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if "generation" in process.output()[0] and len(process.ranks()) == ranks:
            return process.ranks()
        time.sleep(0.02)
    return pytest.fail(f"not begun in {limit} s: {process.output()}")


@pytest.mark.parametrize("victims", [(1,), (2, 3), (1, 2, 3)])
def test_dead_workers_are_done_without(start, expected, tmp_path, victims):
    """Down to the coordinator alone, which then evaluates by itself."""
    process = start("run", *SLOW, "-o", "run", ranks=4, mpi="ulfm")
    ranks = begun(process, 4)
    for victim in victims:
        ranks[victim].kill()
        time.sleep(0.05)
    done = process.wait(60)
    assert done.code == 0, done.err
    assert run_of(tmp_path / "run") == expected
    for victim in victims:
        assert f"rank {victim} on " in done.err
    assert done.err.count("was lost") == len(victims)


def test_kills_at_random_instants(start, tmp_path, expected):
    draw = random.Random(time.time_ns())
    for trial in range(3):
        process = start("run", *SLOW, "-o", f"run{trial}", ranks=3, mpi="ulfm")
        ranks = begun(process, 3)
        time.sleep(draw.random() * 0.4)
        ranks[draw.choice([1, 2])].kill()
        done = process.wait(60)
        assert done.code == 0, done.err
        assert run_of(tmp_path / f"run{trial}") == expected


def test_without_fault_tolerance_the_job_ends_and_can_be_resumed(start, command, expected, tmp_path):
    process = start("run", *SLOW, "-o", "run", ranks=3)
    begun(process, 3)[2].kill()
    assert process.wait(30).code != 0
    assert command("run", *SLOW, "-o", "run", "--resume", ranks=2).code == 0
    assert run_of(tmp_path / "run") == expected


def test_nobody_works_on_without_a_coordinator(start):
    process = start("run", *SLOW, "-o", "run", ranks=3, mpi="ulfm")
    begun(process, 3)[0].kill()
    assert process.wait(20).code != 0
