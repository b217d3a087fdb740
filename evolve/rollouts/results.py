"""The results of many episodes, collected by key: the order of their arrival has no effect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.environments import decode_metrics
from evolve.genome import GenomeDescriptions, GenomeSource, describe
from evolve.numerics import ordered_sum
from evolve.numerics.hashing import MAX_HASHED_STEPS, fold_present
from evolve.rollouts.episodes import EPISODE_QUANTITIES, QUANTITIES, EpisodeResults, join, shape_of
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

TRACE_UNIT = 2.0**-20
"""Hebbian traces are summed as fixed-point numbers, in this unit: integers have the same sum in any order."""


def quantize_traces(traces: Float32) -> Int64:
    """Return Hebbian traces [K, T] in units of `TRACE_UNIT`; NaN and infinities become 0."""
    finite = np.where(np.isfinite(traces), traces, np.float32(0)).astype(np.float64)
    return np.rint(finite / TRACE_UNIT).astype(np.int64)


def sum_traces(results: EpisodeResults) -> EpisodeResults:
    """Return results in which each genome has one row of traces, the sum of its rows, in ascending order of genomes."""
    # An ascending order without repetitions is already the form to return.
    if (results.traced[1:] > results.traced[:-1]).all():
        return results
    order = np.argsort(results.traced, kind="stable")
    # The rows of one genome are adjacent now; integers have the same sum in any order.
    genomes, starts = np.unique(results.traced[order], return_index=True)
    traces = results.traces[order]
    if len(genomes) < len(order):
        traces = np.add.reduceat(traces, starts, axis=0)
    return replace(results, traced=genomes, traces=traces)


def join_descriptions(parts: Sequence[tuple[Int32, GenomeDescriptions]]) -> tuple[Int32, GenomeDescriptions]:
    """Return the genomes [D] and the descriptions of all parts, concatenated."""
    if not parts:
        return np.zeros(0, np.int32), _NO_DESCRIPTIONS
    descriptions = [description for _, description in parts]
    return np.concatenate([genomes for genomes, _ in parts]), GenomeDescriptions(
        np.concatenate([d.digests for d in descriptions]),
        np.concatenate([d.connections for d in descriptions]),
        np.concatenate([d.fingerprints for d in descriptions]),
    )


_NO_DESCRIPTIONS = GenomeDescriptions(np.zeros((0, 32), np.uint8), np.zeros(0, np.int32), np.zeros(0, np.uint64))


class ResultsCollector:
    """The results so far of a batch with C genomes of T traces each. Traces are summed when they arrive.

    Args:
        num_genomes: C.
        num_traces: T.
        traces: The traces to keep: "each" for one row per genome, "mean" for the sum over all genomes, or "none".
    """

    def __init__(self, num_genomes: int, num_traces: int, traces: str = "each") -> None:
        self._parts: list[EpisodeResults] = []
        rows = {"each": num_genomes, "mean": 1, "none": 0}[traces]
        self._traces: Int64 = np.zeros((rows, num_traces if rows else 0), np.int64)

    def add(self, results: EpisodeResults) -> None:
        """Add results; the caller adds each episode only once."""
        if self._traces.size:
            summed = sum_traces(results)
            self._traces[summed.traced] += summed.traces
        # The parts keep no traces, which are in the sum.
        kept = {name: _owned(getattr(results, name)) for name in QUANTITIES if name not in ("traced", "traces")}
        self._parts.append(EpisodeResults(**kept, traced=results.traced[:0].copy(), traces=results.traces[:0].copy()))

    def add_failure(self, genome: int, episode: int, observation_size: int, num_metrics: int = 0) -> None:
        """Add an episode that failed, with a return of NaN and zeros otherwise.

        observation_size: O of the moments; num_metrics: M.
        """
        sizes = {"N": 1, "O": observation_size, "L": 0, "K": 0, "D": 0, "T": self._traces.shape[1], "M": num_metrics}
        zeros = {name: np.zeros(shape_of(symbols, sizes), dtype) for name, (symbols, dtype) in QUANTITIES.items()}
        key = {"genomes": np.array([genome], np.int32), "episodes": np.array([episode], np.int32)}
        self.add(EpisodeResults(**zeros | key | {"returns": np.array([np.nan])}))

    def collect(self) -> EpisodeResults:
        """Return all results, with one row of traces for each genome, or with their sum as the only row."""
        genomes = np.arange(len(self._traces), dtype=np.int32)
        return replace(join(self._parts), traced=genomes, traces=self._traces).check()


def _owned(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy if it is a view: a view into a message would keep the whole message in memory."""
    return array if array.base is None else array.copy()


@dataclass(frozen=True)
class PopulationResults:
    """The results of P candidates in up to E episodes each.

    quantities: an array [P, E, …] for each quantity that `EpisodeResults` declares, by its name. played: [P, E],
    whether an episode was played. traces: [P, T], the means over each candidate's episodes; or [1, T], the mean over
    all episodes, if workers returned only the sum. episode_results: the same results with one row per episode, in any
    order.
    """

    quantities: Mapping[str, NDArray[Any]]
    played: Bool
    traces: Float32
    episode_results: EpisodeResults

    @property
    def returns(self) -> Float64:
        """[P, E], the returns; NaN for an episode that failed, or was not played."""
        return self.quantities["returns"]

    @property
    def lengths(self) -> Int32:
        """[P, E], the lengths of the episodes in environment steps."""
        return self.quantities["lengths"]

    @property
    def fingerprints(self) -> UInt64:
        """[P, E, 2], the fingerprints of observations and of network outputs, see `evolve.numerics.hashing`."""
        return self.quantities["fingerprints"]

    @property
    def moments(self) -> Float64:
        """[P, E, 2, O], sums and sums of squares of observations."""
        return self.quantities["moments"]

    def metrics(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the metrics of the episodes by name, [P, E] each: bool, int64 or float64.

        An episode that failed or was not played has False, 0 or NaN.
        """
        return decode_metrics(self.quantities["encoded_metrics"], names)

    @property
    def num_candidates(self) -> int:
        """The number of candidates that played, fewer than P if a growing population has not reached P."""
        return int(np.count_nonzero(self.played.any(axis=1)))

    @property
    def mean_traces(self) -> Float64:
        """[T], the mean over the candidates of the mean over each candidate's episodes.

        Raises ValueError if candidates played different numbers of episodes, as in a race, and only a sum is known.
        """
        # With equal numbers of episodes the mean of the means is the mean over all episodes, and needs only their sum.
        counts = np.count_nonzero(self.played, axis=1)
        if counts.min() < counts.max():
            if len(self.traces) != len(counts):
                raise ValueError(
                    "mean_traces: expected the traces of each candidate, as their numbers of episodes differ"
                )
            mean_of_means: Float64 = ordered_sum(self.traces.T.astype(np.float64)) / len(counts)
            return mean_of_means
        results = self.episode_results
        mean: Float64 = results.traces.sum(axis=0) * (TRACE_UNIT / max(len(results), 1))
        return mean

    def trace_fingerprints(self) -> UInt64:
        """Return [P]: a 64-bit fingerprint of each candidate's traces; 0 if only the sum of all candidates is known."""
        if len(self.traces) != len(self.played):
            return np.zeros(len(self.played), np.uint64)
        return fold_present(self.traces, np.ones(self.traces.shape, np.bool_))

    def descriptions(self, genomes: GenomeSource) -> GenomeDescriptions:
        """Return all P descriptions, computing here any that no worker sent."""
        results = self.episode_results
        ids = np.arange(len(genomes), dtype=np.int32)
        missing = np.setdiff1d(ids, results.described)
        received = GenomeDescriptions(results.digests, results.connections, results.genome_fingerprints)
        parts = [(results.described, received)]
        if len(missing):
            parts.append((missing, describe(genomes.take(missing.astype(np.int64)))))
        described, joined = join_descriptions(parts)
        _, first = np.unique(described, return_index=True)
        return GenomeDescriptions(joined.digests[first], joined.connections[first], joined.fingerprints[first])

    def step_hashes(self, candidate: int) -> list[UInt8]:
        """Return the step hashes [length, 2] of each of a candidate's E episodes; [0, 2] for an episode not played."""
        results = self.episode_results
        ends = np.cumsum(np.minimum(results.lengths, MAX_HASHED_STEPS), dtype=np.int64)
        hashes = [np.zeros((0, 2), np.uint8)] * self.played.shape[1]
        for n in np.flatnonzero(results.genomes == candidate).tolist():
            begin = int(ends[n - 1]) if n else 0
            hashes[int(results.episodes[n])] = results.step_hashes[begin : int(ends[n])]
        return hashes


def by_candidate(results: EpisodeResults, population: int, episodes: int) -> PopulationResults:
    """Return results as tables of candidates × episodes.

    Args:
        results: The results of P genomes, with one row of traces for each genome, or one row for all (`sum_traces`).
        population: P.
        episodes: E.
    """
    P = population
    at = (results.genomes, results.episodes)
    quantities = {name: _table(getattr(results, name), at, (P, episodes)) for name in EPISODE_QUANTITIES}
    played = np.zeros((P, episodes), np.bool_)
    played[at] = True
    quantities["returns"][~played] = np.nan
    # Each row of traces is a sum over a candidate's episodes, or over all episodes: divide by their number.
    counts = np.count_nonzero(played, axis=1) if len(results.traces) == P else np.array([len(results)])
    scale = TRACE_UNIT / np.maximum(counts, 1)[: len(results.traces), None]
    traces = (results.traces.astype(np.float64) * scale).astype(np.float32)
    return PopulationResults(quantities, played, traces, results)


def _table(values: NDArray[Any], at: tuple[Int32, Int32], shape: tuple[int, int]) -> NDArray[Any]:
    """Return a table of candidates × episodes with the values at their places, and zeros elsewhere."""
    table: NDArray[Any] = np.zeros((*shape, *values.shape[1:]), values.dtype)
    table[at] = values
    return table
