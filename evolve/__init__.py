"""evolve: neuroevolution over MPI, with the same bits on any number of ranks.

    run = evolve.train(env="CartPole-v1", network="hebbian-dag", generations=20, seed=1)
    policy = run.champion()
    action = policy(observation)

`import evolve` alone imports no other module of this package. Each name below imports its module when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolve import networks, strategies
    from evolve.analysis.exhibits import RunComparison
    from evolve.analysis.generations import Evaluation, Generation
    from evolve.analysis.policy import Policy
    from evolve.analysis.runs import ChampionFile, Run
    from evolve.api import Sweep, compare, iterate, load, sweep, train
    from evolve.config import Config
    from evolve.environments import register_task
    from evolve.errors import EpisodeError, EvolveError, InputError, RunError, Stopped
    from evolve.training import Experiment
    from evolve.verification import Verdict

__version__ = "0.2.0"
"""The version, which pyproject.toml reads. A test compares it with the newest heading of the changelog."""

__all__ = [
    "ChampionFile", "Config", "EpisodeError", "Evaluation", "EvolveError", "Experiment", "Generation", "InputError",
    "Policy", "Run", "RunComparison", "RunError", "Stopped", "Sweep", "Verdict", "__version__", "compare", "iterate",
    "load", "networks", "register_task", "strategies", "sweep", "train",
]  # fmt: skip

_PACKAGES = ("networks", "strategies")
_MODULE_OF = dict.fromkeys(("EpisodeError", "EvolveError", "InputError", "RunError", "Stopped"), "evolve.errors")
_MODULE_OF["register_task"] = "evolve.environments"
"""The modules of some names. All other names come from `evolve.api`, which also imports the analysis.

A user's module with an environment often needs only these names, and then imports less.
"""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'evolve' has no attribute {name!r}")
    if name in _PACKAGES:
        return importlib.import_module(f"evolve.{name}")
    return getattr(importlib.import_module(_MODULE_OF.get(name, "evolve.api")), name)


def __dir__() -> list[str]:
    return __all__
