"""The bench's figures as text."""

import statistics
from collections.abc import Sequence
from typing import Any

from evolve.cli.display import table
from evolve.cli.progress import width
from evolve.numerics import backend
from evolve.training.experiment import Experiment

Row = dict[str, Any]


def header(experiment: Experiment) -> str:
    """Return what is measured, and by which kernel."""
    c = experiment.config
    kernel = backend(c.compute.backend)
    return (
        f"{c.env.id} ({c.env.engine}, {c.compute.slots} slots), {c.population} candidates × {c.episodes} episodes, "
        f"{c.network.name} with {experiment.network.num_weights} weights on the {kernel} kernel"
    )


def startup(row: Row) -> str:
    """Return the start-up times beside their budgets."""
    return (
        f"\nimport evolve.run: {row['import'] - row['python']:.2f} s beyond the interpreter's {row['python']:.2f} s "
        f"(budget {row['import_budget']:.1f} s)\n"
        f"evolve.run to its first environment step: {row['first_step']:.2f} s (budget {row['first_step_budget']:.1f} s)"
    )


def inference(rows: list[Row]) -> str:
    """Return nanoseconds per network step, a line per batch size."""
    names = [name for name in rows[0] if name != "slots"]
    lines = [(f"{row['slots']}", *(f"{row[name]:,.0f}" for name in names)) for row in rows]
    return f"\nnanoseconds per network step\n{_table(('slots', *names), *lines)}"


def engines(rows: list[Row]) -> str:
    """Return microseconds per step of each engine's bare environments, and ratios to the fastest."""
    fastest = rows[0]["microseconds"]
    lines = [
        (row["engine"], f"{row['microseconds']:.2f}", "" if row is rows[0] else f"{row['microseconds'] / fastest:.1f}")
        for row in rows
    ]
    title = "microseconds of CPU time per step of bare environments, resets included"
    return f"\n{title}\n{_table(('engine', 'time', 'ratio'), *lines)}"


def _table(*rows: Sequence[str]) -> str:
    return table(rows, width(), left=(), indent="  ")


_COST = ("\nratio", "rank 0\nCPU ms", "rank 0\nCPU", "ask+tell\nms", "moved\nMB",
         "idle\nleast", "idle\nmean", "idle\nmost")  # fmt: skip
"""The heading of `_cost`."""


def _cost(row: Row) -> tuple[str, ...]:
    idle = row["idle"]
    return (f"{row['ratio']:.3f}", f"{row['cpu_seconds'] * 1e3:,.0f}", f"{row['cpu_seconds'] / row['seconds']:.1%}",
            f"{row['serial_seconds'] * 1e3:,.0f}", f"{row['bytes'] / 1e6:.1f}",
            f"{min(idle):.1%}", f"{statistics.fmean(idle):.1%}", f"{max(idle):.1%}")  # fmt: skip


def _ranks(rows: list[Row]) -> str:
    return f"{rows[0]['ranks']} rank{'s' * (rows[0]['ranks'] > 1)}"


def _median(rows: list[Row]) -> str:
    return f"median ratio {statistics.median(row['ratio'] for row in rows):.3f}"


def rollouts(rows: list[Row]) -> str:
    """Return engine against bare environments, a line per pair."""
    workers = max(rows[0]["ranks"] - 1, 1)
    title = (
        f"\n{_ranks(rows)}: {rows[0]['steps']:,} environment steps by {workers} worker{'s' * (workers > 1)}, "
        f"and by {workers} bare process{'es' * (workers > 1)}"
    )
    lines = [(f"{row['bare_rate']:,.0f}", f"{row['rate']:,.0f}", *_cost(row)) for row in rows]
    return "\n".join([title, _table(("bare\nsteps/s", "engine\nsteps/s", *_COST), *lines), _median(rows)])


def schedule(rows: list[Row]) -> str:
    """Return the engine's time against the time of workers that never wait, a line per measurement."""
    title = f"\n{_ranks(rows)}, environments that only sleep"
    times = ("ideal_seconds", "list_seconds", "seconds")
    lines = [(*(f"{row[name]:.2f}" for name in times), *_cost(row)) for row in rows]
    note = "ratio: ideal (no worker ever waits) to real; free: a scheduler without cost still waits for the last ones"
    return "\n".join([title, _table(("ideal\ns", "free\ns", "real\ns", *_COST), *lines), _median(rows), note])
