"""What the contest plays: six experiments on exact tasks, the same for everybody who holds the same version of it.

Nothing outside this package does arithmetic here, so that equal digests prove equal work. Each leg weighs something
else that a run waits for:

    pole    CartPole, a small dag, prune            short steps: the loop over whole episodes, and its branches
    swing   Acrobot, a plastic dag, openai-es       sines, tanh and traces: plain floating-point arithmetic
    memory  Cues, a plastic LSTM, ga, normalized    networks that do not fit into registers; moments of observations
    wide    one step of a pendulum, mlp 256 256     genomes: deviates, sums over candidates, centres that travel
    short   a bandit of two steps, elman, ga        messages and bookkeeping: many episodes that are over at once
    walker  BipedalWalker, hebbian-dag, prune       rigid bodies: the benchmark of 2020, all of it in the size "large"

Whoever changes anything here changes the work, and has to raise `VERSION` and to make `golden.json` anew.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evolve.config import Config, parse
from evolve.training import Experiment, prepare

VERSION = 2

LEGS: Mapping[str, Mapping[str, Any]] = {
    "pole": {
        "population": 2048,
        "episodes": 4,
        "generations": 50,
        "env": {"id": "CartPole-v1"},
        "network": {"name": "dag", "hidden": [8]},
        "strategy": {"name": "prune"},
    },
    "swing": {
        "population": 1024,
        "episodes": 2,
        "generations": 100,
        "env": {"id": "Acrobot-v1"},
        "network": {"name": "hebbian-dag", "hidden": [8, 8], "plasticity": 0.2},
        "strategy": {"name": "openai-es"},
    },
    "memory": {
        "population": 1024,
        "episodes": 4,
        "generations": 50,
        "normalize_observations": True,
        "env": {"id": "Cues-v0"},
        "network": {"name": "hebbian-lstm"},
        "strategy": {"name": "ga"},
    },
    "wide": {
        "population": 256,
        "episodes": 1,
        "generations": 30,
        "env": {"id": "Pendulum-v1", "max_episode_steps": 1},
        "network": {"name": "mlp", "hidden": [256, 256]},
        "strategy": {"name": "openai-es"},
    },
    "short": {
        "population": 16384,
        "episodes": 1,
        "generations": 65,
        "env": {"id": "Bandit-v0", "kwargs": {"pulls": 1}},
        "network": {"name": "elman", "hidden": [4]},
        "strategy": {"name": "ga"},
    },
    "walker": {
        "population": 138,
        "episodes": 8,
        "generations": 200,
        "env": {"id": "BipedalWalker-v3"},
        "network": {
            "name": "hebbian-dag",
            "hidden": [8, 8],
            "plasticity": 0.0,
            "trace_rate": 1.0,
            "neuromodulated": False,
            "init_sparsity": 0.025,
        },
        "strategy": {
            "name": "prune",
            "trace_pruning": 0.01,
            "uniform_pruning": 0.01,
            "uniform_pruning_chance": 0.5,
            "survivors": 1,
            "regrowth": 0.0,
            "weight_noise": 0.0,
        },
    },
}
"""The legs of the size "small", but for the walker, whose sizes `ContestSize` has; all else has its default."""

WALKER = "walker"
LEGS_OF_VERSION = {1: tuple(leg for leg in LEGS if leg != WALKER), VERSION: tuple(LEGS)}
"""The legs of each version whose files can be read. Those of version 1 are played in version 2, too."""

_KNOWN = {"population": 24, "episodes": 2, "generations": 3}
_KNOWN_SLOTS = 48
_KNOWN_STEPS = 100
"""Steps of an episode at most, in the short run whose digest is known; all else is that of the score."""


PATH = Path(__file__).with_name("golden.json")


@dataclass(frozen=True)
class ContestSize:
    """A size of the contest.

    Attributes:
        name: What it is called.
        candidates: How many times as many as in "small".
        generations: Likewise.
        walker: The candidates and the generations of the leg "walker".
        seed: Of the score.
        known_seed: Of the run whose digest is known.
        least_seconds: How long a timed repeat lasts at least.
        takes: How long one takes on two cores, in words.
    """

    name: str
    candidates: float
    generations: float
    walker: tuple[int, int]
    seed: int
    known_seed: int
    least_seconds: float
    takes: str


SIZES = {
    size.name: size
    for size in (
        ContestSize("trial", 1 / 64, 1 / 25, (8, 2), 100, 200, 0.0, "a second: to see that all works, and no more"),
        ContestSize("small", 1, 1, (138, 5), 101, 201, 10.0, "half a minute"),
        ContestSize("medium", 2, 5, (138, 25), 102, 202, 10.0, "five minutes"),
        ContestSize("large", 4, 15, (138, 200), 103, 203, 10.0, "half an hour"),
    )
}


def scored(leg: str, size: ContestSize, backend: str) -> Experiment:
    """Return what a leg plays for the score."""
    table = LEGS[leg]
    factors = {"population": size.candidates, "generations": size.generations}
    if leg == WALKER:
        changes = dict(zip(factors, size.walker, strict=True))
    else:
        changes = {name: max(2, round(table[name] * factor)) for name, factor in factors.items()}
    return _experiment(table, changes, {"backend": backend})


def known(leg: str, backend: str) -> Experiment:
    """Return the short run of a leg whose digest is known."""
    table = LEGS[leg]
    env = {"max_episode_steps": _KNOWN_STEPS, **table["env"]}
    return _experiment({**table, "env": env}, _KNOWN, {"backend": backend, "slots": _KNOWN_SLOTS})


def _experiment(table: Mapping[str, Any], changes: Mapping[str, Any], compute: Mapping[str, Any]) -> Experiment:
    env = {**table["env"], "engine": "exact"}
    fixed = {"held_out_episodes": 0, "env": env, "compute": {**compute, "check": False}}
    return prepare(parse(Config, {**table, **changes, **fixed}))


def definition() -> str:
    """Return 64 hexadecimal digits that stand for what is written above.

    A default that changes the work changes the digests of the short runs, too.
    """
    sizes = [
        (size.name, size.candidates, size.generations, size.walker, size.seed, size.known_seed)
        for size in SIZES.values()
    ]
    text = json.dumps([LEGS, _KNOWN, _KNOWN_STEPS, sizes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def golden() -> Mapping[str, Any]:
    """Return the version, the definition of the work, and by size and leg the digest and the tags of its short run."""
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def known_digests(size: str, version: int = VERSION) -> Mapping[str, str]:
    """Return the digests of the short runs of a size, by leg, for the legs of a version of the contest."""
    return {leg: golden()["sizes"][size][leg]["digest"] for leg in LEGS_OF_VERSION[version]}
