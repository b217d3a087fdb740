"""Repeat a run on this machine: its champions' episodes (`reevaluate`), or all of it (`rerun`).

Both stop at the first difference. A champion file has no log: its held-out episodes are played again
(`reevaluate_champion`), or its run is repeated and compared by its last digest (`rerun_champion`). `spot_check` repeats
a single episode, before a resumed run goes on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import training
from evolve.cluster import Coordinator
from evolve.config import EarlyStopOptions
from evolve.errors import EpisodeError, Stopped, pluralize
from evolve.genome import Genomes, GenomeSource
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, PopulationResults, by_candidate, generation_keys
from evolve.store import Header, HeldOut, Record, StoredChampion, StoredRun
from evolve.training import Experiment
from evolve.verification import logs, playing
from evolve.verification.logs import CandidateLog, FirstDifference, explain
from evolve.verification.playing import HERE
from evolve.verification.verdict import Side, Verdict, manifest_texts

_GENERATIONS_AT_ONCE = 200  # limits the memory that their episodes take


def reevaluate(
    run: StoredRun,
    experiment: Experiment,
    coordinator: Coordinator,
    here: Mapping[str, Any],
    generations: Sequence[int] | None = None,
) -> Verdict:
    """Play the episodes again on which champions were selected, and compare them with the log.

    Held-out episodes are played again, too. If the file keeps all genomes, their digests are computed again.

    Args:
        run: The run file.
        experiment: The experiment of the run, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        here: The manifest of this process.
        generations: The generations whose champions play; by default all.
    """
    numbers = range(run.num_generations) if generations is None else generations
    for together in _in_parts(run, experiment, numbers):
        found = _check_champions(run, experiment, coordinator, here, together)
        if found is not None:
            return found
    part = "" if len(numbers) == run.num_generations else f"{len(numbers)} of "
    champions = f"the champions of {part}{pluralize(run.num_generations, 'generation')}"
    summary = f"{champions}, {pluralize(len(numbers) * experiment.config.episodes, 'episode')} evaluated again"
    summary += f", and {len(run.held_out.returns)} held-out ones" if run.held_out is not None else ""
    return _check_rest(run, experiment, coordinator) or Verdict(True, summary)


def _in_parts(run: StoredRun, experiment: Experiment, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield at most `_GENERATIONS_AT_ONCE` successive generations that have the same limit of steps."""
    for _, alike in groupby(numbers, partial(training.limit_of, experiment, run.records)):
        together = list(alike)
        for begin in range(0, len(together), _GENERATIONS_AT_ONCE):
            yield together[begin : begin + _GENERATIONS_AT_ONCE]


def _check_champions(
    run: StoredRun, experiment: Experiment, coordinator: Coordinator, here: Mapping[str, Any], numbers: Sequence[int]
) -> Verdict | None:
    """Return the first difference between the champions' logs and their episodes here; None if there is none."""
    genomes, results = _evaluate(run, experiment, coordinator, numbers)
    fingerprints = genomes.fingerprints()
    traces = results.trace_fingerprints()
    for row, generation in enumerate(numbers):
        what = _check_genomes(run, experiment, generation, int(fingerprints[row]))
        log = logs.log_of_results(results, row, int(traces[row]))
        found = _check_champion(run, experiment, generation, log, what, here)
        if found is not None:
            return found
    return None


def _evaluate(
    run: StoredRun, experiment: Experiment, coordinator: Coordinator, numbers: Sequence[int]
) -> tuple[Genomes, PopulationResults]:
    """Return the champions of some generations, and the results of their episodes here."""
    config = experiment.config
    records = [run.records[generation] for generation in numbers]
    chosen = [record.champion_candidate for record in records]
    common = config.common_random_numbers
    keys = [generation_keys(g, c + 1, common)[-1:] for g, c in zip(numbers, chosen, strict=True)]
    genomes = Genomes(np.stack([r.champion_weights for r in records]), np.stack([r.champion_mask for r in records]))
    found = [training.normalizer_of(experiment, run, generation) for generation in numbers]
    normalizers = np.stack([n for n in found if n is not None]) if config.normalize_observations else None
    batch = EpisodeBatch.of(
        run.header.seed,
        Purpose.EPISODE,
        genomes,
        np.concatenate(keys),
        range(config.episodes),
        normalizers,
        candidates=np.array(chosen),
    )
    spec = training.in_generation(experiment, run.records, numbers[0]).rollout_spec
    results = coordinator.evaluate(spec, batch)
    return genomes, by_candidate(results, len(genomes), config.episodes)


def _check_genomes(run: StoredRun, experiment: Experiment, generation: int, champion: int) -> str | None:
    """Return what is wrong with the genomes of a generation, None for nothing.

    champion: the fingerprint of the stored champion.
    """
    record = run.records[generation]
    same = None
    if generation == 0:
        same = playing.initial_fingerprints(run, experiment) == record.genome_fingerprints
        # A few wrong fingerprints are a changed log; if most are wrong, the seed is another one.
        if 2 * np.count_nonzero(same) < len(same):
            return "init"
    if champion != int(record.genome_fingerprints[record.champion_candidate]):
        return "weights"
    return None if same is None or same.all() else "log"


def _check_champion(
    run: StoredRun,
    experiment: Experiment,
    generation: int,
    log: CandidateLog,
    what: str | None,
    here: Mapping[str, Any],
) -> Verdict | None:
    """Return the difference between a champion's log in the file and the log made here; None if there is none."""
    record = run.records[generation]
    candidate = int(record.champion_candidate)
    error = logs.inconsistency(record)
    kept = logs.log_of_record(record, candidate)
    different = np.flatnonzero(logs.different_episodes(kept, log)).tolist()
    if different:
        manifests = manifest_texts(run.header.manifest, here)
        return playing.diagnose(run, experiment, (generation, candidate, different[0]), log, what, manifests)
    # A fingerprint of 0 is unknown.
    if kept.trace_fingerprint and log.trace_fingerprint != kept.trace_fingerprint:
        what = what or "traces"
    if not np.array_equal(record.champion_step_hashes, np.concatenate(log.step_hashes or [])):
        what = what or "log"
        error = error or "the champion's step hashes contradict its episodes"
    if what is None and error is None:
        return None
    summary = f"generation {generation}: {error or f'candidate {candidate}: its log contradicts its episodes'}"
    return replace(_different(run, here, summary, what or "log"), generation=generation, candidate=candidate)


def _check_rest(run: StoredRun, experiment: Experiment, coordinator: Coordinator) -> Verdict | None:
    """Check the held-out episodes, and the digests if all genomes are kept; return the difference, None for none."""
    error = logs.digest_difference(run)
    if error is not None:
        return Verdict(False, error.summary, *explain("log", None), generation=error.generation, what="log")
    kept = run.held_out
    if kept is None and run.complete and experiment.config.held_out_episodes:
        summary = "its held-out evaluation is missing, though it is complete"
        return Verdict(False, summary, *explain("log", None), what="log")
    if kept is None:
        return None
    champion = Genomes(kept.weights[None], kept.mask[None])
    normalizer = training.normalizer_of(experiment, run, run.num_generations)
    made = training.held_out(experiment, coordinator, champion, run.header.seed, len(kept.returns), normalizer)
    if np.array_equal(made.returns, kept.returns, equal_nan=True) and np.array_equal(made.seeds, kept.seeds):
        return None
    summary = f"the champion's returns on {pluralize(len(kept.returns), 'held-out episode')} are others on {HERE}"
    return Verdict(False, summary, *explain("held-out", None), what="held-out")


def _different(
    run: StoredRun | StoredChampion,
    here: Mapping[str, Any],
    summary: str,
    what: str,
    returns: tuple[float | None, float | None] = (None, None),
) -> Verdict:
    """Return the verdict on a file that differs from its repetition. returns: in the file, and on this machine."""
    sides = tuple(Side(name, returned) for name, returned in zip((str(run.path), HERE), returns, strict=True))
    cause, why = explain(what, None, run.header.seed)
    manifests = manifest_texts(run.header.manifest, here)
    return Verdict(False, summary, cause, why, what=what, sides=sides, manifests=manifests)


def reevaluate_champion(
    champion: StoredChampion, experiment: Experiment, coordinator: Coordinator, here: Mapping[str, Any]
) -> Verdict:
    """Play all held-out episodes of a champion file again, and compare their returns to the bit.

    Args:
        champion: The file.
        experiment: Its experiment, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        here: The manifest of this process.
    """
    kept = champion.held_out
    made = training.evaluate_champion(champion, experiment, coordinator, len(kept.returns))
    different = ~((made.returns == kept.returns) | (np.isnan(made.returns) & np.isnan(kept.returns)))
    episodes = pluralize(len(kept.returns), "held-out episode")
    if not different.any() and np.array_equal(made.seeds, kept.seeds):
        return Verdict(True, f"the champion of {pluralize(champion.num_generations, 'generation')}, {episodes} again")
    if not different.any():
        summary = "the environment seeds of its held-out episodes do not follow from its seed"
        return _different(champion, here, summary, "log")
    episode = int(np.argmax(different))
    returns = float(kept.returns[episode]), float(made.returns[episode])
    summary = f"{np.count_nonzero(different)} of {episodes} have other returns, the first is episode {episode}: "
    summary += f"{returns[0]!r} against {returns[1]!r} on {HERE}"
    return replace(_different(champion, here, summary, "held-out", returns), episode=episode)


class _NewestGeneration:
    """A run log that keeps only its newest generation.

    Args:
        run: The file whose run is repeated.
        expected: The records with which the generations are compared; by default they are not compared.
    """

    def __init__(self, run: StoredRun | StoredChampion, expected: Sequence[Record] = ()) -> None:
        self.path: Path = run.path
        self.header: Header = run.header
        self.num_generations = 0
        self.steps = 0
        self.last: Record | None = None
        self.checkpoint: Mapping[str, NDArray[Any]] = {}
        self.held_out: HeldOut | None = None
        self.complete = False
        self._expected = expected

    def append(
        self,
        record: Record,
        checkpoint: Mapping[str, NDArray[Any]],
        genomes: GenomeSource | None = None,
        flush: bool = True,
    ) -> None:
        """Keep a generation. Raises _DifferenceFound if it is not the expected one; then the last one is kept."""
        if self._expected:
            found = logs.first_difference(self.num_generations, self._expected[self.num_generations], record)
            if found is not None:
                raise _DifferenceFound(found, record)
        self.num_generations += 1
        self.last = record
        self.checkpoint = checkpoint

    def flush_if_due(self) -> None:
        """Do nothing: there is no file."""

    def flush(self) -> None:
        """Do nothing: there is no file."""


class _DifferenceFound(Exception):  # noqa: N818 - the difference is the result
    """The record of this machine differs from that of the log."""

    def __init__(self, difference: FirstDifference, record: Record) -> None:
        super().__init__(difference.summary)
        self.difference = difference
        self.record = record


def _repeat(
    run: StoredRun | StoredChampion,
    experiment: Experiment,
    coordinator: Coordinator,
    log: _NewestGeneration,
    on_generation: Callable[[Record], None],
) -> None:
    """Run an experiment again, for as many generations as the file has."""
    settings = {"generations": run.num_generations, "held_out_episodes": 0, "early_stop": EarlyStopOptions()}
    config = experiment.config.model_copy(update=settings)
    for record in training.iterate(replace(experiment, config=config), coordinator, log):
        on_generation(record)


def rerun(
    run: StoredRun,
    experiment: Experiment,
    coordinator: Coordinator,
    here: Mapping[str, Any],
    on_generation: Callable[[Record], None],
) -> Verdict:
    """Run an experiment again, for as many generations as the file has, and compare everything that is stored.

    Args:
        run: The run file.
        experiment: The experiment of the run, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        here: The manifest of this process.
        on_generation: Called with each generation that is equal.
    """
    log = _NewestGeneration(run, run.records)
    try:
        _repeat(run, experiment, coordinator, log, on_generation)
    except _DifferenceFound as found:
        return _explain_difference(run, experiment, log, found, here)
    if not logs.same_arrays(run.checkpoint, log.checkpoint):
        summary = "the checkpoint does not belong to its generations"
        return Verdict(False, summary, *explain("log", None), what="log")
    equal = Verdict(True, f"{pluralize(run.num_generations, 'generation')}, digest {run.digest}")
    return _check_rest(run, experiment, coordinator) or equal


def _explain_difference(
    run: StoredRun, experiment: Experiment, log: _NewestGeneration, found: _DifferenceFound, here: Mapping[str, Any]
) -> Verdict:
    manifests = manifest_texts(run.header.manifest, here)
    place = found.difference
    if place.what != "episode" or place.candidate is None or place.episode is None:
        what = "init" if place.what == "genome" and place.generation == 0 else place.what
        known = logs.genome_cause(place.generation, manifests) if what == "genome" else what
        cause, why = explain(known, None, run.header.seed)
        at = place.generation, place.candidate, place.episode
        sides = Side(str(run.path)), Side(HERE)
        return Verdict(False, place.summary, cause, why, *at, None, what, sides, (), manifests)
    strategy, state = training.restore(experiment, log)
    genome = strategy.ask(state, place.generation, np.array([place.candidate]))
    key = place.generation, place.candidate, place.episode
    made = logs.log_of_record(found.record, place.candidate)
    return playing.diagnose(run, experiment, key, made, None, manifests, genome)


def rerun_champion(
    champion: StoredChampion,
    experiment: Experiment,
    coordinator: Coordinator,
    here: Mapping[str, Any],
    on_generation: Callable[[Record], None],
) -> Verdict:
    """Run the experiment of a champion file again; compare the digest, the champion and its held-out returns.

    Args:
        champion: The file.
        experiment: Its experiment, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        here: The manifest of this process.
        on_generation: Called with each generation.
    """
    log = _NewestGeneration(champion)
    _repeat(champion, experiment, coordinator, log, on_generation)
    digest = "" if log.last is None else log.last.digest.decode()
    if digest != champion.digest:
        summary = f"on {HERE} its run ends with digest {digest}, not {champion.digest}"
        return _different(champion, here, summary, "digest")
    strategy, state = training.restore(experiment, log)
    kept = Genomes(champion.held_out.weights[None], champion.held_out.mask[None])
    if not np.array_equal(strategy.champion(state).fingerprints(), kept.fingerprints()):
        summary = "its genome is not the champion of its run, though the digest is equal"
        return _different(champion, here, summary, "log")
    found = reevaluate_champion(champion, experiment, coordinator, here)
    return replace(found, summary=f"{found.summary}; digest {digest}") if found.equal else found


class _LongerError(Exception):
    """An episode goes on after the step in which it ended in the log."""


def spot_check(run: StoredRun, experiment: Experiment, stop_reason: Callable[[], str | None]) -> str | None:
    """Play the first episode of the newest champion; return its difference from the log, None if there is none.

    An episode that failed may fail again in any way.

    Args:
        run: The run file.
        experiment: The experiment of the run.
        stop_reason: Called in every step; returns a reason to stop, or None.

    Raises:
        Stopped: `stop_reason` has returned a reason.
        InputError: The file lacks the episode.
    """
    chosen = playing.choose_episode(run, experiment)
    kept = logs.log_of_record(run.records[-1], chosen.candidate)

    def each_step(step: int, _returned: float) -> None:
        if (why := stop_reason()) is not None:
            raise Stopped(why)
        if step > kept.lengths[0]:
            raise _LongerError

    try:
        with closing(playing.make_engine(experiment, chosen)) as engine:
            done = playing.play(run, experiment, chosen, engine, each_step)
    except _LongerError:
        words = f"goes on here after step {kept.lengths[0]}"
    except EpisodeError as error:
        words = f"fails here: {str(error).splitlines()[-1]}"
    else:
        made = CandidateLog(done.returns, done.lengths, done.fingerprints, 0, [done.step_hashes])
        failed = np.isnan(made.returns[0]) and np.isnan(kept.returns[0])
        if failed or not logs.different_episodes(made, kept)[0]:
            return None
        words = f"has a return of {made.episode_log(0).summary} here"
    words += f" (in the log {kept.episode_log(0).summary})"
    return f"generation {chosen.generation}, candidate {chosen.candidate}, episode 0, which {words}"
