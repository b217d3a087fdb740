"""Tables of settings: what all of them have in common, and how one is validated and what is wrong with it said."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

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


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6, listed: bool = False) -> str:
    """Return "Did you mean …?" for the known names nearest to `name`, or the list of all when few.

    listed: the list in any case.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    meant = f"Did you mean {' or '.join(close)}?" if close else ""
    every = f"Known: {', '.join(names)}." if 0 < len(names) <= 20 and (listed or not close) else ""
    return f"{meant} {every}".strip()


def parse(model: type[Model], table: Mapping[str, Any], at: str = "") -> Model:
    """Validate `table` against `model`; `at` is the dotted path of the table in the experiment.

    Raises InputError for the first thing that is wrong.
    """
    try:
        return model.model_validate(dict(table))
    except ValidationError as wrong:
        raise _explain(model, wrong, at) from None


def _explain(model: type[BaseModel], wrong: ValidationError, at: str) -> InputError:
    first, *more = wrong.errors()
    path, known = _walk(model, first["loc"])
    key = ".".join([at, *path] if at else path)
    if first["type"] == "extra_forbidden":
        return InputError(f"key {key}", "a key that exists", "an unknown one", nearest(path[-1], known))
    flag = FLAGS.get(re.sub(r"\.\d+$", "", key))
    argument = f"{key} ({flag})" if flag else key
    kinds = [_expected(error) for error in (first, *more) if _walk(model, error["loc"])[0] == path]
    return InputError(argument, " or ".join(dict.fromkeys(kinds)), first["input"])


_EXPECTED = {
    "missing": "a value", "bool_type": "true or false", "int_type": "a whole number", "float_type": "a number",
    "string_type": "text", "model_type": "a table", "dict_type": "a table", "tuple_type": "a list, such as [1, 4]",
    "too_long": "a list of at most {max_length}", "too_short": "a list of at least {min_length}",
}  # fmt: skip
"""What Pydantic's errors mean, where its own words are not plain."""


def _expected(error: ErrorDetails) -> str:
    ours = _EXPECTED.get(error["type"])
    if ours is not None:
        return ours.format(**error.get("ctx", {}))
    return re.sub(r"^(Value error, |Input should be )", "", error["msg"])


def _walk(model: type[BaseModel], place: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """Return the parts of a place, without Pydantic's names for kinds of values, and the keys known at the last."""
    inner: type[BaseModel] | None = model
    path: list[str] = []
    known: list[str] = []
    for part in place:
        if isinstance(part, int):
            path.append(str(part))
        elif inner is not None:
            path.append(part)
            known, field = list(inner.model_fields), inner.model_fields.get(part)
            inner = _model_in(field.annotation) if field is not None else None
    return path, known


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of the tables that a value may consist of, None where it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
