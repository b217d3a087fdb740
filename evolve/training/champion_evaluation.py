"""Evaluating a champion on episodes of its own: held-out ones, and those of validation."""

import numpy as np

from evolve.cluster import Coordinator
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.rollouts import (
    EpisodeBatch,
    by_candidate,
    generation_keys,
)
from evolve.shapes import Float32, Float64, Int64
from evolve.store import HeldOut, Stored
from evolve.training.experiment import Experiment, memory
from evolve.training.run_log import final_champion

_EPISODE = 500  # bytes of memory that an episode takes until its return is known, about


def held_out(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    seed: int,
    episodes: int,
    normalizer: Float32 | None,
) -> HeldOut:
    """Evaluate a champion (P = 1) on episodes that training never meets; more of them begin with the same ones.

    Args:
        experiment: What the champion was evolved for.
        coordinator: Who has the episodes played.
        champion: Its genome.
        seed: Of the run.
        episodes: N.
        normalizer: [2, O], None where observations are not normalized.
    """
    returns = _champion_returns(experiment, coordinator, champion, (seed, Purpose.HELD_OUT, 0), episodes, normalizer)
    zeros: Int64 = np.zeros(episodes, np.int64)
    seeds = environment_seeds(seed, Purpose.HELD_OUT, zeros, zeros, np.arange(episodes))
    return HeldOut(returns, seeds, champion.weights[0], champion.mask[0])


def evaluate_champion(run: Stored, experiment: Experiment, coordinator: Coordinator, episodes: int) -> HeldOut:
    """Evaluate the final champion of a run on N held-out episodes.

    Args:
        run: The run file, or a champion file.
        experiment: That of the run (`reload`), or the same one in another environment.
        coordinator: Who has the episodes played.
        episodes: N.

    Raises:
        InputError: So many episodes cannot fit into this machine's memory.
    """
    if _EPISODE * episodes > (there := memory()):
        came = f"{episodes:,}: some {_EPISODE * episodes / 1e9:,.0f} GB"
        raise InputError("episodes", f"as many as fit into {there / 1e9:,.1f} GB of memory", came)
    champion, normalizer = final_champion(experiment, run)
    return held_out(experiment, coordinator, champion, run.header.seed, episodes, normalizer)


def validation_returns(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    seed: int,
    generation: int,
    normalizer: Float32 | None,
) -> Float64:
    """Return [N]: those of a champion (P = 1) on the validation episodes that are due before a generation.

    Args:
        experiment: What is evolved; `early_stop.episodes` is N.
        coordinator: Who has the episodes played.
        champion: Its genome.
        seed: Of the run.
        generation: The one that comes next.
        normalizer: [2, O], None where observations are not normalized.
    """
    key = seed, Purpose.VALIDATION, generation
    episodes = experiment.config.early_stop.episodes
    return _champion_returns(experiment, coordinator, champion, key, episodes, normalizer)


def _champion_returns(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    key: tuple[int, Purpose, int],
    episodes: int,
    normalizer: Float32 | None,
) -> Float64:
    """Return [N], those of episodes of a key (seed, purpose, generation), by their number."""
    seed, purpose, generation = key
    keys = generation_keys(generation, population=1)
    batch = EpisodeBatch.of(seed, purpose, champion, keys, range(episodes), normalizer, traces="none")
    results = coordinator.evaluate(experiment.in_evaluation().rollout_spec, batch)
    returns: Float64 = by_candidate(results, 1, episodes).returns[0]
    return returns
