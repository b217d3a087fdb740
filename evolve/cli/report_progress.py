"""What a report shows while episodes are played for it: a display on a terminal, elsewhere a line for each run."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.cli.progress import on_terminal
from evolve.errors import sanitize
from evolve.numerics.streams import Purpose

if TYPE_CHECKING:
    from evolve.cli.display import Display

_MIN_REFRESH = 0.2  # seconds


class ReportProgress:
    """Shows how far a report is; a context manager. runs: how many are summed up."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._done = -1
        self._name = ""
        self._refreshed_at = 0.0
        self._display = _make_display() if on_terminal() else None

    def __enter__(self) -> "ReportProgress":
        if self._display is not None:
            self._display.start()
            self._bar = self._display.add_task("report", total=self._runs, now="", left="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._display is not None:
            if not any(error):
                self._display.update(self._bar, completed=self._runs, now="")
            self._display.stop()

    def start(self, path: Path) -> None:
        """Show that the next run is looked at."""
        self._done += 1
        self._name = sanitize(f"{path.resolve().parent.name}/{path.name}")
        if self._display is not None:
            self._display.update(self._bar, completed=self._done, now=self._name)
        elif self._runs > 1:
            print(f"evolve.report: run {self._done + 1} of {self._runs}: {self._name}", file=sys.stderr, flush=True)

    def update(self, purpose: Purpose, done: int, episodes: int, idle: int) -> None:
        """Show which episodes of the run are played again, and how many are done; may be called often."""
        if self._display is None or (time.monotonic() - self._refreshed_at < _MIN_REFRESH and done < episodes):
            return
        self._refreshed_at = time.monotonic()
        what = "held-out episodes" if purpose is Purpose.HELD_OUT else "champions' episodes"
        now = f"{self._name}: {what} {done / episodes:.0%}"
        self._display.update(self._bar, completed=self._done + 0.5 * done / episodes, now=now)


def _make_display() -> "Display":
    """Return a display; its library takes a tenth of a second to import."""
    from evolve.cli.display import make_display  # noqa: PLC0415

    return make_display("runs")
