"""The watchdog of an environment's code, which may hang.

If it hangs in Python, an alarm interrupts it with `EpisodeTimeout`, and only that episode fails. If it hangs in C,
Python cannot interrupt it, so a traceback to stderr shows where it hangs. A single process then ends; a worker is
abandoned by the coordinator.
"""

import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType

from evolve.errors import EpisodeTimeout, Interrupted

SOON = 1.0
"""Seconds that watched code may take to return after `interrupt_soon`."""
_HAS_ALARM = hasattr(signal, "setitimer")
_HAS_SUSPENSION = hasattr(signal, "SIGTSTP")


class Watchdog:
    """Raises EpisodeTimeout in code that runs for `limit` seconds without a call of `pat`.

    If the exception does not end that code, the watchdog prints a traceback after `patience(limit)` seconds. It works
    in the main thread only, and does nothing in other threads. Between the first `pat` and `disarm` it uses the
    process's SIGALRM and interval timer; `disarm` restores the handler and the rest of the timer. As a context manager
    it pats at the beginning and disarms at the end. While SIGTSTP suspends the process (Ctrl-Z, SLURM), no time counts.

    Args:
        limit: In seconds.
        fatal: Whether the process ends after the traceback, with exit code 1.
    """

    def __init__(self, limit: float, fatal: bool) -> None:
        self._limit = limit
        self._fatal = fatal
        self._grace = max(1.0, limit / 10)
        self._every = min(0.1, limit / 20)
        self._begun = -math.inf
        self._patted = -math.inf
        self._armed = -math.inf
        self._warned = False
        self._paused = False
        self._suspends = False
        self._hurries = False
        self._earlier_timer = (0.0, 0.0)

    def pat(self) -> None:
        """Reset the watchdog, because the watched code makes progress. It costs little, so it may be called often."""
        now = time.monotonic()
        if now - self._patted < self._every or threading.current_thread() is not threading.main_thread():
            return
        if self._patted == -math.inf:
            self._begin(now)
        elif _HAS_ALARM:
            signal.setitimer(signal.ITIMER_REAL, SOON if self._hurries else self._limit, self._grace)
            if now - self._armed > patience(self._limit):
                _explain(now - self._patted)
        self._patted = now
        self._warned = False
        if now - self._armed > 5 * self._every:
            self._arm(now)

    def disarm(self) -> None:
        """Watch nothing until the next call of `pat`."""
        if self._patted == -math.inf:
            return
        _WATCHING.remove(self)
        faulthandler.cancel_dump_traceback_later()
        if _HAS_ALARM:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._earlier_handler)
            if self._suspends:
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            left, interval = self._earlier_timer
            if left:
                passed = time.monotonic() - self._begun
                signal.setitimer(signal.ITIMER_REAL, max(left - passed, 1e-3), interval)
        self._patted = -math.inf
        self._armed = -math.inf

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Interrupt nothing meanwhile: the code that runs is the project's own, and may take long."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            if self._patted != -math.inf:
                self.pat()

    def hurry(self) -> None:
        """Raise Interrupted in the watched code unless it returns soon."""
        self._hurries = True
        if _HAS_ALARM:
            signal.setitimer(signal.ITIMER_REAL, SOON, self._grace)

    def __enter__(self) -> "Watchdog":
        self.pat()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.disarm()

    def _begin(self, now: float) -> None:
        self._begun = now
        self._hurries = False
        _WATCHING.append(self)
        if _HAS_ALARM:
            earlier = signal.signal(signal.SIGALRM, self._interrupt)
            self._earlier_handler = signal.SIG_DFL if earlier is None else earlier  # None: installed by C
            self._earlier_timer = signal.setitimer(signal.ITIMER_REAL, self._limit, self._grace)
        self._suspends = _HAS_SUSPENSION and signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL
        if self._suspends:
            signal.signal(signal.SIGTSTP, self._suspend)

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        """Stop this process until SIGCONT, then begin to count anew, or alarm and traceback would come at once."""
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)  # it would go on counting; it may have rung once already
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.setitimer(signal.ITIMER_REAL, self._limit, self._grace)
        self._warned = False
        self._arm(time.monotonic())

    def _arm(self, now: float) -> None:
        self._armed = now
        descriptor = _stderr()
        if descriptor is not None:
            faulthandler.dump_traceback_later(patience(self._limit), exit=self._fatal, file=descriptor)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt at the second alarm, because the first may come late to a process that was suspended."""
        if self._paused:
            self._arm(time.monotonic())
            return
        if self._hurries:
            raise Interrupted
        if self._warned:
            self._warned = False
            signal.setitimer(signal.ITIMER_REAL, self._limit, self._grace)  # the next environment has its own time
            self._arm(time.monotonic())
            raise EpisodeTimeout(f"no answer for {self._limit:g} s (env.max_episode_seconds)")
        self._warned = True


_WATCHING: list[Watchdog] = []
"""The watchdogs that are armed in this process, the innermost last."""


def interrupt_soon() -> None:
    """Let the code that is watched now go on for `SOON` seconds, then raise Interrupted in it."""
    if _WATCHING:
        _WATCHING[-1].hurry()


def _explain(seconds: float) -> None:
    """Explain the traceback that was printed, because this process goes on."""
    why = "suspended, or in native code: the traceback says where. It goes on"
    print(f"evolve: this process stood still for {seconds:.0f} s, {why}", file=sys.stderr, flush=True)


def patience(limit: float) -> float:
    """Return the seconds after which a silent process counts as hanging in C; limit: seconds an episode may take."""
    return 1.5 * limit + 5.0


def kill(pid: int) -> None:
    """Kill the process `pid` on this host if it is another rank of this job; else do nothing."""
    with suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def _stderr() -> int | None:
    """Return the file descriptor of stderr; None if stderr has none, as in some notebooks."""
    for stream in (sys.stderr, sys.__stderr__):
        with suppress(AttributeError, OSError, ValueError):
            return stream.fileno()  # type: ignore[union-attr]
    return None
