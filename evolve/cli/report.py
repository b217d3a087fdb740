"""evolve report: all that is known of runs, on one page that needs nothing else to be read.

The champions of the runs are filmed for it, and evaluated again, over however many ranks there are.
"""

import sys
from pathlib import Path

from evolve import environments
from evolve.analysis import html
from evolve.analysis.groups import deduplicate_seeds, read_groups
from evolve.analysis.run_summary import RunSummary, summarize_run
from evolve.cli.app import App, launch
from evolve.cli.parser import Parser
from evolve.cli.run_files import run_files
from evolve.cli.workers import Work, add_workers_option
from evolve.store.disk import check_writable

_QUICK = "No film was made (--quick)."


def _parser() -> Parser:
    parser = Parser(
        "evolve.report",
        "Make a page of run files, complete or not: curves, network, film, held-out evaluation, verification, load, "
        "configuration. The page needs no network connection to be read.",
        "python -m evolve.report runs/CartPole-v1-hebbian-dag/seed-*.h5 -o report.html",
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="run files, complete or not, or directories"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="OUT", help="report.html")
    quick = "play no episode: no film, no verification, only what the files hold"
    parser.add_argument("--quick", action="store_true", help=quick)
    add_workers_option(parser)
    return parser


def _body(app: App, argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    check_writable(arguments.output, html.FORMATS)
    html.check_libraries()
    environments.without_display()
    runs, groups = read_groups(run_files(arguments.files))
    if left_out := deduplicate_seeds(groups)[1]:
        print(f"evolve.report: {left_out}", file=sys.stderr)
    begun = [run for group in groups for run in group.runs]
    if arguments.quick:
        summaries = [RunSummary(run, why_no_film=_QUICK) for run in begun]
    else:
        summaries = [summarize_run(run, app.coordinator(), app.transport) for run in begun]
    empty = [run.path for run in runs if not run.num_generations]
    html.save(html.render(groups, summaries, empty), arguments.output)
    print(arguments.output)
    return 0


def _work(argv: list[str]) -> Work:
    _parser().parse_args(argv)
    return Work()


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("report", _body, argv, _work)
