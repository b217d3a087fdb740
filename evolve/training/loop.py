"""The loop: ask → evaluate → tell → record."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.cluster import Coordinator
from evolve.config import Config
from evolve.genome import DIGEST_START, Genomes, candidate_digests, chain_digest
from evolve.numerics import ordered_sum
from evolve.rollouts import Moments, PopulationResults
from evolve.shapes import Float32, Float64
from evolve.store import Record
from evolve.strategies import Results, Strategy, ranking
from evolve.training.champion_evaluation import held_out, validation_returns
from evolve.training.experiment import Experiment
from evolve.training.fitness import connection_costs, evaluate_population, mean_return
from evolve.training.run_log import RunLog, restore, restore_moments


def iterate(experiment: Experiment, coordinator: Coordinator, log: RunLog) -> Iterator[Record]:
    """Evolve from where the log ends to the last generation, or an early stop; then evaluate the champion.

    Yields each generation once it is in the log. The log is flushed however this ends, so that no complete generation
    is lost. Raises Stopped, EpisodeError and RunError as `Coordinator.evaluate` does.
    """
    run = _Run(experiment, coordinator, log, *restore(experiment, log), restore_moments(experiment, log))
    coordinator.prepare(experiment.rollout_spec)
    coordinator.take_seconds()  # those of an earlier run are not of this one
    try:
        while log.num_generations < experiment.config.generations:
            begin = time.perf_counter()
            if run.is_finished():
                break
            yield run.next_generation(begin)
        run.finish()
    finally:
        log.flush()


@dataclass
class _Run:
    """A run between two generations."""

    experiment: Experiment
    coordinator: Coordinator
    log: RunLog
    strategy: Strategy[Any]
    state: Any
    moments: Moments

    def next_generation(self, begin: float) -> Record:
        """Evolve one generation, which has begun at a time, and put it into the log."""
        config = self.experiment.config
        generation = self.log.num_generations
        normalizer = self._normalizer()
        genomes = self.strategy.ask(self.state, generation)
        results = evaluate_population(
            self.experiment, self.coordinator, self.log.header.seed, generation, genomes, normalizer
        )
        fitness = mean_return(results.returns, results.played, connection_costs(config, genomes))
        self.state = self.strategy.tell(self.state, genomes, Results(fitness, results.traces))
        checkpoint = self.strategy.to_arrays(self.state)
        if normalizer is not None:
            self.moments = self.moments.merged(results.lengths, results.moments)
            checkpoint |= self.moments.to_arrays()
        seconds = self.coordinator.take_seconds()
        record = generation_record(
            self._last_digest(), genomes, results, fitness, normalizer, (time.perf_counter() - begin, *seconds)
        )
        self.log.append(record, checkpoint, genomes if config.output.genomes == "all" else None)
        return record

    def is_finished(self) -> bool:
        """Return whether the run is to stop early: it has taken its steps, or its champion is good enough."""
        stop = self.experiment.config.early_stop
        if stop.steps is not None and self.log.steps >= stop.steps:
            return True
        if not is_validation_due(self.experiment.config, self.log.num_generations):
            return False
        returns = validation_returns(
            self.experiment,
            self.coordinator,
            self.strategy.champion(self.state),
            self.log.header.seed,
            self.log.num_generations,
            self._normalizer(),
        )
        return is_good_enough(self.experiment.config, returns)

    def finish(self) -> None:
        """Evaluate the champion on held-out episodes, and call the run complete."""
        episodes = self.experiment.config.held_out_episodes
        if episodes:
            champion = self.strategy.champion(self.state)
            seed = self.log.header.seed
            self.log.held_out = held_out(
                self.experiment, self.coordinator, champion, seed, episodes, self._normalizer()
            )
        self.log.complete = True

    def _normalizer(self) -> Float32 | None:
        return self.moments.normalizer() if self.experiment.config.normalize_observations else None

    def _last_digest(self) -> bytes:
        last = self.log.last
        return bytes.fromhex(last.digest.decode()) if last else DIGEST_START


def is_validation_due(config: Config, num_generations: int) -> bool:
    """Return whether the champion is to be validated after so many generations."""
    stop = config.early_stop
    return stop.mean_return is not None and num_generations > 0 and num_generations % stop.every == 0


def is_good_enough(config: Config, returns: Float64) -> bool:
    """Return whether a champion's validation returns [N] end the run."""
    least = config.early_stop.mean_return
    return least is not None and bool(ordered_sum(returns) / len(returns) >= least)


def generation_record(
    previous: bytes,
    genomes: Genomes,
    results: PopulationResults,
    fitness: Float64,
    normalizer: Float32 | None,
    seconds: tuple[float, Float64, Float64],
) -> Record:
    """Return the record of a generation.

    Args:
        previous: The digest of the one before.
        genomes: [P, W], its candidates.
        results: What these did.
        fitness: [P], what selection saw.
        normalizer: [2, O], None where observations are not normalized.
        seconds: Of the generation, and for each rank [R] at work and in environments.
    """
    best = int(ranking(fitness)[0])
    digest = chain_digest(previous, candidate_digests(genomes), results.returns, results.lengths)
    return Record(
        **{name: values for name, values in results.quantities.items() if name in Record.__dataclass_fields__},
        fitness=fitness,
        connections=genomes.connections(),
        digest=digest.hex().encode(),
        seconds=seconds[0],
        steps=int(results.lengths.sum(dtype=np.int64)),
        busy_seconds=seconds[1],
        environment_seconds=seconds[2],
        champion_weights=genomes.weights[best],
        champion_mask=genomes.mask[best],
        champion_candidate=best,
        champion_fitness=float(fitness[best]),
        champion_step_hashes=np.concatenate(results.step_hashes(best)),
        genome_fingerprints=genomes.fingerprints(),
        trace_fingerprints=results.trace_fingerprints(),
        normalizer=normalizer,
    )
