"""openai-es: a gradient estimated from antithetic pairs, followed by Adam, or by ClipUp.

Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning" (2017), algorithm 1 with the
mirrored sampling and fitness shaping of its section 2; Kingma & Ba, "Adam" (2015), algorithm 1; Loshchilov & Hutter,
"Decoupled Weight Decay Regularization" (2019), algorithm 2; Zhu & Gupta, "To Prune, or Not to Prune" (2017), eq. 1.
The centre θ is an initial genome at first, and its mask is everybody's. With n = floor(P/2) pairs and ε_i ~ N(0, 1):

    candidates   2i is θ + σ ε_i, 2i + 1 is θ - σ ε_i; where P is odd, the last is θ itself, to be seen in the log
    u            centred ranks of the fitness of the 2n, so that outliers have no more weight than others
    g            1/(2nσ) Σ_i (u_2i - u_{2i+1}) ε_i
    m, v         β1 m + (1 - β1) g and β2 v + (1 - β2) g², elementwise. With ClipUp (`clip_up`, its momentum is β1) m is
                 its velocity, for which only the direction of g counts, and θ is θ + m - α λ θ
    θ            θ + α (m/(1 - β1^t) / (sqrt(v/(1 - β2^t)) + 1e-8) - λ θ) after t generations, λ the weight decay; as a
                 part of g it would become steps of size α wherever fitness is flat. With `constant_weight_decay` λ is
                 times α_0/α, so that it takes the same share of θ in all generations, whatever becomes of α
    σ, α         times their decays, down to their smallest values, after the first `constant_generations`
    mask         after t of T = `pruning_generations` generations round(C (1 - s)) of the C initial connections of a
                 matrix are left, s = `pruning` · (1 - (1 - t/T)³): pruning is fast while there are many. Those are
                 pruned that have the smallest |θ|, or the smallest |H̄|, the trace averaged over all candidates, where
                 the matrix has any; or, as a control, some at random

ε_i is computed as (w_2i - w_{2i+1})/2σ, from the weights as they were evaluated. θ, m, v are float64, and sums go from
pair to pair. The champion is θ̄, an exponential average of θ with weight `averaging` on what it was (Polyak & Juditsky,
1992, on why averages are better), or θ itself where that is 0. So no candidate's lucky fitness can make the champion.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics import ordered_sum
from evolve.numerics.perturbation import around, difference_sums
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Bool, Float64, Int64, check_shape
from evolve.strategies.evolution_strategy import EvolutionStrategy
from evolve.strategies.optimizers import centred_ranks, clip_up
from evolve.strategies.scored_genomes import stored_array
from evolve.strategies.strategy import (
    Arrays,
    Results,
    check_population,
    everyone,
    initial_genomes,
    need_weights,
)
from evolve.strategies.wrapper import RestartOptions, validate_restarts

_EPSILON = 1e-8
_AT_ONCE = 2**16  # numbers, so that they stay in a cache


class OpenAiEsOptions(RestartOptions):
    """Settings of `[strategy]` for openai-es.

    sigma: σ, the standard deviation of candidates around the centre.
    sigma_decay: what σ is multiplied by after a generation.
    smallest_sigma: where σ stops to fall.
    optimizer: who makes steps of gradients: "adam", or "clipup", which trusts their direction only.
    learning_rate: α, Adam's step size for each weight; or the length of a gradient's step of ClipUp, for all of them.
    max_speed: how far ClipUp moves the centre in a generation at most; by default twice the learning rate.
    learning_rate_decay: what α is multiplied by after a generation.
    smallest_learning_rate: where α stops to fall.
    constant_generations: for how many generations σ and α stay as they are at first.
    beta1: β1, the weight of the past in Adam's mean of gradients, or in ClipUp's velocity.
    beta2: β2, the weight of the past in Adam's mean of their squares.
    weight_decay: λ, the share of the centre that a step of size 1 would take away.
    constant_weight_decay: whether the centre loses the same share in all generations, whatever becomes of α.
    averaging: the weight of the past in the average of centres that is the champion; with 0 it is the centre.
    pruning: the share of connections that is pruned in all.
    pruning_generations: T, over how many generations.
    pruning_by: whether the smallest weights go first, the weakest traces, or any.
    """

    sigma: float = Field(0.1, ge=1e-6, le=1e6)
    sigma_decay: float = Field(1.0, gt=0, le=1)
    smallest_sigma: float = Field(0.01, ge=1e-6, le=1e6)
    optimizer: Literal["adam", "clipup"] = "adam"
    learning_rate: float = Field(0.05, gt=0, le=1e6)
    max_speed: Annotated[float, Field(gt=0, le=1e6)] | None = None
    learning_rate_decay: float = Field(1.0, gt=0, le=1)
    smallest_learning_rate: float = Field(0.001, ge=0, le=1e6)
    constant_generations: int = Field(0, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    weight_decay: float = Field(0.005, ge=0, le=1e6)
    constant_weight_decay: bool = False
    averaging: float = Field(0.0, ge=0, lt=1)
    pruning: float = Field(0.0, ge=0, le=1)
    pruning_generations: int = Field(100, ge=1)
    pruning_by: Literal["magnitude", "trace", "random"] = "magnitude"


@dataclass(frozen=True)
class OpenAiEsState:
    """θ, θ̄, m, v: [W] float64, zero where the mask [W] is False; schedule: [5] float64, β1^t, β2^t, σ, α and t."""

    centre: Float64
    average: Float64
    m: Float64
    v: Float64
    schedule: Float64
    mask: Bool


def _check(o: OpenAiEsOptions, layout: GenomeLayout) -> None:
    """Raise InputError for settings that contradict each other, or the layout."""
    if o.pruning and o.pruning_by == "trace" and not layout.num_traces:
        cure = "Others do without: magnitude, random."
        raise InputError("strategy.pruning_by", "a network that leaves traces, as hebbian-dag", "trace", cure)
    if o.constant_weight_decay and not o.smallest_learning_rate:
        raise InputError("strategy.smallest_learning_rate", "above 0 where weight decay is constant", 0.0)


class OpenAiEs(EvolutionStrategy[OpenAiEsState]):
    """The evolution strategy for P = `population` candidates of a layout."""

    grows = True
    sum_shape = ()

    def __init__(self, options: OpenAiEsOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        _check(options, layout)
        super().__init__(layout, population, seed, initial_genomes(layout, seed, 0, range(1)))
        self._options = options
        self._blocks = layout.blocks
        self._pairs = population // 2
        self.traces = "mean" if options.pruning and options.pruning_by == "trace" else "none"

    @staticmethod
    def validate(options: OpenAiEsOptions, layout: GenomeLayout) -> None:
        """Raise InputError for settings that have no effect, or make learning impossible."""
        need_weights(layout, "openai-es")
        validate_restarts(options)
        if options.learning_rate * options.weight_decay >= 1:
            expected = f"below 1/learning_rate, {1 / options.learning_rate:g}, for more takes all weights away"
            raise InputError("strategy.weight_decay", expected, options.weight_decay)
        if options.max_speed is not None and options.optimizer != "clipup":
            raise InputError("strategy.max_speed", f"none with the optimizer {options.optimizer}", options.max_speed)
        if options.optimizer == "clipup" and options.learning_rate_decay < 1 and not options.smallest_learning_rate:
            raise InputError("strategy.smallest_learning_rate", "above 0 with clipup: its steps are that long", 0.0)
        for name in ("sigma", "learning_rate"):
            start = getattr(options, name)
            least = getattr(options, f"smallest_{name}")
            if getattr(options, f"{name}_decay") < 1 and least >= start:
                raise InputError(f"strategy.smallest_{name}", f"below {name}, {start:g}, which is to decay", least)

    def _started(self, initial: Genomes) -> OpenAiEsState:
        zeros = np.zeros(self._W)
        centre = initial.weights[0].astype(np.float64)
        schedule = np.array([1.0, 1.0, self._options.sigma, self._options.learning_rate, 0.0])
        return OpenAiEsState(centre, average=centre, m=zeros, v=zeros, schedule=schedule, mask=initial.mask[0])

    def ask(self, state: OpenAiEsState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: pairs on both sides of the centre, and the centre where P is odd."""
        candidates = everyone(self._P, candidates)
        steps = np.where(candidates % 2, -1.0, 1.0) * state.schedule[2]
        weights = around(state.centre, state.mask, steps, self._key(generation), candidates // 2)
        weights[candidates == 2 * self._pairs] = np.where(state.mask, state.centre, 0.0)
        return Genomes(weights, np.repeat(state.mask[None], len(candidates), axis=0))

    def sums(self, state: OpenAiEsState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [n]: Σ (u_2i - u_{2i+1}) (w_2i - w_{2i+1}) in some columns, which depend on no others.

        fitness: [P]. columns: a slice of range(W).
        """
        shares = self._shares(fitness)
        total = difference_sums(
            state.centre[columns], state.schedule[2], self._key(generation), shares, first=columns.start
        )
        return np.where(state.mask[columns], total, 0.0)

    def tell(self, state: OpenAiEsState, genomes: GenomeSource, results: Results) -> OpenAiEsState:
        """Move the centre along the estimated gradient."""
        o = self._options
        check_population(genomes, results, self._P, self._W, grows=True)
        pairs = len(results.fitness) // 2
        power1, power2, sigma, rate, generations = (float(value) for value in state.schedule)
        total = self._added_up(genomes, results.fitness) if results.sums is None else results.sums
        power1 *= o.beta1
        power2 *= o.beta2
        decay = o.weight_decay * (o.learning_rate / rate if o.constant_weight_decay else 1)
        centre, average, m, v = (np.empty(self._W) for _ in range(4))
        velocity = self._velocity(state, total, rate)
        for start in range(0, self._W, _AT_ONCE):
            to = slice(start, start + _AT_ONCE)
            if velocity is None:
                g = total[to] / (4 * pairs * sigma * sigma)
                m[to] = o.beta1 * state.m[to] + (1 - o.beta1) * g
                v[to] = o.beta2 * state.v[to] + (1 - o.beta2) * (g * g)
                step = (m[to] / (1 - power1)) / (np.sqrt(v[to] / (1 - power2)) + _EPSILON)
            else:
                m[to] = velocity[to]
                v[to] = state.v[to]
                step = velocity[to] / rate
            centre[to] = state.centre[to] + rate * (step - decay * state.centre[to])
            average[to] = o.averaging * state.average[to] + (1 - o.averaging) * centre[to]
        if generations >= o.constant_generations:
            sigma = max(sigma * o.sigma_decay, min(o.smallest_sigma, o.sigma))
            rate = max(rate * o.learning_rate_decay, min(o.smallest_learning_rate, o.learning_rate))
        mask = self._prune(state.mask, centre, results, generations + 1)
        schedule = np.array([power1, power2, sigma, rate, generations + 1])
        for array in (centre, average, m, v):
            np.multiply(array, mask, out=array)
        return OpenAiEsState(centre, average, m, v, schedule, mask)

    def champion(self, state: OpenAiEsState) -> Genomes:
        """Return the average of the centre."""
        return pruned(state.average[None].astype(np.float32), state.mask[None])

    def from_arrays(self, arrays: Arrays) -> OpenAiEsState:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        spelled = {"centre": "W", "average": "W", "m": "W", "v": "W", "schedule": "5"}
        found = {name: stored_array(arrays, name, spelled[name], np.float64, W=self._W) for name in spelled}
        return OpenAiEsState(**found, mask=stored_array(arrays, "mask", "W", np.bool_, W=self._W))

    def _velocity(self, state: OpenAiEsState, total: Float64, rate: float) -> Float64 | None:
        """Return that of ClipUp [W], None for Adam. total: [W], of the gradient's direction."""
        o = self._options
        if o.optimizer == "adam":
            return None
        return clip_up(state.m, total, rate, o.beta1, o.max_speed or 2 * rate)

    def _prune(self, mask: Bool, centre: Float64, results: Results, generations: float) -> Bool:
        """Return the mask [W] after so many generations."""
        o = self._options
        if not o.pruning:
            return mask
        to_come = 1 - min(generations / o.pruning_generations, 1.0)
        gone = o.pruning * (1 - to_come * to_come * to_come)  # no pow, which is libm's
        worth = self._worth(centre, results)
        left = np.zeros(self._W, np.bool_)
        for block in self._blocks:
            place = slice(block.start, block.stop)
            size = worth[place] if worth[place].any() else np.abs(centre[place])
            best = np.argsort(np.where(mask[place], -size, 1.0), kind="stable")
            at_first = np.count_nonzero(self._initial.mask[0, place])
            left[block.start + best[: round(at_first * (1 - gone))]] = True
        return left & mask

    def _worth(self, centre: Float64, results: Results) -> Float64:
        """Return [W], at least 0: the connections with the largest values are kept."""
        match self._options.pruning_by:
            case "trace":
                mean = results.mean_traces
                if mean is None:
                    check_shape(results.traces, "traces", "P W", np.float32, P=self._P, W=self._W)
                    mean = ordered_sum(results.traces.T.astype(np.float64)) / self._P
                return np.abs(np.nan_to_num(mean, nan=0.0))
            case "random":
                return Stream(self._seed, Purpose.UNIFORM_PRUNING).uniform(self._W)
            case _:
                return np.abs(centre)

    def _shares(self, fitness: Float64) -> Float64:
        """Return [n]: u_2i - u_{2i+1} of each pair, for the fitness [P]."""
        u = centred_ranks(fitness[: len(fitness) // 2 * 2])
        return u[::2] - u[1::2]

    def _added_up(self, genomes: GenomeSource, fitness: Float64) -> Float64:
        """Return what `sums` returns, of genomes at hand."""
        total = np.zeros(self._W)
        for pair, share in enumerate(self._shares(fitness)):
            plus, minus = genomes.take(np.array([2 * pair, 2 * pair + 1])).weights
            total += share * np.subtract(plus, minus, dtype=np.float64)
        return total
