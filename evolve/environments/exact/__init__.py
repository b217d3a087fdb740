"""Exact tasks: the project's own environments, whose episodes have the same bits on every processor.

`TASKS` is the registry. Each module here defines tasks by array operations in IEEE arithmetic. For each task, a header
in `environments/kernels/` has the same operations in C; its name is the task's `kernel`. The classical tasks follow
Gymnasium's formulas, but not its bits, which depend on libm.
"""

from evolve.config import EnvOptions, ImportedOnDemand, Options, parse, suggest
from evolve.environments.exact.task import AnyTask, Draws, Moved
from evolve.environments.randomization import extremes
from evolve.errors import InputError, Setting

__all__ = ["TASKS", "AnyTask", "Draws", "Moved", "exact_task", "kwargs_model", "without_defaults"]

TASKS = ImportedOnDemand[type[AnyTask]](
    __name__,
    {
        "Acrobot-v1": ("classic_control", "Acrobot"),
        "Bandit-v0": ("lifetime_learning", "Bandit"),
        "BipedalWalker-v3": ("bipedal_walker", "BipedalWalker"),
        "BipedalWalkerHardcore-v3": ("bipedal_walker", "BipedalWalkerHardcore"),
        "CartPole-v1": ("classic_control", "CartPole"),
        "Cues-v0": ("lifetime_learning", "Cues"),
        "LunarLander-v3": ("lunar_lander", "LunarLander"),
        "LunarLanderContinuous-v3": ("lunar_lander", "LunarLanderContinuous"),
        "MountainCar-v0": ("classic_control", "MountainCar"),
        "MountainCarContinuous-v0": ("classic_control", "MountainCarContinuous"),
        "Pendulum-v1": ("classic_control", "Pendulum"),
        "Reversal-v0": ("lifetime_learning", "Reversal"),
        "TMaze-v0": ("lifetime_learning", "TMaze"),
    },
)
"""The exact tasks by the ids of their environments."""


def exact_task(options: EnvOptions) -> AnyTask:
    """Return the exact task that options name. Raises InputError for an unknown task, or options that do not fit it."""
    kind = TASKS.get(options.id)
    gymnasium = Setting("env.engine", "gymnasium")
    if kind is None:
        cure = f"{suggest(options.id, TASKS, listed=True)} Or use "
        raise InputError("env.id", "an environment of the exact engine", options.id, cure, gymnasium, ".")
    if options.wrappers:
        message = "Exact environments take no wrappers. Use ", gymnasium, ", or no env.wrappers."
        raise InputError.plainly("env.wrappers", *message)
    settings = parse(kind.settings, options.kwargs, "env.kwargs")
    for name, distribution in options.randomize.items():
        if name not in kind.randomizable:
            expected = f"a setting of {options.id} that can be drawn for each episode"
            known = f": {', '.join(kind.randomizable)}" if kind.randomizable else ", and it has none"
            # Gymnasium plays the same episodes of a task with a world, and can randomize any argument.
            instead = ("Or use ", gymnasium, ".") if kind.has_world else ()
            raise InputError(f"env.randomize.{name}", expected + known, name, *instead)
        # Each setting allows a range, so all values between two valid bounds are valid.
        for value in extremes(distribution):
            parse(kind.settings, options.kwargs | {name: value}, "env.randomize")
    return kind(settings, options.action_scale, options.max_episode_steps, options.randomize)


def without_defaults(options: EnvOptions) -> EnvOptions:
    """Return options without the settings that Gymnasium's task lacks, if these settings have their defaults.

    Gymnasium can then play the same episodes.
    """
    kind = TASKS.get(options.id)
    if kind is None or not kind.own_settings:
        return options
    default = kind.settings().model_dump(include=set(kind.own_settings))
    kwargs = {name: value for name, value in options.kwargs.items() if default.get(name) != value}
    # A distribution whose only value is the default is left out, too.
    randomize = {name: drawn for name, drawn in options.randomize.items() if {*extremes(drawn)} != {default.get(name)}}
    return options.model_copy(update={"kwargs": kwargs, "randomize": randomize})


def kwargs_model(options: EnvOptions) -> type[Options] | None:
    """Return the model of `env.kwargs` for an exact task; None for other environments."""
    kind = TASKS.get(options.id) if options.engine == "exact" else None
    return None if kind is None else kind.settings
