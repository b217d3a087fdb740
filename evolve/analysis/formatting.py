"""Values as short texts for people, without control characters."""

import math
from collections.abc import Sequence
from pathlib import Path

from evolve.errors import sanitize

_LONGEST = 2000  # characters of a value
_LARGEST = 1e15  # larger numbers are rounded


def number(value: float) -> str:
    """Return a return or a fitness with two decimals; "none" for NaN."""
    if math.isnan(value):
        return "none"
    return f"{value:,.2f}" if abs(value) < _LARGEST else f"{value:.4g}"


def between(interval: tuple[float, float]) -> str:
    """Return an interval in words: "1.00 to 2.00"."""
    return f"{number(interval[0])} to {number(interval[1])}"


def duration(seconds: float) -> str:
    """Return a time in its two largest units."""
    if not 0 <= seconds < 1e10:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02} min"


def words(value: object, separator: str = ", ") -> str:
    """Return a value of a configuration or a manifest; the parts of a list are joined by `separator`."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple) and value and not any(isinstance(part, list | dict) for part in value):
        return sanitize(separator.join(map(sanitize, value)), _LONGEST)
    return sanitize(value, _LONGEST)


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return names that distinguish files: their paths without the directories that all of them share."""
    parts = [path.parts for path in paths]
    shared = 0
    while all(len(p) > shared + 1 and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return [sanitize("/".join(p[shared:])) for p in parts]
