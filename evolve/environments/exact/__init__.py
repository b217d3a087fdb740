"""Exact tasks: environments of our own in IEEE arithmetic alone, whose episodes have the same bits on every processor.

Each file defines one task by array operations; `environments/kernels/` has the same in C. The classical ones follow
Gymnasium's formulas, but not its bits, which libm decides.
"""

from evolve.environments.exact.bandit import Bandit
from evolve.environments.exact.bipedal_walker import BipedalWalker, BipedalWalkerHardcore
from evolve.environments.exact.classic_control import Acrobot, CartPole, MountainCar, MountainCarContinuous, Pendulum
from evolve.environments.exact.cues import Cues
from evolve.environments.exact.lunar_lander import LunarLander, LunarLanderContinuous
from evolve.environments.exact.reversal import Reversal
from evolve.environments.exact.t_maze import TMaze
from evolve.environments.exact.task import AnyTask, Draws, Moved

__all__ = ["TASKS", "AnyTask", "Draws", "Moved"]

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
