"""Environments: the only package that imports Gymnasium and EnvPool; and exact ones of our own.

`make` returns an `Engine`, which runs the episodes of one environment side by side; `ENGINES` lists the kinds of them.
`register_task` turns a function into an environment.
"""

from evolve.config import EnvOptions
from evolve.environments.engine import Engine, check
from evolve.environments.envpool_engine import EnvPoolEngine, envpool_limit
from evolve.environments.exact import TASKS, AnyTask
from evolve.environments.exact_engine import (
    CompiledSlots,
    ExactEngine,
    GymnasiumInPlace,
    box2d_is_installed,
    exact_task,
    lanes_of,
    step_limit,
    task_on_device,
)
from evolve.environments.factory import is_quick, registered_ids, registered_limit
from evolve.environments.function_task import register_task
from evolve.environments.gymnasium_engine import GymnasiumEngine
from evolve.environments.recorder import Recorder, Recording, replay
from evolve.environments.rendering import Mode, check_drawable, drawn, has_display, without_display
from evolve.numerics import native

__all__ = [
    "ENGINES",
    "TASKS",
    "AnyTask",
    "CompiledSlots",
    "Engine",
    "ExactEngine",
    "GymnasiumInPlace",
    "Mode",
    "Recorder",
    "Recording",
    "check",
    "check_drawable",
    "chunk_seconds",
    "drawn",
    "exact_task",
    "has_display",
    "is_quick",
    "lanes_of",
    "make",
    "max_episode_steps",
    "register_task",
    "registered_ids",
    "replay",
    "step_limit",
    "task_on_device",
    "without_display",
]

ENGINES: dict[str, type[GymnasiumEngine | EnvPoolEngine | ExactEngine]] = {
    "gymnasium": GymnasiumEngine,
    "envpool": EnvPoolEngine,
    "exact": ExactEngine,
}


def chunk_seconds(options: EnvOptions) -> float:
    """Return how many seconds of work to hand out at least: more for EnvPool, which makes a new pool for it."""
    return 0.2 if options.engine == "envpool" else 0.01


def max_episode_steps(options: EnvOptions) -> int | None:
    """Return how many steps an episode has at most; None where the environment does not say."""
    if options.max_episode_steps is not None:
        return options.max_episode_steps
    if options.engine == "exact":
        return step_limit(exact_task(options))
    return envpool_limit(options.id) if options.engine == "envpool" else registered_limit(options.id)


def make(options: EnvOptions, slots: int, compiled: bool = True) -> Engine:
    """Return a new engine.

    Args:
        options: Of the environment.
        slots: B.
        compiled: Whether exact tasks are stepped by the native kernels, where they were built. The bits are the same.
            Without kernels Gymnasium plays the tasks that have rigid bodies, if Box2D is installed.

    Raises:
        InputError: The environment cannot be made.
    """
    if options.engine == "exact":
        if exact_task(options).has_world and not native.available() and box2d_is_installed():
            return GymnasiumInPlace(options, slots)
        return ExactEngine(options, slots, compiled)
    return ENGINES[options.engine](options, slots)
