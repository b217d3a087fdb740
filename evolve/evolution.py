"""The loop: ask → evaluate → tell → record. The one place where all rooms meet."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve import racing, store, strategies
from evolve.cluster import Coordinator, Task, keys_of
from evolve.config import Config
from evolve.evaluation import Evaluation
from evolve.experiment import Experiment, for_each, moments_of, restore
from evolve.genome import DIGEST_START, Genomes, chain_digest
from evolve.numerics import ordered_sum
from evolve.rng import Purpose, environment_seeds
from evolve.shapes import Float32, Float64, Int64


class RunLog(Protocol):
    """What a run is written to: a run file, or what takes its place. Its fields are those of `store.RunFile`."""

    path: Path
    header: store.Header
    told: int
    steps: int
    last: store.Record | None
    checkpoint: Mapping[str, NDArray[Any]]
    held_out: store.HeldOut | None
    complete: bool

    def append(
        self, record: store.Record, checkpoint: Mapping[str, NDArray[Any]], genomes: Genomes | None = None
    ) -> None:
        """Add a generation, the state after telling it, and its candidates if they are to be kept."""

    def flush(self) -> None:
        """Put everything where it is to stay."""


def fitness_of(config: Config, genomes: Genomes, evaluation: Evaluation) -> Float64:
    """Return [P], what selection sees: mean return - connection_cost · density, the share of connections left.

    The prunable MLP's (mk1), with a weight of 1 there; NaN where an episode's return is NaN.
    """
    return racing.fitness(evaluation.returns, evaluation.played, costs_of(config, genomes))


def costs_of(config: Config, genomes: Genomes) -> Float64:
    """Return [P]: what the connections of each candidate cost."""
    costs: Float64 = config.connection_cost * (genomes.connections() / genomes.mask.shape[1])
    return costs


def evolve(
    experiment: Experiment,
    coordinator: Coordinator,
    file: RunLog,
    watch: Callable[[store.Record], None],
) -> None:
    """Evolve from where the run file stands to the last generation, or an early stop; then judge the champion.

    The run file is flushed however this ends, so that nothing told is lost. Raises Stopped and RunError as
    `Coordinator.evaluate` does.
    """
    config, network, seed = experiment.config, experiment.network, file.header.seed
    strategy, state = restore(experiment, file)
    moments = moments_of(experiment, file)
    try:
        for generation in range(file.told, config.generations):
            begin = time.perf_counter()
            normalizer = moments.normalizer() if config.normalize_observations else None
            judged = None
            if file.told and _is_due(config, file.told):
                judged = validate(experiment, coordinator, strategy.champion(state), seed, file.told, normalizer)
            if _is_enough(config, file, judged):
                break
            genomes = strategy.ask(state, generation)
            keys = keys_of(generation, config.population, config.common_random_numbers)
            task = Task(seed, Purpose.EPISODE, keys, normalizers=for_each(normalizer, len(genomes)))
            race = config.racing, costs_of(config, genomes)
            evaluation = coordinator.evaluate(task, genomes, config.episodes, network.traces, race)
            fitness = fitness_of(config, genomes, evaluation)
            state = strategy.tell(state, genomes, fitness, evaluation.traces)
            previous = bytes.fromhex(file.last.digest.decode()) if file.last else DIGEST_START
            checkpoint = strategy.to_arrays(state)
            if normalizer is not None:
                moments = moments.merged(evaluation.lengths, evaluation.moments)
                checkpoint |= moments.to_arrays()
            evaluation = evaluation.after(judged)
            record = _record(previous, genomes, evaluation, fitness, time.perf_counter() - begin, normalizer)
            file.append(record, checkpoint, genomes if config.output.genomes == "all" else None)
            watch(record)
        if config.held_out_episodes:
            champion = strategy.champion(state)
            normalizer = moments.normalizer() if config.normalize_observations else None
            file.held_out = held_out(experiment, coordinator, champion, seed, config.held_out_episodes, normalizer)
        file.complete = True
    finally:
        file.flush()


def _is_due(config: Config, told: int) -> bool:
    """Return whether the champion is to be validated."""
    return config.early_stop.mean_return is not None and told % config.early_stop.every == 0


def _is_enough(config: Config, file: RunLog, judged: Evaluation | None) -> bool:
    """Return whether a run is to stop early: it has taken its steps, or its champion is good enough."""
    stop = config.early_stop
    if stop.steps is not None and file.steps >= stop.steps:
        return True
    if judged is None or stop.mean_return is None:
        return False
    return bool(ordered_sum(judged.returns[0]) / stop.episodes >= stop.mean_return)


def _record(
    previous: bytes,
    genomes: Genomes,
    evaluation: Evaluation,
    fitness: Float64,
    seconds: float,
    normalizer: Float32 | None,
) -> store.Record:
    best = int(strategies.ranking(fitness)[0])
    return store.Record(
        returns=evaluation.returns,
        lengths=evaluation.lengths,
        fitness=fitness,
        connections=genomes.connections(),
        digest=chain_digest(previous, genomes, evaluation.returns, evaluation.lengths).hex().encode(),
        seconds=seconds,
        steps=int(evaluation.lengths.sum(dtype=np.int64)),
        busy_seconds=evaluation.busy_seconds,
        champion_weights=genomes.weights[best],
        champion_mask=genomes.mask[best],
        champion_candidate=best,
        champion_fitness=float(fitness[best]),
        champion_trail=np.concatenate(evaluation.trails.of(best, evaluation.returns.shape[1])),
        fingerprints=evaluation.fingerprints,
        genome_fingerprints=genomes.fingerprints(),
        trace_fingerprints=evaluation.trace_fingerprints(),
        environment_seconds=evaluation.environment_seconds,
        normalizer=normalizer,
    )


def held_out(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    seed: int,
    episodes: int,
    normalizer: Float32 | None,
) -> store.HeldOut:
    """Evaluate a champion (P = 1) on episodes that training never meets; more of them begin with the same ones."""
    task = Task(seed, Purpose.HELD_OUT, keys_of(0, population=1), normalizers=for_each(normalizer, 1))
    with coordinator.playing(experiment.config.in_evaluation()):
        evaluation = coordinator.evaluate(task, champion, episodes, experiment.network.traces)
    zeros: Int64 = np.zeros(episodes, np.int64)
    seeds = environment_seeds(seed, Purpose.HELD_OUT, zeros, zeros, np.arange(episodes))
    return store.HeldOut(evaluation.returns[0], seeds, champion.weights[0], champion.mask[0])


def validate(
    experiment: Experiment,
    coordinator: Coordinator,
    champion: Genomes,
    seed: int,
    told: int,
    normalizer: Float32 | None,
) -> Evaluation:
    """Evaluate a champion (P = 1) on the validation episodes that are due after `told` generations."""
    task = Task(seed, Purpose.VALIDATION, keys_of(told, population=1), normalizers=for_each(normalizer, 1))
    with coordinator.playing(experiment.config.in_evaluation()):
        return coordinator.evaluate(task, champion, experiment.config.early_stop.episodes, experiment.network.traces)
