"""python docs/generate.py: write what follows from the code into the pages, between a marker and its end.

`<!-- columns -->` … `<!-- end of columns -->` is such a place. A test compares what is there with what this writes.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from evolve.store.columns import LETTERS
from evolve.store.schema import EVERY_COLUMN

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


PLACES: dict[str, tuple[str, Callable[[], str]]] = {"columns": ("run-file.md", columns)}
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
