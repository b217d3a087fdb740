"""Make environment objects of Gymnasium, and look up environments in Gymnasium's registry.

`maker` takes the settings `env.…` and returns a function that makes objects. `make_or_explain` calls such a function,
and turns any error into a message that names the setting and the cure. An id is `Name-v0` or `module:Name-v0` for a
registered environment, or `module:Name` for a class or function.
"""

import copy
import importlib.util
import inspect
import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled, DeprecatedEnv, UnregisteredEnv

from evolve.config import EnvOptions, Table, suggest
from evolve.environments.engine import install_cure
from evolve.environments.exact import TASKS
from evolve.environments.randomization import bounds_or_choices, example_arguments
from evolve.environments.spaces import observation_encoder, without_advice
from evolve.errors import FAILURES, InputError, Setting, import_user_module, one_line
from evolve.numerics import restore_ieee

_Env = gymnasium.Env[Any, Any]
_IMPORT_LOCK = threading.RLock()
"""A thread holds this lock while it imports environments. Gymnasium's modules import one another in circles, so two
threads must not import them at the same time."""
_IMPORT_SECONDS = 10.0  # the longest wait for imports of another thread
_MADE_IDS: set[str] = set()
"""The ids of environments that this process has made. Making them again imports nothing."""
_GYMNASIUM = "gymnasium."
_QUICK = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
"""Families whose steps take microseconds."""
_RESET_RESTORES_ALL = (*_QUICK, "gymnasium.envs.mujoco")
"""Families whose reset restores every bit. Box2D is not among them: an episode changes the order of contacts in a
world, so that a BipedalWalker then walks another trajectory from the same seed."""
# Gymnasium's wrappers that keep no state from earlier episodes.
_STATELESS_WRAPPERS = {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}
_ARRAY_ARGUMENTS = ("min_action", "max_action", "min_obs", "max_obs")  # of Gymnasium's wrappers
MUJOCO_CURE = "Without a display MuJoCo needs EGL or OSMesa: apt-get install libegl1 libegl-mesa0, or libosmesa6."
_PATH_CURE = (
    "A module is named as Python imports it, without folders or .py: ", Setting("env.id", "module:Name-v0"), "."
)  # fmt: skip

_PACKAGES = {
    r"ALE/|\w+NoFrameskip-": "ale-py",
    r"(MiniGrid|BabyAI)-": "minigrid",
    r"MiniWorld-": "miniworld",
    r"(highway|highway-fast|merge|roundabout|parking|intersection|racetrack)-v": "highway-env",
    r"(Fetch|HandReach|HandManipulate|PointMaze|AntMaze|AdroitHand|FrankaKitchen)\w*-": "gymnasium-robotics",
    r"dm_control/": "'shimmy[dm-control]'",
    r"Meta-World/": "metaworld",
    r"FlappyBird-": "flappy-bird-gymnasium",
}
"""Patterns of environment names, each with the package that registers these environments, as pip names it."""
_LOG = logging.getLogger("evolve")
_warned: set[str] = set()  # the texts of MuJoCo's warnings that this process has logged
_CAN_BE_MADE = "an environment that can be made"
_ONE_AGENT = "An environment has one agent here, so PettingZoo's environments are not supported."


def maker(options: EnvOptions) -> Callable[..., _Env]:
    """Return a function that makes the environment with its wrappers.

    The function takes the values of the randomized arguments, by default the result of `example_arguments`.
    """
    example = example_arguments(options.randomize)
    # Look up all names here and not in `make`, so that a wrong name is an error before any episode.
    with _importing(), without_advice():
        wrapper_classes = [_wrapper_class(wrapper.name, options.id) for wrapper in options.wrappers]
        entry_point = _class_or_function(options.id)
        module, _, name = options.id.rpartition(":")
        _import_if_possible(module)
        # Import the environment's module, too. It may import MuJoCo, which `_mujoco_warnings_once` needs before the
        # first object is made. But do not import Box2D's modules before Gymnasium does: if pygame is missing, only the
        # first import raises the error that says so, and an error is ignored here.
        entry_module = _entry_module(name)
        if not entry_module.startswith("gymnasium.envs.box2d"):
            _import_if_possible(entry_module)

    @without_advice()
    def make(drawn: Table = example) -> _Env:
        import_context = nullcontext() if options.id in _MADE_IDS else _importing()
        # Each object gets copies of the arguments, because it may change its lists and tables: `config.pop("size")`.
        with import_context, _mujoco_warnings_once():
            env: _Env = gymnasium.make(
                options.id if entry_point is None else EnvSpec(options.id, entry_point=entry_point),
                max_episode_steps=options.max_episode_steps,
                disable_env_checker=True,
                **copy.deepcopy(options.kwargs),
                **copy.deepcopy(drawn),
            )
        _MADE_IDS.add(options.id)
        for number, (wrapper_class, wrapper) in enumerate(zip(wrapper_classes, options.wrappers, strict=True)):
            try:
                env = wrapper_class(env, **_wrapper_kwargs(wrapper.name, copy.deepcopy(wrapper.kwargs)))
            except Exception as error:
                close_silently(env)
                setting = f"env.wrappers.{number}"
                expected, cure = f"a wrapper that fits {options.id}", f"Its arguments are {setting}.kwargs."
                if isinstance(error, DependencyNotInstalled):
                    expected, cure = "a wrapper whose packages are installed", ""
                raise InputError(setting, expected, f"{wrapper_class.__name__} ({one_line(error)})", cure) from error
        restore_ieee()  # the module or the constructor may have loaded a library that changed the arithmetic
        return env

    return make


def _import_if_possible(module: str) -> ModuleType | None:
    """Import and return a module; None for the name "", or if the import fails. `gymnasium.make` reports failures."""
    with suppress(*FAILURES):  # an import runs the code of the module, which may raise anything
        return import_user_module(module) if module else None
    return None


def _attribute(module: str, name: str) -> Any:
    """Return an attribute of a module; None if there is no such attribute, or the module cannot be imported."""
    with suppress(*FAILURES):  # the module may import its attributes on demand, and fail in doing so
        return getattr(_import_if_possible(module), name, None)
    return None


@contextmanager
def _importing() -> Iterator[None]:
    """Hold `_IMPORT_LOCK` in this context. Go on without the lock if it is not free after `_IMPORT_SECONDS`."""
    # Do not wait forever, because the thread that holds the lock may wait for a module that this thread is importing.
    acquired = _IMPORT_LOCK.acquire(timeout=_IMPORT_SECONDS)
    try:
        yield
    finally:
        if acquired:
            _IMPORT_LOCK.release()


@contextmanager
def _mujoco_warnings_once() -> Iterator[None]:
    """Log each warning of MuJoCo once. MuJoCo itself would print it for each object, and append it to a file."""
    mujoco: Any = sys.modules.get("mujoco")
    if mujoco is None or mujoco.get_mju_user_warning() is not None:  # the user has set a handler for warnings
        yield
        return
    mujoco.set_mju_user_warning(_warn_once)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(None)


def _warn_once(text: str) -> None:
    """Log a warning of MuJoCo unless this process has logged the same text."""
    if text not in _warned:
        _warned.add(text)
        _LOG.warning("MuJoCo: %s", text)


def _class_or_function(env_id: str) -> Callable[..., Any] | None:
    """Return the result of `_named_object`. Raises InputError for a generator function, which must be registered."""
    named = _named_object(env_id)
    if inspect.isgeneratorfunction(named):
        module, _, name = env_id.rpartition(":")
        cure = f"Register it in its module, register_task('Name-v0', {name}, …), and write "
        expected = "an environment, its class, or a function that returns one"
        registered = Setting("env.id", f"{module}:Name-v0")
        raise InputError("env.id", expected, f"{env_id}, the function of a task", cure, registered, ".")
    return named


def _named_object(env_id: str) -> Callable[..., Any] | None:
    """Return the class or function that the id `module:Name` names; None if the id names a registered environment."""
    module, _, name = env_id.rpartition(":")
    if not module or not name.isidentifier():
        return None
    named = _attribute(module, name)
    if not callable(named):
        return None
    spec = registered(name)
    # If a user's class has the name of an environment of Gymnasium, such as Pendulum, the id names the class.
    is_from_user = not str(getattr(named, "__module__", "")).startswith(_GYMNASIUM)
    return named if spec is None or (is_from_user and str(spec.entry_point).startswith(_GYMNASIUM)) else None


def _wrapper_class(name: str, env_id: str) -> type[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """Return the class of a wrapper. Raises InputError if its module may not or cannot be imported.

    Args:
        name: `module:Class`.
        env_id: The id of the wrapped environment. The module of the wrapper must be gymnasium.wrappers or the module of
            this environment, because an import runs code.
    """
    module, _, class_name = name.partition(":")
    env_module = env_id.rpartition(":")[0] or _module_of(_package_of(env_id))
    allowed = ["gymnasium.wrappers", env_module] if env_module else ["gymnasium.wrappers"]
    if not any(module == parent or module.startswith(f"{parent}.") for parent in allowed):
        expected = "a wrapper of gymnasium.wrappers, or of the module that env.id names"
        env_name = env_id.rpartition(":")[2]
        cure: tuple[str | Setting, ...] = "Write ", Setting("env.id", f"{module}:{env_name}"), "."
        if env_module:
            how = "Import both in a module of yours, and name that module for both: "
            wrappers = Setting("env.wrappers", (f"mine:{class_name}",))
            cure = how, Setting("env.id", f"mine:{env_name}"), " and ", wrappers, "."
        raise InputError("env.wrappers", expected, name, *cure)
    try:
        wrapper_class = getattr(import_user_module(module), class_name)
        if not _is_wrapper_class(wrapper_class):
            raise TypeError(f"{class_name} is no gymnasium.Wrapper")
    except FAILURES as error:  # an import runs the code of the module, which may raise anything
        expected, got = "a wrapper `module:Class` that can be imported", f"{name} ({one_line(error)})"
        cure = _wrapper_cure(error, module, class_name, env_module)
        raise InputError("env.wrappers", expected, got, *cure) from error
    return wrapper_class


def _is_wrapper_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, gymnasium.Wrapper)


def _wrapper_cure(error: BaseException, module: str, class_name: str, env_module: str) -> tuple[str | Setting, ...]:
    """Return the cure for a wrapper that could not be imported: similar names, or the module in which it may be.

    env_module: The module of the environment, or "".
    """
    similar = ""
    # If the module itself was imported, the class is missing or no wrapper, or its import on demand has failed.
    if module in sys.modules:
        if isinstance(error, ModuleNotFoundError):
            return (f"{module} imports {error.name}: install it.",)
        if isinstance(error, AttributeError):
            attributes = vars(sys.modules[module])
            similar = suggest(class_name, [key for key, value in attributes.items() if _is_wrapper_class(value)])
    # A name without a module means gymnasium.wrappers, but the user may mean a wrapper of the environment's package.
    if module == "gymnasium.wrappers":
        modules = env_module, f"{env_module}.wrappers"
        holder = next((name for name in modules if _attribute(name, class_name) is not None), None)
        if holder is not None or not similar:
            full_name = Setting("env.wrappers", (f"{holder or 'module'}:{class_name}",))
            return "If it is not Gymnasium's, name its module, too: ", full_name, "."
    return (similar,)


def _wrapper_kwargs(name: str, kwargs: Table) -> Table:
    """Return the arguments of a wrapper. Gymnasium's wrappers need tuples or arrays instead of the lists of TOML."""
    if not name.startswith("gymnasium.wrappers"):
        return kwargs
    converted = dict(kwargs)
    for key, value in kwargs.items():
        if isinstance(value, list):
            converted[key] = np.array(value, float) if key in _ARRAY_ARGUMENTS else tuple(value)
    return converted


def registered_ids() -> list[str]:
    """Return the ids of the registered environments, each in its newest version, and of the exact tasks."""
    by_version = sorted(gymnasium.registry.values(), key=lambda spec: spec.version or 0)
    # A later entry of a dictionary replaces an earlier one, so the newest version of each name remains.
    newest = {(spec.namespace, spec.name): spec.id for spec in by_version}
    return sorted({*newest.values(), *TASKS})


def is_quick(options: EnvOptions) -> bool:
    """Return whether a step takes microseconds: an environment of Gymnasium's classic control or toy text."""
    spec = None if options.wrappers else registered(options.id.rpartition(":")[2])
    # A user's class may have the name of a quick environment. Look for it last, because this imports the user's module.
    return spec is not None and str(spec.entry_point).startswith(_QUICK) and _named_object(options.id) is None


def registered_limit(env_id: str) -> int | None:
    """Return the step limit of a registered environment; None if it has no limit, or is not registered."""
    module, _, name = env_id.rpartition(":")
    # Import the module first, because it may register the environment.
    if module and _import_if_possible(module) is None:
        return None
    spec = None if _named_object(env_id) is not None else registered(name)
    return None if spec is None else spec.max_episode_steps


def registered(name: str) -> EnvSpec | None:
    """Return the registered environment of a name; for a name without a version, the newest. None if there is none."""
    if name not in gymnasium.registry:
        _import_if_possible(_module_of(_package_of(name)))
    versions = [spec for spec in gymnasium.registry.values() if name in (spec.id, spec.id.rpartition("-v")[0])]
    return max(versions, key=lambda spec: spec.version or 0, default=None)


def _package_of(name: str) -> str:
    """Return the package that registers environments with such a name, as pip names it; "" if it is unknown."""
    return next((package for pattern, package in _PACKAGES.items() if re.match(pattern, name)), "")


def _module_of(package: str) -> str:
    """Return the module of one of the `_PACKAGES`."""
    return package.strip("'").partition("[")[0].replace("-", "_")


def modules_of(options: EnvOptions) -> set[str]:
    """Return the names of the modules that define an environment and its wrappers."""
    module, _, name = options.id.rpartition(":")
    return {module, _entry_module(name), *(wrapper.name.partition(":")[0] for wrapper in options.wrappers)} - {""}


def _entry_module(name: str) -> str:
    """Return the name of the module that defines a registered environment; "" if there is none."""
    entry_point = getattr(registered(name), "entry_point", None)  # "module:Class", a callable, or None
    return entry_point.partition(":")[0] if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")


def renders_by_mujoco(env: _Env | None) -> bool:
    """Return whether MuJoCo renders the pictures of an environment."""
    return env is not None and hasattr(env.unwrapped, "mujoco_renderer")


def make_or_explain(options: EnvOptions, make: Callable[[], _Env]) -> _Env:
    """Return a new environment.

    Args:
        options: The environment.
        make: The function that makes the environment, see `maker`.

    Raises:
        InputError: `make` fails. The message names the cause, and the cure.
    """
    env_id = options.id
    module = env_id.rpartition(":")[0]
    if "/" in module or (module.endswith(".py") and _import_if_possible(module) is None):
        raise InputError("env.id", "a module, and the name of an environment", env_id, *_PATH_CURE)
    try:
        return make()
    except DependencyNotInstalled as error:
        expected = "an environment whose packages are installed"
        raise InputError("env.id", expected, f"{env_id} ({error})", install_cure(error)) from None
    except (UnregisteredEnv, DeprecatedEnv) as error:
        # If the environment itself is known, its constructor has asked for an unknown one.
        if _named_object(env_id) is not None or registered(env_id.rpartition(":")[2]) is not None:
            raise InputError("env.id", _CAN_BE_MADE, f"{env_id} ({one_line(error)})") from None
        raise InputError("env.id", "a registered environment", env_id, *_unknown_cure(env_id)) from None
    except ModuleNotFoundError as error:
        got = f"{env_id} ({str(error).partition('. ')[0]})"  # the first sentence; Gymnasium adds advice
        raise InputError("env.id", "a module that can be imported", got, *_import_cure(env_id, str(error))) from None
    except (InputError, KeyboardInterrupt):  # an InputError explains the failure of a wrapper
        raise
    except BaseException as error:  # a constructor or an imported module may raise anything, also a panic in Rust
        raise _making_error(options, error) from error


def _making_error(options: EnvOptions, error: BaseException) -> InputError:
    """Return the error for an environment whose module or constructor raised an exception."""
    # Drop the arguments, which Gymnasium appends to the message of the constructor.
    message = _error_text(error).partition(" was raised from the environment creator")[0]
    lacks_argument = "missing" in message and "argument" in message
    module, colon, name = options.id.rpartition(":")
    # If the import of the module failed, the arguments are not to blame.
    if (options.kwargs or options.randomize) and (not module or module in sys.modules):
        return _arguments_error(options, message, lacks_argument)
    if "Malformed environment ID" in message or (colon and not (module and name)):
        similar = suggest(options.id.strip(" :"), gymnasium.registry)
        # If the id looks complete, the module may have tried to register a malformed name, so show Gymnasium's message.
        got = repr(options.id) + (f" ({message})" if module and name else "")
        return InputError("env.id", "the name of an environment, or module:Name", got, similar)
    advice = "Its arguments are env.kwargs." if lacks_argument else ""
    # PettingZoo's environments have an attribute `possible_agents`.
    if hasattr(_named_object(options.id), "possible_agents") or module.startswith("pettingzoo"):
        advice = _ONE_AGENT
    return InputError("env.id", _CAN_BE_MADE, f"{options.id} ({message})", advice)


def _arguments_error(options: EnvOptions, message: str, lacks_argument: bool) -> InputError:
    """Return the error for an environment that does not take the arguments of `options`.

    Args:
        options: The environment.
        message: The message of the constructor.
        lacks_argument: Whether the message says that an argument is missing.
    """
    # `blamed` is the name of the refused argument, or the whole message if it does not name the argument in this way.
    unexpected = re.search(r"unexpected keyword argument '(\w+)'", message)
    blamed = unexpected[1] if unexpected else message
    # Films and windows add `render_mode`, so the user may not have set it.
    if blamed == "render_mode" or options.kwargs.keys() == {"render_mode"}:
        expected = f"an environment that can be made with render_mode={options.kwargs.get('render_mode')!r}"
        cure = "Its constructor has to take render_mode; a function has to pass it on."
        return InputError("env.id", expected, f"{options.id} ({message})", cure)
    # Blame a randomized argument if the message names it, otherwise `env.kwargs` if there are any.
    named = [name for name in options.randomize if re.search(rf"\b{re.escape(name)}\b", blamed)]
    if named:
        key, arguments = f"env.randomize.{named[0]}", options.randomize[named[0]]
    elif options.kwargs or lacks_argument:
        key, arguments = "env.kwargs", options.kwargs
    else:
        key, arguments = "env.randomize", options.randomize
    cure = "The limit of steps is env.max_episode_steps." if "max_episode_steps" in options.kwargs else ""
    return InputError(key, f"arguments that {options.id} takes", f"{arguments} ({message})", cure)


def _error_text(error: BaseException) -> str:
    """Return an exception as one line. If it has no message, as from a bare `assert`, add the place that raised it."""
    message = one_line(error)
    frames = traceback.extract_tb(error.__traceback__)
    # `one_line` returns "Type: message", or "Type" without a message.
    if ": " in message or not frames:
        return message
    return f"{message} in {frames[-1].filename}, line {frames[-1].lineno}"


def close_silently(env: _Env) -> None:
    """Close an environment and ignore errors, because it is no longer needed."""
    try:
        env.close()
    except KeyboardInterrupt:
        raise
    except BaseException:  # code in Rust that has panicked may panic again
        pass


@contextmanager
def closing_silently(env: _Env) -> Iterator[_Env]:
    """Close an environment silently at the end of the context."""
    try:
        yield env
    finally:
        close_silently(env)


def check_bounds(options: EnvOptions) -> None:
    """Raise InputError unless an environment can be made and stepped at the bounds of each randomized argument.

    Also raise InputError if a bound changes the size of the observations, or the space of the actions.
    """
    make = maker(options)
    with closing_silently(make_or_explain(options, make)) as env:
        size, action_space = observation_encoder(env.observation_space)[0], env.action_space
    for name, distribution in options.randomize.items():
        for value in bounds_or_choices(distribution):
            try:
                with closing_silently(make(example_arguments(options.randomize) | {name: value})) as env:
                    same = observation_encoder(env.observation_space)[0] == size and env.action_space == action_space
                    env.reset(seed=0)
                    env.action_space.seed(0)
                    env.step(env.action_space.sample())
            except FAILURES as error:
                expected, got = f"values that {options.id} takes", f"{value!r} ({one_line(error)})"
                raise InputError(f"env.randomize.{name}", expected, got) from error
            if not same:
                expected = "an argument that leaves the size of observations and the space of actions as they are"
                raise InputError(f"env.randomize.{name}", expected, f"{name}, which changes them at {value!r}")


def _of_pettingzoo(env_id: str) -> bool:
    """Return whether an id looks like PettingZoo's: a module of pettingzoo, or a name such as "simple_spread_v3".

    A name such as "cartpole_v1" does not, because it is another spelling of a registered name.
    """
    if env_id.startswith("pettingzoo"):
        return True
    looks_alike = re.search(r"(^|[.:])[a-z_]+_v\d+$", env_id) is not None
    # With cutoff=1.0, `suggest` proposes only names that differ in nothing but case and punctuation.
    return looks_alike and not suggest(env_id.rpartition(":")[2], gymnasium.registry, cutoff=1.0)


def _import_cure(env_id: str, message: str) -> tuple[str | Setting, ...]:
    """Return the cure for a missing module. Either the id names this module, or the module in the id imports it.

    message: Gymnasium's error message. It names the missing module, but not the module that imports it.
    """
    module = env_id.rpartition(":")[0]
    if _of_pettingzoo(env_id):
        return (_ONE_AGENT,)
    missing = re.search(r"No module named '([^']+)'", message)
    # The id names the missing module, or a module in the missing package.
    if missing is None or module == missing[1] or module.startswith(f"{missing[1]}."):
        return ("Modules are looked for in the working directory and on PYTHONPATH.",)
    return (f"{module or env_id} imports it: install it.",)


def _unknown_cure(env_id: str) -> tuple[str | Setting, ...]:
    """Return the cure for an unregistered environment: similar names, or the module that registers the environment."""
    if env_id in TASKS:
        return "The exact engine has it: ", Setting("env.engine", "exact"), "."
    if _of_pettingzoo(env_id):
        return (_ONE_AGENT,)
    module, _, name = env_id.rpartition(":")
    package = _package_of(env_id)
    if package and _module_of(package) not in sys.modules:
        how = f"Its package registers it: pip install {package}, then "
        return how, Setting("env.id", f"{_module_of(package)}:{env_id}"), "."
    if module:
        return (_module_cure(module, name),)
    if env_id.isidentifier() and _is_module(env_id):
        return f"{env_id} is a module. Name one of its environments, too: ", Setting("env.id", f"{env_id}:Name-v0"), "."
    similar = suggest(env_id, gymnasium.registry)
    full_id = f"module:{env_id}"
    if env_id.endswith(".py"):
        full_id = f"{env_id[:-3]}:Name-v0"
    elif re.fullmatch(r"[\w.]+\.\w+", env_id):  # `module.Class`, as Python names a class or function
        full_id = ":".join(env_id.rsplit(".", 1))
    how = f"{similar} If your own module registers it, name the module, too: ".lstrip()
    return how, Setting("env.id", full_id), "."


def _is_module(name: str) -> bool:
    """Return whether there is a module of this name, without importing it."""
    with suppress(ValueError):  # the module of a script, `__main__`, has no specification
        return importlib.util.find_spec(name) is not None
    return False


def _module_cure(module: str, name: str) -> str:
    """Return a sentence on why a module has no environment of a name, with similar names."""
    try:
        attributes = vars(importlib.import_module(module))  # Gymnasium has imported the module before
    except FAILURES as error:  # the module makes an unregistered environment while it is imported
        return f"The module {module} failed while it was imported: {one_line(error).rstrip('.')}."
    if not name.isidentifier():  # a registered name, such as Name-v0
        # The name may lack its namespace.
        if full_name := next((known for known in gymnasium.registry if known.endswith(f"/{name}")), ""):
            return f"Did you mean {module}:{full_name}?"
        return f"The module {module} registers no {name}. {suggest(name, gymnasium.registry, cutoff=0.8)}".strip()
    makers = {attribute for attribute, value in attributes.items() if _makes_env(value, module)}
    similar = suggest(name, makers.union(gymnasium.registry))
    problem = "has no" if name not in attributes else "holds another object instead of a"
    return f"The module {module} {problem} class or function {name}. {similar}".strip()


def _makes_env(value: Any, module: str) -> bool:
    """Return whether a module's attribute may make environments: a subclass of Env, or a function of this module."""
    if isinstance(value, type):
        return issubclass(value, gymnasium.Env)
    return inspect.isfunction(value) and value.__module__ == module


def may_reuse(env: _Env, options: EnvOptions) -> bool:
    """Return whether an environment object may run another episode, see `EnvOptions.reuse`."""
    if isinstance(options.reuse, bool):
        return options.reuse
    # Check every wrapper, also those that a registration or an entry point adds.
    while isinstance(env, gymnasium.Wrapper):
        if type(env).__name__ not in _STATELESS_WRAPPERS or not type(env).__module__.startswith("gymnasium.wrappers."):
            return False
        env = env.env
    return type(env).__module__.startswith(_RESET_RESTORES_ALL)
