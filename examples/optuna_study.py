"""Let Optuna choose settings: each trial evolves the same experiment with some seeds, and hopeless trials are pruned.

    pip install optuna
    python examples/optuna_study.py --trials 20

A trial's score is the mean held-out return over its seeds. The best of many trials is also the luckiest one: all trials
have the same seeds. So the best settings are run again with other seeds, and their mean is the result. The study's own
random stream has a seed, too, so the whole study repeats. Run files: runs/study/trial-N/seed-S.h5.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import evolve

EXPERIMENT = {"env": "CartPole-v1", "network": "elman", "strategy": "ga", "population": 32, "episodes": 2}


def all_generations(file: Path, settings: dict[str, Any], seed: int) -> Iterator[evolve.Generation]:
    """Yield the generations that a run file holds, then the other ones, which `evolve.iterate` evolves."""
    # A study that is run again has to see the same numbers, or it prunes other trials and chooses other settings.
    if file.exists():
        yield from evolve.load(file).generations
    yield from evolve.iterate(settings, seed=seed, held_out_episodes=20, output=file.parent, resume=True)


def settings_of(trial: Any) -> dict[str, Any]:
    """Return the experiment of a trial."""
    return EXPERIMENT | {
        "network": {"name": "elman", "hidden": [trial.suggest_int("hidden", 2, 16)]},
        "strategy": {"name": "ga", "weight_noise": trial.suggest_float("weight_noise", 0.01, 1.0, log=True)},
    }


def score(trial: optuna.Trial, seeds: int, generations: int) -> float:
    """Return the mean held-out return of a trial over its seeds. Raises TrialPruned if the trial is hopeless."""
    settings = settings_of(trial)
    returns = []
    for seed in range(1, seeds + 1):
        file = Path(f"runs/study/trial-{trial.number}/seed-{seed}.h5")
        for generation in all_generations(file, settings | {"generations": generations}, seed):
            trial.report(generation.best, (seed - 1) * generations + generation.number)
            if trial.should_prune():
                raise optuna.TrialPruned
        returns.append(evolve.load(file).held_out.mean)
    return float(np.mean(returns))


def main() -> None:
    """Run the study and print its best settings."""
    parser = argparse.ArgumentParser(description="Choose settings of an experiment with Optuna.")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="of each trial")
    parser.add_argument("--generations", type=int, default=10)
    options = parser.parse_args()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=1))
    study.optimize(lambda trial: score(trial, options.seeds, options.generations), n_trials=options.trials)
    best = study.best_trial
    print(f"best: trial {best.number} with {best.params}: held-out mean {best.value:.1f}, flattered by the choice")
    new = [100 + seed for seed in range(1, options.seeds + 1)]
    settings = settings_of(optuna.trial.FixedTrial(best.params)) | {"generations": options.generations}
    runs = evolve.sweep({}, settings, seeds=new, held_out_episodes=20, output=f"runs/study/best-{best.number}")
    print(f"with the new seeds {new}: held-out mean {np.mean([run.held_out.mean for run in runs]):.1f}")


if __name__ == "__main__":
    main()
