"""The display of a run on a terminal: a progress bar, and below it the last complete generation."""

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text


class Display(Progress):
    """The progress bar. Its tasks have the fields now, left, fitness and work."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars, and a line each for the fitness and the work of a generation."""
        yield self.make_tasks_table(self.tasks)
        yield from (Text(f"  {task.fields[name]}") for task in self.tasks for name in ("fitness", "work"))
        yield Text("")  # mpirun holds back a line until a newline ends it


def make_display() -> Display:
    """Return a display that is not shown yet."""
    return Display(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(separator=" of "),
        TextColumn("generations"),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(force_terminal=True),
        expand=True,
    )
