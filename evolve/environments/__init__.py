"""Environments: the only room that imports Gymnasium and EnvPool.

`ENGINES` is the registry; an engine runs B slots of one environment behind the contract in `contract`.
"""

from evolve.config import EnvOptions
from evolve.environments.bare import replay
from evolve.environments.contract import Engine
from evolve.environments.drawing import Mode, drawn, has_display, without_display
from evolve.environments.envpool_engine import EnvPoolEngine
from evolve.environments.function import register_task
from evolve.environments.gymnasium_engine import GymnasiumEngine
from evolve.environments.recording import Recorder, Recording
from evolve.environments.repeatable import check

__all__ = [
    "ENGINES",
    "Engine",
    "Mode",
    "Recorder",
    "Recording",
    "check",
    "chunk_seconds",
    "drawn",
    "has_display",
    "make",
    "register_task",
    "replay",
    "without_display",
]

ENGINES: dict[str, type[GymnasiumEngine | EnvPoolEngine]] = {"gymnasium": GymnasiumEngine, "envpool": EnvPoolEngine}


def chunk_seconds(options: EnvOptions) -> float:
    """Return how much work should be begun together: much where that means a new pool, stepped to its last episode."""
    return 0.2 if options.engine == "envpool" else 0.01


def make(options: EnvOptions, slots: int) -> Engine:
    """Return the engine that the `[env]` table names, with B = `slots` slots. Raises InputError."""
    return ENGINES[options.engine](options, slots)
