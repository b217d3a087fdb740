"""Tasks with their aims, networks and strategies with the settings that are tuned, and the chosen settings."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.config import read_file

ROOT = Path(__file__).parent.parent.parent
CHOSEN = Path(__file__).parent / "chosen.json"
Settings = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A task: the experiment of its plastic network, the held-out mean aimed at, and how it is tuned.

    Attributes:
        name: The name of its experiment.
        aim: The held-out mean aimed at.
        unit: The unit of a return.
        tuning_generations: The generations of tuning runs.
        tuning_seeds: The seeds that choose presets; the experiment's seeds evaluate them.
        by_hand: Networks that are not tuned, because their settings were chosen by hand.
        tuned_as: The task whose tuning chooses its presets, if it is another one.
    """

    name: str
    aim: float
    unit: str
    tuning_generations: int = 0
    tuning_seeds: tuple[int, ...] = ()
    by_hand: tuple[str, ...] = ()
    tuned_as: str | None = None

    @property
    def settings(self) -> Settings:
        """The experiment, as its file has it."""
        return read_file(ROOT / "experiments" / f"{self.name}.toml")

    @property
    def env(self) -> str:
        """The id of its environment."""
        return str(self.settings["env"]["id"])


TASKS = {
    task.name: task
    for task in (
        Task("cues", 0.93, "share of right answers", 50, (101, 102)),
        Task("reversal", 0.93, "reward of a trial", tuned_as="cues"),
        Task("tmaze", 0.93, "reward of a trial", 50, (101, 102)),
        Task("bandit", 68.1, "hits in 100 pulls", 150, (101, 102), by_hand=("hebbian-dag",)),
    )
}

_PLASTIC = {"name": "hebbian-dag", "hidden": [8], "plasticity": 1.0, "neuromodulated": True, "trace_limit": 1.0}
NETWORKS: dict[str, tuple[Settings, ...]] = {
    "hebbian-dag": tuple(_PLASTIC | {"init_scale": scale} for scale in (1.0, 0.3)),
    "dag": tuple({"name": "dag", "hidden": [8], "init_scale": scale} for scale in (1.0, 0.3)),
    "elman": tuple({"name": "elman", "hidden": [hidden]} for hidden in (16, 32)),
    "hebbian-lstm": tuple({"name": "hebbian-lstm", "hidden": [8], "update_limit": limit} for limit in (0.1, 1.0)),
    "plastic-mlp": tuple({"name": "plastic-mlp", "hidden": [16], "init_scale": scale} for scale in (0.1, 1.0)),
}
"""Two settings of each network."""
STRATEGIES: dict[str, tuple[Settings, ...]] = {
    "ga": tuple({"name": "ga", "weight_noise": noise} for noise in (0.1, 0.2, 0.4)),
    "openai-es": tuple(
        {"name": "openai-es", "sigma": sigma, "learning_rate": rate}
        for sigma, rate in ((0.1, 0.05), (0.2, 0.1), (0.5, 0.1))
    ),
    "sep-cma-es": tuple({"name": "sep-cma-es", "sigma": sigma} for sigma in (0.3, 0.5, 1.0)),
}
"""Three settings of each strategy."""
OFF: dict[str, Settings] = {
    "hebbian-dag": {"plasticity": 0.0},
    "hebbian-lstm": {"update_limit": 1e-30},
    "plastic-mlp": {"update_every": 1_000_000},
}
"""The settings that switch learning within a life off; elman keeps its memory, which is no learning."""


def pairs(network: str) -> list[tuple[Settings, Settings]]:
    """Return the settings that are tried for a network: each of its settings with each setting of each strategy."""
    strategies = itertools.chain.from_iterable(STRATEGIES.values())
    return list(itertools.product(NETWORKS[network], strategies))


def settings_of(
    task: Task, network: Settings, strategy: Settings, generations: int | None = None, kwargs: Settings | None = None
) -> Settings:
    """Return the experiment of a task with another network and strategy, and perhaps another length or task."""
    settings = {**task.settings, "network": network, "strategy": strategy}
    if generations is not None:
        settings["generations"] = generations
    if kwargs is not None:
        settings["env"] = {**settings["env"], "kwargs": kwargs}
    return settings


def chosen(task: str, network: str) -> tuple[Settings, Settings]:
    """Return the network and the strategy that tuning has chosen. Raises KeyError before it has."""
    found = read_chosen()[TASKS[task].tuned_as or task][network]
    return found["network"], found["strategy"]


def read_chosen() -> dict[str, dict[str, dict[str, Settings]]]:
    """Return the choices so far: for each task and each network, the network and the strategy."""
    return json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}


def write_chosen(found: Mapping[str, Any]) -> None:
    """Write the choices."""
    CHOSEN.write_text(json.dumps(found, indent=1) + "\n")


def label(settings: Settings) -> str:
    """Return a short name of a network or a strategy, for a directory."""
    rest = {key: value for key, value in settings.items() if key != "name"}
    words = (f"{key}-{'-'.join(map(str, v)) if isinstance(v, list) else v}" for key, v in rest.items())
    return ",".join([settings["name"], *words])
