"""What a contest has found as text: one line to paste, and a table."""

from collections.abc import Sequence

from evolve.analysis.contest import (
    LEAST,
    LEGS_OF_VERSION,
    ContestFile,
    ContestRanking,
    RankedRow,
    benchmark_2020,
    money,
    rows_of,
)
from evolve.analysis.formatting import duration
from evolve.errors import sanitize

_HEAD = ("machine", "played by", "seconds", "spread", "speed-up", "ratio", "95 % interval", "cost", "remarks")


def line(found: ContestFile) -> str:
    """Return the result in one line: work, score, machine, software, verdict."""
    best, system = found.best, found.system
    cost = "" if found.price is None else f"; {money(found.price.of(best.seconds), found.price.currency)} a run"
    compiler = ", ".join(str(system[name]) for name in ("kernel_compiler", "kernel_flags") if system.get(name))
    kernel = best.backend + (f" {system['kernel_variant']}" if best.backend == "native" else "")
    digest = "-".join(found.legs[leg].digest[:4] for leg in LEGS_OF_VERSION[found.contest])
    return (
        f"evolve contest {found.contest} {found.size}: {best.seconds:.2f} s (spread {best.spread:.1%}, "
        f"{len(best.repeats)} repeats) with {best.title}{cost}; {sanitize(found.name)}, {system['cores']} cores; "
        f"{kernel}, {compiler or 'no compiler'}; evolve {system['evolve']}, Python {system['python']}; "
        f"digest {digest}; {found.verdict}"
    )


def table(ranked: Sequence[RankedRow], several: bool, markdown: bool = False) -> str:
    """Return rows as lines under a header. several: whether they are of several machines."""
    lines = [_HEAD, *(_cells(row) for row in ranked)]
    shown = [n for n in range(len(_HEAD)) if any(cells[n] for cells in lines[1:]) and (several or n not in (0, 5, 6))]
    cells = [[text[n] for n in shown] for text in lines]
    if markdown:
        cells.insert(1, ["---"] * len(shown))
        return "\n".join(f"| {' | '.join(text.replace('|', '/') for text in texts)} |" for texts in cells)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = {0, 1, len(_HEAD) - 1}
    return "\n".join(
        "  ".join(
            text.ljust(width) if n in left else text.rjust(width)
            for text, width, n in zip(texts, widths, shown, strict=True)
        ).rstrip()
        for texts in cells
    )


def _cells(ranked: RankedRow) -> tuple[str, ...]:
    row, interval = ranked.row, ranked.interval
    notes = [] if row.agrees else [f"{len(row.repeats)} repeats do not agree"]
    return (
        sanitize(ranked.machine),
        sanitize(row.title),
        f"{row.seconds:,.2f}",
        f"{row.spread:.1%}" if len(row.repeats) > 1 else "",
        "" if ranked.speedup is None else f"{ranked.speedup:.2f}",
        f"{ranked.ratio:.3f}",
        "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}",
        "" if ranked.cost is None else money(ranked.cost, ranked.currency),
        "; ".join([*([] if ranked.verdict == "validated" else [ranked.verdict]), *notes]),
    )


def summary(found: ContestFile) -> str:
    """Return the result of one machine: the table, its legs, the benchmark of 2020, and the line to paste."""
    best = found.best
    times = best.repeats[-1].legs
    parts = ", ".join(f"{leg} {seconds:.2f} s" for leg, seconds in times.items())
    steps = sum(leg.steps for leg in found.legs.values())
    whole = benchmark_2020(found, best)
    return "\n\n".join(
        [
            table(rows_of(found), several=False),
            f"{best.title}, by leg: {parts}; {steps:,} steps in all, {duration(best.seconds)}",
            *([] if whole is None else [f"{best.title}, {whole}"]),
            line(found),
        ]
    )


def comparison(ranking: ContestRanking, markdown: bool) -> str:
    """Return machines side by side, and what the columns mean."""
    first = ranking.machines[0]
    cost = "; cost: of one pass" if any(row.cost is not None for row in ranking.rows) else ""
    notes = (
        f"seconds: of one pass of contest {ranking.version}, size {ranking.size}, the median of at least {LEAST} "
        f"repeats; spread: between the longest and the shortest of them; speed-up: against one worker of the same "
        f"machine; ratio: to the shortest time of {sanitize(first)}, by geometric means of all repeats{cost}"
    )
    return f"{table(ranking.rows, several=True, markdown=markdown)}\n\n{notes}"
