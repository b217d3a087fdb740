"""python -m evolve.verify: are two runs equal, or, with one file, does this machine get the same?

Two files are compared in all that they hold. One file, which may have been made anywhere, is checked by evaluating the
champion of each of its generations again, on the very episodes it was scored on, over however many ranks there are; or,
with --full, by running all of it again. Where they part, and why, is told: see `evolve.divergence`.
"""

import json
import sys
from pathlib import Path

from evolve import store, strategies
from evolve.cluster import World
from evolve.commands import Parser, coordinator, launch
from evolve.console import Watch, width
from evolve.divergence import Verdict, again, compare, from_the_beginning, tolerant
from evolve.errors import InputError, RunError
from evolve.experiment import reload
from evolve.manifest import manifest
from evolve.numerics import backend
from evolve.stopping import StopFlag
from evolve.store import Run


def _parser() -> Parser:
    parser = Parser(
        "evolve.verify",
        "Compare two run files; or evaluate one run's champions again on this machine. Exit 0: equal; 1: different, "
        "and the first difference told: configuration, random stream, strategy, environment or network, and the step.",
        "python -m evolve.verify runs/here/seed-13.h5 runs/there/seed-13.h5",
        "mpirun -n 8 python -m evolve.verify their.h5",
        "mpirun -n 8 python -m evolve.verify their.h5 --full --json",
    )
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE", help="a run file, to be evaluated again; or two, to be compared")
    add("--full", action="store_true", help="with one file: run all of it again and compare everything")
    add("--json", action="store_true", help="print the verdict as JSON, for machines")
    return parser


def _check(run: Run, full: bool, quiet: bool, world: World, stop: StopFlag) -> Verdict:
    """Evaluate a run again on this machine."""
    experiment = tolerant(reload(run))
    config = experiment.config
    here = manifest(world, backend(config.compute.backend), strategies.portable(config.strategy))
    if not full:
        return again(run, experiment, coordinator(world, config, stop), here)
    farm = coordinator(world, config, stop)
    with Watch(run.header.seed, 0, run.told, quiet) as watch:
        farm.progress = watch.within
        return from_the_beginning(run, experiment, farm, here, watch)


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = _parser().parse_intermixed_args(argv)
    if len(arguments.files) > 2 or (arguments.full and len(arguments.files) > 1):
        expected = "one run file with --full" if arguments.full else "one run file, or two"
        raise InputError("FILE", expected, f"{len(arguments.files)} of them")
    run, *others = (store.read(path) for path in arguments.files)
    other = others[0] if others else None
    if not run.records and (other is None or not other.records):
        what = "verify" if other is None else "compare"
        raise RunError(f"{run.path}: no generation has been told yet, so there is nothing to {what}")
    found = compare(run, other) if other is not None else _check(run, arguments.full, arguments.json, world, stop)
    print(json.dumps(found.to_json(), indent=2) if arguments.json else found.to_text(width()))
    return 0 if found.equal else 1


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("verify", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
