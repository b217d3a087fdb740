"""python -m evolve.report: all that is known of runs, on one page that needs nothing else to be read."""

import sys
from pathlib import Path

from evolve import pages
from evolve.cluster import World
from evolve.commands import Parser, launch
from evolve.drawings import gather
from evolve.errors import InputError
from evolve.stopping import StopFlag


def _parser() -> Parser:
    parser = Parser(
        "evolve.report",
        "Make a page of run files, complete or not: curves, network, held-out evaluation, configuration. It needs "
        "no network to be read.",
        "python -m evolve.report runs/CartPole-v1-hebbian-dag/seed-*.h5 -o report.html",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="run files, complete or not")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="OUT", help="report.html")
    return parser


def _body(_world: World, _stop: StopFlag, argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    output: Path = arguments.output
    if output.suffix not in pages.FORMATS:
        raise InputError("-o/--output", f"a name that ends with {' or '.join(pages.FORMATS)}", str(output))
    runs, experiments = gather(arguments.files)
    stories = [pages.Story(run) for experiment in experiments for run in experiment.runs]
    pages.save(pages.render(experiments, stories, [run.path for run in runs if not run.told]), output)
    print(output)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("report", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
