"""Run files of one experiment that are equal, or differ in one thing; and the verdict of `evolve verify` on them."""

import json
import shutil

import pytest
from conftest import make_runs

QUICK = ("-p", 6, "-r", 2, "-g", 3, "-d", 3, "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=0")
EXACT = ("--engine", "exact")
ELSEWHERE = ("-e", "toys:Elsewhere-v0", "--set", "env.max_episode_steps=40", "--set", "network.plasticity=0.1")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """a, b: one experiment, twice; c: with another seed. d; e, f: the same task, played elsewhere."""
    where = tmp_path_factory.mktemp("verify")
    here, there, genomes = {}, {"TOY_GRAVITY": "11.0"}, ("--set", "output.genomes=all")
    for name, seed, more, env in (
        ("a", 1, (*EXACT, *genomes), here), ("b", 1, (*EXACT, "--set", "compute.slots=2"), here), ("c", 2, EXACT, here),
        ("d", 1, ELSEWHERE, here), ("e", 1, ELSEWHERE, there), ("f", 1, (*ELSEWHERE, *genomes), there),
    ):  # fmt: skip
        make_runs(where, *QUICK, "-s", seed, "-o", name, *more, **env)
    return where


@pytest.fixture
def runs(made, tmp_path):
    """Return copies of the run files, which a test may change."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return {name: next((tmp_path / name).glob("*.h5")) for name in "abcdef"}


@pytest.fixture
def verdict(call):
    """Return a function that verifies runs that differ, and returns the verdict as parsed JSON."""

    def say(*words, how=call, **more):
        done = how("verify", *words, "--json", **more)
        assert done.code == 1, done.err
        return json.loads(done.out)

    return say


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The file of a run that keeps all genomes, and has validation and held-out episodes."""
    folder = tmp_path_factory.mktemp("whole")
    more = ("held_out_episodes=4", "output.genomes=all", "normalize_observations=true", "early_stop.mean_return=999",
            "early_stop.episodes=2", "early_stop.every=1")  # fmt: skip
    make_runs(folder, *QUICK, *EXACT, *(word for setting in more for word in ("--set", setting)), "-o", "out", "-s", 1)
    return folder / "out" / "seed-1.h5"
