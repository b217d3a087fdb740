"""The dry run: it describes the runs, and writes no file."""

import os
import shlex
import sys

import pytest
from conftest import finished
from tampering import edit_config

from evolve import store

TINY = ("-p", 6, "-r", 2, "-g", 3, "-d", 3, "--set", "held_out_episodes=4", "-o", "out")


def everything(folder):
    """Return all files and directories with their contents."""
    return {
        path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*") if path.name[:5] != ".out-"
    }


def test_a_new_run_is_described_and_nothing_is_written(call, tmp_path):
    done = call("run", *TINY, "-s", 1, 2, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert not list(tmp_path.iterdir())
    lines = done.out.splitlines()
    assert lines[0] == "Dry run: nothing is written."
    assert lines[2:6] == [
        "out/",
        "  CartPole-v1, hebbian-dag, prune: 33 parameters per network, population of 6, 2 episodes each, "
        "3 generations; run files of about 0.1 MB",
        "  seed-1.h5: new; 40 episodes, at most 20,000 steps",
        "  seed-2.h5: new; 40 episodes, at most 20,000 steps",
    ]
    assert lines[-1] == "In all: 2 runs, 80 episodes, at most 40,000 steps, by one process."


def test_a_sweep_has_a_directory_for_each_experiment(call, tmp_path):
    done = call("run", *TINY, "--set", "sweep.strategy.survivors=[1, 3]", "-e", "toys:Switches-v0", "--dry-run").ok()
    assert not list(tmp_path.iterdir())
    for line in ("out/survivors=1/", "out/survivors=3/", "  seed-0.h5: new; 40 episodes, no limit of steps is known"):
        assert line in done.out.splitlines()
    assert done.out.endswith("In all: 2 runs, 80 episodes, no limit of steps is known, by one process.\n")


def test_existing_files_are_taken_into_account(call, tmp_path):
    call("run", *TINY, "-g", 2, "-s", 1).ok()
    call("run", *TINY, "-g", 3, "-s", 2).ok()
    store.create(store.path_of(tmp_path / "out", 3), store.Header("", {}, 3, "CartPole-v1")).close()
    before = everything(tmp_path)
    call("run", *TINY, "-s", 1, "--dry-run").refused("out/seed-1.h5 already exists")
    said = call("run", *TINY, "-s", 1, 2, 4, "--resume", "--dry-run").out
    assert "  seed-1.h5: resumed, 2 of 3 generations complete; 16 episodes, at most 8,000 steps\n" in said
    assert "  seed-2.h5: complete already, 3 of 3 generations complete\n" in said
    assert "  seed-4.h5: new; " in said
    said = call("run", *TINY, "-s", 1, 3, "--overwrite", "--dry-run").out
    assert "  seed-1.h5: replaced, 2 generations would be lost; 40 episodes" in said
    assert "  seed-3.h5: new; " in said
    assert everything(tmp_path) == before


@pytest.mark.parametrize("how", [(), ("--resume",), ("--overwrite",)])
def test_a_run_file_in_use_is_refused(call, tmp_path, how):
    call("run", *TINY, "-g", 2).ok()
    file = store.reopen(tmp_path / "out" / "seed-0.h5")
    try:
        before = everything(tmp_path)
        call("run", *TINY, *how, "--dry-run").refused(f"out/seed-0.h5, which process {os.getpid()} on ")
        assert everything(tmp_path) == before
    finally:
        file.close()


def test_a_place_that_takes_no_runs_is_refused(call, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        call("run", "-e", "CartPole-v1", "-g", 1, "-o", place, "--dry-run").refused(
            "expected a directory that can be written", "it is a file"
        )
    assert (tmp_path / "file").read_text() == "mine"


def test_ranks_are_counted(command, tmp_path):
    done = command("run", *TINY, "--dry-run", ranks=2).ok()
    assert done.out.endswith("by 1 worker and a coordinator.\n")
    assert not (tmp_path / "out").exists()


def test_it_refuses_to_replace_a_run_by_options_that_no_new_run_may_have(call, tmp_path):
    """A file may be older than a check of new runs."""
    shared = ("--strategy", "openai-es", "--set", "connection_cost=0.1")
    call("run", *TINY, *shared[:2]).ok()
    edit_config(tmp_path / "out" / "seed-0.h5", "connection_cost = 0.0\n", "connection_cost = 0.1\n")
    call("run", *TINY, *shared, "--overwrite", "--dry-run").refused("connection_cost: expected 0 with openai-es")


def test_a_description_that_cannot_be_written_is_an_error(tmp_path):
    words = shlex.join(map(str, (sys.executable, "-m", "evolve.run", *TINY, "--dry-run")))
    done = finished(["bash", "-c", f"{words} > /dev/full"], tmp_path)
    assert (done.code, done.err.startswith("evolve.run: the output cannot be written (")) == (1, True), done.err
