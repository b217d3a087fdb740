"""The Gymnasium engine: one environment object per slot, stepped one after another."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from evolve.config import EnvOptions
from evolve.environments.engine import FPS, Transition, as_frame, do_nothing
from evolve.environments.factory import MUJOCO_CURE, draws_by_mujoco, make_or_explain, maker, may_reuse
from evolve.environments.spaces import action_decoder, check_observation, observation_encoder, quiet, separate
from evolve.errors import FAILURES, describe
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

_Env = gymnasium.Env[Any, Any]

_MEASURING_SECONDS = 0.005
_TICK_SECONDS = 600e-6
"""How long a tick (one step of all slots) should take at least: 15 times the 40 µs that it costs beside its steps."""


class GymnasiumEngine:
    """B slots of a Gymnasium environment.

    A slot gets a new environment object for each episode unless `options.reuse` allows to keep it.
    Raises InputError when the environment cannot be made or its spaces are not supported.
    """

    refill = 1  # a free slot need not wait for others

    def __init__(self, options: EnvOptions, slots: int) -> None:
        quiet()
        self.faults: dict[int, str] = {}
        self.on_fault: Callable[[], None] = do_nothing
        self._make = maker(options)
        self._envs: list[_Env | None] = [None] * slots
        self._step: list[Any] = [_no_environment] * slots  # step methods below the step counters
        self._elapsed = [0] * slots
        first = make_or_explain(options, self._make)
        self._place(0, first)
        self._observed = first.observation_space
        self.observation_size, self._encode = observation_encoder(self._observed)
        self._actions = first.action_space
        self.action_size, self._decode = action_decoder(first.action_space, options.action_scale)
        self.reuses = may_reuse(first, options)
        self.fps = float(first.metadata.get("render_fps") or FPS)
        self.id = options.id if ":" in options.id or first.spec is None else first.spec.id

    def suggested_slots(self) -> int:
        """Return a power of two, 8 to 64: few slots where a step is slow, since the environments share the cache.

        Steps the environment of slot 0, so it is called before any episode begins.
        """
        try:
            seconds = _step_seconds(self._envs[0], self._actions)
        except FAILURES:  # whatever it is, the evaluation will meet it and say where
            return 8
        return next((n for n in (8, 16, 32) if n * seconds > _TICK_SECONDS), 64)

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; writes their observations [B, O]."""
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            try:
                if self._envs[slot] is None or not self.reuses:
                    self._drop(slot)
                    self._place(slot, self._make())
                self._encode(self._envs[slot].reset(seed=seed)[0], observations[slot])
            except FAILURES as error:
                self._note_fault(slot, error)
                observations[slot] = 0
            self._elapsed[slot] = 0

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] with outputs [k, A]; writes observations [B, O]; returns rewards, and which ended, [k]."""
        actions = separate(self._actions, self._decode(outputs))
        steps, encode, elapsed, limit = self._step, self._encode, self._elapsed, self._limit
        rewards: list[float] = []
        ended: list[bool] = []
        for slot, action in zip(slots.tolist(), actions, strict=True):  # one loop: a call each would be felt
            try:
                observation, raw_reward, terminated, truncated, _ = steps[slot](action)
                encode(observation, observations[slot])
                reward = float(raw_reward)
                elapsed[slot] += 1
                over = bool(terminated or truncated) or elapsed[slot] >= limit
            except FAILURES as error:
                self._note_fault(slot, error)
                reward, over = math.nan, True
            rewards.append(reward)
            ended.append(over)
        return np.array(rewards, np.float64), np.array(ended, np.bool_)

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Transition]:
        """Play one episode in an object of its own; a used one has begun another episode, if objects are reused."""
        actions = separate(self._actions, self._decode(outputs))
        with closing(self._make()) as env:
            if used and self.reuses:
                env.reset(seed=seed + 1)
                env.step(actions[0])
            yield {"observation": env.reset(seed=seed)[0]}
            for action in actions:
                said = dict(zip(("observation", "reward", "terminated", "truncated"), env.step(action), strict=False))
                yield said
                if said["terminated"] or said["truncated"]:
                    break

    def encode(self, observation: Any) -> Float32:
        """Return [O]: one observation, as networks see it. Raises ValueError where it has another shape."""
        check_observation(self._observed, observation)
        row = np.zeros(self.observation_size, np.float32)
        self._encode(observation, row)
        return row

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions that network outputs [n, A] stand for."""
        return separate(self._actions, self._decode(outputs))

    def frame(self, slot: int) -> UInt8:
        """Return what a slot's environment looks like, [H, W, 3]; also when its episode has just ended."""
        env = self._envs[slot]
        cure = MUJOCO_CURE if draws_by_mujoco(env) else ""
        return as_frame(self.id, lambda: env and env.render(), cure)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Let slots `targets` go on with the episodes of slots `sources`; they trade environment objects."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            for objects in (self._envs, self._step):
                objects[source], objects[target] = objects[target], objects[source]
            self._elapsed[target] = self._elapsed[source]

    def close(self) -> None:
        """Close every environment."""
        for slot in range(len(self._envs)):
            self._drop(slot)

    def _note_fault(self, slot: int, error: BaseException) -> None:
        """Note what an environment raised, unless its slot has a fault already, and drop that object."""
        self.faults.setdefault(slot, describe(error))
        self._drop(slot)
        self.on_fault()

    def _drop(self, slot: int) -> None:
        env = self._envs[slot]
        self._envs[slot] = None
        self._step[slot] = _no_environment
        with suppress(*FAILURES):
            if env is not None:
                env.close()

    def _place(self, slot: int, env: _Env) -> None:
        core, self._limit = _without_counters(env)  # the limit is the same for all
        self._envs[slot] = env
        self._step[slot] = core.step


def _no_environment(_: Any) -> Any:
    raise RuntimeError("there is no environment in this slot: its reset failed")


def _step_seconds(env: Any, actions: gymnasium.Space[Any]) -> float:
    """Return the seconds of the quickest of a few steps."""
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
    """Return the environment without its step counters, and their limit: `step` counts for all slots at once."""
    limit = math.inf
    while type(env) in (TimeLimit, OrderEnforcing) and env.spec is not None:
        if isinstance(env, TimeLimit):
            limit = min(limit, env.spec.max_episode_steps or math.inf)
        env = env.env  # type: ignore[attr-defined]
    return env, limit
