"""The page of the site: what scales, by how much and at what price; the tables, and the figure."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pages import fill, markdown

from contest_2020_parts.rows import EPOCHS, EVOLUTION, GENERATIONS, PPO, Curve, Machine, Row, load
from evolve.analysis.contest.results import Price, read_price
from evolve.analysis.figures.style import COLOURS, DASHES, FAINT, QUIET, matplotlib, new_figure, save, set_title, styled
from evolve.errors import pluralize

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "contest-2020"
PAGE = ROOT / "docs" / "contest-2020.md"
FIGURE = ROOT / "docs" / "assets" / "contest-2020.svg"
SECTION = "contest-2020"
COMMAND = "`python benchmarks/contest_2020.py`"
CONTESTANTS = (EVOLUTION, PPO)

PUBLISHED = (
    (PPO, "10 threads of 24 cores", 10, 2737),
    (PPO, "20 threads of 24 cores", 20, 1505),
    (PPO, "40 threads of 24 cores", 40, 1448),
    (PPO, "64 vCPUs", 64, 2315),
    (EVOLUTION, "24 cores", 24, 3491),
    (EVOLUTION, "64 vCPUs", 64, 6666),
)
"""The published rows of 2020: the contestant, its machine, its processes for the figure, and the seconds."""

_WHOLE = {PPO: f"{EPOCHS:,} epochs", EVOLUTION: f"{GENERATIONS} generations"}
_ALIKE = 0.05  # one share of a run is timed, so a smaller difference decides nothing
_HEAD = ("contestant", "played by", "timed share", "whole run", "speed-up", "efficiency", "cost", "remarks")
_LOOK = {
    ("workers", EVOLUTION): (COLOURS[0], "o"),
    ("threads", EVOLUTION): (COLOURS[2], "^"),
    ("workers", PPO): (COLOURS[1], "s"),
}


def publish() -> None:
    """Write the page and its figure from the files of the repository."""
    machines = [load(path) for path in sorted(RESULTS.glob("*.json"))]
    fill(PAGE, SECTION, f"\n{text(machines)}\n")
    save(draw(machines), FIGURE)


def text(machines: Sequence[Machine], price: Price | None = None) -> str:
    """Return the claims and the tables as Markdown. price: of all machines, instead of the prices in their files."""
    parts = ['<div class="claims" markdown>', claims(machines, price), "</div>"]
    parts.append(f"![Time and speed-up by ranks and threads; returns by steps and by time](assets/{FIGURE.name})")
    for machine in machines:
        parts += [f"## {machine.name}", table(machine, price or _price(machine))]
        parts += [split_table(machine), "\n".join(f"- {line}" for line in notes(machine, price or _price(machine)))]
    parts += ["## Published in 2020", markdown(("contestant", "machine", "whole run", "speed-up"), published())]
    return "\n\n".join(part for part in parts if part)


def claims(machines: Sequence[Machine], price: Price | None) -> str:
    """Return the table of claims: what more cores buy on the machine with most cores, the rest on any."""
    largest = max(machines, key=lambda machine: machine.about["cores"])
    lines = [
        _scaling(largest),
        _times(largest),
        *(_costs(machine, price or _price(machine)) for machine in machines),
        *map(_returns, machines),
        *_digests(largest),
        _scaling_2020(),
    ]
    rows = [line for line in lines if line]
    return markdown(("claim", "evolution", "PPO over MPI", "setup", "command"), rows)


def _scaling(machine: Machine) -> Sequence[str] | None:
    if any(row.disturbed for row in machine.rows):
        claim = "Which contestant scales better here is not decided: other work took the cores during the measurement"
        return claim, "–", "–", machine.name, COMMAND
    found = {}
    for contestant in CONTESTANTS:
        rows = [row for row in machine.of(contestant) if row.players <= row.cores]
        best = min(rows, key=lambda row: row.whole, default=None)
        if best is None or machine.alone(contestant) is None or best.players == 1:
            return None
        found[contestant] = f"{speedup(machine, best):.2f} times as fast with {best.title}"
    evolution, ppo = (float(found[one].split(" ")[0]) for one in (EVOLUTION, PPO))
    claim = "Both gain as much from the cores in their first rounds"
    if abs(evolution / ppo - 1) > _ALIKE:
        claim = f"{'Evolution' if evolution > ppo else 'PPO'} gains more from the cores in its first rounds"
    return claim, found[EVOLUTION], found[PPO], machine.name, COMMAND


def _times(machine: Machine) -> Sequence[str] | None:
    if any(row.disturbed for row in machine.rows):
        return None
    best = {contestant: machine.best(contestant) for contestant in CONTESTANTS}
    cells = [f"{row.whole:,.0f} s for {_WHOLE[contestant]}" for contestant, row in best.items() if row is not None]
    if len(cells) < len(CONTESTANTS):
        return None
    if "whole" in machine.about:
        cells[0] = f"{machine.about['whole']['seconds']} s, measured; extrapolated {cells[0]}"
    return (
        "A whole run of 2020 takes",
        *cells,
        f"{machine.name}, the fastest rows, extrapolated unless measured",
        COMMAND,
    )


def _costs(machine: Machine, price: Price | None) -> Sequence[str] | None:
    best = [machine.best(contestant) for contestant in CONTESTANTS]
    if price is None or None in best or any(row.disturbed for row in machine.rows):
        return None
    cells = [price.cost_in_words(row.whole) for row in best if row is not None]
    setup = f"{machine.name} at {price.currency}{price.hour:.2f} an hour"
    return "It costs", *cells, setup, f"{COMMAND[:-1]} --price …`"


def _returns(machine: Machine) -> Sequence[str] | None:
    last = {curve.contestant: curve.points[-1] for curve in machine.curves if curve.points}
    if len(last) < len(CONTESTANTS):
        return None
    better = max(CONTESTANTS, key=lambda one: last[one].mean)
    name = "Evolution" if better == EVOLUTION else "PPO"
    cells = [f"{last[one].mean:.0f} after {last[one].steps / 1e6:.1f} M steps" for one in CONTESTANTS]
    return f"{name} walks further", *cells, "held-out mean returns; one seed each", f"{COMMAND[:-1]} --curves …`"


def _digests(machine: Machine) -> Iterable[Sequence[str]]:
    cells = []
    for contestant in CONTESTANTS:
        rows = machine.of(contestant)
        number = len({row.digest for row in rows})
        cells.append(f"{number} digest{'s' * (number > 1)} in {len(rows)} rows" if len(rows) > 1 else "–")
    if "–" not in cells:
        alike = len({row.digest for row in machine.of(EVOLUTION)}) == 1
        claim = "Evolution's result does not depend on the number of ranks, PPO's does"
        yield (claim if alike else "Results by ranks"), *cells, "the rows below", COMMAND


def _scaling_2020() -> Sequence[str]:
    return (
        "In 2020 four times the threads made PPO less than twice as fast",
        "–",
        "2,737 s with 10 threads, 1,448 s with 40",
        "24 cores, published",
        "–",
    )


def speedup(machine: Machine, row: Row) -> float | None:
    """Return the ratio of the time of one player to the time of a row; None if it is not known, or says nothing."""
    alone = machine.alone(row.contestant)
    return None if alone is None or alone.disturbed or row.disturbed else alone.whole / row.whole


def table(machine: Machine, price: Price | None) -> str:
    """Return the rows of a machine."""
    lines = []
    for contestant in CONTESTANTS:
        for row in machine.of(contestant):
            fast = speedup(machine, row)
            unit = "epoch" if contestant == PPO else "generation"
            lines.append(
                [
                    contestant,
                    row.title,
                    f"{pluralize(row.rounds, unit)}, {row.steps / 1e6:.2f} M steps in {row.seconds:.1f} s",
                    f"about {row.whole:,.0f} s",
                    "–" if fast is None else f"{fast:.2f}",
                    "–" if fast is None else f"{fast / row.players:.0%}",
                    "–" if price is None or row.disturbed else price.cost_in_words(row.whole),
                    "; ".join(remarks(row)),
                ]
            )
    return markdown(_HEAD, lines)


def remarks(row: Row) -> Iterable[str]:
    """Yield what a reader has to know of a row."""
    if row.players > row.cores:
        yield f"{row.players} on {row.cores} cores: oversubscribed"
    if row.disturbed:
        yield f"beside other work: load {min(row.loads):.0f} to {max(row.loads):.0f}"


def split_table(machine: Machine) -> str:
    """Return the parts of PPO's time, and the digests of both contestants."""
    rows = [*machine.of(PPO), *machine.of(EVOLUTION)]
    parts = list(next((row.split for row in rows if row.split), {}))
    lines = [
        [
            row.contestant,
            row.title,
            *(f"{row.split[part]:.0%}" if row.split else "–" for part in parts),
            f"`{row.digest[:16]}…`",
        ]
        for row in rows
    ]
    return markdown(("contestant", "played by", *parts, "digest after the share"), lines)


def notes(machine: Machine, price: Price | None) -> list[str]:
    """Return lines about a machine and its rows."""
    loads = [load for row in machine.rows for load in row.loads]
    busy = f"load {min(loads)} to {max(loads)}"
    dates = sorted({row.date[:10] for row in machine.rows})
    used = ", ".join(f"{name} {number}" for name, number in machine.about["versions"].items())
    lines = [
        "*whole run*: 1,000 epochs of 40,000 steps, or the 200 generations of seed 13 (235,144,740 steps), "
        "**extrapolated** from the timed share by environment steps; *speed-up*: against one player; *efficiency*: "
        "speed-up by players.",
        f"{machine.about['cpu']}, {machine.about['cores']} cores, {', '.join(dates)}; {busy}.",
        f"Versions: {used}.",
    ]
    if "whole" in machine.about:
        whole = machine.about["whole"]
        lines.append(
            f"Measured, not extrapolated: the 200 generations of evolution took {whole['seconds']} s with "
            f"{whole['threads']} threads. The run has the digest `{whole['digest']}…`, as on "
            "[two cores](contest.md#the-benchmark-of-2020)."
        )
    if price is not None:
        lines.append(
            f"Cost: at {price.currency}{price.hour:.2f} an hour for the whole machine; `--price` sets another."
        )
    lines += [
        f"Returns of {curve.contestant}: {curve.about}, {curve.episodes} held-out episodes." for curve in machine.curves
    ]
    return lines


def published() -> list[list[str]]:
    """Return the published rows. The speed-up is against PPO's 10 threads on the same machine."""
    slowest = next(seconds for contestant, _, players, seconds in PUBLISHED if (contestant, players) == (PPO, 10))
    return [
        [
            contestant,
            where,
            f"{seconds:,} s",
            f"{slowest / seconds:.2f}" if contestant == PPO and "threads" in where else "–",
        ]
        for contestant, where, _, seconds in PUBLISHED
    ]


def _price(machine: Machine) -> Price | None:
    """Return the price in the file of a machine."""
    said = machine.about.get("price")
    return None if said is None else read_price(said)


@styled
def draw(machines: Sequence[Machine]) -> Any:
    """Return the figure: times and speed-ups above, returns below."""
    curves = [(machine, curve) for machine in machines for curve in machine.curves]
    figure = new_figure(6.6 if curves else 3.7)
    panels = figure.subplots(2 if curves else 1, 2, squeeze=False)
    _draw_times(panels[0][0], machines)
    _draw_speedups(panels[0][1], machines)
    if curves:
        _draw_returns(panels[1], curves)
    named: dict[str, Any] = {}
    for panel in panels.flat:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend([*named.values()], [*named], loc="outside lower left", ncols=2, fontsize=8.5, handlelength=3.2)
    set_title(figure, "The contest of 2020, repeated: evolution and PPO over MPI")
    return figure


def _lines(machines: Sequence[Machine]) -> Iterable[tuple[str, dict[str, Any], Machine, list[Row]]]:
    """Yield the label, the look and the rows of each line: workers and threads of each contestant and machine."""
    for dash, machine in zip(DASHES, machines, strict=False):
        for (kind, contestant), (colour, marker) in _LOOK.items():
            rows = [row for row in machine.of(contestant) if (row.ranks == 0) == (kind == "threads")]
            rows = [row for row in rows if not row.disturbed]
            if not rows:
                continue
            noun = "ranks" if contestant == PPO else kind
            where = f", {machine.name}" if len(machines) > 1 else ""
            look = {"color": colour, "marker": marker, "ls": dash, "ms": 5.5}
            yield f"{contestant}, {noun}{where}", look, machine, rows


def _draw_times(panel: Any, machines: Sequence[Machine]) -> None:
    for label, look, _, rows in _lines(machines):
        panel.plot([row.players for row in rows], [row.whole for row in rows], **look, label=label)
    for contestant, marker in ((EVOLUTION, "o"), (PPO, "s")):
        points = [(players, seconds) for one, _, players, seconds in PUBLISHED if one == contestant]
        look = {"ls": "", "marker": marker, "mfc": "none", "ms": 6, "color": _LOOK["workers", contestant][0]}
        panel.plot(*zip(*points, strict=True), **look, label=f"{contestant}, published in 2020")
    panel.set(title="Time of a whole run", xlabel="workers, ranks or threads", ylabel="seconds")
    panel.set(xscale="log", yscale="log")
    _plain_ticks(panel.xaxis, [1, 2, 4, 10, 20, 40, 64])
    _plain_ticks(panel.yaxis, [200, 500, 1000, 2000, 5000, 10000])
    panel.margins(0.08)


def _draw_speedups(panel: Any, machines: Sequence[Machine]) -> None:
    most = 2
    if not [*_lines(machines)]:
        note = "no row was measured on quiet cores yet"
        panel.text(0.5, 0.5, note, transform=panel.transAxes, ha="center", color=QUIET)
    for _, look, machine, rows in _lines(machines):
        values = [speedup(machine, row) for row in rows]
        if None in values:
            continue
        panel.plot([row.players for row in rows], values, **look)
        most = max(most, *(row.players for row in rows))
    panel.plot([1, most], [1, most], color=FAINT, ls=":", lw=1.2, zorder=1, label="ideal")
    cores = {machine.about["cores"] for machine in machines}
    if len(cores) == 1 and max(cores) < most:
        panel.axvline(max(cores), color=FAINT, lw=0.9)
        panel.annotate("all cores", (max(cores), 0.97), xycoords=("data", "axes fraction"), xytext=(4, 0),
                       textcoords="offset points", va="top", color=QUIET, fontsize=8)  # fmt: skip
    panel.set(title="Speed-up against one player", xlabel="workers, ranks or threads", ylabel="times as fast")
    panel.set(xscale="log", yscale="log")
    _plain_ticks(panel.xaxis, [2**n for n in range(int(np.log2(most)) + 1)])
    _plain_ticks(panel.yaxis, [1, 1.5, 2, 3, 4, 6, 8, 16, 32, 64])


def _plain_ticks(axis: Any, places: Sequence[float]) -> None:
    ticker = matplotlib("ticker")
    axis.set_major_locator(ticker.FixedLocator(places))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(ticker.NullLocator())


def _draw_returns(panels: Sequence[Any], curves: Sequence[tuple[Machine, Curve]]) -> None:
    by_steps, by_time = panels
    for machine, curve in curves:
        colour, marker = _LOOK["workers", curve.contestant]
        steps = [point.steps for point in curve.points]
        means = [point.mean for point in curve.points]
        look = {"color": colour, "marker": marker, "ms": 3}
        by_steps.plot(steps, means, **look, label=f"{curve.contestant}, returns")
        best = machine.best(curve.contestant)
        if best is not None:
            by_time.plot([number * best.seconds / best.steps for number in steps], means, **look)
    by_steps.set(title="Return by steps", xlabel="environment steps", ylabel="held-out mean return", xscale="log")
    by_steps.xaxis.set_major_formatter(matplotlib("ticker").EngFormatter(sep=""))
    best = [machine.best(curve.contestant) for machine, curve in curves]
    where = " (busy)" if any(row.disturbed for row in best if row is not None) else ""
    by_time.set(title="Return by time", xlabel=f"seconds, at the rate of the fastest row{where}", xscale="log")
    by_time.xaxis.set_major_formatter(matplotlib("ticker").FuncFormatter(lambda x, _: f"{x:,g}"))
