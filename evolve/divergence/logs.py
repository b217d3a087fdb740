"""What is compared: the log of one candidate's evaluation, from a run file or made here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evolve import store
from evolve.evaluation import Evaluation
from evolve.fingerprint import LONGEST_TRAIL
from evolve.genome import DIGEST_START, chain_digest
from evolve.shapes import Bool, Float64, Int32, UInt8, UInt64
from evolve.store import Record, Run

_ENOUGH = 8  # steps
_REST = ("champion_candidate", "champion_weights", "champion_mask", "champion_fitness", "champion_trail", "connections",
         "fitness", "steps")  # fmt: skip


@dataclass(frozen=True)
class Track:
    """What is known of one episode. fingerprint: [2], of observations and actions; trail: [length, 2], or None."""

    returned: float
    length: int
    fingerprint: UInt64
    trail: UInt8 | None

    @property
    def words(self) -> str:
        """Its return and length."""
        return f"{self.returned!r} in {self.length} steps"

    def fits(self) -> bool:
        """Return whether its trail ends as the fingerprint says; one that is cut off may end anyhow."""
        if self.trail is None or self.length > LONGEST_TRAIL or not len(self.trail):
            return True
        return bool((self.trail[-1] == self.fingerprint >> np.uint64(56)).all())


@dataclass(frozen=True)
class Log:
    """One candidate in E episodes.

    returns, lengths: [E]; fingerprints: [E, 2], of observations and actions; traces: the fingerprint of its traces;
    trails: [E] of [length, 2] each, None where they were not kept.
    """

    returns: Float64
    lengths: Int32
    fingerprints: UInt64
    traces: int
    trails: list[UInt8] | None

    def track(self, episode: int) -> Track:
        """Return what is known of an episode."""
        trail = None if self.trails is None else self.trails[episode]
        return Track(float(self.returns[episode]), int(self.lengths[episode]), self.fingerprints[episode], trail)


LogOrRecord = TypeVar("LogOrRecord", Log, Record)


def differs(ours: LogOrRecord, theirs: LogOrRecord) -> Bool:
    """Return [E], or [P, E] of whole generations: which episodes are not the same to the bit."""
    same = (ours.returns == theirs.returns) | (np.isnan(ours.returns) & np.isnan(theirs.returns))
    played = (ours.fingerprints == theirs.fingerprints).all(axis=-1)
    apart: Bool = ~(same & (ours.lengths == theirs.lengths) & played)
    return apart


def of_record(record: Record, candidate: int) -> Log:
    """Return a candidate's log in a run file."""
    lengths, trails = record.lengths[candidate], None
    if candidate == record.champion_candidate:
        ends = np.cumsum(np.minimum(lengths, LONGEST_TRAIL))[:-1]
        trails = np.split(record.champion_trail, ends)
    prints, traces = record.fingerprints[candidate], int(record.trace_fingerprints[candidate])
    return Log(record.returns[candidate], lengths, prints, traces, trails)


def of_evaluation(evaluation: Evaluation, row: int, traces: UInt64) -> Log:
    """Return a candidate's log in an evaluation made here; traces: [P], the fingerprints of all candidates' traces."""
    trails = evaluation.trails.of(row, evaluation.returns.shape[1])
    lengths, prints = evaluation.lengths[row], evaluation.fingerprints[row]
    return Log(evaluation.returns[row], lengths, prints, int(traces[row]), trails)


def parting(ours: Track, theirs: Track) -> tuple[int | None, str]:
    """Return the first step at which two episodes part, if it is known, and what does.

    That is observations, actions, the end, the return; "late" after the last step that leaves a trail, "somewhere"
    where no trails were kept; and "log" where a trail is not that of its fingerprint.
    """
    seen, done = (ours.fingerprint == theirs.fingerprint).tolist()
    if not (ours.fits() and theirs.fits()):
        return None, "log"
    if seen and done:
        return None, "return"
    if ours.trail is None or theirs.trail is None:
        return None, "last action" if seen else "somewhere"
    return _step(ours.trail, theirs.trail)


def _step(a: UInt8, b: UInt8) -> tuple[int | None, str]:
    common = min(len(a), len(b))
    apart = np.argwhere(a[:common] != b[:common])
    if len(apart):
        step, which = (int(number) for number in apart[0])
        again = a[step + 1 : common] == b[step + 1 : common]
        forged = len(again) >= _ENOUGH and again.all()  # what has parted never meets again for so long
        return (None, "log") if forged else (step, ("observations", "actions")[which])
    if common == LONGEST_TRAIL:
        return common, "late"
    return (None, "log") if len(a) == len(b) else (common, "end")


def inconsistent(record: Record) -> str | None:
    """Return what of a record contradicts the rest of it, None for nothing."""
    best = record.champion_candidate
    same = record.champion_fitness == record.fitness[best] or np.isnan(record.champion_fitness)
    if record.steps != int(record.lengths.sum(dtype=np.int64)):
        return "the number of environment steps is not that of its episodes"
    if not same:
        return "the champion's fitness is not the one that it has among the candidates"
    if record.connections[best] != np.count_nonzero(record.champion_mask):
        return "the champion's connections are not those of its mask"
    log = of_record(record, int(best))
    if not all(log.track(episode).fits() for episode in range(len(log.lengths))):
        return "the champion's trail is not that of its fingerprints"
    return None


def same_arrays(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether two checkpoints are equal; any NaN is as good as another."""
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name], equal_nan=ours[name].dtype.kind == "f") for name in ours
    )


def digests_apart(run: Run) -> "Place | None":
    """Return the generation whose digest is not that of its genomes, if these are kept, returns and lengths."""
    previous = DIGEST_START
    for generation, record in enumerate(run.records if run.has_population else ()):
        genomes = store.population(run.path, generation)
        previous = chain_digest(previous, genomes, record.returns, record.lengths)
        if previous.hex().encode() != record.digest:
            told = f"generation {generation}: its digest is not that of its genomes, returns and lengths"
            return Place("log", told, generation)
        if (genomes.fingerprints() != record.genome_fingerprints).any():
            told = f"generation {generation}: its genomes are not those of their fingerprints"
            return Place("log", told, generation)
    return None


@dataclass(frozen=True)
class Place:
    """Where two logs part. what: shape, genome, episode, traces, or log; told: in words."""

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
        return Place("shape", f"{at}: {sizes}", generation)
    genomes = ours.genome_fingerprints != theirs.genome_fingerprints
    apart = differs(ours, theirs)
    if apart.any():
        return _episode(generation, ours, theirs, apart, genomes)
    for what, which in (("genome", genomes), ("traces", ours.trace_fingerprints != theirs.trace_fingerprints)):
        if which.any():
            candidate = int(np.flatnonzero(which)[0])
            told = f"{at}: candidate {candidate}: its {'genome differs' if what == 'genome' else 'traces differ'}"
            return Place(what, f"{told}, though its episodes are equal", generation, candidate)
    return _log(generation, ours, theirs)


def _episode(generation: int, ours: Record, theirs: Record, apart: Bool, genomes: Bool) -> Place:
    places = np.argwhere(apart)
    champions = [place for place in places if place[0] in (ours.champion_candidate, theirs.champion_candidate)]
    chosen = places[0] if genomes.any() or not champions else champions[0]
    c, e = (int(part) for part in chosen)
    told = f"generation {generation}: {episode_apart(c, e, *(of_record(r, c).track(e) for r in (ours, theirs)))}"
    more = f" ({len(places) - 1} more episodes of that generation differ)" if len(places) > 1 else ""
    return Place("genome" if genomes.any() else "episode", told + more, generation, c, e)


def episode_apart(candidate: int, episode: int, ours: Track, theirs: Track) -> str:
    """Return an episode's return and length in two logs, in words."""
    a, b = ours.words, theirs.words
    both = f"{a} against {b}" if a != b else f"{a} both times, but not the same steps,"
    return f"candidate {candidate}, episode {episode}: return {both}"


def _log(generation: int, ours: Record, theirs: Record) -> Place | None:
    """Return what else of two records differs: one was changed, or written by another evolve."""
    at = f"generation {generation}"
    for name in _REST:
        if not np.array_equal(getattr(ours, name), getattr(theirs, name), equal_nan="fitness" in name):
            told = f"{at}: {name.replace('_', ' ')}: not equal, though every episode is"
            return Place("log", told, generation)
    if ours.digest != theirs.digest:
        told = f"{at}: the digests differ, though all that is stored is equal: one of them was changed"
        return Place("log", told, generation)
    return None
