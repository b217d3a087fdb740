"""The Gymnasium engine: one environment object per slot, stepped one after another; and how such objects are made.

`make_or_explain` turns Gymnasium's errors into a message that names the setting and the cure.
"""

import importlib
import inspect
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled, DeprecatedEnv, UnregisteredEnv
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from evolve.config import EnvOptions, Table, nearest
from evolve.environments.engine import FPS, Transition, as_frame, do_nothing, extra_cure
from evolve.environments.exact import TASKS, exact_task
from evolve.environments.metrics import encode_metrics
from evolve.environments.randomization import draw_tables, example, extremes
from evolve.environments.spaces import (
    Spaces,
    action_decoder,
    observation_encoder,
    quiet,
    reset_fault,
    separate,
    step_fault,
    task_spaces,
)
from evolve.errors import FAILURES, EpisodeTimeout, EvolveError, InputError, Setting, describe, one_line
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

_Env = gymnasium.Env[Any, Any]
_MODULES = {"ALE": ("ale_py", "ale-py")}
"""The modules that register environments of a namespace, and the packages that have these modules."""

# Families whose reset restores every bit. Box2D is not one of them: a world that has run an episode orders its
# contacts differently in the next one, so that a BipedalWalker walks another trajectory from the same seed.
_RESET_RESTORES_ALL = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.mujoco")
_QUICK = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
# Wrappers that keep no state from earlier episodes.
_STATELESS_WRAPPERS = {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}
MUJOCO_CURE = "Without a display MuJoCo needs EGL or OSMesa: apt-get install libegl1 libegl-mesa0, or libosmesa6."
_NO_PATH = (
    "A module is named as Python imports it, without folders and without .py: ",
    Setting("env.id", "module:Name-v0"),
    ".",
)
_ONE_AGENT = "An environment has one agent here, so PettingZoo's environments are not supported."
_NO_STEP = object()
_MEASURING_SECONDS = 0.005
_TICK_SECONDS = 600e-6
"""The least time that a tick (one step of all slots) should take: 15 times its overhead of 40 µs."""


class GymnasiumEngine:
    """B slots of a Gymnasium environment.

    A slot gets a new environment object for each episode, unless `options.reuse` permits keeping the object.
    Raises InputError if the environment cannot be made or its spaces are not supported.
    """

    refill = 1  # a free slot need not wait for others

    def __init__(self, options: EnvOptions, slots: int) -> None:
        quiet()
        self.faults: dict[int, str] = {}
        self.on_fault: Callable[[], None] = do_nothing
        self._make = maker(options)
        self._randomize = options.randomize
        self._envs: list[_Env | None] = [None] * slots
        self._step: list[Any] = [_no_environment] * slots  # step methods below the step counters
        self._elapsed = [0] * slots
        self._infos: list[Any] = [None] * slots  # of the latest step
        self.metric_names = options.metrics
        self._drawn: list[Table] = [{}] * slots
        """The randomized arguments of the environment in each slot."""
        self._spare: list[tuple[Table, _Env]] = []
        """Environments that no slot needs at present, if environments may be reused; the oldest first."""
        first = make_or_explain(options, self._make)
        self._place(0, first, example(self._randomize))
        self.spaces = Spaces(first.observation_space, first.action_space)
        self.observation_size, self._encode = observation_encoder(first.observation_space)
        self._actions = first.action_space
        self.action_size, self._decode = action_decoder(first.action_space, options.action_scale)
        self.reuses = may_reuse(first, options)
        self.fps = float(first.metadata.get("render_fps") or FPS)
        self._stops = options.on_failure == "stop"
        self.id = options.id if ":" in options.id or first.spec is None else first.spec.id

    def suggested_slots(self) -> int:
        """Return a power of two, 8 to 64: fewer slots for slower steps, because the environments share the cache.

        Call it before any episode begins: it steps the environment of slot 0. Raises EpisodeTimeout if that hangs.
        """
        try:
            seconds = _step_seconds(self._envs[0], self._actions)
        except EpisodeTimeout:
            raise
        except FAILURES:  # the evaluation will meet the same error, and report where it happened
            return 8
        return next((n for n in (8, 16, 32) if n * seconds > _TICK_SECONDS), 64)

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k]; write their observations [B, O]."""
        tables = draw_tables(self._randomize, seeds)
        for slot, seed, drawn in zip(slots.tolist(), seeds.tolist(), tables, strict=True):
            try:
                if self._envs[slot] is None or not self.reuses or self._drawn[slot] != drawn:
                    self._exchange(slot, drawn)
                said = self._envs[slot].reset(seed=seed)
                if fault := reset_fault(self.spaces.observation, said):
                    raise EvolveError(fault)
                self._encode(said[0], observations[slot])
            except FAILURES as error:
                self._note_fault(slot, error)
                observations[slot] = 0
                if self._ends_run(error):
                    break
            self._elapsed[slot] = 0

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] by outputs [k, A]; write observations [B, O]; return rewards [k] and ends [k]."""
        actions = separate(self._actions, self._decode(outputs))
        steps, encode, elapsed, limit = self._step, self._encode, self._elapsed, self._limit
        infos = self._infos
        rewards: list[float] = []
        ended: list[bool] = []
        said: Any = _NO_STEP
        # This loop runs once per step of every episode, so it calls no function of its own.
        for slot, action in zip(slots.tolist(), actions, strict=True):
            try:
                said = steps[slot](action)
                observation, raw_reward, terminated, truncated, infos[slot] = said
                encode(observation, observations[slot])
                reward = float(raw_reward)
                elapsed[slot] += 1
                over = bool(terminated or truncated) or elapsed[slot] >= limit
            except FAILURES as error:
                # If the environment itself raised, `said` is of an earlier step, and has no fault.
                fault = said is not _NO_STEP and step_fault(self.spaces.observation, said)
                self._note_fault(slot, EvolveError(fault) if fault else error)
                reward, over = math.nan, True
                if self._ends_run(error):
                    unplayed = len(actions) - len(rewards) - 1
                    rewards += [math.nan] + [0.0] * unplayed
                    ended += [True] + [False] * unplayed
                    break
            rewards.append(reward)
            ended.append(over)
        return np.array(rewards, np.float64), np.array(ended, np.bool_)

    def metrics(self, slots: Slots) -> Int64:
        """Return the metrics of slots [k] whose episodes have ended, [k, 2, M]; see `Engine.metrics`."""
        encoded = np.zeros((len(slots), 2, len(self.metric_names)), np.int64)
        for row, slot in enumerate(slots.tolist()):
            if slot not in self.faults:
                try:
                    encoded[row] = encode_metrics(self._infos[slot], self.metric_names)
                except FAILURES as error:
                    self._note_fault(slot, error)
        return encoded

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Transition]:
        """Play one episode in a new object; a used object has begun another episode before, if objects are reused."""
        actions = separate(self._actions, self._decode(outputs))
        with closing(self._make(draw_tables(self._randomize, np.array([seed]))[0])) as env:
            if used and self.reuses:
                env.reset(seed=seed + 1)
                env.step(actions[0])
            begun = env.reset(seed=seed)
            self._refuse(reset_fault(self.spaces.observation, begun))
            yield {"observation": begun[0]}
            for action in actions:
                stepped = env.step(action)
                self._refuse(step_fault(self.spaces.observation, stepped))
                said = dict(zip(("observation", "reward", "terminated", "truncated"), stepped, strict=False))
                yield said
                if said["terminated"] or said["truncated"]:
                    break

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions of network outputs [n, A]."""
        return separate(self._actions, self._decode(outputs))

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, [H, W, 3]; also when its episode has just ended."""
        env = self._envs[slot]
        cure = MUJOCO_CURE if draws_by_mujoco(env) else ""
        return as_frame(self.id, lambda: env and env.render(), cure)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` in slots `targets`; the slots swap their environment objects."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            for objects in (self._envs, self._step, self._drawn):
                objects[source], objects[target] = objects[target], objects[source]
            self._elapsed[target] = self._elapsed[source]

    def close(self) -> None:
        """Close every environment."""
        for slot in range(len(self._envs)):
            self._drop(slot)
        for _, env in self._spare:
            _close(env)
        self._spare.clear()

    def _refuse(self, fault: str | None) -> None:
        """Raise InputError for a fault that `reset_fault` or `step_fault` describes."""
        if fault:
            raise InputError("env.id", "an environment that keeps Gymnasium's interface", f"{self.id}: {fault}")

    def _note_fault(self, slot: int, error: BaseException) -> None:
        """Record the error of an environment, unless its slot has a fault already, and drop the object."""
        self.faults.setdefault(slot, describe(error))
        self._drop(slot)
        self.on_fault()

    def _ends_run(self, error: BaseException) -> bool:
        """Return whether an episode hangs and thus ends the run. The other slots then need not wait as long each."""
        return self._stops and isinstance(error, EpisodeTimeout)

    def _drop(self, slot: int) -> None:
        env = self._envs[slot]
        self._envs[slot] = None
        self._step[slot] = _no_environment
        _close(env)

    def _exchange(self, slot: int, drawn: Table) -> None:
        """Put an environment with these randomized arguments into a slot; set the one before aside if it may return."""
        found = next((place for place, (its, _) in enumerate(self._spare) if its == drawn), None)
        spare = None if found is None else self._spare.pop(found)[1]
        before = self._envs[slot]
        if before is not None and self.reuses and self._randomize:
            self._spare.append((self._drawn[slot], before))
            self._envs[slot] = None
        if len(self._spare) > len(self._envs):
            _close(self._spare.pop(0)[1])
        self._drop(slot)
        self._place(slot, self._make(drawn) if spare is None else spare, drawn)

    def _place(self, slot: int, env: _Env, drawn: Table) -> None:
        core, self._limit = _without_counters(env)  # the limit is the same for all
        self._envs[slot] = env
        self._step[slot] = core.step
        self._drawn[slot] = drawn


def _close(env: _Env | None) -> None:
    with suppress(*FAILURES):
        if env is not None:
            env.close()


class GymnasiumFallback(GymnasiumEngine):
    """B slots of a rigid-body task, played by Gymnasium's environment of the same name if the kernels were not built.

    Its episodes have the same bits. Array operations would take a hundred times as long.

    Raises:
        InputError: Box2D is not installed, or the options do not fit the task.
    """

    def __init__(self, options: EnvOptions, slots: int) -> None:
        task = exact_task(options)
        super().__init__(options.model_copy(update={"engine": "gymnasium"}), slots)
        self.spaces = task_spaces(task)
        # The task defines the action of a NaN output, on which Gymnasium's environment would fail.
        self._decode = task.actions


def _no_environment(_: Any) -> Any:
    raise RuntimeError("there is no environment in this slot: its reset failed")


def _step_seconds(env: Any, actions: gymnasium.Space[Any]) -> float:
    """Return the seconds of the fastest of several steps."""
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
    """Return the environment without its step counters, and their limit, because the engine counts steps itself."""
    limit = math.inf
    while type(env) in (TimeLimit, OrderEnforcing) and env.spec is not None:
        if isinstance(env, TimeLimit):
            limit = min(limit, env.spec.max_episode_steps or math.inf)
        env = env.env  # type: ignore[attr-defined]
    return env, limit


def maker(options: EnvOptions) -> Callable[..., _Env]:
    """Return a function that makes the environment with its wrappers.

    Its argument is the table of randomized arguments, by default an example of them.
    """
    shown = example(options.randomize)
    wrappers = [(_wrapper_class(w.name, options.id), w.kwargs) for w in options.wrappers]
    found = _class_or_function(options.id)

    def make(drawn: Table = shown) -> _Env:
        env: _Env = gymnasium.make(
            options.id if found is None else EnvSpec(options.id, entry_point=found),
            max_episode_steps=options.max_episode_steps,
            disable_env_checker=True,
            **options.kwargs,
            **drawn,
        )
        for number, (wrapper, kwargs) in enumerate(wrappers):
            try:
                env = wrapper(env, **kwargs)
            except Exception as error:
                came = f"{wrapper.__name__} ({one_line(error)})"
                cure = f"Its arguments are env.wrappers.{number}.kwargs."
                raise InputError(f"env.wrappers.{number}", f"a wrapper that fits {options.id}", came, cure) from error
        return env

    return make


def _class_or_function(env_id: str) -> Callable[..., Any] | None:
    """Return the class or the function `module:Name`; None if the module registers an environment of this name.

    Raises InputError for a task that is a generator function.
    """
    module, _, name = env_id.rpartition(":")
    if not module or not name.isidentifier():
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except FAILURES:  # `gymnasium.make` meets it, too
        return None
    if not callable(found) or any(spec.name == name and spec.namespace is None for spec in gymnasium.registry.values()):
        return None
    if inspect.isgeneratorfunction(found):
        cure = f"Register it in its module, register_task('Name-v0', {name}, …), and write "
        expected = "an environment, its class, or a function that returns one"
        registered = Setting("env.id", f"{module}:Name-v0")
        raise InputError("env.id", expected, f"{env_id}, the function of a task", cure, registered, ".")
    return found  # type: ignore[no-any-return]


def _wrapper_class(name: str, env_id: str) -> type[gymnasium.Wrapper[Any, Any, Any, Any]]:
    module, _, attribute = name.partition(":")
    named = env_id.rpartition(":")[0] or "gymnasium.wrappers"
    if not any(module == known or module.startswith(f"{known}.") for known in ("gymnasium.wrappers", named)):
        expected = "a wrapper of gymnasium.wrappers, or of the module that env.id names"
        full = Setting("env.id", f"{module}:{env_id.rpartition(':')[2]}")
        raise InputError("env.wrappers", expected, name, "Let env.id name your module: ", full, ".")
    try:
        found = getattr(importlib.import_module(module), attribute)
        if not (isinstance(found, type) and issubclass(found, gymnasium.Wrapper)):
            raise TypeError(f"{attribute} is no gymnasium.Wrapper")
    except Exception as error:  # an import runs whatever the module holds
        expected = "a wrapper `module:Class` that can be imported"
        raise InputError("env.wrappers", expected, f"{name} ({one_line(error)})") from error
    return found


def registered_ids() -> list[str]:
    """Return the ids of the registered environments, each in its newest version, and of the exact tasks."""
    newest = {
        (spec.namespace, spec.name): spec.id
        for spec in sorted(gymnasium.registry.values(), key=lambda spec: spec.version or 0)
    }
    return sorted({*newest.values(), *TASKS})


def is_quick(options: EnvOptions) -> bool:
    """Return whether a step takes microseconds: an exact task, or classic control and toy text of Gymnasium."""
    if options.engine == "exact":
        return True
    if options.wrappers or options.id not in gymnasium.registry:
        return False
    return str(gymnasium.registry[options.id].entry_point).startswith(_QUICK)


def registered_limit(env_id: str) -> int | None:
    """Return the registered limit of steps of an episode; None if there is no limit or no such environment."""
    try:
        return gymnasium.spec(env_id).max_episode_steps
    except FAILURES:  # Gymnasium imports the module of the environment, which may raise anything
        return None


def draws_by_mujoco(env: _Env | None) -> bool:
    """Return whether MuJoCo draws an environment."""
    return env is not None and hasattr(env.unwrapped, "mujoco_renderer")


def make_or_explain(options: EnvOptions, make: Callable[[], _Env]) -> _Env:
    """Return a new environment.

    Args:
        options: The environment.
        make: The function that makes it.

    Raises:
        InputError: It cannot be made. The message names what is missing, and the cure.
    """
    argument = "env.id"
    try:
        return make()
    except DependencyNotInstalled as error:
        expected = "an environment whose packages are installed"
        raise InputError(argument, expected, f"{options.id} ({error})", extra_cure(error)) from None
    except (UnregisteredEnv, DeprecatedEnv):
        cure = _unknown_cure(options.id)
        raise InputError(argument, "a registered environment", options.id, *cure) from None
    except ModuleNotFoundError as error:
        cure = _import_cure(options.id, str(error))
        came = f"{options.id} ({str(error).partition('. ')[0]})"  # Gymnasium adds advice
        raise InputError(argument, "a module that can be imported", came, *cure) from None
    except InputError:
        raise
    except FAILURES as error:  # a constructor or an imported module may raise anything
        if _is_path(options.id):
            raise InputError(argument, "a module, and the name of an environment", options.id, *_NO_PATH) from None
        if options.kwargs or options.randomize:
            expected = f"arguments that {options.id} takes"
            # Gymnasium adds all arguments to the message of the constructor.
            said = one_line(error).partition(" was raised from the environment creator")[0]
            unknown = re.search(r"unexpected keyword argument '(\w+)'", said)
            named = unknown[1] if unknown else said
            randomized = next((name for name in options.randomize if re.search(rf"\b{name}\b", named)), None)
            key = "env.kwargs" if randomized is None else f"env.randomize.{randomized}"
            given = options.kwargs if randomized is None else options.randomize[randomized]
            raise InputError(key, expected, f"{given} ({said})") from error
        raise InputError(argument, "an environment that can be made", f"{options.id} ({one_line(error)})") from error


def check_bounds(options: EnvOptions) -> None:
    """Raise InputError unless an environment can be made and stepped at the bounds of each randomized argument.

    Its observations keep their size there, and its actions their space.
    """
    make = maker(options)
    with closing(make_or_explain(options, make)) as env:
        size, actions = observation_encoder(env.observation_space)[0], env.action_space
    for name, distribution in options.randomize.items():
        for value in extremes(distribution):
            try:
                with closing(make(example(options.randomize) | {name: value})) as env:
                    same = observation_encoder(env.observation_space)[0] == size and env.action_space == actions
                    env.reset(seed=0)
                    env.action_space.seed(0)
                    env.step(env.action_space.sample())
            except FAILURES as error:
                expected, came = f"values that {options.id} takes", f"{value!r} ({one_line(error)})"
                raise InputError(f"env.randomize.{name}", expected, came) from error
            if not same:
                expected = "an argument that leaves the size of observations and the space of actions as they are"
                raise InputError(f"env.randomize.{name}", expected, f"{name}, which changes them at {value!r}")


def _is_path(env_id: str) -> bool:
    """Return whether an id names a file instead of a module."""
    module = env_id.rpartition(":")[0]
    return module.endswith(".py") or "/" in module


def _of_pettingzoo(env_id: str) -> bool:
    """Return whether an id is written like PettingZoo's: a module of pettingzoo, or "simple_spread_v3"."""
    return env_id.startswith("pettingzoo") or re.search(r"(^|[.:])[a-z_]+_v\d+$", env_id) is not None


def _import_cure(env_id: str, said: str) -> tuple[str | Setting, ...]:
    """Return the cure for a missing module: the module of an environment, or a module that it imports.

    said: Gymnasium's error message, which lacks the name of the module that imports.
    """
    module = env_id.rpartition(":")[0]
    if _is_path(env_id):
        return _NO_PATH
    if _of_pettingzoo(env_id):
        return (_ONE_AGENT,)
    missing = re.search(r"No module named '([^']+)'", said)
    if missing is None or module == missing[1] or module.startswith(f"{missing[1]}."):
        return ("Modules are looked for in the working directory and on PYTHONPATH.",)
    return (f"{module or env_id} imports it: install it.",)


def _unknown_cure(env_id: str) -> tuple[str | Setting, ...]:
    """Return the cure for an environment that is not registered: similar names, or the module that registers it."""
    if env_id in TASKS:
        return "The exact engine has it: ", Setting("env.engine", "exact"), "."
    if _of_pettingzoo(env_id):
        return (_ONE_AGENT,)
    namespace = env_id.partition("/")[0]
    if namespace in _MODULES:
        module, package = _MODULES[namespace]
        return f"Its package registers it: pip install {package}, then ", Setting("env.id", f"{module}:{env_id}"), "."
    module, _, name = env_id.rpartition(":")
    if module:
        held = vars(importlib.import_module(module))  # Gymnasium has imported it
        makers = {attribute for attribute, value in held.items() if _makes_env(value, module)}
        similar = nearest(name, makers.union(gymnasium.registry))
        if not name.isidentifier():
            return (similar,)
        lacks = "has no" if name not in held else "holds another object instead of a"
        return (f"The module {module} {lacks} class or function {name}. {similar}".strip(),)
    similar = nearest(env_id, gymnasium.registry)
    full = f"{env_id[:-3]}:Name-v0" if env_id.endswith(".py") else f"module:{env_id}"
    own = f"{similar} One that a module of yours registers is named with it: ".lstrip()
    return own, Setting("env.id", full), "."


def _makes_env(value: Any, module: str) -> bool:
    """Return whether an object of a module is the class of an environment, or a function of the module itself."""
    if isinstance(value, type):
        return issubclass(value, gymnasium.Env)
    return inspect.isfunction(value) and value.__module__ == module


def may_reuse(env: _Env, options: EnvOptions) -> bool:
    """Return whether an environment object may run another episode, see `EnvOptions.reuse`."""
    if isinstance(options.reuse, bool):
        return options.reuse
    # A wrapper may also come from the registration or from an entry point, and may keep state. So check every layer.
    while isinstance(env, gymnasium.Wrapper):
        if type(env).__name__ not in _STATELESS_WRAPPERS or not type(env).__module__.startswith("gymnasium.wrappers."):
            return False
        env = env.env
    return type(env).__module__.startswith(_RESET_RESTORES_ALL)
