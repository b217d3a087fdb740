"""Collects the results of episodes, which arrive in any order, in tables of candidates × episodes.

`PopulationResults.add` takes `EpisodeResults`. The strategy and the run file then read the tables. The functions above
the class compute metrics and traces from results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.config import observation_index
from evolve.environments import decode_metrics
from evolve.genome import GenomeDescriptions, GenomeSource, describe
from evolve.numerics import ordered_sum
from evolve.numerics.hashing import MAX_HASHED_STEPS, fold_present
from evolve.rollouts.episodes import EPISODE_QUANTITIES, QUANTITIES, EpisodeBatch, EpisodeResults, shape_of
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64


def metrics_of(quantities: Mapping[str, NDArray[Any]], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the metrics of episodes by name. Each array has the shape […] of the episodes: [N], or [P, E].

    Environments report some metrics. The others, such as "mean_observation_3", are the mean of one number of the
    observation, over the steps. It is NaN in an episode without steps, or with a return of NaN.

    Args:
        quantities: The quantities that `EpisodeResults` declares, by name. Their first axes are […].
        names: The names of the metrics.
    """
    # Row 0 of the moments has the sums of the observations, and row 1 the sums of squares.
    lengths, sums = quantities["lengths"], quantities["moments"][..., 0, :]
    has_mean = (lengths > 0) & ~np.isnan(quantities["returns"])
    reported = [name for name in names if observation_index(name) is None]
    metrics = decode_metrics(quantities["encoded_metrics"], reported)
    for name in names:
        if name not in metrics:
            # An episode without steps has no mean, and gets NaN below. The maximum avoids a division by 0.
            means = sums[..., observation_index(name)] / np.maximum(lengths, 1)
            metrics[name] = np.where(has_mean, means, np.nan)
    return {name: metrics[name] for name in names}


TRACE_UNIT = 2.0**-20
"""The unit of Hebbian traces as integers. Integers have the same sum in any order."""
_TRACE_LIMIT = np.float32(2.0**43)  # 2⁶³ units, which int64 cannot hold


def quantize_traces(traces: Float32) -> Int64:
    """Return Hebbian traces [K, T] in units of `TRACE_UNIT`. NaN, and traces that int64 cannot hold, become 0."""
    fitting = np.where(np.abs(traces) < _TRACE_LIMIT, traces, np.float32(0)).astype(np.float64)
    return np.rint(fitting / TRACE_UNIT).astype(np.int64)


def sum_traces(results: EpisodeResults) -> EpisodeResults:
    """Return results with one row of `traces` for each genome in `traced`, the sum of its rows. `traced` ascends."""
    if (results.traced[1:] > results.traced[:-1]).all():  # each genome has one row already
        return results
    order = np.argsort(results.traced, kind="stable")  # makes the rows of one genome adjacent
    genomes, starts = np.unique(results.traced[order], return_index=True)
    traces = results.traces[order]
    if len(genomes) < len(order):
        traces = np.add.reduceat(traces, starts, axis=0)
    return replace(results, traced=genomes, traces=traces)


def genomes_of_traces(genomes: Int32, mode: str) -> Int32:
    """Return `EpisodeResults.traced` for N episodes with one row of traces each.

    genomes: [N], the genome of each episode.
    mode: `EpisodeBatch.traces`. For "mean" all rows belong to genome 0, so that `PopulationResults` sums them. For
        "none" there are no rows.
    """
    if mode == "each":
        return genomes
    return np.zeros_like(genomes) if mode == "mean" else genomes[:0]


def no_descriptions(n: int) -> GenomeDescriptions:
    """Return n empty descriptions."""
    return GenomeDescriptions(np.zeros((n, 32), np.uint8), np.zeros(n, np.int32), np.zeros(n, np.uint64))


_NO_PART = -1  # the worker left out the step hashes of an episode


class CollectedHashes:
    """The step hashes of P × E episodes, in the parts that workers sent. shape: P, E."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._parts: list[UInt8] = []
        # The number of each episode's part, and the row of the part at which the hashes of the episode begin.
        self._part_numbers = np.zeros(shape, np.int32)
        self._begins = np.zeros(shape, np.int64)

    def add(self, results: EpisodeResults, at: Int64) -> None:
        """Add the step hashes of N episodes. at: [N], the index of each episode in the flattened table [P, E]."""
        num_rows = np.minimum(results.lengths, MAX_HASHED_STEPS) * results.hashed  # 0 if the hashes were left out
        self._part_numbers.reshape(-1)[at] = np.where(results.hashed, len(self._parts), _NO_PART)
        # The hashes lie end to end, so an episode begins where the hashes of earlier episodes end.
        self._begins.reshape(-1)[at] = np.cumsum(num_rows, dtype=np.int64) - num_rows
        # A view into a message would keep the whole message in memory.
        is_view = results.step_hashes.base is not None
        self._parts.append(results.step_hashes.copy() if is_view else results.step_hashes)

    def of(self, candidate: int, episode: int, length: int) -> UInt8:
        """Return the step hashes [min(length, MAX_HASHED_STEPS), 2] of an episode that was played.

        Raises ValueError if the rank that played the episode left out its hashes (`EpisodeBatch.best_of`).
        """
        number, begin = int(self._part_numbers[candidate, episode]), int(self._begins[candidate, episode])
        if number == _NO_PART:
            raise ValueError(f"candidate {candidate}, episode {episode}: the step hashes were left out")
        return self._parts[number][begin : begin + min(length, MAX_HASHED_STEPS)]


class PopulationResults:
    """The results of P candidates in up to E episodes each, in tables that arriving results fill in any order.

    Args:
        population: P.
        episodes: E, the largest number of episodes of a candidate.
        num_traces: T.
        traces: The traces to keep: "each" (a row for each candidate), "mean" (one row for all) or "none".

    Attributes:
        quantities: An array [P, E, …] for each quantity that `EpisodeResults` declares, by its name.
        played: [P, E], whether an episode was played.
        trace_sums: The sums from which `traces` are computed, in units of `TRACE_UNIT`.
    """

    def __init__(self, population: int, episodes: int, num_traces: int, traces: str = "each") -> None:
        self.quantities: dict[str, NDArray[Any]] = {}
        self.played: Bool = np.zeros((population, episodes), np.bool_)
        rows = {"each": population, "mean": 1, "none": 0}[traces]
        self.trace_sums: Int64 = np.zeros((rows, num_traces if rows else 0), np.int64)
        self._hashes = CollectedHashes((population, episodes))
        self._described = np.zeros(population, np.bool_)
        self._descriptions = no_descriptions(population)

    @classmethod
    def of(cls, batch: EpisodeBatch, num_traces: int) -> "PopulationResults":
        """Return empty tables for the results of one batch, with T = `num_traces`."""
        return cls(len(batch.genomes), int(batch.episodes.max(initial=0)) + 1, num_traces, batch.traces)

    def add(self, results: EpisodeResults) -> None:
        """Add results. The caller must not add an episode twice."""
        # One index into flat tables is faster than two.
        at = results.genomes.astype(np.int64) * self.played.shape[1] + results.episodes
        for name in EPISODE_QUANTITIES:
            values = getattr(results, name)
            if name not in self.quantities:
                missing = np.nan if name == "returns" else 0
                self.quantities[name] = np.full((*self.played.shape, *values.shape[1:]), missing, QUANTITIES[name][1])
            # NumPy cannot infer the length for -1 if another length is 0, as O and M may be.
            if values.size:
                self.quantities[name].reshape(-1, *values.shape[1:])[at] = values
        self.played.reshape(-1)[at] = True
        self._hashes.add(results, at)
        if self.trace_sums.size:
            summed = sum_traces(results)
            self.trace_sums[summed.traced] += summed.traces
            vars(self).pop("traces", None)  # the cached property was computed from the earlier sums
        if len(results.described):
            self._described[results.described] = True
            for name, descriptions in vars(self._descriptions).items():
                descriptions[results.described] = getattr(results, name)

    def add_failure(self, genome: int, episode: int, observation_size: int, num_metrics: int = 0) -> None:
        """Add an episode that failed. Its return is NaN, and all other quantities are 0.

        observation_size: O of the moments. num_metrics: M.
        """
        # `EpisodeResults` explains the letters. There are no step hashes (L), traces (K) and descriptions (D).
        T = self.trace_sums.shape[1]
        sizes = {"N": 1, "O": observation_size, "L": 0, "K": 0, "D": 0, "T": T, "M": num_metrics}
        zeros = {name: np.zeros(shape_of(symbols, sizes), dtype) for name, (symbols, dtype) in QUANTITIES.items()}
        key = {"genomes": np.array([genome], np.int32), "episodes": np.array([episode], np.int32)}
        # `hashed` is True: an episode of length 0 has no step hashes that could be missing.
        failed = {"returns": np.array([np.nan]), "hashed": np.array([True])}
        self.add(EpisodeResults(**zeros | key | failed))

    @property
    def returns(self) -> Float64:
        """[P, E], the returns. NaN for an episode that failed or was not played."""
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
        return metrics_of(self.quantities, names)

    @cached_property
    def traces(self) -> Float32:
        """[P, T], the mean traces of each candidate over its episodes; a failed episode has zeros.

        With traces "mean" it is [1, T], the mean over all episodes; with "none" it is [0, 0].
        """
        counts = np.count_nonzero(self.played, axis=1)  # of the episodes that each row sums
        if len(self.trace_sums) != len(counts):
            counts = np.array([np.count_nonzero(self.played)])
        # With "none" there are no rows, and the slice is empty.
        scale = TRACE_UNIT / np.maximum(counts, 1)[: len(self.trace_sums), None]
        return (self.trace_sums.astype(np.float64) * scale).astype(np.float32)

    @property
    def num_candidates(self) -> int:
        """The number of candidates that played. A growing population may not have reached P."""
        return int(np.count_nonzero(self.played.any(axis=1)))

    @property
    def mean_traces(self) -> Float64:
        """[T], the traces averaged over each candidate's episodes (0 if it has none), and then over all candidates.

        Raises ValueError if candidates played different numbers of episodes, as in a race, and traces are not "each".
        """
        # If all candidates played equally many episodes, the mean of the means is the mean over all episodes.
        counts = np.count_nonzero(self.played, axis=1)
        if counts.min() < counts.max():
            if len(self.traces) != len(counts):
                expected = "the traces of each candidate, as their numbers of episodes differ"
                raise ValueError(f"mean_traces: expected {expected}")
            return ordered_sum(self.traces.T.astype(np.float64)) / len(counts)
        return self.trace_sums.sum(axis=0) * (TRACE_UNIT / max(int(counts.sum()), 1))

    def trace_fingerprints(self) -> UInt64:
        """Return [P]: a 64-bit fingerprint of each candidate's traces; 0 unless traces are "each"."""
        if len(self.traces) != len(self.played):
            return np.zeros(len(self.played), np.uint64)
        return fold_present(self.traces, np.ones(self.traces.shape, np.bool_))

    def descriptions(self, genomes: GenomeSource) -> GenomeDescriptions:
        """Return all P descriptions, computing here any that no worker sent."""
        missing = np.flatnonzero(~self._described)
        if len(missing):
            for name, computed in vars(describe(genomes.take(missing))).items():
                getattr(self._descriptions, name)[missing] = computed
            self._described[:] = True
        return self._descriptions

    def step_hashes(self, candidate: int) -> list[UInt8]:
        """Return the step hashes of a candidate's E episodes, see `CollectedHashes.of`; [0, 2] if not played."""
        hashes = [np.zeros((0, 2), np.uint8)] * self.played.shape[1]
        for episode in np.flatnonzero(self.played[candidate]).tolist():
            hashes[episode] = self._hashes.of(candidate, episode, int(self.lengths[candidate, episode]))
        return hashes
