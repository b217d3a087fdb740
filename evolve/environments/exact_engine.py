"""The exact engine: native kernels or array operations step B slots of an exact task, with the same bits.

`CompiledSlots` uses the kernels, `_ArraySlots` the array operations. One call of a native kernel steps a *tile*:
`native.lanes()` slots, side by side in SIMD registers (a *lane* is one of these places). If the task has rigid bodies,
the state of a slot is a *world*, and a call steps a *crowd*: the worlds of several tiles, sorted so that similar worlds
are side by side.
"""

import ctypes
from collections.abc import Callable, Generator
from importlib.util import find_spec
from typing import Any

import numpy as np

from evolve.config import EnvOptions
from evolve.environments.engine import Transition, do_nothing
from evolve.environments.exact import AnyTask, Draws, exact_task
from evolve.environments.physics.frames import WORLD
from evolve.environments.randomization import with_drawn_arguments
from evolve.environments.spaces import task_spaces
from evolve.errors import InputError
from evolve.numerics import native
from evolve.numerics.device import DeviceArrays
from evolve.numerics.device_protocol import WIDTH
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8, ceil_div

_LEAST_STACK = 2**19  # bytes of stack that a thread needs; the kernels of rigid bodies use 400 kB of it


def slots_per_call(task: AnyTask) -> int:
    """Return the smallest number of slots that one call of a task's kernel steps: a tile, or the smallest crowd."""
    return native.constant("worlds") if task.has_world else native.lanes()


def largest_crowd(task: AnyTask) -> int:
    """Return the largest number of slots that one call of a task's kernel steps: a tile, or the largest crowd.

    A larger crowd is faster, because neighbouring worlds are more similar.
    """
    return native.constant("largest_crowd") if task.has_world else native.lanes()


def is_left_to_gymnasium(task: AnyTask) -> bool:
    """Return whether Gymnasium plays a task instead of this engine, for which rigid bodies are slow without kernels.

    Box2D must be installed, and Gymnasium's environment must take all arguments of the task.
    """
    return task.has_world and task.fits_gymnasium and not native.available() and find_spec("Box2D") is not None


class TaskStructure(ctypes.Structure):
    """The structure `exact_task` of kernels/tasks.h. It holds only addresses, so its owner keeps the arrays alive."""

    _fields_ = (
        ("num_observations", INT64), ("num_actions", INT64), ("state_rows", INT64), ("limit", INT64),
        ("states", ADDRESS), ("seeds", ADDRESS), ("steps", ADDRESS), ("outputs", ADDRESS), ("observations", ADDRESS),
        ("rewards", ADDRESS), ("ended", ADDRESS), ("options", ADDRESS), ("worlds", ADDRESS), ("active", ADDRESS),
        ("crowd", INT64),
    )  # fmt: skip


def task_on_device(task: AnyTask, arrays: DeviceArrays) -> TaskStructure:
    """Allocate a task's arrays on a device, for the slots of `arrays`; return the structure with their addresses."""
    O, A, S = task.observation_size, task.action_size, task.state_size
    slots = WIDTH * arrays.tiles
    # Bytes per slot, in the order of the fields of `TaskStructure`.
    sizes = {"states": 8 * S, "seeds": 8, "steps": 8, "outputs": 4 * A, "observations": 4 * O, "rewards": 8, "ended": 1}
    addresses = [arrays.allocate(size * slots).address for size in sizes.values()]
    options = arrays.constant(task.kernel_constants())
    worlds = arrays.allocate(WORLD.itemsize * slots if task.has_world else 0).address
    active = arrays.allocate(slots).address
    # The last field, `crowd`, is not read on a device, where each thread steps one world (kernels/bodies.h).
    return TaskStructure(O, A, S, task.step_limit, *addresses, options, worlds, active, 1)


class CompiledSlots:
    """B slots of a task, stepped by native kernels. The state of a slot is S numbers, or a world.

    Args:
        task: The task.
        slots: B.
        per_call: The number of slots that a call of the kernel steps: a multiple of `slots_per_call(task)`, by default
            this number.

    Attributes:
        address: The address of the structure that the kernels receive.
        active: [B rounded up to whole calls], whether the next step advances each slot.
        worlds: [B rounded up to whole calls], the states of a task with rigid bodies; None for other tasks.
    """

    def __init__(self, task: AnyTask, slots: int, per_call: int | None = None) -> None:
        if task.has_world and 0 < native.stack_bytes() < _LEAST_STACK:  # 0 means unknown or unlimited
            expected = f"a thread with a stack of at least {_LEAST_STACK // 1024} kB, which rigid bodies need"
            cure = "Raise the limit, ulimit -s, or call threading.stack_size(2**20) before the thread begins."
            raise InputError("env.engine", expected, f"{native.stack_bytes() // 1024} kB", cure)
        self._lanes = lanes = native.lanes()
        self._per_call = slots_per_call(task) if per_call is None else per_call
        calls = ceil_div(slots, self._per_call)
        tiles = calls * (self._per_call // lanes)
        O, A, S = task.observation_size, task.action_size, task.state_size
        # Slot t · lanes + l is lane l of tile t. A kernel loads the same number of all lanes at once, so these are side
        # by side in memory: the lanes are the last axis. If states are worlds, `_states` holds only their parameters.
        self._states = np.zeros((tiles, S, lanes))
        self._seeds, self._steps = np.zeros(tiles * lanes, np.int64), np.zeros(tiles * lanes, np.int64)
        self._outputs = np.zeros((tiles, A, lanes), np.float32)
        self._observations = np.zeros((tiles, O, lanes), np.float32)
        self._rewards, self._ended = np.zeros(tiles * lanes), np.zeros(tiles * lanes, np.bool_)
        self._options = task.kernel_constants()
        self._parameters_of = task.parameters_of
        self.worlds = task.blank_states(tiles * lanes) if task.has_world else None
        self.active = np.zeros(tiles * lanes, np.bool_)
        # The structure holds only addresses. Attributes of this object keep the arrays alive.
        arrays = (
            self._states, self._seeds, self._steps, self._outputs, self._observations, self._rewards, self._ended,
            self._options,
            self.active if self.worlds is None else self.worlds,  # without worlds the kernel ignores this address
            self.active,
        )  # fmt: skip
        addresses = (array.ctypes.data for array in arrays)
        self._structure = TaskStructure(O, A, S, task.step_limit, *addresses, self._per_call)
        self.address = ctypes.addressof(self._structure)
        self._begin = native.bind(f"{task.kernel}_begin", [ADDRESS, INT64])
        self._step = native.bind(f"{task.kernel}_step", [ADDRESS, INT64])

    @property
    def addresses(self) -> dict[str, int]:
        """The addresses for the rollout kernel: the task's functions "step" and "begin", and its structure, "task"."""
        step, begin = native.function_address(self._step), native.function_address(self._begin)
        return {"step": step, "begin": begin, "task": self.address}

    def begin(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; write rows `slots` of observations [B, O]."""
        self._seeds[slots] = seeds
        tile, lane = np.divmod(slots, self._lanes)
        parameters = self._parameters_of(seeds)  # [D, k]: the last D of the S numbers in each state
        self._states[tile, self._states.shape[1] - len(parameters) :, lane] = parameters.T
        for slot in slots.tolist():
            self._begin(self.address, slot)
        self._observe(slots, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] by outputs [k, A]; write rows `slots` of observations [B, O]; return rewards and ends, [k]."""
        tile, lane = np.divmod(slots, self._lanes)
        self._outputs[tile, :, lane] = outputs
        self.active[:] = False
        self.active[slots] = True

        # A call of the kernel advances the step counts of all its slots, and all states except inactive worlds. So if a
        # call has inactive slots, save the states and counts, and restore those of the inactive slots afterwards.
        num_active = np.bincount(slots // self._per_call)  # of each call
        is_partial = ((num_active > 0) & (num_active < self._per_call)).any()
        saved = (self._states.copy(), self._steps.copy()) if is_partial else None
        for call in np.flatnonzero(num_active).tolist():
            self._step(self.address, call)
        if saved is not None:
            saved_states, saved_steps = saved
            np.copyto(self._states, saved_states, where=~self.active.reshape(-1, 1, self._lanes))
            np.copyto(self._steps, saved_steps, where=~self.active)
        self._observe(slots, observations)
        return self._rewards[slots], self._ended[slots]

    def move(self, sources: Slots, targets: Slots, receiver: "CompiledSlots | None" = None) -> None:
        """Continue the episodes of slots `sources` [k] in slots `targets` [k].

        receiver: The object with the slots `targets`, of the same task; by default this object.
        """
        to = self if receiver is None else receiver
        (tile, lane), (to_tile, to_lane) = np.divmod(sources, self._lanes), np.divmod(targets, self._lanes)
        to._states[to_tile, :, to_lane] = self._states[tile, :, lane]
        to._observations[to_tile, :, to_lane] = self._observations[tile, :, lane]
        if self.worlds is not None and to.worlds is not None:
            to.worlds[targets] = self.worlds[sources]
        to._seeds[targets] = self._seeds[sources]
        to._steps[targets] = self._steps[sources]
        to._ended[targets] = self._ended[sources]

    def state(self, slot: int) -> Any:
        """Return the state of a slot: [S], or its world."""
        if self.worlds is not None:
            return self.worlds[slot].copy()
        return self._states[slot // self._lanes, :, slot % self._lanes].copy()

    def seed_and_steps(self, slot: int) -> tuple[int, int]:
        """Return the seed of a slot's episode, and the number of its steps so far."""
        return int(self._seeds[slot]), int(self._steps[slot])

    def _observe(self, slots: Slots, observations: Float32) -> None:
        """Copy the observations that the kernel wrote for slots [k] into rows `slots` of observations [B, O]."""
        tile, lane = np.divmod(slots, self._lanes)
        observations[slots] = self._observations[tile, :, lane]


class _ArraySlots:
    """B slots of a task, stepped by its array operations. See `CompiledSlots` for the methods.

    states: [S, B], one column for each slot; or worlds [B].
    """

    def __init__(self, task: AnyTask, slots: int) -> None:
        self._task = task
        self._limit = task.step_limit
        self.states = task.blank_states(slots)
        self._seeds, self._steps = np.zeros(slots, np.int64), np.zeros(slots, np.int64)

    def begin(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        self._seeds[slots] = seeds
        self._steps[slots] = 0
        self.states[..., slots] = self._task.begin(self._draws(slots))
        self._observe(slots, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        states, rewards, over = self._task.step(self.states[..., slots], outputs, self._draws(slots))
        self.states[..., slots] = states
        self._steps[slots] += 1
        self._observe(slots, observations)
        return rewards, over | (self._steps[slots] >= self._limit)

    def move(self, sources: Slots, targets: Slots) -> None:
        self.states[..., targets] = self.states[..., sources]
        self._seeds[targets] = self._seeds[sources]
        self._steps[targets] = self._steps[sources]

    def state(self, slot: int) -> Any:
        return self.states[..., slot].copy()

    def seed_and_steps(self, slot: int) -> tuple[int, int]:
        return int(self._seeds[slot]), int(self._steps[slot])

    def _draws(self, slots: Slots) -> Draws:
        """Return the random numbers of the slots' episodes in their current steps."""
        return Draws(self._seeds[slots], self._steps[slots])

    def _observe(self, slots: Slots, observations: Float32) -> None:
        observations[slots] = self._task.observe(self.states[..., slots]).T


class ExactEngine:
    """B slots of an exact task. See `Engine` for the attributes. An episode cannot fail.

    Args:
        options: The environment.
        slots: B.
        compiled: Whether the native kernels step the slots, if they were built. Otherwise array operations step them.

    Raises:
        InputError: There is no such task, or the options do not fit it.
    """

    reuses = True
    metric_names: tuple[str, ...] = ()  # `environments.make` raises an error if an experiment asks for metrics
    min_free_slots = 1  # a reset is cheap, so an episode begins as soon as a slot is free

    def __init__(self, options: EnvOptions, slots: int, compiled: bool = True) -> None:
        self._options = options
        self.task = exact_task(options)
        self.id = options.id
        self.observation_size = self.task.observation_size
        self.action_size = self.task.action_size
        self.spaces = task_spaces(self.task)
        self.fps = self.task.fps
        self.faults: dict[int, str] = {}
        self.on_fault: Callable[[], None] = do_nothing
        self.compiled = compiled and native.available()
        self.slots = self._new_slots(slots)

    def _new_slots(self, slots: int) -> CompiledSlots | _ArraySlots:
        return CompiledSlots(self.task, slots) if self.compiled else _ArraySlots(self.task, slots)

    def suggested_slots(self) -> int:
        """Return 1024. Array operations are fast only with many slots, and kernels then need fewer calls."""
        return 1024

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; write rows `slots` of observations [B, O]."""
        self.slots.begin(slots, seeds, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] by outputs [k, A]; write rows `slots` of observations [B, O]; return rewards and ends, [k]."""
        return self.slots.step(slots, outputs, observations)

    def metrics(self, slots: Slots) -> Int64:
        """Return [k, 2, 0]: an exact task reports no metrics."""
        return np.zeros((len(slots), 2, 0), np.int64)

    def trial(self, seed: int, outputs: Float32, used: bool) -> Generator[Transition, None, None]:
        """Play one episode in a new slot, see `Engine.trial`. If `used`, another episode begins in the slot first."""
        new_slots = self._new_slots(1)
        slot_0 = np.zeros(1, np.intp)
        observations = np.zeros((1, self.observation_size), np.float32)
        if used:
            new_slots.begin(slot_0, np.array([seed + 1]), observations)
        new_slots.begin(slot_0, np.array([seed]), observations)
        yield {"observation": observations[0].copy()}
        for row in outputs:
            rewards, ended = new_slots.step(slot_0, row[None], observations)
            yield {"observation": observations[0].copy(), "reward": rewards[0], "terminated": bool(ended[0])}
            if ended[0]:
                break

    def decode(self, outputs: Float32) -> Any:
        """Return n actions from network outputs [n, A], in the type that Gymnasium's environment of this name takes."""
        actions = self.task.actions(outputs)
        return actions.tolist() if self.task.discrete else list(actions.astype(np.float32))

    def frame(self, slot: int) -> UInt8:
        """Return the picture that Gymnasium draws of the state of a slot, see `Engine.frame`.

        Raises:
            InputError: The task cannot be drawn, or a library that draws it is missing.
        """
        from evolve.environments.rendering import picture  # noqa: PLC0415 - only drawing needs Gymnasium

        seed, step = self.slots.seed_and_steps(slot)
        # Pictures show some settings, such as the length of a pole, so the task needs the values of this episode.
        task = exact_task(with_drawn_arguments(self._options, seed))
        return picture(self.id, task, self.slots.state(slot), seed, step)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` [k] in the free slots `targets` [k]."""
        self.slots.move(sources, targets)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
