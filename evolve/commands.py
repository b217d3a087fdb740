"""What every command shares: joining the world, one plain message for every error, and the exit code."""

import argparse
import errno
import faulthandler
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, TextIO

from evolve.cluster import Coordinator, World, connect, dismiss, serve
from evolve.cluster.world import launched
from evolve.config import Config, nearest
from evolve.environments import chunk_seconds
from evolve.errors import EvolveError, InputError
from evolve.experiment import make_rollout
from evolve.rollout import Rollout
from evolve.stopping import StopFlag

HIDDEN = argparse.SUPPRESS
"""The help of an option that is not for people."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Body = Callable[[World, StopFlag, list[str]], int]


_MISTAKES = {
    r"argument (\S+): invalid int value: '(.*)'": "a whole number",
    r"argument (\S+): invalid float value: '(.*)'": "a number",
    r"argument (\S+): expected (?:one|at least one) argument()": "a value",
    r"the following arguments are required: (.+)()": "a value",
}
"""What argparse complains of, naming the option and what came; and what was expected."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises InputError instead of printing the usage and exiting.

    name: the command, `evolve.…`; examples: command lines that the help ends with.
    """

    def __init__(self, name: str, description: str, *examples: str) -> None:
        super().__init__(
            prog=name,
            description=description,
            epilog="\n  ".join([f"example{'s' * (len(examples) > 1)}:", *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise InputError that names the option; near names are offered for unknown ones."""
        for wrong, expected in _MISTAKES.items():
            if found := re.fullmatch(wrong, message):
                raise InputError(found[1], expected, found[2] or "none")
        unknown = re.search(r"unrecognized arguments: (-\S+)", message)
        known = [option for action in self._actions for option in action.option_strings]
        cure = nearest(unknown[1], known, cutoff=0.6) if unknown else f"See python -m {self.prog} --help."
        came = message.removeprefix("unrecognized arguments: ")
        raise InputError("command line", "arguments that it knows", came, cure)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Leave by an exception that no environment can raise."""
        raise _Answered(message or "")


class _Answered(EvolveError):  # noqa: N818 - nothing went wrong
    """The command line asked for help, and has been answered."""

    exit_code = 0


def launch(name: str, body: Body, argv: list[str] | None) -> int:
    """Run a command on every rank and return its exit code: rank 0 runs `body`, the others serve it.

    Errors are printed once, by rank 0, as one plain message. The workers are always told to leave; whatever else
    happens on a rank ends the job, so that none waits for another in vain.
    """
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # it was closed before we began
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    stop = StopFlag()
    stop.install()  # before MPI starts: an interrupt in there would leave the other ranks waiting
    try:
        world = connect()
    except InputError as wrong:
        if launched()[1] != 0:
            return 0  # a launcher ends the job at the first failure: rank 0's message has to come before it
        print(f"evolve.{name}: {wrong}", file=sys.stderr)
        return wrong.exit_code
    faulthandler.enable()  # after MPI, which has such a handler too, but knows nothing of Python
    try:
        if world.rank != 0:
            serve(world, _ready_rollout, lambda: stop.signal)
            world.leave(0)
            return 0
        code = _guarded(name, lambda: body(world, stop, sys.argv[1:] if argv is None else argv))
        left = dismiss(world)
        if not left or world.abandoned:
            sys.stdout.flush()
            world.abort(code)  # whatever they do, the work is done, or has failed
        world.leave(code)
        return code
    except EvolveError as wrong:  # rank 0 has died: one of those that are left says so
        if world.rank == min(set(range(world.size)) - world.gone):
            print(f"evolve.{name}: {wrong}", file=sys.stderr, flush=True)
        world.abort(1)
        return 1
    except BaseException:
        traceback.print_exc()
        world.abort(1)
        return 1


def _guarded(name: str, body: Callable[[], int]) -> int:
    try:
        code = _answered(body)
        sys.stdout.flush()
        return code
    except EvolveError as wrong:
        message = f"evolve.{name}: {wrong}".encode("utf-8", "backslashreplace").decode()
        print(message, file=sys.stderr)
        return wrong.exit_code
    except BrokenPipeError:  # the reader of our output has left: say nothing more, not even at exit
        discard(sys.stdout)
        return 1
    except BaseException as wrong:
        if isinstance(wrong, OSError) and wrong.errno in _FULL:
            discard(sys.stdout)
            print(f"evolve.{name}: the output cannot be written ({wrong}).", file=sys.stderr)
        else:
            traceback.print_exc()
        return 1


class Indifferent:
    """Stands in for stdout where the results are in a file: when nobody reads it or it is full, the work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            self._stream.write(text)
        except OSError:
            discard(self._stream)
        return len(text)

    def flush(self) -> None:
        """Write what is held back, or drop it."""
        try:
            self._stream.flush()
        except OSError:
            discard(self._stream)


def discard(stream: TextIO) -> None:
    """Have a stream that cannot be written lead nowhere, so that not even the end of this process complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _answered(body: Callable[[], int]) -> int:
    try:
        return body()
    except _Answered:
        return 0


@lru_cache(maxsize=2)  # generations and their evaluation take turns
def _ready_rollout(text: str) -> Rollout:
    """Return the rollout of an experiment (TOML text), in a process that will do nothing else from now on.

    Environments make and drop many objects; a garbage collector that looks at all the modules ever imported each time
    costs a tenth of the run.
    """
    made = make_rollout(text)
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)
    return made


def coordinator(world: World, config: Config, stop: StopFlag) -> Coordinator:
    """Return the coordinator of a configuration, its workers told to prepare."""
    return Coordinator(world, config, _ready_rollout, stop.reason, chunk_seconds(config.env))
