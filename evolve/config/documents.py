"""Reading TOML: whole documents, dotted keys, and the command line's assignments `section.key=value`."""

import re
import tomllib
from pathlib import Path

from evolve.config.options import Table
from evolve.errors import InputError

_MAX_CHARACTERS = 1_000_000
_MAX_DEPTH = 32  # levels of nested tables and arrays


def read_table(text: str, source: str) -> Table:
    """Return the table of a TOML document.

    Args:
        text: The document.
        source: The name of the document in errors.

    Raises:
        InputError: The document is malformed or too long, or has values that are nested too deep or too large.
    """
    if len(text) > _MAX_CHARACTERS:
        raise InputError(source, f"TOML of at most {_MAX_CHARACTERS:,} characters", f"{len(text):,}")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:  # a TOMLDecodeError, or an integer with more digits than Python converts
        raise InputError(source, "well-formed TOML", f"{error}", "") from None
    _check(table, source)
    return table


def _check(value: object, source: str, depth: int = 0) -> None:
    """Raise InputError for values that are nested too deep, and for integers of more than 64 bits."""
    if depth > _MAX_DEPTH:
        raise _too_deep(source)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(source, "integers of at most 64 bits", value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check(part, source, depth + 1)


def _too_deep(source: str) -> InputError:
    return InputError(source, f"values nested at most {_MAX_DEPTH} deep", "deeper nesting")


def read_file(path: Path) -> Table:
    """Return the table of a TOML file. Raises InputError if the file cannot be read, and as `read_table` does."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        raise InputError("EXPERIMENT.toml", "a readable TOML file", f"{path} ({error})") from None
    return read_table(text, str(path))


def set_key(table: Table, key: str, value: object) -> None:
    """Set a dotted key in a table, and create the tables that the key names and the table lacks.

    Args:
        table: The table, changed in place.
        key: "env.kwargs.gravity".
        value: Any TOML value.

    Raises:
        InputError: A part of the key, such as "env", is a value that is not a table.
    """
    *sections, last = key.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"key {key}", f"{section} to be a table", inner)
        table = inner
    table[last] = value


def read_assignment(text: str) -> tuple[str, object]:
    """Return the key and the value of `section.key=value`. A value that is not valid TOML is plain text.

    Raises InputError if `text` is not such an assignment.
    """
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+){,31}", key.strip()):
        raise InputError("--set", "section.key=value", text)
    try:
        found = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key.strip(), value.strip()
    _check(found, "--set")
    return key.strip(), found
