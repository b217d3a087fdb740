"""The champion of a run: its genome, its traces, its network at work, and its file."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evolve import training, verification
from evolve.cluster import Coordinator
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.networks import Activity, Batch
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch
from evolve.rollouts.inference import ObservationNormalizer
from evolve.shapes import Bool, Float32
from evolve.store import Stored, StoredChampion, StoredRun, disk, write_champion
from evolve.training import Experiment
from evolve.verification import Episode
from evolve.verification.playing import episode_batch

SUFFIX = ".champion"
"""The ending of a champion file's name."""


@dataclass(frozen=True)
class Champion:
    """A genome that represents its run.

    Attributes:
        weights: [W].
        mask: [W].
        generation: The generation of which it is the best; None for the held-out champion of a complete run.
        name: The kind of champion in words, if it is another genome that the strategy keeps.
    """

    weights: Float32
    mask: Bool
    generation: int | None
    name: str = ""

    @property
    def title(self) -> str:
        """The kind of champion, in words."""
        usual = "held-out champion" if self.generation is None else f"best of generation {self.generation}"
        return self.name or usual


def champion_of(run: Stored, generation: int | None = None) -> Champion:
    """Return the best of a completed generation; by default, the held-out champion of a complete run or of its file.

    A run without a held-out evaluation is represented by the best of its last generation.
    """
    if isinstance(run, StoredChampion):
        return Champion(run.held_out.weights, run.held_out.mask, None)
    if generation is None and run.complete and run.held_out is not None:
        return Champion(run.held_out.weights, run.held_out.mask, None)
    generation = run.num_generations - 1 if generation is None else generation
    record = run.records[generation]
    return Champion(record.champion_weights, record.champion_mask, generation)


def export_champion(run: Stored, path: Path) -> StoredChampion:
    """Write the final champion of a run or file with its held-out returns to a file; return the contents of the file.

    Raises InputError if the run has no held-out returns of its champion yet, the file cannot be written, or its name
    has another ending than `SUFFIX`, since it might replace a file of another kind.
    """
    disk.check_writable(path, (SUFFIX,))
    if run.held_out is None:
        cure = f"Evaluate its champion first: python -m evolve.evaluate {shlex.quote(str(run.path))}"
        raise InputError(str(run.path), "a run with held-out returns of its champion", "none yet", cure)
    experiment = training.reload_policy(run)
    champion, normalizer = training.final_champion(experiment, run)
    # The file is to prove its returns, so they must be returns of the genome in it.
    kept = run.held_out
    if not (np.array_equal(champion.weights[0], kept.weights) and np.array_equal(champion.mask[0], kept.mask)):
        raise InputError(str(run.path), "held-out returns of its champion", "held-out returns of another genome")
    work = run.digest, run.num_generations, run.steps, run.seconds
    # A file of an earlier version lacks the spaces; a new file has them.
    header = replace(run.header, spaces=experiment.spaces.to_json())
    stored = StoredChampion(path, header, kept, normalizer, *work)
    write_champion(stored)
    return stored


def mean_traces(run: Stored, experiment: Experiment, champion: Champion, coordinator: Coordinator) -> Float32:
    """Return [W]: a champion's mean traces over the episodes of its generation, or over its held-out episodes.

    Args:
        run: The run file.
        experiment: The experiment of the run, with a network that leaves traces.
        champion: A champion of the run (`champion_of`).
        coordinator: Plays the episodes.
    """
    purpose = Purpose.HELD_OUT if champion.generation is None else Purpose.EPISODE
    chosen = verification.choose_episode(run, experiment, champion.generation, purpose=purpose)
    first = episode_batch(run, experiment, chosen)
    if champion.generation is None:
        assert run.held_out is not None
        episodes = len(run.held_out.returns)
        experiment = experiment.in_evaluation()
    else:
        assert isinstance(run, StoredRun)
        episodes = experiment.config.episodes
        experiment = training.in_generation(experiment, run.records, champion.generation)
    genome = Genomes(champion.weights[None], champion.mask[None])
    candidate = np.array([chosen.candidate])
    batch = EpisodeBatch.of(
        run.header.seed, purpose, genome, first.keys, range(episodes), first.normalizers, candidates=candidate
    )
    traces: Float32 = coordinator.evaluate(experiment.rollout_spec, batch).traces[0]
    return traces


def typical_episode(run: Stored, experiment: Experiment, champion: Champion) -> tuple[Episode, str]:
    """Return an episode that shows a champion, and its description: the held-out episode of median return.

    A champion that was not evaluated is shown in the first episode of its generation.
    """
    if champion.generation is not None or run.held_out is None:
        return verification.choose_episode(run, experiment, champion.generation), "its first episode"
    # Of an even number of episodes, the lower of the two in the middle.
    returns = run.held_out.returns
    median = int(np.argsort(returns, kind="stable")[(len(returns) - 1) // 2])
    episode = verification.choose_episode(run, experiment, episode=median, purpose=Purpose.HELD_OUT)
    return episode, f"the episode of median return, number {median}"


class NetworkObserver:
    """A copy of the network of an episode. It receives the same observations, and does not affect the episode.

    Args:
        run: The run of the episode.
        experiment: The experiment of the run.
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
        """Whether this kind of network reports its activity."""
        return hasattr(self._batch, "activity")

    def see(self, observation: Float32) -> Activity:
        """Return the activity at an observation [O]; to be called with all observations of an episode, in order."""
        self._observations[0] = observation
        self._batch.step(self._observations if self._normalizer is None else self._normalizer.normalize(1))
        activity: Activity = self._batch.activity(0)  # type: ignore[attr-defined]  # `shows` says that it is there
        return activity
