"""The commands, and everything that only a command line needs: options, signals, exit codes.

Only the entry points, such as `evolve.run`, import this package. `python -m evolve.run …` and `evolve run …` are the
same command. Each command has a module of its own. `app` starts commands, and `parser` reads their command lines.
"""

import gc
import importlib
import os
import signal
import sys
from functools import cache
from typing import Any, NoReturn

from evolve import __version__

COMMANDS = {
    "run": "evolve an experiment; each seed has a run file; --resume continues",
    "launch": "evolve on several hosts; restart the ranks until the run is complete",
    "info": "print the contents of a run file or a champion file in a few lines",
    "evaluate": "play held-out episodes with the champion; print the mean return",
    "replay": "play episodes of a run again, compare them with the log, film them",
    "plot": "draw curves of runs, or the network of a champion",
    "report": "write an HTML page about runs: curves, film, network, verification",
    "export": "write the champion as a small file or as C, or the numbers as CSV",
    "verify": "compare two runs, or test if this machine repeats a run",
    "doctor": "say what works in this installation, and how to install the rest",
    "bench": "measure the speed, relative to environments without networks and MPI",
    "contest": "compare machines on work that digests prove to be equal",
    "completion": "print a script that completes commands and options at Tab",
}
_HEADINGS = {"run": "Train:", "info": "Look at runs and check them:", "doctor": "This machine:"}
"""The headings in the list of commands, each above its first command."""

_HELP = """evolve: neuroevolution over MPI, the same bits on any number of ranks
{commands}

Each command explains its options with --help; `python -m evolve.run` is `evolve run`.
run, verify, evaluate and report use many processes with --workers N, or mpirun -n RANKS in front.

example: evolve run -e BipedalWalker-v3 -p 64 -g 50 --workers auto"""


def start(command: str, argv: list[str] | None = None) -> NoReturn:
    """Run a command as the program of this process, and exit with its code. `argv` is `sys.argv[1:]` by default."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        print(f"evolve.{command}: the current directory was removed. Change to another directory.", file=sys.stderr)
        sys.exit(2)
    if "" not in sys.path and here not in sys.path:
        # The module of `-e module:Env-v0` may be here, see `errors.import_user_module`. The directory comes last,
        # because a folder from a stranger may have files with the names of Python's modules.
        sys.path.append(here)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports prints no traceback
    (app,) = import_and_freeze("evolve.cli.app")
    code = app.launch(command, argv)
    app.ensure_exit(code)  # ends the process later if a thread of an environment blocks `sys.exit`
    sys.exit(code)


@cache  # because a later call for the same modules would only exempt garbage from collection
def import_and_freeze(*modules: str) -> list[Any]:
    """Import modules and return them. Imported objects stay alive, so the garbage collector never scans them."""
    gc.disable()
    loaded = [importlib.import_module(module) for module in modules]
    gc.freeze()
    gc.enable()
    return loaded


def main() -> None:
    """Run `evolve COMMAND …`; without a command, list the commands. Exits with 2 for an unknown command."""
    command, *argv = sys.argv[1:] or ["--help"]
    if command in COMMANDS:
        start(command, argv)
    if command not in ("-h", "--help", "--version"):
        from evolve.config import suggest  # noqa: PLC0415 - not needed for the list of commands

        cure = suggest(command, COMMANDS, listed=True)
        print(f"evolve: expected a command, got {command!r}. {cure}", file=sys.stderr)
        sys.exit(2)
    lines = []
    for name, summary in COMMANDS.items():
        if name in _HEADINGS:
            lines += ["", _HEADINGS[name]]
        lines.append(f"  evolve {name:10} {summary}")
    text = f"evolve {__version__}" if command == "--version" else _HELP.format(commands="\n".join(lines))
    try:
        print(text, flush=True)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # if the reader has gone, stay silent
            print(f"evolve: the output cannot be written ({error}).", file=sys.stderr, flush=True)
        os._exit(1)  # another exit would try to write again
