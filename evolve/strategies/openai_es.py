"""openai-es: pairs of candidates estimate a gradient, along which Adam or ClipUp moves the centre of the search.

Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning" (2017), algorithm 1 with the
mirrored sampling and fitness shaping of section 2. Weight decay is from Loshchilov & Hutter, "Decoupled Weight Decay
Regularization" (2019), algorithm 2. See `evolution_strategy` for Adam and ClipUp, and `pruning_schedules` for gradual
pruning. The first centre θ is an initial genome, and all candidates share the mask of this genome. With n = floor(P/2)
pairs and a vector ε_i ~ N(0, I) for each pair:

    candidates   2i is θ + σ ε_i, and 2i + 1 is θ - σ ε_i. If P is odd, the last candidate is θ itself, so that the
                 fitness of θ is recorded
    u            the centred ranks of the fitness of the 2n candidates, so that outliers count no more than others. With
                 `fitness_shaping` "scaled" it is this fitness, scaled to -1/2 ... 1/2
    g            1/(2nσ) Σ_i (u_2i - u_{2i+1}) ε_i
    m, v         the state of the optimizer. With Adam, m becomes β1 m + (1 - β1) g and v becomes β2 v + (1 - β2) g²,
                 elementwise. With ClipUp, m is the velocity, β1 is its momentum, and v is not used
    θ            with Adam θ + α (m/(1 - β1^t) / (sqrt(v/(1 - β2^t)) + 1e-8) - λ θ) after t generations; with ClipUp
                 θ + m - α λ θ. λ is the weight decay. The term λ θ is not a part of g: if all candidates had the same
                 fitness, Adam would turn λ θ into steps of size α. With `constant_weight_decay` λ is multiplied by
                 α_0/α, so that all generations remove the same share of θ, although α decays
    σ, α         after `constant_generations` multiplied by their decays, until they have their smallest values
    mask         pruned gradually by |θ|, by traces, by flow, or at random

With `perturbation_rank` = r the part of ε_i for a matrix [a, b] of weights is the product 1/√r A_i B_iᵀ. The elements
of A_i [a, r] and B_i [b, r] are ~ N(0, 1). The product is from Sarkar et al., "Evolution Strategies at the Hyperscale"
(2025, EGGROLL). Its elements have variance 1, too, so the formula of g stays. Biases have full rank. A matrix, too, has
full rank, unless the product needs fewer random numbers: r(a + b) < a b.

`tell` computes ε_i as (w_2i - w_{2i+1})/(2σ), from the float32 weights w that were evaluated. θ, m, v are float64. Sums
have the order of the pairs. The champion is θ̄, an exponential average of θ, in which the past has the weight
`averaging`. An average of centres is less noisy than the newest centre (Polyak & Juditsky, 1992). With `averaging` 0
the champion is θ. In both cases, the lucky fitness of one candidate hardly changes the champion.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import FactoredGenomes, GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.perturbation import Factors, antithetic_matrix_sums, antithetic_sums, perturbed
from evolve.shapes import Bool, Float32, Float64, Int64
from evolve.strategies import evolution_strategy as base
from evolve.strategies import strategy as contract
from evolve.strategies.pruning_schedules import GradualPruning
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
    """The weights of candidates in the gradient: their "ranks", so that outliers count no more than others; or their
    "scaled" fitness, so that a pair with very different fitness counts more than other pairs."""
    optimizer: Literal["adam", "clipup"] = "adam"
    """The optimizer: "adam", or "clipup", which uses only the direction of a gradient."""
    learning_rate: float = Field(0.3, gt=0, le=1e6)
    """α, the step size. With Adam each weight moves by about α; with ClipUp the gradient is scaled to the length α."""
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
    """λ, the weight decay: each generation subtracts α λ times the centre."""
    constant_weight_decay: bool = False
    """Whether each generation subtracts the same share of the centre, although α decays."""
    averaging: float = Field(0.0, ge=0, lt=1)
    """The champion is an average of all centres; this is the weight of the past. With 0 it is the newest centre. The
    first centre counts, too, so a search needs many more than 1/(1 - averaging) generations."""
    pruning: float = Field(0.0, ge=0, le=1)
    """The share of the initial connections that is pruned in the course of `pruning_generations`."""
    pruning_generations: int = Field(100, ge=1)
    """T, the number of generations of pruning."""
    pruning_by: Literal["magnitude", "trace", "random", "flow"] = "magnitude"
    """The connections that are pruned first: those with the smallest weights, those with the weakest traces, or random
    ones; or, by "flow", those without effect on the outputs, then those with the least effect."""


@dataclass(frozen=True)
class Schedule(contract.NamedNumbers):
    """The numbers of openai-es that change from generation to generation.

    They are, in the order of the fields, β1^t, β2^t, σ, α and t, the number of completed generations.
    """

    beta1_power: float
    beta2_power: float
    sigma: float
    learning_rate: float
    generations: int

    def after_generation(self, options: OpenAiEsOptions) -> "Schedule":
        """Return the numbers after one more generation."""
        o, sigma, rate = options, self.sigma, self.learning_rate
        # σ and α stay constant at first, and then decay.
        if self.generations >= o.constant_generations:
            # A σ or α that begins below its smallest value keeps its first value.
            sigma = max(sigma * o.sigma_decay, min(o.smallest_sigma, o.sigma))
            rate = max(rate * o.learning_rate_decay, min(o.smallest_learning_rate, o.learning_rate))
        return Schedule(self.beta1_power * o.beta1, self.beta2_power * o.beta2, sigma, rate, self.generations + 1)


@dataclass(frozen=True)
class OpenAiEsState:
    """The state of openai-es: θ, θ̄, m and v, [W] float64. They are zero where the mask [W] is False."""

    centre: Float64 = contract.stored("W")
    average: Float64 = contract.stored("W")
    m: Float64 = contract.stored("W")
    v: Float64 = contract.stored("W")
    schedule: Schedule = contract.stored(Schedule)
    mask: Bool = contract.stored("W", np.bool_)


def _check_for_tell(options: OpenAiEsOptions, layout: GenomeLayout) -> None:
    """Raise InputError for settings with which `tell` could fail."""
    if options.pruning and options.pruning_by == "trace" and not layout.num_traces:
        expected = "magnitude, flow or random, because this network leaves no traces"
        raise InputError("strategy.pruning_by", expected, "trace", "Or use a network such as hebbian-dag.")
    # `tell` divides a constant weight decay by α, so α must not decay to 0. All else in `tell` works if α is 0.
    if options.constant_weight_decay and options.learning_rate_decay < 1 and not options.smallest_learning_rate:
        raise InputError("strategy.smallest_learning_rate", "above 0 if weight decay is constant, and α decays", 0.0)


def _check_schedules(options: OpenAiEsOptions) -> None:
    """Raise InputError for settings of the decays of σ and α that have no effect, or that contradict each other."""
    defaults = OpenAiEsOptions()
    for name in ("sigma", "learning_rate"):
        first, smallest = getattr(options, name), getattr(options, f"smallest_{name}")
        if getattr(options, f"{name}_decay") < 1:
            if smallest >= first:
                expected = f"below {name}, {first:g}, because {name}_decay is below 1"
                raise InputError(f"strategy.smallest_{name}", expected, smallest)
        elif smallest != getattr(defaults, f"smallest_{name}"):
            raise InputError(f"strategy.{name}_decay", f"below 1, if there is a smallest_{name}", 1.0)
    if options.constant_generations and options.sigma_decay == options.learning_rate_decay == 1:
        expected = "0, unless sigma_decay or learning_rate_decay is below 1"
        raise InputError("strategy.constant_generations", expected, options.constant_generations)


class OpenAiEs(base.EvolutionStrategy[OpenAiEsState]):
    """openai-es for P = `population` candidates of a layout."""

    grows = True  # `tell` and `sums` accept the fitness of only the first candidates, if their number is even
    antithetic = True  # candidates 2i and 2i + 1 are a pair
    sum_shape = ()  # `sums` returns one number for each weight
    state_type = OpenAiEsState

    def __init__(self, options: OpenAiEsOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        # Not in `validate`, because resumed runs need this check, too.
        _check_for_tell(options, layout)
        super().__init__(layout, population, seed)
        self._options = options
        self._pairs = population // 2
        rank = options.perturbation_rank
        self._matrices = None if rank is None else base.low_rank_matrices(layout, rank)
        # A cache, because all candidates of a generation must share one array: kernels recognize candidates of the same
        # centre by the address of the array.
        self._rounded_centre: contract.NewestValue[OpenAiEsState, Float32] = contract.NewestValue(self._round_centre)
        self._pruning: GradualPruning | None = None
        if options.pruning:
            share, duration = options.pruning, options.pruning_generations
            self._pruning = GradualPruning(share, duration, options.pruning_by, layout, self._initial.mask[0], seed)
        # The traces that `tell` reads: the mean over all candidates, or none.
        self.traces = "mean" if options.pruning and options.pruning_by == "trace" else "none"

    @staticmethod
    def _round_centre(state: OpenAiEsState, _generation: int) -> Float32:
        return state.centre.astype(np.float32)

    @staticmethod
    def validate(options: OpenAiEsOptions, layout: GenomeLayout) -> None:
        """Raise InputError for settings that have no effect, or with which the strategy cannot learn."""
        contract.require_evolved_weights(layout, "openai-es")
        options.check_combinations()
        if options.learning_rate * options.weight_decay >= 1:
            limit = f"1/learning_rate, {1 / options.learning_rate:g}"
            expected = f"below {limit}, because otherwise a step removes all weights"
            raise InputError("strategy.weight_decay", expected, options.weight_decay)
        if options.max_speed is not None and options.optimizer != "clipup":
            raise InputError("strategy.max_speed", f"none with the optimizer {options.optimizer}", options.max_speed)
        defaults = OpenAiEsOptions()
        if options.beta2 != defaults.beta2 and options.optimizer == "clipup":
            raise InputError("strategy.beta2", f"its default, {defaults.beta2}, with clipup", options.beta2)
        # Without pruning, these settings have no effect.
        for name in ("pruning_by", "pruning_generations"):
            if not options.pruning and getattr(options, name) != getattr(defaults, name):
                raise InputError("strategy.pruning", f"above 0, if there is a {name}", options.pruning)
        if options.optimizer == "clipup" and options.learning_rate_decay < 1 and not options.smallest_learning_rate:
            expected = "above 0 with clipup, because α is the length of a step"
            raise InputError("strategy.smallest_learning_rate", expected, 0.0)
        rank = options.perturbation_rank
        if rank is not None and not any(matrix.rank for matrix in base.low_rank_matrices(layout, rank)):
            expected = f"a network with a matrix of m rows and n columns so that {rank} (m + n) is below m n"
            raise InputError("strategy.perturbation_rank", expected, rank, "Use a wider network or a lower rank.")
        _check_schedules(options)

    def _initial_state(self, initial: Genomes) -> OpenAiEsState:
        zeros = np.zeros(self._W)
        centre = initial.weights[0].astype(np.float64)
        schedule = Schedule(1.0, 1.0, self._options.sigma, self._options.learning_rate, generations=0)
        return OpenAiEsState(centre, average=centre, m=zeros, v=zeros, schedule=schedule, mask=initial.mask[0])

    def ask(self, state: OpenAiEsState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: pairs on both sides of the centre, and the centre if P is odd."""
        candidates = contract.requested_candidates(self._P, candidates)
        steps = np.where(candidates % 2, -1.0, 1.0) * state.schedule.sigma  # along ε_i: σ or -σ
        key, streams = self._key(generation), candidates // 2
        masks = np.repeat(state.mask[None], len(candidates), axis=0)
        # If P is odd, candidate 2n has no partner. With and without matrices, this candidate is the centre itself.
        if self._matrices is not None:
            steps[candidates == 2 * self._pairs] = 0.0
            factors = Factors.of(self._rounded_centre(state, generation), self._matrices, steps, key, streams)
            weights = factors.weights(state.mask)
            # The factors describe a genome only if no connection is absent.
            return FactoredGenomes(weights, masks, factors) if state.mask.all() else Genomes(weights, masks)
        weights = perturbed(state.centre, state.mask, steps, key, streams)
        weights[candidates == 2 * self._pairs] = np.where(state.mask, state.centre, 0.0)
        return Genomes(weights, masks)

    def sums(self, state: OpenAiEsState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [k]: Σ_i (u_2i - u_{2i+1}) (w_2i - w_{2i+1}) in k columns. fitness: [P], or fewer, see `grows`."""
        sigma, key, pair_weights = state.schedule.sigma, self._key(generation), self._pair_weights(fitness)
        if self._matrices is None:
            total = antithetic_sums(state.centre[columns], sigma, key, pair_weights, first=columns.start)
        else:
            total = antithetic_matrix_sums(state.centre, sigma, key, pair_weights, self._matrices, columns)
        return np.where(state.mask[columns], total, 0.0)

    def tell(self, state: OpenAiEsState, genomes: GenomeSource, results: contract.Results) -> OpenAiEsState:
        """Move the centre along the estimated gradient."""
        o = self._options
        contract.check_population(genomes, results, self._P, self._W, grows=True)
        now, after = state.schedule, state.schedule.after_generation(o)
        total = self._sums_from_genomes(genomes, results.fitness) if results.sums is None else results.sums
        # g is total/divisor, because total is Σ (u_2i - u_{2i+1}) 2σ ε_i, and g is 1/(2nσ) Σ (u_2i - u_{2i+1}) ε_i.
        divisor = 4 * (len(results.fitness) // 2) * now.sigma * now.sigma
        if o.optimizer == "adam":
            powers = after.beta1_power, after.beta2_power
            step, m, v = base.Adam(o.beta1, o.beta2).step((state.m, state.v), powers, total, divisor)
        else:
            # m is the velocity, and v is not used. ClipUp ignores the length of a gradient, so `divisor` is not needed.
            # The velocity is a whole step, but the loop below multiplies each step by α, so divide by α here.
            # `validate` refuses a decay to α = 0. If α is 0 in a run of an earlier version, its centre does not move.
            m, v = base.ClipUp(o.beta1, o.max_speed).velocity(state.m, total, now.learning_rate), state.v.copy()
            step = m / (now.learning_rate or 1.0)
        # Decoupled weight decay: the loop below adds the decay to the step, and not to the gradient.
        decay = o.weight_decay
        if o.constant_weight_decay:
            decay *= o.learning_rate / now.learning_rate
        centre, average = np.empty(self._W), np.empty(self._W)
        # In parts that fit in a cache, as in `Adam.step`.
        for part in base.parts(self._W):
            centre[part] = state.centre[part] + now.learning_rate * (step[part] - decay * state.centre[part])
            average[part] = o.averaging * state.average[part] + (1 - o.averaging) * centre[part]
        mask = state.mask
        if self._pruning is not None:
            mask = self._pruning.mask_after(after.generations, mask, centre, results)
        # A pruned connection must not return through the optimizer or the average. All four arrays are new, so they may
        # change here.
        for array in (centre, average, m, v):
            np.multiply(array, mask, out=array)
        return OpenAiEsState(centre, average, m, v, after, mask)

    def champion(self, state: OpenAiEsState) -> Genomes:
        """Return the average of the centres."""
        return pruned(state.average[None].astype(np.float32), state.mask[None])

    def _pair_weights(self, fitness: Float64) -> Float64:
        """Return u_2i - u_{2i+1} of each pair. fitness: [P], or fewer, see `grows`."""
        shape_fitness = base.centred_ranks if self._options.fitness_shaping == "ranks" else base.scaled_fitness
        # The last candidate of an odd P is the centre, which belongs to no pair.
        u = shape_fitness(fitness[: len(fitness) // 2 * 2])
        return u[::2] - u[1::2]

    def _sums_from_genomes(self, genomes: GenomeSource, fitness: Float64) -> Float64:
        """Return the value of `sums` for all columns, computed from the genomes."""
        total = np.zeros(self._W)
        # The pairs are added in the order of `antithetic_sums`, for the same bits.
        for pair, pair_weight in enumerate(self._pair_weights(fitness)):
            plus, minus = genomes.take(np.array([2 * pair, 2 * pair + 1])).weights
            total += pair_weight * np.subtract(plus, minus, dtype=np.float64)
        return total
