"""Looking at a network while it plays an episode: what its neurons pass on, step by step."""

import numpy as np

from evolve.networks import Activity, Batch
from evolve.rollouts.normalization import ObservationNormalizer
from evolve.shapes import Float32
from evolve.store import Stored
from evolve.training import Experiment
from evolve.verification import Episode
from evolve.verification.playing import episode_batch


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
