"""Run files as arguments: by name, or by a directory that holds them."""

from pathlib import Path

import pytest
from conftest import make_runs

from evolve.errors import InputError
from evolve.store import one_run_file, run_files

QUICK = ("-p", 4, "-r", 1, "-g", 2, "-d", 2, "--set", "env.max_episode_steps=20", "--set", "held_out_episodes=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A directory of two experiments: one of two seeds, one of a single one."""
    where = tmp_path_factory.mktemp("run-files")
    make_runs(where, *QUICK, "-s", 9, 10, "-o", "runs/two")
    make_runs(where, *QUICK, "-p", 5, "-s", 1, "-o", "runs/one")
    return where / "runs"


def test_a_directory_stands_for_its_run_files_in_the_order_of_their_seeds(tmp_path):
    for name in ("b/seed-10.h5", "b/seed-9.h5", "a/deep/seed-1.h5", "b/.seed-9.h5.partial.h5", "b/other.h5"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "seed-7.h5").mkdir()
    (tmp_path / "b" / "seed-8.h5").symlink_to("x" * 300)  # `stat` fails, as in a directory that cannot be searched
    expected = [tmp_path / name for name in ("a/deep/seed-1.h5", "b/seed-9.h5", "b/seed-10.h5")]
    assert run_files([tmp_path]) == expected
    assert run_files([tmp_path / "b", tmp_path]) == [*expected[1:], expected[0]]
    assert run_files([Path("x.h5"), Path("x.h5")]) == [Path("x.h5")] * 2
    assert one_run_file(tmp_path / "a") == expected[0]
    with pytest.raises(InputError, match=r"expected one run file, or a directory that holds one, got 2 of them\. Name"):
        one_run_file(tmp_path / "b")


def test_directories_are_in_the_order_of_the_numbers_in_their_names(tmp_path):
    """The order of a sweep."""
    names = [f"noise={noise},population={size}" for noise in ("0.05", "0.5", "2.0", "10.0") for size in (8, 16)]
    expected = [tmp_path / name / "seed-1.h5" for name in names]
    for path in reversed(expected):
        path.parent.mkdir()
        path.touch()
    assert run_files([tmp_path]) == expected


def test_commands_take_directories(call, runs, tmp_path):
    compared = call("plot", runs, "--final").ok().out.splitlines()[2:5]
    assert [row.split()[:3] for row in sorted(compared)[1:]] == [["population", "4", "2"], ["population", "5", "1"]]
    call("plot", runs, "-o", "live.svg", "--live").ok()
    assert "2 experiments, seeds 1, 9, 10" in (tmp_path / "live.svg").read_text()
    call("plot", runs / "one", "--network", "-o", "network.svg").ok()
    call("report", runs / "two", "--quick", "-o", "two.html").ok()
    page = (tmp_path / "two.html").read_text()
    assert all(f"seed-{seed}.h5" in page for seed in (9, 10))
    call("verify", runs / "one").ok()
    call("verify", runs / "one", runs / "one" / "seed-1.h5").ok()
    assert call("replay", runs / "one").out.endswith("equal to the log, to the bit\n")
    assert f"{runs / 'one' / 'seed-1.h5'}: already complete" in call("run", "--resume", runs / "one").out
    call("export", runs / "one", "-o", "one.champion").ok()
    assert str(runs / "one" / "seed-1.h5") in call("evaluate", runs / "one", "--episodes", 2).out


def test_a_directory_of_any_name_is_resumed_by_its_experiment(call, tmp_path):
    """A sweep without a file is called "sweep", but names no directory."""
    seeds = (*QUICK, "-s", 1, 2, "-o", "sweep")
    call("run", *seeds).ok()
    done = call("run", *seeds, "-g", 3, "--resume").ok()
    assert done.out.count("generation 2 (3 of 3)") == 2


@pytest.mark.parametrize("command", ["report", "plot", "verify", "evaluate", "replay", "export"])
def test_a_directory_without_run_files_is_refused(call, tmp_path, command):
    (tmp_path / "empty").mkdir()
    call(command, "empty").refused(
        "empty: expected a directory that holds run files (seed-S.h5), got none in it or below it."
    )


@pytest.mark.parametrize("words", [("verify",), ("evaluate",), ("replay",), ("export",), ("plot", "--network")])
def test_of_several_run_files_one_is_to_be_named(call, runs, words):
    call(words[0], runs / "two", *words[1:]).refused("seed-9.h5")


@pytest.mark.parametrize("name", ["plot", "report", "verify", "export", "evaluate", "replay"])
def test_an_empty_name_is_no_directory(call, name):
    call(name, "").refused("FILE: expected the name of a file or a directory, got an empty text")
