"""How traffic, rank 0's time and its memory grow with weights, candidates and ranks, in the training loop.

    python benchmarks/scale.py --ranks 1 3 -o scale.png
    python benchmarks/scale.py --weights 1000 100000 --candidates 256 --budget 60

It starts mpirun itself. `docs/performance.md` has the results.
"""

import argparse
import json
import sys
from pathlib import Path

from device_parts.measurement import check_figure, hooks
from scale_parts.cell import MEASURE, measure
from scale_parts.grid import Cell
from scale_parts.measurement import SCALE_BUDGET, cells, draw_scale, measure_scale

from evolve.cli.app import App, launch
from evolve.cli.parser import Parser
from evolve.errors import InputError


def _parser() -> Parser:
    made = Parser(
        "benchmarks/scale.py",
        __doc__.partition("\n")[0],
        "python benchmarks/scale.py --ranks 1 3 -o scale.png",
        "python benchmarks/scale.py --weights 1000 100000 --candidates 256 --budget 60",
    )
    add = made.add_argument
    add("--weights", type=int, nargs="+", metavar="W", help="about how many weights, 100 to 10,000,000")
    add("--candidates", type=int, nargs="+", metavar="P", help="how many candidates, 64 to 16,384")
    add("--ranks", type=int, nargs="+", metavar="R", help="ranks: a coordinator and R - 1 workers")
    add("--budget", type=float, metavar="SECONDS", default=SCALE_BUDGET, help="about how long it may take")
    add("--json", action="store_true", help="print the figures as JSON")
    add("-o", "--figure", type=Path, metavar="OUT", help="draw it, as OUT.png, .svg or .pdf")
    add(MEASURE, metavar="FOLDER", help=argparse.SUPPRESS)
    return made


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if options.measure:
        return measure(Cell(options.weights[0], options.candidates[0], app.transport.size), app, options.measure)
    if app.transport.size > 1:
        raise InputError("mpirun", "this script to be started alone: it starts mpirun itself", app.transport.size)
    if not options.budget >= 0:  # also nan
        raise InputError("--budget", "at least 0", options.budget)
    if min(options.ranks or [1]) < 1:
        raise InputError("--ranks", "at least one rank", min(options.ranks))
    check_figure(options.figure)

    show, check = hooks(app, options.json)
    grid = cells(options.weights, options.candidates, options.ranks)
    found = measure_scale(grid, options.budget, show, check)
    if options.figure is not None:
        draw_scale(found, options.figure)
        show(f"\n{options.figure}")
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(launch("scale", body=_body))
