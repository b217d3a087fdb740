"""The loop of training (ask → evaluate → tell → record), and the evaluation of champions on separate episodes.

`iterate` evolves an experiment, and appends a record of each generation to a log. `_Run.next_generation` is one pass of
the loop. `held_out` and `validation_returns` evaluate a champion. The step limit of training episodes may depend on the
generation, and on the episode lengths of the previous generation (`step_limit`).
"""

import math
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evolve import environments
from evolve.cluster import Coordinator
from evolve.cluster.cores import usable_memory
from evolve.config import Config
from evolve.errors import InputError, RunError
from evolve.genome import DIGEST_START, GenomeDescriptions, Genomes, GenomeSource, candidate_digests, chain_digest
from evolve.numerics import ordered_sum, restore_ieee
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.rollouts import EpisodeBatch, Moments, PopulationResults, generation_keys
from evolve.shapes import Float32, Float64, Int32, Int64
from evolve.store import HeldOut, Record, RunLog, Stored
from evolve.strategies import best_candidate
from evolve.training.experiment import Experiment
from evolve.training.fitness import Metrics, Scores, evaluate_population, mean_metrics
from evolve.training.resume import CHAMPION_NORMALIZER, champion_normalizer, restore, restore_moments
from evolve.training.shared_strategy import SharedStrategy
from evolve.training.stored import GenomeChoice, chosen_genome

_EPISODE_BYTES = 500  # approximate memory of an episode until its return is known
Player = tuple[Genomes, Float32 | None]
"""A champion (P = 1), and the normalizer [2, O] of its observations; None if they are not normalized."""
_CURE_OF_DIFFERENT_GENOMES = (
    "Use the same version of evolve on all ranks, and check their memory for faults. If the strategy is your own, let "
    "its ask depend on its arguments alone, and draw from Stream only."
)


def iterate(experiment: Experiment, coordinator: Coordinator, log: RunLog) -> Generator[Record]:
    """Evolve from the end of the log to the last generation or an early stop; then evaluate the champion.

    Yields the record of each generation when it is in the log. The log is flushed at the end, even after an error,
    so that no complete generation is lost.

    Raises:
        Stopped, EpisodeError: See `Coordinator.evaluate`.
        RunError: See `Coordinator.evaluate`. Or the log cannot be written, or ranks have different genomes.
        InputError: The checkpoint is damaged, or a fitness function or a strategy returns something invalid.
    """
    restore_ieee()  # a library that the user's script has loaded may have changed the arithmetic of this thread
    strategy, state = restore(experiment, log)
    shared = SharedStrategy(experiment, coordinator, strategy, state, log.header.seed)
    moments, normalizer = restore_moments(experiment, log), champion_normalizer(experiment, log)
    run = _Run(experiment, coordinator, log, shared, moments, normalizer)
    # The first message to a worker must be a setup, so the setup precedes the updates that `SharedStrategy.ask` sends.
    coordinator.set_up(experiment.rollout_spec)
    coordinator.take_seconds()  # discards the seconds of an earlier run
    try:
        while log.num_generations < experiment.config.generations:
            begin = time.perf_counter()  # the seconds of a generation include the validation before it
            if run.stops_early():
                break
            yield run.next_generation(begin)
        run.finish()
    finally:
        log.flush()


@dataclass
class _Run:
    """The state of a run between two generations.

    shared: The strategy and its state.
    moments: The moments of all observations so far, from which the normalizer is computed.
    champion_normalizer: The normalizer with which the champion was evaluated. None if observations are not normalized,
        or if several generations evaluate the champion. It then plays with the present normalizer.
    """

    experiment: Experiment
    coordinator: Coordinator
    log: RunLog
    shared: SharedStrategy
    moments: Moments
    champion_normalizer: Float32 | None

    def next_generation(self, begin: float) -> Record:
        """Evolve one generation, and append it to the log. begin: the time at which the generation began."""
        restore_ieee()  # since the last `yield`, the user's script may have changed the arithmetic
        config = self.experiment.config
        generation = self.log.num_generations
        # Ask for the candidates, and play their episodes.
        normalizer = self._normalizer()
        genomes = self.shared.ask(generation)
        lengths = self.log.last.lengths if self.log.last else None
        limited = _with_step_limit(self.experiment, step_limit(config, generation, lengths))
        seed, traces, flush = self.log.header.seed, self.shared.traces, self.log.flush_if_due
        results = evaluate_population(limited, self.coordinator, seed, generation, genomes, normalizer, traces, flush)
        # Compute fitness and measures for the strategy.
        descriptions = results.descriptions(genomes)
        metrics = results.metrics(config.env.metrics)
        scores = Scores.of(config, results.returns, metrics, descriptions.connections, genomes.num_weights)
        fitness = scores.fitness(results.played)
        restore_ieee()  # a fitness function of the user may have changed the arithmetic
        strategy = self.shared.strategy
        measures = strategy.measures(genomes, mean_metrics(metrics, results.returns)) if strategy.measured else None
        # Tell the strategy. A population that grows may have enough steps before all P candidates have played.
        self.shared.tell(genomes, fitness[: results.num_candidates], results, measures)
        # Make the checkpoint. Copy the table of arrays, because `to_arrays` may return the state itself.
        checkpoint = dict(strategy.to_arrays(self.shared.state))
        if normalizer is not None:
            # All episodes of a generation share one normalizer, so new observations count from the next generation on.
            until_frozen = config.normalizer_generations
            if until_frozen is None or generation < until_frozen:
                self.moments = self.moments.merged(results.lengths, results.moments)
            checkpoint |= self.moments.to_arrays()
            # The champion was evaluated with this normalizer, and must play its later episodes with the same one.
            if strategy.champion_generation(self.shared.state) == generation:
                self.champion_normalizer = normalizer
            if self.champion_normalizer is not None:
                checkpoint[CHAMPION_NORMALIZER] = self.champion_normalizer
        # Record the generation.
        previous_digest = bytes.fromhex(self.log.last.digest.decode()) if self.log.last else DIGEST_START
        strategy_columns = {"measures": measures, **strategy.outcome(self.shared.state)}
        seconds = time.perf_counter() - begin, *self.coordinator.take_seconds()
        record = generation_record(
            previous_digest, genomes, descriptions, results, fitness, metrics, normalizer, seconds, strategy_columns
        )
        stored_genomes = genomes if config.output.genomes == "all" else None
        # If workers or threads play, the log is flushed while they play the next generation.
        self.log.append(record, checkpoint, stored_genomes, flush=not self.coordinator.plays_elsewhere)
        return record

    def stops_early(self) -> bool:
        """Return whether the limit of steps is reached or, if a validation is due now, the champion is good enough."""
        stop, generations = self.experiment.config.early_stop, self.log.num_generations
        if stop.steps is not None and self.log.steps >= stop.steps:
            return True
        if stop.mean_return is None or not generations or generations % stop.every:
            return False
        player, seed = self._champion(), self.log.header.seed
        returns = validation_returns(self.experiment, self.coordinator, player, seed, generations, stop.episodes)
        # A resumed run repeats this validation, so the log may have its returns already.
        self.log.validations.setdefault(generations, returns)
        # If an episode failed, the mean is NaN, and the run goes on.
        return bool(ordered_sum(returns) / len(returns) >= stop.mean_return)

    def finish(self) -> None:
        """Evaluate the champion on held-out episodes, and mark the run as complete."""
        episodes = self.experiment.config.held_out_episodes
        if episodes:
            seed = self.log.header.seed
            self.log.held_out = held_out(self.experiment, self.coordinator, self._champion(), seed, episodes)
        self.log.complete = True

    def _normalizer(self) -> Float32 | None:
        """Return the present normalizer [2, O]; None if observations are not normalized."""
        return self.moments.normalizer() if self.experiment.config.normalize_observations else None

    def _champion(self) -> Player:
        """Return the champion, with the normalizer with which it plays now."""
        restore_ieee()  # since the last `yield`, the user's script may have changed the arithmetic
        own_normalizer = self.champion_normalizer
        normalizer = self._normalizer() if own_normalizer is None else own_normalizer
        return self.shared.strategy.champion(self.shared.state), normalizer


def step_limit(config: Config, generation: int, previous_lengths: Int32 | None) -> int | None:
    """Return the step limit of the episodes of a generation; None if only the environment limits them.

    previous_lengths: [P, E], the episode lengths of the previous generation; 0 if not played. None in generation 0.
    """
    limits = []
    if config.early_max_episode_steps is not None and generation < config.early_generations:
        limits.append(config.early_max_episode_steps)
    if config.episode_cap is not None and previous_lengths is not None and previous_lengths.any():
        lengths = previous_lengths[previous_lengths > 0]
        # A sum of integers is exact, so every machine computes the same limit.
        mean_length = int(lengths.sum(dtype=np.int64)) / len(lengths)
        limits.append(max(1, math.ceil(config.episode_cap * mean_length)))
    if not limits:
        return None
    # Lengths of episodes are int32.
    usual_limit = environments.max_episode_steps(config.env) or 2**31 - 1
    return min(*limits, usual_limit)


def _with_step_limit(experiment: Experiment, limit: int | None) -> Experiment:
    """Return an experiment with a step limit for its episodes; with None the experiment is unchanged."""
    if limit is None:
        return experiment
    return replace(experiment, config=experiment.config.with_section("env", max_episode_steps=limit))


def with_recorded_limit(experiment: Experiment, records: Sequence[Record], generation: int) -> Experiment:
    """Return an experiment with the step limit of a generation (`recorded_limit`)."""
    return _with_step_limit(experiment, recorded_limit(experiment, records, generation))


def recorded_limit(experiment: Experiment, records: Sequence[Record], generation: int) -> int | None:
    """Return the `step_limit` of a generation. records: the records of at least all earlier generations."""
    return step_limit(experiment.config, generation, records[generation - 1].lengths if generation else None)


def generation_record(
    previous_digest: bytes,
    genomes: GenomeSource,
    descriptions: GenomeDescriptions,
    results: PopulationResults,
    fitness: Float64,
    metrics: Metrics,
    normalizer: Float32 | None,
    seconds: tuple[float, Float64, Float64],
    strategy_columns: Mapping[str, Any],
) -> Record:
    """Return the record of a generation.

    Args:
        previous_digest: The digest of the previous generation.
        genomes: The P candidates.
        descriptions: The descriptions of the P genomes, if possible from the ranks that played them.
        results: The results of the candidates.
        fitness: [P].
        metrics: The metrics of the episodes by name, [P, E] each.
        normalizer: [2, O], None if observations are not normalized.
        seconds: The seconds of the generation; [R], each rank's seconds of work; [R], its seconds in environments.
        strategy_columns: The columns that only some strategies have: measures, and the values of `Strategy.outcome`.

    Raises:
        RunError: The best genome on this rank is not the genome that was played.
    """
    best = best_candidate(fitness)
    champion = genomes.take(np.array([best]))
    # Another rank may have played and described the candidate. The genome that is stored below was computed here.
    if (candidate_digests(champion)[0] != descriptions.digests[best]).any():
        raise RunError(f"candidate {best} is not the same genome on all ranks. {_CURE_OF_DIFFERENT_GENOMES}")
    digest = chain_digest(previous_digest, descriptions.digests, results.returns, results.lengths, metrics)
    # A record has columns for some quantities of an episode only. It lacks the moments, for example.
    stored = {name: values for name, values in results.quantities.items() if name in Record.__dataclass_fields__}
    generation_seconds, busy_seconds, environment_seconds = seconds
    return Record(
        **stored,
        fitness=fitness,
        connections=descriptions.connections,
        digest=digest.hex().encode(),
        seconds=generation_seconds,
        steps=int(results.lengths.sum(dtype=np.int64)),
        busy_seconds=busy_seconds,
        environment_seconds=environment_seconds,
        champion_weights=champion.weights[0],
        champion_mask=champion.mask[0],
        champion_candidate=best,
        champion_fitness=float(fitness[best]),
        champion_step_hashes=np.concatenate(results.step_hashes(best)),
        genome_fingerprints=descriptions.genome_fingerprints,
        trace_fingerprints=results.trace_fingerprints(),
        normalizer=normalizer,
        metrics=metrics,
        **strategy_columns,
    )


def held_out(experiment: Experiment, coordinator: Coordinator, player: Player, seed: int, episodes: int) -> HeldOut:
    """Evaluate a champion on N held-out episodes. With a larger N, the first episodes are the same.

    Args:
        experiment: The experiment of the champion.
        coordinator: Distributes the episodes.
        player: The champion.
        seed: The seed of the run.
        episodes: N.
    """
    champion, _ = player
    results = _play(experiment, coordinator, player, (seed, Purpose.HELD_OUT, 0), episodes)
    metrics = {name: values[0] for name, values in results.metrics(experiment.config.env.metrics).items()}
    # `_play` has played the episodes with the keys of generation 0 and candidate 0.
    zeros: Int64 = np.zeros(episodes, np.int64)
    seeds = environment_seeds(seed, Purpose.HELD_OUT, zeros, zeros, np.arange(episodes))
    return HeldOut(results.returns[0], seeds, champion.weights[0], champion.mask[0], metrics, results.lengths[0])


def evaluate_champion(
    run: Stored, experiment: Experiment, coordinator: Coordinator, episodes: int, which: GenomeChoice = GenomeChoice()
) -> HeldOut:
    """Evaluate a champion of a run on N held-out episodes.

    Args:
        run: The run file, or a champion file.
        experiment: The experiment of the run (`reload`), possibly in another environment.
        coordinator: Distributes the episodes.
        episodes: N.
        which: The genome; by default the final champion.

    Raises:
        InputError: N episodes do not fit into memory. Or the run does not have the genome, or the file is damaged.
    """
    needed, available = _EPISODE_BYTES * episodes, usable_memory()
    if needed > available:
        expected = f"as many as fit into {available / 1e9:,.1f} GB of memory"
        raise InputError("episodes", expected, f"{episodes:,}: about {needed / 1e9:,.0f} GB")
    player = chosen_genome(experiment, run, which)
    return held_out(experiment, coordinator, player, run.header.seed, episodes)


def validation_returns(
    experiment: Experiment, coordinator: Coordinator, player: Player, seed: int, generation: int, episodes: int
) -> Float64:
    """Return the champion's returns [N] on the validation episodes before a generation.

    Args:
        experiment: The experiment.
        coordinator: Distributes the episodes.
        player: The champion.
        seed: The seed of the run.
        generation: The generation that would follow the validation. It selects the episodes.
        episodes: N.
    """
    return _play(experiment, coordinator, player, (seed, Purpose.VALIDATION, generation), episodes).returns[0]


def _play(
    experiment: Experiment, coordinator: Coordinator, player: Player, selection: tuple[int, Purpose, int], episodes: int
) -> PopulationResults:
    """Return the results (P = 1) of the first N evaluation episodes that a seed, a purpose and a generation select."""
    champion, normalizer = player
    seed, purpose, generation = selection
    keys = generation_keys(generation, population=1)
    batch = EpisodeBatch.of(seed, purpose, champion, keys, range(episodes), normalizer, traces="none")
    return coordinator.evaluate(experiment.in_evaluation().rollout_spec, batch)
