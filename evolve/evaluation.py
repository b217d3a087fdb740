"""What the evaluation of a population comes to, gathered by key so that the order of arrival cannot matter."""

from dataclasses import dataclass

import numpy as np

from evolve.shapes import Float32, Float64, Int32

_TRACE_UNIT = 2.0**-20


@dataclass(frozen=True)
class Evaluation:
    """returns [P, E]; lengths [P, E], environment steps; traces [P, T], means over episodes; busy_seconds [R]."""

    returns: Float64
    lengths: Int32
    traces: Float32
    busy_seconds: Float64


class Ledger:
    """The evaluation so far of P candidates × E episodes, with T trace values each.

    Traces are added up as whole multiples of 2**-20: integer addition is associative, so any order of arrival
    gives the same bits without keeping P·E traces.
    """

    def __init__(self, P: int, E: int, T: int) -> None:
        self.waiting = P * E
        """Units without an outcome."""
        self._returns, self._lengths = np.full((P, E), np.nan), np.zeros((P, E), np.int32)
        self._done, self._trace_sums = np.zeros((P, E), np.bool_), np.zeros((P, T), np.int64)

    def put(self, candidate: int, episode: int, episode_return: float, length: int, trace: Float32) -> None:
        """Enter one outcome; that of a unit known already changes nothing."""
        if self._done[candidate, episode]:
            return
        self._done[candidate, episode] = True
        self.waiting -= 1
        self._returns[candidate, episode], self._lengths[candidate, episode] = episode_return, length
        whole = np.rint(trace.astype(np.float64) / _TRACE_UNIT)
        self._trace_sums[candidate] += np.where(np.isfinite(whole), whole, 0.0).astype(np.int64)

    def evaluation(self, busy_seconds: Float64) -> Evaluation:
        """Return the evaluation; `busy_seconds` [R]."""
        means = (self._trace_sums.astype(np.float64) * (_TRACE_UNIT / self._done.shape[1])).astype(np.float32)
        return Evaluation(self._returns, self._lengths, means, busy_seconds)
