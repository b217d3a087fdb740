"""evolve report: write one HTML page about runs. The page needs no other file.

`evolve.analysis.html` makes the page. Without `--quick`, the ranks evaluate champions of each run again, and rank 0
films the best champion of each experiment. `evolve run --report` calls `check` and, after its runs, `write_after_runs`.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from evolve import environments
from evolve.analysis import html, video
from evolve.analysis.html.tables import RunSummary
from evolve.analysis.progress import ReportProgress
from evolve.analysis.run_groups import deduplicate_seeds, read_groups
from evolve.cli.app import App, path_for_stdout, say
from evolve.cli.parser import Parser, command_line, file_argument
from evolve.cluster.cores import Work
from evolve.errors import InputError, Stopped, is_installed, sanitize
from evolve.store import StoredRun, run_files
from evolve.store.disk import check_writable
from evolve.store.reading import by_numbers
from evolve.training.experiment import PlannedRun
from evolve.training.plan import threads_for

_LIBRARIES = ("jinja2", "matplotlib", "PIL", "av", "gymnasium", "pygame", "Box2D")
"""The modules that make the page, and that draw exact tasks for the films."""
_MOST_SEEDS = 8  # in the name of a page; of more seeds only the first and the last are in the name


def _parser() -> Parser:
    parser = Parser(
        "evolve.report",
        "Write a page about run files, complete or not: curves, network, film, held-out evaluation, verification, "
        "load, configuration. The page can be read without a network connection.",
        "evolve report runs/CartPole-v1-hebbian-dag/seed-*.h5 -o report.html",
    )
    files = "run files, complete or not, or directories"
    parser.add_argument("files", nargs="+", type=file_argument, metavar="FILE", help=files)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="OUT", help="the page (report.html)"
    )
    quick = "play no episode; the page then has no film and no verification"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_workers()
    return parser


def write_page(app: App, files: Sequence[Path], output: Path, quick: bool = False) -> bool:
    """Write the page about run files; return whether it has a film.

    quick: Whether to play no episode. The page then has no film and no verification.

    Raises InputError if a file cannot be read or the page cannot be written, RunError if no run has a complete
    generation, and Stopped.
    """
    check_stop = app.stop.check
    runs, groups = read_groups(files, check_stop)
    # The page has all runs, but compares only one run of each seed. The notes name the others.
    _, notes = deduplicate_seeds(groups)
    for note in notes:
        say("report", note)
    if quick:
        page, has_film = html.make_page(runs, groups, None, check_stop)
    else:
        num_begun = sum(len(group.runs) for group in groups)
        with ReportProgress(num_begun) as progress:
            page, has_film = html.make_page(runs, groups, partial(_summarize, app, progress), check_stop)
    html.save(page, output)
    return has_film


def _summarize(app: App, progress: ReportProgress, run: StoredRun, with_film: bool) -> RunSummary:
    """Play episodes of a run again for the page, and show the progress."""
    progress.start(run.path)
    coordinator = app.coordinator()
    coordinator.progress = progress.update
    return html.summarize_run(run, with_film, coordinator, app.transport, app.stop.check)


def path_for(runs: Sequence[PlannedRun]) -> Path:
    """Return the path of the page about runs, in the directory that contains all their files.

    If other jobs, such as tasks of a SLURM array, have written runs to the same directories, the name of the page has
    the seeds of `runs`. So each job has its own page.
    """
    # Relative paths without a common directory have the common path "".
    directory = Path(os.path.commonpath([run.path.parent for run in runs]) or ".")
    own = {run.path for run in runs}
    if all(own.issuperset(run.path.parent.glob("seed-*.h5")) for run in runs):
        return directory / "report.html"
    seeds = sorted({run.seed for run in runs})
    seeds_text = "-".join(map(str, seeds)) if len(seeds) <= _MOST_SEEDS else f"{seeds[0]}-to-{seeds[-1]}"
    return directory / f"report-seed-{seeds_text}.html"


def can_check_later(runs: Sequence[PlannedRun]) -> bool:
    """Return whether `check` can wait until the first generation is complete.

    The check imports libraries, which takes longer than the start of a run. It can wait if it will certainly succeed:
    the libraries are installed, and all environments are exact tasks, which have no picture or one that cannot fail.
    """
    all_exact = all(run.experiment.config.env.engine == "exact" for run in runs)
    return all_exact and is_installed(*_LIBRARIES)


def check(runs: Sequence[PlannedRun], dry: bool = False) -> None:
    """Raise InputError if the page about runs cannot be made.

    A library may be missing, the path may not be writable, or an environment may fail to draw a frame.

    dry: Whether this is a dry run, which writes nothing. The path is then not checked, because the check writes a file.
    """
    environments.draw_without_display()
    html.check_libraries()
    video.check_library()
    if not dry:
        check_path(runs)
    envs = [run.experiment.config.env for run in runs]
    # Draw a frame of each distinct environment. All seeds of an experiment have the same one.
    distinct = {env.model_dump_json(): env for env in envs}
    for env in distinct.values():
        environments.try_drawing(env)


def check_path(runs: Sequence[PlannedRun]) -> None:
    """Raise InputError if the page about runs cannot be written."""
    page = path_for(runs)
    if page.parent.exists():  # otherwise the first run creates it, or reports the error
        check_writable(page, (page.suffix,))


def write_after_runs(app: App, runs: Sequence[PlannedRun]) -> str:
    """Write the page about runs that have ended; return a line with its path.

    Raises Stopped, with the command that makes the page later, if a stop is requested.
    """
    page = path_for(runs)
    # In the order of `evolve report DIR`, so that each experiment has the same colour on all pages and figures.
    files = sorted((run.path for run in runs), key=by_numbers)
    try:
        has_film = write_page(app, files, page)
    except Stopped as stop:
        later = command_line("report", *(files if len(files) == 1 else [page.parent]), "-o", page)
        raise Stopped(f"{stop}: the runs are complete, but not the report; make it with: {later}") from None
    return sanitize(f"Report{' with film' if has_film else ''}: {page}", 4000)  # do not cut a long path


def _body(app: App, argv: list[str]) -> int:
    arguments = _parser().parse_with_files(argv)
    check_writable(arguments.output, html.FORMATS)
    html.check_libraries()
    environments.draw_without_display()
    write_page(app, run_files(arguments.files), arguments.output, arguments.quick)
    print(path_for_stdout(arguments.output))
    return 0


def _work(argv: list[str]) -> Work:
    """Return the number of threads with which episodes are played. Raises InputError for wrong arguments."""
    arguments = _parser().parse_with_files(argv)
    if arguments.quick:
        raise InputError("--quick", "no --workers with it, because it plays no episode", "both")
    return Work(threads=threads_for(run_files(arguments.files)))
