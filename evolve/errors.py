"""The errors that end a command early, each with its exit code, functions that put errors into words, and imports of
optional libraries, each of which comes with an extra of this package (`pip install 'evolve-mpi[plot]'`)."""

import importlib
import json
import operator
import shlex
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DISTRIBUTION = "evolve-mpi"
"""The name by which pip knows this package."""
SOURCE = Path(__file__).parents[1]
"""A clone, or the folder of all installed packages."""
_LONGEST_TRACEBACK = 8000  # characters


@dataclass(frozen=True)
class Setting:
    """A setting that an error message names, or advises to set. Each interface spells it in its own way.

    As text it has the spelling of Python and TOML: `env.engine="exact"`.

    Attributes:
        key: "env.engine"; for an argument of a Python function its name: "resume".
        value: The advised value; None to name the setting alone.
    """

    key: str
    value: str | bool | None = None

    def __str__(self) -> str:
        if self.value is None:
            return sanitize(self.key)
        is_argument = isinstance(self.value, bool) and "." not in self.key
        value = repr(self.value) if is_argument else json.dumps(self.value, ensure_ascii=False)
        return sanitize(f"{self.key}={value}")


class EvolveError(Exception):
    """Base of all errors that are shown as one plain message instead of a traceback.

    Args:
        parts: The message: text, settings, and errors whose message is a part of it.
    """

    exit_code = 1

    def __init__(self, *parts: "str | Setting | EvolveError") -> None:
        self._parts: tuple[str | Setting, ...] = ()
        for part in parts:
            self._parts += part._parts if isinstance(part, EvolveError) else (part,)
        super().__init__("".join(map(str, self._parts)))

    def worded(self, spell: Callable[[Setting], str]) -> str:
        """Return the message with each setting in the words that `spell` returns for it."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self._parts)


class InputError(EvolveError):
    """The user's input is wrong.

    The message names the setting, the expected value, the value it got, and the cure. If another sentence reads better,
    use `InputError.plainly`.

    Args:
        argument: The setting, the option or the file that is wrong. Settings are spelled as in TOML: "env.id".
        expected: The expected value, in words.
        got: The value.
        cure: What the user can do: text, and the settings that help.
        where: A short text behind the setting: "resuming seed-0.h5".

    Attributes:
        argument: As above.
        expected: As above; empty if the message is a plain sentence.
        got: The value, as one line.
        cure: As above.
    """

    exit_code = 2

    def __init__(self, argument: str, expected: str, got: object, *cure: str | Setting, where: str = "") -> None:
        self.argument = argument
        self.expected = sanitize(expected, 2000)
        self.got = sanitize(got) or repr(got)
        self.cure = _clean(cure)
        place = f", {sanitize(where)}" if where else ""
        advice = (" ", *self.cure) if self.cure else ()
        super().__init__(Setting(argument), f"{place}: expected {self.expected}, got {self.got}.", *advice)

    @classmethod
    def plainly(cls, argument: str, *message: str | Setting) -> "InputError":
        """Return an InputError that says `message`, one or more whole sentences, and nothing else."""
        error = cls.__new__(cls)
        EvolveError.__init__(error, *_clean(message))
        error.argument, error.expected, error.got, error.cure = argument, "", "", ()
        return error


def _clean(parts: Iterable[str | Setting]) -> tuple[str | Setting, ...]:
    """Return the parts of a message without empty ones, each text as one line."""
    return tuple(sanitize(part, 4000) if isinstance(part, str) else part for part in parts if part)


class RunError(EvolveError):
    """The run failed, or the answer to the question asked is "no"."""


class EpisodeError(RunError):
    """An episode could not be played to its end.

    Attributes:
        which: The episode, in words.
        message: What happened, and where.
        key: Its (purpose, generation, candidate, episode), so that it can be played alone. A purpose is a number, see
            `evolve.numerics.streams.Purpose`.
    """

    def __init__(self, which: str, message: str, key: tuple[int, int, int, int]) -> None:
        self.which = which
        self.message = message
        self.key = key
        super().__init__(f"{which} failed {message}")


class EpisodeTimeout(BaseException):  # like KeyboardInterrupt: no environment is to catch it
    """An environment has not answered for longer than an episode may take."""


FAILURES = (Exception, SystemExit, EpisodeTimeout)
"""Whatever code that is not ours may raise."""


class Stopped(EvolveError):  # noqa: N818 - not a failure: the run can be resumed
    """The run was asked to stop early; all completed generations are on disk."""

    exit_code = 75


class HostLost(Stopped):
    """A host has fallen silent, and the others cannot go on without it."""


def check_whole(argument: str, value: Any, least: int) -> int:
    """Return a value as an int. Raises InputError unless it is a whole number of at least `least`; True is none."""
    try:
        whole = operator.index(value)
    except TypeError:
        whole = least - 1
    if isinstance(value, bool) or not least <= whole < 2**63:
        below = " and below 2**63" if whole >= 2**63 else ""
        raise InputError(argument, f"a whole number, at least {least}{below}", repr(value))
    return whole


def install_command(extra: str) -> str:
    """Return the command that adds an extra of this package to this installation: a clone, or one from PyPI."""
    if not _is_clone(SOURCE):
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    clone = "." if SOURCE.samefile(".") else str(SOURCE)
    return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"


def how_to_install(extra: str) -> str:
    """Return the sentence that says how to install an optional library; an extra of this package brings it."""
    return f"Install it: {install_command(extra)}."


def import_extra(module: str, extra: str, argument: str, title: str = "") -> Any:
    """Return a module of a library that comes with an extra.

    Args:
        module: Its dotted name.
        extra: The extra of this package that installs it.
        argument: The setting or the feature that needs the library.
        title: What to call the library, by default the module.

    Raises:
        InputError: The library is not installed, or cannot be imported; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:  # mpi4py finds no MPI, say
        raise InputError(argument, f"a working {title or module}", one_line(error), how_to_install(extra)) from None


def _is_clone(folder: Path) -> bool:
    """Return True if a folder holds the sources of this package; other packages may leave a pyproject.toml there."""
    try:
        return f'name = "{DISTRIBUTION}"' in (folder / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def sanitize(value: object, longest: int = 400) -> str:
    """Return a value as one line without control characters, cut in the middle at about `longest` characters."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, say
        text = f"a {type(value).__name__} too large to print"
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def pluralize(number: int, what: str) -> str:
    """Return how many there are of something: "1 generation", "2 generations"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def one_line(error: BaseException) -> str:
    """Return an exception in one line: its type and its message."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def describe(error: BaseException) -> str:
    """Return an exception that somebody else's code raised, with its traceback but without our own first frame.

    An error of this package is returned as its plain message.
    """
    if isinstance(error, EvolveError):
        return str(error)
    theirs = error.__traceback__ and error.__traceback__.tb_next
    text = "".join(traceback.format_exception(type(error), error, theirs or error.__traceback__))
    if len(text) < _LONGEST_TRACEBACK:
        return text
    return f"{text[: _LONGEST_TRACEBACK // 2]}\n…\n{text[-_LONGEST_TRACEBACK // 2 :]}"
