"""Exact tasks: the project's own environments in IEEE arithmetic, whose episodes have the same bits on every processor.

`TASKS` is the registry. Each module here defines tasks by array operations. For each task, a header in
`environments/kernels/` has the same operations in C; its name is the task's `kernel`. The classical tasks follow
Gymnasium's formulas, but not its bits, which depend on libm.
"""

from evolve.config import EnvOptions, Options, nearest, parse
from evolve.environments.exact.bipedal_walker import BipedalWalker, BipedalWalkerHardcore
from evolve.environments.exact.classic_control import Acrobot, CartPole, MountainCar, MountainCarContinuous, Pendulum
from evolve.environments.exact.lifetime_learning import Bandit, Cues, Reversal, TMaze
from evolve.environments.exact.lunar_lander import LunarLander, LunarLanderContinuous
from evolve.environments.exact.task import AnyTask, Draws, Moved
from evolve.errors import InputError, Setting

__all__ = ["TASKS", "AnyTask", "Draws", "Moved", "exact_task", "kwargs_model"]

TASKS: dict[str, type[AnyTask]] = {
    "Acrobot-v1": Acrobot,
    "Bandit-v0": Bandit,
    "BipedalWalker-v3": BipedalWalker,
    "BipedalWalkerHardcore-v3": BipedalWalkerHardcore,
    "CartPole-v1": CartPole,
    "Cues-v0": Cues,
    "LunarLander-v3": LunarLander,
    "LunarLanderContinuous-v3": LunarLanderContinuous,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Pendulum-v1": Pendulum,
    "Reversal-v0": Reversal,
    "TMaze-v0": TMaze,
}
"""The exact tasks by the ids of their environments."""


def exact_task(options: EnvOptions) -> AnyTask:
    """Return the exact task that options name. Raises InputError if it does not exist or the options do not fit."""
    kind = TASKS.get(options.id)
    gymnasium = Setting("env.engine", "gymnasium")
    if kind is None:
        cure = f"{nearest(options.id, TASKS, listed=True)} Or use "
        raise InputError("env.id", "an environment of the exact engine", options.id, cure, gymnasium, ".")
    if options.wrappers:
        message = "Exact environments take no wrappers. Use ", gymnasium, ", or no env.wrappers."
        raise InputError.plainly("env.wrappers", *message)
    settings = parse(kind.settings, options.kwargs, "env.kwargs")
    return kind(settings, options.action_scale, options.max_episode_steps)


def kwargs_model(options: EnvOptions) -> type[Options] | None:
    """Return the model of `env.kwargs` for an exact task; None for other environments."""
    kind = TASKS.get(options.id) if options.engine == "exact" else None
    return kind.settings if kind is not None else None
