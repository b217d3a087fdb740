"""evolve verify: are two runs equal, or, with one file, does this machine repeat it?

Two files are compared in all that they hold. One file, which may have been made anywhere, is checked by evaluating the
champion of each of its generations again, on the very episodes it was selected by, over however many ranks there are;
or, with --full, by running all of it again. The first difference and its cause are named: see `evolve.verification`.
"""

import json
from pathlib import Path

from evolve import store
from evolve.cli.app import App, launch
from evolve.cli.parser import Parser
from evolve.cli.progress import ProgressReporter, width
from evolve.errors import InputError, RunError
from evolve.numerics import backend
from evolve.store import StoredRun
from evolve.training import is_portable, manifest, reload
from evolve.verification import Verdict, compare, reevaluate, rerun, tolerant


def _parser() -> Parser:
    parser = Parser(
        "evolve.verify",
        "Compare two run files; or evaluate one run's champions again on this machine. Exit 0: equal; 1: different, "
        "with the first difference: configuration, random stream, strategy, environment or network, and the step.",
        "python -m evolve.verify runs/here/seed-13.h5 runs/there/seed-13.h5",
        "mpirun -n 8 python -m evolve.verify their.h5",
        "mpirun -n 8 python -m evolve.verify their.h5 --full --json",
    )
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE", help="a run file, to be evaluated again; or two, to be compared")
    add("--full", action="store_true", help="with one file: run all of it again and compare everything")
    add("--json", action="store_true", help="print the verdict as JSON, for machines")
    return parser


def _check(app: App, run: StoredRun, full: bool, quiet: bool) -> Verdict:
    """Evaluate a run again on this machine."""
    experiment = tolerant(reload(run))
    config = experiment.config
    here = manifest(app.transport, backend(config.compute.backend), is_portable(config))
    coordinator = app.coordinator()
    if not full:
        return reevaluate(run, experiment, coordinator, here)
    with ProgressReporter(run.header.seed, 0, run.num_generations, quiet) as reporter:
        coordinator.progress = reporter.update
        return rerun(run, experiment, coordinator, here, reporter)


def _body(app: App, argv: list[str]) -> int:
    arguments = _parser().parse_intermixed_args(argv)
    if len(arguments.files) > 2 or (arguments.full and len(arguments.files) > 1):
        expected = "one run file with --full" if arguments.full else "one run file, or two"
        raise InputError("FILE", expected, f"{len(arguments.files)} of them")
    run, *others = (store.read(path) for path in arguments.files)
    other = others[0] if others else None
    if not run.records and (other is None or not other.records):
        what = "verify" if other is None else "compare"
        raise RunError(f"{run.path}: no generation is complete yet, so there is nothing to {what}")
    found = compare(run, other) if other is not None else _check(app, run, arguments.full, arguments.json)
    print(json.dumps(found.to_json(), indent=2) if arguments.json else found.to_text(width()))
    return 0 if found.equal else 1


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("verify", _body, argv)
