"""The options of the contest, and which of them go together."""

import argparse
from pathlib import Path

from evolve.analysis import contest, figures
from evolve.cli.parser import HIDDEN, Parser
from evolve.cluster import Transport
from evolve.errors import InputError
from evolve.store.disk import check_writable

JOB = "--job"
"""The hidden option with which the contest starts itself; its value is the file for what was found."""
_TOGETHER = {  # what an option of a measurement goes without
    "compare": ("size", "workers", "backend", "price", "name", "validate", "unverified"),
    "validate": ("workers", "price", "name", "output", "unverified"),
}


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        "evolve.contest",
        "Play a fixed experiment, which digests prove to be the same everywhere, and say how long this machine takes.",
        "evolve contest --price 1.28/h",
        "evolve contest --size medium --workers 1 8 64 -o xeon.json",
        "evolve contest --validate",
        "evolve contest --compare xeon.json arm.json -o contest.svg",
    )
    add = made.add_argument
    sizes = "; ".join(f"{size.name}: {size.takes}" for size in contest.SIZES.values())
    add("--size", choices=tuple(contest.SIZES), help=f"how long a repeat takes on two cores (small). {sizes}")
    workers = "how many play, one after another (1, 2, 4, … and all cores; then a GPU, if there is one)"
    add("--workers", type=int, nargs="+", metavar="N", help=workers)
    kernels = "by which kernels (native, and cupy where there is a GPU)"
    add("--backend", choices=("native", "numpy", "cupy"), help=kernels)
    add("--price", metavar="P/h", help='what an hour of this machine costs, as in "1.28/h" or "$1.28/h"')
    add("--name", metavar="NAME", help="what to call this machine (its processor)")
    add("-o", "--output", type=Path, metavar="OUT", help="the file (contest-SIZE.json); with --compare a figure")
    add("--validate", action="store_true", help="only play the short run whose digest is known, and time nothing")
    add("--unverified", action="store_true", help="leave that run out; the result is called unverified")
    compare = "compare files of several machines, all against the first one"
    add("--compare", type=Path, nargs="+", metavar="FILE", help=compare)
    add("--markdown", action="store_true", help="with --compare: print the table as Markdown")
    add(JOB, type=Path, metavar="FILE", help=HIDDEN)
    return made


def read_options(argv: list[str], transport: Transport) -> argparse.Namespace:
    """Return the options, completed. Raises InputError for those that do not go together, before any work is done."""
    found = parser().parse_args(argv)
    for option, others in _TOGETHER.items():
        for other in others:
            if getattr(found, option) and getattr(found, other):
                raise InputError(f"--{other}", f"not both --{option} and --{other}", "both")
    if found.compare:
        _check_comparison(found, transport)
        return found
    if found.markdown:
        raise InputError("--markdown", "--compare, whose table it writes", "none")
    if found.workers and transport.size > 1:
        came = f"a job of {transport.size} ranks"
        raise InputError("--workers", "a contest that no launcher has started", came, "Leave out one of them.")
    if min(found.workers or [1]) < 1:
        raise InputError("--workers", "at least one worker", min(found.workers))
    if found.price is not None:
        found.price = contest.read_price(found.price)
    found.size = contest.SIZES[found.size or "small"]
    found.output = found.output or Path(f"contest-{found.size.name}.json")
    if found.job is None and not found.validate:
        contest.check_new(found.output)
    return found


def _check_comparison(found: argparse.Namespace, transport: Transport) -> None:
    if transport.size > 1:
        raise InputError("--compare", "one process", f"{transport.size} ranks", "Leave out mpirun.")
    if found.output is not None:
        figures.check_library()
        check_writable(found.output, figures.FORMATS)
