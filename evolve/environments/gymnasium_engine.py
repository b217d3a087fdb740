"""The Gymnasium engine: one environment object per slot, stepped one after another."""

import importlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from evolve.config import EnvOptions, nearest
from evolve.environments.contract import FPS, Trace, as_frame
from evolve.environments.spaces import action_decoder, observation_encoder, quiet, separate
from evolve.errors import FAILURES, InputError, one_line, told
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

_Env = gymnasium.Env[Any, Any]

# Families whose reset restores every bit. Box2D is not among them: a world that has run an episode orders
# its contacts differently in the next, and a BipedalWalker then walks another trajectory from the same seed.
_RESET_RESTORES_ALL = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.mujoco")
_STATELESS_WRAPPERS = {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}
_LOOK = 0.005  # seconds
_TICK = 600e-6  # seconds, beside which the cost of a tick is small
MUJOCO_CURE = "Without a display MuJoCo needs EGL or OSMesa: apt-get install libegl1 libegl-mesa0, or libosmesa6."
_EXTRAS = {"box2d": "box2d", "pygame": "box2d", "mujoco": "mujoco"}


class GymnasiumEngine:
    """B slots of a Gymnasium environment.

    A slot gets a new environment object for each episode unless `options.reuse` allows to keep it.
    Raises InputError when the environment cannot be made or its spaces are not supported.
    """

    refill = 1

    def __init__(self, options: EnvOptions, slots: int) -> None:
        quiet()
        self.faults: dict[int, str] = {}
        self._make = maker(options)
        self._envs: list[_Env | None] = [None] * slots
        self._step: list[Any] = [_nothing] * slots  # of each slot's environment, without the wrappers that only count
        self._elapsed: Int64 = np.zeros(slots, np.int64)
        first = make_or_explain(options, self._make)
        self._place(0, first)
        self.observation_size, self._encode = observation_encoder(first.observation_space)
        self._actions = first.action_space
        self.action_size, self._decode = action_decoder(first.action_space, options.action_scale)
        self.reuses = may_reuse(first, options)
        self.fps = float(first.metadata.get("render_fps") or FPS)
        self.id = options.id if ":" in options.id or first.spec is None else first.spec.id

    def suggested_slots(self) -> int:
        """Return a power of two: few slots where a step is slow, many where it is quick.

        The worlds of all slots compete for the cache, and a tick has a cost of its own, about 40 µs, to be shared.
        """
        try:
            seconds = _step_seconds(self._envs[0], self._actions)
        except FAILURES:  # whatever it is, the evaluation will meet it and say where
            return 8
        return next((n for n in (8, 16, 32) if n * seconds > _TICK), 64)

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; writes their observations [B, O]."""
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            try:
                if self._envs[slot] is None or not self.reuses:
                    self._drop(slot)
                    self._place(slot, self._make())
                self._encode(self._envs[slot].reset(seed=seed)[0], observations[slot])
            except FAILURES as wrong:
                self._fail(slot, wrong)
                observations[slot] = 0
        self._elapsed[slots] = 0

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k]: outputs [k, A]; overwrites their observations [B, O]; returns rewards and ends [k]."""
        rewards, ended, step, encode = [], [], self._step, self._encode
        for slot, action in zip(slots.tolist(), separate(self._actions, self._decode(outputs)), strict=True):
            try:
                observation, given, terminated, truncated, _ = step[slot](action)
                encode(observation, observations[slot])
                reward, end = float(given), bool(terminated or truncated)
            except FAILURES as wrong:
                self._fail(slot, wrong)
                reward, end = math.nan, True
            rewards.append(reward)
            ended.append(end)
        self._elapsed[slots] += 1
        return np.array(rewards, np.float64), np.array(ended, np.bool_) | (self._elapsed[slots] >= self._limit)

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Trace]:
        """Play one episode in an object of its own; `used`: one that has begun another, where that is what is done."""
        env, actions = self._make(), separate(self._actions, self._decode(outputs))
        if used and self.reuses:
            env.reset(seed=seed + 1)
            env.step(actions[0])
        yield {"observation": env.reset(seed=seed)[0]}
        for action in actions:
            said = dict(zip(("observation", "reward", "terminated", "truncated"), env.step(action), strict=False))
            yield said
            if said["terminated"] or said["truncated"]:
                break
        env.close()

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
        self._elapsed[targets] = self._elapsed[sources]

    def _fail(self, slot: int, wrong: BaseException) -> None:
        """Note what an environment raised, unless it did so before, and do without that object."""
        self.faults.setdefault(slot, told(wrong))
        self._drop(slot)

    def _drop(self, slot: int) -> None:
        env, self._envs[slot], self._step[slot] = self._envs[slot], None, _nothing
        with suppress(*FAILURES):
            if env is not None:
                env.close()

    def _place(self, slot: int, env: _Env) -> None:
        core, self._limit = _without_counters(env)
        self._envs[slot], self._step[slot] = env, core.step

    def close(self) -> None:
        """Close every environment."""
        for slot in range(len(self._envs)):
            self._drop(slot)


def _nothing(_: Any) -> Any:
    raise RuntimeError("no environment: its reset failed")


def _step_seconds(env: Any, actions: gymnasium.Space[Any]) -> float:
    """Return the quickest of a few steps."""
    env.reset(seed=0)
    actions.seed(0)
    action, quickest, begin = actions.sample(), float("inf"), time.perf_counter()
    while time.perf_counter() - begin < _LOOK:
        before = time.perf_counter()
        ended = any(env.step(action)[2:4])
        quickest = min(quickest, time.perf_counter() - before)
        if ended:
            break
    return quickest


def _without_counters(env: _Env) -> tuple[_Env, float]:
    """Return the environment below the outermost wrappers that only count steps, and the limit these set to them."""
    limit = math.inf
    while type(env) in (TimeLimit, OrderEnforcing) and env.spec is not None:
        if isinstance(env, TimeLimit):
            limit = min(limit, env.spec.max_episode_steps or math.inf)
        env = env.env  # type: ignore[attr-defined]
    return env, limit


def maker(options: EnvOptions) -> Callable[[], _Env]:
    """Return a function that makes the environment with its wrappers."""
    wrappers = [(_wrapper_class(w.name, options.id), w.kwargs) for w in options.wrappers]

    def make() -> _Env:
        env: _Env = gymnasium.make(
            options.id,
            max_episode_steps=options.max_episode_steps,
            disable_env_checker=True,
            **options.kwargs,
        )
        for number, (wrapper, kwargs) in enumerate(wrappers):
            try:
                env = wrapper(env, **kwargs)
            except Exception as wrong:
                expected = f"a wrapper that fits {options.id}"
                raise InputError(
                    f"env.wrappers.{number}", expected, f"{wrapper.__name__} ({one_line(wrong)})"
                ) from wrong
        return env

    return make


def _wrapper_class(name: str, env_id: str) -> type[gymnasium.Wrapper[Any, Any, Any, Any]]:
    module, _, attribute = name.partition(":")
    named = env_id.rpartition(":")[0] or "gymnasium.wrappers"
    if not any(module == known or module.startswith(f"{known}.") for known in ("gymnasium.wrappers", named)):
        expected = "a wrapper of gymnasium.wrappers, or of the module that env.id names"
        cure = f"Let it name yours: -e {module}:{env_id.rpartition(':')[2]}."
        raise InputError("env.wrappers", expected, name, cure)
    try:
        found = getattr(importlib.import_module(module), attribute)
        if not (isinstance(found, type) and issubclass(found, gymnasium.Wrapper)):
            raise TypeError(f"{attribute} is no gymnasium.Wrapper")
    except Exception as wrong:  # an import runs whatever the module holds
        expected = "a wrapper `module:Class` that can be imported"
        raise InputError("env.wrappers", expected, f"{name} ({one_line(wrong)})") from wrong
    return found


def draws_by_mujoco(env: _Env | None) -> bool:
    """Return whether MuJoCo draws an environment."""
    return env is not None and hasattr(env.unwrapped, "mujoco_renderer")


def make_or_explain(options: EnvOptions, make: Callable[[], _Env]) -> _Env:
    """Return a new environment. Raises InputError that says what is missing."""
    argument = "env.id (-e/--env)"
    try:
        return make()
    except error.DependencyNotInstalled as wrong:
        extra = next((e for word, e in _EXTRAS.items() if word in str(wrong).lower()), None)
        cure = f"Install it: pip install 'evolve[{extra}]' (in a clone: pip install -e '.[{extra}]')." if extra else ""
        raise InputError(
            argument, "an environment whose packages are installed", f"{options.id} ({wrong})", cure
        ) from None
    except (error.UnregisteredEnv, error.DeprecatedEnv):
        cure = nearest(options.id, gymnasium.registry, cutoff=0.6)
        raise InputError(argument, "a registered environment", options.id, cure) from None
    except ModuleNotFoundError as wrong:
        raise InputError(argument, "a module that can be imported", f"{options.id} ({wrong})") from None
    except InputError:
        raise
    except FAILURES as wrong:  # whatever a constructor or an imported module raises
        if options.kwargs:
            expected, came = f"arguments that {options.id} takes", f"{options.kwargs} ({one_line(wrong)})"
            raise InputError("env.kwargs", expected, came) from wrong
        raise InputError(argument, "an environment that can be made", f"{options.id} ({one_line(wrong)})") from wrong


def may_reuse(env: _Env, options: EnvOptions) -> bool:
    """Return whether an environment object may run another episode."""
    if isinstance(options.reuse, bool):
        return options.reuse
    # Wrappers may come from the registration or from an entry point too, and some remember: every layer is looked at.
    while isinstance(env, gymnasium.Wrapper):
        if type(env).__name__ not in _STATELESS_WRAPPERS or not type(env).__module__.startswith("gymnasium.wrappers."):
            return False
        env = env.env
    return type(env).__module__.startswith(_RESET_RESTORES_ALL)
