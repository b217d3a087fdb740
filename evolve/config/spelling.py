"""An experiment as TOML that says what its settings mean: the docstrings of their tables, and their limits."""

import inspect
import json
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from evolve.config.options import Options, Table
from evolve.config.settings import Config

_OF_ITS_TYPE = 2**31
"""From here on a limit is that of a number's type, which need not be said."""


def spelled_out(config: Config, models: Mapping[str, type[Options]]) -> str:
    """Return an experiment as TOML that reads back as the same; models: those of `[network]` and `[strategy]`."""
    tables = config.model_dump(mode="json", exclude_none=True)
    model: type[Options] | None = Config
    lines = [*_meaning(Config), *_not_set(Config, tables)]
    for line in config.to_toml().rstrip("\n").split("\n"):
        if not line.startswith("["):
            lines.append(_with_limits(line, model))
            continue
        model = _model(line[1:-1], models)
        lines += [line] if model is None else [*_meaning(model), line, *_not_set(model, tables[line[1:-1]])]
    return "\n".join(lines)


def _model(section: str, models: Mapping[str, type[Options]]) -> type[Options] | None:
    """Return the model of a section, None for a table of the user's own."""
    kind = Config.model_fields[section].annotation if section in Config.model_fields else None
    return models.get(section, kind if isinstance(kind, type) and issubclass(kind, Options) else None)


def _meaning(model: type[Options]) -> Iterator[str]:
    """Yield the docstrings of a model and its bases as comments."""
    for kind in model.__mro__[: model.__mro__.index(Options)]:
        text = inspect.cleandoc(vars(kind).get("__doc__") or "")
        yield from (f"# {line}".rstrip() for line in text.split("\n") if line)


def _not_set(model: type[Options], table: Table) -> Iterator[str]:
    """Yield comments for the settings that have no value, which TOML cannot say."""
    for name, field in model.model_fields.items():
        if name not in table:
            limits = _limits(field.annotation, field.metadata)
            yield f"# {name} is not set{f': {limits}' if limits else ''}"


def _with_limits(line: str, model: type[Options] | None) -> str:
    name = line.partition(" = ")[0]
    if model is None or name not in model.model_fields:
        return line
    field = model.model_fields[name]
    limits = _limits(field.annotation, field.metadata)
    return f"{line}  # {limits}" if limits else line


def _limits(kind: Any, metadata: Any = ()) -> str:
    """Return in words what values a type has room for; nothing where that goes without saying."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _limits(
            parts[0], [m for part in parts[1:] for m in (part.metadata if isinstance(part, FieldInfo) else [])]
        )
    if origin is Literal:
        return " or ".join(json.dumps(part) for part in parts)
    if origin in (Union, UnionType):
        words = ["true or false" if part is bool else _limits(part) for part in parts if part is not NoneType]
        return " or ".join(words) if all(words) else ""
    if origin is tuple:
        each = _limits(parts[0])
        return f"each {each}" if each else ""
    return _range(metadata)


def _range(metadata: Any) -> str:
    """Return the range that constraints leave: "0 to 1"."""
    limits = {name: getattr(m, name) for m in metadata for name in ("ge", "gt", "le", "lt") if hasattr(m, name)}
    said = {name: f"{limit:,.15g}" for name, limit in limits.items() if limit < _OF_ITS_TYPE}
    if "ge" in said and "le" in said:
        return f"{said['ge']} to {said['le']}"
    words = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    return ", ".join(words[name].format(limit) for name, limit in said.items())
