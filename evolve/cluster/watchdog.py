"""Watching over code that is not ours: what an environment does may never end.

Where it hangs in Python, an alarm interrupts it with `EpisodeTimeout`, and only that episode is lost. Where it hangs in
C, Python cannot be interrupted: then a traceback of where that is goes to stderr; a world of one ends, and a worker is
given up by the coordinator.
"""

import faulthandler
import math
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType

from evolve.errors import EpisodeTimeout

_HAS_ALARM = hasattr(signal, "setitimer")


class Watchdog:
    """Interrupts what has not patted it for `limit` seconds; after `patience(limit)`, tells where Python stands.

    fatal: whether the process then ends, with exit code 1. Used in the main thread only; as a context manager it
    sleeps at the end.
    """

    def __init__(self, limit: float, fatal: bool) -> None:
        self._limit, self._fatal = limit, fatal
        self._grace = max(1.0, limit / 10)
        self._every = min(0.1, limit / 20)
        self._patted = self._armed = -math.inf
        self._warned = False

    def pat(self) -> None:
        """Say that all is well; cheap enough to be said often."""
        now = time.monotonic()
        if now - self._patted < self._every or threading.current_thread() is not threading.main_thread():
            return
        if _HAS_ALARM:
            if self._patted == -math.inf:
                signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, self._limit, self._grace)
        self._patted, self._warned = now, False
        if now - self._armed > 5 * self._every:
            self._arm(now)

    def rest(self) -> None:
        """Watch nothing until the next pat."""
        if self._patted == -math.inf:
            return
        if _HAS_ALARM:
            signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        self._patted = self._armed = -math.inf

    def __enter__(self) -> "Watchdog":
        self.pat()
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None, at: TracebackType | None) -> None:
        self.rest()

    def _arm(self, now: float) -> None:
        self._armed = now
        faulthandler.dump_traceback_later(patience(self._limit), exit=self._fatal)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt at the second alarm: the first may come late, to a process that was suspended."""
        if self._warned:
            self._warned = False
            signal.setitimer(signal.ITIMER_REAL, self._limit, self._grace)  # the next environment has its own time
            self._arm(time.monotonic())
            raise EpisodeTimeout(f"no answer for {self._limit:g} s (env.max_episode_seconds)")
        self._warned = True


def patience(limit: float) -> float:
    """Return how long a process may be silent before it is thought to hang in C, for an episode `limit` of seconds."""
    return 1.5 * limit + 5.0


def kill(pid: int) -> None:
    """Kill another rank of this job on this host, if that is what `pid` is."""
    with suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
