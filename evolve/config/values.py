"""Types of single settings that need more than a range: durations, seeds, keyword arguments, rounds of a race."""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from evolve.config.options import Table

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


def seconds(duration: str) -> float:
    """Return the seconds of "23h50m", "90s", "1d" or "45". Raises ValueError otherwise."""
    match = _DURATION.fullmatch(duration.strip())
    if match is None or not any(match.groups()):
        raise ValueError("a duration such as 23h50m, 90s or 2d")
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))


def _duration(value: str) -> str:
    seconds(value)
    return value


def _distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) != len(values):
        raise ValueError("every seed once")
    return values


def _rising(values: tuple[int, ...]) -> tuple[int, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("rising numbers of episodes")
    return values


def writable(value: Any) -> Any:
    """Return a value that TOML can say and this package can repeat. Raises ValueError otherwise."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        writable(part)
    finite = not isinstance(value, float) or math.isfinite(value)
    if not (isinstance(value, str | int | float | list | dict) and finite):
        raise ValueError("text, finite numbers, booleans, lists and tables")
    return value


Duration = Annotated[str, AfterValidator(_duration)]
"""See `seconds`."""

Kwargs = Annotated[Table, AfterValidator(writable)]
"""Keyword arguments of an environment or a wrapper."""

Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
    Field(min_length=1, strict=False),
    AfterValidator(_distinct),
]
"""One run each."""

Rounds = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False), AfterValidator(_rising)]
"""Numbers of episodes."""
