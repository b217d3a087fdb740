"""The command: measure this machine row by row, or compare the files of several."""

import argparse
import sys
import time
from datetime import UTC, datetime

from evolve.analysis import contest, figures
from evolve.analysis.contest import ContestFile, ContestRow, DifferentWorkError
from evolve.cli.app import App, launch
from evolve.cli.contest import contest_tables
from evolve.cli.contest.contest_job import layouts, run_job
from evolve.cli.contest.contest_options import read_options
from evolve.cli.supervision import Supervisor
from evolve.cli.workers import available_cores
from evolve.errors import Stopped
from evolve.numerics import backend


def _say(text: str) -> None:
    print(f"evolve.contest: {text}", file=sys.stderr, flush=True)


def _measure_here(app: App, options: argparse.Namespace) -> ContestRow:
    """Return the row of the ranks that this process has."""
    chosen = backend(options.backend or "auto")
    try:
        return contest.measure(app.coordinator(), app.transport, options.size, chosen, not options.unverified, _say)
    except Stopped:
        raise Stopped("stopped, and nothing was written: a contest is not resumed.") from None


def _validate(app: App, options: argparse.Namespace) -> int:
    begin = time.perf_counter()
    chosen = backend(options.backend or "auto")
    digests = contest.validate(app.coordinator(), options.size, chosen)
    found = "-".join(digest[:4] for digest in digests.values())
    took = time.perf_counter() - begin
    print(f"contest {contest.VERSION} {options.size.name}: {contest.VALIDATED}, by {chosen} in {took:.1f} s ({found})")
    return 0


def _rows(app: App, options: argparse.Namespace) -> list[ContestRow] | int:
    """Return all rows, or the exit code of a job that failed. Raises DifferentWorkError."""
    if app.transport.size > 1:
        return [_measure_here(app, options)]
    planned = layouts(options.workers, options.backend, available_cores())
    _say(f"contest {contest.VERSION}, size {options.size.name}: {_words(planned)}")
    supervisor = Supervisor(_say)
    rows: list[ContestRow] = []
    for workers, chosen in planned:
        _say(f"{_words([(workers, chosen)])}:")
        row = run_job(supervisor, options.size, workers, chosen, options.unverified)
        if isinstance(row, int):
            return row
        rows.append(row)
        found = contest.leg_difference(rows[0].legs, row.legs)
        if found:
            raise DifferentWorkError(f"different work: {row.title} against {rows[0].title}: {found}.")
    return rows


def _words(planned: list[tuple[int, str]]) -> str:
    return ", ".join("a GPU" if chosen == "cupy" else f"{n} worker{'s' * (n > 1)}" for n, chosen in planned)


def _found(app: App, options: argparse.Namespace, rows: list[ContestRow], load: tuple[float, ...]) -> ContestFile:
    backends = tuple(dict.fromkeys(row.backend for row in rows))
    facts = contest.machine_facts(app.transport, available_cores(), backends)
    found = ContestFile(
        contest=contest.VERSION,
        size=options.size.name,
        name=options.name or str(facts["cpu"]),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict="",
        line="",
        price=options.price,
        load_before=load,
        system=facts,
        rows=tuple(rows),
    )
    found = found.model_copy(update={"verdict": found.assess()[0]})
    return found.model_copy(update={"line": contest_tables.line(found)})


def _compare(options: argparse.Namespace) -> int:
    ranking = contest.rank(options.compare)
    print(contest_tables.comparison(ranking, options.markdown))
    if options.output is not None:
        figures.save(figures.draw_contest(ranking), options.output)
        print(f"\n{options.output}")
    return 0


def _body(app: App, argv: list[str]) -> int:
    options = read_options(argv, app.transport)
    if options.compare:
        return _compare(options)
    if options.validate:
        return _validate(app, options)
    if options.job is not None:
        options.job.write_text(_measure_here(app, options).model_dump_json(), encoding="utf-8")
        return 0
    load = contest.load_averages()
    rows = _rows(app, options)
    if isinstance(rows, int):
        return rows
    found = _found(app, options, rows, load)
    contest.write(found, options.output)
    print(contest_tables.summary(found))
    print(f"\n{options.output}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("contest", _body, argv)
