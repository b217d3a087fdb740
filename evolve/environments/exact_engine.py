"""The exact engine: tasks of our own, with the same bits on every processor, see `evolve.environments.exact`."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from evolve.config import EnvOptions, nearest, parse
from evolve.environments.engine import Transition, do_nothing
from evolve.environments.exact import TASKS, AnyTask
from evolve.environments.gymnasium_engine import GymnasiumEngine
from evolve.environments.pictures import picture
from evolve.environments.task_slots import task_slots
from evolve.errors import InputError
from evolve.numerics import native
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8


class ExactEngine:
    """B slots of an exact task. An episode cannot fail.

    Args:
        options: The environment.
        slots: B.
        compiled: Whether the native kernels step it, where they were built, and not array operations.

    Raises:
        InputError: There is no such task, or the options do not fit it.
    """

    reuses = True
    refill = 1

    def __init__(self, options: EnvOptions, slots: int, compiled: bool = True) -> None:
        self.task = exact_task(options)
        self.id = options.id
        self.observation_size = self.task.observation_size
        self.action_size = self.task.action_size
        self.fps = self.task.fps
        self.faults: dict[int, str] = {}
        self.on_fault: Callable[[], None] = do_nothing
        self.compiled = compiled and native.available()
        self.slots = task_slots(self.task, slots, self.compiled)

    def suggested_slots(self) -> int:
        """Return many: array operations want them, and the kernels, which play 16 at a time, are seldom called then."""
        return 1024

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; writes their observations [B, O]."""
        self.slots.begin(slots, seeds, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] with outputs [k, A]; writes observations [B, O]; returns rewards, and which ended, [k]."""
        return self.slots.step(slots, outputs, observations)

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Transition]:
        """Play one episode in a slot of its own; a used one has begun another episode."""
        slots = task_slots(self.task, 1, self.compiled)
        observations = np.zeros((1, self.observation_size), np.float32)
        first = np.zeros(1, np.intp)
        for begun in (seed + 1, seed) if used else (seed,):
            slots.begin(first, np.array([begun]), observations)
        yield {"observation": observations[0].copy()}
        for row in outputs:
            rewards, ended = slots.step(first, row[None], observations)
            yield {"observation": observations[0].copy(), "reward": rewards[0], "terminated": bool(ended[0])}
            if ended[0]:
                break

    def encode(self, observation: Any) -> Float32:
        """Return [O]: one observation, as networks see it. Raises ValueError where it has another shape."""
        if np.shape(observation) != (self.observation_size,):  # NumPy would broadcast it
            raise ValueError(f"{np.shape(observation)}, not {(self.observation_size,)}")
        row = np.zeros(self.observation_size, np.float32)
        row[:] = observation
        return row

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions that network outputs [n, A] stand for, as Gymnasium's namesake takes them."""
        actions = self.task.actions(outputs)
        return actions.tolist() if self.task.discrete else list(actions.astype(np.float32))

    def frame(self, slot: int) -> UInt8:
        """Return what a slot looks like, [H, W, 3], in Gymnasium's picture. Raises InputError where there is none."""
        return picture(self.id, self.task, self.slots.state(slot), *self.slots.episode(slot))

    def move(self, sources: Slots, targets: Slots) -> None:
        """Let slots `targets` go on with the episodes of slots `sources`."""
        self.slots.move(sources, targets)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class GymnasiumInPlace(GymnasiumEngine):
    """B slots of a rigid-body task that Gymnasium plays, with the same bits, if the kernels were not built.

    Array operations would take a hundred times as long.

    Raises:
        InputError: Box2D is not installed, or the options do not fit the task.
    """

    def __init__(self, options: EnvOptions, slots: int) -> None:
        task = exact_task(options)
        super().__init__(options.model_copy(update={"engine": "gymnasium"}), slots)
        # A NaN counts as in the task. Gymnasium's environments would fail on it.
        self._decode = task.actions


def box2d_is_installed() -> bool:
    """Return whether Gymnasium can play walkers and landers here."""
    return find_spec("Box2D") is not None


def exact_task(options: EnvOptions) -> AnyTask:
    """Return the exact task that options name. Raises InputError when there is none, or they do not fit it."""
    kind = TASKS.get(options.id)
    if kind is None:
        cure = f'{nearest(options.id, TASKS, listed=True)} Or use env.engine="gymnasium".'
        raise InputError("env.id", "an environment of the exact engine", options.id, cure)
    if options.wrappers:
        message = 'Exact environments take no wrappers. Use env.engine="gymnasium", or no env.wrappers.'
        raise InputError.plainly("env.wrappers", message)
    settings = parse(kind.settings, options.kwargs, "env.kwargs")
    return kind(settings, options.action_scale, options.max_episode_steps)
