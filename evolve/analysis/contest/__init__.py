"""The contest of machines: it times the same work on each machine, and digests prove that the work was the same.

This module defines the work: six experiments on exact tasks. These experiments are the legs of the contest. The legs
stress different parts of a machine, and are the same on all machines. A pass plays each leg once. Only evolve's own
code does arithmetic in legs, so equal digests prove equal work.

`legs.toml` has the legs, and `golden.json` has the digests of short runs. After a change to the work, raise `VERSION`,
and write `golden.json` again with `benchmarks/contest.py --golden`.

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

LEGS: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("legs.toml").read_text(encoding="utf-8"))
"""The settings of each leg in the size "small". The leg "walker" has the settings of the size "large"."""

WALKER = "walker"
LEGS_OF_VERSION = {1: tuple(leg for leg in LEGS if leg != WALKER), VERSION: tuple(LEGS)}
"""The legs of each version whose contest files can be read. Version 2 plays the legs of version 1, too."""

# The settings of the short runs with known digests. All other settings come from the runs for the score.
_KNOWN = {"population": 24, "episodes": 2, "generations": 3}
_KNOWN_SLOTS = 48  # as many as a generation has episodes: 24 × 2
_KNOWN_STEPS = 100  # the step limit of an episode, unless the leg has its own
# Earlier defaults of strategies, which have changed since the legs were defined. The legs keep these earlier values.
# `definition` leaves out this table, so files of earlier contests can still be compared.
_EARLIER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "openai-es": {"sigma": 0.1, "learning_rate": 0.05},
    "prune": {"survivors": 1, "weight_noise": 0.0},
}

GOLDEN = Path(__file__).with_name("golden.json")


@dataclass(frozen=True)
class ContestSize:
    """A size of the contest.

    Attributes:
        name: The name of the size.
        candidates: The factor by which the number of candidates of a leg differs from "small".
        generations: The factor by which the number of generations of a leg differs from "small".
        walker: The numbers of candidates and generations of the leg "walker". The factors do not apply to it.
        seed: The seed of the timed runs.
        known_seed: The seed of the short runs with known digests.
        least_seconds: The shortest duration of a timed repeat, which consists of one or more passes.
        most_repeats: The largest number of timed repeats.
        duration: The duration of a pass on two cores, in words.
    """

    name: str
    candidates: float
    generations: float
    walker: tuple[int, int]
    seed: int
    known_seed: int
    least_seconds: float
    most_repeats: int
    duration: str


SIZES = {
    size.name: size
    for size in (
        ContestSize("trial", 1 / 64, 1 / 25, (8, 2), 100, 200, 0.0, 3, "a second: only to test that everything works"),
        ContestSize("small", 1, 1, (138, 5), 101, 201, 10.0, 8, "half a minute"),
        ContestSize("medium", 2, 5, (138, 25), 102, 202, 10.0, 8, "five minutes"),
        ContestSize("large", 4, 15, (138, 200), 103, 203, 10.0, 8, "half an hour to an hour"),
    )
}


def scored_experiment(leg: str, size: ContestSize, backend: str) -> Experiment:
    """Return the experiment of a leg that is timed for the score."""
    table = LEGS[leg]
    factors = {"population": size.candidates, "generations": size.generations}
    if leg == WALKER:
        # `size.walker` has a population and a number of generations, in the order of the keys of `factors`.
        changes = dict(zip(factors, size.walker, strict=True))
    else:
        # A leg needs two generations, because the first one is not timed. A population needs two candidates.
        changes = {name: max(2, round(table[name] * factor)) for name, factor in factors.items()}
    return _experiment(table, changes, {"backend": backend})


def known_experiment(leg: str, backend: str) -> Experiment:
    """Return the experiment of the short run of a leg. `golden` has its expected digest."""
    table = LEGS[leg]
    env = {"max_episode_steps": _KNOWN_STEPS, **table["env"]}
    return _experiment({**table, "env": env}, _KNOWN, {"backend": backend, "slots": _KNOWN_SLOTS})


def _experiment(table: Mapping[str, Any], changes: Mapping[str, Any], compute: Mapping[str, Any]) -> Experiment:
    env = {**table["env"], "engine": "exact"}
    strategy = {**_EARLIER_DEFAULTS.get(table["strategy"]["name"], {}), **table["strategy"]}
    # With one thread for each process, only the number of workers decides how many cores play.
    fixed = {"held_out_episodes": 0, "env": env, "compute": {**compute, "threads": 1, "check": False}}
    # A later table wins, so a leg cannot change a fixed setting.
    return prepare(parse(Config, {**table, **changes, **fixed, "strategy": strategy}))


def definition() -> str:
    """Return 64 hexadecimal digits that identify the settings of all legs and sizes.

    They do not cover defaults. If a new default changes the work, the known digests change.
    """
    sizes = [(s.name, s.candidates, s.generations, s.walker, s.seed, s.known_seed) for s in SIZES.values()]
    text = json.dumps([LEGS, _KNOWN, _KNOWN_STEPS, sizes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def golden() -> Mapping[str, Any]:
    """Return the contents of `golden.json`: by size and leg, the digest and the tags of the short run.

    Tags are short digests of candidates. They find the first candidate that differs. The file also has the version and
    the `definition` of the work.
    """
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def known_digests(size: str, version: int = VERSION) -> Mapping[str, str]:
    """Return the digests of the short runs of a size, by leg, for the legs of a version of the contest."""
    return {leg: golden()["sizes"][size][leg]["digest"] for leg in LEGS_OF_VERSION[version]}
