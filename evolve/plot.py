"""python -m evolve.plot: what runs have come to, as a picture."""

import sys
import time
from pathlib import Path

from evolve import figures, store
from evolve.cluster import World
from evolve.commands import Parser, launch
from evolve.errors import InputError, RunError
from evolve.evolution import load_config
from evolve.stopping import StopFlag

_LOOK_EVERY = 1.0  # seconds


def _parser() -> Parser:
    parser = Parser(
        "evolve.plot",
        "Draw fitness, connections, throughput and idle workers of run files. Files of one experiment are summed up.",
        "python -m evolve.plot runs/CartPole-v1-hebbian-dag/seed-*.h5 -o curves.svg",
        "python -m evolve.plot runs/CartPole-v1-hebbian-dag/seed-0.h5 --live",
    )
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="run files, complete or not")
    add("-o", "--output", type=Path, default=Path("curves.png"), metavar="OUT", help="curves.png, or .svg, or .pdf")
    add("-x", "--over", choices=("generation", "steps", "time"), default="generation", help="the axis (generation)")
    add(
        "--live",
        action="store_true",
        help="wait for the files, and draw again whenever one changes, until all are complete",
    )
    return parser


def draw(files: list[Path], output: Path, over: str) -> bool:
    """Draw run files; return whether all of them are complete. Raises InputError, and RunError when all are empty."""
    runs = [store.read(path) for path in files]
    told = [(run, load_config(run.header.config, str(run.path))) for run in runs if run.told]
    if not told:
        raise RunError(f"{', '.join(map(str, files))}: no generation has been told yet, so there is nothing to draw")
    figures.plot(figures.experiments(told), output, over)
    return all(run.complete for run in runs)


def _follow(files: list[Path], output: Path, over: str, stop: StopFlag) -> None:
    seen: list[int] = []
    while stop.reason() is None:
        now = [path.stat().st_mtime_ns if path.exists() else 0 for path in files]
        if all(now) and now != seen and any(store.read(path).told for path in files):
            seen = now
            print(f"{time.strftime('%H:%M:%S')}  {output}", flush=True)
            if draw(files, output, over):
                return
        time.sleep(_LOOK_EVERY)


def _body(_world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.output.suffix not in figures.FORMATS:
        raise InputError("-o/--output", f"a name that ends with {' or '.join(figures.FORMATS)}", str(arguments.output))
    if arguments.live:
        _follow(arguments.files, arguments.output, arguments.over, stop)
    else:
        draw(arguments.files, arguments.output, arguments.over)
        print(arguments.output)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("plot", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
