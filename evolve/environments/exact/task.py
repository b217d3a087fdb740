"""`ExactTask`, the base class of exact tasks: operations on arrays define their episodes.

A subclass implements `begin`, `observe` and `step`, each for k episodes at a time. States are arrays [S, k] of float64,
one column for each episode; worlds of rigid bodies are records [k] instead. IEEE 754 defines every operation and its
rounding. The kernels do the same operations in the same order, so they give the same bits.

Random numbers come from `Draws`. Tasks that repeat Gymnasium's episodes use `Pcg64` instead: Gymnasium's generator, one
for each episode, with the seed of its environment. `Pcg64` gives the bits of NumPy's generator, but converts them to
numbers in Python. In NumPy's C code, a compiler may fuse a multiplication and an addition, and then numbers depend on
the processor.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from evolve.config import Options, Table
from evolve.environments.physics.frames import GENERATOR, WORLD
from evolve.environments.randomization import draw
from evolve.numerics.streams import draws
from evolve.shapes import Bool, Float32, Float64, Int64, UInt8

DRAWS_TO_BEGIN = 64
"""The random numbers 0 to 63 of an episode are for its beginning. From 64 on, there is one number for each step."""
# The multiplier of PCG64, and masks for the bits of its words, half words and state.
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_WORD_MASK = 2**64 - 1
_HALF_MASK = 2**32 - 1
_STATE_MASK = 2**128 - 1


class NoOptions(Options):
    """The options of a task that has no settings."""


class Moved(NamedTuple):
    """The result of a step of k episodes: states [S, k], rewards [k], and whether the task is over [k]."""

    states: Any
    rewards: Float64
    over: Bool


@dataclass(frozen=True)
class Draws:
    """The random numbers of k episodes, uniform on (0, 1), from `evolve.numerics.streams.draws`.

    seeds: [k], the seeds of the environments.
    steps: [k], the number of steps of each episode so far.
    """

    seeds: Int64
    steps: Int64

    def number(self, index: int) -> Float64:
        """Return [k]: random number `index` of each episode; `index` is below DRAWS_TO_BEGIN."""
        return draws(self.seeds, np.full_like(self.seeds, index))

    def between(self, index: int, low: float, high: float) -> Float64:
        """Return [k]: the result of `number(index)`, scaled to the range from `low` to `high`."""
        return low + (high - low) * self.number(index)

    def in_step(self) -> Float64:
        """Return [k]: for each episode, the random number of its current step."""
        return draws(self.seeds, DRAWS_TO_BEGIN + self.steps)


OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True)
class ExactTask(Generic[OptionsT]):
    """A task with its settings.

    options: The validated `env.kwargs`.
    action_scale: `env.action_scale`.
    max_episode_steps: `env.max_episode_steps`; None for the task's `default_limit`.
    randomize: `env.randomize`.
    """

    options: OptionsT
    action_scale: float = 1.0
    max_episode_steps: int | None = None
    randomize: Table = field(default_factory=dict)

    kernel: ClassVar[str]
    """The name of the kernel: `environments/kernels/NAME.h`, with functions `NAME_…`."""
    options_class: ClassVar[type[Options]] = NoOptions
    """The class of `options`."""
    kernel_options: ClassVar[tuple[str, ...]] = ()
    """The names of the options that the kernel reads, in its order."""
    discrete: ClassVar[bool] = True
    """Whether an action is the index of the largest output, not a vector of numbers."""
    action_bound: ClassVar[float | None] = 1.0
    """The largest number in an action that is a vector; None if its numbers are only -1, 0 or 1."""
    fps: ClassVar[float] = 50.0
    """Steps per second, for films."""
    randomizable: ClassVar[tuple[str, ...]] = ()
    """The names of the options that may differ between episodes. The equations must read them through `parameters`."""
    own_options: ClassVar[tuple[str, ...]] = ()
    """In a task with a world: the names of the options that Gymnasium's environment of this name does not have."""
    has_world: ClassVar[bool] = False
    """Whether states are worlds of rigid bodies, records of `frames.WORLD` [k], instead of numbers [S, k]."""

    @property
    def observation_size(self) -> int:
        """O, the size of an observation."""
        raise NotImplementedError

    @property
    def action_size(self) -> int:
        """A, the number of network outputs that determine an action."""
        raise NotImplementedError

    @property
    def state_size(self) -> int:
        """S, the size of a state; in a task with a world, the number of parameters in the world."""
        raise NotImplementedError

    @property
    def default_limit(self) -> int:
        """The step limit of an episode, unless the experiment sets another limit."""
        raise NotImplementedError

    @property
    def fits_gymnasium(self) -> bool:
        """Whether Gymnasium's environment of this name takes all arguments of the experiment."""
        return {*self.options.model_fields_set, *self.randomize}.isdisjoint(self.own_options)

    @property
    def action_share(self) -> float:
        """The share of the range of bounded actions that the experiment uses: `env.action_scale`, at most 1."""
        return min(self.action_scale, 1.0)

    @property
    def largest_action(self) -> float:
        """The largest action in this experiment, if actions are bounded numbers; 0 for other actions."""
        if self.discrete or self.action_bound is None:
            return 0.0
        return self.action_bound * self.action_share

    @property
    def step_limit(self) -> int:
        """The step limit of an episode in this experiment."""
        return self.max_episode_steps or self.default_limit

    def parameters(self, options: Any) -> tuple[Any, ...]:
        """Return the parameters: constants of the equations, computed from the randomizable options.

        A state ends with the parameters; a world holds them in its field `parameter`. By default the parameters are the
        randomizable options themselves.

        options: The options of k episodes: one number if all episodes have the same value, otherwise an array [k].
        """
        return tuple(getattr(options, name) for name in self.randomizable)

    def parameters_of(self, seeds: Int64) -> Float64:
        """Return [D, k]: the D parameters of k episodes. seeds: [k], the seeds of their environments."""
        options: Any = self.options
        if self.randomize:
            drawn = {name: np.array(values, np.float64) for name, values in draw(self.randomize, seeds).items()}
            options = SimpleNamespace(**(self.options.model_dump() | drawn))
        rows = [np.broadcast_to(row, seeds.shape) for row in self.parameters(options)]
        # Set the shape, because the array of an empty list has one dimension.
        return np.array(rows, np.float64).reshape(len(rows), len(seeds))

    def kernel_constants(self) -> UInt8:
        """Return the constants of the kernel as bytes: its options and the largest action, in float64.

        A task with a world overrides this method, and returns the bytes of the world's model.
        """
        values = (float(getattr(self.options, name)) for name in self.kernel_options)
        return np.array([*values, self.largest_action]).view(np.uint8)

    def blank_states(self, slots: int) -> Any:
        """Return the states of slots in which no episode has begun."""
        return np.zeros(slots, WORLD) if self.has_world else np.zeros((self.state_size, slots))

    def blank_worlds(self, seeds: Int64) -> Any:
        """Return worlds [k] that are blank except for their parameters. seeds: [k], the seeds of the environments."""
        worlds = self.blank_states(len(seeds))
        # In a task with a world, `state_size` is the number of parameters.
        worlds["parameter"][:, : self.state_size] = self.parameters_of(seeds).T
        return worlds

    def begin(self, draws: Draws) -> Any:
        """Return the states [S, k] in which episodes begin."""
        raise NotImplementedError

    def observe(self, states: Any) -> Float64:
        """Return [O, k]: the observations, before they are rounded to float32."""
        raise NotImplementedError

    def step(self, states: Any, outputs: Float32, draws: Draws) -> Moved:
        """Return the result of a step of states [S, k] by network outputs [k, A]."""
        raise NotImplementedError

    def actions(self, outputs: Float32) -> Any:
        """Return [k] or [k, A]: the actions of outputs [k, A]."""
        return largest(outputs) if self.discrete else bounded(outputs) * self.largest_action


AnyTask = ExactTask[Any]


def largest(outputs: Float32) -> Int64:
    """Return [k]: the index of the largest output in each row of outputs [k, A]; of equal outputs the first.

    If output 0 is NaN, the index is 0. Any other NaN counts as -inf. The kernels do the same, because their comparisons
    with NaN are false.
    """
    is_nan = np.isnan(outputs)
    best = np.where(is_nan, np.float32(-np.inf), outputs).argmax(axis=1)
    return np.where(is_nan[:, 0], 0, best)


def bounded(outputs: Float32 | Float64) -> Float64:
    """Return outputs clipped to [-1, 1], as float64; 0 for NaN."""
    return np.where(np.isnan(outputs), 0.0, clipped(outputs.astype(np.float64), -1.0, 1.0))


def clipped(x: Float64, low: float, high: float) -> Float64:
    """Return x clipped to [low, high]."""
    return np.where(x < low, low, np.where(x > high, high, x))


@dataclass
class Pcg64:
    """A random generator, PCG64 (O'Neill, 2014), as Gymnasium uses it. A *word* is 64 random bits.

    Attributes:
        state: 128 bits.
        increment: 128 bits, odd. It selects the stream.
        has_half: Whether `half` provides the next 32 bits.
        half: The upper half of a word whose lower half was used.
    """

    state: int
    increment: int
    has_half: bool = False
    half: int = 0

    @classmethod
    def seeded(cls, seed: int) -> "Pcg64":
        """Return the generator that Gymnasium makes from a seed, through NumPy's SeedSequence."""
        words = np.random.PCG64(np.random.SeedSequence(seed)).state["state"]
        return cls(words["state"], words["inc"])

    @classmethod
    def from_record(cls, record: Any) -> "Pcg64":
        """Return the generator that a record of `frames.GENERATOR` describes."""
        high, low, increment_high, increment_low, has_half, half = record.item()
        return cls(high << 64 | low, increment_high << 64 | increment_low, bool(has_half), half)

    def to_record(self) -> Any:
        """Return the generator as a record of `frames.GENERATOR`."""
        state = self.state >> 64, self.state & _WORD_MASK
        increment = self.increment >> 64, self.increment & _WORD_MASK
        return np.array((*state, *increment, self.has_half, self.half), GENERATOR)

    def word(self) -> int:
        """Return the next 64 bits."""
        self.state = (self.state * _MULTIPLIER + self.increment) & _STATE_MASK
        # XSL-RR, the output function of PCG64: xor the halves of the state, then rotate the result to the right. The
        # six highest bits of the state are the number of places.
        mixed = (self.state >> 64 ^ self.state) & _WORD_MASK
        places = self.state >> 122
        return (mixed >> places | mixed << (64 - places)) & _WORD_MASK

    def random(self) -> float:
        """Return a number that is uniform on [0, 1)."""
        return (self.word() >> 11) * 2.0**-53

    def uniform(self, low: float, high: float) -> float:
        """Return a number that is uniform on [low, high)."""
        return low + (high - low) * self.random()

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from low to high - 1 (Lemire, 2019). If there is only one, nothing is drawn."""
        count = high - low
        if count == 1:
            return low
        # The upper half of a product is the result. If its lower half is below the threshold, draw again, because
        # otherwise some numbers would be likelier.
        threshold = (2**32 - count) % count
        product = self._half_word() * count
        while product & _HALF_MASK < threshold:
            product = self._half_word() * count
        return low + (product >> 32)

    def _half_word(self) -> int:
        """Return 32 bits: the lower half of a new word, or the upper half of the word of the call before."""
        if self.has_half:
            self.has_half = False
            return self.half
        word = self.word()
        self.half, self.has_half = word >> 32, True
        return word & _HALF_MASK
