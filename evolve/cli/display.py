"""The display on a terminal: a progress bar, and below it the last complete generation of a run."""

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text


class Display(Progress):
    """The progress bar. Its tasks have the fields now and left; those of a run also fitness, work and rest."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars, and a line each for the fitness and the work of a generation."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield from (Text(f"  {task.fields[name]}") for name in ("fitness", "work") if name in task.fields)
            if task.fields.get("rest"):
                yield Text(f"  ETA of {task.fields['rest']}")
        yield Text("")  # mpirun holds back a line until a newline ends it


def make_display(unit: str = "generations") -> Display:
    """Return a display that is not shown yet. unit: what it counts."""
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
