"""The Gymnasium engine: one environment object per slot, stepped one after another."""

import copy
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from evolve.config import EnvOptions, Table
from evolve.environments import gymnasium_making, spaces
from evolve.environments.engine import (
    FPS,
    OWN_GENERATOR,
    PAIR_SECONDS,
    REPEATABLE,
    Transition,
    as_frame,
    do_nothing,
    encode_metrics,
)
from evolve.environments.exact import exact_task
from evolve.environments.randomization import draw_tables, example_arguments, may_repeat
from evolve.environments.spaces import Space, separate
from evolve.errors import FAILURES, EpisodeTimeout, EvolveError, InputError, describe, on_error, one_line
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

_Env = gymnasium.Env[Any, Any]
_NO_STEP = object()
_MEASURING_SECONDS = 0.005  # the duration of `_step_seconds`, unless the episode ends earlier
_TICK_SECONDS = 600e-6
"""The desired minimum duration of a tick (one step of all slots): 15 times the overhead of a tick, 40 µs."""
LONG_SECONDS = 60.0
"""If the environment declares no limit of steps, and no episode ends for this time, a process warns once."""
_LOG = logging.getLogger("evolve")


def _no_environment(_: Any) -> Any:
    raise RuntimeError("there is no environment in this slot: its reset failed")


@dataclass(slots=True, eq=False)
class _Slot:
    """An environment object, and the state of its episode.

    Attributes:
        env: The environment; None if there is none, or if it has failed.
        step: The method that steps it, see `_without_counters`.
        limit: The limit of steps of an episode. It may depend on the randomized arguments.
        drawn: The randomized arguments.
        elapsed: The number of steps of the episode so far.
        info: The `info` of the latest step.
    """

    env: Any = None
    step: Callable[[Any], Any] = _no_environment
    limit: float = math.inf
    drawn: Table = field(default_factory=dict)
    elapsed: int = 0
    info: Any = None

    def close(self) -> None:
        """Close the environment, if there is one. A later step raises an error."""
        env, self.env, self.step = self.env, None, _no_environment
        if env is not None:
            gymnasium_making.close_silently(env)


class GymnasiumEngine:
    """B slots of a Gymnasium environment.

    Each episode gets a new environment object, unless `options.reuse` permits that one object plays several episodes
    with equal randomized arguments.

    Raises InputError if the environment cannot be made or its spaces are not supported.
    """

    refill = 1  # a free slot need not wait for others

    def __init__(self, options: EnvOptions, slots: int) -> None:
        self.faults: dict[int, str] = {}
        self.on_fault: Callable[[], None] = do_nothing
        self._make = gymnasium_making.maker(options)
        self._randomize = options.randomize
        self._slots = [_Slot() for _ in range(slots)]
        self._spare: list[_Slot] = []
        """Environments that no slot needs now, but that a later episode may reuse; the oldest first."""
        self._reset_hung = False  # whether an episode hung in the last `reset` and ends the run, see `_ends_run`
        self.metric_names = options.reported_metrics
        first = gymnasium_making.make_or_explain(options, self._make)
        # Slot 0 keeps the object whose spaces `_examine` reads, because `suggested_slots` steps it.
        self._slots[0] = _filled(first, example_arguments(self._randomize))
        self._warns = self._slots[0].limit == math.inf  # whether the warning of `LONG_SECONDS` may still come
        self._deadline = math.inf  # the time of this warning
        with on_error(self.close):  # a thread of the environment would keep the process alive
            self._examine(first, options)

    def _examine(self, first: _Env, options: EnvOptions) -> None:
        """Set the attributes that all slots share. Raises InputError for unsupported spaces."""
        try:
            self.spaces = spaces.Spaces(first.observation_space, first.action_space)
        except FAILURES as error:  # the spaces are missing, or are properties that raise
            expected = "an environment with an observation_space and an action_space"
            raise InputError("env.id", expected, f"{options.id} ({one_line(error)})") from error
        self.observation_size, self._encode = spaces.observation_encoder(first.observation_space)
        self._actions = first.action_space
        self.action_size, self._decode = spaces.action_decoder(first.action_space, options.action_scale)
        self.reuses = gymnasium_making.may_reuse(first, options)
        self.fps = _frames_per_second(first)
        self._stops = options.on_failure == "stop"
        # Gymnasium adds the newest version to an id without one. An id `module:Name` stays, because its spec may lack
        # the module.
        self.id = options.id if ":" in options.id or first.spec is None else first.spec.id

    def suggested_slots(self) -> int:
        """Return a power of two from 8 to 64: the smallest one with which a tick is long compared with its overhead.

        The number is 64 if no smaller one suffices, and 8 if the environment fails. More environments would compete for
        the cache of the processor. The method steps the environment of slot 0, so call it before any episode begins.
        Raises EpisodeTimeout if that environment hangs.
        """
        try:
            seconds = _step_seconds(self._slots[0].env, self._actions)
        except (KeyboardInterrupt, EpisodeTimeout):
            raise
        except BaseException:  # the evaluation will meet the same error, and report where it happened
            return 8
        for slots in (8, 16, 32):
            if slots * seconds > _TICK_SECONDS:
                return slots
        return 64

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; write rows `slots` of observations [B, O]."""
        tables = draw_tables(self._randomize, seeds)
        self._reset_hung = False
        for slot, seed, drawn in zip(slots.tolist(), seeds.tolist(), tables, strict=True):
            try:
                playing = self._slots[slot]
                if playing.env is None or not self.reuses or playing.drawn != drawn:
                    playing = self._exchange(slot, drawn)
                playing.elapsed = 0
                result = playing.env.reset(seed=seed)
                if fault := reset_fault(self.spaces.observation, result):
                    raise EvolveError(fault)
                self._encode(result[0], observations[slot])
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # see `step`
                self._note_fault(slot, error)
                # The slot stays live until the next step ends its episode, so the network sees this row once.
                observations[slot] = 0
                if self._ends_run(error):
                    self._reset_hung = True
                    break
        if self._warns:
            # Episodes begin because others have ended, except for the first episodes. So the warning has to wait for
            # `LONG_SECONDS` again.
            self._deadline = time.monotonic() + LONG_SECONDS

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] by outputs [k, A]; write rows `slots` of observations [B, O]; return rewards and ends, [k]."""
        # A reset hung and ends the run, so play no other slot, see `_ends_run`.
        if self._reset_hung:
            failed = np.isin(slots, list(self.faults))
            return np.where(failed, np.nan, 0.0), failed
        actions = self.decode(outputs)
        encode, contents = self._encode, self._slots
        rewards: list[float] = []
        ended: list[bool] = []
        # This loop runs once per step of every episode, so it calls no helper functions.
        for slot, action in zip(slots.tolist(), actions, strict=True):
            result: Any = _NO_STEP
            playing = contents[slot]
            try:
                result = playing.step(action)
                observation, raw_reward, terminated, truncated, playing.info = result
                encode(observation, observations[slot])
                reward = float(raw_reward)
                playing.elapsed += 1
                over = bool(terminated or truncated) or playing.elapsed >= playing.limit
            except KeyboardInterrupt:
                raise
            # A panic of a library in Rust, and asyncio's CancelledError, are no subclasses of Exception.
            except BaseException as error:
                # Only an error makes this loop examine a result. If `step` itself raised, there is no result.
                fault = result is not _NO_STEP and step_fault(self.spaces.observation, result)
                self._note_fault(slot, EvolveError(fault) if fault else error)
                reward, over = math.nan, True
                if self._ends_run(error):
                    # The slots after this one are not played: they get the reward 0, and their episodes have not ended.
                    unplayed = len(actions) - len(rewards) - 1
                    rewards += [math.nan] + [0.0] * unplayed
                    ended += [True] + [False] * unplayed
                    break
            rewards.append(reward)
            ended.append(over)
        if self._warns and any(ended):
            self._deadline = time.monotonic() + LONG_SECONDS
        elif self._warns and time.monotonic() > self._deadline:
            self._warns = False
            none_ends = f"{self.id} declares no limit of steps, and no episode has ended here for {LONG_SECONDS:g} s"
            lasts = "an episode without an end lasts for env.max_episode_seconds"
            _LOG.warning("%s: %s, unless env.max_episode_steps limits it", none_ends, lasts)
        return np.array(rewards, np.float64), np.array(ended, np.bool_)

    def metrics(self, slots: Slots) -> Int64:
        """Return the metrics of slots [k] after the end of their episodes, [k, 2, M]; see `Engine.metrics`."""
        encoded = np.zeros((len(slots), 2, len(self.metric_names)), np.int64)
        for row, slot in enumerate(slots.tolist()):
            if slot not in self.faults:
                try:
                    encoded[row] = encode_metrics(self._slots[slot].info, self.metric_names)
                except FAILURES as error:
                    self._note_fault(slot, error)
        return encoded

    def trial(self, seed: int, outputs: Float32, used: bool) -> Generator[Transition, None, None]:
        """Play one episode in a new object; see `Engine.trial`.

        Raises InputError if the environment breaks Gymnasium's interface, or if a step draws from `np.random` or
        `random`. All episodes of a process share these two generators, so episodes would affect each other.
        """
        actions = self.decode(outputs)
        table = draw_tables(self._randomize, np.array([seed]))[0]
        with gymnasium_making.closing_silently(self._make(table)) as env:
            if used and self.reuses:
                env.reset(seed=seed + 1)
                # Play to the end of the episode if there is time, because an object may keep something at its end.
                end = time.perf_counter() + PAIR_SECONDS / 2
                for action in cycle(actions):
                    if any(env.step(action)[2:4]) or time.perf_counter() > end:
                        break
            try:
                begun = env.reset(seed=seed)
            except TypeError as error:
                # A TypeError of a call inside `reset` is an ordinary error of the environment.
                if not re.search(r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)):
                    raise
                self._refuse(f"reset must take seed and options, as reset(self, *, seed=None, options=None) ({error})")
            self._refuse(reset_fault(self.spaces.observation, begun))
            # Copy, because environments may return an array that they share, and change it in the next step.
            yield {"observation": copy.deepcopy(begun[0])}
            # Compare from here on: a reset may seed these generators, but a step must not draw from them.
            generators = _global_generators()
            for action in actions:
                stepped = env.step(action)
                self._refuse(step_fault(self.spaces.observation, stepped))
                # Not strict: the fifth result, `info`, is not compared.
                transition = dict(zip(("observation", "reward", "terminated", "truncated"), stepped, strict=False))
                yield copy.deepcopy(transition)
                if transition["terminated"] or transition["truncated"]:
                    break
            if _global_generators() != generators:
                got = f"{self.id}, which draws from np.random or random, generators that a process's episodes share"
                raise InputError("env.id", OWN_GENERATOR, got, *REPEATABLE)

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions of network outputs [n, A]."""
        return separate(self._actions, self._decode(outputs))

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, [H, W, 3], also when its episode has just ended."""
        env = self._slots[slot].env
        cure = gymnasium_making.MUJOCO_CURE if gymnasium_making.renders_by_mujoco(env) else ""
        # If the reset failed, there is no environment. Then `as_frame` refuses the frame None.
        return as_frame(self.id, lambda: env and env.render(), cure)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` in slots `targets`, by swapping their environment objects."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            # Swap instead of copying, so that the free slots keep objects for later episodes.
            self._slots[source], self._slots[target] = self._slots[target], self._slots[source]

    def close(self) -> None:
        """Close every environment."""
        for slot in (*self._slots, *self._spare):
            slot.close()
        self._spare.clear()

    def _refuse(self, fault: str | None) -> None:
        """Raise InputError if there is a fault, a sentence on how the environment breaks Gymnasium's interface."""
        if fault:
            raise InputError("env.id", "an environment that keeps Gymnasium's interface", f"{self.id}: {fault}")

    def _note_fault(self, slot: int, error: BaseException) -> None:
        """Record the error of an environment, and close it. A slot keeps the message of its first error."""
        self.faults.setdefault(slot, describe(error))
        self._slots[slot].close()
        self.on_fault()

    def _ends_run(self, error: BaseException) -> bool:
        """Return whether an error ends the run: an episode hangs, and `env.on_failure` is "stop".

        The other slots are then not played, because each of them might hang for as long.
        """
        return self._stops and isinstance(error, EpisodeTimeout)

    def _exchange(self, slot: int, drawn: Table) -> _Slot:
        """Put an environment with these randomized arguments into a slot, and return the new content of the slot.

        The previous environment is kept if it can be reused, and its arguments may be drawn again.
        """
        spare = next((each for each in self._spare if each.drawn == drawn), None)
        if spare is not None:
            self._spare.remove(spare)
        # Empty the slot first, because making an environment may fail.
        previous, self._slots[slot] = self._slots[slot], _Slot()
        if previous.env is not None:
            self._spare.append(previous)
        most = len(self._slots) if self.reuses and may_repeat(self._randomize) else 0
        while len(self._spare) > most:
            self._spare.pop(0).close()
        self._slots[slot] = spare or _filled(self._make(drawn), drawn)
        return self._slots[slot]


def _filled(env: _Env, drawn: Table) -> _Slot:
    core, limit = _without_counters(env)
    return _Slot(env, core.step, limit, drawn)


def _frames_per_second(env: _Env) -> float:
    """Return the frame rate that an environment declares; FPS if it declares no positive number."""
    with suppress(LookupError, TypeError, ValueError, OverflowError):  # an environment may declare anything
        declared = float(env.metadata["render_fps"])
        if 0 < declared < math.inf:
            return declared
    return FPS


class GymnasiumFallback(GymnasiumEngine):
    """B slots of an exact task with rigid bodies, played by Gymnasium if the native kernels were not built.

    Gymnasium's episodes have the same bits. Array operations would take a hundred times as long.

    Raises:
        InputError: Box2D is not installed, or the options do not fit the task.
    """

    def __init__(self, options: EnvOptions, slots: int) -> None:
        task = exact_task(options)
        # Never reuse an object, because an object of Box2D plays its second episode with other bits.
        super().__init__(options.model_copy(update={"engine": "gymnasium", "reuse": False}), slots)
        self.spaces = spaces.task_spaces(task)
        # Gymnasium's environment fails on an action of NaN. `task.actions` makes a valid action of an output of NaN.
        self._decode = task.actions

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, [H, W, 3], also when its episode has just ended."""

        def render() -> Any:
            # Set the render mode only here. With a render mode, each step of a lander would add particles to its world.
            env = self._slots[slot].env
            env.unwrapped.render_mode = "rgb_array"
            try:
                return env.render()
            finally:
                env.unwrapped.render_mode = None

        return as_frame(self.id, render)


def _global_generators() -> tuple[Any, ...]:
    """Return the states of the generators of `np.random` and `random`, which all code of a process shares."""
    numpy_state: Any = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - an environment may use it
    python = sys.modules.get("random")
    # The entries depend on the kind of generator, which `np.random.set_bit_generator` may have changed.
    values = tuple(each.tobytes() if isinstance(each, np.ndarray) else each for each in numpy_state.values())
    return *values, python and python.getstate()


def _step_seconds(env: Any, actions: gymnasium.Space[Any]) -> float:
    """Return the duration of the fastest of several steps."""
    env.reset(seed=0)
    actions.seed(0)
    action = actions.sample()
    quickest = math.inf
    begin = time.perf_counter()
    while time.perf_counter() - begin < _MEASURING_SECONDS:
        before = time.perf_counter()
        ended = any(env.step(action)[2:4])
        quickest = min(quickest, time.perf_counter() - before)
        if ended:
            break
    return quickest


def _without_counters(env: _Env) -> tuple[_Env, float]:
    """Return an environment without TimeLimit and OrderEnforcing, and the limit. The engine counts faster itself."""
    limit = math.inf
    # Compare the types exactly, because a subclass may do more. OrderEnforcing is not needed: the engine always resets
    # an environment before it steps it. mypy does not infer the type of `env` from this condition.
    while type(env) in (TimeLimit, OrderEnforcing) and env.spec is not None:
        if isinstance(env, TimeLimit):
            limit = min(limit, env.spec.max_episode_steps or math.inf)
        env = env.env  # type: ignore[attr-defined]
    return env, limit


def reset_fault(space: Space, result: Any) -> str | None:
    """Return a sentence on how the result of `reset` breaks Gymnasium's interface; None if it does not."""
    if not isinstance(result, tuple) or len(result) != 2:
        return f"reset must return (observation, info), but returned {_in_words(result)}"
    return _observation_fault(space, result[0], "reset")


def step_fault(space: Space, result: Any) -> str | None:
    """Return a sentence on how the result of `step` breaks Gymnasium's interface; None if it does not."""
    if not isinstance(result, tuple) or len(result) != 5:
        old = " (the interface of Gym before 0.26)" if isinstance(result, tuple) and len(result) == 4 else ""
        expected = "(observation, reward, terminated, truncated, info)"
        return f"step must return {expected}, but returned {_in_words(result)}{old}"
    observation, reward, *ends, _ = result
    if not _is_number(reward):
        return f"the reward of step must be one number, not {_in_words(reward)}"
    for name, value in zip(("terminated", "truncated"), ends, strict=True):
        # Texts such as "no", and {"a": False}, would count as true, and end every episode after its first step.
        if value is None or isinstance(value, str | bytes | Mapping) or any(length != 1 for length in _shape(value)):
            return f"{name} of step must be one bool, not {_in_words(value)}"
    return _observation_fault(space, observation, "step")


def _observation_fault(space: Space, observation: Any, method: str) -> str | None:
    try:
        spaces.check_observation(space, observation)
    except FAILURES as error:
        return f"the observation of {method} must fit {space}, but has {error}"
    return None


def _is_number(value: Any) -> bool:
    # `float` takes "1.0", and drops the imaginary part of NumPy's complex numbers.
    try:
        if isinstance(value, str | bytes) or np.iscomplexobj(value):
            return False
        float(value)
        return np.shape(value) == ()
    except FAILURES:
        return False


def _shape(value: Any) -> tuple[int, ...]:
    """Return the shape of a value as an array; (0,) for a list of lists of different lengths."""
    try:
        return np.shape(value)
    except ValueError:
        return (0,)


def _in_words(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
