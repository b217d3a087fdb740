"""`python docs/generate.py`: write what follows from the code into the pages, between a marker and its end.

`<!-- columns -->` … `<!-- end of columns -->` is such a place. A test compares what is there with what this writes.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from evolve.cli import COMMANDS
from evolve.cli.parser import parser_of
from evolve.config import Config, Options, Registry, StartFromOptions, descriptions
from evolve.environments import TASKS
from evolve.networks import NETWORKS
from evolve.store.schema import EVERY_COLUMN, LETTERS
from evolve.strategies import STRATEGIES

PAGES = Path(__file__).parent


def table(*rows: Sequence[str]) -> str:
    """Return a Markdown table; the first row is its heading."""
    heading, *others = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join([heading, "|" + "---|" * len(rows[0]), *others])


def columns() -> str:
    """Return the columns of the run file, one table for each of its groups."""
    used = {letter for column in EVERY_COLUMN for letter in column.symbols.split()}
    letters = ", ".join(f"{letter} {what}" for letter, what in LETTERS.items() if letter in used)
    groups = dict.fromkeys(column.path.partition("/")[0] for column in EVERY_COLUMN)
    return "\n\n".join([f"Letters: {letters}.", *(_columns_of(group) for group in groups)])


def _columns_of(group: str) -> str:
    rows = (
        (f"`{column.path}`", column.symbols, _type(column.dtype), column.unit, column.meaning)
        for column in EVERY_COLUMN
        if column.path.startswith(f"{group}/")
    )
    return f"## `{group}`\n\n{table(('dataset', 'shape', 'type', 'unit', 'meaning'), *rows)}"


def _type(dtype: DTypeLike) -> str:
    found: np.dtype[Any] = np.dtype(dtype)
    return f"S{found.itemsize}" if found.kind == "S" else found.name


def settings() -> str:
    """Return the settings of an experiment: of its top level, and of each section."""
    names = ("env", "racing", "early_stop", "compute", "output")
    sections = {"start_from": StartFromOptions} | {name: type(getattr(Config(), name)) for name in names}
    parts = [f"## Top level\n\n{_settings_of(Config)}"]
    for name, model in sections.items():
        parts.append(f"## `[{name}]`\n\n{_purpose(model)}\n\n{_settings_of(model)}")
    return "\n\n".join(parts)


def tasks() -> str:
    """Return the settings of each exact task that has any."""
    models = {name: task.options_class for name, task in TASKS.items() if task.options_class.model_fields}
    return "\n\n".join(f"### `{name}`\n\n{_settings_of(model)}" for name, model in models.items())


def kinds(registry: Registry) -> str:
    """Return the settings of each kind of network or strategy."""
    models = {name: registry.options_class({"name": name}) for name in registry}
    return "\n\n".join(f"### `{name}`\n\n{_settings_of(model)}" for name, model in models.items())


def _purpose(model: type[Options]) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _settings_of(model: type[Options]) -> str:
    rows = (
        (f"`{setting.name}`", f"`{setting.default}`" if setting.default else "not set", setting.limits, setting.meaning)
        for setting in descriptions(model)
    )
    return table(("setting", "default", "values", "meaning"), *rows)


def options() -> str:
    """Return the arguments of every command."""
    return "\n\n".join(_options_of(command, what) for command, what in COMMANDS.items())


def _options_of(command: str, what: str) -> str:
    rows = [
        (_spelled(action), f"`{action.dest}`" if _is_setting(command, action.dest) else "", action.help or "")
        for action in parser_of(command)._actions
        if action.help != argparse.SUPPRESS and not {"-h", "--version"} & {*action.option_strings}
    ]
    heading = ("argument", "setting", "meaning")
    if not rows:
        return f"## evolve {command}\n\n{what}\n\nThe command has no arguments."
    if not any(setting for _, setting, _ in rows):
        return f"## evolve {command}\n\n{what}\n\n" + table(heading[::2], *(row[::2] for row in rows))
    return f"## evolve {command}\n\n{what}\n\n" + table(heading, *rows)


def _is_setting(command: str, dest: str) -> bool:
    return command in ("run", "bench") and ("." in dest or dest in Config.model_fields)


def _spelled(action: argparse.Action) -> str:
    """Return how an argument is written: `-p`, `--population` P."""
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    several = "…" if action.nargs in ("+", "*") else ""
    choices = " or ".join(f"`{choice}`" for choice in action.choices or ())
    value = "" if action.nargs == 0 else f"{choices or metavar} {several}"
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    return f"{names} {value}".strip() if names else f"`{metavar}` {several}".strip()


PLACES: dict[str, tuple[str, Callable[[], str]]] = {
    "columns": ("run-file.md", columns),
    "settings": ("settings.md", settings),
    "tasks": ("settings.md", tasks),
    "networks": ("settings.md", lambda: kinds(NETWORKS)),
    "strategies": ("settings.md", lambda: kinds(STRATEGIES)),
    "options": ("options.md", options),
}
"""By marker: the page, and what is written into it."""


def filled(text: str, marker: str, content: str) -> str:
    """Return a page with the content of a marked place. Raises ValueError where it has no such place."""
    begin = f"<!-- {marker} -->\n"
    end = f"<!-- end of {marker} -->"
    found, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n{content}\n\n{end}", text, flags=re.S
    )
    if count != 1:
        raise ValueError(f"expected one place {begin.strip()}, got {count}")
    return found


def pages() -> Iterable[tuple[Path, str]]:
    """Yield each page that has such places, and what it has to be."""
    for name in dict.fromkeys(page for page, _ in PLACES.values()):
        text = (PAGES / name).read_text()
        for marker, (page, content) in PLACES.items():
            if page == name:
                text = filled(text, marker, content())
        yield PAGES / name, text


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text)
