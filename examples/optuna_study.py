"""Let Optuna choose settings: each trial evolves the same experiment with some seeds, and hopeless trials are pruned.

    pip install optuna
    python examples/optuna_study.py --trials 20

A trial's score is the mean held-out return over its seeds, so that no lucky seed wins; the study's own random stream
has a seed, too, so the whole study repeats. Run files: runs/study/trial-N/seed-S.h5.
"""

import argparse

import numpy as np
import optuna

import evolve

EXPERIMENT = {"env": "CartPole-v1", "network": "elman", "strategy": "ga", "population": 32, "episodes": 2}


def score(trial: optuna.Trial, seeds: int, generations: int) -> float:
    """Return the mean held-out return of a trial over its seeds. Raises TrialPruned if the trial is hopeless."""
    settings = EXPERIMENT | {
        "network": {"name": "elman", "hidden": [trial.suggest_int("hidden", 2, 16)]},
        "strategy": {"name": "ga", "weight_noise": trial.suggest_float("weight_noise", 0.01, 1.0, log=True)},
    }
    returns = []
    for seed in range(1, seeds + 1):
        output = f"runs/study/trial-{trial.number}"
        for generation in evolve.iterate(
            settings, seed=seed, generations=generations, held_out_episodes=20, output=output, resume=True
        ):
            trial.report(generation.best, (seed - 1) * generations + generation.number)
            if trial.should_prune():
                raise optuna.TrialPruned
        returns.append(evolve.load(f"{output}/seed-{seed}.h5").held_out.mean)
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
    print(f"best: trial {study.best_trial.number} with {study.best_params}: held-out mean {study.best_value:.1f}")


if __name__ == "__main__":
    main()
