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

_UNLIMITED = 10_000  # characters of a line; rich needs a number
_GAP = 2  # characters between two columns
_REFRESHES = 10  # of a notebook's bar per second, as often as rich refreshes a bar on a terminal
_WIDE = 64  # characters of a terminal; a narrower one shows neither the unit nor the elapsed time


class Display(Progress):
    """The progress bar.

    Every task has the field `eta`, which the bar shows. Lines below the bar show the other fields:

    - `now`: the current work.
    - `fitness`, `work`: in a run, texts about the last generation.
    - `eta_of_runs`: if there are several runs, the ETA of all.
    """

    def start(self) -> None:
        """Show the bar, and hide the cursor; the end of the process shows it again."""
        atexit.register(self.stop)
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
        yield Text("")  # mpirun holds back a line until a newline ends it


class NotebookDisplay(Display):
    """The progress bar in the output of a notebook's cell. Unlike the bar of rich, this one needs no widgets."""

    def start(self) -> None:
        """Show the bar."""
        # Only a notebook has IPython. By the handle from IPython, `update` replaces the output of the cell.
        self._cell = importlib.import_module("IPython.display").display(self, display_id=True)
        self._shown_at = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Change a task, and show the change, at most ten times per second."""
        super().update(task_id, **changes)
        # Each change is a message to the browser, and Jupyter drops messages beyond a rate.
        if time.monotonic() - self._shown_at > 1 / _REFRESHES:
            self._shown_at = time.monotonic()
            self._cell.update(self)

    def stop(self) -> None:
        """Show the last state of the bar."""
        self._cell.update(self)


def make_display(unit: str, stream: TextIO | None, on_terminal: bool) -> Display | None:
    """Return a display that is not shown yet; None without a notebook or a terminal that can show it.

    Args:
        unit: The name of the counted items.
        stream: The stream of the terminal; by default stdout.
        on_terminal: Whether the stream is a terminal.
    """
    console = Console(file=stream, force_terminal=on_terminal or None)  # None: rich finds out by itself
    # A dumb terminal cannot move its cursor. Rich would show nothing there before the end.
    if console.is_dumb_terminal or not (on_terminal or console.is_jupyter):
        return None
    kind = NotebookDisplay if console.is_jupyter else Display
    details = (TextColumn(unit), TimeElapsedColumn()) if console.width >= _WIDE else ()
    return kind(
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
        left: The columns that are aligned on the left. All others are aligned on the right.
        indent: The beginning of each line.
    """
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    columns = max(1, width - len(indent)) if width else _UNLIMITED
    for number, column_width in enumerate(_widths_of_columns(rows, columns)):
        grid.add_column(justify="left" if number in left else "right", overflow="fold", width=column_width)
    for row in rows:
        grid.add_row(*map(Text, row))
    lines = StringIO()
    # In a notebook, rich would display the table instead of writing it to the file.
    Console(file=lines, width=columns, force_terminal=False, force_jupyter=False).print(grid)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines.getvalue().splitlines())


def _widths_of_columns(rows: Sequence[Sequence[str]], width: int) -> list[int | None]:
    """Return the width of each column so that no word is broken; None for all columns if the lines are too short."""
    widths, widest = [], []  # the longest word and the longest line of each column
    for column in zip(*rows, strict=True):
        words = [word for cell in column for word in cell.split()]
        lines = [line for cell in column for line in cell.splitlines()]
        widths.append(max(map(cell_len, words), default=0))
        widest.append(max(map(cell_len, lines), default=0))
    spare = width - sum(widths) - _GAP * (len(widths) - 1)
    if spare < 0:
        return [None] * len(widths)
    # Give each spare character to the narrowest of the columns that still wrap a line.
    while spare and widths != widest:
        wrapped = [n for n in range(len(widths)) if widths[n] < widest[n]]
        widths[min(wrapped, key=widths.__getitem__)] += 1
        spare -= 1
    return [*widths]
