"""evolve completion: print a script by which a shell completes commands and options at Tab.

The script starts no process at Tab, because an import of NumPy and Gymnasium at each Tab would take too long.
"""

import argparse
from typing import Any

from evolve import cli, environments, networks, strategies
from evolve.cli.app import App
from evolve.cli.parser import Parser, parser_of
from evolve.errors import import_extra

SHELLS = ("bash", "zsh", "fish", "tcsh")
_CHOICES = {
    "network.name": tuple(networks.NETWORKS),
    "strategy.name": tuple(strategies.STRATEGIES),
    **dict.fromkeys(("engine", "env.engine"), environments.ENGINES),
    "compute.backend": ("auto", "numpy", "native", "cupy"),
    **dict.fromkeys(("workers", "threads", "compute.threads"), ("auto", "2", "4", "8")),
}
"""The words that a shell suggests for an option, by its `dest` in argparse. Users may type other numbers, too."""
# The `dest` of each option or argument that takes an environment, a directory, or a file.
_ENVIRONMENTS = {"env", "env.id"}
_DIRECTORIES = {"output.directory", "tensorboard"}
_FILES = {"file", "files", "experiment", "output", "video", "compare", "start_from", "hostfile"}


def _parser() -> Parser:
    parser = Parser(
        "evolve.completion",
        "Print a script that lets a shell complete commands, options and names at Tab. Print it again after an update.",
        "evolve completion bash > ~/.local/share/bash-completion/completions/evolve",
        'evolve completion zsh > "${fpath[1]}/_evolve"',
        "evolve completion fish > ~/.config/fish/completions/evolve.fish",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}")
    return parser


def script(shell: str) -> str:
    """Return the script for a shell. Raises InputError if the library that generates it is not installed."""
    shtab = import_extra("shtab", extra="completion", argument="completion")
    return shtab.complete(_all_commands(shtab), shell)


def _all_commands(shtab: Any) -> argparse.ArgumentParser:
    """Return one parser with all commands as subcommands, and with the completions of each option."""
    evolve = argparse.ArgumentParser("evolve", description="neuroevolution over MPI")
    evolve.add_argument("--version", action="store_true", help="print the version")
    commands = evolve.add_subparsers(dest="command")
    for name, summary in cli.COMMANDS.items():
        parser = parser_of(name)
        for action in parser._actions:
            _add_completions(action, shtab)
        escaped = summary.replace("%", "%%")  # argparse formats `help` with the operator %
        # Without `add_help=False` there would be two options --help, because `parser` has one.
        commands.add_parser(name, parents=[parser], add_help=False, help=escaped, description=summary)
    return evolve


def _add_completions(action: argparse.Action, shtab: Any) -> None:
    if action.dest in _CHOICES:
        words = _CHOICES[action.dest]
        # The option `--workers` of `contest` has the type int: it takes numbers, but not "auto".
        action.choices = [word for word in words if word.isdecimal()] if action.type is int else words
    elif action.dest in _ENVIRONMENTS:
        action.choices = environments.registered_ids()
    elif action.dest in _DIRECTORIES:
        # shtab reads this attribute. argparse does not declare it.
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif action.dest in _FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]


def _body(_: App, argv: list[str]) -> int:
    print(script(_parser().parse_args(argv).shell))
    return 0
