"""Every way a command can end early, and the exit code it ends with."""


class EvolveError(Exception):
    """Base of all errors that are shown as one plain message instead of a traceback."""

    exit_code = 1


class InputError(EvolveError):
    """The user's input is wrong: names the argument, what was expected, what came, and the cure."""

    exit_code = 2

    def __init__(self, argument: str, expected: str, came: object, cure: str = "") -> None:
        self.argument = argument
        shown = came if isinstance(came, str) else repr(came)
        super().__init__(f"{argument}: expected {expected}, got {shown}." + (f" {cure}" if cure else ""))


class RunError(EvolveError):
    """The run failed, or the answer to the question asked is "no"."""


class Stopped(EvolveError):  # noqa: N818 - not a failure: the run can be resumed
    """The run was asked to stop early; everything told so far is on disk."""

    exit_code = 75
