"""Tables and progress bars in a terminal, drawn by the library rich."""

import atexit
import importlib
import time
from collections.abc import Collection, Iterable, Sequence
from io import StringIO
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

_UNLIMITED_WIDTH = 10_000  # characters of a line; rich needs a number
_GAP = 2  # characters between two columns
_REFRESHES_PER_SECOND = 10  # of a bar in a notebook; rich refreshes a bar on a terminal as often
_LEAST_DETAILED_WIDTH = 64  # characters; on a narrower terminal the bar shows neither the unit nor the elapsed time


class Display(Progress):
    """The progress bar.

    A task of rich is one bar, with fields. The bar itself shows the field `eta`. Lines below it show the other fields:

    - `now`: the current work.
    - `fitness`, `work`: in a run, texts about the last generation.
    - `eta_of_runs`: if there are several runs, the ETA of all.
    """

    def start(self) -> None:
        """Show the bar, and hide the cursor."""
        atexit.register(self.stop)  # if the process ends early, `stop` shows the cursor again
        super().start()

    def stop(self) -> None:
        """Stop the updates of the bar, and show the cursor."""
        atexit.unregister(self.stop)
        super().stop()

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars, and below them the lines about each task."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            for name in ("now", "fitness", "work"):
                if task.fields.get(name):
                    yield Text(f"  {task.fields[name]}")
            if task.fields.get("eta_of_runs"):
                yield Text(f"  ETA of {task.fields['eta_of_runs']}")
        yield Text("")  # mpirun does not show a line until a newline ends it


class NotebookDisplay(Display):
    """The progress bar in the output of a notebook's cell. Unlike the bar of rich, this one needs no widgets."""

    def start(self) -> None:
        """Show the bar."""
        # A notebook always has IPython, but this package does not depend on it. `display` returns a handle with which
        # `update` can replace the output.
        self._output = importlib.import_module("IPython.display").display(self, display_id=True)
        self._shown_at = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Change a task, and show the change, at most ten times per second."""
        super().update(task_id, **changes)
        # Each change is a message to the browser. Jupyter drops messages if there are too many per second.
        if time.monotonic() - self._shown_at > 1 / _REFRESHES_PER_SECOND:
            self._shown_at = time.monotonic()
            self._output.update(self)

    def stop(self) -> None:
        """Show the last state of the bar."""
        self._output.update(self)


def make_display(unit: str, stream: TextIO | None, on_terminal: bool) -> Display | None:
    """Return a display, which its method `start` shows; None if there is no notebook, and no terminal that can show it.

    Args:
        unit: The name of the counted items.
        stream: The stream of the terminal; by default stdout.
        on_terminal: Whether the stream is a terminal.
    """
    console = Console(file=stream, force_terminal=True if on_terminal else None)  # if None, rich decides
    # A terminal with TERM=dumb cannot move its cursor. Rich would show nothing there before the end.
    if console.is_dumb_terminal or not (on_terminal or console.is_jupyter):
        return None
    display_class = NotebookDisplay if console.is_jupyter else Display
    details = (TextColumn(unit), TimeElapsedColumn()) if console.width >= _LEAST_DETAILED_WIDTH else ()
    return display_class(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(separator=" of ", table_column=Column(no_wrap=True)),
        *details,
        TextColumn("{task.fields[eta]}"),
        console=console,
        expand=True,
    )


def table(
    rows: Sequence[Sequence[str]], width: int | None = None, left: Collection[int] = (0,), indent: str = ""
) -> str:
    """Return rows of cells as lines with aligned columns, without colours.

    Args:
        rows: The cells; the first row may be a heading. A cell may have several lines.
        width: The number of characters of a line. Cells are wrapped to fit. None means no limit.
        left: The numbers of the columns that are aligned on the left. All others are aligned on the right.
        indent: The beginning of each line.
    """
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    line_width = max(1, width - len(indent)) if width else _UNLIMITED_WIDTH
    for number, column_width in enumerate(_widths_of_columns(rows, line_width)):
        grid.add_column(justify="left" if number in left else "right", overflow="fold", width=column_width)
    for row in rows:
        grid.add_row(*map(Text, row))
    lines = StringIO()
    # In a notebook, rich would display the table instead of writing it to the file.
    Console(file=lines, width=line_width, force_terminal=False, force_jupyter=False).print(grid)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines.getvalue().splitlines())


def _widths_of_columns(rows: Sequence[Sequence[str]], line_width: int) -> list[int | None]:
    """Return the width of each column so that no word is broken.

    If a line has no space for the longest words of all columns, return None for each column: rich then chooses.
    """
    # Begin with the longest word of each column. A column as wide as its longest line wraps nothing.
    widths, longest_lines = [], []
    for column in zip(*rows, strict=True):
        text = "\n".join(column)
        widths.append(max(map(cell_len, text.split()), default=0))
        longest_lines.append(max(map(cell_len, text.splitlines()), default=0))
    spare = line_width - sum(widths) - _GAP * (len(widths) - 1)
    if spare < 0:
        return [None] * len(widths)
    # Give each spare character to the narrowest of the columns that still wrap a line.
    while spare and widths != longest_lines:
        wrapping = [(width, n) for n, width in enumerate(widths) if width < longest_lines[n]]
        _, narrowest = min(wrapping)
        widths[narrowest] += 1
        spare -= 1
    return [*widths]
