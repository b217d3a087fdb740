"""The figures of `benchmarks/devices.py` as text."""

import math
from collections.abc import Sequence
from typing import Any

from device_parts.steps import break_even, layer_sizes

Row = dict[str, Any]

_NAMES = {
    "numpy": "array reference, one core",
    "native": "native, one core",
    "gpu": "GPU, kernel alone",
    "gpu_with_copies": "GPU, with copies",
}
_MISSING = "not measured"
_FIRST, _WIDE = 26, 11  # characters of columns


def heading(cores: int, device: str) -> str:
    """Return the heading of all tables: unit and machine."""
    host = f"one of {cores} core{'s' * (cores > 1)}"
    return f"nanoseconds per step of a hebbian-dag: {host}, and {device or 'no GPU'}"


def network_steps(rows: Sequence[Row], cores: int) -> str:
    """Return nanoseconds per step of one network: a line per back end, a column per number of slots."""
    kind = "plastic" if rows[0]["plastic"] else "plain"
    lines = ["", f"{layer_sizes(rows[0]['width'])}, {kind}, {rows[0]['weights']:,} weights"]
    lines.append(f"{'slots':{_FIRST}}" + "".join(f"{row['slots']:>{_WIDE},}" for row in rows))
    lines.append(_line(_NAMES["numpy"], [row["numpy"] for row in rows]))
    lines.append(_line(_NAMES["native"], [row["native"] for row in rows]))
    lines.append(_line("  slots at a time", [row.get("native_slots") for row in rows]))
    if all(row["gpu"] is None for row in rows):
        return "\n".join([*lines, _line("GPU", []), _line("break-even", [])])
    lines += [_line(_NAMES[name], [row[name] for row in rows]) for name in ("gpu", "gpu_with_copies")]
    return "\n".join([*lines, f"{'break-even with copies':{_FIRST}}    {_break_even(rows, cores)}"])


def _line(name: str, values: Sequence[float | None]) -> str:
    """Return a line with the cells up to the last measured one; larger ones are not tried."""
    last = max((n for n, value in enumerate(values) if value is not None), default=-1)
    cells = "".join(f"{'-' if value is None else _number(value):>{_WIDE}}" for value in values[: last + 1])
    return f"{name:{_FIRST}}{cells}" + (f"    {_MISSING}" if not values or last + 1 < len(values) else "")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{0 if value >= 100 else 1}f}"


def _break_even(rows: Sequence[Row], cores: int) -> str:
    said = []
    for n in dict.fromkeys((1, cores)):
        slots = break_even(rows, n)
        if slots is None:
            found = _MISSING
        elif slots == math.inf:
            found = f"none up to {_most(rows):,} slots"
        else:
            found = f"{'about ' * (slots > rows[0]['slots'])}{slots:,.0f} slot{'s' * (slots > 1)}"
        said.append(f"{'one core' if n == 1 else f'{n} cores (scaled)'}: {found}")
    return "; ".join(said)


def _most(rows: Sequence[Row]) -> int:
    """Return the largest number of slots that the device was measured with."""
    return int(max(row["slots"] for row in rows if row["gpu_with_copies"] is not None))


def whole_rollouts(rows: Sequence[Row]) -> str:
    """Return steps per second of whole rollouts, and the most that a GPU could gain there."""
    first, others = f"{'environment':28}{'hidden':>8}", ("environment", "the rest", "native", "GPU", "gain", "at most")
    units = ("µs", "µs", "steps/s", "steps/s", "", "")
    lines = [
        "",
        f"whole rollouts of {rows[0]['slots']:,} slots, in one process",
        first + _columns(others),
        f"{'':36}" + _columns(units),
    ]
    for row in rows:
        name = f"{row['env']} ({row['engine']})"
        cells = (
            _one(row.get("environment_ns"), "{:,.2f}", 1e-3),
            _one(row.get("network_ns"), "{:,.2f}", 1e-3),
            _one(row["host"], "{:,.0f}"),
            _one(row["gpu"], "{:,.0f}"),
            _one(row["gain"], "{:.2f}"),
            "-" if row["engine"] == "exact" else _one(row["most"], "{:.2f}"),
        )
        lines.append(f"{name:28}{'-'.join(map(str, row['hidden'])):>8}" + _columns(cells))
    return "\n".join(
        [*lines, "at most: (environment + the rest) / environment, per step; the rest is mostly the network"]
    )


def _columns(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>14}" for cell in cells)


def _one(value: float | None, form: str, factor: float = 1.0) -> str:
    return _MISSING if value is None else form.format(value * factor)


def reasons(rows: Sequence[Row]) -> str:
    """Return the reasons for missing cells, each reason once, with its cells."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for column, why in row["why"].items():
            name = _NAMES.get(column, "rollouts").split(",")[0]
            names = said.setdefault(why.split(":")[0] if why.startswith("too little memory") else why, [])
            if name not in names:
                names.append(name)
    return "\n".join(["", *(f"{_MISSING} ({', '.join(names)}): {why}" for why, names in said.items())]) if said else ""
