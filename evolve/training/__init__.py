"""Training: the experiment, the loop ask → evaluate → tell → record, and the run files that make it resumable.

`prepare` completes a configuration and refuses bad input. `iterate` evolves it generation by generation and writes to a
`RunLog`, usually a run file. Nothing here prints or handles signals.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolve.training.experiment import Experiment, load_config, prepare, validate_new_run
    from evolve.training.fitness import Scores, evaluate_population, in_generation, limit_of
    from evolve.training.loop import evaluate_champion, held_out, iterate
    from evolve.training.manifest import is_portable, make_manifest
    from evolve.training.resume import UnsavedRun
    from evolve.training.rollouts import make_rollout
    from evolve.training.shared_strategy import SharedStrategy, StrategyReplica
    from evolve.training.stored import Which, final_champion, normalizer_of, reload, reload_policy, restore

_MODULES = {
    "experiment": "Experiment load_config prepare validate_new_run",
    "fitness": "Scores evaluate_population in_generation limit_of",
    "loop": "evaluate_champion held_out iterate",
    "manifest": "is_portable make_manifest",
    "resume": "UnsavedRun",
    "rollouts": "make_rollout",
    "shared_strategy": "SharedStrategy StrategyReplica",
    "stored": "Which final_champion normalizer_of reload reload_policy restore",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each name. It is imported with the first name that needs it: a worker does without most modules."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evolve.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"evolve.training.{_HOMES[name]}"), name)
