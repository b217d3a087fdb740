"""The output by the library rich: tables, and a progress bar with the last complete generation below it."""

from collections.abc import Collection, Iterable, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_UNLIMITED = 10_000  # characters of a line that no terminal cuts


class Display(Progress):
    """The progress bar. Its tasks have the fields now and left; the tasks of a run also fitness, work and rest."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars, and a line each for the fitness and the work of a generation."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield from (Text(f"  {task.fields[name]}") for name in ("fitness", "work") if name in task.fields)
            if task.fields.get("rest"):
                yield Text(f"  ETA of {task.fields['rest']}")
        yield Text("")  # mpirun holds back a line until a newline ends it


def make_display(unit: str = "generations") -> Display:
    """Return a display that is not shown yet. unit: the name of the counted items."""
    return Display(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(separator=" of "),
        TextColumn(unit),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(force_terminal=True),
        expand=True,
    )


def table(
    rows: Sequence[Sequence[str]], width: int | None = None, left: Collection[int] = (0,), indent: str = ""
) -> str:
    """Return rows of cells as lines with aligned columns, without colours.

    Args:
        rows: The cells; a heading is the first row. A cell may have several lines.
        width: The characters of a line, into which cells are wrapped; None for no limit.
        left: The columns that are aligned on the left; numbers are aligned on the right.
        indent: The beginning of each line.
    """
    grid = Table.grid(padding=(0, 2, 0, 0))
    for number in range(len(rows[0])):
        grid.add_column(justify="left" if number in left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    lines = StringIO()
    Console(file=lines, width=max(1, width - len(indent)) if width else _UNLIMITED).print(grid)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines.getvalue().splitlines())
