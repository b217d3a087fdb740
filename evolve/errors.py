"""The errors that end a command early, and helpers for error messages and for imports on demand.

An extra of this package installs optional libraries: `pip install 'evolve-mpi[plot]'` installs the extra `plot`.
"""

import importlib
import importlib.util
import json
import logging
import operator
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

DISTRIBUTION = "evolve-mpi"
"""The name of this package for pip."""
SOURCE = Path(__file__).parents[1]
"""The directory that contains this package: a clone, or the folder of all installed packages."""
_LOG = logging.getLogger("evolve")
IMPORT_WARNING_SECONDS = 10.0
"""The seconds after which a warning names a user's module that is still being imported: it may never end."""
# The largest numbers of characters in parts of a message. Longer texts are cut.
_LONGEST_TRACEBACK = 8000
_LONGEST_ADVICE = 4000
_LONGEST_REASON = 1000
_LONGEST_EXPECTATION = 2000


@dataclass(frozen=True)
class Setting:
    """A setting that an error message names or advises. Python and the command line spell settings differently.

    `str` returns the spelling of Python and TOML: `env.engine="exact"`.

    Attributes:
        key: The key in TOML, "env.engine", or the name of an argument of a Python function, "resume".
        value: The advised value; None to name the setting alone.
    """

    key: str
    value: str | bool | int | tuple[str, ...] | None = None

    def __str__(self) -> str:
        if self.value is None:
            return sanitize(self.key)
        # `resume=True` is an argument of a Python function, `compute.check=false` is TOML.
        is_argument = isinstance(self.value, bool) and "." not in self.key
        value = repr(self.value) if is_argument else json.dumps(self.value, ensure_ascii=False)
        return sanitize(f"{self.key}={value}")


class EvolveError(Exception):
    """Base of all errors that are shown as one plain message instead of a traceback.

    Args:
        parts: The parts of the message: text, settings, and other errors, which contribute their messages.
    """

    exit_code = 1

    def __init__(self, *parts: "str | Setting | EvolveError") -> None:
        self._parts: tuple[str | Setting, ...] = ()
        # The parts of another error stay apart, so that `spelled_message` also spells the settings in them.
        for part in parts:
            self._parts += part._parts if isinstance(part, EvolveError) else (part,)
        super().__init__("".join(map(str, self._parts)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the function, arguments and attributes with which `copy` and `pickle` restore this error."""
        # The method of Exception would call the class with only the message.
        return _restored, (type(self), *self._parts), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows: the place in the user's code, and the message."""
        frames = traceback.extract_tb(self.__traceback__)
        is_ours = [Path(frame.filename).is_relative_to(SOURCE / "evolve") for frame in frames]
        first = is_ours.index(True) if True in is_ours else len(frames)
        # Show only the last frame before evolve's first frame: it belongs to the user. Earlier frames may belong to
        # IPython.
        lines = [line.rstrip() for line in traceback.format_list(frames[max(0, first - 1) : first])]
        return [*lines, f"{type(self).__name__}: {self}"]

    def spelled_message(self, spell: Callable[[Setting], str]) -> str:
        """Return the message with each setting as `spell` writes it."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self._parts)


def _restored(kind: type[EvolveError], *parts: str | Setting) -> Any:
    """Return an error of a class that has the parts of its message, but no other attributes."""
    error = kind.__new__(kind)
    EvolveError.__init__(error, *parts)
    return error


class InputError(EvolveError):
    """The user's input is invalid.

    The message names the setting, the expected value, the given value, and the cure. For other messages, use
    `InputError.plainly`.

    Args:
        argument: The invalid setting, option or file. Settings are spelled as in TOML: "env.id".
        expected: The expected value, in words.
        got: The given value.
        cure: Advice to the user: text, and settings that help.
        where: A short text after the setting, such as "resuming seed-0.h5".

    Attributes:
        argument: As above.
        expected, got, cure: As above, but each text is one line. Empty for an error of `InputError.plainly`.
    """

    exit_code = 2

    def __init__(self, argument: str, expected: str, got: object, *cure: str | Setting, where: str = "") -> None:
        self.argument = argument
        self.expected = sanitize(expected, _LONGEST_EXPECTATION)
        self.got = sanitize(got) or repr(got)  # an empty text is shown as ''
        self.cure = _clean(cure)
        place = f", {sanitize(where)}" if where else ""
        advice = (" ", *self.cure) if self.cure else ()
        super().__init__(Setting(argument), f"{place}: expected {self.expected}, got {self.got}.", *advice)

    @classmethod
    def plainly(cls, argument: str, *message: "str | Setting | EvolveError") -> "InputError":
        """Return an InputError with exactly this message: whole sentences, or another error."""
        error = _restored(cls, *_clean(message))
        error.argument, error.expected, error.got, error.cure = argument, "", "", ()
        return error


def _clean(parts: Iterable[Any]) -> tuple[Any, ...]:
    """Return the non-empty parts of a message, with each text as one line."""
    return tuple(sanitize(part, _LONGEST_ADVICE) if isinstance(part, str) else part for part in parts if part)


class RunError(EvolveError):
    """The run or the command failed: for example, a verification found a difference."""


class EpisodeError(RunError):
    """An episode could not be played to its end.

    Attributes:
        which: The episode, in words.
        message: The step, the environment seed and the rank of the failure, and its cause.
        key: (purpose, generation, candidate, episode), with which the episode can be played alone. The purpose is a
            number of `evolve.numerics.streams.Purpose`.
    """

    def __init__(self, which: str, message: str, key: tuple[int, int, int, int]) -> None:
        self.which = which
        self.message = message
        self.key = key
        super().__init__(f"{which} failed {message}")


# Not an Exception, because an `except Exception` in an environment would catch it.
class EpisodeTimeout(BaseException):
    """An episode has exceeded its wall time, `env.max_episode_seconds`."""


class Interrupted(KeyboardInterrupt):
    """Interrupts code of an environment, after a signal has asked this process to stop."""


FAILURES = (Exception, SystemExit, EpisodeTimeout)
"""The exceptions that this package handles if foreign code, such as an environment, raises them."""


class Stopped(EvolveError):  # noqa: N818 - not a failure: the run can be resumed
    """A signal or a limit stopped the command early. All complete generations of the run are on disk."""

    exit_code = 75


class HostLost(Stopped):
    """A host has stopped responding, and the other hosts cannot continue without it."""


_SENT_KINDS: tuple[type[EvolveError], ...] = (EpisodeError, HostLost, InputError, RunError, Stopped)
_SENT_ATTRIBUTES = ("argument", "expected", "got", "which", "message", "key")


def error_to_json(error: BaseException) -> bytes:
    """Return an error as JSON, from which `error_from_json` restores it in another process."""
    # A subclass such as UnknownKeyError is sent as its nearest base in `_SENT_KINDS`.
    kind = next((base.__name__ for base in type(error).__mro__ if base in _SENT_KINDS), "")
    # An exception of another package has no kind. Its attributes are not sent, because they may be anything.
    attributes = {name: getattr(error, name) for name in _SENT_ATTRIBUTES if kind and hasattr(error, name)}
    return json.dumps({"kind": kind, "text": _text_of(error), "attributes": attributes}, default=str).encode()


def error_from_json(content: bytes) -> EvolveError:
    """Restore an error from the JSON of `error_to_json`. An error of another package becomes a RunError."""
    fields = json.loads(content)
    kind = next((kind for kind in _SENT_KINDS if kind.__name__ == fields["kind"]), RunError)
    error = _restored(kind, fields["text"])
    for name, value in fields["attributes"].items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    if isinstance(error, InputError):
        error.cure = ()  # not sent, because it may contain settings, which JSON cannot hold; the text has the cure
    return error


@contextmanager
def on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Call a function if the block raises any exception, even a KeyboardInterrupt."""
    try:
        yield
    except BaseException:
        undo()
        raise


def check_whole(argument: str, value: Any, least: int) -> int:
    """Return a value as an int. Raises InputError unless it is an integer from `least` to 2**63 - 1, and no bool."""
    try:
        # `index` takes the integers of NumPy, too, and refuses floats.
        whole = operator.index(value)
    except TypeError:
        whole = least - 1  # an invalid number
    if isinstance(value, bool) or not least <= whole < 2**63:
        limit = " and less than 2**63" if whole >= 2**63 else ""
        # Quote a text. An integer of thousands of digits has no `repr`, and InputError describes it.
        got = repr(value) if isinstance(value, str) else value
        raise InputError(argument, f"a whole number, at least {least}{limit}", got)
    return whole


def check_path(argument: str, value: Any) -> Path:
    """Return a value as the path of a file. Raises InputError unless it is a Path, or a text that can be a path."""
    if not isinstance(value, str | Path) or value == "" or "\0" in str(value):
        raise InputError(argument, "the path of a file", repr(value))
    return Path(os.path.expanduser(value))  # no shell expands "~" in Python


def check_flag(argument: str, value: Any) -> None:
    """Raise InputError unless a value is True or False."""
    if not isinstance(value, bool):
        raise InputError(argument, "True or False", repr(value))


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation."""
    if not _is_clone(SOURCE):
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    clone = "." if SOURCE.samefile(".") else str(SOURCE)
    return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"


def how_to_build() -> str:
    """Return a sentence with the command that builds the native kernels of this installation."""
    if _is_clone(SOURCE):
        return f"Build the kernels: pip install -e {shlex.quote(str(SOURCE))}."
    # Without these options pip keeps the installed package, or takes a wheel without kernels from its cache.
    command = "pip install --force-reinstall --no-deps --no-cache-dir SOURCE"
    return f"Build the kernels: {command}, with a clone or an archive of {DISTRIBUTION} as SOURCE."


def how_to_install(extra: str) -> str:
    """Return a sentence that advises to install an extra."""
    return f"Install it: {install_command(extra)}."


def import_extra(module: str, extra: str, argument: str, title: str = "") -> Any:
    """Import a module of an optional library.

    Args:
        module: The dotted name of the module.
        extra: The extra of this package that installs the library.
        argument: The setting or feature that needs the library; errors name it.
        title: The name of the library in errors, by default `module`.

    Raises:
        InputError: The import fails. The message has the reason, and the command that installs the library.
    """
    try:
        return importlib.import_module(module)
    except FAILURES as error:  # an AttributeError, for example, if a library is too old for the installed NumPy
        # pip cannot install libraries of the operating system, such as libEGL for EnvPool.
        lacks_system_library = "cannot open shared object file" in str(error)
        cure = "Install this library of the operating system." if lacks_system_library else how_to_install(extra)
        raise InputError(argument, f"a working {title or module}", one_line(error), cure) from None


def import_user_module(module: str) -> ModuleType:
    """Import a module that an experiment names. Its code may raise anything.

    The commands put the current folder at the end of `sys.path`, so that a file there cannot replace a module of
    Python. If the module is in the current folder, this function moves the folder to the front of `sys.path`. Then the
    module can also import other files of the folder.
    """
    if module in sys.modules:
        return importlib.import_module(module)  # waits if another thread is importing it
    package = module.partition(".")[0]
    with suppress(FileNotFoundError):  # the current folder was removed
        here = os.getcwd()
        is_here = os.path.isdir(package) or os.path.isfile(f"{package}.py")
        if is_here and sys.path and sys.path[-1] == here:
            # In one assignment, because other threads may be searching `sys.path`.
            sys.path[:] = [here, *(entry for entry in sys.path if entry != here)]
    cure = "if the module starts a program when it is imported, put that below: if __name__ == '__main__':"
    warning = threading.Timer(IMPORT_WARNING_SECONDS, _LOG.warning, ("still importing %s: %s", module, cure))
    warning.daemon = True
    # Under mpirun only rank 0 warns. Open MPI and MPICH give the rank in different variables.
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) == "0":
        warning.start()
    try:
        return importlib.import_module(module)
    finally:
        warning.cancel()


def import_on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, which imports a module when one of its names is first used.

    Args:
        package: The name of the package.
        modules: For each module, its names that the package offers, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def import_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)

    return import_name


def is_installed(*modules: str) -> bool:
    """Return whether all modules are installed. Their import may still fail; it is not tried, because it takes time."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _is_clone(folder: Path) -> bool:
    """Return whether a folder contains the sources of this package."""
    # The folder of all installed packages may hold the pyproject.toml of another package, so look for the name.
    try:
        return f'name = "{DISTRIBUTION}"' in (folder / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def sanitize(value: object, longest: int = 400) -> str:
    """Return a value as one line without control characters, cut in the middle at about `longest` characters."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except FAILURES:  # for example an integer of thousands of digits
        text = f"one of type {type(value).__name__}, which cannot be printed"
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    # [1:-1] removes the quotes of the `repr` of a character, and keeps its escape, such as \n.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: "1 generation", "2 generations"."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def one_line(error: BaseException) -> str:
    """Return the type of an exception and its message as one line: "KeyError: 'x'"."""
    text = f"{type(error).__name__}: {_text_of(error)}"
    return " ".join(text.split()).removesuffix(":")  # the colon ends the line if there is no message


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except FAILURES:  # a user's class may define how its exceptions are printed
        return "<exception str() failed>"  # the words of a traceback


def exception_line(message: str) -> str:
    """Return the exception at the end of a traceback as one line; of a message without traceback, the last line."""
    lines = message.rstrip().splitlines()
    start = len(lines) - 1
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if frames:
        # The exception may have several lines. After the last frame, it begins at the first line without an indent.
        candidates = range(frames[-1], len(lines))
        start = next((number for number in candidates if lines[number] and lines[number][0] != " "), start)
    words = " ".join(lines[start:]).split()
    return sanitize(" ".join(words), _LONGEST_REASON)


def describe_error(error: BaseException) -> str:
    """Return the traceback of an exception from foreign code, but only the message of an error of this package."""
    if isinstance(error, EvolveError):
        return str(error)
    frames = error.__traceback__
    # Leave out the first frame, which is only the call of the foreign code.
    if frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    if len(text) < _LONGEST_TRACEBACK:
        return text
    return f"{text[: _LONGEST_TRACEBACK // 2]}\n…\n{text[-_LONGEST_TRACEBACK // 2 :]}"
