"""`benchmarks/scale.py` from beginning to end: plan a grid, measure its cells, fit how costs grow, draw the figure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from device_parts.steps import Budget, cores

from evolve.analysis import figures
from evolve.cluster.hosts import mpirun_words
from evolve.errors import InputError, RunError, pluralize
from scale_parts import tables
from scale_parts.cell import measured
from scale_parts.figure import draw_growth
from scale_parts.grid import (
    CANDIDATES,
    LEAST_CANDIDATES,
    LEAST_WEIGHTS,
    WEIGHTS,
    Cell,
    default_ranks,
    plan,
    slowness,
)
from scale_parts.growth import Growth, growth, sentence

SCALE_BUDGET = 300.0
"""Seconds."""
_OVERRUN = 3.0  # times the budget: cells that have not begun by then are left out
_COSTS = (
    ("bytes moved in a later generation", "bytes", tables.size),
    ("rank 0's processor time", "cpu_seconds", tables.duration),
    ("rank 0's memory", "memory", tables.size),
)

Row = dict[str, Any]


def cells(weights: Sequence[int] | None, candidates: Sequence[int] | None, ranks: Sequence[int] | None) -> list[Cell]:
    """Return the cells of a grid, by ranks, weights and candidates. Raises InputError for invalid sizes."""
    sizes = sorted({*(weights or WEIGHTS)}), sorted({*(candidates or CANDIDATES)})
    for option, least, given in zip(
        ("--weights", "--candidates"), (LEAST_WEIGHTS, LEAST_CANDIDATES), sizes, strict=True
    ):
        if given[0] < least:
            raise InputError(option, f"at least {least}", given[0])
    sizes_of_jobs = sorted({*(ranks or default_ranks(cores()))})
    if sizes_of_jobs[-1] > 1:
        mpirun_words(sizes_of_jobs[-1])  # raises if mpirun is missing
    return [Cell(W, P, R) for R in sizes_of_jobs for W in sizes[0] for P in sizes[1]]


def measure_scale(
    grid: Sequence[Cell], budget: float, show: Callable[[str], None], check: Callable[[], None]
) -> dict[str, Any]:
    """Return all measurements, made in about `budget` seconds.

    Args:
        grid: The cells.
        budget: In seconds.
        show: Called with each line.
        check: Called between cells; may raise.
    """
    why, seconds = plan(grid, budget, slowness(), cores())
    show(tables.heading(why, seconds))
    rows: list[Row] = []
    time = Budget(_OVERRUN * budget)
    for ranks in dict.fromkeys(cell.ranks for cell in grid if not why[cell]):
        show(tables.columns(ranks))
        for cell in (cell for cell in grid if cell.ranks == ranks and not why[cell]):
            check()
            if time.left < 0:
                why[cell] = "it would take too long"
                continue
            try:
                rows.append(measured(cell))
            except RunError as error:
                check()  # a stop of this process stops the job, too
                why[cell] = f"it failed: {str(error).splitlines()[-1]}"
                continue
            show(tables.line(rows[-1], _alone(rows, rows[-1])))
    if not rows and any(reason.startswith("it failed") for reason in why.values()):
        raise RunError(tables.reasons(why))
    found = {"cores": cores(), "expected_seconds": seconds, "rows": rows, "fits": _fits(rows)}
    not_measured = [vars(cell) | {"why": why[cell]} for cell in grid if why[cell]]
    if rows:
        show("\n".join([tables.notes(), tables.fits(_sentences(rows))]))
    show(tables.reasons({cell: why[cell] for cell in grid}))
    return found | {"not_measured": not_measured}


def _alone(rows: Sequence[Row], row: Row) -> Row | None:
    """Return the cell of the same sizes in one process, if it was measured."""
    same = [r for r in rows if r["ranks"] == 1 and all(r[size] == row[size] for size in ("weights", "candidates"))]
    return same[0] if same else None


def _most_ranks(rows: Sequence[Row]) -> list[Row]:
    """Return the cells with the most ranks, to which growth is fitted."""
    most = max((row["ranks"] for row in rows), default=1)
    return [row for row in rows if row["ranks"] == most]


def _growth(rows: Sequence[Row], column: str) -> Growth | None:
    known = [row for row in rows if row[column]]
    return growth(*([row[name] for row in known] for name in ("candidates", "weights", column)))


def _fits(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the coefficients by ranks, cost and model."""
    fits: dict[str, Any] = {}
    for ranks in dict.fromkeys(row["ranks"] for row in rows):
        of_ranks = [row for row in rows if row["ranks"] == ranks]
        found = {column: _growth(of_ranks, column) for _, column, _ in _COSTS}
        fits[str(ranks)] = {
            column: {"P + W": vars(both.sum), "P × W": vars(both.product)} for column, both in found.items() if both
        }
    return fits


def _sentences(rows: Sequence[Row]) -> list[str]:
    fitted = _most_ranks(rows)
    ranks = fitted[0]["ranks"]
    return [
        sentence(f"{what}, {pluralize(ranks, 'rank')}", _growth(fitted, column), unit)
        for what, column, unit in _COSTS
        if ranks > 1 or column != "bytes"
    ]


def draw_scale(found: dict[str, Any], path: Path) -> None:
    """Draw the result of `measure_scale` for the most ranks. Raises InputError if nothing was measured."""
    rows = _most_ranks(found["rows"])
    if not rows:
        raise InputError("--figure", "at least one cell that fits", "none", "Allow more with --budget.")
    figures.save(draw_growth(rows), path)
