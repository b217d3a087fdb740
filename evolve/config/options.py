"""Tables of settings: what all of them have in common, and how one is validated and what is wrong with it said."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from evolve.errors import InputError

Table = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)

FLAGS = {
    "env.id": "-e/--env", "network.name": "-a/--agent", "strategy.name": "--strategy", "population": "-p/--population",
    "generations": "-g/--generations", "episodes": "-r/--episodes", "network.hidden": "-d/--hidden",
    "seeds": "-s/--seed", "env.engine": "--engine", "compute.backend": "--backend", "output.directory": "-o/--output",
    "compute.time_limit": "--time-limit",
}  # fmt: skip
"""The command line's name of a key."""


class Options(BaseModel):
    """Base of every table of settings: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return "Did you mean …?" for the known names nearest to `name`, or the list of all when few."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(names)}." if 0 < len(names) <= 20 else ""


def parse(model: type[Model], table: Mapping[str, Any], at: str = "") -> Model:
    """Validate `table` against `model`; `at` is the dotted path of the table in the experiment.

    Raises InputError for the first thing that is wrong.
    """
    try:
        return model.model_validate(dict(table))
    except ValidationError as wrong:
        raise _explain(model, wrong, at) from None


def _explain(model: type[BaseModel], wrong: ValidationError, at: str) -> InputError:
    first = wrong.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join([at, *path] if at else path)
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, path[:-1])
        return InputError(f"key {key}", "a key that exists", "an unknown one", nearest(path[-1], known))
    flag = FLAGS.get(re.sub(r"\.\d+$", "", key))
    argument = f"{key} ({flag})" if flag else key
    expected = re.sub(r"^(Value error, |Input should be )", "", first["msg"]).replace("valid dictionary", "table")
    return InputError(argument, expected, first["input"])


def _known_keys(model: type[BaseModel], path: list[str]) -> list[str]:
    for name in path:
        inner = model.model_fields[name].annotation if name in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
