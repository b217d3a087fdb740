"""openai-es: a gradient estimated from antithetic pairs, followed by Adam, or by ClipUp.

Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning" (2017), algorithm 1 with the
mirrored sampling and fitness shaping of its section 2; Loshchilov & Hutter, "Decoupled Weight Decay Regularization"
(2019), algorithm 2. See `evolution_strategy` for Adam and ClipUp, and `pruning_schedules` for gradual pruning. The
centre θ is an initial genome at first, and all candidates share its mask. With n = floor(P/2) pairs and ε_i ~ N(0, 1):

    candidates   2i is θ + σ ε_i, 2i + 1 is θ - σ ε_i; if P is odd, the last is θ itself, to be seen in the log
    u            centred ranks of the fitness of the 2n, so that outliers have no more weight than others; or, with
                 `fitness_shaping` "scaled", this fitness, scaled to -1/2 ... 1/2
    g            1/(2nσ) Σ_i (u_2i - u_{2i+1}) ε_i
    m, v         the memory of the optimizer. Adam's are β1 m + (1 - β1) g and β2 v + (1 - β2) g², elementwise. With
                 ClipUp m is the velocity, whose momentum is β1
    θ            θ + α (m/(1 - β1^t) / (sqrt(v/(1 - β2^t)) + 1e-8) - λ θ) after t generations with Adam, λ the weight
                 decay; as a part of g it would become steps of size α wherever fitness is flat. With ClipUp
                 θ + m - α λ θ. With `constant_weight_decay` λ is times α_0/α, so that it takes the same share of θ in
                 all generations, whatever becomes of α
    σ, α         times their decays, down to their smallest values, after the first `constant_generations`
    mask         pruned gradually by |θ|, by traces, by flow, or at random

With `perturbation_rank` = r the ε_i of a matrix [m, n] is a product of rank r, 1/√r A_i B_iᵀ with A_i [m, r] and
B_i [n, r] ~ N(0, 1), where that takes fewer random numbers, r(m + n) < m n; biases keep full rank (Sarkar et al.,
"Evolution Strategies at the Hyperscale", 2025, EGGROLL). Its elements have variance 1, too, and g is the same formula.

ε_i is computed as (w_2i - w_{2i+1})/2σ, from the weights as they were evaluated. θ, m, v are float64, and sums go from
pair to pair. The champion is θ̄, an exponential average of θ with weight `averaging` on the past (Polyak & Juditsky,
1992, on why averages are better), or θ itself if that is 0. So no candidate's lucky fitness can make the champion.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import FactoredGenomes, GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.perturbation import Factors, antithetic_matrix_sums, antithetic_sums, perturbed
from evolve.shapes import Bool, Float32, Float64, Int64
from evolve.strategies.evolution_strategy import (
    Adam,
    ClipUp,
    EvolutionStrategy,
    OptimizerMemory,
    centred_ranks,
    low_rank_matrices,
    parts,
    scaled_fitness,
    stored,
)
from evolve.strategies.pruning_schedules import GradualPruning
from evolve.strategies.strategy import (
    NamedNumbers,
    NewestValue,
    Results,
    check_population,
    requested_candidates,
    require_evolved_weights,
)
from evolve.strategies.wrapper import RestartOptions


class OpenAiEsOptions(RestartOptions):
    """Settings of `[strategy]` for openai-es."""

    sigma: float = Field(0.5, ge=1e-6, le=1e6)
    """σ, the standard deviation of candidates around the centre."""
    sigma_decay: float = Field(1.0, gt=0, le=1)
    """The factor of σ after each generation."""
    smallest_sigma: float = Field(0.01, ge=1e-6, le=1e6)
    """The smallest σ, at which the decay ends."""
    perturbation_rank: Annotated[int, Field(ge=1, le=65536)] | None = None
    """r, the rank of the perturbation of a wide matrix; by default perturbations have full rank."""
    fitness_shaping: Literal["ranks", "scaled"] = "ranks"
    """What stands for fitness: "ranks", so that outliers have no more weight than others, or fitness itself, "scaled",
    so that much is learned from a candidate that falls where its twin does not."""
    optimizer: Literal["adam", "clipup"] = "adam"
    """The optimizer: "adam", or "clipup", which uses only the direction of a gradient."""
    learning_rate: float = Field(0.3, gt=0, le=1e6)
    """α, Adam's step size for each weight; or the length of a gradient's step of ClipUp, over all weights."""
    max_speed: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """The largest distance that ClipUp moves the centre in a generation; by default twice the learning rate."""
    learning_rate_decay: float = Field(1.0, gt=0, le=1)
    """The factor of α after each generation."""
    smallest_learning_rate: float = Field(0.001, ge=0, le=1e6)
    """The smallest α, at which the decay ends."""
    constant_generations: int = Field(0, ge=0)
    """The number of generations before σ and α begin to decay."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """β1, the weight of the past in Adam's mean of gradients, or in ClipUp's velocity."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """β2, the weight of the past in Adam's mean of squared gradients."""
    weight_decay: float = Field(0.005, ge=0, le=1e6)
    """λ, the share of the centre that a step of size 1 would take away."""
    constant_weight_decay: bool = False
    """Whether the centre loses the same share in all generations, independently of α."""
    averaging: float = Field(0.0, ge=0, lt=1)
    """The weight of the past in the average of centres that is the champion; with 0 it is the centre."""
    pruning: float = Field(0.0, ge=0, le=1)
    """The share of connections that is pruned in all."""
    pruning_generations: int = Field(100, ge=1)
    """T, the number of generations of pruning."""
    pruning_by: Literal["magnitude", "trace", "random", "flow"] = "magnitude"
    """The connections that go first: those of the smallest weights, the weakest traces, or random ones; or, by "flow",
    those that cannot act, and then those through which least can act on the outputs."""


@dataclass(frozen=True)
class Schedule(NamedNumbers):
    """The numbers of openai-es that change from generation to generation.

    beta1_power, beta2_power: β1^t and β2^t. sigma: σ. learning_rate: α. generations: t, the completed generations.
    """

    beta1_power: float
    beta2_power: float
    sigma: float
    learning_rate: float
    generations: int

    def after_generation(self, options: OpenAiEsOptions) -> "Schedule":
        """Return the numbers after one more generation."""
        o, sigma, rate = options, self.sigma, self.learning_rate
        if self.generations >= o.constant_generations:
            sigma = max(sigma * o.sigma_decay, min(o.smallest_sigma, o.sigma))
            rate = max(rate * o.learning_rate_decay, min(o.smallest_learning_rate, o.learning_rate))
        return Schedule(self.beta1_power * o.beta1, self.beta2_power * o.beta2, sigma, rate, self.generations + 1)


@dataclass(frozen=True)
class OpenAiEsState:
    """θ, θ̄, m, v: [W] float64, zero where the mask [W] is False."""

    centre: Float64 = stored("W")
    average: Float64 = stored("W")
    m: Float64 = stored("W")
    v: Float64 = stored("W")
    schedule: Schedule = stored(Schedule)
    mask: Bool = stored("W", np.bool_)


def _check(o: OpenAiEsOptions, layout: GenomeLayout) -> None:
    """Raise InputError for settings that contradict each other, or the layout."""
    if o.pruning and o.pruning_by == "trace" and not layout.num_traces:
        cure = "Pruning by magnitude or at random needs no traces."
        raise InputError("strategy.pruning_by", "a network that leaves traces, as hebbian-dag", "trace", cure)
    if o.constant_weight_decay and not o.smallest_learning_rate:
        raise InputError("strategy.smallest_learning_rate", "above 0 if weight decay is constant", 0.0)


def _rounded(state: OpenAiEsState, _generation: int) -> Float32:
    return state.centre.astype(np.float32)


class OpenAiEs(EvolutionStrategy[OpenAiEsState]):
    """The evolution strategy for P = `population` candidates of a layout."""

    grows = True
    antithetic = True
    sum_shape = ()
    state_type = OpenAiEsState

    def __init__(self, options: OpenAiEsOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        _check(options, layout)
        super().__init__(layout, population, seed)
        self._options = options
        self._pairs = population // 2
        adam, clip_up = Adam(options.beta1, options.beta2), ClipUp(options.beta1, options.max_speed)
        self._optimizer: Adam | ClipUp = adam if options.optimizer == "adam" else clip_up
        rank = options.perturbation_rank
        self._matrices = None if rank is None else low_rank_matrices(layout, rank)
        # All candidates of a generation share one array, from which kernels see that they have the same centre.
        self._rounded_centre: NewestValue[OpenAiEsState, Float32] = NewestValue(_rounded)
        self._pruning: GradualPruning | None = None
        if options.pruning:
            how = options.pruning, options.pruning_generations, options.pruning_by
            self._pruning = GradualPruning(*how, layout, self._initial.mask[0], seed)
        self.traces = "mean" if options.pruning and options.pruning_by == "trace" else "none"

    @staticmethod
    def validate(options: OpenAiEsOptions, layout: GenomeLayout) -> None:
        """Raise InputError for settings that have no effect, or make learning impossible."""
        require_evolved_weights(layout, "openai-es")
        options.check_combinations()
        if options.learning_rate * options.weight_decay >= 1:
            expected = f"below 1/learning_rate, {1 / options.learning_rate:g}, because more would remove all weights"
            raise InputError("strategy.weight_decay", expected, options.weight_decay)
        if options.max_speed is not None and options.optimizer != "clipup":
            raise InputError("strategy.max_speed", f"none with the optimizer {options.optimizer}", options.max_speed)
        if options.optimizer == "clipup" and options.learning_rate_decay < 1 and not options.smallest_learning_rate:
            raise InputError("strategy.smallest_learning_rate", "above 0 with clipup: its steps are that long", 0.0)
        rank = options.perturbation_rank
        if rank is not None and not any(matrix.rank for matrix in low_rank_matrices(layout, rank)):
            expected = "a network with a matrix [m, n] for which r(m + n) is below m n"
            raise InputError("strategy.perturbation_rank", expected, rank, "Use a wider network or a lower rank.")
        for name in ("sigma", "learning_rate"):
            start = getattr(options, name)
            least = getattr(options, f"smallest_{name}")
            if getattr(options, f"{name}_decay") < 1 and least >= start:
                raise InputError(f"strategy.smallest_{name}", f"below {name}, {start:g}, which is to decay", least)

    def _initial_state(self, initial: Genomes) -> OpenAiEsState:
        zeros = np.zeros(self._W)
        centre = initial.weights[0].astype(np.float64)
        schedule = Schedule(1.0, 1.0, self._options.sigma, self._options.learning_rate, generations=0)
        return OpenAiEsState(centre, average=centre, m=zeros, v=zeros, schedule=schedule, mask=initial.mask[0])

    def ask(self, state: OpenAiEsState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: pairs on both sides of the centre, and the centre if P is odd."""
        candidates = requested_candidates(self._P, candidates)
        steps = np.where(candidates % 2, -1.0, 1.0) * state.schedule.sigma
        key, streams = self._key(generation), candidates // 2
        masks = np.repeat(state.mask[None], len(candidates), axis=0)
        if self._matrices is not None:
            steps[candidates == 2 * self._pairs] = 0.0
            factors = Factors.of(self._rounded_centre(state, generation), self._matrices, steps, key, streams)
            weights = factors.weights(state.mask)
            return FactoredGenomes(weights, masks, factors) if state.mask.all() else Genomes(weights, masks)
        weights = perturbed(state.centre, state.mask, steps, key, streams)
        weights[candidates == 2 * self._pairs] = np.where(state.mask, state.centre, 0.0)
        return Genomes(weights, masks)

    def sums(self, state: OpenAiEsState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [n]: Σ (u_2i - u_{2i+1}) (w_2i - w_{2i+1}) in n columns; fitness is [P]."""
        sigma, key, shares = state.schedule.sigma, self._key(generation), self._shares(fitness)
        if self._matrices is None:
            total = antithetic_sums(state.centre[columns], sigma, key, shares, first=columns.start)
        else:
            total = antithetic_matrix_sums(state.centre, sigma, key, shares, self._matrices, columns)
        return np.where(state.mask[columns], total, 0.0)

    def tell(self, state: OpenAiEsState, genomes: GenomeSource, results: Results) -> OpenAiEsState:
        """Move the centre along the estimated gradient."""
        o = self._options
        check_population(genomes, results, self._P, self._W, grows=True)
        now, after = state.schedule, state.schedule.after_generation(o)
        total = self._sums_from_genomes(genomes, results.fitness) if results.sums is None else results.sums
        # g has 1/(2nσ), and ε_i is a difference of weights over 2σ.
        divisor = 4 * (len(results.fitness) // 2) * now.sigma * now.sigma
        memory = OptimizerMemory(state.m, state.v, after.beta1_power, after.beta2_power)
        step, m, v = self._optimizer.step(memory, total, divisor, now.learning_rate)
        decay = o.weight_decay * (o.learning_rate / now.learning_rate if o.constant_weight_decay else 1)
        centre, average = np.empty(self._W), np.empty(self._W)
        for to in parts(self._W):
            centre[to] = state.centre[to] + now.learning_rate * (step[to] - decay * state.centre[to])
            average[to] = o.averaging * state.average[to] + (1 - o.averaging) * centre[to]
        mask = state.mask
        if self._pruning is not None:
            mask = self._pruning.mask_after(after.generations, mask, centre, results)
        # A pruned connection must not come back through what the optimizer or the average remembers of it.
        for array in (centre, average, m, v):
            np.multiply(array, mask, out=array)
        return OpenAiEsState(centre, average, m, v, after, mask)

    def champion(self, state: OpenAiEsState) -> Genomes:
        """Return the average of the centre."""
        return pruned(state.average[None].astype(np.float32), state.mask[None])

    def _shares(self, fitness: Float64) -> Float64:
        """Return u_2i - u_{2i+1} of each pair, from the fitness [P]."""
        shaped = centred_ranks if self._options.fitness_shaping == "ranks" else scaled_fitness
        u = shaped(fitness[: len(fitness) // 2 * 2])
        return u[::2] - u[1::2]

    def _sums_from_genomes(self, genomes: GenomeSource, fitness: Float64) -> Float64:
        """Return the value of `sums` for all columns, computed from the genomes."""
        total = np.zeros(self._W)
        for pair, share in enumerate(self._shares(fitness)):
            plus, minus = genomes.take(np.array([2 * pair, 2 * pair + 1])).weights
            total += share * np.subtract(plus, minus, dtype=np.float64)
        return total
