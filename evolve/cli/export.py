"""evolve export: a run's champion as a small file or as C source, or the run's numbers for other tools."""

import argparse
from pathlib import Path

from evolve import store
from evolve.analysis import c_source, champion, runs, tensorboard
from evolve.cli.app import App, launch
from evolve.cli.parser import Parser, file_argument, one_run_file
from evolve.store.disk import check_writable


def _parser() -> Parser:
    parser = Parser(
        "evolve.export",
        "Write the final champion of a run to a small file, which replay, evaluate, verify, plot --network and "
        "evolve.load take; or as C source; or write the run's numbers by generation.",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 -o pole.champion",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 --c -o pole.c",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 --csv",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 --tensorboard -o logs/pole",
    )
    add = parser.add_argument
    add("file", type=file_argument, metavar="FILE", help="a run file, or its directory; with --c also a champion file")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--c", action="store_true", help="the champion's network as one C file without dependencies")
    kinds.add_argument("--csv", action="store_true", help="its columns by generation, as CSV")
    kinds.add_argument("--tensorboard", action="store_true", help="the same columns as an event file, in a directory")
    out = f"by default the name of FILE with {champion.SUFFIX}, .c or .csv, or -tensorboard, beside it"
    add("-o", "--output", type=Path, metavar="OUT", help=out)
    return parser


def _output(options: argparse.Namespace) -> Path:
    """Return the output path. Raises InputError if it cannot be written, before any work."""
    file: Path = options.file
    given: Path | None = options.output
    if options.tensorboard:
        tensorboard.check_library("--tensorboard")
        return given or file.with_name(f"{file.stem}-tensorboard")
    suffix = ".csv" if options.csv else ".c" if options.c else champion.SUFFIX
    output = given or file.with_suffix(suffix)
    check_writable(output, (suffix,))
    return output


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    options.file = one_run_file(options.file)
    if options.c:
        output = _output(options)
        c_source.write(store.read_any(options.file), output)
        print(output)
        return 0
    run = store.read(options.file)
    if not run.num_generations:
        raise store.no_generation(run.path, "there is nothing to export")
    output = _output(options)
    if options.csv:
        runs.write_csv(run, output)
    elif options.tensorboard:
        tensorboard.write(run, output)
    else:
        champion.export_champion(run, output)
    print(output)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("export", _body, argv)
