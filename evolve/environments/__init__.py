"""Environments: the engines that play episodes. Only this package imports Gymnasium and EnvPool.

`make` takes the settings `env.…` and returns an `Engine`, which plays episodes of one environment side by side.
`engine.py` defines this interface; read it first. `ENGINES` lists the kinds of engines, and each kind has a module.

Policies and exact tasks work without Gymnasium. So this package imports a module that needs Gymnasium only when one of
its names is first used.
"""

from contextlib import closing
from typing import TYPE_CHECKING, Any

from evolve.config import EnvOptions
from evolve.environments.engine import (
    Engine,
    Mode,
    check_metrics,
    check_repeatable,
    check_same_as_rank_0,
    decode_metrics,
    keeping_directory,
    seems_endless,
)
from evolve.environments.envpool_engine import EnvPoolEngine, envpool_limit
from evolve.environments.exact import TASKS, AnyTask, exact_task, kwargs_model, without_defaults
from evolve.environments.exact_engine import (
    CompiledSlots,
    ExactEngine,
    is_left_to_gymnasium,
    largest_crowd,
    slots_per_call,
    task_on_device,
)
from evolve.environments.randomization import with_drawn_arguments
from evolve.environments.recorder import Recorder, Recording, replay
from evolve.environments.spaces import Codec, Spaces
from evolve.errors import InputError, Setting, import_on_demand

if TYPE_CHECKING:
    from evolve.environments.function_task import register_task
    from evolve.environments.gymnasium_engine import GymnasiumFallback
    from evolve.environments.gymnasium_making import is_quick, modules_of, registered_ids
    from evolve.environments.rendering import (
        declares_frames,
        draw_without_display,
        drawable_options,
        is_drawable_task,
        labels,
        try_drawing,
    )


ENGINES = ("gymnasium", "envpool", "exact")
"""The kinds of engines, the values of `env.engine`."""

__getattr__ = import_on_demand(
    __name__,
    {
        "function_task": "register_task",
        "gymnasium_engine": "GymnasiumFallback",
        "gymnasium_making": "is_quick modules_of registered_ids",
        "rendering": "declares_frames draw_without_display drawable_options is_drawable_task labels try_drawing",
    },
)


def chunk_seconds(options: EnvOptions) -> float:
    """Return the least duration of a chunk, in seconds. Rank 0 sends one chunk of episodes at a time to a worker."""
    # EnvPool needs longer chunks, because each chunk may need a new pool, which is expensive.
    return 0.2 if options.engine == "envpool" else 0.01


def max_episode_steps(options: EnvOptions) -> int | None:
    """Return the largest number of steps of an episode; None if the environment declares no limit."""
    if options.max_episode_steps is not None:
        return options.max_episode_steps
    if options.engine == "exact":
        return exact_task(options).step_limit
    if options.engine == "envpool":
        return envpool_limit(options.id)
    from evolve.environments.gymnasium_making import registered_limit  # noqa: PLC0415 - needs Gymnasium

    return registered_limit(options.id)


def check_randomized(options: EnvOptions) -> None:
    """Raise InputError unless an environment takes all randomized arguments, also at their bounds."""
    with closing(make(options, slots=1)) as engine:
        # The constructor of `ExactEngine` has checked the bounds. EnvPool's constructor refuses `env.randomize`.
        if not isinstance(engine, ExactEngine | EnvPoolEngine):
            from evolve.environments.gymnasium_making import check_bounds  # noqa: PLC0415 - needs Gymnasium

            check_bounds(options)


def gymnasium_environment(options: EnvOptions) -> Any:
    """Return a new environment of Gymnasium, with the arguments, the wrappers and the step limit of `options`.

    Raises InputError if Gymnasium cannot make this environment, or if `options` name the engine EnvPool.
    """
    from evolve.environments.gymnasium_making import (  # noqa: PLC0415 - needs Gymnasium
        make_or_explain,
        maker,
        registered,
    )

    if options.engine == "envpool" or (options.engine == "exact" and registered(options.id) is None):
        expected = "gymnasium, or exact for a task that Gymnasium also has"
        raise InputError("env.engine", expected, f"{options.engine}, {options.id}")
    return make_or_explain(options, maker(options))


def make(options: EnvOptions, slots: int, compiled: bool = True, threads: int = 1) -> Engine:
    """Return a new engine.

    Args:
        options: The environment.
        slots: B, the number of episodes that the engine plays side by side.
        compiled: Whether native kernels step an exact task, if the kernels were built. Otherwise array operations step
            it, and give the same bits. But these are slow for rigid bodies. So if the kernels were not built, Gymnasium
            plays a task with rigid bodies, provided that Box2D is installed and its task has all given settings.
        threads: The number of threads in which EnvPool steps its environments.

    Raises:
        InputError: The environment cannot be made.
    """
    if options.engine == "envpool":
        return EnvPoolEngine(options, slots, threads)
    if options.engine == "exact":
        if options.reported_metrics:
            cure = "Use ", Setting("env.engine", "gymnasium"), ", or no env.metrics."
            expected = "only metrics mean_observation_N with exact tasks, which report no info"
            raise InputError("env.metrics", expected, list(options.reported_metrics), *cure)
        if not is_left_to_gymnasium(exact_task(options)):
            return ExactEngine(options, slots, compiled)
    # Import Gymnasium only here, because exact tasks do not need it.
    from evolve.environments.gymnasium_engine import GymnasiumEngine, GymnasiumFallback  # noqa: PLC0415

    engine_class = GymnasiumFallback if options.engine == "exact" else GymnasiumEngine
    return engine_class(options, slots)
