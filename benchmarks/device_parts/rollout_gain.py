"""Whole rollouts on the host and on a device, and the most that a device could gain there."""

from collections.abc import Iterator, Sequence
from typing import Any

from device_parts.steps import Budget, parted, why_no_device
from evolve.config import Config, parse
from evolve.errors import InputError
from evolve.numerics import host_backend
from evolve.training import Experiment, prepare
from evolve.training.rollouts import rollout_speed

Row = dict[str, Any]

ENVPOOL = (("CartPole-v1", "envpool"), ("BipedalWalker-v3", "envpool"))
GYMNASIUM = (("CartPole-v1", "gymnasium"),)
HIDDEN = ((8, 8), (64, 64))
SLOTS = 1024
_EPISODES = 8


def rollout_experiments(asked: tuple[str, str] | None) -> list[Experiment]:
    """Return an experiment for each environment and network. Raises InputError if there is no such environment.

    asked: the environment and its engine; None for EnvPool's environments, or without EnvPool Gymnasium's CartPole.
    """
    return [_experiment(*environment, hidden) for environment in ([asked] if asked else _environments())
            for hidden in HIDDEN]  # fmt: skip


def rollout_rows(experiments: Sequence[Experiment], seconds: float, budget: Budget) -> Iterator[Row]:
    """Yield, for each experiment, steps per second of the host and of a device, and the bound of the gain."""
    for experiment in experiments:
        yield _row(experiment, seconds, budget)


def _row(experiment: Experiment, seconds: float, budget: Budget) -> Row:
    env, hidden = experiment.config.env, list(experiment.config.network.options.hidden)
    row: Row = {"env": env.id, "engine": env.engine, "hidden": hidden, "slots": experiment.config.compute.slots}
    if budget.left < 0:
        return row | parted(dict.fromkeys(("host", "gpu", "most", "gain"), "it would take too long"))
    host = rollout_speed(experiment, host_backend("auto"), seconds)
    row |= {"host": host.steps_per_second, "environment_ns": host.environment_seconds * 1e9,
            "network_ns": (host.step_seconds - host.environment_seconds) * 1e9}  # fmt: skip
    # A device plays exact tasks itself, so their environments bound no gain.
    row["most"] = None if env.engine == "exact" else host.step_seconds / host.environment_seconds
    try:
        missing = why_no_device()
        gpu: Any = missing or rollout_speed(experiment, "cupy", seconds).steps_per_second
    except InputError as error:  # too little memory
        gpu = str(error)
    return row | parted({"gpu": gpu, "gain": gpu if isinstance(gpu, str) else gpu / row["host"]})


def _environments() -> tuple[tuple[str, str], ...]:
    """Return the environments whose engine is installed."""
    try:
        for environment in ENVPOOL:
            _experiment(*environment, HIDDEN[0])
    except InputError:
        return GYMNASIUM
    return ENVPOOL


def _experiment(env: str, engine: str, hidden: tuple[int, ...]) -> Experiment:
    table = {
        "env": {"id": env, "engine": engine},
        "network": {"name": "hebbian-dag", "hidden": list(hidden)},
        "compute": {"slots": SLOTS, "backend": host_backend("auto"), "threads": 1},
        "population": SLOTS // _EPISODES,
        "episodes": _EPISODES,
    }
    return prepare(parse(Config, table))
