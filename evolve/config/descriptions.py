"""Describe settings: the meaning, default and limits of each, and an experiment as TOML with comments."""

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evolve.config.options import Options, Table
from evolve.config.registry import Choice
from evolve.config.settings import Config

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


def annotated_toml(config: Config) -> str:
    """Return an experiment as TOML with comments; it reads back as the same experiment."""
    tables = config.model_dump(mode="json", exclude_none=True)
    model: type[Options] | None = Config
    lines = [*_meaning(Config), *_not_set(Config, tables)]
    for line in config.to_toml().rstrip("\n").split("\n"):
        if not line.startswith("["):
            lines.append(_with_limits(line, model))
            continue
        section = line[1:-1]
        model = _model(config, section)
        lines += [line] if model is None else [*_meaning(model), line, *_not_set(model, tables[section])]
    return "\n".join(lines)


def _model(config: Config, section: str) -> type[Options] | None:
    """Return the model of a section; None for a table of the user's own, such as `env.kwargs`."""
    found = getattr(config, section) if section in Config.model_fields else None
    if isinstance(found, Choice):
        return type(found.options)
    return type(found) if isinstance(found, Options) else None


def _meaning(model: type[Options]) -> Iterator[str]:
    """Yield as comments the docstrings of a model, and of those of its bases that have settings."""
    for text in docstrings(model):
        yield from (f"# {line}".rstrip() for line in text.split("\n") if line)


def _not_set(model: type[Options], table: Table) -> Iterator[str]:
    """Yield comments for the settings that have no value, which TOML cannot say."""
    for name, field in model.model_fields.items():
        if name not in table:
            allowed = limits(field.annotation, field.metadata)
            yield f"# {name} is not set{f': {allowed}' if allowed else ''}"


def _with_limits(line: str, model: type[Options] | None) -> str:
    """Return a line `name = value` with the limits of that setting as a comment."""
    name = line.partition(" = ")[0]
    if model is None or name not in model.model_fields:
        return line
    field = model.model_fields[name]
    allowed = limits(field.annotation, field.metadata)
    return f"{line}  # {allowed}" if allowed else line
