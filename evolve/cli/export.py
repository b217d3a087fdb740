"""evolve export: write a run's champion for this or another program, or the run's numbers for other tools."""

import argparse
import os
from pathlib import Path

from evolve import store
from evolve.analysis import champion, exports, runs, tensorboard
from evolve.cli.app import App, path_for_stdout
from evolve.cli.parser import Parser, file_argument, genome_choice_of
from evolve.errors import InputError
from evolve.store.disk import check_writable
from evolve.training.stored import check_which

_SUFFIXES = {"champion": champion.SUFFIX, **exports.FORMATS, "csv": ".csv", "tensorboard": ""}
"""The ending of the output file, by format; empty for TensorBoard, whose output is a directory."""


def _parser() -> Parser:
    parser = Parser(
        "evolve.export",
        "Write the final champion of a run to a small file, which replay, evaluate, verify, plot --network and "
        "evolve.load read. Or write this or another genome as C, JSON, ONNX or PyTorch, for use without evolve. Or "
        "write the run's numbers by generation.",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 -o pole.champion",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 --format c",
        "evolve export pole.champion -o pole.onnx",
        "evolve export runs/Acrobot-v1-mlp/seed-0.h5 --connections 20 -o small.c",
        "evolve export runs/CartPole-v1-hebbian-dag/seed-0.h5 --format tensorboard -o logs/pole",
    )
    add = parser.add_argument
    add("file", type=file_argument, metavar="FILE", help="a run file, its directory, or a champion file")
    formats = "champion (the default); c, json, onnx, torch: the network; csv, tensorboard: the run by generation"
    add("--format", choices=_SUFFIXES, help=f"{formats}. Without --format, the ending of OUT decides")
    endings = ", ".join(suffix for suffix in _SUFFIXES.values() if suffix)
    file = f"the output file (FILE with the ending {endings}); an existing file is replaced"
    directory = "For tensorboard, the output directory (FILE-tensorboard)"
    add("-o", "--output", type=Path, metavar="OUT", help=f"{file}. {directory}")
    parser.add_genome_choice()
    return parser


def _output(options: argparse.Namespace) -> tuple[str, Path]:
    """Return the format and the output path. Raises InputError if the output cannot be written."""
    file: Path = options.file
    requested: Path | None = options.output
    if options.format == "tensorboard":
        tensorboard.check_library("--format tensorboard")
        return options.format, requested or file.with_name(f"{file.stem}-tensorboard")
    by_suffix = {suffix: name for name, suffix in _SUFFIXES.items() if suffix}
    format_name = options.format or by_suffix.get(requested.suffix if requested else "", "champion")
    output = requested or file.with_suffix(_SUFFIXES[format_name])
    # Path.exists raises an error without permission.
    if os.path.exists(output) and os.path.exists(file) and output.samefile(file):
        raise InputError("output", "another file than FILE, which is not replaced", str(output))
    check_writable(output, (_SUFFIXES[format_name],) if options.format else tuple(by_suffix))
    return format_name, output


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    options.file = store.one_run_file(options.file)
    format_name, output = _output(options)
    genome_choice = genome_choice_of(options)
    # `store.read` refuses a champion file, which has no numbers by generation.
    run = store.read(options.file) if format_name in ("csv", "tensorboard") else store.read_any(options.file)
    store.check_begun("there is nothing to export", run)
    check_which(run, genome_choice)
    if not genome_choice.is_final_champion and format_name not in exports.FORMATS:
        formats = f"one of {', '.join(exports.FORMATS)} for a genome other than the final champion"
        why = "A champion file holds the held-out returns of the final champion." if format_name == "champion" else ""
        raise InputError("format", formats, format_name, why)
    # The public `export` expects the same call on all ranks, but under mpirun the other ranks serve this command.
    wrapped = runs.wrap_stored(run)
    if format_name == "tensorboard" and isinstance(run, store.StoredRun):
        tensorboard.write(run, output)
    elif not genome_choice.is_final_champion:
        wrapped._policy(genome_choice).export(output)
    else:
        wrapped._export(output)
    print(path_for_stdout(output))
    return 0
