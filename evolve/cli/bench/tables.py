"""The bench's figures as text."""

import statistics
from typing import Any

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
    lines = ["", "nanoseconds per network step", f"{'slots':>7}" + "".join(f"{name:>12}" for name in names)]
    lines += [f"{row['slots']:>7}" + "".join(f"{row[name]:>12,.0f}" for name in names) for row in rows]
    return "\n".join(lines)


def engines(rows: list[Row]) -> str:
    """Return microseconds per step of each engine's bare environments, and ratios to the fastest."""
    fastest = rows[0]["microseconds"]
    lines = ["", "microseconds of CPU time per step of bare environments, resets included"]
    for row in rows:
        ratio = "" if row is rows[0] else f"{row['microseconds'] / fastest:>8.1f} × {rows[0]['engine']}"
        lines.append(f"{row['engine']:>12}{row['microseconds']:>10.2f}{ratio}")
    return "\n".join(lines)


def _cost(row: Row) -> str:
    idle = row["idle"]
    return (f"{row['ratio']:>8.3f}{row['cpu_seconds'] * 1e3:>9,.0f}{row['cpu_seconds'] / row['seconds']:>8.1%}"
            f"{row['serial_seconds'] * 1e3:>11,.0f}{row['bytes'] / 1e6:>8.1f}"
            f"{min(idle):>9.1%}{statistics.fmean(idle):>7.1%}{max(idle):>7.1%}")  # fmt: skip


_COST = f"{'coordinator CPU':>25}{'ask+tell':>11}{'moved':>8}{'idle share':>16}\n"
_UNITS = f"{'ratio':>8}{'ms':>9}{'':>8}{'ms':>11}{'MB':>8}{'least':>9}{'mean':>7}{'most':>7}"


def _ranks(rows: list[Row]) -> str:
    return f"{rows[0]['ranks']} rank{'s' * (rows[0]['ranks'] > 1)}"


def _median(rows: list[Row]) -> str:
    return f"median ratio {statistics.median(row['ratio'] for row in rows):.3f}"


def rollouts(rows: list[Row]) -> str:
    """Return engine against bare environments, a line per pair."""
    workers = max(rows[0]["ranks"] - 1, 1)
    lines = [
        f"\n{_ranks(rows)}: {rows[0]['steps']:,} environment steps by {workers} worker{'s' * (workers > 1)}, "
        f"and by {workers} bare process{'es' * (workers > 1)}",
        f"{'bare':>12}{'engine':>12}{_COST}{'steps/s':>12}{'steps/s':>12}{_UNITS}",
    ]
    lines += [f"{row['bare_rate']:>12,.0f}{row['rate']:>12,.0f}{_cost(row)}" for row in rows]
    return "\n".join([*lines, _median(rows)])


def schedule(rows: list[Row]) -> str:
    """Return the engine's time against that of workers that never wait, a line per measurement."""
    lines = [f"\n{_ranks(rows)}, environments that only sleep",
             f"{'ideal':>9}{'free':>8}{'real':>8}{_COST}{'s':>9}{'s':>8}{'s':>8}{_UNITS}"]  # fmt: skip
    lines += [
        f"{row['ideal_seconds']:>9.2f}{row['list_seconds']:>8.2f}{row['seconds']:>8.2f}{_cost(row)}" for row in rows
    ]
    note = "ratio: ideal (nobody ever waits) to real; free: a scheduler without cost still waits for the last ones"
    return "\n".join([*lines, _median(rows), note])
