"""Reading TOML: whole documents, dotted keys, and the assignments `section.key=value` of a command line."""

import re
import tomllib
from pathlib import Path

from evolve.config.options import Table
from evolve.errors import InputError

_LONGEST = 1_000_000  # characters of an experiment
_DEEPEST = 32  # tables in tables, and arrays in arrays


def read_table(text: str, source: str) -> Table:
    """Return the table of a TOML document.

    Args:
        text: The document.
        source: What errors call it.

    Raises:
        InputError: It is malformed, longer than any experiment, or has values that no experiment has.
    """
    if len(text) > _LONGEST:
        raise InputError(source, f"TOML of at most {_LONGEST:,} characters", f"{len(text):,}")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:  # a TOMLDecodeError, or a number that no Python int may have
        raise InputError(source, "well-formed TOML", f"{error}", "") from None
    _check(table, source)
    return table


def _check(value: object, source: str, depth: int = 0) -> None:
    """Raise InputError for values nested too deep to be handled, and for integers that TOML does not have."""
    if depth > _DEEPEST:
        raise _too_deep(source)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(source, "integers of at most 64 bits, as TOML has them", value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check(part, source, depth + 1)


def _too_deep(source: str) -> InputError:
    return InputError(source, f"values nested at most {_DEEPEST} deep", "deeper ones")


def read_file(path: Path) -> Table:
    """Return the table of an experiment's file. Raises InputError when it cannot be read, and as `read_table` does."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
    except (OSError, ValueError) as error:
        raise InputError("EXPERIMENT.toml", "a TOML file that can be read", f"{path} ({error})") from None
    return read_table(text, str(path))


def set_key(table: Table, key: str, value: object) -> None:
    """Set a dotted key in a table, making the tables on the way.

    Args:
        table: Is changed.
        key: "env.kwargs.gravity".
        value: Any value of TOML.

    Raises:
        InputError: A part of the key is a value already, and not a table.
    """
    *sections, last = key.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"key {key}", f"{section} to be a table", inner)
        table = inner
    table[last] = value


def read_assignment(text: str) -> tuple[str, object]:
    """Return the key and the value of `section.key=value`. The value is TOML, or plain text where it is not.

    Raises InputError when `text` is no such assignment.
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
