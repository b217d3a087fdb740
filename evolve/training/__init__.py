"""Training: the experiment, the loop ask → evaluate → tell → record, and the run files that make it resumable.

`prepare` completes a configuration and refuses bad input. `iterate` evolves it generation by generation and writes to a
`RunLog`, usually a run file. Nothing here prints or handles signals.
"""

from evolve.training.experiment import Experiment, load_config, prepare, validate_new_run
from evolve.training.fitness import Scores, evaluate_population, in_generation, limit_of
from evolve.training.loop import evaluate_champion, held_out, iterate
from evolve.training.manifest import is_portable, manifest
from evolve.training.resume import UnsavedRun
from evolve.training.rollouts import make_rollout
from evolve.training.shared_strategy import SharedStrategy, StrategyReplica
from evolve.training.stored import Which, final_champion, normalizer_of, reload, reload_policy, restore
