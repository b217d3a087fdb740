"""evolve export: write a run's champion for this or another program, or the run's numbers for other tools."""

import argparse
import os
from pathlib import Path

from evolve import store
from evolve.analysis import champion, exports, runs, tensorboard
from evolve.cli.app import App, shown
from evolve.cli.parser import Parser, file_argument, which_of
from evolve.errors import InputError
from evolve.store.disk import check_writable
from evolve.training.stored import check_which

_SUFFIXES = {"champion": champion.SUFFIX, **exports.FORMATS, "csv": ".csv", "tensorboard": ""}


def _parser() -> Parser:
    parser = Parser(
        "evolve.export",
        "Write the final champion of a run to a small file, which replay, evaluate, verify, plot --network and "
        "evolve.load take; or this or another genome as C, JSON, ONNX or PyTorch, for use without evolve; or write the "
        "run's numbers by generation.",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 -o pole.champion",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 --format c",
        "evolve export pole.champion -o pole.onnx",
        "evolve export runs/Acrobot-v1-mlp/seed-0.h5 --connections 20 -o small.c",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 --format tensorboard -o logs/pole",
    )
    add = parser.add_argument
    add("file", type=file_argument, metavar="FILE", help="a run file, its directory, or a champion file")
    formats = "champion (the default); c, json, onnx, torch: its network; csv, tensorboard: its columns by generation"
    add("--format", choices=_SUFFIXES, help=f"{formats}. Without it, the ending of OUT decides")
    endings = ", ".join(suffix for suffix in _SUFFIXES.values() if suffix)
    out = f"the file (beside FILE, with its name and {endings}), or the directory (FILE-tensorboard)"
    add("-o", "--output", type=Path, metavar="OUT", help=out)
    parser.add_which()
    return parser


def _output(options: argparse.Namespace) -> tuple[str, Path]:
    """Return the format and the output path. Raises InputError if the output cannot be written."""
    file: Path = options.file
    given: Path | None = options.output
    if options.format == "tensorboard":
        tensorboard.check_library("--format tensorboard")
        return options.format, given or file.with_name(f"{file.stem}-tensorboard")
    by_suffix = {suffix: name for name, suffix in _SUFFIXES.items() if suffix}
    chosen = options.format or by_suffix.get(given.suffix if given else "", "champion")
    output = given or file.with_suffix(_SUFFIXES[chosen])
    if os.path.exists(output) and output.samefile(file):  # Path.exists raises an error without permission
        raise InputError("output", "another file than FILE, which is not replaced", str(output))
    check_writable(output, (_SUFFIXES[chosen],) if options.format else tuple(by_suffix))
    return chosen, output


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    options.file = store.one_run_file(options.file)
    chosen, output = _output(options)
    which = which_of(options)
    # A champion file has no numbers by generation.
    run = store.read(options.file) if chosen in ("csv", "tensorboard") else store.read_any(options.file)
    store.check_begun("there is nothing to export", run)
    check_which(run, which)
    if not which.is_final_champion and chosen not in exports.FORMATS:
        formats = f"one of {', '.join(exports.FORMATS)} for a genome other than the final champion"
        why = "A champion file holds the held-out returns of the final champion." if chosen == "champion" else ""
        raise InputError("format", formats, chosen, why)
    # `Run.export` would expect the same call on all ranks, but under mpirun the other ranks serve this command.
    file = runs.wrap_stored(run)
    if chosen == "tensorboard" and isinstance(run, store.StoredRun):
        tensorboard.write(run, output)
    elif not which.is_final_champion:
        file._policy(which).export(output)
    else:
        file._export(output)
    print(shown(output))
    return 0
