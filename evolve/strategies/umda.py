"""umda: a univariate estimation of distribution over masks, as in the second version of the 2020 script.

The elite is the K = ceil(P/8) best, all of which are evaluated again in every generation. The rest of a generation:

    p         clip(mean mask of the elite + `mask_noise` · N(0, 1), ε, 1 - ε) for each connection, ε = `min_probability`
    mask      Bernoulli(p), for each child and connection
    weights   those of a member of the elite, drawn uniformly; a connection that it lacks gets a new one, N(0, 1)
    noise     every connection moves by `weight_noise` · N(0, 1); the 2020 script had none
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.genome import GenomeLayout, Genomes, pruned
from evolve.numerics.many_streams import Streams
from evolve.numerics.perturbation import add_noise
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Float64, Int64
from evolve.strategies.elitist import Elitist, ElitistOptions
from evolve.strategies.scored_genomes import ScoredGenomes
from evolve.strategies.strategy import Newest


class UmdaOptions(Options):
    """Settings of `[strategy]` for umda.

    mask_noise: the standard deviation of what is added to the probability of a connection.
    min_probability: the least probability of a connection, and of its absence.
    weight_noise: the standard deviation of what is added to a weight.
    prior_evaluations: how many evaluations with the mean fitness of its first generation a new genome is credited with.
    """

    aliases: ClassVar[Mapping[str, str]] = {"rarest": "min_probability"}

    mask_noise: float = Field(0.1, ge=0, le=1e6)
    min_probability: float = Field(0.05, ge=0, le=0.5)
    weight_noise: float = Field(0.0, ge=0, le=1e6)
    prior_evaluations: int = Field(0, ge=0, le=1000)


class Umda(Elitist):
    """The estimation of distribution for P = `population` candidates of a layout."""

    def __init__(self, options: UmdaOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        K = -(-population // 8)
        shared = ElitistOptions(survivors=K, prior_evaluations=options.prior_evaluations)
        super().__init__(shared, layout, population, seed, size=K)
        self._options = options
        self._probability_of = Newest(self._probability)

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        probability = self._probability_of(state, generation)
        parents = state.genomes.take(self._parents(len(state), state, generation, candidates))
        streams = Streams(self._seed, Purpose.MASKS, generation, candidates)
        mask = ~streams.at_least(probability, self._layout.num_weights)
        np.copyto(parents.weights, streams.normal_rows(self._layout.num_weights), where=mask & ~parents.mask)
        if self._options.weight_noise:
            key = self._seed, Purpose.WEIGHT_NOISE, generation
            add_noise(parents.weights, mask, self._options.weight_noise, key, candidates)
        return pruned(parents.weights, mask)

    def _probability(self, state: ScoredGenomes, generation: int) -> Float64:
        """Return p [W]; its noise comes from the stream of candidate 0, which is never a child."""
        noise = Stream(self._seed, Purpose.MASKS, generation).normal(self._layout.num_weights)
        mean = np.count_nonzero(state.genomes.mask, axis=0) / len(state)
        noisy = mean + self._options.mask_noise * noise.astype(np.float64)
        least = self._options.min_probability
        p: Float64 = np.clip(noisy, least, 1 - least)
        return p
