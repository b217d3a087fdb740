"""What the evaluation of a population comes to, gathered by key so that the order of arrival cannot matter."""

from dataclasses import dataclass

import numpy as np

from evolve.shapes import Bool, Float32, Float64, Int32, Int64

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
        self.traces = T
        self._returns, self._lengths = np.full((P, E), np.nan), np.zeros((P, E), np.int32)
        self._done, self._trace_sums = np.zeros((P, E), np.bool_), np.zeros((P, T), np.int64)

    def put(self, candidates: Int32, episodes: Int32, returns: Float64, lengths: Int32, traces: Float32) -> None:
        """Enter the outcomes of N different units, [N] each and traces [N, T]; known units change nothing."""
        new = np.flatnonzero(~self._done[candidates, episodes])
        if not len(new):
            return
        at = candidates[new], episodes[new]
        self._done[at] = True
        self.waiting -= len(new)
        self._returns[at], self._lengths[at] = returns[new], lengths[new]
        if len(new) == 1:
            self._trace_sums[at[0][0]] += _whole(traces[new[0]])
            return
        order = np.argsort(at[0])
        whose, begin = np.unique(at[0][order], return_index=True)
        self._trace_sums[whose] += np.add.reduceat(_whole(traces[new[order]]), begin, axis=0)

    @property
    def failed(self) -> int:
        """How many units have a return that is no number."""
        return int(np.count_nonzero(np.isnan(self._returns) & self._done))

    @property
    def done(self) -> Bool:
        """[P, E]: which units have an outcome."""
        return self._done

    def evaluation(self, mask: Bool, busy_seconds: Float64) -> Evaluation:
        """Return the evaluation; a connection that `mask` [P, W] says is pruned has no trace; `busy_seconds` [R]."""
        means = (self._trace_sums.astype(np.float64) * (_TRACE_UNIT / self._done.shape[1])).astype(np.float32)
        if means.shape[1]:
            means[~mask] = 0
        return Evaluation(self._returns, self._lengths, means, busy_seconds)


def _whole(traces: Float32) -> Int64:
    """Return traces in whole units; what is no number counts as zero."""
    finite = np.where(np.isfinite(traces), traces, np.float32(0)).astype(np.float64)
    return np.rint(finite / _TRACE_UNIT).astype(np.int64)
