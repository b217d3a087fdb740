"""What every command shares: joining the world, one plain message for every error, and the exit code."""

import argparse
import re
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from evolve.cluster import Coordinator, World, connect, dismiss, serve
from evolve.cluster.world import launched
from evolve.config import Config, nearest
from evolve.errors import EvolveError, InputError
from evolve.evolution import make_rollout
from evolve.stopping import StopFlag

Body = Callable[[World, StopFlag, list[str]], int]


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises InputError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise InputError; near names are offered for unknown options."""
        unknown = re.search(r"unrecognized arguments: (-\S+)", message)
        known = [option for action in self._actions for option in action.option_strings]
        cure = nearest(unknown[1], known, cutoff=0.6) if unknown else f"See python -m {self.prog} --help."
        raise InputError("command line", "arguments that it knows", message, cure)


def launch(name: str, body: Body, argv: list[str] | None) -> int:
    """Run a command on every rank and return its exit code: rank 0 runs `body`, the others serve it.

    Errors are printed once, by rank 0, as one plain message; the workers are always told to leave.
    """
    try:
        world = connect()
    except InputError as wrong:
        if launched()[1] == 0:
            print(f"evolve.{name}: {wrong}", file=sys.stderr)
        return wrong.exit_code
    stop = StopFlag()
    stop.install()
    if world.rank != 0:
        return _serve(world, stop)
    code = _guarded(name, lambda: body(world, stop, sys.argv[1:] if argv is None else argv))
    sys.stdout.flush()
    if not dismiss(world):
        world.abort(code or 1)
    return code


def _serve(world: World, stop: StopFlag) -> int:
    serve(world, make_rollout, lambda: stop.signal)
    return 0


def _guarded(name: str, body: Callable[[], int]) -> int:
    try:
        return body()
    except EvolveError as wrong:
        print(f"evolve.{name}: {wrong}", file=sys.stderr)
        return wrong.exit_code
    except SystemExit as done:  # --help
        return int(done.code or 0)
    except KeyboardInterrupt:
        return 1
    except Exception:
        traceback.print_exc()
        return 1


def coordinator(world: World, config: Config, stop: StopFlag) -> Coordinator:
    """Return the coordinator of a configuration, its workers told to prepare."""
    made = Coordinator(world, config.compute, make_rollout, stop.reason)
    made.setup(config.to_toml())
    return made
