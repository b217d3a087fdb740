"""What the settings of a model are: by its docstring, whose lines `name: …` say what each means, and by its limits."""

import inspect
import json
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evolve.config.options import Options

_TYPE_LIMIT = 2**31
"""A limit from here on is that of a number's type, and goes without saying."""


@dataclass(frozen=True)
class Description:
    """A setting: its name, its default as TOML (empty where it is not set), what it may be, and what it means."""

    name: str
    default: str
    limits: str
    meaning: str


def descriptions(model: type[Options]) -> list[Description]:
    """Return the settings of a model that are single values or lists, in their order."""
    meant = meanings(model)
    return [
        Description(name, _default(field), limits(field.annotation, field.metadata), meant.get(name, ""))
        for name, field in model.model_fields.items()
        if not isinstance(field.get_default(call_default_factory=True), BaseModel) and field.default_factory is None
    ]


def docstrings(model: type[Options]) -> list[str]:
    """Return the docstrings of a model, and of those of its bases that have settings."""
    kinds = model.__mro__[: model.__mro__.index(Options)]
    texts = (vars(kind).get("__doc__") or "" for kind in kinds if issubclass(kind, Options) and kind.model_fields)
    return [inspect.cleandoc(text) for text in texts]


def meanings(model: type[Options]) -> dict[str, str]:
    """Return what the settings of a model mean, as far as its docstrings say."""
    found: dict[str, str] = {}
    for text in docstrings(model):
        name = ""
        for line in text.split("\n"):
            key, colon, rest = line.partition(": ")
            if colon and key in model.model_fields:
                name = key
                found[name] = rest
            elif name:
                found[name] += f" {line}"
    return found


def limits(kind: Any, metadata: Any = ()) -> str:
    """Return which values a type allows, in words; nothing where that goes without saying."""
    origin = get_origin(kind)
    parts = get_args(kind)
    if origin is Annotated:
        fields = (part for part in parts[1:] if isinstance(part, FieldInfo))
        return limits(parts[0], [limit for field in fields for limit in field.metadata])
    if origin is Literal:
        return " or ".join(json.dumps(part) for part in parts)
    if origin in (Union, UnionType):
        words = ["true or false" if part is bool else limits(part) for part in parts if part is not NoneType]
        return " or ".join(words) if all(words) else ""
    if origin is tuple:
        each = limits(parts[0])
        return f"each {each}" if each else ""
    return _range(metadata)


def _range(metadata: Any) -> str:
    """Return the range that constraints leave: "0 to 1"."""
    bounds = {name: getattr(m, name) for m in metadata for name in ("ge", "gt", "le", "lt") if hasattr(m, name)}
    said = {name: f"{bound:,.15g}" for name, bound in bounds.items() if bound < _TYPE_LIMIT}
    if "ge" in said and "le" in said:
        return f"{said['ge']} to {said['le']}"
    words = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    return ", ".join(words[name].format(bound) for name, bound in said.items())


def _default(field: FieldInfo) -> str:
    """Return a default as TOML says it."""
    return "" if field.default is None else json.dumps(field.default)
