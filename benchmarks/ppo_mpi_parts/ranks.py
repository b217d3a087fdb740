"""The ranks of a job: sums over all of them, and the seconds that each rank spends on each part of its work."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTS = ("playing", "gradients", "communication", "waiting")
"""The parts of a rank's time. Together they are the whole time, because every second belongs to the part that ends it.

waiting: for the slowest rank, before a sum can begin. communication: the sums themselves.
"""


class DifferentRanksError(Exception):
    """The ranks do not have the same parameters. All ranks raise it, with the same message."""


class Ranks:
    """The ranks of a communicator of mpi4py, seen from one of them.

    Attributes:
        rank: The number of this rank.
        size: R, the number of all ranks.
        seconds: The seconds of this rank by part, see `PARTS`.
    """

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._since = time.perf_counter()

    def spend(self, part: str) -> None:
        """Add the time since the last call to a part."""
        now = time.perf_counter()
        self.seconds[part] += now - self._since
        self._since = now

    def pause(self) -> None:
        """Let the time since the last call belong to no part."""
        self._since = time.perf_counter()

    def share(self, total: int) -> tuple[int, int]:
        """Return the first of this rank's share of `total` items, and their number; shares differ by at most one."""
        first, end = (total * rank // self.size for rank in (self.rank, self.rank + 1))
        return first, end - first

    def add(self, values: NDArray[Any], after: str) -> None:
        """Replace an array by its sum over all ranks, in place.

        Args:
            values: The array; all ranks give one of the same shape and type.
            after: The part of the work that has ended with it.
        """
        self.spend(after)
        # Without this barrier the sum would include the wait for the slowest rank.
        self._communicator.Barrier()
        self.spend("waiting")
        # One array for all gradients: a message for each parameter would cost its latency each.
        self._communicator.Allreduce(values.copy(), values)
        self.spend("communication")

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._communicator.Barrier()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on every rank."""
        return self._communicator.allgather(value)

    def check_equal(self, digest: str, epoch: int) -> None:
        """Raise DifferentRanksError on all ranks unless all of them have the same digest of their parameters."""
        digests = self.gather(digest)
        self.spend("communication")
        others = [rank for rank, other in enumerate(digests) if other != digests[0]]
        if others:
            raise DifferentRanksError(
                f"Epoch {epoch}: expected the same parameters on all {self.size} ranks, got {digests[others[0]][:12]}… "
                f"on rank {others[0]} and {digests[0][:12]}… on rank 0. All ranks need the same builds of PyTorch, "
                "NumPy and MPI, and the same kind of processor."
            )


def moments(ranks: Ranks, values: NDArray[np.floating[Any]], after: str) -> tuple[float, float]:
    """Return the mean and the standard deviation of the values of all ranks. after: see `Ranks.add`."""
    sums = np.array([values.size, values.sum(dtype=np.float64)])
    ranks.add(sums, after)
    mean = sums[1] / sums[0]
    squares = np.array([np.square(values - mean, dtype=np.float64).sum()])
    ranks.add(squares, after)
    return float(mean), float(np.sqrt(squares[0] / sums[0]))
