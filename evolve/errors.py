"""Every way a command can end early, and the exit code it ends with."""

import traceback

_LONGEST = 8000  # characters of a traceback


class EvolveError(Exception):
    """Base of all errors that are shown as one plain message instead of a traceback."""

    exit_code = 1


class InputError(EvolveError):
    """The user's input is wrong: names the argument, what was expected, what came, and the cure."""

    exit_code = 2

    def __init__(self, argument: str, expected: str, came: object, cure: str = "") -> None:
        self.argument = argument
        message = f"{plain(argument)}: expected {plain(expected, 2000)}, got {plain(came)}."
        super().__init__(f"{message} {plain(cure, 2000)}" if cure else message)


class RunError(EvolveError):
    """The run failed, or the answer to the question asked is "no"."""


class EpisodeError(RunError):
    """An episode could not be played to its end.

    which: the episode, in words; told: what happened, and where; replay: the options that evolve.replay finds it by.
    """

    def __init__(self, which: str, told: str, replay: str) -> None:
        self.which, self.told, self.replay = which, told, replay
        super().__init__(f"{which} failed {told}")


class EpisodeTimeout(BaseException):  # like KeyboardInterrupt: no environment is to catch it
    """An environment has not answered for longer than an episode may take."""


FAILURES = (Exception, SystemExit, EpisodeTimeout)
"""Whatever code that is not ours may raise."""


class Stopped(EvolveError):  # noqa: N818 - not a failure: the run can be resumed
    """The run was asked to stop early; everything told so far is on disk."""

    exit_code = 75


def plain(value: object, longest: int = 400) -> str:
    """Return a value as one line of about `longest` characters at most, none of them a control character."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, say
        text = f"a {type(value).__name__} too large to print"
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def counted(number: int, what: str) -> str:
    """Return how many there are of something: "1 generation", "2 generations"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def one_line(wrong: BaseException) -> str:
    """Return an exception in one line."""
    return " ".join(f"{type(wrong).__name__}: {wrong}".split())


def told(wrong: BaseException) -> str:
    """Return an exception raised in somebody else's code with its traceback, without our own frame at its head.

    An error that is a plain message already is returned as that.
    """
    if isinstance(wrong, EvolveError):
        return str(wrong)
    theirs = wrong.__traceback__ and wrong.__traceback__.tb_next
    text = "".join(traceback.format_exception(type(wrong), wrong, theirs or wrong.__traceback__))
    return text if len(text) < _LONGEST else f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"
