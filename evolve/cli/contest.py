"""evolve contest: compare machines on equal work; see `evolve.analysis.contest`.

The command measures this machine and writes a contest file, or compares the contest files of several machines. A file
has a row for each measured number of workers, and a row for a GPU. The command starts new processes for each row, by
mpirun if there are several workers. Under mpirun, the command itself measures a single row on the ranks of its job.
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

from evolve import display, numerics
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
from evolve.numerics.device import has_device
from evolve.store.disk import check_writable
from evolve.training.manifest import load_averages, machine_facts

JOB = "--job"
"""The hidden option of the processes that measure a row. Its value is the path to which they write the row."""
_EXCLUDES = {  # for each option, the options that cannot be used with it
    "compare": ("size", "workers", "repeats", "backend", "price", "name", "validate", "unverified"),
    "validate": ("workers", "repeats", "price", "name", "output", "unverified"),
}
_COMPARISON_COLUMNS = ("machine", "ratio", "95 % interval")  # only shown if there are several machines
_TEXT_COLUMNS = ("machine", "played by", "remarks")  # aligned on the left

_say = partial(say, "contest")


def _parser() -> Parser:
    parser = Parser(
        "evolve.contest",
        "Play fixed experiments, and print their times. Digests prove that each machine does the same work.",
        "evolve contest --price 1.28/h",
        "evolve contest --size medium --workers 1 8 64 -o xeon.json",
        "evolve contest --validate",
        "evolve contest --compare xeon.json arm.json -o contest.svg",
    )
    add = parser.add_argument
    durations = "; ".join(f"{size.name}: {size.duration}" for size in contest.SIZES.values())
    sizes = f"the amount of work (small). One pass on two cores takes: {durations}"
    add("--size", choices=tuple(contest.SIZES), help=sizes)
    workers = "the numbers of workers to measure (1, 2, 4, … and all cores; then a GPU, if there is one)"
    add("--workers", type=int, nargs="+", metavar="N", help=workers)
    repeats = "the largest number of repeats (8); three are enough if their times agree"
    add("--repeats", type=int, metavar="N", help=repeats)
    add("--backend", choices=("native", "numpy", "cupy"), help="the back end (native, or numpy without kernels)")
    add("--price", metavar="P/h", help='the cost of an hour of this machine, as in "1.28/h" or "$1.28/h"')
    add("--name", metavar="NAME", help="the name of this machine (its processor)")
    add("-o", "--output", type=Path, metavar="OUT", help="the file (contest-SIZE.json); with --compare a figure")
    add("--validate", action="store_true", help="only play the known runs: short runs with known digests")
    add("--unverified", action="store_true", help="skip the known runs; the result is then called unverified")
    compare = "compare files of several machines, all against the first one"
    add("--compare", type=Path, nargs="+", metavar="FILE", help=compare)
    add("--markdown", action="store_true", help="with --compare: print the table as Markdown")
    add(JOB, type=Path, metavar="FILE", help=argparse.SUPPRESS)
    return parser


def read_options(argv: list[str], transport: Transport) -> argparse.Namespace:
    """Return the options, completed with defaults. Raises InputError for invalid or incompatible options."""
    options = _parser().parse_args(argv)
    # An option that is not on the command line has the value None or False.
    given = {name for name, value in vars(options).items() if value is not None and value is not False}
    for option, excluded in _EXCLUDES.items():
        for other in excluded:
            if {option, other} <= given:
                raise InputError(f"--{other}", f"not both --{option} and --{other}", "both")
    if options.compare:
        _check_comparison(options, transport)
        return options
    if options.markdown:
        raise InputError("--markdown", "--compare, because only a comparison is printed as Markdown", "no --compare")
    if options.workers and transport.size > 1:
        got = f"a job of {transport.size} ranks"
        cure = "Leave out the option or the launcher."
        raise InputError("--workers", "a contest without a launcher such as mpirun", got, cure)
    workers = options.workers or [1]
    if min(workers) < 1:
        raise InputError("--workers", "at least one worker", min(workers))
    check_not_too_many("--workers", max(workers))
    if options.repeats is not None and options.repeats < 1:
        raise InputError("--repeats", "at least one repeat", options.repeats)
    if options.price is not None:
        options.price = results.read_price(options.price)
    size = contest.SIZES[options.size or "small"]
    options.size = replace(size, most_repeats=options.repeats or size.most_repeats)
    options.output = options.output or Path(f"contest-{options.size.name}.json")
    if options.job is None and not options.validate:
        # Refuse an existing file now, and not after the measurements.
        results.check_new(options.output)
    return options


def _check_comparison(options: argparse.Namespace, transport: Transport) -> None:
    """Raise InputError if there are several ranks, or the figure cannot be drawn or written."""
    if transport.size > 1:
        raise InputError("--compare", "one process", f"{transport.size} ranks", "Leave out mpirun.")
    if options.output is not None:
        figures.check_library()
        check_writable(options.output, figures.FORMATS)


def result_line(file: ContestFile) -> str:
    """Return the result as one line for quotation: work, score, machine, software, digest, verdict."""
    best, system = file.best, file.system
    repeats = pluralize(len(best.repeats), "repeat")
    spread = f"spread {best.spread:.1%}, {repeats}" if len(best.repeats) > 1 else repeats
    cost = "" if file.price is None else f"; {file.price.cost_in_words(best.seconds)} a run"
    compiler = ", ".join(str(system[name]) for name in ("kernel_compiler", "kernel_flags") if system.get(name))
    kernel = best.backend + (f" {system['kernel_variant']}" if best.backend == "native" else "")
    digest = "-".join(file.legs[leg].digest[:4] for leg in contest.LEGS_OF_VERSION[file.contest])
    return (
        f"evolve contest {file.contest} {file.size}: {best.seconds:.2f} s ({spread}) with {best.title}{cost}; "
        f"{sanitize(file.name)}, {system['cores']} cores; "
        f"{kernel}, {compiler or 'no compiler'}; evolve {system['evolve']}, Python {system['python']}; "
        f"digest {digest}; {file.verdict}"
    )


def table(ranked: Sequence[ranking.RankedRow], several_machines: bool, markdown: bool = False) -> str:
    """Return rows as a table without empty columns. Rows of a single machine have no columns that compare machines."""
    rows = [_cells(row) for row in ranked]
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    if not several_machines:
        columns = [name for name in columns if name not in _COMPARISON_COLUMNS]
    lines = [columns, *([row[name] for name in columns] for row in rows)]
    if markdown:
        lines.insert(1, ["---"] * len(columns))
        # A file of another machine may have any name, and a bar in the name would end the cell of the table.
        escaped = [[re.sub(r"([\\`*_\[\]<>!|#])", r"\\\1", cell) for cell in cells] for cells in lines]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)
    return display.table(lines, width(), {n for n, name in enumerate(columns) if name in _TEXT_COLUMNS})


def _cells(ranked: ranking.RankedRow) -> dict[str, str]:
    """Return the cells of a row by the names of their columns, in order; "" for an unknown value."""
    row, interval = ranked.measured, ranked.interval
    repeats = pluralize(len(row.repeats), "repeat")
    remarks = [] if ranked.verdict == results.VALIDATED else [ranked.verdict]
    if len(row.repeats) < results.MIN_REPEATS:  # too few to agree
        remarks.append(repeats)
    elif not row.agrees:
        remarks.append(f"{repeats} do not agree")
    return {
        "machine": sanitize(ranked.machine),
        "played by": sanitize(row.title),
        "seconds": f"{row.seconds:,.2f}",
        "spread": f"{row.spread:.1%}" if len(row.repeats) > 1 else "",
        "speed-up": "" if ranked.speedup is None else f"{ranked.speedup:.2f}",
        "ratio": f"{ranked.ratio:.3f}",
        "95 % interval": "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}",
        "cost": "" if ranked.price is None else ranked.price.cost_in_words(row.seconds),
        "remarks": "; ".join(remarks),
    }


def summary(file: ContestFile) -> str:
    """Return the result of one machine: the table, the legs of the fastest row, the benchmark of 2020, and the line."""
    best = file.best
    # The score is the median of all repeats, so take the median of each leg, too.
    seconds_of_legs = {leg: results.score([repeat.legs[leg] for repeat in best.repeats]) for leg in file.legs}
    legs = ", ".join(f"{leg} {seconds:.2f} s" for leg, seconds in seconds_of_legs.items())
    steps = sum(leg.steps for leg in file.legs.values())
    texts = [
        table(ranking.rank_rows(file.name, file, best), several_machines=False),
        f"{best.title}, by leg: {legs}; {steps:,} steps in all, {duration(best.seconds)}",
    ]
    if of_2020 := ranking.benchmark_2020(file, best):
        texts.append(f"{best.title}, {of_2020}")
    return "\n\n".join([*texts, result_line(file)])


def comparison(compared: ranking.ContestRanking, markdown: bool) -> str:
    """Return the table of several machines, and a note on the meaning of its columns."""
    first = compared.machines[0]
    hourly = dict.fromkeys(row.price.cost_in_words(3600) for row in compared.rows if row.price is not None)
    cost = f"; cost: of one pass, at {' or '.join(hourly)} an hour of the machine" if hourly else ""
    notes = (
        f"seconds: of one pass of contest {compared.version}, size {compared.size}, the median of at least "
        f"{results.MIN_REPEATS} repeats unless the remarks name fewer; spread: between the longest and the shortest of "
        f"them; speed-up: against one worker of the same machine; ratio: to the shortest time of {sanitize(first)}, by "
        f"geometric means of all repeats{cost}"
    )
    return f"{table(compared.rows, several_machines=True, markdown=markdown)}\n\n{notes}"


def plan_rows(workers: Sequence[int] | None, requested: str | None, cores: int) -> list[tuple[int, str]]:
    """Return the rows to measure, in order: the number of workers and the back end of each.

    workers: The requested numbers of workers. None for 1, 2, 4, … and all cores, or for 1 if `requested` is "cupy".
    requested: The requested back end. None for the fastest back end of the processor. If `workers` is None, too, the
        last row is for the GPU of this machine, if there is one.

    Raises InputError if a back end, mpirun or mpi4py is missing.
    """
    if workers:
        counts = sorted({*workers})
    elif requested == "cupy":
        counts = [1]
    else:
        powers_of_two = (2**n for n in range(cores.bit_length()))  # up to the number of cores
        counts = sorted({cores, *powers_of_two})
    if counts[-1] > 1:
        check_start("--workers")
        mpirun_words(counts[-1])  # raises InputError if there is no mpirun
    rows: list[tuple[int, str]] = [(count, numerics.backend(requested or "auto")) for count in counts]
    if requested is None and workers is None and has_device():
        rows.append((1, "cupy"))
    return rows


def run_job(
    supervisor: Supervisor, size: ContestSize, workers: int, backend: str, unverified: bool
) -> ContestRow | int:
    """Measure a row in new processes. Return the row, or the exit code of the processes if they have failed.

    backend: The back end.
    unverified: Whether to skip the known runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        # Several workers need one more rank, the coordinator. A single worker plays without MPI.
        words = mpirun_words(workers + 1) if workers > 1 else []
        words += [*python_words(), "-m", "evolve", "contest", JOB, str(file), "--size", size.name]
        words += ["--backend", backend, "--repeats", str(size.most_repeats), *(["--unverified"] if unverified else [])]
        outcome = supervisor.run(words, mpirun_environment(), begin_limit=begin_seconds(workers + 1))
        if outcome.code:
            return outcome.code
        return ContestRow.model_validate_json(file.read_bytes())


def _measure_here(app: App, options: argparse.Namespace) -> ContestRow:
    """Measure a row on the ranks of this job, or in this process alone."""
    backend = numerics.backend(options.backend or "auto")
    try:
        return session.measure(app.coordinator(), app.transport, options.size, backend, not options.unverified, _say)
    except Stopped:
        raise Stopped("stopped, and this row was not written: a contest is not resumed.") from None


def _validate(app: App, options: argparse.Namespace) -> int:
    """Play the known runs and print their digests. Raises DifferentWorkError if a digest differs."""
    begin = time.perf_counter()
    backend = numerics.backend(options.backend or "auto")
    digests = session.validate(app.coordinator(), options.size, backend)
    seconds = time.perf_counter() - begin
    digest = "-".join(each[:4] for each in digests.values())
    verdict = f"{results.VALIDATED}, by {backend} in {seconds:.1f} s ({digest})"
    print(f"contest {contest.VERSION} {options.size.name}: {verdict}")
    return 0


def _measure_rows(app: App, options: argparse.Namespace) -> tuple[list[ContestRow], int]:
    """Measure all rows; return them and 0. If the job of a row fails, return the rows before it, and its exit code.

    Raises DifferentWorkError if digests differ.
    """
    if app.transport.size > 1:
        return [_measure_here(app, options)], 0
    planned = plan_rows(options.workers, options.backend, number_of_cores())
    _say(f"contest {contest.VERSION}, size {options.size.name}: {_in_words(planned)}")
    supervisor = Supervisor(_say)
    app.stop.check()  # a signal may have come before the supervisor caught signals
    rows: list[ContestRow] = []
    for workers, backend in planned:
        _say(f"{_in_words([(workers, backend)])}:")
        measured = run_job(supervisor, options.size, workers, backend, options.unverified)
        if isinstance(measured, int):  # the exit code of a failed job
            return rows, measured
        rows.append(measured)
        # The times of two rows can be compared only if both rows did the same work.
        if difference := results.leg_difference(rows[0].legs, measured.legs):
            raise session.DifferentWorkError(f"different work: {measured.title} against {rows[0].title}: {difference}.")
    return rows, 0


def _in_words(planned: list[tuple[int, str]]) -> str:
    """Return the planned rows in words, such as "1 worker, 2 workers, a GPU, a GPU with 2 workers"."""
    texts = []
    for workers, backend in planned:
        text = pluralize(workers, "worker")
        if backend == "cupy":
            text = "a GPU" if workers == 1 else f"a GPU with {text}"
        texts.append(text)
    return ", ".join(texts)


def _contest_file(
    app: App, options: argparse.Namespace, rows: list[ContestRow], load: tuple[float, ...]
) -> ContestFile:
    """Return the contest file of this machine. load: The load averages before the first row."""
    facts = machine_facts(app.transport, number_of_cores(), tuple(dict.fromkeys(row.backend for row in rows)))
    file = ContestFile(
        contest=contest.VERSION,
        size=options.size.name,
        # A name that UTF-8 cannot encode could not be written.
        name=sanitize(options.name or facts["cpu"]),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict="",
        line="",
        price=options.price,
        load_before=load,
        system=facts,
        rows=tuple(rows),
    )
    # The verdict follows from the other fields, and the line from all of them.
    verdict, _ = file.assess()
    file = file.model_copy(update={"verdict": verdict})
    return file.model_copy(update={"line": result_line(file)})


def _compare(options: argparse.Namespace) -> int:
    """Print the comparison of contest files, and draw it if there is an output."""
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
    rows, code = _measure_rows(app, options)
    # If the first job has failed, there is nothing to write. If a later job has failed, the earlier rows are written.
    if not rows:
        return code
    file = _contest_file(app, options, rows, load)
    try:
        written = results.write(file, options.output)
    finally:  # print the result even if the disk is full
        print(summary(file))
    print(f"\n{path_for_stdout(written)}")
    if code:
        _say(f"the file has {pluralize(len(rows), 'row')}: the job of the next row ended with exit code {code}.")
    return code
