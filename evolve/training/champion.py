"""The champion: its evaluation on held-out and validation episodes, and its policy."""

from typing import Any

import numpy as np

from evolve import environments
from evolve.cluster import Coordinator
from evolve.errors import InputError, check_whole
from evolve.genome import Genomes
from evolve.numerics import host_backend
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.rollouts import EpisodeBatch, PopulationResults, by_candidate, generation_keys
from evolve.rollouts.inference import ObservationNormalizer
from evolve.shapes import Float32, Float64, Int64, check_shape
from evolve.store import HeldOut, Stored
from evolve.training.experiment import Experiment, load_config, memory, prepare
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


class Policy:
    """Maps observations of an environment to actions as in training, including the normalization of observations.

    A policy has a state if its network remembers or learns within an episode: call `reset` at the start of each
    episode. A policy can be pickled and copied.

    Args:
        experiment: The experiment of the genome.
        genome: [1, W].
        normalizer: [2, O], None if observations are not normalized.
    """

    def __init__(self, experiment: Experiment, genome: Genomes, normalizer: Float32 | None = None) -> None:
        self.experiment = experiment
        self.genome = genome
        self._engine = environments.make(experiment.config.env, slots=1)
        self._engine.close()  # closes the environment; the engine still encodes observations and decodes actions
        kernel = host_backend(experiment.config.compute.backend)
        self._batch = experiment.network.batch(1, kernel)
        self._observations = np.zeros((1, self._engine.observation_size), np.float32)
        self.normalizer = normalizer
        self._normalized: ObservationNormalizer | None = None
        if normalizer is not None:
            self._normalized = ObservationNormalizer(self._observations, kernel)
            self._normalized.begin(np.zeros(1, np.intp), normalizer[None])
        self.reset()

    def reset(self, seed: int = 0) -> None:
        """Forget the last episode.

        Args:
            seed: The seed with which the environment is reset. Networks that draw weights for each episode
                (plastic-mlp) draw them by this seed.

        Raises:
            InputError: The seed is negative, or not a whole number.
        """
        self._seed = seed = check_whole("seed", seed, 0)
        slot = np.zeros(1, np.intp)
        self._batch.load(slot, self.genome.weights, self.genome.mask, np.array([seed]))

    def outputs(self, observation: Any) -> Float32:
        """Advance the network by one step; return its outputs [A] in [-1, 1], from which `decode` makes the action.

        observation: an observation of the environment. Raises ValueError if it has another shape.
        """
        try:
            self._observations[0] = self._engine.encode(observation)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            expected = f"an observation of {self.experiment.config.env.id}, {self._engine.observation_size} numbers"
            raise ValueError(f"observation: expected {expected}, got an invalid one ({error})") from None
        seen = self._observations if self._normalized is None else self._normalized.normalize(1)
        outputs: Float32 = self._batch.step(seen)[0]
        return outputs

    def decode(self, outputs: Float32) -> Any:
        """Return the environment's action for network outputs [A]. Raises ValueError if they have another shape."""
        outputs = np.asarray(outputs, np.float32)
        check_shape(outputs, "outputs", "A", np.float32, A=self._engine.action_size)
        return self._engine.decode(outputs[None])[0]

    def __call__(self, observation: Any) -> Any:
        """Advance the network by one step; return the action for the environment's `step`."""
        return self.decode(self.outputs(observation))

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copy and pickle: a copy has the same seed and is at the start of an episode."""
        return _restored, (self.experiment.config.to_toml(), self.genome, self.normalizer, self._seed)

    def __repr__(self) -> str:
        config = self.experiment.config
        connections = int(self.genome.connections()[0])
        return f"<Policy: {config.network.name} with {connections:,} connections for {config.env.id}>"


def _restored(text: str, genome: Genomes, normalizer: Float32 | None, seed: int) -> Policy:
    """Return the policy of an experiment (TOML text), at the start of an episode."""
    policy = Policy(prepare(load_config(text)), genome, normalizer)
    policy.reset(seed)
    return policy
