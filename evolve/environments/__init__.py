"""Environments: the engines that play episodes. Only this package imports Gymnasium and EnvPool.

`make` returns an `Engine`, which plays episodes of one environment side by side. `ENGINES` lists the kinds of engines.
`register_task` turns a function into an environment.
"""

from contextlib import closing
from importlib.util import find_spec

from evolve.config import EnvOptions
from evolve.environments.engine import Engine, check, check_metrics
from evolve.environments.envpool_engine import EnvPoolEngine, envpool_limit
from evolve.environments.exact import TASKS, AnyTask, exact_task, kwargs_model
from evolve.environments.exact_engine import (
    CompiledSlots,
    ExactEngine,
    GymnasiumFallback,
    slots_per_call,
    task_on_device,
)
from evolve.environments.function_task import register_task
from evolve.environments.gymnasium_engine import (
    GymnasiumEngine,
    check_bounds,
    is_quick,
    registered_ids,
    registered_limit,
)
from evolve.environments.metrics import decode_metrics
from evolve.environments.randomization import fixed
from evolve.environments.recorder import Recorder, Recording, replay
from evolve.environments.rendering import Mode, check_drawable, drawn, has_display, without_display
from evolve.errors import InputError, Setting
from evolve.numerics import native

__all__ = [
    "ENGINES",
    "TASKS",
    "AnyTask",
    "CompiledSlots",
    "Engine",
    "ExactEngine",
    "GymnasiumFallback",
    "Mode",
    "Recorder",
    "Recording",
    "check",
    "check_drawable",
    "check_metrics",
    "check_randomized",
    "chunk_seconds",
    "decode_metrics",
    "drawn",
    "exact_task",
    "fixed",
    "has_display",
    "is_quick",
    "kwargs_model",
    "make",
    "max_episode_steps",
    "register_task",
    "registered_ids",
    "replay",
    "slots_per_call",
    "task_on_device",
    "without_display",
]

ENGINES: dict[str, type[GymnasiumEngine | EnvPoolEngine | ExactEngine]] = {
    "gymnasium": GymnasiumEngine,
    "envpool": EnvPoolEngine,
    "exact": ExactEngine,
}


def chunk_seconds(options: EnvOptions) -> float:
    """Return the least seconds of work in a chunk; more for EnvPool, which makes a new pool for each chunk."""
    return 0.2 if options.engine == "envpool" else 0.01


def max_episode_steps(options: EnvOptions) -> int | None:
    """Return the limit of steps of an episode; None if the environment declares no limit."""
    if options.max_episode_steps is not None:
        return options.max_episode_steps
    if options.engine == "exact":
        return exact_task(options).step_limit
    return envpool_limit(options.id) if options.engine == "envpool" else registered_limit(options.id)


def check_randomized(options: EnvOptions) -> None:
    """Raise InputError unless an environment takes each randomized argument, also at its bounds."""
    with closing(make(options, slots=1)) as engine:
        if isinstance(engine, GymnasiumEngine):
            check_bounds(options)


def make(options: EnvOptions, slots: int, compiled: bool = True) -> Engine:
    """Return a new engine.

    Args:
        options: The environment.
        slots: B.
        compiled: Whether the native kernels step exact tasks, if they were built. The bits are the same. Without
            kernels, Gymnasium plays the tasks that have rigid bodies, if Box2D is installed.

    Raises:
        InputError: The environment cannot be made.
    """
    if options.engine == "exact":
        if options.metrics:
            cure = "Use ", Setting("env.engine", "gymnasium"), ", or no env.metrics."
            raise InputError("env.metrics", "none with exact tasks, which report no info", list(options.metrics), *cure)
        if exact_task(options).has_world and not native.available() and find_spec("Box2D"):
            return GymnasiumFallback(options, slots)
        return ExactEngine(options, slots, compiled)
    return ENGINES[options.engine](options, slots)
