"""Parses command lines, explains errors in them, and suggests the next command.

`Parser` is the class of every command's parser. `changes_of` and `genome_choice_of` turn parsed options into the
changed settings and the genome of a champion. `how_to_resume` and `steps_after` return command lines for the user.
"""

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from evolve import __version__
from evolve.cli import COMMANDS
from evolve.cluster.supervision import COMMAND, supervised_workers
from evolve.errors import EvolveError, InputError, Setting, install_command, sanitize

# Imports of NumPy and pydantic take long, and the process that starts the ranks of --workers needs neither. So this
# module imports most of evolve in functions.
if TYPE_CHECKING:
    from evolve.config import EnvOptions, Table
    from evolve.training.experiment import PlannedRun
    from evolve.training.stored import GenomeChoice

_SETTING_OF_DEST = {"env": "env.id", "engine": "env.engine", "threads": "compute.threads"}
"""The setting of an option, by the option's `dest` in argparse; only if the two names differ."""
_WHOLE_SETTINGS = {
    Setting("resume", True): "--resume",
    Setting("overwrite", True): "--overwrite",
    Setting("mode", "rgb_array"): "--video OUT",
}
"""The words of a command line that replace a setting together with its value."""
_LONGEST_LINE = 4000  # characters of a command line or a path in a message
_MISTAKES = {
    r"argument (-s/--seed): invalid int value: ['\"](.*)['\"]": "whole numbers, such as -s 1 2 3",
    r"argument (\S+): invalid int value: ['\"](.*)['\"]": "a whole number",
    r"argument (\S+): invalid _cell value: ['\"](.*)['\"]": "whole numbers and commas, such as 3,5",
    r"argument (\S+): invalid float value: ['\"](.*)['\"]": "a number",
    r"argument (\S+): invalid number: ['\"](.*)['\"]": "a number, at least 1, or auto",
    r"argument (\S+): invalid choice: ['\"](.*)['\"] \(choose from (.*)\)": "one of {2}",
    r"argument (\S+): not allowed with argument (\S+)": "no {1} with it",
    r"argument (\S+): ignored explicit argument ['\"](.*)['\"]": "no value",
    r"argument (\S+): expected (?:one|at least one) argument()": "a value, after = if it begins with a dash",
    r"the following arguments are required: (.+)()": "a value",
}
"""The messages of argparse as regular expressions, and the expected values in words. The first group of an expression
is the option, and the second group is the given value. An empty group, (), stands for the value if the message has no
value. {1} and {2} are the second and the third group."""


def setting_text(setting: Setting, command: str = "run") -> str:
    """Return the text of a setting in an error message of a command.

    The command's option for the setting follows the name: "env.id (-e/--env)". A setting with a value becomes the
    arguments that set it in a run: "--engine exact" or "--set env.reuse=true".
    """
    if setting.value is None:
        # The option for "seeds" also sets "seeds.0", the first of the seeds, and "seed", the seed of one run.
        key = re.sub(r"\.\d+$", "", setting.key)
        option = options_by_setting(command).get("seeds" if key == "seed" else key)
        return f"{setting} ({option})" if option else str(setting)
    if setting in _WHOLE_SETTINGS:
        return _WHOLE_SETTINGS[setting]
    value = setting.value if isinstance(setting.value, str) else json.dumps(setting.value)
    option = options_by_setting("run").get(setting.key)
    if option is None:
        return sanitize(f"--set {setting.key}={value}")
    # The long form is the last one, as in "-e/--env".
    _, _, long_option = option.rpartition("/")
    return sanitize(f"{long_option} {value}")


def parser_of(command: str) -> "Parser":
    """Return the parser of a command."""
    return importlib.import_module(f"evolve.cli.{command}")._parser()


def options_by_setting(command: str) -> dict[str, str]:
    """Return the options of a command, such as "-e/--env", by setting; by `dest` if an option has no setting."""
    actions = parser_of(command)._actions if command in COMMANDS else ()
    in_help = (action for action in actions if action.help != argparse.SUPPRESS)
    return {_SETTING_OF_DEST.get(action.dest, action.dest): "/".join(action.option_strings) for action in in_help}


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises InputError instead of printing the usage and exiting.

    Args:
        name: The name of the command, `evolve.…`.
        description: A description of the command.
        examples: Command lines at the end of the help.
        add_help: Whether it has --help and --version.
    """

    def __init__(self, name: str, description: str, *examples: str, add_help: bool = True) -> None:
        super().__init__(
            prog=name.replace("evolve.", "evolve "),
            # The formatter wraps neither the description nor the examples, which are lines of code.
            description=textwrap.fill(description, max(20, shutil.get_terminal_size().columns - 2)),
            epilog="\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=add_help,
        )
        if add_help:
            self.add_argument("--version", action="version", version=f"evolve {__version__}", help="print the version")

    def parse_with_files(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options of a command line. Files may stand between options. All words after "--" are files."""
        if "--" in words:  # Python 3.11 drops "--", and would then take the file -x for an option
            end = words.index("--")
            # Keep an empty word, because `Path("")` is the current directory. `file_argument` refuses it.
            words = [*words[:end], *(escape_dash(Path(word)) if word else word for word in words[end + 1 :])]
        return self.parse_intermixed_args(words)

    def error(self, message: str) -> NoReturn:
        """Raise InputError that names the option. For an unknown option, suggest an option with a similar name."""
        from evolve.config import suggest  # noqa: PLC0415 - only for errors

        # The value of an option is wrong or missing.
        for pattern, expected in _MISTAKES.items():
            if match := re.fullmatch(pattern, message):
                words = expected.format(*match.groups()).replace("'", "")  # some Pythons quote the choices
                raise InputError(match[1], words, match[2] or "none")
        # Otherwise the command line has an unknown word, most often an option.
        unknown = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
        known = [option for action in self._actions for option in action.option_strings]
        if unknown is None:
            cure = f"See {self.prog} --help."
        elif unknown[1] in known:
            cure = "Options stand before --, after which all words are files."
        else:
            cure = suggest(unknown[1], known)
        if not cure and "--settings" in known:
            cure = "A setting without an option is written --set section.key=value; --settings prints all settings."
        got = message.removeprefix("unrecognized arguments: ")
        raise InputError("command line", "arguments of this command", got, cure)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise `Answered`, and not SystemExit as argparse does, because an environment may raise SystemExit, too."""
        raise Answered(message or "")

    def add_workers(self) -> None:
        """Add `--workers` to the options of a command."""
        auto = "auto: use all cores of this machine, by threads if possible"
        words = f"start N workers and a coordinator with mpirun; {auto}"
        self.add_argument("--workers", type=number_or_auto, metavar="N", help=words)

    def add_threads(self, name: str = "threads") -> None:
        """Add `--threads` to the options of a command. name: The attribute of the parsed options."""
        words = "threads of each process, for exact tasks and EnvPool (auto: all its cores for exact tasks, else 1)"
        self.add_argument("--threads", dest=name, type=number_or_auto, metavar="N", help=words)

    def add_changes(self) -> None:
        """Add the options --engine and --set, which change a champion's settings; see `changes_of`."""
        self.add_argument("--engine", metavar="NAME", help="use another environment engine")
        what = "change a setting of the environment (env.key) or of the network (network.key)"
        self.add_argument("--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE", help=what)

    def add_genome_choice(self) -> None:
        """Add the options that choose a genome of a run, other than the final champion; see `genome_choice_of`."""
        best = "choose the best candidate of a complete generation (the final champion)"
        self.add_argument("--generation", type=int, metavar="G", help=best)
        self.add_front_and_archive()

    def add_front_and_archive(self) -> None:
        """Add the options that choose a genome of a front or an archive; see `genome_choice_of`."""
        add = self.add_argument
        few = "choose the best genome of a front (nsga2) with at most N connections that can act"
        add("--connections", type=int, metavar="N", help=few)
        member = "choose a genome of a front, counted from 0 as by evolve info --genomes"
        add("--member", type=int, metavar="N", help=member)
        add("--cell", type=_cell, metavar="I,J", help="choose the elite in a cell of an archive (map-elites)")


def number_or_auto(text: str) -> int | str:
    """Return the value of --workers or --threads: a number, or "auto"."""
    if text == "auto":
        return text
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) < 2**20:  # int() fails at 4,300 digits
        raise argparse.ArgumentTypeError(f"invalid number: {text!r}")
    return int(text)


class Answered(EvolveError):  # noqa: N818 - nothing went wrong
    """The command line asked for help, the version or the settings, which have been printed."""

    exit_code = 0


@dataclass(frozen=True)
class Changes:
    """Changed settings of the environment and of the network with which a champion plays; false without any."""

    env: "Table"
    network: "Table"

    def __bool__(self) -> bool:
        return bool(self.env or self.network)

    def without(self, own: "EnvOptions") -> "Changes":
        """Return the changes, without an id or an engine that the champion's own environment `own` has already."""
        same = {key for key in ("id", "engine") if self.env.get(key) == getattr(own, key)}
        return Changes({key: value for key, value in self.env.items() if key not in same}, self.network)

    def describe(self, own: "EnvOptions") -> str:
        """Return the changes in words, after a space; "" without changes. own: The environment of the champion."""
        words = f" in another environment, {self.env.get('id', own.id)}" if self.env else ""
        engine = self.env.get("engine", own.engine)
        if engine != own.engine:
            words += f" (engine {engine})"
        if self.settings:
            words += f" with {self.settings}"
        return words

    @property
    def settings(self) -> str:
        """The changed settings, such as "env.kwargs.gravity=12.0", without the id of the environment and the engine."""
        from evolve.config import assignments  # noqa: PLC0415 - see above

        env = {key: value for key, value in self.env.items() if key not in ("id", "engine")}
        return assignments({"env": env, "network": self.network})


def changes_of(options: argparse.Namespace) -> Changes:
    """Return the changes that --set, --env and --engine ask for. Raises InputError for another section."""
    from evolve.config import read_assignment, set_key  # noqa: PLC0415 - see above

    table: Table = {"env": {}, "network": {}}
    for key, value in (("id", getattr(options, "env", None)), ("engine", options.engine)):
        if value is not None:
            table["env"][key] = value
    for key, value in map(read_assignment, options.assignments):
        if not key.startswith(("env.", "network.")):
            cure = "All other settings are fixed by the champion."
            raise InputError("--set", "a key of env or of network", key, cure)
        set_key(table, key, value)
    return Changes(table["env"], table["network"])


def _cell(text: str) -> tuple[int, ...]:
    """Return the indices of a cell, "I,J"."""
    return tuple(int(part) for part in text.split(","))


def genome_choice_of(options: argparse.Namespace) -> "GenomeChoice":
    """Return the genome that --generation, --connections, --member or --cell asks for."""
    from evolve.training.stored import GenomeChoice  # noqa: PLC0415 - see above

    return GenomeChoice(options.generation, options.connections, options.member, options.cell)


def file_argument(text: str) -> Path:
    """Return the path that an argument names. Raises InputError for "", as a shell writes an unset variable."""
    if not text:
        raise InputError("FILE", "the name of a file or a directory", "an empty text", 'The current directory is ".".')
    return Path(text)


def escape_dash(word: str | Path) -> str:
    """Return a word of a command line. A path that begins with "-", like an option, gets "./" in front."""
    return f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)


def command_line(command: str, *words: str | Path) -> str:
    """Return a line that runs a command of this installation.

    If the shell finds this `evolve`, the line begins with `evolve COMMAND`. Otherwise it begins with the path of
    `evolve`, or with `python -m` if the shell finds this Python or `evolve` is not installed.
    """
    ours = Path(sys.executable).with_name("evolve")
    evolve, python = (Path(shutil.which(name) or "") for name in ("evolve", "python"))
    if evolve == ours:
        begin = ["evolve", command]
    elif ours.exists() and python.parent != ours.parent:
        begin = [str(ours), command]
    else:
        begin = ["python", "-m", "evolve", command]
    return sanitize(shlex.join([*begin, *(escape_dash(word) for word in words)]), _LONGEST_LINE)


def how_to_resume(
    runs: "Sequence[PlannedRun]",
    ranks: int,
    options: Sequence[str] = (),
    overwrite: bool = False,
    not_replaced: "Sequence[PlannedRun]" = (),
) -> str:
    """Return the command line that resumes a stopped run with the same number of processes; advice for several runs.

    options: The options that a resumed run needs again.
    overwrite: Whether the command line has the option --overwrite.
    not_replaced: The runs that have not replaced their old files yet.
    """
    if COMMAND in os.environ:  # `evolve launch` has started this process, and its own command line continues the run
        return sanitize(os.environ[COMMAND], _LONGEST_LINE)
    if len(runs) > 1:
        line = f"the same command line, {'with --resume in place of --overwrite' if overwrite else 'and --resume'}"
        if not_replaced:  # --resume refuses an old file of another experiment, and skips a complete old file
            files = shlex.join(str(run.path) for run in not_replaced)
            line += f". First remove the files that are not replaced yet: {files}"
        return line
    workers = supervised_workers()
    if workers is not None:
        return command_line("run", "--resume", runs[0].path, *options, "--workers", str(workers))
    mpirun = f"mpirun -n {ranks} " if ranks > 1 else ""
    return mpirun + command_line("run", "--resume", runs[0].path, *options)


def steps_after(paths: Sequence[Path], report: str = "", can_film: bool = True) -> str:
    """Return three lines: the place of the run files, and the commands to film a champion and to verify a run.

    report: A line that replaces the command to film, if not empty.
    can_film: Whether the environment can be drawn. Otherwise a command draws the champion's network.
    """
    first = paths[0]
    if len(paths) == 1:
        champion, run = "its champion", "it"
        where = f"Run file: {first}"
    else:
        champion, run = "the champion of the first", "the first"
        where = f"Run files: {len(paths)} in {os.path.commonpath([path.parent for path in paths]) or '.'}"
    if can_film:
        library, extra = "av", "video"
        show = f"Film {champion}: {command_line('replay', first, '--held-out', '--video', 'champion.mp4')}"
    else:
        library, extra = "matplotlib", "plot"
        show = f"Draw {champion}: {command_line('plot', first, '--network')}"
    if importlib.util.find_spec(library) is None:
        show += f"   # needs: {install_command(extra)}"
    return "\n".join([sanitize(where, _LONGEST_LINE), report or show, f"Verify {run}: {command_line('verify', first)}"])
