"""Starting a run again until it has ended by itself, or no attempt gets any further."""

from collections.abc import Callable
from dataclasses import dataclass

from evolve.cli.supervision import Outcome
from evolve.errors import InputError, Stopped, pluralize

_MOST_FUTILE = 3  # attempts in a row without any progress
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class Attempts:
    """What an attempt needs.

    Attributes:
        start: Starts the run and waits for its end; takes how many attempts in a row were in vain, and returns None
            where nobody can run it now.
        progress: Returns how many generations are complete.
        stopping: Returns whether the user wants no more.
        returning: Returns whether the last attempt was stopped for a host that is taken back.
        pause: Waits so many seconds, or until the user wants no more.
        say: Tells the user something.
    """

    start: Callable[[int], Outcome | None]
    progress: Callable[[], int]
    stopping: Callable[[], bool]
    returning: Callable[[], bool]
    pause: Callable[[float], None]
    say: Callable[[str], None]


def persevere(attempts: Attempts) -> int:
    """Start a run until it ends by itself; return its exit code.

    It is started again after a death, after a host was lost, and for a host that is taken back. After three attempts in
    a row without a new generation it is given up.
    """
    before, futile, first = attempts.progress(), 0, True
    while True:
        outcome = attempts.start(futile)
        if attempts.stopping():
            return outcome.code if outcome is not None and outcome.is_own else Stopped.exit_code
        if outcome is not None and _is_final(outcome, first, attempts.returning()):
            return outcome.code
        now = attempts.progress()
        futile = futile + 1 if now <= before and not attempts.returning() else 0
        how = "no host answers" if outcome is None else _how(outcome)
        done = f"{pluralize(now, 'generation')} complete"
        if futile >= _MOST_FUTILE:
            attempts.say(f"{how}; {done}; {_MOST_FUTILE} attempts without any progress: given up")
            return 1 if outcome is None else outcome.code or 1
        if not attempts.returning():
            attempts.say(f"{how}; {done}; the run is resumed")
            attempts.pause(min(2.0**futile, _LONGEST_PAUSE))
        if attempts.stopping():
            return Stopped.exit_code
        before, first = now, False


def _is_final(outcome: Outcome, first: bool, returning: bool) -> bool:
    """Return whether rank 0 has said the last word.

    The input that a first attempt took is not wrong later: then ranks that were left behind still write the file.
    """
    if not outcome.is_own or outcome.again:
        return False
    if outcome.code == InputError.exit_code:
        return first
    return not (returning and outcome.code == Stopped.exit_code)


def _how(outcome: Outcome) -> str:
    return "a host was lost" if outcome.again else f"the ranks ended with code {outcome.code}"
