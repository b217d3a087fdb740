"""Reads experiment files (TOML), changes their settings by options of a command, and expands sweeps.

`read_file` returns a table, `set_key` and `override` change it, and `experiments` returns a `Config` for each of its
experiments. A table `[sweep]` in a file describes several experiments, one for each combination of the listed values.
The last key changes fastest:

    [sweep]
    strategy.survivors = [1, 8]
    network.plasticity = [0.0, 0.1]

A value may be a table of settings that belong together: strategy = [{name = "ga"}, {name = "prune", survivors = 8}].
A table without a name keeps the name of its section, and the other settings of the section.
"""

import hashlib
import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import date, time
from functools import lru_cache
from pathlib import Path
from typing import Any

from evolve.config.options import Table, flatten, parse, plain
from evolve.config.settings import NAMED_SECTIONS, Config
from evolve.errors import InputError

MAX_EXPERIMENTS = 1000
"""The largest number of experiments in a sweep."""
_MAX_CHARACTERS = 1_000_000  # of a TOML document
_MAX_NAME_BYTES = 255  # the limit of most file systems; a hash replaces the end of a longer name
_MAX_DEPTH = 32  # levels of nested tables and arrays
# `_LONG_KEY` finds a key of more than 100 parts. `tomllib` takes minutes for 100,000 parts, milliseconds for 100.
_PART_OF_KEY = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"""(?<![\w"'\\-])(?:{_PART_OF_KEY}[ \t]*+\.[ \t]*+){{100}}""")


def read_table(text: str, source: str) -> Table:
    """Return the table of a TOML document.

    Args:
        text: The document.
        source: The name of the document in errors.

    Raises:
        InputError: The document is malformed or too long, or has values that are nested too deep or too large.
    """
    if len(text) > _MAX_CHARACTERS:
        raise InputError(source, f"TOML of at most {_MAX_CHARACTERS:,} characters", "more")
    try:
        table = _parse_toml(text, source)
    except ValueError as error:  # a TOMLDecodeError, or an integer with more digits than Python converts
        raise InputError(source, "well-formed TOML", str(error)) from None
    _check_values(table, source)
    return table


# Cached, because all seeds of an experiment store the same text, and a page about 1,000 runs reads it 3,000 times.
_loads = lru_cache(maxsize=16)(tomllib.loads)


def _parse_toml(text: str, source: str) -> Table:
    """Return the table of a TOML document. Raises InputError if it is too deep, and ValueError if it is malformed."""
    if _LONG_KEY.search(text):
        raise _too_deep(source)
    try:
        return deepcopy(_loads(text))  # a caller may change its table
    except RecursionError:
        raise _too_deep(source) from None


def _check_values(value: object, source: str, depth: int = 0) -> None:
    """Raise InputError for values that are nested too deep, or integers of more than 64 bits."""
    if depth > _MAX_DEPTH:
        raise _too_deep(source)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(source, "integers of at most 64 bits", value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            _check_values(part, source, depth + 1)


def _too_deep(source: str) -> InputError:
    return InputError(source, f"values nested at most {_MAX_DEPTH} deep", "deeper nesting")


def read_file(path: Path) -> Table:
    """Return the table of an experiment file. Raises InputError if it cannot be read, and as `read_table` does."""
    try:
        with path.open(encoding="utf-8-sig") as file:  # some editors of Windows begin a file with a byte order mark
            # One character too many is enough for `read_table` to refuse the file.
            text = file.read(_MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        cure = "Save it as UTF-8." if isinstance(error, UnicodeDecodeError) else ""
        raise InputError("EXPERIMENT.toml", "a readable TOML file", f"{path} ({why})", cure) from None
    table = read_table(text, str(path))
    # A file may give a name in place of a section: `set_key` makes network.name = "mlp" of network = "mlp".
    for key in NAMED_SECTIONS.keys() & table.keys():
        set_key(table, key, table.pop(key))
    return table


def set_key(table: Table, key: str, value: object) -> None:
    """Set a dotted key in a table, and create missing tables on the way.

    Args:
        table: The table, changed in place.
        key: A dotted key, such as "env.kwargs.gravity".
        value: Any TOML value. For a section of `NAMED_SECTIONS`, a text is the name of the section.

    Raises:
        InputError: The key is not a text, or a part before the last one names a value that is no table.
    """
    if not isinstance(key, str):
        raise InputError("experiment", "settings whose names are texts", repr(key))
    if key in NAMED_SECTIONS and isinstance(value, str):
        key = f"{key}.{NAMED_SECTIONS[key]}"
    *sections, last = key.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"key {key}", f"{section} to be a table", inner)
        table = inner
    table[last] = value


def read_assignment(text: str) -> tuple[str, object]:
    """Return the key and the value of `section.key=value`.

    A date, or a value that is not valid TOML, is plain text. Raises InputError if `text` is not an assignment, or if
    the value is nested too deep or too large.
    """
    key, equals, value = text.partition("=")
    # A key has at most 32 parts, as deep as `_MAX_DEPTH` allows.
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+){,31}", key.strip()):
        raise InputError("--set", "section.key=value", text)
    try:
        table = _parse_toml(f"value = {value}", "--set")
    except ValueError:
        table = {}
    # The value is plain text if it is not valid TOML, has a second line that sets another key, or is a date. No setting
    # is a date, but a date may name a directory.
    if table.keys() != {"value"} or isinstance(table["value"], date | time):
        return key.strip(), value.strip()
    _check_values(table, "--set")
    return key.strip(), table["value"]


def experiments(table: Table, title: str) -> list[Config]:
    """Return the experiments that a table describes: a single experiment, or all experiments of a sweep.

    Args:
        table: The table of a TOML file.
        title: The name of the sweep. Each experiment of a sweep has its own directory in `output.directory`. The
            default is `runs/<title>`.

    Raises:
        InputError: An experiment or the sweep is invalid.
    """
    configs = []
    for name, experiment in experiment_tables(table):
        config = parse(Config, experiment)
        if config.output.directory == "":
            raise InputError("output.directory", "a directory", "an empty text")
        # With a directory for each experiment of a sweep, two run files never have the same path.
        if name:
            directory = str(Path(config.output.directory or f"runs/{title}") / name)
            config = config.with_section("output", directory=directory)
        _check_storable(config)
        configs.append(config)
    return configs


def _check_storable(config: Config) -> None:
    """Raise InputError for an invalid directory, or for an experiment that a run file cannot store as TOML."""
    directory = config.output.directory or ""
    if "\0" in directory:
        raise InputError("output.directory", "a directory", repr(directory))
    # A run file stores the experiment as this text, and `read_table` reads it back.
    everything = config.to_toml()
    # Python reads an argument or a file name that is not UTF-8 as a text that cannot be encoded.
    for name, text in (("output.directory", directory), ("experiment", everything)):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            # The wrong characters, and up to 40 characters on both sides.
            raise InputError(name, "text in UTF-8", text[max(0, error.start - 40) : error.end + 40]) from None
    read_table(everything, "experiment")


def experiment_tables(table: Table) -> list[tuple[str, Table]]:
    """Return the name and the table of each experiment of a sweep. Without a sweep, the name is empty.

    Raises InputError if `sweep` is not a table of lists, has more than `MAX_EXPERIMENTS` combinations, or gives two
    combinations the same name.
    """
    swept = combinations(table.get("sweep", {}))
    tables = []
    for values in swept:
        # `plain` makes a deep copy, so the experiments share no table.
        experiment: Table = plain({key: value for key, value in table.items() if key != "sweep"})
        # Set keys with fewer parts first: "network" replaces the whole table, in which "network.hidden" is then set.
        for key in sorted(values, key=lambda key: key.count(".")):
            value, section = plain(values[key]), experiment.get(key)
            if lacks_name(key, value) and isinstance(section, dict):
                value = section | value
            set_key(experiment, key, value)
        tables.append(experiment)
    return list(zip(_directory_names(swept), tables, strict=True))


def lacks_name(section: str, value: object) -> bool:
    """Return whether a value for a section is a table without a name, that is, without `NAMED_SECTIONS[section]`."""
    return isinstance(value, Mapping) and section in NAMED_SECTIONS and NAMED_SECTIONS[section] not in value


def combinations(grid: Any) -> list[dict[str, Any]]:
    """Return the swept values of each experiment, by dotted keys. Raises InputError as `experiment_tables` does."""
    if not isinstance(grid, dict):
        raise InputError("sweep", "a table of lists", grid)
    lists = _swept_lists(grid)
    sizes = [len(values) for values in lists.values()]
    if math.prod(sizes) > MAX_EXPERIMENTS:
        raise InputError("sweep", f"at most {MAX_EXPERIMENTS} combinations", " × ".join(map(str, sizes)))
    # Without a sweep there is no list. The product of no lists is one empty combination: the experiment itself.
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def override(table: Table, assignments: Sequence[tuple[str, object]]) -> None:
    """Set keys in a table, and remove these keys from the sweep in the table.

    Args:
        table: The table, changed in place.
        assignments: Dotted keys and their values; a key may begin with "sweep.".

    Raises:
        InputError: The new sweep sets one of the keys, too, or replaces the table around it.
    """
    swept = [(key, value) for key, value in assignments if key.partition(".")[0] == "sweep"]
    # `swept_key` returns strategy.name for strategy = "ga", so a sweep over other settings of the strategy remains.
    unswept = [(swept_key(key, [value]), value) for key, value in assignments if key.partition(".")[0] != "sweep"]
    # Remove the keys from the sweep of the file first. `swept` may then add keys to the sweep.
    for key, value in unswept:
        _remove_from_sweep(table, key)
        set_key(table, key, value)
    for key, value in swept:
        set_key(table, key, value)
    # Each key must have its new value in all experiments. `plain` turns tuples into lists, as in `experiment_tables`.
    expected = flatten(plain({key: value for key, value in table.items() if key != "sweep"}))
    for _, experiment in experiment_tables(table):
        values = flatten(experiment)
        for key, _ in unswept:
            # The key itself, or all keys inside it if its value is a table, such as "env.kwargs".
            inside = [each for each in expected if f"{each}.".startswith(f"{key}.")]
            # Compare as texts, because NaN differs from itself.
            if any(repr(values.get(each)) != repr(expected[each]) for each in inside):
                raise InputError.plainly(key, f"{key} is given twice: as a setting, and in the sweep.")


def _remove_from_sweep(table: Table, key: str) -> None:
    """Remove a key from the sweep."""
    grid = table.get("sweep")
    if not isinstance(grid, dict):  # `combinations` refuses it
        return
    _remove(grid, key)
    for name, values in _swept_lists(grid).items():
        if swept_key(name, values) == key:  # strategy = ["ga", "umda"] sweeps over strategy.name
            _remove(grid, name)


def _remove(grid: Table, key: str) -> None:
    """Remove a dotted key from a sweep, which may have it as one text, "strategy.name", or as a key in a table."""
    grid.pop(key, None)
    section, _, inner_key = key.partition(".")
    if isinstance(grid.get(section), dict):
        _remove(grid[section], inner_key)


def swept_key(key: str, values: Sequence[Any]) -> str:
    """Return the key that these values of `key` set. For example, texts for "strategy" set "strategy.name"."""
    are_names = key in NAMED_SECTIONS and all(isinstance(value, str) for value in values)
    return f"{key}.{NAMED_SECTIONS[key]}" if are_names else key


def _swept_lists(grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of a sweep by dotted keys. Raises InputError for a key that cannot be swept over."""
    lists = flatten(grid)
    for key, values in lists.items():
        if not (isinstance(values, list) and values):
            raise InputError(f"sweep.{key}", "a list of values", values)
        if key.partition(".")[0] in ("seeds", "output", "compute", "sweep"):
            message = f"sweep.{key}: this cannot be swept over. (Several seeds are a list: seeds = [1, 2].)"
            raise InputError.plainly(f"sweep.{key}", message)
    return lists


def _directory_names(swept: list[dict[str, Any]]) -> list[str]:
    """Return a directory name for each experiment, made of its swept values: survivors=8,plasticity=0.1.

    For a value that is a table, the name has the values inside it. If two names would then be equal, all names also
    have the keys inside their tables. Raises InputError if two names are still equal.
    """
    for with_keys in (False, True):
        names = [_directory_name(values, with_keys) for values in swept]
        if len(set(names)) == len(names):
            return names
    expected = "combinations that differ in letters and digits, which name their directories"
    repeated = next(name for name in names if names.count(name) > 1)
    raise InputError("sweep", expected, f"two of the name {repeated}")


def _directory_name(values: Mapping[str, Any], with_keys: bool) -> str:
    """Return the directory name of one experiment. with_keys: Whether the text of a table has its keys, too."""
    # The last part of a dotted key is enough, unless two keys of the sweep have the same last part.
    last_parts = [key.rpartition(".")[2] for key in values]
    names = [part if last_parts.count(part) == 1 else key for part, key in zip(last_parts, values, strict=True)]
    # Keep letters, digits, "." and "+"; \w also matches "_".
    texts = [re.sub(r"[^\w.+]|_", "-", _value_text(value, with_keys)) for value in values.values()]
    name = ",".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))
    whole = name.encode(errors="replace")
    if len(whole) <= _MAX_NAME_BYTES:
        return name
    # The dash and the digits of the hash need 17 bytes. If the cut divides a character, its first bytes are dropped.
    return f"{whole[: _MAX_NAME_BYTES - 17].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:16]}"


def _value_text(value: Any, with_keys: bool) -> str:
    if isinstance(value, dict):
        value = [f"{key}-{_value_text(part, with_keys)}" if with_keys else part for key, part in value.items()]
    if isinstance(value, list):
        return "-".join(_value_text(part, with_keys) for part in value)
    return str(value)
