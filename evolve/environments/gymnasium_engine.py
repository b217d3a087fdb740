"""The Gymnasium engine: one environment object per slot, stepped one after another.

`gymnasium_making.py` makes the environments. `reset_fault` and `step_fault` describe how an environment breaks
Gymnasium's interface. `GymnasiumFallback` takes the place of the exact engine if its kernels are missing.
"""

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
    DEFAULT_FPS,
    OWN_GENERATOR,
    PAIR_SECONDS,
    REPEATABLE,
    Transition,
    as_frame,
    do_nothing,
    encode_metrics,
)
from evolve.environments.exact import exact_task
from evolve.environments.randomization import draw_tables, example_arguments, may_draw_equal_arguments
from evolve.environments.spaces import Space, separate_actions
from evolve.errors import FAILURES, EpisodeTimeout, EvolveError, InputError, describe_error, on_error, one_line
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

_Env = gymnasium.Env[Any, Any]
_NO_RESULT = object()  # stands for the result of a step that raised an exception
_MEASURING_SECONDS = 0.005  # the duration of `_step_seconds`, unless the episode ends earlier
_TICK_SECONDS = 600e-6
"""The desired least duration of a tick (one step of all slots): 15 times the overhead of a tick, which is 40 µs."""
NO_END_SECONDS = 60.0
"""If an environment declares no step limit, and no episode ends for this time, the process warns once."""
_LOG = logging.getLogger("evolve")


def _raise_no_environment(_: Any) -> Any:
    raise RuntimeError("there is no environment in this slot: its reset failed")


@dataclass(slots=True, eq=False)
class _SlotContent:
    """The content of a slot: an environment object, and the state of its episode.

    Attributes:
        env: The environment; None before the first episode, and after a failure.
        step: The method that steps the environment, see `_without_counters`.
        limit: The step limit of an episode. It may depend on the randomized arguments.
        drawn: The values of the randomized arguments.
        elapsed: The number of steps of the episode so far.
        info: The `info` of the latest step.
    """

    env: Any = None
    step: Callable[[Any], Any] = _raise_no_environment
    limit: float = math.inf
    drawn: Table = field(default_factory=dict)
    elapsed: int = 0
    info: Any = None

    def close(self) -> None:
        """Close the environment, if there is one. A later step raises an error."""
        env, self.env, self.step = self.env, None, _raise_no_environment
        if env is not None:
            gymnasium_making.close_silently(env)


class GymnasiumEngine:
    """B slots of a Gymnasium environment.

    Each episode gets a new environment object, unless `options.reuse` permits that one object plays several episodes
    with equal randomized arguments.

    Raises InputError if the environment cannot be made or its spaces are not supported.
    """

    min_free_slots = 1  # a free slot need not wait for others

    def __init__(self, options: EnvOptions, slots: int) -> None:
        self.faults: dict[int, str] = {}
        self.on_fault: Callable[[], None] = do_nothing
        self._make = gymnasium_making.maker(options)
        self._randomize = options.randomize
        self._slots = [_SlotContent() for _ in range(slots)]
        # Environments that no slot needs now, but that a later episode may reuse; the oldest first.
        self._spare: list[_SlotContent] = []
        self._reset_hung = False  # whether an episode hung in the last `reset`, and `_ends_run` was true
        self.metric_names = options.reported_metrics
        first = gymnasium_making.make_or_explain(options, self._make)
        # Slot 0 keeps this first object, because `suggested_slots` steps it.
        self._slots[0] = _new_content(first, example_arguments(self._randomize))
        self._may_warn = self._slots[0].limit == math.inf  # whether the warning of `NO_END_SECONDS` may still come
        self._warning_time = math.inf  # the time of this warning, unless an episode begins or ends before
        with on_error(self.close):  # otherwise a thread of the environment would keep the process alive
            self._examine(first, options)

    def _examine(self, first: _Env, options: EnvOptions) -> None:
        """Set the attributes that follow from an environment object. Raises InputError for unsupported spaces."""
        try:
            self.spaces = spaces.Spaces(first.observation_space, first.action_space)
        except FAILURES as error:  # the spaces are missing, or are properties that raise an exception
            expected = "an environment with an observation_space and an action_space"
            raise InputError("env.id", expected, f"{options.id} ({one_line(error)})") from error
        self.observation_size, self._encode = spaces.observation_encoder(first.observation_space)
        self._action_space = first.action_space
        self.action_size, self._decode = spaces.action_decoder(first.action_space, options.action_scale)
        self.reuses = gymnasium_making.may_reuse(first, options)
        self.fps = _frames_per_second(first)
        self._stops_on_failure = options.on_failure == "stop"
        # Take the id from Gymnasium, which adds the newest version to an id without one. But keep an id `module:Name`,
        # because Gymnasium's id may lack the module.
        self.id = options.id if ":" in options.id or first.spec is None else first.spec.id

    def suggested_slots(self) -> int:
        """Return the smallest of 8, 16, 32 and 64 slots with which a tick takes at least `_TICK_SECONDS`; at most 64.

        More environments would compete for the cache of the processor. If the environment fails, the result is 8. This
        method steps the environment of slot 0, so call it before any episode begins. Raises EpisodeTimeout if that
        environment hangs.
        """
        try:
            seconds = _step_seconds(self._slots[0].env, self._action_space)
        except (KeyboardInterrupt, EpisodeTimeout):
            raise
        except BaseException:  # the evaluation will meet the same error, and report where it happened
            return 8
        return next((slots for slots in (8, 16, 32) if slots * seconds > _TICK_SECONDS), 64)

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; write rows `slots` of observations [B, O]."""
        tables = draw_tables(self._randomize, seeds)
        self._reset_hung = False
        for slot, seed, drawn in zip(slots.tolist(), seeds.tolist(), tables, strict=True):
            try:
                content = self._slots[slot]
                if content.env is None or not self.reuses or content.drawn != drawn:
                    content = self._exchange(slot, drawn)
                content.elapsed = 0
                result = content.env.reset(seed=seed)
                if fault := reset_fault(self.spaces.observation, result):
                    raise EvolveError(fault)
                self._encode(result[0], observations[slot])
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # not only Exception, see `step`
                self._note_fault(slot, error)
                # The next step finds no environment in the slot, and ends this episode. Before that, its network sees
                # this row once.
                observations[slot] = 0
                if self._ends_run(error):
                    self._reset_hung = True
                    break
        # Episodes begin at the start of a run, or because others have ended. So the time of the warning starts again.
        self._warning_time = time.monotonic() + NO_END_SECONDS

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] by outputs [k, A]; write rows `slots` of observations [B, O]; return rewards and ends, [k]."""
        if self._reset_hung:  # play no other slot, see `_ends_run`
            failed = np.isin(slots, list(self.faults))
            return np.where(failed, np.nan, 0.0), failed
        actions = self.decode(outputs)
        encode, contents = self._encode, self._slots
        rewards: list[float] = []
        ended: list[bool] = []
        # This loop runs in each step of each episode, so for speed it calls no helper functions.
        for slot, action in zip(slots.tolist(), actions, strict=True):
            result: Any = _NO_RESULT
            content = contents[slot]
            try:
                result = content.step(action)
                observation, raw_reward, terminated, truncated, content.info = result
                encode(observation, observations[slot])
                reward = float(raw_reward)
                content.elapsed += 1
                over = bool(terminated or truncated) or content.elapsed >= content.limit
            except KeyboardInterrupt:
                raise
            # Not only Exception: a panic of a library in Rust, and asyncio's CancelledError, are no subclasses of it.
            except BaseException as error:
                # For speed, a result is examined only now. If `step` itself raised the error, there is no result.
                fault = None if result is _NO_RESULT else step_fault(self.spaces.observation, result)
                self._note_fault(slot, EvolveError(fault) if fault else error)
                reward, over = math.nan, True
                if self._ends_run(error):
                    # The later slots are not played: they get the reward 0, and their episodes have not ended.
                    unplayed = len(actions) - len(rewards) - 1
                    rewards += [math.nan] + [0.0] * unplayed
                    ended += [True] + [False] * unplayed
                    break
            rewards.append(reward)
            ended.append(over)
        if self._may_warn and any(ended):
            self._warning_time = time.monotonic() + NO_END_SECONDS
        elif self._may_warn and time.monotonic() > self._warning_time:
            self._may_warn = False
            no_end = f"{self.id} declares no limit of steps, and no episode has ended here for {NO_END_SECONDS:g} s"
            until = "env.max_episode_seconds, unless env.max_episode_steps limits it"
            _LOG.warning("%s: an episode without an end lasts for %s", no_end, until)
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
        drawn = draw_tables(self._randomize, np.array([seed]))[0]
        with gymnasium_making.closing_silently(self._make(drawn)) as env:
            if used and self.reuses:
                env.reset(seed=seed + 1)
                # If there is time, play this episode to its end, because an environment may keep something from there.
                deadline = time.perf_counter() + PAIR_SECONDS / 2
                for action in cycle(actions):
                    _, _, terminated, truncated, _ = env.step(action)
                    if terminated or truncated or time.perf_counter() > deadline:
                        break
            try:
                reset_result = env.reset(seed=seed)
            except TypeError as error:
                # Any other TypeError comes from inside `reset`, and is an ordinary error of the environment.
                if not re.search(r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)):
                    raise
                self._refuse(f"reset must take seed and options, as reset(self, *, seed=None, options=None) ({error})")
            self._refuse(reset_fault(self.spaces.observation, reset_result))
            # Copy, because an environment may return an array of its own, and change it in the next step.
            yield {"observation": copy.deepcopy(reset_result[0])}
            # Read the states after the reset: a reset may seed these generators, but a step must not draw from them.
            states = _global_generator_states()
            for action in actions:
                result = env.step(action)
                self._refuse(step_fault(self.spaces.observation, result))
                # The zip drops the fifth result, `info`, because it is not compared.
                transition = dict(zip(("observation", "reward", "terminated", "truncated"), result, strict=False))
                yield copy.deepcopy(transition)
                if transition["terminated"] or transition["truncated"]:
                    break
            if _global_generator_states() != states:
                got = f"{self.id}, which draws from np.random or random, generators that a process's episodes share"
                raise InputError("env.id", OWN_GENERATOR, got, *REPEATABLE)

    def decode(self, outputs: Float32) -> Any:
        """Return n actions from network outputs [n, A], as a list."""
        return separate_actions(self._action_space, self._decode(outputs))

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, see `Engine.frame`."""
        env = self._slots[slot].env
        cure = gymnasium_making.MUJOCO_CURE if gymnasium_making.renders_by_mujoco(env) else ""
        # If the environment has failed, there is no frame, and `as_frame` raises an error for None.
        return as_frame(self.id, lambda: None if env is None else env.render(), cure)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` [k] in the free slots `targets` [k], by swapping objects."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            # Swap instead of moving, so that a free slot keeps an environment that a later episode may reuse.
            self._slots[source], self._slots[target] = self._slots[target], self._slots[source]

    def close(self) -> None:
        """Close every environment."""
        for content in (*self._slots, *self._spare):
            content.close()
        self._spare.clear()

    def _refuse(self, fault: str | None) -> None:
        """Raise InputError if there is a fault: a sentence on how the environment breaks Gymnasium's interface."""
        if fault:
            raise InputError("env.id", "an environment that keeps Gymnasium's interface", f"{self.id}: {fault}")

    def _note_fault(self, slot: int, error: BaseException) -> None:
        """Record an error of a slot's environment, and close the environment. A slot keeps its first message."""
        self.faults.setdefault(slot, describe_error(error))
        self._slots[slot].close()
        self.on_fault()

    def _ends_run(self, error: BaseException) -> bool:
        """Return whether an error ends the run: an episode hangs, and `env.on_failure` is "stop".

        The engine then does not play the other slots, because each of them might hang for as long.
        """
        return self._stops_on_failure and isinstance(error, EpisodeTimeout)

    def _exchange(self, slot: int, drawn: Table) -> _SlotContent:
        """Put an environment with the randomized arguments `drawn` into a slot, and return the new content of the slot.

        The previous environment becomes a spare one if a later episode may draw its arguments again.
        """
        reusable = next((spare for spare in self._spare if spare.drawn == drawn), None)
        if reusable is not None:
            self._spare.remove(reusable)
        # Empty the slot first, because making an environment may fail.
        previous, self._slots[slot] = self._slots[slot], _SlotContent()
        if previous.env is not None:
            self._spare.append(previous)
        max_spare = len(self._slots) if self.reuses and may_draw_equal_arguments(self._randomize) else 0
        while len(self._spare) > max_spare:
            self._spare.pop(0).close()
        self._slots[slot] = reusable or _new_content(self._make(drawn), drawn)
        return self._slots[slot]


def _new_content(env: _Env, drawn: Table) -> _SlotContent:
    core, limit = _without_counters(env)
    return _SlotContent(env, core.step, limit, drawn)


def _frames_per_second(env: _Env) -> float:
    """Return the frame rate that an environment declares; DEFAULT_FPS unless it is a positive number."""
    with suppress(LookupError, TypeError, ValueError, OverflowError):  # an environment may declare anything
        declared = float(env.metadata["render_fps"])
        if 0 < declared < math.inf:
            return declared
    return DEFAULT_FPS


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
        # Decode as the exact engine does. An output NaN then becomes a valid action; Gymnasium fails on an action NaN.
        self._decode = task.actions

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, see `Engine.frame`."""

        def render() -> Any:
            # Set the render mode only while drawing. With it, each step of a lander would add particles to its world.
            env = self._slots[slot].env
            env.unwrapped.render_mode = "rgb_array"
            try:
                return env.render()
            finally:
                env.unwrapped.render_mode = None

        return as_frame(self.id, render)


def _global_generator_states() -> tuple[Any, ...]:
    """Return the states of the generators of `np.random` and `random`, which all code of a process shares."""
    numpy_state: Any = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - an environment may use it
    # Arrays become bytes, so that == compares the tuples. Which entries are arrays depends on the kind of generator.
    entries = (entry.tobytes() if isinstance(entry, np.ndarray) else entry for entry in numpy_state.values())
    python_random = sys.modules.get("random")  # no environment has drawn from it if it is not imported
    return *entries, python_random and python_random.getstate()


def _step_seconds(env: Any, action_space: gymnasium.Space[Any]) -> float:
    """Return the duration of the fastest of several steps, all with the same action."""
    env.reset(seed=0)
    action_space.seed(0)
    action = action_space.sample()
    fastest = math.inf
    begin = time.perf_counter()
    while time.perf_counter() - begin < _MEASURING_SECONDS:
        before = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        fastest = min(fastest, time.perf_counter() - before)
        if terminated or truncated:
            break
    return fastest


def _without_counters(env: _Env) -> tuple[_Env, float]:
    """Return an environment without its wrappers TimeLimit and OrderEnforcing, and the step limit; ∞ if there is none.

    The engine counts steps itself, which is faster. It always resets an environment before its first step, and
    OrderEnforcing only enforces this.
    """
    limit = math.inf
    # Compare the types exactly, because a subclass may do more. mypy does not infer the type of `env` from this.
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
        hint = " (the interface of Gym before 0.26)" if isinstance(result, tuple) and len(result) == 4 else ""
        expected = "(observation, reward, terminated, truncated, info)"
        return f"step must return {expected}, but returned {_in_words(result)}{hint}"
    observation, reward, terminated, truncated, _ = result
    if not _is_number(reward):
        return f"the reward of step must be one number, not {_in_words(reward)}"
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if not _is_one_bool(value):
            return f"{name} of step must be one bool, not {_in_words(value)}"
    return _observation_fault(space, observation, "step")


def _observation_fault(space: Space, observation: Any, method: str) -> str | None:
    try:
        spaces.check_observation(space, observation)
    except FAILURES as error:
        return f"the observation of {method} must fit {space}, but has {error}"
    return None


def _is_number(value: Any) -> bool:
    """Return whether a value is one real number, of any type that `float` converts."""
    with suppress(*FAILURES):
        # `float` would take "1.0", and drop the imaginary part of NumPy's complex numbers.
        if not isinstance(value, str | bytes) and not np.iscomplexobj(value):
            float(value)
            return np.shape(value) == ()
    return False


def _is_one_bool(value: Any) -> bool:
    """Return whether a value may count as one bool. NumPy's bool, a number, and an array of one element may, too."""
    # A text such as "no", or {"a": False}, would count as true, and end every episode after its first step.
    if value is None or isinstance(value, str | bytes | Mapping):
        return False
    with suppress(ValueError):  # a list of lists of different lengths
        # Not np.size, because `size` of a tensor of PyTorch is a method.
        return all(length == 1 for length in np.shape(value))
    return False


def _in_words(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
