"""Collective calls of a script: every rank calls the same function, rank 0 does the work, and all get its answer."""

import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache, partial
from types import TracebackType

from evolve.cluster.coordinator import Coordinator, dismiss
from evolve.cluster.start import connect, silence_seconds
from evolve.cluster.transport import Transport
from evolve.cluster.worker import KeptRollouts, MakeRollout, SharedState, serve
from evolve.errors import RunError, error_from_json, error_to_json

_ANSWER, _ERROR = b"A", b"E"
_ON_ALL_RANKS = "_raised_on_all_ranks"


@cache
def all_ranks() -> Transport:
    """Return the transport of this process: MPI's ranks if a launcher started several, else this process alone.

    An exception that ends the script on one of several ranks ends all ranks, which would wait for that one forever.
    """
    transport = connect()
    if transport.size > 1:
        sys.excepthook = partial(_end_all, transport, sys.excepthook)
    return transport


def _end_all(
    transport: Transport,
    report: Callable[..., object],
    kind: type[BaseException],
    error: BaseException,
    at: TracebackType | None,
) -> None:
    """Report an exception that ends this rank, and end the other ranks unless it was raised on all of them."""
    try:
        report(kind, error, at)
        sys.stdout.flush()
    finally:
        if not hasattr(error, _ON_ALL_RANKS):
            transport.abort(1)


class Collective:
    """The ranks of a script in which all of them call the same functions.

    Args:
        make_rollout: Makes a rollout from an experiment's TOML text.
        shared: The state that rank 0 updates on the other ranks.
    """

    def __init__(
        self,
        make_rollout: MakeRollout,
        shared: SharedState | None = None,
    ) -> None:
        self._shared = shared
        self.transport = all_ranks()
        """The transport between the ranks."""
        self._rollouts = KeptRollouts(make_rollout)
        self.stop_reason: Callable[[], str | None] = lambda: None
        """Called often by rank 0; returns a reason to stop early, or None."""
        self.all_left = True
        """Whether all other ranks have left `follow` after an error of rank 0."""

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.transport.rank == 0

    def coordinator(self) -> Coordinator:
        """Return a coordinator of the other ranks; for rank 0 only."""
        return Coordinator(self.transport, self._rollouts, self._reason, exit_on_hang=False)

    def _reason(self) -> str | None:
        return self.stop_reason()

    def call(self, work: Callable[[Coordinator], bytes]) -> bytes:
        """Do `work` on rank 0; return its answer, or raise its error, on every rank.

        This is the last call: environments are released afterwards.
        """
        with closing(self):
            if not self.leads:
                return self.follow()
            try:
                answer = work(self.coordinator())
            except BaseException as error:
                self.release_error(error)
                raise
            self.release(answer)
            return answer

    def close(self) -> None:
        """Release the environments of this rank."""
        self._rollouts.close()

    def follow(self) -> bytes:
        """Serve rank 0 until it releases this rank; return its answer, or raise its error."""
        answer = serve(self.transport, self._rollouts, lambda: None, self._shared)
        if answer[:1] == _ERROR:
            error = error_from_json(answer[1:])
            setattr(error, _ON_ALL_RANKS, True)
            raise error
        return answer[1:]

    def release(self, answer: bytes) -> None:
        """Have the other ranks leave `follow` with an answer. Raises RunError if one of them does not."""
        if not dismiss(self.transport, _ANSWER + answer, silence_seconds()):
            raise RunError("not all ranks answered: one of them hangs or has died")

    def release_error(self, error: BaseException) -> None:
        """Have the other ranks leave `follow` with an error that is raised on this rank, too."""
        self.all_left = dismiss(self.transport, _ERROR + error_to_json(error))
        with suppress(Exception):  # an exception of another library may refuse attributes
            setattr(error, _ON_ALL_RANKS, True)
