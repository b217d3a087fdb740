"""The evaluation of the champion on held-out and validation episodes."""

import numpy as np

from evolve.cluster import Coordinator
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.rollouts import EpisodeBatch, PopulationResults, by_candidate, generation_keys
from evolve.shapes import Float32, Float64, Int64
from evolve.store import HeldOut, Stored
from evolve.training.experiment import Experiment, memory
from evolve.training.resume import final_champion

_EPISODE = 500  # approximate bytes of memory of an episode until its return is known


def held_out(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    seed: int,
    episodes: int,
    normalizer: Float32 | None,
) -> HeldOut:
    """Evaluate a champion on N episodes that training never meets. A larger N adds episodes to the same first ones.

    Args:
        experiment: The experiment of the champion.
        coordinator: Distributes the episodes.
        champion: The genome (P = 1).
        seed: The seed of the run.
        episodes: N.
        normalizer: [2, O], None if observations are not normalized.
    """
    results = _play_champion(experiment, coordinator, champion, (seed, Purpose.HELD_OUT, 0), episodes, normalizer)
    metrics = {name: values[0] for name, values in results.metrics(experiment.config.env.metrics).items()}
    zeros: Int64 = np.zeros(episodes, np.int64)
    seeds = environment_seeds(seed, Purpose.HELD_OUT, zeros, zeros, np.arange(episodes))
    return HeldOut(results.returns[0], seeds, champion.weights[0], champion.mask[0], metrics)


def evaluate_champion(
    run: Stored, experiment: Experiment, coordinator: Coordinator, episodes: int, generation: int | None = None
) -> HeldOut:
    """Evaluate a champion of a run on N held-out episodes.

    Args:
        run: The run file, or a champion file.
        experiment: The experiment of the run (`reload`), or the same one in another environment.
        coordinator: Distributes the episodes.
        episodes: N.
        generation: The generation whose best candidate is evaluated; by default the final champion.

    Raises:
        InputError: N episodes do not fit into this machine's memory, or there is no such generation.
    """
    if _EPISODE * episodes > (there := memory()):
        came = f"{episodes:,}: about {_EPISODE * episodes / 1e9:,.0f} GB"
        raise InputError("episodes", f"as many as fit into {there / 1e9:,.1f} GB of memory", came)
    champion, normalizer = final_champion(experiment, run, generation)
    return held_out(experiment, coordinator, champion, run.header.seed, episodes, normalizer)


def validation_returns(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    seed: int,
    generation: int,
    normalizer: Float32 | None,
) -> Float64:
    """Return the champion's returns [N] on the validation episodes before a generation.

    Args:
        experiment: The experiment; `early_stop.episodes` is N.
        coordinator: Distributes the episodes.
        champion: The genome (P = 1).
        seed: The seed of the run.
        generation: The next generation.
        normalizer: [2, O], None if observations are not normalized.
    """
    key = seed, Purpose.VALIDATION, generation
    episodes = experiment.config.early_stop.episodes
    returns: Float64 = _play_champion(experiment, coordinator, champion, key, episodes, normalizer).returns[0]
    return returns


def _play_champion(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    key: tuple[int, Purpose, int],
    episodes: int,
    normalizer: Float32 | None,
) -> PopulationResults:
    """Return the results (P = 1) of the first N episodes of a key (seed, purpose, generation)."""
    seed, purpose, generation = key
    keys = generation_keys(generation, population=1)
    batch = EpisodeBatch.of(seed, purpose, champion, keys, range(episodes), normalizer, traces="none")
    results = coordinator.evaluate(experiment.in_evaluation().rollout_spec, batch)
    return by_candidate(results, 1, episodes)
