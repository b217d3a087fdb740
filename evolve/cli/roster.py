"""Which hosts take part: those that do not answer are left out, and taken back when they do."""

import time
from collections.abc import Callable, Sequence

from evolve.cli.hosts import Host, Inquiry

_ASK_EVERY = 30.0  # seconds between questions to hosts that are left out
_SURE = 2  # answers in a row after which a host is taken back
_LEAST = 60.0  # seconds that a run is left alone


class Roster:
    """The hosts of a run.

    Args:
        hosts: All of them.
        ssh: The words of the command that reaches them.
        say: Tells the user something.
        every: How many seconds to wait between questions to hosts that are left out.
    """

    def __init__(
        self, hosts: Sequence[Host], ssh: Sequence[str], say: Callable[[str], None], every: float = _ASK_EVERY
    ) -> None:
        self._hosts = hosts
        self._ssh = ssh
        self._say = say
        self._every = every
        self._out: set[Host] = set()
        self._answers: dict[Host, int] = {}
        self._inquiry: Inquiry | None = None
        self._asked = self._begun = 0.0

    def choose(self) -> list[Host]:
        """Ask all hosts; return those that can run ranks, and say which cannot, or can again."""
        if self._inquiry is not None:
            self._inquiry.cancel()
            self._inquiry = None
        complaints = Inquiry(self._hosts, self._ssh).complaints()
        for host in self._hosts:
            if complaints[host] and host not in self._out:
                self._say(f"{host.name} {complaints[host]}: it is left out")
            elif not complaints[host] and host in self._out:
                self._say(f"{host.name} answers again: it is taken back")
        self._out = {host for host in self._hosts if complaints[host]}
        self._answers = dict.fromkeys(self._out, 0)
        self._asked = self._begun = time.monotonic()
        return [host for host in self._hosts if host not in self._out]

    def look(self) -> bool:
        """Return whether a host that was left out can be taken back. Called often, it asks now and then."""
        now = time.monotonic()
        if self._inquiry is not None:
            if not self._inquiry.finished():
                return False
            for host, complaint in self._inquiry.complaints().items():
                self._answers[host] = 0 if complaint else self._answers[host] + 1
            self._inquiry = None
        back = [host.name for host, answers in self._answers.items() if answers >= _SURE]
        if back and now - self._begun > min(_LEAST, 2 * self._every):
            self._say(f"{', '.join(back)} answers again: the run is stopped, and resumed with it")
            self._answers = {}
            return True
        if self._answers and now - self._asked > self._every:
            self._asked = now
            self._inquiry = Inquiry(list(self._answers), self._ssh)
        return False
