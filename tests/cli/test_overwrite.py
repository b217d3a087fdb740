"""Replacing run files: only run files, and only when the new run has a complete generation."""

import errno
import shutil
import signal
from contextlib import closing

import pytest
from conftest import make_runs

from evolve import store, training

TINY = ("-p", 6, "-r", 2, "-g", 2, "-d", 3,
        "--set", "env.max_episode_steps=20", "--set", "held_out_episodes=2", "-o", "out")  # fmt: skip


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """The run file of an earlier run, of three generations."""
    where = tmp_path_factory.mktemp("earlier")
    make_runs(where, *TINY, "-g", 3)
    return where / "out" / "seed-0.h5"


@pytest.fixture
def old(earlier, tmp_path):
    """A copy of the run file of an earlier run."""
    (tmp_path / "out").mkdir()
    return shutil.copy(earlier, tmp_path / "out" / "seed-0.h5")


def test_a_run_of_the_same_experiment_is_replaced_and_the_loss_is_said(call, old, tmp_path):
    before = store.read(old)
    done = call("run", *TINY, "--overwrite", "-s", 0, 1)
    assert (done.code, done.err.count("\n")) == (0, 1)
    best = max(record.champion_fitness for record in before.records)
    lost = f"then 3 generations (complete; best fitness {best:.2f}) will be lost\n"
    assert done.err == f"evolve.run: out/seed-0.h5 is replaced as soon as a new generation is complete; {lost}"
    run = store.read(old)
    assert run.complete
    assert [r.digest for r in run.records] == [r.digest for r in before.records[:2]]
    assert store.read(tmp_path / "out" / "seed-1.h5").complete
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["seed-0.h5", "seed-1.h5"]


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        (("-p", 8), "population is 6 in it, and 8 here"),
        (("--set", "strategy.survivors=2"), "strategy.survivors is 4 in it, and 2 here"),
        (("-e", "Acrobot-v1"), "env.id is 'CartPole-v1' in it, and 'Acrobot-v1' here"),
    ],
)
def test_a_run_of_other_settings_is_replaced_and_the_difference_is_said(call, old, more, changed):
    done = call("run", *TINY, *more, "--overwrite")
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert f"out/seed-0.h5, of another experiment ({changed}), is replaced as soon as" in done.err
    assert len(store.read(old).records) == 2
    call("verify", old).ok()


def test_a_renamed_file_of_another_seed_is_replaced_and_its_seed_is_said(call, old):
    old.rename(old.with_name("seed-7.h5"))
    done = call("run", *TINY, "-s", 7, "--overwrite")
    assert "out/seed-7.h5, of seed 0, is replaced as soon as" in done.err


def test_without_a_file_it_is_a_new_run(call, tmp_path):
    store.create(tmp_path / "out" / "seed-0.h5", store.Header("", {}, 0, "CartPole-v1")).close()
    done = call("run", *TINY, "--overwrite", "-s", 0, 1)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("-s", 6), "out/seed-6.h5: expected a readable run file, got a truncated or foreign file"),
        (("--resume",), "--overwrite: expected no --resume with it: one replaces run files, the other continues them"),
        (("-s", 8, 0, "-e", "Bipedal-v3"), "Did you mean BipedalWalker-v3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_files_that_must_not_be_lost_are_refused_before_any_work(call, old, more, message, dry):
    (old.parent / "seed-6.h5").write_bytes(b"the only copy of a poem")
    before = {path: path.read_bytes() for path in old.parent.iterdir()}
    call("run", *TINY, "--overwrite", *more, *dry).refused(message)
    assert {path: path.read_bytes() for path in old.parent.iterdir()} == before


def test_a_run_file_in_use_is_neither_replaced_nor_resumed(call, old):
    file = store.reopen(old)
    try:
        before = old.read_bytes()
        used = "expected a run file that is not being written"
        call("run", *TINY, "--overwrite", "-s", 1, 0).refused(used)
        call("run", *TINY).refused(used)
        call("run", *TINY, "-g", 3, "--resume").refused(used)  # the run is complete, but may soon be another one
        assert old.read_bytes() == before
        assert not (old.parent / "seed-1.h5").exists()
    finally:
        file.close()


def test_without_locks_only_a_complete_run_is_replaced(call, old, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with closing(store.reopen(old)) as file:
        file.complete = False
        file.flush()
    before = old.read_bytes()
    done = call("run", *TINY, "--overwrite")
    assert (done.code, old.read_bytes()) == (2, before)
    assert "out/seed-0.h5 is not complete, and may be being written" in done.err
    with closing(store.reopen(old)) as file:
        file.complete = True
        file.flush()
    call("run", *TINY, "--overwrite").ok()


def test_nothing_is_lost_before_the_first_new_generation(call, old, tmp_path):
    before = old.read_bytes()
    done = call("run", *TINY, "--overwrite", "-s", 1, 0, "--time-limit", "0s")
    assert done.code == 75
    assert old.read_bytes() == before
    how = "the same command line, with --resume in place of --overwrite"
    assert done.err.endswith(f"{how}. First remove the files that are not replaced yet: out/seed-0.h5\n")
    done = call("run", *TINY, "--overwrite", "--time-limit", "0s")
    assert (done.code, old.read_bytes()) == (75, before)
    assert "no new generation is complete, so out/seed-0.h5 is unchanged\n" in done.err
    assert "--resume" not in done.err
    call("run", *TINY, "--resume", "-s", 1, 0).refused("generations (-g/--generations): expected at least 3")
    old.unlink()
    call("run", *TINY, "--resume", "-s", 1, 0).ok()


def test_a_run_that_fails_at_once_leaves_the_old_file(call, tmp_path):
    task = ("-e", "toys:Elsewhere-v0", *TINY)
    call("run", *task).ok()
    path = tmp_path / "out" / "seed-0.h5"
    before = path.read_bytes()
    done = call("run", *task, "--overwrite", "--set", "compute.check=false", TOY_GRAVITY="none")
    assert (done.code, path.read_bytes()) == (1, before), done.err
    assert "no new generation is complete, so out/seed-0.h5 is unchanged." in done.err


@pytest.mark.parametrize("complete", [0, 1])
def test_a_signal_proposes_to_resume_only_a_run_that_has_replaced_the_old_file(call, old, monkeypatch, complete):
    said = []
    monkeypatch.setattr("evolve.cli.app.write_to_stderr_of_mpirun", said.append)

    def interrupted(*run):
        generations = training.iterate(*run)
        if complete:
            yield next(generations)
        signal.raise_signal(signal.SIGINT)
        yield from generations

    monkeypatch.setattr("evolve.cli.run.iterate", interrupted)
    assert call("run", *TINY, "--overwrite").code == 75
    assert len(said) == 1
    unchanged = "no new generation is complete, so out/seed-0.h5 is unchanged\n"
    resumable = "out/seed-0.h5 keeps its complete generations; continue with: "
    assert said[0].startswith(f"evolve.run: stopped; {resumable if complete else unchanged}")
