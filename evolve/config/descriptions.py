"""Describes settings, by their meaning, default and limits, and writes an experiment as TOML with comments.

The meaning of a setting is the docstring below it in its model. `descriptions` is for the pages of settings, and
`annotated_toml` for the option `--settings` of `evolve run` and `evolve info`.
"""

import ast
import inspect
import json
import textwrap
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from evolve.config.options import Options, Table, with_commas
from evolve.config.registry import Choice
from evolve.config.settings import Config

_TYPE_LIMIT = 2**31
"""Bounds from this number on are not shown: they are the limits of integer types, such as int32."""


class _Undescribed(Options):
    pass  # the model of settings without descriptions, which have no comments


@dataclass(frozen=True)
class Description:
    """The name of a setting, its default as TOML ("" for no default, or for None), its limits, and its meaning."""

    name: str
    default: str
    limits: str
    meaning: str


def descriptions(model: type[Options]) -> list[Description]:
    """Return the descriptions of the settings of a model, in its order, without its sections."""
    # Leave out sections: the default of a section is a model, or comes from a factory.
    return [
        _describe(model, name)
        for name, field in model.model_fields.items()
        if not isinstance(field.default, BaseModel) and field.default_factory is None
    ]


def _describe(model: type[Options], name: str) -> Description:
    field = model.model_fields[name]
    # A required setting, or a setting with a factory, has no default. TOML cannot write the default None.
    default = "" if field.default in (None, PydanticUndefined) else json.dumps(field.default)
    # The docstring of a setting is in the model, or in the base class that declares the setting.
    sources = (_docstrings(each) for each in model.__mro__)
    meaning = next((docstrings[name] for docstrings in sources if name in docstrings), "")
    return Description(name, default, _allowed(field.annotation, field.metadata), meaning)


@cache
def _docstrings(model_class: type) -> dict[str, str]:
    """Return the docstrings below the annotated names of a class, by name; empty if its source is not available."""
    # Pydantic can read the docstrings, too, but does so when a model is defined. Each import of evolve would take a
    # fifth longer, and most commands show no descriptions.
    try:
        source = textwrap.dedent(inspect.getsource(model_class))
    except (OSError, TypeError):  # a class that is implemented in C, or was typed at the prompt
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    docstrings = {}
    # The docstring of a name is the statement after its annotation.
    for statements in pairwise(definition.body):
        match statements:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docstrings[name] = " ".join(text.split())
    return docstrings


def _allowed(annotation: Any, constraints: Any = ()) -> str:
    """Return the allowed values of a type in words, such as "0 to 1"; "" if it allows all values, as bool does.

    constraints: Pydantic's metadata of the type, such as its bounds.
    """
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Annotated:
        # The other annotations, such as validators, have no limits to show.
        fields = (part for part in parts[1:] if isinstance(part, FieldInfo))
        return _allowed(parts[0], [limit for field in fields for limit in field.metadata])
    if origin is Literal:
        return " or ".join(json.dumps(part) for part in parts)
    if origin in (Union, UnionType):
        types = [part for part in parts if part is not NoneType]
        words = ["true or false" if each is bool else _allowed(each) for each in types]
        # A type without limits allows all its values, so the union has no limits to show.
        return " or ".join(words) if all(words) else ""
    if origin is tuple:
        allowed_parts = _allowed(parts[0])
        return f"each {allowed_parts}" if allowed_parts else ""
    return _range(constraints)


def _range(constraints: Any) -> str:
    """Return the range that constraints allow, such as "0 to 1"; "" without a bound below `_TYPE_LIMIT`."""
    shown = {}
    for constraint in constraints:
        for name in ("ge", "gt", "le", "lt"):
            bound = getattr(constraint, name, None)
            if bound is not None and bound < _TYPE_LIMIT:
                shown[name] = with_commas(bound)
    if "ge" in shown and "le" in shown:
        return f"{shown['ge']} to {shown['le']}"
    words = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    return ", ".join(words[name].format(bound) for name, bound in shown.items())


def annotated_toml(config: Config, kwargs_model: type[Options] | None = None) -> str:
    """Return an experiment as TOML with comments. The text can be read as the same experiment.

    Args:
        config: The experiment.
        kwargs_model: The model of `env.kwargs`, if the arguments of the environment are known.
    """
    tables = config.model_dump(mode="json", exclude_none=True)
    model: type[Options] = Config  # of the current section
    lines = _purpose(model)
    unset = _comments_on_unset(model, tables)  # the comments that end the current section
    # TOML permits some characters that control a terminal, and a file may come from a stranger. So escape them: they
    # are in quoted texts, where TOML reads an escape as the character.
    toml = "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08x}" for c in config.to_toml())
    # tomli_w writes an empty line before each header, and indents the items of arrays. So a line that begins with a
    # bracket is a header.
    for line in toml.rstrip("\n").split("\n"):
        if not line:  # the section ends
            lines += [*unset, ""]
            unset = []
        elif line.startswith("["):
            section = line[1:-1]
            model, table = _model(config, section), tables.get(section, {})
            if section == "env.kwargs":
                model, table = kwargs_model or _Undescribed, config.env.kwargs
            lines += [*_purpose(model), line]
            unset = _comments_on_unset(model, table)
        else:
            lines += _with_comments(line, model)
    return "\n".join([*lines, *unset])


def _model(config: Config, section: str) -> type[Options]:
    """Return the model of a section; `_Undescribed` for a table inside a section, such as `env.randomize`."""
    value = getattr(config, section) if section in Config.model_fields else None
    if isinstance(value, Choice):
        return type(value.options)
    return type(value) if isinstance(value, Options) else _Undescribed


def _purpose(model: type[Options]) -> list[str]:
    """Return comments with the purpose of a section."""
    return _comment(inspect.cleandoc(vars(model).get("__doc__") or ""))


def _comments_on_unset(model: type[Options], table: Table) -> list[str]:
    """Return comments with the meaning, default and limits of each setting that the table of a section leaves out."""
    lines = []
    for setting in (_describe(model, name) for name in model.model_fields if name not in table):
        line = f"# {setting.name} = {setting.default}" if setting.default else f"# {setting.name} is not set"
        between = "  # " if setting.default else ": "
        lines += [*_comment(setting.meaning), f"{line}{between}{setting.limits}" if setting.limits else line]
    return lines


def _with_comments(line: str, model: type[Options]) -> list[str]:
    """Return a line `name = value` with the meaning of the setting as a comment above, and the limits behind it."""
    name = line.partition(" = ")[0]
    if name not in model.model_fields:  # an item or the end of an array, or a setting that the model does not know
        return [line]
    setting = _describe(model, name)
    return [*_comment(setting.meaning), f"{line}  # {setting.limits}" if setting.limits else line]


def _comment(text: str) -> list[str]:
    """Return a text as comments, without empty lines. A line has at most 100 characters, or one longer word."""
    return [f"# {part}" for line in text.split("\n") for part in textwrap.wrap(line, 98, break_long_words=False)]
