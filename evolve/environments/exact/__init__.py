"""Exact tasks: the project's own environments. Their episodes have the same bits on every processor.

`TASKS` is the registry, and `exact_task` returns the task that the settings `env.…` describe. `task.py` has the base
class. Each other module defines tasks by array operations in IEEE arithmetic. For each task, a header in
`environments/kernels/` has the same operations in C; its name is the task's `kernel`. The tasks of classic control
follow Gymnasium's formulas, but not its bits, which depend on libm.
"""

from evolve.config import EnvOptions, ImportedOnDemand, Options, parse, suggest
from evolve.environments.exact.task import AnyTask, Draws, Moved
from evolve.environments.randomization import bounds_or_choices
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
"""The classes of the exact tasks, by the ids of their environments."""


def exact_task(options: EnvOptions) -> AnyTask:
    """Return the task that `options` name. Raises InputError for an unknown task, or for options that do not fit it."""
    task_class = TASKS.get(options.id)
    gymnasium = Setting("env.engine", "gymnasium")
    if task_class is None:
        cure = f"{suggest(options.id, TASKS, listed=True)} Or use "
        raise InputError("env.id", "an environment of the exact engine", options.id, cure, gymnasium, ".")
    if options.wrappers:
        message = "Exact environments take no wrappers. Use ", gymnasium, ", or no env.wrappers."
        raise InputError.plainly("env.wrappers", *message)
    settings = parse(task_class.options_class, options.kwargs, "env.kwargs")
    for name, distribution in options.randomize.items():
        if name not in task_class.randomizable:
            expected = f"a setting of {options.id} that can be drawn for each episode"
            known = f": {', '.join(task_class.randomizable)}" if task_class.randomizable else ", and it has none"
            # If a task has rigid bodies, Gymnasium plays the same episodes, and can randomize any argument.
            alternative = ("Or use ", gymnasium, ".") if task_class.has_world else ()
            raise InputError(f"env.randomize.{name}", expected + known, name, *alternative)
        # The valid values of a setting are a range. So if two bounds are valid, all values between them are.
        for value in bounds_or_choices(distribution):
            parse(task_class.options_class, options.kwargs | {name: value}, "env.randomize")
    return task_class(settings, options.action_scale, options.max_episode_steps, options.randomize)


def without_defaults(options: EnvOptions) -> EnvOptions:
    """Return options without the settings that Gymnasium's task lacks, unless they differ from their defaults.

    If no such setting is left, Gymnasium can play the same episodes.
    """
    task_class = TASKS.get(options.id)
    if task_class is None or not task_class.own_options:
        return options
    defaults = task_class.options_class().model_dump(include=set(task_class.own_options))
    # Settings that Gymnasium's task also has are not in `defaults`, so they stay.
    kwargs = {name: value for name, value in options.kwargs.items() if defaults.get(name) != value}
    # Also leave out a distribution that can only draw the default.
    possible = {name: set(bounds_or_choices(distribution)) for name, distribution in options.randomize.items()}
    randomize = {name: options.randomize[name] for name in possible if possible[name] != {defaults.get(name)}}
    return options.model_copy(update={"kwargs": kwargs, "randomize": randomize})


def kwargs_model(options: EnvOptions) -> type[Options] | None:
    """Return the class of options that describes `env.kwargs` of an exact task; None for other environments."""
    return TASKS[options.id].options_class if options.engine == "exact" and options.id in TASKS else None
