"""Being asked to stop: signals and the time limit become a question the coordinator asks between two steps."""

import signal
import time
from types import FrameType

from evolve.cli.output import write_past_mpirun
from evolve.cli.supervision import is_supervised

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))


class StopFlag:
    """Remembers the first signal; the second one has its usual effect, so that nothing can be stuck behind us."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._caught: tuple[int, ...] = ()
        self.last_words = ""
        """What to say at once when a signal comes that also makes the launcher hold back whatever is said later."""
        self._deadline = float("inf")

    def install(self) -> None:
        """Catch SIGINT, SIGTERM and SIGUSR1 (SLURM's warning) in this process."""
        for number in _SIGNALS:
            signal.signal(number, self._remember)
        self._caught = _SIGNALS

    @property
    def signal(self) -> int | None:
        """The first signal, None for none. From the first time on that it is seen, all have their usual effect."""
        if self._first is not None:
            self._catch_no_more()
        return self._first

    def limit(self, seconds: float) -> None:
        """Ask to stop when that many seconds have passed from now."""
        self._deadline = time.monotonic() + seconds

    def reason(self) -> str | None:
        """Return why the run should stop, or None."""
        if self.signal is not None:
            if is_supervised() and self.signal == getattr(signal, "SIGUSR1", None):
                return "a signal"  # which one, the supervisor has said
            return signal.Signals(self.signal).name
        return "the time limit" if time.monotonic() > self._deadline else None

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        """Remember a signal. It has its usual effect from now on, also where native code hangs.

        The others' handlers stay for a while: Python complains where one that has come already has none now.
        """
        if self._first is not None:
            self._catch_no_more()
            signal.raise_signal(number)
        self._first = number
        _let_have_its_effect(number)
        if self.last_words and number in (signal.SIGINT, signal.SIGTERM):
            write_past_mpirun(f"{self.last_words}\n")

    def _catch_no_more(self) -> None:
        for number in self._caught:
            _let_have_its_effect(number)
        self._caught = ()


def _let_have_its_effect(number: int) -> None:
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
