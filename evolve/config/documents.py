"""TOML: documents of a bearable size, dotted keys, and assignments as the command line has them."""

import re
import tomllib
from pathlib import Path

from evolve.config.options import Table
from evolve.errors import InputError

LONGEST = 1_000_000
"""The most characters of an experiment."""
_DEEPEST = 32  # tables in tables, or arrays in arrays
# A key of more parts than that; found before tomllib, whose time and memory grow with the square of their number.
_DEEP_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_DEEPEST}}}""")


def read_table(text: str, source: str) -> Table:
    """Return the table of a TOML document. Raises InputError when it is malformed, or of an absurd size."""
    if len(text) > LONGEST:
        raise InputError(source, f"TOML of at most {LONGEST:,} characters", f"{len(text):,}")
    if _DEEP_KEY.search(text):
        raise InputError(source, f"keys of at most {_DEEPEST} parts", "a longer one")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise InputError(source, f"values nested at most {_DEEPEST} deep", "deeper ones") from None
    except ValueError as wrong:  # a TOMLDecodeError, or a number that no Python int may have
        raise InputError(source, "well-formed TOML", f"{wrong}", "") from None
    _check_values(table, source)
    return table


def read_file(path: Path) -> Table:
    """Return the table of an experiment's file. Raises InputError when it cannot be read, and as `read_table` does."""
    try:
        with path.open(encoding="utf-8") as file:
            return read_table(file.read(LONGEST + 1), str(path))
    except (OSError, ValueError) as wrong:
        raise InputError("EXPERIMENT.toml", "a TOML file that can be read", f"{path} ({wrong})") from None


def _check_values(table: Table, source: str) -> None:
    """Raise InputError for values nested too deep, and for integers that TOML does not have."""
    level: list[object] = [table]
    for _ in range(_DEEPEST + 1):
        level = [
            part for v in level if isinstance(v, dict | list) for part in (v.values() if isinstance(v, dict) else v)
        ]
        for value in level:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise InputError(source, "integers of at most 64 bits, as TOML has them", value)
    if level:
        raise InputError(source, f"values nested at most {_DEEPEST} deep", "deeper ones")


def set_key(table: Table, key: str, value: object) -> None:
    """Set a dotted key, making the tables on the way. Raises InputError when a value stands in the way."""
    *sections, last = key.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"key {key}", f"{section} to be a table", inner)
        table = inner
    table[last] = value


def read_assignment(text: str) -> tuple[str, object]:
    """Split `section.key=value`; the value is TOML, or a plain string where it is not."""
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key.strip()):
        raise InputError("--set", "section.key=value", text)
    if key.count(".") >= _DEEPEST:
        raise InputError("--set", f"a key of at most {_DEEPEST} parts", text)
    try:
        table = read_table(f"value = {value}", "--set")
    except InputError as wrong:
        if "well-formed" not in str(wrong):
            raise
        return key.strip(), value.strip()
    return key.strip(), table["value"]
