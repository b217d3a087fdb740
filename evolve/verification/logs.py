"""Compares the logs of episodes, candidates and generations, and finds the first difference (`FirstDifference`).

Logs are compared with other logs (`first_difference`), or with themselves: the other `…_difference` functions find
parts of a run file that contradict one another. Nothing here plays an episode; `playing.py` and `repetition.py` do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import store, strategies
from evolve.config import Config
from evolve.errors import pluralize
from evolve.genome import DIGEST_START, Genomes, candidate_digests, chain_digest
from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.rollouts import PopulationResults
from evolve.shapes import Bool, Float64, UInt8, UInt64
from evolve.store import Record, StoredRun
from evolve.store.schema import columns_of
from evolve.training import Experiment, Scores
from evolve.training.fitness import Round, first_round, mean_metrics, next_round, round_limits
from evolve.training.resume import CHAMPION_NORMALIZER

_MIN_AGREEING_STEPS = 8
"""If all hashes agree in this number of steps or more after a difference, a log was changed.

A step has hashes of 2 bytes, so different episodes agree in 8 steps by chance with a probability of 256**-16.
"""
_TIMES = {"seconds", "busy_seconds", "environment_seconds", "episode_seconds"}
_COMPARED_FIRST = {"returns", "lengths", "fingerprints", "genome_fingerprints", "trace_fingerprints", "digest"}
_OTHER_COLUMNS = [name for name in columns_of(Record) if name not in _TIMES | _COMPARED_FIRST]
"""Columns that follow from genomes and episodes. If only such a column differs, a record was changed."""

_StepHashes = Sequence[UInt8 | None]
"""The step hashes of several episodes, see `EpisodeLog.step_hashes`."""


@dataclass(frozen=True)
class EpisodeLog:
    """The log of an episode.

    Attributes:
        return_: The return.
        length: The number of steps.
        fingerprint: [2], the fingerprints of all observations and of all actions.
        step_hashes: [min(length, MAX_HASHED_STEPS), 2], a hash of the observation and of the action of each step; None
            if the log has no hashes.
        metrics: The metrics by name.
    """

    return_: float
    length: int
    fingerprint: UInt64
    step_hashes: UInt8 | None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The return and the length in words."""
        return f"{self.return_!r} in {self.length} steps"

    def has_same_steps(self, other: "EpisodeLog") -> bool:
        """Return whether two episodes have the same observations and actions, by their fingerprints."""
        return bool((self.fingerprint == other.fingerprint).all())

    def hashes_match_fingerprint(self) -> bool:
        """Return whether the hashes of the last step belong to the fingerprint; True if the log lacks these hashes.

        The hashes of a step are the top bytes of the fingerprint after this step, so any other hashes are wrong. A log
        has hashes of the first `MAX_HASHED_STEPS` steps at most, and most logs have none.
        """
        if self.step_hashes is None or self.length > MAX_HASHED_STEPS or not len(self.step_hashes):
            return True
        top_bytes = self.fingerprint >> np.uint64(56)
        return bool((self.step_hashes[-1] == top_bytes).all())

    def different_metrics(self, other: "EpisodeLog") -> list[str]:
        """Return the names of the metrics that both episodes have, with different values. The types may differ."""
        names = sorted(self.metrics.keys() & other.metrics)
        return [name for name in names if not equal_numbers(self.metrics[name], other.metrics[name])]

    def equals(self, other: "EpisodeLog") -> bool:
        """Return whether two episodes are equal in every bit (`different_episodes` compares many episodes)."""
        if not (equal_numbers(self.return_, other.return_) and self.length == other.length):
            return False
        # A failed episode has no metrics.
        return self.has_same_steps(other) and (math.isnan(self.return_) or not self.different_metrics(other))


def episode_logs(
    results: Record | PopulationResults, candidate: int, metrics: Mapping[str, NDArray[Any]], step_hashes: _StepHashes
) -> list[EpisodeLog]:
    """Return the logs of a candidate's E episodes. metrics: [P, E] each. step_hashes: one entry for each episode."""
    logs = []
    for episode, hashes in enumerate(step_hashes):
        place = candidate, episode
        own_metrics = {name: values[place].item() for name, values in metrics.items()}
        return_, length = float(results.returns[place]), int(results.lengths[place])
        logs.append(EpisodeLog(return_, length, results.fingerprints[place], hashes, own_metrics))
    return logs


def different_episodes(ours: Record, theirs: Record) -> Bool:
    """Return for each episode [P, E] whether two records differ in any bit of it."""
    same = equal_numbers(ours.returns, theirs.returns)
    same &= (ours.lengths == theirs.lengths) & (ours.fingerprints == theirs.fingerprints).all(axis=-1)
    return ~(same & same_metrics(ours.metrics, theirs.metrics, np.isnan(ours.returns)))


def equal_numbers(ours: NDArray[Any] | float, theirs: NDArray[Any] | float) -> Bool:
    """Compare two arrays element by element. NaN equals NaN, and 1 equals 1.0."""
    return (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))


def same_metrics(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]], failed: Bool) -> Bool:
    """Return for each episode whether the metrics of both logs are equal. A metric that one log lacks counts as equal.

    The types of metrics may differ, because a column of a file has the widest type of all generations.

    failed: [E] or [P, E], whether an episode failed. Failed episodes have no metrics, and count as equal.
    """
    same = np.ones(failed.shape, np.bool_)
    for name in ours.keys() & theirs.keys():
        same = same & equal_numbers(ours[name], theirs[name])
    return same | failed


def logs_of_record(record: Record, candidate: int) -> list[EpisodeLog]:
    """Return the logs of a candidate's E episodes in a record."""
    lengths = record.lengths[candidate]
    step_hashes: _StepHashes = [None] * len(lengths)
    if candidate == record.champion_candidate:
        # The record has the hashes of all episodes in one array, one episode after the other.
        ends = np.cumsum(np.minimum(lengths, MAX_HASHED_STEPS))
        step_hashes = np.split(record.champion_step_hashes, ends[:-1])
    return episode_logs(record, candidate, record.metrics, step_hashes)


def first_different_step(ours: EpisodeLog, theirs: EpisodeLog) -> tuple[int | None, str]:
    """Return the first step in which two episodes differ, if it is known, and the kind of difference.

    The kind is one of:

    - "observations" or "actions": they differ in this step. "end": one episode ends before this step.
    - "late": the episodes differ after the last step that has a hash.
    - "last action" or "somewhere": the step is not known, because a log has no step hashes.
    - "return" or "metrics": only these differ.
    - "log": step hashes contradict a fingerprint, or agree although the episodes differ, so a log was changed.
    """
    same_observations, same_actions = (ours.fingerprint == theirs.fingerprint).tolist()
    if not (ours.hashes_match_fingerprint() and theirs.hashes_match_fingerprint()):
        return None, "log"
    if same_observations and same_actions:
        return None, "metrics" if ours.summary == theirs.summary else "return"
    if ours.step_hashes is None or theirs.step_hashes is None:
        return None, "last action" if same_observations else "somewhere"
    return _locate_step(ours.step_hashes, theirs.step_hashes)


def _locate_step(a: UInt8, b: UInt8) -> tuple[int | None, str]:
    """Return the result of `first_different_step` for two episodes with step hashes a and b."""
    common = min(len(a), len(b))
    different = np.argwhere(a[:common] != b[:common])
    if len(different):
        # The first place is the earliest step. Within a step, the observation comes before the action.
        step, which = (int(number) for number in different[0])
        # Episodes that differ once do not become equal again. If all later hashes agree, a log was changed.
        later = a[step + 1 : common] == b[step + 1 : common]
        if len(later) >= _MIN_AGREEING_STEPS and later.all():
            return None, "log"
        return step, ("observations", "actions")[which]
    # All common steps are equal, so the episodes differ after the last hashed step, or one episode is longer. Otherwise
    # the equal hashes contradict the different fingerprints, so a log was changed.
    if common == MAX_HASHED_STEPS:
        return common, "late"
    if len(a) == len(b):
        return None, "log"
    return common, "end"


def inconsistency(record: Record) -> str | None:
    """Return the first contradiction inside a record, in words; None if there is none."""
    best = record.champion_candidate
    if record.steps != int(record.lengths.sum(dtype=np.int64)):
        return "the number of environment steps differs from the lengths of its episodes"
    if not np.array_equal(record.champion_fitness, record.fitness[best], equal_nan=True):
        return "the champion's fitness differs from its fitness among the candidates"
    if best != strategies.best_candidate(record.fitness):
        return "the champion is not the candidate of the best fitness"
    if record.connections[best] != np.count_nonzero(record.champion_mask):
        return "the champion's number of connections differs from its mask"
    if not all(log.hashes_match_fingerprint() for log in logs_of_record(record, best)):
        return "the champion's step hashes contradict its fingerprints"
    return None


def same_checkpoints(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether two checkpoints are equal. NaN equals NaN.

    An earlier version of evolve stored no normalizer of the champion's generation, so `theirs` may lack it.
    """
    names = set(ours) if CHAMPION_NORMALIZER in theirs else set(ours) - {CHAMPION_NORMALIZER}
    return names == set(theirs) and all(
        np.array_equal(ours[name], theirs[name], equal_nan=ours[name].dtype.kind == "f") for name in names
    )


def validation_returns(run: StoredRun, generations: int) -> Float64:
    """Return the champion's returns [N] on the validation episodes after a number of generations; N = 0 for none."""
    returns = run.validations.get(generations, np.zeros(0))
    # A resumed run may have validated with another number of episodes, so NaN fills the shorter rows.
    played = np.flatnonzero(~np.isnan(returns))
    return returns[: played[-1] + 1] if len(played) else returns


@dataclass(frozen=True)
class FirstDifference:
    """The first difference of two logs, or of a log and its repetition.

    kind: The kind of difference: "episode", or one of the kinds in `verdict._REASONS`.
    summary: The difference in words.
    generation, candidate, episode: The place of the difference, as far as it is known.
    returns: The returns of the different episode in the two logs, if they are known.
    """

    kind: str
    summary: str
    generation: int | None = None
    candidate: int | None = None
    episode: int | None = None
    returns: tuple[float | None, float | None] = (None, None)

    @property
    def key(self) -> tuple[int, int, int] | None:
        """The generation, candidate and episode of a different episode; None if something else differs."""
        if self.kind != "episode" or self.generation is None or self.candidate is None or self.episode is None:
            return None
        return self.generation, self.candidate, self.episode


def _changed_log(generation: int, text: str) -> FirstDifference:
    """Return the difference of a log that was changed, or written by another version of evolve. text: the summary."""
    return FirstDifference("log", f"generation {generation}: {text}", generation)


def digest_difference(run: StoredRun) -> FirstDifference | None:
    """Return the first contradiction between stored genomes and their digest or fingerprints.

    None if there is no contradiction, or if the file has the genomes of champions only.
    """
    if not run.has_population:
        return None
    previous = DIGEST_START
    for generation, record in enumerate(run.records):
        genomes = store.population(run.path, generation)
        previous = chain_digest(previous, candidate_digests(genomes), record.returns, record.lengths, record.metrics)
        if previous.hex().encode() != record.digest:
            return _changed_log(generation, "its digest does not match its genomes, returns and lengths")
        if (genomes.fingerprints() != record.genome_fingerprints).any():
            return _changed_log(generation, "its genomes do not match their fingerprints")
    return None


def first_difference(generation: int, ours: Record, theirs: Record) -> FirstDifference | None:
    """Return the first difference of two logs of a generation; None if there is none.

    An episode of a champion is preferred, because it has step hashes.
    """
    difference = _first_difference(generation, ours, theirs)
    if difference is None or ours.digest != theirs.digest or difference.kind not in ("genome", "episode"):
        return difference
    # The digests are equal. A digest covers genomes, returns, lengths and metrics, but not the fingerprints of
    # episodes. If only fingerprints differ, no log was changed: two engines may differ in observations alone.
    differ_otherwise = different_episodes(replace(ours, fingerprints=theirs.fingerprints), theirs)
    if difference.kind == "episode" and not differ_otherwise.any():
        return difference
    # Equal digests contradict the difference, so a log was changed.
    return replace(difference, kind="changed", summary=f"{difference.summary}, though the digests are equal")


def _first_difference(generation: int, ours: Record, theirs: Record) -> FirstDifference | None:
    """Return the first difference without regard to equal digests."""
    if ours.returns.shape != theirs.returns.shape:
        sizes = f"population × episodes {ours.returns.shape} against {theirs.returns.shape}"
        return FirstDifference("shape", f"generation {generation}: {sizes}", generation)
    # Compare the episodes, then genomes and traces [P], then all other columns.
    genomes_differ = ours.genome_fingerprints != theirs.genome_fingerprints
    episodes_differ = different_episodes(ours, theirs)
    if episodes_differ.any():
        return _episode_difference(generation, ours, theirs, episodes_differ, bool(genomes_differ.any()))
    traces_differ = ours.trace_fingerprints != theirs.trace_fingerprints
    traces_differ &= (ours.trace_fingerprints != 0) & (theirs.trace_fingerprints != 0)  # 0 means unknown
    for kind, differ, text in (
        ("genome", genomes_differ, "genome differs"),
        ("traces", traces_differ, "traces differ"),
    ):
        if differ.any():
            candidate = int(np.argmax(differ))
            summary = f"generation {generation}: candidate {candidate}: its {text}, though its episodes are equal"
            return FirstDifference(kind, summary, generation, candidate)
    for name in _OTHER_COLUMNS:
        if not same_optional(getattr(ours, name), getattr(theirs, name)):
            return _changed_log(generation, f"{name.replace('_', ' ')}: not equal, though every episode is")
    if ours.digest != theirs.digest:
        return _changed_log(generation, "the digests differ, though everything else is equal: one of them was changed")
    return None


def _episode_difference(
    generation: int, ours: Record, theirs: Record, episodes_differ: Bool, genomes_differ: bool
) -> FirstDifference:
    """Return the first different episode.

    Args:
        generation: The generation.
        ours: Its record in one log.
        theirs: Its record in the other log.
        episodes_differ: [P, E], whether an episode differs.
        genomes_differ: Whether a genome of the generation differs.
    """
    # Prefer an episode of a champion, which has step hashes. If genomes differ, no hashes are needed to explain it.
    places = np.argwhere(episodes_differ)
    champions = [place for place in places if place[0] in (ours.champion_candidate, theirs.champion_candidate)]
    place = places[0] if genomes_differ or not champions else champions[0]
    candidate, episode = (int(number) for number in place)
    logs = (logs_of_record(record, candidate)[episode] for record in (ours, theirs))
    summary = f"generation {generation}: {describe_difference(candidate, episode, *logs)}"
    more = f" (and {pluralize(len(places) - 1, 'more episode')} of that generation)" if len(places) > 1 else ""
    kind = "genome" if genomes_differ else "episode"
    return FirstDifference(kind, summary + more, generation, candidate, episode)


def describe_difference(candidate: int, episode: int, ours: EpisodeLog, theirs: EpisodeLog) -> str:
    """Return the difference of an episode in two logs in words: its returns and lengths or, if equal, its metrics."""
    a, b = ours.summary, theirs.summary
    if a == b and ours.has_same_steps(theirs):
        names = ours.different_metrics(theirs)
        different = [f"{name} is {ours.metrics[name]!r} against {theirs.metrics[name]!r}" for name in names]
        return f"candidate {candidate}, episode {episode}: its metric {', '.join(different)}"
    both = f"{a} against {b}" if a != b else f"{a} both times, but other observations or actions"
    return f"candidate {candidate}, episode {episode}: return {both}"


def fitness_difference(run: StoredRun, experiment: Experiment, generations: Sequence[int]) -> FirstDifference | None:
    """Return the first stored fitness that does not follow from the logged returns; None if there is none.

    Raises InputError if the fitness is a function that cannot be imported here.
    """
    config, W = experiment.config, experiment.network.num_weights
    for generation in generations:
        record = run.records[generation]
        scores = Scores.of(config, record.returns, record.metrics, record.connections, W)
        computed = scores.fitness(_played(config, record, scores))
        different = ~equal_numbers(computed, record.fitness)
        if different.any():
            candidate = int(np.argmax(different))
            values = f"{record.fitness[candidate]} in the log, {computed[candidate]} from its returns"
            summary = f"generation {generation}: candidate {candidate}: its fitness is {values}"
            return FirstDifference("fitness", summary, generation, candidate)
    return None


def selection_difference(run: StoredRun, experiment: Experiment) -> FirstDifference | None:
    """Return the first measure, front or archive that contradicts the log; None if there is none.

    The strategy selects again, by the logged fitness and measures. Measures that need genomes are computed again for
    the best candidate of each generation, because the log has no other genomes.
    """
    strategy = experiment.strategy(run.header.seed)
    if not strategy.measured:
        return None
    # The log lacks the genomes, but selection needs only their shape. Broadcast arrays take the memory of one number.
    shape = experiment.config.population, experiment.network.num_weights
    genomes = Genomes(np.broadcast_to(np.float32(0), shape), np.broadcast_to(np.True_, shape))
    state = strategy.start()
    for generation, record in enumerate(run.records):
        means = mean_metrics(record.metrics, record.returns)
        wrong = _wrong_measure(record, strategy, means)
        if wrong is not None:
            return _changed_log(generation, wrong)
        state = strategy.tell(state, genomes, strategies.Results(record.fitness, measures=record.measures))
        for name, selected in strategy.outcome(state).items():
            if not same_optional(getattr(record, name), selected):
                return _changed_log(generation, f"the {name} does not follow from fitness and measures")
    return None


def _wrong_measure(record: Record, strategy: strategies.Strategy[Any], means: Mapping[str, Float64]) -> str | None:
    """Return the contradiction between the measures of a record and its log, in words; None if there is none.

    means: The mean metrics of each candidate.
    """
    names, measures = strategy.measured, record.measures
    if measures is None or measures.shape[1] != len(names):
        return "the measures of its candidates are missing"
    # Check the measures that follow from the log for all candidates, and all measures for the champion.
    from_log: dict[str, NDArray[Any]] = {"connections": record.connections, **means}
    for name, stored in zip(names, measures.T, strict=True):
        if name in from_log and not np.array_equal(stored, from_log[name], equal_nan=True):
            return f"the measure {name} does not follow from the episodes"
    best = int(record.champion_candidate)
    computed = strategy.measures(record.champion, {name: values[[best]] for name, values in means.items()})
    if not np.array_equal(computed[0], measures[best], equal_nan=True):
        return "the champion's measures do not follow from its genome"
    return None


def same_optional(ours: NDArray[Any] | None, theirs: NDArray[Any] | None) -> bool:
    """Return whether two optional arrays are equal. NaN equals NaN."""
    if ours is None or theirs is None:
        return ours is theirs
    return np.array_equal(ours, theirs, equal_nan=True)


def _played(config: Config, record: Record, scores: Scores) -> Bool:
    """Return for each episode [P, E] whether it was played.

    In the log, an episode that failed in `reset` looks like an episode that was not played: no return, no steps. So
    repeat the rounds of the race, which decide which candidates play which episodes.
    """
    played: Bool = np.zeros(record.returns.shape, np.bool_)
    if config.least_population is not None:
        # In a growing population, a candidate plays all its episodes or none.
        played[is_logged(record).any(axis=1)] = True
        return played
    current: Round | None = first_round(config.racing, *record.returns.shape)
    while current is not None:
        played[current.candidates, current.episodes.start : current.episodes.stop] = True
        current = next_round(current, config.racing, scores)
    return played


def is_logged(record: Record) -> Bool:
    """Return for each episode [P, E] whether the log shows that it was played."""
    return ~np.isnan(record.returns) | (record.lengths > 0) | record.fingerprints.any(axis=2)


def num_champion_episodes(config: Config, record: Record) -> int:
    """Return the number of episodes that the champion played.

    The champion may have left the race early, if it has the same fitness as a candidate that stayed.
    """
    last_logged = max(np.flatnonzero(is_logged(record)[record.champion_candidate]), default=0)
    # A candidate plays whole rounds, so it has played to the end of the round of its last logged episode.
    return next(limit for limit in round_limits(config.racing, record.returns.shape[1]) if limit > last_logged)
