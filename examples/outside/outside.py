"""A network and a strategy from outside the package; its entry points name the pairs `leaky` and `hill_climber`.

`evolve/networks/network.py` and `evolve/strategies/strategy.py` define their protocols. To give equal bits everywhere
they take their arithmetic from `evolve.numerics` (no BLAS, no libm), and random numbers from the keyed streams of
`evolve.numerics.streams`, for purposes that they name themselves.
"""

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.genome import Block, Genomes, pruned
from evolve.numerics import sequential_sum, tanh
from evolve.numerics.streams import Stream
from evolve.shapes import stored_array
from evolve.strategies import Strategy, initial_genomes, ranking


class LeakyOptions(Options):
    """Settings of `[network]`."""

    leak: float = Field(0.5, gt=0, le=1)
    """The share of a unit's state that is replaced in a step."""


@dataclass(frozen=True)
class Leaky:
    """Leaky integrators, one for each action: s ← (1 - leak) s + leak · x W, action = tanh(s); s is zero at first."""

    options: LeakyOptions
    observation_size: int
    action_size: int
    num_traces = 0

    @property
    def num_weights(self):
        return self.observation_size * self.action_size

    @property
    def slot_size(self):
        return self.num_weights + self.action_size

    @property
    def blocks(self):
        return (Block(layer=0, source=0, start=0, rows=self.observation_size, columns=self.action_size),)

    def init(self, stream: Stream):
        weights = stream.normal(1, self.num_weights)
        return pruned(weights, np.ones(weights.shape, np.bool_))

    def batch(self, slots, backend):
        return LeakyBatch(self, slots)  # the same arithmetic for every back end


class LeakyBatch:
    """The weights and states of B slots."""

    def __init__(self, network, slots):
        self._leak = np.float32(network.options.leak)
        self._weights = np.zeros((network.observation_size, network.action_size, slots), np.float32)
        self._states = np.zeros((network.action_size, slots), np.float32)

    def load(self, slots, weights, mask, seeds):
        self._weights[..., slots] = weights.T.reshape(*self._weights.shape[:2], -1)
        self._states[:, slots] = 0

    def move(self, sources, targets):
        self._weights[..., targets] = self._weights[..., sources]
        self._states[:, targets] = self._states[:, sources]

    def step(self, observations):
        n = len(observations)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # extreme weights must not stop a run
            into = sequential_sum(observations.T[:, None] * self._weights[..., :n])
            self._states[:, :n] += self._leak * (into - self._states[:, :n])
            return tanh(self._states[:, :n]).T.copy()

    def traces(self, slots):
        return np.zeros((len(slots), 0), np.float32)


class HillClimberOptions(Options):
    """Settings of `[strategy]`."""

    weight_noise: float = Field(0.1, gt=0, le=1e6)
    """The standard deviation of a mutation."""


class HillClimber(Strategy):
    """(1, λ): candidate 0 is the parent, the others are the parent plus noise; the best is the next parent."""

    portable = True
    traces = "none"
    warm_starts = True  # because `start` is one initial genome

    def __init__(self, options: HillClimberOptions, layout, population, seed):
        self._noise = np.float32(options.weight_noise)
        self._layout = layout
        self._P = population
        self._seed = seed

    def start(self):
        return initial_genomes(self._layout, self._seed, 0, range(1))

    def ask(self, state, generation, candidates=None):
        candidates = np.arange(self._P) if candidates is None else candidates
        genomes = state.take(np.zeros(len(candidates), np.intp))
        for row, candidate in enumerate(candidates.tolist()):
            if candidate:  # 0 is the parent
                stream = Stream(self._seed, "outside.mutation", generation, candidate)
                genomes.weights[row] += self._noise * stream.normal(self._layout.num_weights)
        return pruned(genomes.weights, genomes.mask)

    def tell(self, state, genomes, results):
        return genomes.take(ranking(results.fitness)[:1])

    def champion(self, state):
        return state

    def to_arrays(self, state):
        return {"weights": state.weights, "mask": state.mask}

    def from_arrays(self, arrays):
        W = self._layout.num_weights
        weights = stored_array(arrays, "weights", "1 W", np.float32, W=W)
        return Genomes(weights, stored_array(arrays, "mask", "1 W", np.bool_, W=W))


leaky = LeakyOptions, Leaky
hill_climber = HillClimberOptions, HillClimber
