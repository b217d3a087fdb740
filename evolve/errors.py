"""Every way a command can end early, and the exit code it ends with."""


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
    """An episode could not be played to its end."""

    def __init__(self, generation: int, candidate: int, episode: int, told: str) -> None:
        self.generation, self.candidate, self.episode, self.told = generation, candidate, episode, told
        super().__init__(f"generation {generation}, candidate {candidate}, episode {episode}: {told}")


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
