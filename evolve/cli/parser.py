"""Command lines: what argparse complains of, as one plain sentence."""

import argparse
import re
from typing import NoReturn

from evolve import __version__
from evolve.config import nearest
from evolve.errors import EvolveError, InputError

HIDDEN = argparse.SUPPRESS
"""The help of an option that is not for people."""

_MISTAKES = {
    r"argument (\S+): invalid int value: '(.*)'": "a whole number",
    r"argument (\S+): invalid float value: '(.*)'": "a number",
    r"argument (\S+): invalid workers value: '(.*)'": "a number of workers, at least 1, or auto",
    r"argument (\S+): expected (?:one|at least one) argument()": "a value",
    r"the following arguments are required: (.+)()": "a value",
}
"""What argparse complains of, naming the option and what came; and what was expected."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises InputError instead of printing the usage and exiting.

    Args:
        name: The command, `evolve.…`.
        description: What it does.
        examples: Command lines that the help ends with.
        add_help: Whether it has --help and --version.
    """

    def __init__(self, name: str, description: str, *examples: str, add_help: bool = True) -> None:
        super().__init__(
            prog=name,
            description=description,
            epilog="\n  ".join([f"example{'s' * (len(examples) > 1)}:", *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=add_help,
        )
        if add_help:
            self.add_argument("--version", action="version", version=f"evolve {__version__}", help="print the version")

    def error(self, message: str) -> NoReturn:
        """Raise InputError that names the option; near names are offered for unknown ones."""
        for wrong, expected in _MISTAKES.items():
            if found := re.fullmatch(wrong, message):
                raise InputError(found[1], expected, found[2] or "none")
        unknown = re.search(r"unrecognized arguments: (-\S+)", message)
        known = [option for action in self._actions for option in action.option_strings]
        see = f"See python -m {self.prog.replace('.', ' ')} --help."
        cure = nearest(unknown[1], known, cutoff=0.6) if unknown else see
        came = message.removeprefix("unrecognized arguments: ")
        raise InputError("command line", "arguments that it knows", came, cure)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Leave by an exception that no environment can raise."""
        raise Answered(message or "")


class Answered(EvolveError):  # noqa: N818 - nothing went wrong
    """The command line asked for help, and has been answered."""

    exit_code = 0
