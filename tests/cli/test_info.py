"""The info command: descriptions of files, and experiments that can be run again."""

import shutil
import signal
import subprocess
import sys
import weakref
from contextlib import closing

import numpy as np
import pytest
from conftest import environment, make_runs
from tampering import edit_config, edit_manifest

import evolve
from evolve import store
from evolve.analysis.statistics import number
from evolve.cli.info import layout
from evolve.config import differences
from evolve.training import load_config

QUICK = ("-p", 6, "-r", 2, "-d", 3, "--set", "env.max_episode_steps=60")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A complete run, and an incomplete run without held-out episodes."""
    where = tmp_path_factory.mktemp("info")
    make_runs(where, *QUICK, "-g", 3, "-s", 1, "--set", "held_out_episodes=5", "-o", "whole")
    make_runs(where, *QUICK, "-g", 2, "-s", 2, "--set", "held_out_episodes=0", "-a", "plastic-mlp", "-o", "part")
    with closing(store.reopen(where / "part" / "seed-2.h5")) as file:
        file.complete = False
        file.flush()
    return where


def fields(text):
    """Return the description of one file, by name."""
    found = (line.strip().split("  ", 1) for line in text.splitlines()[1:])
    return {name: value.strip() for name, value in found}


def test_a_complete_run(call, runs):
    path = runs / "whole" / "seed-1.h5"
    done = call("info", path)
    assert (done.code, done.err, done.out.splitlines()[0]) == (0, "", str(path))
    said, run = fields(done.out), store.read(path)
    assert said["experiment"] == "CartPole-v1: hebbian-dag evolved by prune"
    assert (said["population"], said["seed"]) == ("6, 2 episodes each", "1")
    assert said["generations"] == "3 of 3, complete"
    assert said["digest"] == run.records[-1].digest.decode()
    assert said["held out, 5 episodes"].startswith(f"mean {run.held_out.returns.mean():.2f} (95 % interval ")
    kept = run.held_out.mask
    assert said["connections"] == f"{np.count_nonzero(kept)} of {len(kept)} in the held-out champion"
    assert f"{sum(int(record.steps) for record in run.records):,} environment steps in " in said["work"]
    assert said["written by"].startswith("evolve 0.")
    assert said["libraries"].startswith(f"numpy {np.__version__}, ")


def test_only_one_file_at_a_time_is_in_memory(call, runs, monkeypatch):
    earlier, read = [], store.read_any

    def counted(path):
        assert not any(reference() for reference in earlier)
        earlier.append(weakref.ref(stored := read(path)))
        return stored

    monkeypatch.setattr(store, "read_any", counted)
    call("info", runs).ok()
    assert len(earlier) == 2


def test_changed_source_and_a_resume_with_other_versions_are_shown(call, runs, tmp_path):
    shutil.copy(runs / "whole" / "seed-1.h5", path := tmp_path / "seed-1.h5")
    edit_manifest(path, revision=f"{'12' * 20}+", packages={"numpy": "1.0"})
    assert " (121212121212+), " in call("info", path).out
    call("run", "--resume", path, "-g", 4).ok()
    call("run", "--resume", path, "-g", 5).ok()
    resumed = evolve.load(path).manifest["resumed"]
    assert [*resumed] == ["3", "4"]
    assert (resumed["3"]["ranks"], resumed["3"]["packages.numpy"]) == (1, np.__version__)
    assert "from generation 3 on (ranks=1, " in " ".join(call("info", path).out.split())
    edit_manifest(path, packages=1, resumed=["\x1b"])  # any program may have written the file
    assert "resumed" not in call("info", path).ok().out
    call("run", "--resume", path, "-g", 6).ok()


def test_an_incomplete_run_with_masks_of_coefficients(call, runs):
    said = fields(call("info", runs / "part").out)
    assert said["generations"] == "2 of 2, not complete"
    assert said["held out"] == "not evaluated"
    assert said["coefficients"].endswith(" in the best of generation 1")


def test_several_files_and_champions(call, runs):
    path = runs / "whole" / "seed-1.h5"
    call("export", path, "-o", "it.champion").ok()
    run, champion = (fields(part) for part in call("info", path, "it.champion").out.split("\n\n"))
    assert champion["generations"] == "the champion after 3 of 3"
    for name in ("digest", "connections", "held out, 5 episodes", "work"):
        assert champion[name] == run[name]
    for words in ((path, "it.champion", "--settings"), (path, "--settings", "it.champion")):
        call("info", *words).refused("one file with --settings, got 2 of them")
    assert call("info", "nothing.h5").code == 2


def test_its_settings_are_an_experiment_that_gives_the_same_run(call, runs, tmp_path):
    path = runs / "whole" / "seed-1.h5"
    (tmp_path / "again.toml").write_text(call("info", path, "--settings").out)
    call("run", "again.toml", "-o", "again").ok()
    (again,) = (tmp_path / "again").glob("*.h5")
    one, other = store.read(path), store.read(again)
    assert one.records[-1].digest == other.records[-1].digest
    assert not differences(*(load_config(run.header.config) for run in (one, other)))


SHORT = ("-e", "CartPole-v1", "--engine", "exact", "-a", "mlp", "-d", 4, "-p", 8, "-r", 1, "-g", 3, "-s", 1)


def test_a_front_is_listed_with_the_options_that_choose_its_genomes(call):
    call("run", *SHORT, "--strategy", "nsga2", "--set", "strategy.parents=4", "-o", "front").ok()
    front = evolve.load("front/seed-1.h5").front()
    assert fields(call("info", "front").ok().out)["front"].startswith(f"{len(front)} genome")
    path, names, *rows = call("info", "front", "--genomes").ok().out.splitlines()
    assert path == "front/seed-1.h5"
    assert names.split() == ["fitness", "acting_connections", "evaluations"]
    assert len(rows) == len(front)
    for place, (row, member) in enumerate(zip(rows, front, strict=True)):
        option, number_of_member, fitness, connections, evaluations = row.split()
        assert (option, int(number_of_member)) == ("--member", place)
        assert int(connections) == member.measures["acting_connections"]
        assert fitness == number(member.fitness)
        assert int(evaluations) == member.evaluations
        call("evaluate", "front", option, place, "--episodes", 2).ok()


def test_an_archive_is_listed_with_the_options_that_choose_its_elites(call, runs):
    descriptors = '{name="map-elites",descriptors=["mean_observation_0"],cells=[4],bounds=[[-1.0,1.0]]}'
    metrics = ("--set", 'env.metrics=["mean_observation_0"]', "--set", "normalize_observations=true")
    call("run", *SHORT, "--set", f"strategy={descriptors}", *metrics, "-o", "archive").ok()
    elites = evolve.load("archive/seed-1.h5").archive()
    assert fields(call("info", "archive").ok().out)["archive"].startswith(f"{len(elites)} genome")
    _, names, *rows = call("info", "archive", "--genomes").ok().out.splitlines()
    assert names.split() == ["fitness", "mean_observation_0", "generation"]
    assert [row.split()[:3] for row in rows] == [
        ["--cell", ",".join(map(str, elite.cell)), number(elite.fitness)] for elite in elites
    ]
    call("info", runs / "whole", "--genomes").refused("--genomes: expected a run with a front or an archive")
    call("info", "archive", "--genomes", "--settings").refused("--settings: expected no --genomes with it")


@pytest.mark.parametrize("width", [20, 80, 200, None])
def test_a_digest_is_on_one_line_however_narrow_the_terminal_is(width):
    digest = "0123456789abcdef" * 4
    lines = layout({"held out, 5 episodes": "mean 1.50 " * 12, "digest": digest}, width).splitlines()
    assert [line.split() for line in lines if digest in line] == [["digest", digest]]
    if width in (80, 200):
        assert max(map(len, lines)) <= max(width, 24 + len(digest))
        assert all(line.startswith(" " * 24) for line in lines[1:-1])


def test_text_of_a_foreign_file_cannot_move_the_cursor(call, runs, tmp_path):
    shutil.copy(runs / "whole" / "seed-1.h5", tmp_path / "evil\n\x1b.h5")
    edit_config(tmp_path / "evil\n\x1b.h5", '"CartPole-v1"', '"Bad\\u001b[31mRED\\nrun"')
    done = call("info", "evil\n\x1b.h5").ok()
    assert done.out.startswith("evil\\n\\x1b.h5\n  experiment ")
    assert "\x1b" not in done.out
    assert "Bad\\x1b[31mRED\\nrun" in done.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_a_command_that_reads_many_files(runs, tmp_path, number):
    for seed in range(2000):
        (tmp_path / f"seed-{seed}.h5").symlink_to(runs / "whole" / "seed-1.h5")
    words = [sys.executable, "-m", "evolve", "info", str(tmp_path)]
    with subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout.readline() == f"{tmp_path / 'seed-0.h5'}\n"
        command.send_signal(number)
        _, error = command.communicate()
    assert (command.returncode, error) == (75, f"evolve.info: stopped by {number.name}\n")
