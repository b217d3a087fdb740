"""What the evaluation of a population comes to, gathered by key so that the order of arrival cannot matter."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from evolve.fingerprint import LONGEST_TRAIL, fold_present
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

_TRACE_UNIT = 2.0**-20


@dataclass(frozen=True)
class Outcomes:
    """What N episodes came to.

    candidates, episodes: [N], whose they are; returns: [N]; lengths: [N], environment steps; traces: [N, T];
    fingerprints: [N, 2], of observations and of network outputs; trails: [Σ min(length, LONGEST_TRAIL), 2], end to end;
    moments: [N, 2, O], sums and sums of squares of observations where these are normalized, otherwise O = 0 here.
    """

    candidates: Int32
    episodes: Int32
    returns: Float64
    lengths: Int32
    traces: Float32
    fingerprints: UInt64
    trails: UInt8
    moments: Float64

    def __len__(self) -> int:
        return len(self.candidates)


def join(parts: Sequence[Outcomes]) -> Outcomes:
    """Return the outcomes of all parts, end to end."""
    return Outcomes(*(np.concatenate([getattr(p, field.name) for p in parts]) for field in fields(Outcomes)))


class Trails:
    """The trails of an evaluation, in the order in which they came."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int32, Int32, Int32, UInt8]] = []
        self._places: dict[tuple[int, int], tuple[int, int, int]] = {}  # part, begin and end of each unit's trail
        self._placed = 0

    def put(self, outcomes: Outcomes) -> None:
        """Keep the trails of some outcomes."""
        lengths = np.minimum(outcomes.lengths, LONGEST_TRAIL)
        # Copies: what comes from a message is a view that would keep all of it alive.
        kept = outcomes.candidates.copy(), outcomes.episodes.copy(), lengths, outcomes.trails.copy()
        self._parts.append(kept)

    def of(self, candidate: int, episodes: int) -> list[UInt8]:
        """Return the trails [length, 2] of a candidate's E episodes; those that were not played have none."""
        self._place()
        found = []
        for episode in range(episodes):
            part, begin, end = self._places.get((candidate, episode), (0, 0, 0))
            found.append(self._parts[part][3][begin:end] if end else np.zeros((0, 2), np.uint8))
        return found

    def _place(self) -> None:
        for part in range(self._placed, len(self._parts)):
            candidates, episodes, lengths, _ = self._parts[part]
            ends = accumulate(lengths.tolist())
            units = zip(candidates.tolist(), episodes.tolist(), lengths.tolist(), ends, strict=True)
            self._places |= {(c, e): (part, end - length, end) for c, e, length, end in units}
        self._placed = len(self._parts)


@dataclass(frozen=True)
class Evaluation:
    """What P candidates came to in E episodes each.

    returns [P, E]; lengths [P, E], environment steps; played [P, E], whether at all; traces [P, T], means over the
    episodes played; fingerprints [P, E, 2]; moments [P, E, 2, O], of observations where these are normalized, otherwise
    O = 0 here; busy_seconds, environment_seconds [R], how long each rank was at work, and in environments.
    """

    returns: Float64
    lengths: Int32
    played: Bool
    traces: Float32
    fingerprints: UInt64
    moments: Float64
    trails: Trails
    busy_seconds: Float64
    environment_seconds: Float64

    def trace_fingerprints(self) -> UInt64:
        """Return [P]: 64 bits that stand for each candidate's traces."""
        return fold_present(self.traces, np.ones(self.traces.shape, np.bool_))

    def after(self, other: "Evaluation | None") -> "Evaluation":
        """Return this evaluation, with the time that ranks have spent on another one before it."""
        if other is None:
            return self
        busy, environments = (
            self.busy_seconds + other.busy_seconds,
            self.environment_seconds + other.environment_seconds,
        )
        return replace(self, busy_seconds=busy, environment_seconds=environments)


class Ledger:
    """The evaluation so far of P candidates × E episodes, with T trace values and moments of O observations each.

    Traces are added up as whole multiples of 2**-20: integer addition is associative, so any order of arrival
    gives the same bits without keeping P·E traces.
    """

    def __init__(self, P: int, E: int, T: int, O: int = 0) -> None:
        self.units = 0
        """Units that are to have an outcome."""
        self.waiting = 0
        """Those that have none yet."""
        self.traces = T
        self._returns, self._lengths = np.full((P, E), np.nan), np.zeros((P, E), np.int32)
        self._done, self._trace_sums = np.zeros((P, E), np.bool_), np.zeros((P, T), np.int64)
        self._fingerprints, self._trails = np.zeros((P, E, 2), np.uint64), Trails()
        self._moments = np.zeros((P, E, 2, O))

    def expect(self, units: int) -> None:
        """Wait for so many more units."""
        self.units += units
        self.waiting += units

    def put(self, outcomes: Outcomes) -> None:
        """Enter the outcomes of different units; known units change nothing."""
        new = np.flatnonzero(~self._done[outcomes.candidates, outcomes.episodes])
        if not len(new):
            return
        at = outcomes.candidates[new], outcomes.episodes[new]
        self._done[at] = True
        self.waiting -= len(new)
        self._returns[at], self._lengths[at] = outcomes.returns[new], outcomes.lengths[new]
        self._fingerprints[at], self._moments[at] = outcomes.fingerprints[new], outcomes.moments[new]
        self._trails.put(outcomes)
        self._add_traces(at[0], outcomes.traces, new)

    def give_up(self, candidate: int, episode: int) -> None:
        """Enter that a unit has failed, with nothing known of it."""
        at = np.array([candidate], np.int32), np.array([episode], np.int32)
        traces, fingerprints = np.zeros((1, self.traces), np.float32), np.zeros((1, 2), np.uint64)
        no_trail, moments = np.zeros((0, 2), np.uint8), np.zeros((1, *self._moments.shape[2:]))
        self.put(Outcomes(*at, np.array([np.nan]), np.zeros(1, np.int32), traces, fingerprints, no_trail, moments))

    def _add_traces(self, candidates: Int32, traces: Float32, new: NDArray[np.intp]) -> None:
        """Add rows `new` [n] of traces [N, T] to the sums of candidates [n]."""
        if len(new) == 1:
            self._trace_sums[candidates[0]] += _whole(traces[new[0]])
            return
        order = np.argsort(candidates)
        whose, begin = np.unique(candidates[order], return_index=True)
        self._trace_sums[whose] += np.add.reduceat(_whole(traces[new[order]]), begin, axis=0)

    @property
    def returns(self) -> Float64:
        """[P, E]: the returns so far."""
        return self._returns

    @property
    def failed(self) -> int:
        """How many units have a return that is no number."""
        return int(np.count_nonzero(np.isnan(self._returns) & self._done))

    @property
    def done(self) -> Bool:
        """[P, E]: which units have an outcome."""
        return self._done

    def evaluation(self, mask: Bool, seconds: Float64) -> Evaluation:
        """Return the evaluation; a connection that `mask` [P, W] says is pruned has no trace.

        seconds: [2, R], how long each rank was busy, and its environments.
        """
        unit = _TRACE_UNIT / np.maximum(np.count_nonzero(self._done, axis=1), 1)[:, None]
        means = (self._trace_sums.astype(np.float64) * unit).astype(np.float32)
        if means.shape[1]:
            means[~mask] = 0
        kept = self._fingerprints, self._moments, self._trails
        return Evaluation(self._returns, self._lengths, self._done, means, *kept, *seconds)


def _whole(traces: Float32) -> Int64:
    """Return traces in whole units; what is no number counts as zero."""
    finite = np.where(np.isfinite(traces), traces, np.float32(0)).astype(np.float64)
    return np.rint(finite / _TRACE_UNIT).astype(np.int64)
