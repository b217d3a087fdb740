"""What is compared: the log of one candidate's evaluation, from a run file or made here."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from evolve.evaluation import Evaluation
from evolve.shapes import Bool, Float64, Int32, UInt8, UInt64
from evolve.store import Record


@dataclass(frozen=True)
class Log:
    """One candidate in E episodes.

    returns, lengths: [E]; fingerprints: [E, 2], of observations and actions; traces: the fingerprint of its traces;
    trail: [E, L, 2], None where it was not kept.
    """

    returns: Float64
    lengths: Int32
    fingerprints: UInt64
    traces: int
    trail: UInt8 | None


LogOrRecord = TypeVar("LogOrRecord", Log, Record)


def differs(ours: LogOrRecord, theirs: LogOrRecord) -> Bool:
    """Return [E], or [P, E] of whole generations: which episodes are not the same to the bit."""
    same = (ours.returns == theirs.returns) | (np.isnan(ours.returns) & np.isnan(theirs.returns))
    played = (ours.fingerprints == theirs.fingerprints).all(axis=-1)
    apart: Bool = ~(same & (ours.lengths == theirs.lengths) & played)
    return apart


def of_record(record: Record, candidate: int) -> Log:
    """Return a candidate's log in a run file."""
    champion = candidate == record.champion_candidate
    return Log(
        record.returns[candidate],
        record.lengths[candidate],
        record.fingerprints[candidate],
        int(record.trace_fingerprints[candidate]),
        record.champion_trail if champion else None,
    )


def of_evaluation(evaluation: Evaluation, row: int, traces: UInt64) -> Log:
    """Return a candidate's log in an evaluation made here; traces: [P], the fingerprints of all candidates' traces."""
    return Log(
        evaluation.returns[row],
        evaluation.lengths[row],
        evaluation.fingerprints[row],
        int(traces[row]),
        evaluation.trails.of(row, evaluation.returns.shape[1]),
    )


def parting(ours: UInt8, theirs: UInt8, lengths: tuple[int, int]) -> tuple[int, str] | None:
    """Return the first step at which two trails [L, 2] part, and what does: observations, actions, or the end.

    lengths: of the two episodes. None when the trails, which are not endless, do not part.
    """
    common = min(*lengths, len(ours), len(theirs))
    apart = np.argwhere(ours[:common] != theirs[:common])
    if len(apart):
        step, which = (int(number) for number in apart[0])
        return step, ("observations", "actions")[which]
    if lengths[0] != lengths[1] and common == min(lengths):
        return common, "end"
    return None


@dataclass(frozen=True)
class Place:
    """Where two logs part. what: genome, episode, traces, or log; told: in words."""

    what: str
    told: str
    generation: int
    candidate: int | None = None
    episode: int | None = None


def first_difference(generation: int, ours: Record, theirs: Record) -> Place | None:
    """Return where two logs of a generation part; of several episodes, if possible a champion's, which has a trail."""
    at = f"generation {generation}"
    if ours.returns.shape != theirs.returns.shape:
        sizes = f"population × episodes {ours.returns.shape} against {theirs.returns.shape}"
        return Place("log", f"{at}: {sizes}", generation)
    genomes = ours.genome_fingerprints != theirs.genome_fingerprints
    apart = differs(ours, theirs)
    if apart.any():
        return _episode(generation, ours, theirs, apart, genomes)
    for what, which in (("genome", genomes), ("traces", ours.trace_fingerprints != theirs.trace_fingerprints)):
        if which.any():
            candidate = int(np.flatnonzero(which)[0])
            told = f"{at}: candidate {candidate}: its {what.rstrip('s')}{'s' * (what == 'traces')} differ"
            return Place(what, f"{told}, though its episodes are equal", generation, candidate)
    return _log(generation, ours, theirs)


def _episode(generation: int, ours: Record, theirs: Record, apart: Bool, genomes: Bool) -> Place:
    places = np.argwhere(apart)
    champions = [place for place in places if place[0] in (ours.champion_candidate, theirs.champion_candidate)]
    chosen = places[0] if genomes.any() or not champions else champions[0]
    c, e = (int(part) for part in chosen)
    told = f"generation {generation}: {episode_apart(c, e, of_record(ours, c), of_record(theirs, c))}"
    more = f" ({len(places) - 1} more episodes of that generation differ)" if len(places) > 1 else ""
    return Place("genome" if genomes.any() else "episode", told + more, generation, c, e)


def episode_apart(candidate: int, episode: int, ours: Log, theirs: Log) -> str:
    """Return an episode's return and length in two logs, in words."""
    a, b = (f"{float(log.returns[episode])!r} in {log.lengths[episode]} steps" for log in (ours, theirs))
    both = f"{a} against {b}" if a != b else f"{a} both times, but not the same steps,"
    return f"candidate {candidate}, episode {episode}: return {both}"


def _log(generation: int, ours: Record, theirs: Record) -> Place | None:
    """Return what else of two records differs: one was changed, or written by another evolve."""
    at = f"generation {generation}"
    for name in ("champion_candidate", "champion_weights", "champion_mask", "connections", "fitness"):
        if not np.array_equal(getattr(ours, name), getattr(theirs, name), equal_nan=name == "fitness"):
            told = f"{at}: {name.replace('_', ' ')} differ, though every episode is equal"
            return Place("log", told, generation)
    if ours.digest != theirs.digest:
        told = f"{at}: the digests differ, though all that is stored is equal: one of them was changed"
        return Place("log", told, generation)
    return None
