import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
from conftest import environment, launcher

from evolve import store

QUICK = ("-p", 6, "-r", 2, "-g", 3, "-d", 3, "--set", "held_out_episodes=0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One experiment alone, once more on three ranks, and with another seed."""
    where = tmp_path_factory.mktemp("verify")
    for name, seed, ranks in (("a", 1, None), ("b", 1, 3), ("c", 2, None)):
        words = [*launcher(ranks), sys.executable, "-m", "evolve.run", *map(str, QUICK), "-s", str(seed), "-o", name]
        subprocess.run(words, env=environment(), cwd=where, check=True, timeout=60, capture_output=True)
    return where


@pytest.fixture
def runs(made, tmp_path):
    """Copies of the run files a, b and c that a test may spoil."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return {name: next((tmp_path / name).glob("*.h5")) for name in "abc"}


def tamper(path, place, where, value):
    with h5py.File(path, "r+") as file:
        array = file[place][()]
        array[where] = value
        file[place][...] = array


def test_files(command, runs):
    equal = command("verify", runs["a"], runs["b"])
    assert (equal.code, equal.out.startswith("equal: 3 generations, digest ")) == (0, True)
    apart = command("verify", runs["a"], runs["c"])
    assert apart.code == 1
    assert "different: generation 0: candidate 0, episode 0: return " in apart.out
    assert "seed (1 against 2)" in apart.out


def test_the_first_difference_is_named_with_both_values(command, runs):
    tamper(runs["b"], "generation/returns", (1, 4, 1), 7.25)
    tamper(runs["b"], "generation/digest", 1, b"f" * 64)
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 1: candidate 4, episode 1: return " in done.out
    assert "against 7.25 in" in done.out
    assert "configurations are the same" in done.out


def test_a_difference_in_the_genomes_alone_is_named(command, runs):
    tamper(runs["b"], "generation/digest", 2, b"f" * 64)
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 2: the digests differ, though all that is stored is equal" in done.out


def test_a_longer_run_is_not_equal(command, runs):
    assert command("run", *QUICK, "-g", 4, "-s", 1, "-o", "b", "--resume").code == 0
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "equal for 3 generations, but" in done.out


@pytest.mark.parametrize("ranks", [None, 3])
def test_one_file_is_evaluated_again(command, runs, ranks):
    done = command("verify", runs["a"], ranks=ranks)
    assert (done.code, done.out) == (0, "equal: the champions of 3 generations, 6 episodes evaluated again\n")


def test_a_changed_weight_is_found(command, runs):
    with h5py.File(runs["a"]) as file:
        candidate = int(file["champion/candidate"][1])
        weights = file["champion/weights"][()]
    tamper(runs["a"], "champion/weights", 1, -weights[1])
    done = command("verify", runs["a"])
    assert done.code == 1
    assert f"different: generation 1: candidate {candidate}, episode 0: return " in done.out


def test_a_changed_return_is_found_to_the_last_bit(command, runs):
    with h5py.File(runs["a"]) as file:
        candidate = int(file["champion/candidate"][2])
        value = file["generation/returns"][2, candidate, 1]
    tamper(runs["a"], "generation/returns", (2, candidate, 1), np.nextafter(value, np.inf))
    done = command("verify", runs["a"])
    assert done.code == 1
    assert f"generation 2: candidate {candidate}, episode 1" in done.out


def test_everything_stored_is_compared_not_digests_alone(command, runs):
    tamper(runs["b"], "generation/returns", (0, 0, 0), -1.0)
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 0: candidate 0, episode 0" in done.out


def test_all_of_it_can_be_run_again(command, runs):
    done = command("verify", runs["a"], "--full", ranks=3)
    assert (done.code, "equal: 3 generations, digest" in done.out) == (0, True)
    tamper(runs["a"], "generation/returns", (2, 5, 1), -1.0)
    done = command("verify", runs["a"], "--full")
    assert done.code == 1
    assert "generation 2: candidate 5, episode 1: return -1.0" in done.out


def test_a_run_without_generations_is_not_called_equal(command, tmp_path):
    for name in "ab":
        store.create(store.path_of(tmp_path / name, 0), store.Header("", {}, 0, "x"))
    done = command("verify", "a/seed-0.h5", "b/seed-0.h5")
    assert done.code == 1
    assert "nothing to compare" in done.err


@pytest.mark.parametrize("candidate", [77, -3])
def test_a_champion_outside_the_population_is_refused(command, runs, candidate):
    tamper(runs["a"], "champion/candidate", 0, candidate)
    assert command("verify", runs["a"]).code == 2


def test_wrong_files_are_refused(command, tmp_path):
    (tmp_path / "text.h5").write_text("no run file")
    for argument in ("text.h5", "missing.h5"):
        done = command("verify", argument)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert argument in done.err
