"""Event files that grow during a run, from Python and from the command line."""

import errno
import os
import sys

import numpy as np
import pytest
from events import curves

import evolve
from evolve.analysis import tensorboard
from evolve.errors import InputError

pytest.importorskip("tensorboardX")
SMALL = {"generations": 3, "population": 6, "episodes": 1, "held_out_episodes": 0, "network": "mlp"}
ENV = {"id": "CartPole-v1", "max_episode_steps": 12}


def check(run, directory):
    """Assert that a directory has the numbers of a run, each once."""
    found, table = curves(directory), run.table()
    assert {"best_fitness", "mean_fitness", "steps"} <= set(found) <= set(table) - {"generation", "seconds", "digest"}
    for name, pairs in found.items():
        known = [(n, value) for n, value in enumerate(table[name]) if np.isfinite(value)]
        assert [n for n, _ in pairs] == [n for n, _ in known]
        assert [value for _, value in pairs] == pytest.approx([value for _, value in known])


def test_a_run_writes_its_numbers_and_a_resumed_one_continues_them(tmp_path):
    more = SMALL | {"env": ENV, "seed": 1, "output": tmp_path / "out", "tensorboard": tmp_path / "logs"}
    more["held_out_episodes"] = 4
    seen = []

    def stop(generation):
        seen.append(dict(curves(tmp_path / "logs" / "out" / "seed-1")))
        return generation.number < 1

    evolve.train(**more, callbacks=[stop])
    assert len(seen) == 2
    run = evolve.train(**more, resume=True)
    check(run, tmp_path / "logs" / "out" / "seed-1")
    assert curves(tmp_path / "logs" / "out" / "seed-1")["held_out_mean"] == [(2, pytest.approx(run.held_out.mean))]
    assert len(list((tmp_path / "logs" / "out" / "seed-1").iterdir())) == 2
    again = evolve.train(**(more | {"population": 8}), overwrite=True)
    check(again, tmp_path / "logs" / "out" / "seed-1")
    assert len(list((tmp_path / "logs" / "out" / "seed-1").iterdir())) == 1


def test_the_command_line_writes_a_directory_for_each_run(call, tmp_path):
    words = ["run", "-e", "CartPole-v1", "-p", 6, "-r", 1, "-g", 2, "-s", 1, 2, "-o", "out", "--tensorboard", "logs",
             "--set", "env.max_episode_steps=12", "--set", "held_out_episodes=0"]  # fmt: skip
    call(*words, "--dry-run").ok()
    assert not (tmp_path / "logs").exists()
    call(*words).ok()
    call(*words, "-g", 3, "--resume", "--set", "held_out_episodes=3").ok()
    for seed in (1, 2):
        directory = tmp_path / "logs" / "out" / f"seed-{seed}"
        check(evolve.load(tmp_path / "out" / f"seed-{seed}.h5"), directory)
        assert "held_out_median" in curves(directory)


def test_each_validation_is_written_once_also_if_the_run_is_stopped_and_resumed(tmp_path):
    more = SMALL | {"env": ENV, "seed": 1, "output": tmp_path / "out", "tensorboard": tmp_path / "logs"}
    more |= {"generations": 7, "early_stop": {"mean_return": 1000.0, "episodes": 2, "every": 2}}
    directory = tmp_path / "logs" / "out" / "seed-1"
    for stop in (2, 4, 5):  # before the validation after 2, or 4, generations; and after the validation after 4
        run = evolve.train(**more, resume=True, callbacks=[lambda generation, stop=stop: generation.number + 1 < stop])
        assert len(run.generations) == stop
    run = evolve.train(**more, resume=True)
    check(run, directory)
    assert [number for number, _ in curves(directory)["validation_mean"]] == [1, 3, 5]
    check(evolve.train(**(more | {"population": 8}), overwrite=True), directory)


def test_run_directories_of_one_name_keep_their_event_files_apart(tmp_path):
    more = SMALL | {"generations": 1, "env": ENV, "seed": 1, "overwrite": True, "tensorboard": tmp_path / "logs"}
    for place in ("a", "b", "a", "b"):
        evolve.train(**(more | {"population": 6 + (place == "b"), "output": tmp_path / place / "out"}))
    first, second = sorted((tmp_path / "logs").iterdir())
    assert (first.name, second.name[:4]) == ("out", "out-")
    for place, logs in (("a", first), ("b", second)):
        check(evolve.load(tmp_path / place / "out"), logs / "seed-1")
        assert len(list((logs / "seed-1").iterdir())) == 1


def test_event_files_of_a_run_in_a_parent_directory_are_below_the_given_one(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    monkeypatch.setenv("HOME", str(tmp_path))
    run = evolve.train(**SMALL | {"generations": 1, "env": ENV, "seed": 1, "output": "..", "tensorboard": "~/logs"})
    check(run, tmp_path / "logs" / "a" / "seed-1")
    assert not list((tmp_path / "a" / "b").iterdir())


def test_a_directory_that_cannot_be_written_is_refused_before_the_run(call, tmp_path):
    (tmp_path / "logs").write_text("mine")
    call("run", "-e", "CartPole-v1", "-o", "out", "--tensorboard", "logs").refused("logs/out/seed-0 cannot be written")
    with pytest.raises(InputError, match="cannot be written"):
        evolve.train(**SMALL, env=ENV, output=tmp_path / "out", tensorboard=tmp_path / "logs")
    for wrong, got in ((3, "3"), ("", "''"), ("a\0b", r"'a\\x00b'")):
        with pytest.raises(InputError, match=f"tensorboard: expected a directory, got {got}"):
            evolve.train(**SMALL, env=ENV, output=tmp_path / "out", tensorboard=wrong)
    assert not list(tmp_path.glob("out/*.h5"))


def test_a_full_disk_ends_the_run_with_a_message_and_keeps_its_generations(call, tmp_path, monkeypatch):
    words = ["run", "-e", "CartPole-v1", "-p", 6, "-r", 1, "-g", 4, "-o", "out", "--tensorboard", "logs",
             "--set", "env.max_episode_steps=12", "--set", "held_out_episodes=0"]  # fmt: skip
    written = []

    def write(_writer, data):
        written.append(len(data))
        if sum(written) > 600:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("tensorboardX.record_writer.RecordWriter.write", write)
        done = call(*words)
    assert done.code == 1
    assert "logs/out/seed-0 cannot be written ([Errno 28] No space left on device)" in done.err
    assert "continue with --resume" in done.err
    assert "Traceback" not in done.err
    assert 0 < len(evolve.load(tmp_path / "out").generations) < 4
    call(*words, "--resume").ok()
    written.clear()
    with monkeypatch.context() as patch:
        patch.setattr("tensorboardX.record_writer.RecordWriter.write", write)
        done = call("export", "out", "--format", "tensorboard")
    assert (done.code, "cannot be written: No space left on device" in done.err) == (2, True), done.err


def test_another_writer_serves_and_a_missing_one_is_named(absent, monkeypatch, call, tmp_path):
    absent("tensorboardX", "torch")
    call("run", "-e", "CartPole-v1", "--tensorboard", "logs").refused("[tensorboard]")
    with pytest.raises(InputError, match=r"^tensorboard: expected a working tensorboardX"):
        evolve.train(**SMALL, env=ENV, output=tmp_path / "out", tensorboard=tmp_path / "logs")
    from types import ModuleType, SimpleNamespace

    torch = ModuleType("torch.utils.tensorboard")
    torch.SummaryWriter = SimpleNamespace
    for name in ("torch", "torch.utils", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, torch)
    tensorboard.check_library("tensorboard")
