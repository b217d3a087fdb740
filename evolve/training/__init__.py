"""Training evolves an experiment by the loop ask → evaluate → tell → record, and can resume it from a run file.

`prepare` completes a configuration and refuses bad input. `iterate` evolves it generation by generation, and writes to
a `RunLog`, usually a run file. Nothing here prints or handles signals.
"""

from typing import TYPE_CHECKING

from evolve.errors import import_on_demand

if TYPE_CHECKING:
    from evolve.training.experiment import Experiment, config_of, load_config, prepare, validate_new_run
    from evolve.training.fitness import Scores
    from evolve.training.loop import (
        evaluate_champion,
        held_out,
        iterate,
        recorded_limit,
        validation_returns,
        with_recorded_limit,
    )
    from evolve.training.manifest import is_portable, make_manifest
    from evolve.training.resume import restore
    from evolve.training.rollouts import make_rollout
    from evolve.training.shared_strategy import StrategyReplica
    from evolve.training.stored import GenomeChoice, chosen_genome, normalizer_of, reload, reload_policy, with_network

__getattr__ = import_on_demand(
    __name__,
    {
        "experiment": "Experiment config_of load_config prepare validate_new_run",
        "fitness": "Scores",
        "loop": "evaluate_champion held_out iterate recorded_limit validation_returns with_recorded_limit",
        "manifest": "is_portable make_manifest",
        "resume": "restore",
        "rollouts": "make_rollout",
        "shared_strategy": "StrategyReplica",
        "stored": "GenomeChoice chosen_genome normalizer_of reload reload_policy with_network",
    },
)
