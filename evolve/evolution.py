"""The loop: ask → evaluate → tell → record. The one place where all rooms meet."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve import environments, networks, store, strategies
from evolve.cluster import Coordinator, Task, Watchdog, keys_of
from evolve.config import ComputeOptions, Config, parse, read_table
from evolve.errors import InputError
from evolve.evaluation import Evaluation
from evolve.genome import DIGEST_START, Genomes, chain_digest
from evolve.networks import Network
from evolve.normalization import Moments
from evolve.numerics import backend
from evolve.racing import mean_return
from evolve.rng import Purpose, environment_seeds
from evolve.rollout import Rollout
from evolve.shapes import Float32, Float64, Int64


@dataclass(frozen=True)
class Experiment:
    """A configuration in full, the network it describes, and A, the network outputs that make one action."""

    config: Config
    network: Network
    action_size: int


class RunLog(Protocol):
    """What a run is written to: a run file, or what takes its place. Its fields are those of `store.RunFile`."""

    path: Path
    header: store.Header
    told: int
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


def load_config(text: str, source: str = "the experiment") -> Config:
    """Return the configuration written in a run file or sent to a worker. Raises InputError that names the source."""
    try:
        return parse(Config, read_table(text, source))
    except InputError as wrong:
        raise InputError(source, "a whole configuration", f"a damaged one ({wrong})") from None


def make_rollout(text: str) -> Rollout:
    """Return the rollout of an experiment (TOML text)."""
    config = load_config(text)
    slots = config.compute.slots or 1
    engine = environments.make(config.env, slots)
    network = networks.make(config.network, engine.observation_size, engine.action_size)
    seconds, normalize = config.env.max_episode_seconds, config.normalize_observations
    return Rollout(engine, network, slots, backend(config.compute.backend), seconds, normalize)


def prepare(config: Config) -> Experiment:
    """Complete a configuration and make its environment once, so that bad input is refused here. Raises InputError."""
    backend(config.compute.backend)
    with Watchdog(config.env.max_episode_seconds, fatal=True):
        return _prepare(config)


def _prepare(config: Config) -> Experiment:
    engine = environments.make(config.env, slots=1)
    complete = config.model_copy(
        update={
            "env": config.env.model_copy(update={"id": engine.id}),
            "compute": config.compute.model_copy(update={"slots": config.compute.slots or engine.suggested_slots()}),
            "network": networks.options(config.network),
            "strategy": strategies.options(config.strategy),
        }
    )
    network = networks.make(complete.network, engine.observation_size, engine.action_size)
    _check_size(complete, network)
    if config.compute.check:
        environments.check(engine)
    engine.close()
    return Experiment(complete, network, engine.action_size)


def _check_size(config: Config, network: Network) -> None:
    """Raise InputError for an experiment that cannot fit into this machine's memory."""
    P, E, W, slots = config.population, config.episodes, network.weights, config.compute.slots or 1
    needed = 40 * P * W + 32 * max(P * E, config.held_out_episodes) + 4 * slots * network.slot_size  # bytes, about
    there = _memory()
    if needed > there:
        sizes = f"P = {P:,} candidates of W = {W:,} weights, E = {E:,} episodes each, and {slots:,} slots"
        came = f"{sizes}: at least {needed / 1e9:,.1f} GB"
        raise InputError("population × network.hidden", f"what fits into {there / 1e9:,.1f} GB of memory", came)


def _memory() -> float:
    """Return the bytes of memory of this machine; infinity where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def reload(run: store.Run) -> Experiment:
    """Return the experiment of a run file, to be computed in whatever way suits this machine.

    Raises InputError when its configuration cannot be used here, or does not fit what was recorded.
    """
    config = load_config(run.header.config, str(run.path))
    experiment = prepare(config.model_copy(update={"compute": ComputeOptions(check=config.compute.check)}))
    if run.records:
        first, shape = run.records[0], (config.population, config.episodes)
        if first.returns.shape != shape or len(first.champion_weights) != experiment.network.weights:
            raise InputError(str(run.path), "generations that fit its configuration", "other shapes")
    return experiment


def restore(experiment: Experiment, run: store.Run | RunLog) -> tuple[Any, Any]:
    """Return the strategy of a run and its state after the last told generation.

    Raises InputError when the checkpoint does not fit.
    """
    config = experiment.config
    strategy = strategies.make(config.strategy, experiment.network, config.population, run.header.seed)
    if not run.told:
        return strategy, strategy.start()
    try:
        state = strategy.from_arrays(run.checkpoint)
        strategy.champion(state)
    except (ValueError, IndexError) as wrong:
        raise InputError(str(run.path), "a whole checkpoint", f"a damaged one ({wrong})") from None
    return strategy, state


def moments_of(experiment: Experiment, run: store.Run | RunLog) -> Moments:
    """Return the moments of what was seen in all told generations. Raises InputError when the checkpoint lacks them."""
    size = experiment.network.observation_size
    if not (experiment.config.normalize_observations and run.told):
        return Moments.none(size)
    try:
        return Moments.from_arrays(run.checkpoint, size)
    except ValueError as wrong:
        raise InputError(str(run.path), "a whole checkpoint", f"a damaged one ({wrong})") from None


def normalizer_of(experiment: Experiment, run: store.Run, generation: int) -> Float32 | None:
    """Return [2, O]: with what a generation's observations are normalized, up to the next one; None for not at all.

    Raises InputError when the file lacks it.
    """
    if not experiment.config.normalize_observations:
        return None
    if generation >= run.told:
        return moments_of(experiment, run).normalizer()
    normalizer = run.records[generation].normalizer
    if normalizer is None or normalizer.shape[1] != experiment.network.observation_size:
        raise InputError(str(run.path), f"the normalizer of generation {generation}", "none that fits")
    return normalizer


def fitness_of(config: Config, genomes: Genomes, evaluation: Evaluation) -> Float64:
    """Return [P], what selection sees: mean return - connection_cost · density, the share of connections left.

    The prunable MLP's (mk1), with a weight of 1 there; NaN where an episode's return is NaN.
    """
    density: Float64 = genomes.connections() / genomes.mask.shape[1]
    returns = mean_return(evaluation.returns, evaluation.played)
    fitness: Float64 = returns - config.connection_cost * density
    return fitness


def evolve(
    experiment: Experiment,
    coordinator: Coordinator,
    file: RunLog,
    watch: Callable[[store.Record], None],
) -> None:
    """Evolve from where the run file stands to the last generation, then judge the champion on held-out episodes.

    The run file is flushed however this ends, so that nothing told is lost. Raises Stopped and RunError as
    `Coordinator.evaluate` does.
    """
    config, network, seed = experiment.config, experiment.network, file.header.seed
    strategy, state = restore(experiment, file)
    moments = moments_of(experiment, file)
    try:
        for generation in range(file.told, config.generations):
            begin = time.perf_counter()
            genomes = strategy.ask(state, generation)
            keys = keys_of(generation, config.population, config.common_random_numbers)
            normalizer = moments.normalizer() if config.normalize_observations else None
            task = Task(seed, Purpose.EPISODE, keys, normalizers=for_each(normalizer, len(genomes)))
            evaluation = coordinator.evaluate(task, genomes, config.episodes, network.traces, config.racing)
            fitness = fitness_of(config, genomes, evaluation)
            state = strategy.tell(state, genomes, fitness, evaluation.traces)
            previous = bytes.fromhex(file.last.digest.decode()) if file.last else DIGEST_START
            checkpoint = strategy.to_arrays(state)
            if normalizer is not None:
                moments = moments.merged(evaluation.lengths, evaluation.moments)
                checkpoint |= moments.to_arrays()
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


def for_each(normalizer: Float32 | None, candidates: int) -> Float32 | None:
    """Return [P, 2, O]: the same normalizer [2, O] for each of P candidates."""
    return None if normalizer is None else np.broadcast_to(normalizer, (candidates, *normalizer.shape))


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
    evaluation = coordinator.evaluate(task, champion, episodes, experiment.network.traces)
    zeros: Int64 = np.zeros(episodes, np.int64)
    seeds = environment_seeds(seed, Purpose.HELD_OUT, zeros, zeros, np.arange(episodes))
    return store.HeldOut(evaluation.returns[0], seeds, champion.weights[0], champion.mask[0])
