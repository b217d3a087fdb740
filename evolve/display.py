"""The display of a run on a terminal: a bar, and below it what the last generation came to."""

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text


class Display(Progress):
    """The bar; its tasks have the fields now, left, fitness and work."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars, and a line each for the fitness and the work of a generation."""
        yield self.make_tasks_table(self.tasks)
        yield from (Text(f"  {task.fields[name]}") for task in self.tasks for name in ("fitness", "work"))
        yield Text("")  # mpirun keeps back what no newline ends


def display() -> Display:
    """Return one that is not shown yet."""
    return Display(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(separator=" of "),
        TextColumn("told"),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(force_terminal=True),
        expand=True,
    )
