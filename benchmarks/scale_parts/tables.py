"""The figures of `benchmarks/scale.py` as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from evolve.errors import pluralize
from scale_parts.grid import Cell

Row = Mapping[str, Any]

_COLUMNS = (  # heading, unit, width
    ("weights", "W", 11),
    ("candidates", "P", 12),
    ("generation", "s", 12),
    ("ask+tell", "s", 10),
    ("rank 0 CPU", "s", 12),
    ("moved", "MB", 10),
    ("per worker", "centres", 12),
    ("rank 0 peak", "MB", 13),
    ("playing", "", 9),
    ("efficiency", "", 12),
)
_CENTRE = 8  # bytes per weight


def heading(why: Mapping[Cell, str], seconds: float) -> str:
    """Return the number of cells to measure, and the estimated time."""
    count = sum(not reason for reason in why.values())
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return (
        f"generations of openai-es, an mlp with two hidden layers, one step of Pendulum-v1 per candidate\n"
        f"{count} of {pluralize(len(why), 'cell')}, about {took}"
    )


def columns(ranks: int) -> str:
    """Return the heading of the cells with `ranks` ranks."""
    who = f"rank 0 and {pluralize(ranks - 1, 'worker')}" if ranks > 1 else "one process"
    names = "".join(f"{name:>{width}}" for name, _, width in _COLUMNS)
    units = "".join(f"{unit:>{width}}" for _, unit, width in _COLUMNS)
    return f"\n{pluralize(ranks, 'rank')}: {who}\n{names}\n{units}"


def line(row: Row, alone: Row | None) -> str:
    """Return the line of one cell; `alone` is the cell of the same weights and candidates in one process."""
    there = row["ranks"] > 1
    values = (
        f"{row['weights']:,}",
        f"{row['candidates']:,}",
        _number(row["seconds"]),
        _number(row["serial_seconds"]),
        _number(row["cpu_seconds"]),
        _number(row["bytes"] / 1e6) if there else "-",
        _number(centres(row, "bytes")) if there else "-",
        "-" if row["memory"] is None else f"{row['memory'] / 1e6:,.0f}",
        f"{row['busy']:.0%}",
        "-" if alone is None else f"{efficiency(row, alone):.0%}",
    )
    return "".join(f"{value:>{width}}" for value, (_, _, width) in zip(values, _COLUMNS, strict=True))


def notes() -> str:
    """Return the meaning of the columns."""
    return (
        "\nask+tell: what is not episodes, with the wait for sums that workers add up; "
        "per worker: what moved, a centre is 8 W bytes\n"
        "rank 0 peak: memory beyond its imports; playing: the workers' share of the time in episodes; "
        "efficiency: candidates per second and worker, against one process"
    )


def reasons(why: Mapping[Cell, str]) -> str:
    """Return the reasons for missing cells, each reason once, with its cells."""
    said: dict[str, list[str]] = {}
    for cell, reason in why.items():
        if reason:
            kind, _, more = reason.partition(": ")
            name = f"{cell.weights:,} × {cell.candidates:,} on {pluralize(cell.ranks, 'rank')}"
            said.setdefault(kind, []).append(f"{name} ({more})" if more else name)
    return "\n".join(f"not measured, {kind} (W × P): {'; '.join(names)}" for kind, names in said.items())


def centres(row: Row, column: str) -> float:
    """Return the bytes that a generation has moved, for each worker, in centres of 8 W bytes."""
    return float(row[column] / ((row["ranks"] - 1) * _CENTRE * row["weights"]))


def efficiency(row: Row, alone: Row) -> float:
    """Return the rate of each worker as a share of the rate of one process."""
    return float(alone["seconds"] / (row["seconds"] * max(1, row["ranks"] - 1)))


def size(number: float) -> str:
    """Return a number of bytes, "1.5 MB"."""
    unit, factor = next((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 0.0)) if number >= 0.9995 * f)
    return f"{number / (factor or 1):,.3g} {unit}"


def duration(seconds: float) -> str:
    """Return a duration, "1.5 ms"."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 0.0))
    unit, factor = next((u, f) for u, f in units if seconds >= 0.9995 * f)
    return f"{seconds / (factor or 1e-9):,.3g} {unit}"


def _number(value: float) -> str:
    """Return a number with about three digits."""
    digits = next((n for n, least in ((0, 100), (1, 10), (2, 1)) if value >= least), 3)
    return f"{value:,.{digits}f}"


def fits(sentences: Sequence[str]) -> str:
    """Return the sentences about the growth of costs."""
    return "\n".join(["", *sentences])
