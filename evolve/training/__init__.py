"""Training: what an experiment is, the loop ask → evaluate → tell → record, and how a run is taken up again.

`prepare` completes a configuration and refuses bad input, `iterate` evolves it generation by generation, writing to a
`RunLog`, most often a run file. Fitness, with racing over episodes, is one module. No printing, no signals.
"""

from evolve.training.champion import evaluate_champion, held_out
from evolve.training.experiment import Experiment, is_portable, load_config, prepare, reload, settings_text
from evolve.training.fitness import connection_costs, evaluate_population, in_generation, limit_of, mean_return
from evolve.training.loop import iterate
from evolve.training.manifest import manifest
from evolve.training.resume import validate_new_run
from evolve.training.rollouts import make_rollout
from evolve.training.run_log import RunLog, RunState, final_champion, normalizer_of, restore
from evolve.training.shared_strategy import SharedStrategy, StrategyReplica

__all__ = [
    "Experiment",
    "RunLog",
    "RunState",
    "SharedStrategy",
    "StrategyReplica",
    "connection_costs",
    "evaluate_champion",
    "evaluate_population",
    "final_champion",
    "held_out",
    "in_generation",
    "is_portable",
    "iterate",
    "limit_of",
    "load_config",
    "make_rollout",
    "manifest",
    "mean_return",
    "normalizer_of",
    "prepare",
    "reload",
    "restore",
    "settings_text",
    "validate_new_run",
]
