"""The commands, and the parts that only a command line needs: options, signals, exit codes.

Only the entry points, such as `evolve.run`, import this package. `python -m evolve.run …` and `evolve run …` are the
same command. Each command has a module of its own; `app` holds their common frame, and `parser` their command lines.
"""

import gc
import importlib
import os
import signal
import sys
from typing import Any, NoReturn

from evolve import __version__

COMMANDS = {
    "run": "evolve an experiment; each seed has a run file; --resume continues",
    "launch": "start and restart the ranks of a run on several hosts until it is complete; takes run's arguments, too",
    "info": "print the contents of a run file or a champion file in a few lines",
    "verify": "check that two runs are equal, or that this machine repeats a run; print the first difference",
    "replay": "play episodes of a run again, compare them with the log, film or show them",
    "evaluate": "play held-out episodes with a run's champion; print the mean return and its 95 % interval",
    "plot": "draw curves of runs, or the network of a champion, as PNG, SVG or PDF",
    "report": "write one HTML page with everything about runs",
    "export": "write a run's champion as a small file or as C; or its numbers as CSV, or for TensorBoard",
    "doctor": "say what works in this installation and what is missing, with the commands that install it",
    "bench": "measure the speed, as a ratio to bare environments",
    "contest": "compare machines on work that digests prove to be equal",
    "completion": "print a script that completes commands and options at Tab, for bash, zsh, fish or tcsh",
}

_HELP = """evolve: neuroevolution over MPI, the same bits on any number of ranks

{commands}

Each command explains its options with --help; `python -m evolve.run` is `evolve run`.
run, verify, evaluate and report use many processes with --workers N, or mpirun -n RANKS in front.

example: evolve run -e BipedalWalker-v3 -p 64 -g 50 --workers auto"""


def start(command: str, argv: list[str] | None = None) -> NoReturn:
    """Run a command as the program of this process, and exit with its code. argv: by default `sys.argv[1:]`."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        print(f"evolve.{command}: the current directory was removed. Change to another directory.", file=sys.stderr)
        sys.exit(2)
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: the module of `-e module:Env-v0` may be here
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt during the imports ends the process
    (app,) = imported("evolve.cli.app")
    # A process that only starts ranks, or serves rank 0, does not need the module of the command.
    code = app.launch_light(command, sys.argv[1:] if argv is None else argv)
    if code is None:
        (module,) = imported(f"evolve.cli.{command}")
        code = module.main(argv)
    app.exit_in_time(code)
    sys.exit(code)


def imported(*modules: str) -> list[Any]:
    """Import modules and return them. The garbage collector never scans the imported objects, as they stay alive."""
    gc.disable()
    found = [importlib.import_module(module) for module in modules]
    gc.freeze()
    gc.enable()
    return found


def main() -> None:
    """Run `evolve COMMAND …`; without a command, list the commands. Exits with 2 for an unknown command."""
    command, *argv = sys.argv[1:] or ["--help"]
    if command in COMMANDS:
        start(command, argv)
    if command not in ("-h", "--help", "--version"):
        from evolve.config import nearest  # noqa: PLC0415 - not needed for the list of commands

        cure = nearest(command, COMMANDS, listed=True)
        print(f"evolve: expected a command, got {command!r}. {cure}", file=sys.stderr)
        sys.exit(2)
    commands = "\n".join(f"  evolve {name:10} {summary}" for name, summary in COMMANDS.items())
    try:
        print(f"evolve {__version__}" if command == "--version" else _HELP.format(commands=commands), flush=True)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # if the reader has gone, stay silent
            print(f"evolve: the output cannot be written ({error}).", file=sys.stderr, flush=True)
        os._exit(1)  # another exit would try to write again
