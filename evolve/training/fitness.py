"""Fitness: what selection sees of the episodes that candidates have played, and who plays how many of them.

Racing is successive halving (Karnin, Koren and Somekh, 2013; Jamieson and Talwalkar, 2016) over the episodes of one
generation: after each round the best `keep` of those still in the race go on, by their mean return so far. Who goes on
follows from returns alone, so it is the same on any number of ranks.

A population may grow instead, as that of Toklu, Liskowski and Srivastava (2020, ClipUp) and EvoTorch does: L =
`least_population` candidates play all their episodes, then L more, until `num_interactions` environment steps were made
in the generation, or all P have played. Who plays follows from lengths alone. The others have no fitness (NaN), and the
strategy gets the results of those who played.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.cluster import Coordinator
from evolve.config import Config, RacingOptions
from evolve.genome import GenomeSource
from evolve.numerics import ordered_sum
from evolve.numerics.streams import Purpose
from evolve.rollouts import (
    EpisodeBatch,
    EpisodeResults,
    PopulationResults,
    Traces,
    by_candidate,
    generation_keys,
    join,
    sum_traces,
)
from evolve.shapes import Bool, Float32, Float64, Int32
from evolve.strategies import ranking
from evolve.training.experiment import Experiment


def connection_costs(config: Config, connections: Int32, num_weights: int) -> Float64:
    """Return [P]: what connections [P] cost, `connection_cost` times the share of the W weights that are left."""
    costs: Float64 = config.connection_cost * (connections / num_weights)
    return costs


def mean_return(returns: Float64, played: Bool, costs: Float64) -> Float64:
    """Return the fitness [P]: the mean return over the episodes played, added up in a fixed order, less the costs.

    A fitness is NaN where an episode's return is. Whoever left the race has at most the fitness of everybody who stayed
    longer: a good mean over few episodes is luck.

    Args:
        returns: [P, E].
        played: [P, E], the first episodes of each candidate.
        costs: [P].
    """
    counts = np.count_nonzero(played, axis=1)
    fitness = np.full(len(returns), np.nan)
    most = np.inf
    for count in np.unique(counts)[::-1].tolist():
        if count:
            rows = np.flatnonzero(counts == count)
            fitness[rows] = np.minimum(ordered_sum(returns[rows, :count]) / count - costs[rows], most)
            most = min(most, float(np.fmin.reduce(fitness[rows], initial=np.inf)))
    return fitness


@dataclass(frozen=True)
class Round:
    """A round of a race: the candidates [n] that are still in it play a range of their episodes."""

    candidates: NDArray[Any]
    episodes: range


def first_round(options: RacingOptions, population: int, episodes: int) -> Round:
    """Return the round in which all P candidates play; the only one, of all E episodes, where there is no race."""
    return Round(np.arange(population), range(_limits(options, episodes)[0]))


def next_round(last: Round, options: RacingOptions, returns: Float64, costs: Float64) -> Round | None:
    """Return the round after `last`, None where that was the final one.

    Args:
        last: The round whose returns came in last.
        options: The episodes after which candidates leave, and the share that stays.
        returns: [P, E], so far.
        costs: [P], what each candidate's fitness is reduced by.
    """
    played = last.episodes.stop
    later = [limit for limit in _limits(options, returns.shape[1]) if limit > played]
    if not later:
        return None
    racing = last.candidates
    means = ordered_sum(returns[racing, :played]) / played - costs[racing]
    left = max(1, round(len(racing) * options.keep))
    return Round(np.sort(racing[ranking(means)[:left]]), range(played, later[0]))


def next_portion(
    last: Round, population: int, least: int, num_interactions: int, parts: Sequence[EpisodeResults]
) -> Round | None:
    """Return who plays after `last`; None where the parts have enough steps, or all of a population have played."""
    first = int(last.candidates[-1]) + 1
    if first == population or sum(int(part.lengths.sum(dtype=np.int64)) for part in parts) >= num_interactions:
        return None
    return Round(np.arange(first, min(first + least, population)), last.episodes)


def _limits(options: RacingOptions, episodes: int) -> list[int]:
    """Return the numbers of episodes after which rounds end."""
    return [*(limit for limit in options.rounds if limit < episodes), episodes]


def evaluate_population(
    experiment: Experiment,
    coordinator: Coordinator,
    seed: int,
    generation: int,
    genomes: GenomeSource,
    normalizer: Float32 | None = None,
    traces: Traces = "each",
    meanwhile: Callable[[], None] | None = None,
) -> PopulationResults:
    """Play the episodes of a generation, round after round where candidates race.

    Args:
        experiment: What is evolved.
        coordinator: Who has the episodes played.
        seed: Of the run.
        generation: Its number, part of the episodes' keys.
        genomes: The P candidates.
        normalizer: [2, O], None where observations are not normalized.
        traces: Whose come home.
        meanwhile: Called once while workers play.
    """
    config = experiment.config
    P, E = len(genomes), config.episodes
    least = config.least_population
    keys = generation_keys(generation, P, config.common_random_numbers)
    spec = experiment.rollout_spec
    played = first_round(config.racing, P, E) if least is None else Round(np.arange(least), range(E))
    parts: list[EpisodeResults] = []
    while True:
        batch = EpisodeBatch.of(
            seed,
            Purpose.EPISODE,
            genomes,
            keys,
            played.episodes,
            normalizer,
            rows=played.candidates,
            traces=traces,
            describe=True,
        )
        parts.append(coordinator.evaluate(spec, batch, meanwhile if not parts else None))
        if least is not None and config.num_interactions is not None:
            after = next_portion(played, P, least, config.num_interactions, parts)
            if after is not None:
                played = after
                continue
        results = by_candidate(sum_traces(join(parts)), P, E)
        if played.episodes.stop == E:
            return results
        costs = connection_costs(config, results.descriptions(genomes).connections, genomes.num_weights)
        further = next_round(played, config.racing, results.returns, costs)
        assert further is not None
        played = further
