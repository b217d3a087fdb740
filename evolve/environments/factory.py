"""Making Gymnasium environments with their wrappers, and putting into words why one cannot be made."""

import importlib
import re
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.error import DependencyNotInstalled, DeprecatedEnv, UnregisteredEnv

from evolve.config import EnvOptions, nearest
from evolve.environments.exact import TASKS
from evolve.errors import FAILURES, InputError, how_to_install, one_line

_Env = gymnasium.Env[Any, Any]

# Families whose reset restores every bit. Box2D is not among them: a world that has run an episode orders
# its contacts differently in the next, and a BipedalWalker then walks another trajectory from the same seed.
_RESET_RESTORES_ALL = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.mujoco")
_QUICK = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
# Wrappers that remember nothing of earlier episodes.
_STATELESS_WRAPPERS = {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}
MUJOCO_CURE = "Without a display MuJoCo needs EGL or OSMesa: apt-get install libegl1 libegl-mesa0, or libosmesa6."
_NO_PATH = 'A module is named as Python imports it, without folders and without .py: env.id="module:Name-v0".'
_EXTRAS = {"box2d": "box2d", "pygame": "box2d", "mujoco": "mujoco"}  # by a word in Gymnasium's complaint


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
            except Exception as error:
                came = f"{wrapper.__name__} ({one_line(error)})"
                raise InputError(f"env.wrappers.{number}", f"a wrapper that fits {options.id}", came) from error
        return env

    return make


def _wrapper_class(name: str, env_id: str) -> type[gymnasium.Wrapper[Any, Any, Any, Any]]:
    module, _, attribute = name.partition(":")
    named = env_id.rpartition(":")[0] or "gymnasium.wrappers"
    if not any(module == known or module.startswith(f"{known}.") for known in ("gymnasium.wrappers", named)):
        expected = "a wrapper of gymnasium.wrappers, or of the module that env.id names"
        cure = f'Let env.id name your module: env.id="{module}:{env_id.rpartition(":")[2]}".'
        raise InputError("env.wrappers", expected, name, cure)
    try:
        found = getattr(importlib.import_module(module), attribute)
        if not (isinstance(found, type) and issubclass(found, gymnasium.Wrapper)):
            raise TypeError(f"{attribute} is no gymnasium.Wrapper")
    except Exception as error:  # an import runs whatever the module holds
        expected = "a wrapper `module:Class` that can be imported"
        raise InputError("env.wrappers", expected, f"{name} ({one_line(error)})") from error
    return found


def registered_ids() -> list[str]:
    """Return the environments that are registered, the newest version of each, and the exact tasks."""
    newest = {
        (spec.namespace, spec.name): spec.id
        for spec in sorted(gymnasium.registry.values(), key=lambda spec: spec.version or 0)
    }
    return sorted({*newest.values(), *TASKS})


def is_quick(options: EnvOptions) -> bool:
    """Return whether an environment is an exact one, or one of those of Gymnasium that take microseconds for a step."""
    if options.engine == "exact":
        return True
    if options.wrappers or options.id not in gymnasium.registry:
        return False
    return str(gymnasium.registry[options.id].entry_point).startswith(_QUICK)


def registered_limit(env_id: str) -> int | None:
    """Return how many steps an episode has at most, as registered; None for no limit, or an unknown environment."""
    try:
        return gymnasium.spec(env_id).max_episode_steps
    except FAILURES:  # its module is imported
        return None


def draws_by_mujoco(env: _Env | None) -> bool:
    """Return whether MuJoCo draws an environment."""
    return env is not None and hasattr(env.unwrapped, "mujoco_renderer")


def make_or_explain(options: EnvOptions, make: Callable[[], _Env]) -> _Env:
    """Return a new environment.

    Args:
        options: The environment.
        make: Makes it.

    Raises:
        InputError: It cannot be made; says what is missing.
    """
    argument = "env.id"
    try:
        return make()
    except DependencyNotInstalled as error:
        expected = "an environment whose packages are installed"
        raise InputError(argument, expected, f"{options.id} ({error})", extra_cure(error)) from None
    except (UnregisteredEnv, DeprecatedEnv):
        cure = f"{nearest(options.id, gymnasium.registry)} {_module_cure(options.id)}".strip()
        if options.id in TASKS:
            cure = 'The exact engine has it: env.engine="exact".'
        raise InputError(argument, "a registered environment", options.id, cure) from None
    except ModuleNotFoundError as error:
        cure = _import_cure(options.id, str(error))
        came = f"{options.id} ({str(error).partition('. ')[0]})"  # Gymnasium adds advice
        raise InputError(argument, "a module that can be imported", came, cure) from None
    except InputError:
        raise
    except FAILURES as error:  # whatever a constructor or an imported module raises
        if _is_path(options.id):
            raise InputError(argument, "a module, and the name of an environment", options.id, _NO_PATH) from None
        if options.kwargs:
            expected = f"arguments that {options.id} takes"
            raise InputError("env.kwargs", expected, f"{options.kwargs} ({one_line(error)})") from error
        raise InputError(argument, "an environment that can be made", f"{options.id} ({one_line(error)})") from error


def extra_cure(error: BaseException) -> str:
    """Return how to install the library that an error of Gymnasium's misses; nothing if the error is another one."""
    if not isinstance(error, DependencyNotInstalled):
        return ""
    extra = next((extra for word, extra in _EXTRAS.items() if word in str(error).lower()), None)
    return how_to_install(extra) if extra else ""


def _is_path(env_id: str) -> bool:
    """Return whether a file is named where a module should be."""
    module = env_id.rpartition(":")[0]
    return module.endswith(".py") or "/" in module


def _import_cure(env_id: str, said: str) -> str:
    """Return what to do where a module is missing: that of an environment, or one that it imports.

    said: The error that Gymnasium has made of it, without its name.
    """
    module = env_id.rpartition(":")[0]
    if _is_path(env_id):
        return _NO_PATH
    missing = re.search(r"No module named '([^']+)'", said)
    if missing is None or module == missing[1] or module.startswith(f"{missing[1]}."):
        return "Modules are looked for in the working directory and on PYTHONPATH."
    return f"{module or env_id} imports it: install it."


def _module_cure(env_id: str) -> str:
    """Return how to name an environment that a module of the user's own registers."""
    if ":" in env_id:
        return ""
    full = f"{env_id[:-3]}:Name-v0" if env_id.endswith(".py") else f"module:{env_id}"
    return f'One that a module of yours registers is named with it: env.id="{full}".'


def may_reuse(env: _Env, options: EnvOptions) -> bool:
    """Return whether an environment object may run another episode, see `EnvOptions.reuse`."""
    if isinstance(options.reuse, bool):
        return options.reuse
    # Wrappers may come from the registration or from an entry point too, and some remember: every layer is looked at.
    while isinstance(env, gymnasium.Wrapper):
        if type(env).__name__ not in _STATELESS_WRAPPERS or not type(env).__module__.startswith("gymnasium.wrappers."):
            return False
        env = env.env
    return type(env).__module__.startswith(_RESET_RESTORES_ALL)
