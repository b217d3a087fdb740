"""Environments: the only package that imports Gymnasium and EnvPool.

`make` returns an `Engine`, which runs the episodes of one environment side by side; `ENGINES` lists the kinds of them.
`register_task` turns a function into an environment.
"""

from evolve.config import EnvOptions
from evolve.environments.bare import replay
from evolve.environments.engine import Engine
from evolve.environments.envpool_engine import EnvPoolEngine, envpool_limit
from evolve.environments.factory import is_quick, registered_ids, registered_limit
from evolve.environments.function_task import register_task
from evolve.environments.gymnasium_engine import GymnasiumEngine
from evolve.environments.recorder import Recorder, Recording
from evolve.environments.rendering import Mode, check_drawable, drawn, has_display, without_display
from evolve.environments.repeatable import check

__all__ = [
    "ENGINES",
    "Engine",
    "Mode",
    "Recorder",
    "Recording",
    "check",
    "check_drawable",
    "chunk_seconds",
    "drawn",
    "has_display",
    "is_quick",
    "make",
    "max_episode_steps",
    "register_task",
    "registered_ids",
    "replay",
    "without_display",
]

ENGINES: dict[str, type[GymnasiumEngine | EnvPoolEngine]] = {"gymnasium": GymnasiumEngine, "envpool": EnvPoolEngine}


def chunk_seconds(options: EnvOptions) -> float:
    """Return how many seconds of work to hand out at least: more for EnvPool, which makes a new pool for it."""
    return 0.2 if options.engine == "envpool" else 0.01


def max_episode_steps(options: EnvOptions) -> int | None:
    """Return how many steps an episode has at most; None where the environment does not say."""
    if options.max_episode_steps is not None:
        return options.max_episode_steps
    return envpool_limit(options.id) if options.engine == "envpool" else registered_limit(options.id)


def make(options: EnvOptions, slots: int) -> Engine:
    """Return a new engine with B = `slots` slots. Raises InputError for an environment that cannot be made."""
    return ENGINES[options.engine](options, slots)
