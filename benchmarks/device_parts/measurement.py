"""`benchmarks/devices.py` from beginning to end: measure under a budget, show tables as they come, draw the figure."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from device_parts import tables
from device_parts.figure import draw_device_speed
from device_parts.rollout_gain import rollout_experiments, rollout_rows
from device_parts.steps import SLOTS, WIDTHS, Budget, Row, break_even, cores, layer_sizes, rows, why_no_device
from device_parts.timing import Effort
from evolve.analysis import figures
from evolve.cli.app import App
from evolve.numerics.device import device
from evolve.store.disk import check_writable

BUDGET = 120.0
"""Seconds of a whole run, by default."""
_ROLLOUTS = 0.3  # of the budget
_TRIAL = 0.02  # of the budget, each
LONGEST_TRIAL = 2.0
"""Seconds of a rollout, at most."""


def check_figure(path: Path | None) -> None:
    """Raise InputError unless a figure can be drawn and written there."""
    if path is not None:
        figures.check_library()
        check_writable(path, figures.FORMATS)


def hooks(app: App, silent: bool) -> tuple[Callable[[str], None], Callable[[], None]]:
    """Return two functions: print a text unless `silent`; raise Stopped after a signal."""

    def show(text: str) -> None:
        if not silent:
            print(text, flush=True)

    return show, app.stop.check


def measure_devices(
    budget: float,
    show: Callable[[str], None],
    check: Callable[[], None],
    environment: tuple[str, str] | None = None,
    sizes: tuple[Sequence[int], Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Return all measurements, made in about `budget` seconds; each network, and the rollouts, get a share of the rest.

    Args:
        budget: In seconds.
        show: Called with each table.
        check: Called between networks; may raise.
        environment: The environment of the rollouts, and its engine; by default those of EnvPool, if installed.
        sizes: Widths of layers, and numbers of slots in ascending order; by default `WIDTHS` and `SLOTS`.
    """
    widths, slots = sizes or (WIDTHS, SLOTS)
    experiments = rollout_experiments(environment)  # a wrong environment is refused before the measurements
    whole = Budget(budget)
    missing = why_no_device()
    name = "" if missing else device().name
    found: dict[str, Any] = {"device": name or None, "why": missing, "cores": cores(), "networks": [], "rollouts": []}
    show(tables.heading(cores(), name))
    networks = [(width, plastic) for width in widths for plastic in (False, True)]
    effort = Effort(seconds=min(0.03, budget / 4000))
    for number, network in enumerate(networks):
        check()
        share = (whole.left - _ROLLOUTS * budget) / (len(networks) - number)
        measured = rows(*network, slots, effort, Budget(share))
        show(tables.network_steps(measured, cores()))
        found["networks"].append(_with_break_even(measured))
    for row in rollout_rows(experiments, min(LONGEST_TRIAL, _TRIAL * budget), whole):
        check()
        found["rollouts"].append(row)
    show(tables.whole_rollouts(found["rollouts"]))
    show(tables.reasons([row for network in found["networks"] for row in network["rows"]] + found["rollouts"]))
    return found


def _with_break_even(measured: list[Row]) -> dict[str, Any]:
    """Return the measurements of a network. A break-even of "none" is beyond the measured numbers of slots."""
    first = measured[0]
    found: dict[str, Any] = {"layers": layer_sizes(first["width"]), "plastic": first["plastic"]}
    for name, number in (("one_core", 1), ("all_cores", cores())):
        slots = break_even(measured, number)
        found[f"break_even_{name}"] = "none" if slots == math.inf else slots
    return found | {"weights": first["weights"], "rows": measured}


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the result of `measure_devices`."""
    pairs: dict[str, list[list[Row]]] = {}
    for network in found["networks"]:
        pairs.setdefault(network["layers"], []).append(network["rows"])
    named = {layers: (plain, plastic) for layers, (plain, plastic) in pairs.items()}
    figures.save(draw_device_speed(named, found["cores"], found["device"] or ""), path)
