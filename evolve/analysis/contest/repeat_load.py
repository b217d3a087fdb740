"""How busy this machine is, with us and with others: load averages, and what the kernel counts in /proc/stat."""

import os
import time
from pathlib import Path

_IDLE = (3, 4)  # idle, and waiting for a disk
_STOLEN = 7
_COUNTED = 8  # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already


def load_averages() -> tuple[float, ...]:
    """Return the load averages over 1, 5 and 15 minutes; none where the system does not say."""
    try:
        return tuple(round(load, 2) for load in os.getloadavg())
    except OSError:
        return ()


class LoadMeter:
    """Counts from its making on how many cores of this machine are busy, and how many are stolen."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._before = _ticks()

    def cores(self) -> tuple[float, float] | tuple[None, None]:
        """Return how many cores were busy in the mean, and how many others had taken; None where nobody says."""
        after = _ticks()
        seconds = time.monotonic() - self._begin
        if self._before is None or after is None or seconds <= 0:
            return None, None
        spent = [(b - a) / os.sysconf("SC_CLK_TCK") / seconds for a, b in zip(self._before, after, strict=True)]
        stolen = spent[_STOLEN]
        busy = sum(share for n, share in enumerate(spent) if n not in (*_IDLE, _STOLEN))
        return round(busy, 2), round(stolen, 2)


def _ticks() -> list[int] | None:
    """Return what all cores together have spent with each kind of work."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
        counted = [int(number) for number in first.split()[1 : 1 + _COUNTED]]
    except (OSError, ValueError):
        return None
    return counted if len(counted) == _COUNTED else None
