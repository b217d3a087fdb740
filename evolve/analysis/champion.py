"""The champion of a run: its genome, and what its neurons pass on while it plays."""

from dataclasses import dataclass

import numpy as np

from evolve.cluster import Coordinator
from evolve.genome import Genomes
from evolve.networks import Activity, Batch
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, by_candidate, generation_keys
from evolve.rollouts.normalization import ObservationNormalizer
from evolve.shapes import Bool, Float32
from evolve.store import Stored, StoredChampion, StoredRun
from evolve.training import Experiment, final_champion, in_generation, normalizer_of
from evolve.verification import Episode
from evolve.verification.playing import episode_batch


@dataclass(frozen=True)
class Champion:
    """A genome that stands for its run.

    Attributes:
        weights: [W].
        mask: [W].
        generation: Of which it is the best; None for the held-out champion, which a complete run ends with.
    """

    weights: Float32
    mask: Bool
    generation: int | None

    @property
    def title(self) -> str:
        """Which champion it is, in words."""
        return "held-out champion" if self.generation is None else f"best of generation {self.generation}"


def champion_of(run: Stored, generation: int | None = None) -> Champion:
    """Return the best of a completed generation; without one, the held-out champion of a complete run or its file.

    A run without a held-out evaluation is represented by the best of its last generation.
    """
    if isinstance(run, StoredChampion):
        return Champion(run.held_out.weights, run.held_out.mask, None)
    if generation is None and run.complete and run.held_out is not None:
        return Champion(run.held_out.weights, run.held_out.mask, None)
    generation = run.num_generations - 1 if generation is None else generation
    record = run.records[generation]
    return Champion(record.champion_weights, record.champion_mask, generation)


def mean_traces(run: Stored, experiment: Experiment, champion: Champion, coordinator: Coordinator) -> Float32:
    """Return [W]: a champion's mean traces over the episodes of its generation, or its held-out episodes.

    Args:
        run: The run file.
        experiment: That of the run, with a network that leaves traces.
        champion: One of the run (`champion_of`).
        coordinator: Who has the episodes played.
    """
    if champion.generation is None and run.held_out is not None:
        experiment = experiment.in_evaluation()
        purpose = Purpose.HELD_OUT
        episodes = len(run.held_out.returns)
        candidate = 0
        keys = generation_keys(0, population=1)
        _, normalizer = final_champion(experiment, run)
    else:
        assert isinstance(run, StoredRun)
        generation = run.num_generations if champion.generation is None else champion.generation
        config = experiment.config
        purpose = Purpose.EPISODE
        episodes = config.episodes
        candidate = run.records[generation].champion_candidate
        keys = generation_keys(generation, candidate + 1, config.common_random_numbers)[-1:]
        normalizer = normalizer_of(experiment, run, generation)
        experiment = in_generation(experiment, run.records, generation)
    genome = Genomes(champion.weights[None], champion.mask[None])
    batch = EpisodeBatch.of(
        run.header.seed, purpose, genome, keys, range(episodes), normalizer, candidates=np.array([candidate])
    )
    results = coordinator.evaluate(experiment.rollout_spec, batch)
    traces: Float32 = by_candidate(results, 1, episodes).traces[0]
    return traces


class NetworkObserver:
    """A copy of the network that plays an episode, to be shown the same observations; the episode knows nothing of it.

    Args:
        run: The run that the episode belongs to.
        experiment: That of the run.
        chosen: The episode.
    """

    def __init__(self, run: Stored, experiment: Experiment, chosen: Episode) -> None:
        self._batch: Batch = experiment.network.batch(1, "numpy")
        episode = episode_batch(run, experiment, chosen)
        slot = np.zeros(1, np.intp)
        self._batch.load(slot, chosen.genome.weights, chosen.genome.mask, episode.environment_seeds())
        self._observations = np.zeros((1, experiment.network.observation_size), np.float32)
        self._normalizer = None
        if experiment.config.normalize_observations:
            self._normalizer = ObservationNormalizer(self._observations, "numpy")
            self._normalizer.begin(slot, episode.normalizers)

    @property
    def shows(self) -> bool:
        """Whether this kind of network lets one look at it."""
        return hasattr(self._batch, "activity")

    def see(self, observation: Float32) -> Activity:
        """Return what the network does at an observation [O]; it has to see all of an episode, in their order."""
        self._observations[0] = observation
        self._batch.step(self._observations if self._normalizer is None else self._normalizer.normalize(1))
        activity: Activity = self._batch.activity(0)  # type: ignore[attr-defined]  # `shows` says that it is there
        return activity
