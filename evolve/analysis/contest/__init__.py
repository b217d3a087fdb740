"""The contest of machines: it times the same work on each machine, and digests prove that the work was the same.

This module defines the work: six experiments on exact tasks, the *legs*. Each leg stresses another part of a machine.
A *pass* plays each leg once. A *known run* is a short run of a leg with a known digest, played before the timed passes.
Exact tasks and networks compute the same bits on every processor, so equal digests prove equal work.

`legs.toml` has the settings of the legs, and `golden.json` has the digests of the known runs. After a change to the
work, raise `VERSION`, and write `golden.json` again with `benchmarks/contest.py --golden`.

`session` plays and times the work on the ranks of this job. Only `evolve.cli.contest` starts processes. `results`
reads and writes the file of a contest, and `ranking` compares the files of several machines.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evolve.config import Config, parse
from evolve.training import Experiment, prepare

VERSION = 2
"""The version of the work. Only contests of one version can be compared."""
LEGS: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("legs.toml").read_text(encoding="utf-8"))
"""The settings of each leg: of the leg "walker" in the size "large", of all other legs in the size "small"."""
WALKER = "walker"
"""The leg that plays an experiment with times published in 2020, see `ranking.benchmark_2020`."""
LEGS_OF_VERSION = {1: tuple(leg for leg in LEGS if leg != WALKER), VERSION: tuple(LEGS)}
"""The names of the legs, for each version whose contest files can be read."""

# The settings of known runs. Other settings are the settings of the leg.
_KNOWN_SETTINGS = {"population": 24, "episodes": 2, "generations": 3}
_KNOWN_SLOTS = 48  # as many as a generation has episodes: 24 × 2
_KNOWN_STEPS = 100  # the step limit of an episode, unless the leg has its own
# Some strategies have other defaults than when the legs were defined. The legs keep the earlier defaults.
# `definition` leaves out this table, so that its digits stay the same, and earlier contest files can still be compared.
_EARLIER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "openai-es": {"sigma": 0.1, "learning_rate": 0.05},
    "prune": {"survivors": 1, "weight_noise": 0.0},
}

GOLDEN_PATH = Path(__file__).with_name("golden.json")


@dataclass(frozen=True)
class ContestSize:
    """A size of the contest.

    Attributes:
        name: The name of the size.
        population_factor: The number of candidates of a leg, divided by its number in the size "small".
        generation_factor: The number of generations of a leg, divided by its number in the size "small".
        walker: The numbers of candidates and generations of the leg "walker". The factors do not apply to it.
        seed: The seed of the timed runs.
        known_seed: The seed of the known runs.
        least_seconds: The shortest duration of a timed repeat, which consists of one or more passes.
        most_repeats: The largest number of timed repeats.
        duration: The duration of a pass on two cores, in words.
    """

    name: str
    population_factor: float
    generation_factor: float
    walker: tuple[int, int]
    seed: int
    known_seed: int
    least_seconds: float
    most_repeats: int
    duration: str


SIZES = {
    size.name: size
    for size in (
        # Each line has the attributes in their order.
        ContestSize("trial", 1 / 64, 1 / 25, (8, 2), 100, 200, 0.0, 3, "a second: only to test that everything works"),
        ContestSize("small", 1, 1, (138, 5), 101, 201, 10.0, 8, "half a minute"),
        ContestSize("medium", 2, 5, (138, 25), 102, 202, 10.0, 8, "five minutes"),
        ContestSize("large", 4, 15, (138, 200), 103, 203, 10.0, 8, "half an hour to an hour"),
    )
}


def timed_experiment(leg: str, size: ContestSize, backend: str) -> Experiment:
    """Return the experiment of a leg that is timed."""
    settings = LEGS[leg]
    if leg == WALKER:
        population, generations = size.walker
    else:
        # A population needs two candidates. A leg needs two generations, because the first one is not timed.
        population = max(2, round(settings["population"] * size.population_factor))
        generations = max(2, round(settings["generations"] * size.generation_factor))
    return _experiment({**settings, "population": population, "generations": generations}, {"backend": backend})


def known_experiment(leg: str, backend: str) -> Experiment:
    """Return the experiment of the known run of a leg. `golden` has its expected digest."""
    settings = LEGS[leg]
    env = {"max_episode_steps": _KNOWN_STEPS, **settings["env"]}
    return _experiment({**settings, **_KNOWN_SETTINGS, "env": env}, {"backend": backend, "slots": _KNOWN_SLOTS})


def _experiment(settings: Mapping[str, Any], compute: Mapping[str, Any]) -> Experiment:
    """Return the experiment with the settings of a leg and some settings of the table `compute`."""
    env = {**settings["env"], "engine": "exact"}
    strategy = {**_EARLIER_DEFAULTS.get(settings["strategy"]["name"], {}), **settings["strategy"]}
    # With one thread for each process, only the number of workers decides how many cores play. A check that the run can
    # be repeated is not needed, because digests show that.
    fixed_compute = {**compute, "threads": 1, "check": False}
    changes = {"held_out_episodes": 0, "env": env, "strategy": strategy, "compute": fixed_compute}
    return prepare(parse(Config, {**settings, **changes}))


def definition() -> str:
    """Return 64 hexadecimal digits that identify the settings of all legs and sizes.

    The digits do not depend on defaults of settings. But if a new default changes the work, the known digests change.
    """
    sizes = [
        (size.name, size.population_factor, size.generation_factor, size.walker, size.seed, size.known_seed)
        for size in SIZES.values()
    ]
    text = json.dumps([LEGS, _KNOWN_SETTINGS, _KNOWN_STEPS, sizes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def golden() -> Mapping[str, Any]:
    """Return the contents of `golden.json`: `golden()["sizes"][size][leg]` has the digest and the tags of a known run.

    Tags are short digests of candidates, by which `session` finds the first candidate that differs. The file also has
    the version of the work and its `definition`.
    """
    return json.loads(GOLDEN_PATH.read_text(encoding="utf-8"))


def known_digests(size: str, version: int = VERSION) -> Mapping[str, str]:
    """Return the digests of the known runs of a size, by leg, for the legs of a version of the contest."""
    return {leg: golden()["sizes"][size][leg]["digest"] for leg in LEGS_OF_VERSION[version]}
