"""The verify command: exit codes, text and JSON output, and refused options."""

import json
import shutil

import h5py
import pytest
import toys
from conftest import make_runs

from evolve import store

QUICK = ("-p", 6, "-r", 2, "-g", 3, "-d", 3, "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One experiment, twice, and with another seed."""
    where = tmp_path_factory.mktemp("verify")
    for name, seed, more in (("a", 1, ()), ("b", 1, ("--set", "compute.slots=2")), ("c", 2, ())):
        make_runs(where, *QUICK, "-s", seed, "-o", name, *more)
    return where


@pytest.fixture
def runs(made, tmp_path):
    """Copies of the run files that a test may spoil."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return {name: next((tmp_path / name).glob("*.h5")) for name in "abc"}


def test_files(call, command, runs):
    equal = call("verify", runs["a"], runs["b"])
    assert (equal.code, equal.out.startswith("equal: 3 generations, digest ")) == (0, True)
    different = command("verify", runs["a"], runs["c"])
    assert (different.code, different.err) == (1, "")
    assert "different: generation 0: candidate 0, episode 0: return " in different.out
    assert "seed (1 against 2)" in different.out


def test_invalid_combinations_of_files_and_options_are_refused(call, runs):
    for words in (("--full", runs["b"]), (runs["b"], runs["c"]), (runs["b"], "--threads", 2),
                  (runs["b"], "--engine", "exact"), (runs["b"], "--workers", "auto")):  # fmt: skip
        call("verify", runs["a"], *words).refused()
    call("verify", runs["a"], "--json", runs["b"]).ok()


def test_json_stays_json_if_an_environment_prints(call, monkeypatch):
    task = ("-e", "toys:Prints-v0", "--set", "env.kwargs.x=0.5", "-p", 2, "-r", 1, "-g", 1, "-d", 2, "-s", 0)
    call("run", *task, "-o", "one").ok()
    step = toys.Prints.step
    monkeypatch.setattr(toys.Prints, "step", lambda *given: (step(*given)[0], 2.0, True, False, {}))
    call("run", *task, "-o", "other").ok()
    monkeypatch.setattr(toys.Prints, "close", lambda _: print("closed"))
    for files in (("one",), ("one", "other")):  # of two files, the first different episode is played here
        done = call("verify", *files, "--json")
        assert (done.code, json.loads(done.out)["equal"], "reset" in done.err) == (1, False, True)
        assert "reset by C\n" in done.err
        assert done.err.endswith("closed\n")


def test_a_manifest_cannot_forge_a_line(call, runs):
    with h5py.File(runs["c"], "r+") as file:
        file.attrs["manifest"] = json.dumps({"host": "\u001b[31mred\nequal: 9 generations", "x" * 500: "\ud800"})
    done = call("verify", runs["a"], runs["c"])
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "\nequal" not in done.out
    assert max(map(len, done.out.splitlines()[4:])) < 250


def test_a_run_without_generations_is_not_called_equal(call, tmp_path):
    for name in "ab":
        store.create(store.path_of(tmp_path / name, 0), store.Header("", {}, 0, "x")).close()
    done = call("verify", "a/seed-0.h5", "b/seed-0.h5")
    assert done.code == 1
    assert "a/seed-0.h5, b/seed-0.h5: no generation is complete yet, so there is nothing to compare" in done.err
    done = call("verify", "a/seed-0.h5")
    assert (done.code, "so there is nothing to verify" in done.err) == (1, True)


def test_wrong_files_are_refused(call, tmp_path):
    (tmp_path / "text.h5").write_text("no run file")
    for argument in ("text.h5", "missing.h5"):
        call("verify", argument).refused(argument)
