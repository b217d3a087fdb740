"""evolve contest: compare machines on equal work; see `evolve.analysis.contest`.

The command measures this machine, or compares the result files of several machines. A result has a row for each
measured number of workers, and one for a GPU. The command starts new processes for each row, by mpirun if there are
several workers. Under mpirun, the command itself measures a single row on the ranks of its job.
"""

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from evolve import display
from evolve.analysis import contest, figures
from evolve.analysis.contest import ContestSize, ranking, results, session
from evolve.analysis.contest.results import ContestFile, ContestRow
from evolve.analysis.progress import width
from evolve.analysis.statistics import duration
from evolve.cli.app import App, path_for_stdout, say
from evolve.cli.parser import Parser
from evolve.cluster import Transport, check_start
from evolve.cluster.cores import check_not_too_many, number_of_cores
from evolve.cluster.hosts import mpirun_environment, mpirun_words, python_words
from evolve.cluster.supervision import Supervisor, begin_seconds
from evolve.errors import InputError, Stopped, pluralize, sanitize
from evolve.numerics import backend
from evolve.numerics.device import has_device
from evolve.store.disk import check_writable
from evolve.training.manifest import load_averages, machine_facts

JOB = "--job"
"""The hidden option of the processes that measure a row. Its value is the file for the row."""
_EXCLUDED = {  # for each of these options, the options that it excludes
    "compare": ("size", "workers", "repeats", "backend", "price", "name", "validate", "unverified"),
    "validate": ("workers", "repeats", "price", "name", "output", "unverified"),
}
_COMPARING = ("machine", "ratio", "95 % interval")  # columns that compare machines
_LEFT = ("machine", "played by", "remarks")  # columns of texts, aligned on the left

_say = partial(say, "contest")


def _parser() -> Parser:
    made = Parser(
        "evolve.contest",
        "Play a fixed experiment, which digests prove to be the same everywhere, and print the time that it takes.",
        "evolve contest --price 1.28/h",
        "evolve contest --size medium --workers 1 8 64 -o xeon.json",
        "evolve contest --validate",
        "evolve contest --compare xeon.json arm.json -o contest.svg",
    )
    add = made.add_argument
    sizes = "; ".join(f"{size.name}: {size.duration}" for size in contest.SIZES.values())
    sizes = f"the amount of work (small). One repeat on two cores takes: {sizes}"
    add("--size", choices=tuple(contest.SIZES), help=sizes)
    workers = "the numbers of workers to measure (1, 2, 4, … and all cores; then a GPU, if there is one)"
    add("--workers", type=int, nargs="+", metavar="N", help=workers)
    repeats = "the largest number of repeats (8); three are enough if their times agree"
    add("--repeats", type=int, metavar="N", help=repeats)
    add("--backend", choices=("native", "numpy", "cupy"), help="the back end (native, or numpy without kernels)")
    add("--price", metavar="P/h", help='the cost of an hour of this machine, as in "1.28/h" or "$1.28/h"')
    add("--name", metavar="NAME", help="the name of this machine (its processor)")
    add("-o", "--output", type=Path, metavar="OUT", help="the file (contest-SIZE.json); with --compare a figure")
    add("--validate", action="store_true", help="only play the short run with the known digest, without timing")
    add("--unverified", action="store_true", help="skip the short run; the result is then called unverified")
    compare = "compare files of several machines, all against the first one"
    add("--compare", type=Path, nargs="+", metavar="FILE", help=compare)
    add("--markdown", action="store_true", help="with --compare: print the table as Markdown")
    add(JOB, type=Path, metavar="FILE", help=argparse.SUPPRESS)
    return made


def read_options(argv: list[str], transport: Transport) -> argparse.Namespace:
    """Return the options, completed with defaults. Raises InputError for invalid or incompatible options."""
    found = _parser().parse_args(argv)
    # An option that was not given has the value None or False.
    given = {name for name, value in vars(found).items() if value is not None and value is not False}
    for option, others in _EXCLUDED.items():
        for other in others:
            if {option, other} <= given:
                raise InputError(f"--{other}", f"not both --{option} and --{other}", "both")
    if found.compare:
        _check_comparison(found, transport)
        return found
    if found.markdown:
        raise InputError("--markdown", "--compare, because it writes the table of a comparison", "none")
    if found.workers and transport.size > 1:
        got = f"a job of {transport.size} ranks"
        cure = "Leave out the option or the launcher."
        raise InputError("--workers", "a contest without a launcher such as mpirun", got, cure)
    if min(found.workers or [1]) < 1:
        raise InputError("--workers", "at least one worker", min(found.workers))
    check_not_too_many("--workers", max(found.workers or [1]))
    if found.repeats is not None and found.repeats < 1:
        raise InputError("--repeats", "at least one repeat", found.repeats)
    if found.price is not None:
        found.price = results.read_price(found.price)
    size = contest.SIZES[found.size or "small"]
    found.size = replace(size, most_repeats=found.repeats or size.most_repeats)
    found.output = found.output or Path(f"contest-{found.size.name}.json")
    if found.job is None and not found.validate:
        # Refuse an existing file now, and not after the measurements.
        results.check_new(found.output)
    return found


def _check_comparison(found: argparse.Namespace, transport: Transport) -> None:
    """Raise InputError if there are several ranks, or the figure cannot be drawn or written."""
    if transport.size > 1:
        raise InputError("--compare", "one process", f"{transport.size} ranks", "Leave out mpirun.")
    if found.output is not None:
        figures.check_library()
        check_writable(found.output, figures.FORMATS)


def line(found: ContestFile) -> str:
    """Return the result as one line for quotation: work, score, machine, software, digest, verdict."""
    best, system = found.best, found.system
    repeats = pluralize(len(best.repeats), "repeat")
    spread = f"spread {best.spread:.1%}, {repeats}" if len(best.repeats) > 1 else repeats
    cost = "" if found.price is None else f"; {found.price.words(best.seconds)} a run"
    compiler = ", ".join(str(system[name]) for name in ("kernel_compiler", "kernel_flags") if system.get(name))
    kernel = best.backend + (f" {system['kernel_variant']}" if best.backend == "native" else "")
    digest = "-".join(found.legs[leg].digest[:4] for leg in contest.LEGS_OF_VERSION[found.contest])
    return (
        f"evolve contest {found.contest} {found.size}: {best.seconds:.2f} s ({spread}) with {best.title}{cost}; "
        f"{sanitize(found.name)}, {system['cores']} cores; "
        f"{kernel}, {compiler or 'no compiler'}; evolve {system['evolve']}, Python {system['python']}; "
        f"digest {digest}; {found.verdict}"
    )


def table(ranked: Sequence[ranking.RankedRow], several: bool, markdown: bool = False) -> str:
    """Return rows as a table without empty columns. several: Whether the rows belong to several machines."""
    rows = [_cells(row) for row in ranked]
    shown = [name for name in rows[0] if any(row[name] for row in rows) and (several or name not in _COMPARING)]
    lines = [shown, *([row[name] for name in shown] for row in rows)]
    if markdown:
        lines.insert(1, ["---"] * len(shown))
        # A bar would end the cell of the table, and the name of a machine may come from a stranger.
        escaped = [[re.sub(r"([\\`*_\[\]<>!|#])", r"\\\1", cell) for cell in cells] for cells in lines]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)
    return display.table(lines, width(), {n for n, name in enumerate(shown) if name in _LEFT})


def _cells(ranked: ranking.RankedRow) -> dict[str, str]:
    """Return the cells of a row by the names of their columns, in order; "" if a cell is unknown."""
    row, interval = ranked.measured, ranked.interval
    few = len(row.repeats) < results.MIN_REPEATS
    repeats = pluralize(len(row.repeats), "repeat")
    remarks = [] if ranked.verdict == results.VALIDATED else [ranked.verdict]
    if not row.agrees:
        remarks.append(repeats if few else f"{repeats} do not agree")
    return {
        "machine": sanitize(ranked.machine),
        "played by": sanitize(row.title),
        "seconds": f"{row.seconds:,.2f}",
        "spread": f"{row.spread:.1%}" if len(row.repeats) > 1 else "",
        "speed-up": "" if ranked.speedup is None else f"{ranked.speedup:.2f}",
        "ratio": f"{ranked.ratio:.3f}",
        "95 % interval": "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}",
        "cost": "" if ranked.price is None else ranked.price.words(row.seconds),
        "remarks": "; ".join(remarks),
    }


def summary(found: ContestFile) -> str:
    """Return the result of one machine: the table, the legs of its fastest row, the benchmark of 2020, and `line`."""
    best = found.best
    # The score is a median of all repeats, so the legs of one repeat would not add up to it.
    by_leg = {leg: results.score([repeat.legs[leg] for repeat in best.repeats]) for leg in found.legs}
    legs = ", ".join(f"{leg} {seconds:.2f} s" for leg, seconds in by_leg.items())
    steps = sum(leg.steps for leg in found.legs.values())
    older = ranking.benchmark_2020(found, best)
    lines = [f"{best.title}, by leg: {legs}; {steps:,} steps in all, {duration(best.seconds)}"]
    if older:
        lines.append(f"{best.title}, {older}")
    return "\n\n".join([table(ranking.ranked(found.name, found, best), several=False), *lines, line(found)])


def comparison(compared: ranking.ContestRanking, markdown: bool) -> str:
    """Return the table of several machines, and a note on the meaning of its columns."""
    first = compared.machines[0]
    hours = dict.fromkeys(row.price.words(3600) for row in compared.rows if row.price is not None)
    cost = f"; cost: of one pass, at {' or '.join(hours)} an hour of the machine" if hours else ""
    notes = (
        f"seconds: of one pass of contest {compared.version}, size {compared.size}, the median of at least "
        f"{results.MIN_REPEATS} repeats unless the remarks name fewer; spread: between the longest and the shortest of "
        f"them; speed-up: against one worker of the same machine; ratio: to the shortest time of {sanitize(first)}, by "
        f"geometric means of all repeats{cost}"
    )
    return f"{table(compared.rows, several=True, markdown=markdown)}\n\n{notes}"


def plan_rows(workers: Sequence[int] | None, chosen: str | None, cores: int) -> list[tuple[int, str]]:
    """Return the numbers of workers and the back ends of the measurements, in order.

    workers: The requested numbers of workers. None for 1, 2, 4, … and all cores, or for 1 if `chosen` is "cupy".
    chosen: The requested back end. None for the fastest back end of the host. If `workers` is None, too, there is also
        a row for the GPU of this machine.

    Raises InputError if a back end, mpirun or mpi4py is missing.
    """
    if workers:
        counts = sorted({*workers})
    elif chosen == "cupy":
        counts = [1]
    else:
        counts = sorted({cores, *(2**n for n in range(cores.bit_length()))})
    if counts[-1] > 1:
        check_start("--workers")
        mpirun_words(counts[-1])  # raises InputError if there is no mpirun
    found: list[tuple[int, str]] = [(count, backend(chosen or "auto")) for count in counts]
    if chosen is None and workers is None and has_device():
        found.append((1, "cupy"))
    return found


def run_job(supervisor: Supervisor, size: ContestSize, workers: int, chosen: str, unverified: bool) -> ContestRow | int:
    """Measure a row in new processes. Return the row, or the exit code of a job that has failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        # Several workers need a coordinator in addition. A single worker plays without MPI.
        words = mpirun_words(workers + 1) if workers > 1 else []
        words += [*python_words(), "-m", "evolve", "contest", JOB, str(file), "--size", size.name, "--backend", chosen]
        words += ["--repeats", str(size.most_repeats), *(["--unverified"] if unverified else [])]
        outcome = supervisor.run(words, mpirun_environment(), begin_limit=begin_seconds(workers + 1))
        if outcome.code:
            return outcome.code
        return ContestRow.model_validate_json(file.read_bytes())


def _measure_here(app: App, options: argparse.Namespace) -> ContestRow:
    """Return the row that this process and its ranks measure."""
    chosen = backend(options.backend or "auto")
    try:
        return session.measure(app.coordinator(), app.transport, options.size, chosen, not options.unverified, _say)
    except Stopped:
        raise Stopped("stopped, and this row was not written: a contest is not resumed.") from None


def _validate(app: App, options: argparse.Namespace) -> int:
    """Play the short run with the known digest; raise DifferentWorkError if the digest differs."""
    begin = time.perf_counter()
    chosen = backend(options.backend or "auto")
    digests = session.validate(app.coordinator(), options.size, chosen)
    found = "-".join(digest[:4] for digest in digests.values())
    took = time.perf_counter() - begin
    print(f"contest {contest.VERSION} {options.size.name}: {results.VALIDATED}, by {chosen} in {took:.1f} s ({found})")
    return 0


def _rows(app: App, options: argparse.Namespace) -> tuple[list[ContestRow], int]:
    """Return the measured rows, and the exit code of the job that failed, or 0.

    Raises DifferentWorkError if digests differ.
    """
    if app.transport.size > 1:
        return [_measure_here(app, options)], 0
    planned = plan_rows(options.workers, options.backend, number_of_cores())
    _say(f"contest {contest.VERSION}, size {options.size.name}: {_in_words(planned)}")
    supervisor = Supervisor(_say)
    app.stop.check()  # a signal that came before the supervisor caught signals
    rows: list[ContestRow] = []
    for workers, chosen in planned:
        _say(f"{_in_words([(workers, chosen)])}:")
        row = run_job(supervisor, options.size, workers, chosen, options.unverified)
        if isinstance(row, int):
            return rows, row
        rows.append(row)
        # The times of two rows can be compared only if both rows did the same work.
        found = results.leg_difference(rows[0].legs, row.legs)
        if found:
            raise session.DifferentWorkError(f"different work: {row.title} against {rows[0].title}: {found}.")
    return rows, 0


def _in_words(planned: list[tuple[int, str]]) -> str:
    """Return the workers of planned rows in words, such as "1 worker, 2 workers, a GPU, a GPU with 2 workers"."""
    words = []
    for n, chosen in planned:
        workers = pluralize(n, "worker")
        if chosen == "cupy":
            workers = "a GPU" if n == 1 else f"a GPU with {workers}"
        words.append(workers)
    return ", ".join(words)


def _result_file(app: App, options: argparse.Namespace, rows: list[ContestRow], load: tuple[float, ...]) -> ContestFile:
    """Return the result file of this machine. load: The load averages before the first row."""
    facts = machine_facts(app.transport, number_of_cores(), tuple(dict.fromkeys(row.backend for row in rows)))
    found = ContestFile(
        contest=contest.VERSION,
        size=options.size.name,
        name=sanitize(options.name or facts["cpu"]),  # a name that UTF-8 cannot encode would lose the result
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict="",
        line="",
        price=options.price,
        load_before=load,
        system=facts,
        rows=tuple(rows),
    )
    # The verdict follows from the other fields, and the line from all of them.
    found = found.model_copy(update={"verdict": found.assess()[0]})
    return found.model_copy(update={"line": line(found)})


def _compare(options: argparse.Namespace) -> int:
    """Print the comparison of result files, and draw it if there is an output."""
    compared = ranking.rank(options.compare)
    print(comparison(compared, options.markdown))
    if options.output is not None:
        figures.save(ranking.draw(compared), options.output)
        print(f"\n{path_for_stdout(options.output)}")
    return 0


def _body(app: App, argv: list[str]) -> int:
    options = read_options(argv, app.transport)
    if options.compare:
        return _compare(options)
    if options.validate:
        return _validate(app, options)
    # `run_job` has started this process, and reads the file.
    if options.job is not None:
        options.job.write_text(_measure_here(app, options).model_dump_json(), encoding="utf-8")
        return 0
    load = load_averages()
    rows, code = _rows(app, options)
    # If the first job has failed, there is nothing to write. If a later job has failed, the earlier rows are kept.
    if not rows:
        return code
    found = _result_file(app, options, rows, load)
    try:
        written = results.write(found, options.output)
    finally:  # print the result even if the disk is full
        print(summary(found))
    print(f"\n{path_for_stdout(written)}")
    if code:
        _say(f"the file has {pluralize(len(rows), 'row')}: the job of the next row ended with exit code {code}.")
    return code
