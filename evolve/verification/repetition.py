"""Repeat a run on this machine: the episodes of its champions (`reevaluate`), or the whole run (`rerun`).

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
from evolve.config import EarlyStopOptions, names_function
from evolve.errors import EpisodeError, EvolveError, Stopped, pluralize
from evolve.genome import Genomes, GenomeSource
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, PopulationResults, by_candidate, generation_keys
from evolve.store import Header, HeldOut, Record, StoredChampion, StoredRun
from evolve.training import Experiment
from evolve.verification import logs, playing
from evolve.verification.logs import CandidateLog, FirstDifference, explain
from evolve.verification.playing import HERE
from evolve.verification.verdict import Side, Verdict, manifest_texts

_GENERATIONS_AT_ONCE = 200  # limits the memory for the results of their episodes


def reevaluate(
    run: StoredRun,
    experiment: Experiment,
    coordinator: Coordinator,
    local_manifest: Mapping[str, Any],
    generations: Sequence[int] | None = None,
) -> Verdict:
    """Play again the episodes on which champions were selected, and compare them with the log.

    Held-out episodes are played again, too. The fitness of all candidates is computed again from the logged returns,
    unless it is a function that cannot be imported here. If the file keeps all genomes, their digests are computed
    again.

    Args:
        run: The run file.
        experiment: The experiment of the run, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        local_manifest: The manifest of this process.
        generations: The generations whose champions play; by default all.
    """
    numbers = range(run.num_generations) if generations is None else generations
    for batch in _batches(run, experiment, numbers):
        verdict = _check_champions(run, experiment, coordinator, local_manifest, batch)
        if verdict is not None:
            return verdict
    part = "" if len(numbers) == run.num_generations else f"{len(numbers)} of "
    champions = f"the champions of {part}{pluralize(run.num_generations, 'generation')}"
    summary = f"{champions}, {pluralize(len(numbers) * experiment.config.episodes, 'episode')} evaluated again"
    summary += f", and {len(run.held_out.returns)} held-out ones" if run.held_out is not None else ""
    try:
        difference = logs.fitness_difference(run, experiment, numbers)
    except EvolveError as error:
        difference = None
        summary += f"; but the fitness was not computed again ({str(error).splitlines()[0]})"
    if difference is not None:
        kind = "function" if names_function(experiment.config.fitness) else "fitness"
        verdict = _unequal(run, local_manifest, difference.summary, kind)
        return replace(verdict, generation=difference.generation, candidate=difference.candidate)
    return _check_digests_and_held_out(run, experiment, coordinator) or Verdict(True, summary)


def _batches(run: StoredRun, experiment: Experiment, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield generations in batches of at most `_GENERATIONS_AT_ONCE`, which one call of the coordinator can play.

    All episodes of a call have the same step limit, so a batch ends where the limit changes.
    """
    for _, group in groupby(numbers, partial(training.limit_of, experiment, run.records)):
        same_limit = list(group)
        for begin in range(0, len(same_limit), _GENERATIONS_AT_ONCE):
            yield same_limit[begin : begin + _GENERATIONS_AT_ONCE]


def _check_champions(
    run: StoredRun,
    experiment: Experiment,
    coordinator: Coordinator,
    local_manifest: Mapping[str, Any],
    numbers: Sequence[int],
) -> Verdict | None:
    """Return the first difference between the champions' logs and their episodes here; None if they are equal."""
    genomes, results = _evaluate(run, experiment, coordinator, numbers)
    fingerprints = genomes.fingerprints()
    traces = results.trace_fingerprints()
    for row, generation in enumerate(numbers):
        kind = _check_genomes(run, experiment, generation, int(fingerprints[row]))
        log = logs.log_of_results(results, row, int(traces[row]))
        verdict = _check_champion(run, experiment, generation, log, kind, local_manifest)
        if verdict is not None:
            return verdict
    return None


def _evaluate(
    run: StoredRun, experiment: Experiment, coordinator: Coordinator, numbers: Sequence[int]
) -> tuple[Genomes, PopulationResults]:
    """Return the champions of some generations, and the results of their episodes here."""
    config = experiment.config
    records = [run.records[generation] for generation in numbers]
    candidates = [record.champion_candidate for record in records]
    common = config.common_random_numbers
    # The key of candidate c is the last one of a population of c + 1 candidates.
    keys = [generation_keys(g, c + 1, common)[-1:] for g, c in zip(numbers, candidates, strict=True)]
    genomes = Genomes(np.stack([r.champion_weights for r in records]), np.stack([r.champion_mask for r in records]))
    # Each champion sees observations normalized as in its own generation. Without normalization all are None.
    stored = [training.normalizer_of(experiment, run, generation) for generation in numbers]
    normalizers = np.stack([n for n in stored if n is not None]) if config.normalize_observations else None
    batch = EpisodeBatch.of(
        run.header.seed,
        Purpose.EPISODE,
        genomes,
        np.concatenate(keys),
        range(config.episodes),
        normalizers,
        candidates=np.array(candidates),
    )
    spec = training.in_generation(experiment, run.records, numbers[0]).rollout_spec
    results = coordinator.evaluate(spec, batch)
    return genomes, by_candidate(results, len(genomes), config.episodes)


def _check_genomes(run: StoredRun, experiment: Experiment, generation: int, fingerprint: int) -> str | None:
    """Return the kind of difference (see `explain`) in the genomes of a generation; None if there is no difference.

    fingerprint: The fingerprint of the stored champion, computed here.
    """
    record = run.records[generation]
    same = None
    if generation == 0:
        same = playing.initial_fingerprints(run, experiment) == record.genome_fingerprints
        # If most initial genomes differ, the run has another seed. If a few differ, the log was changed.
        if 2 * np.count_nonzero(same) < len(same):
            return "init"
    if fingerprint != int(record.genome_fingerprints[record.champion_candidate]):
        return "weights"
    return None if same is None or same.all() else "log"


def _check_champion(
    run: StoredRun,
    experiment: Experiment,
    generation: int,
    log: CandidateLog,
    kind: str | None,
    local_manifest: Mapping[str, Any],
) -> Verdict | None:
    """Return the difference between a champion's log in the file and its log on this machine; None if they are equal.

    log: The log on this machine. kind: The kind of difference in the genomes, or None.
    """
    record = run.records[generation]
    candidate = int(record.champion_candidate)
    error = logs.inconsistency(record)
    kept = logs.log_of_record(record, candidate)
    different = np.flatnonzero(logs.different_episodes(kept, log)).tolist()
    if different:
        manifests = manifest_texts(run.header.manifest, local_manifest)
        return playing.diagnose(run, experiment, (generation, candidate, different[0]), log, kind, manifests)
    # The episodes are equal, but other parts of the log may differ. A fingerprint of 0 means that it is unknown.
    if kept.trace_fingerprint and log.trace_fingerprint != kept.trace_fingerprint:
        kind = kind or "traces"
    if not np.array_equal(record.champion_step_hashes, np.concatenate(log.step_hashes or [])):
        kind = kind or "log"
        error = error or "the champion's step hashes contradict its episodes"
    if kind is None and error is None:
        return None
    error = error or f"candidate {candidate}: its log contradicts its episodes"
    verdict = _unequal(run, local_manifest, f"generation {generation}: {error}", kind or "log")
    return replace(verdict, generation=generation, candidate=candidate)


def _check_digests_and_held_out(run: StoredRun, experiment: Experiment, coordinator: Coordinator) -> Verdict | None:
    """Check the held-out episodes, and the digests if the file has all genomes.

    Return the first difference; None if they are equal.
    """
    difference = logs.digest_difference(run)
    if difference is not None:
        return Verdict(False, difference.summary, *explain("log", None), generation=difference.generation, what="log")
    kept = run.held_out
    if kept is None and run.complete and experiment.config.held_out_episodes:
        summary = "its held-out evaluation is missing, though it is complete"
        return Verdict(False, summary, *explain("log", None), what="log")
    if kept is None:
        return None
    champion = Genomes(kept.weights[None], kept.mask[None])
    normalizer = training.normalizer_of(experiment, run, run.num_generations)
    repeated = training.held_out(experiment, coordinator, champion, run.header.seed, len(kept.returns), normalizer)
    if np.array_equal(repeated.returns, kept.returns, equal_nan=True) and np.array_equal(repeated.seeds, kept.seeds):
        return None
    summary = f"the champion's returns on {pluralize(len(kept.returns), 'held-out episode')} differ on {HERE}"
    return Verdict(False, summary, *explain("held-out", None), what="held-out")


def _unequal(
    run: StoredRun | StoredChampion,
    local_manifest: Mapping[str, Any],
    summary: str,
    kind: str,
    returns: tuple[float | None, float | None] = (None, None),
) -> Verdict:
    """Return the verdict on a file that differs from its repetition.

    kind: The kind of difference, see `explain`. returns: The returns of the different episode, in the file and here.
    """
    sides = tuple(Side(name, returned) for name, returned in zip((str(run.path), HERE), returns, strict=True))
    cause, why = explain(kind, None, run.header.seed)
    manifests = manifest_texts(run.header.manifest, local_manifest)
    return Verdict(False, summary, cause, why, what=kind, sides=sides, manifests=manifests)


def reevaluate_champion(
    champion: StoredChampion, experiment: Experiment, coordinator: Coordinator, local_manifest: Mapping[str, Any]
) -> Verdict:
    """Play all held-out episodes of a champion file again, and compare their returns to the bit.

    Args:
        champion: The file.
        experiment: Its experiment, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        local_manifest: The manifest of this process.
    """
    kept = champion.held_out
    repeated = training.evaluate_champion(champion, experiment, coordinator, len(kept.returns))
    different = ~((repeated.returns == kept.returns) | (np.isnan(repeated.returns) & np.isnan(kept.returns)))
    episodes = pluralize(len(kept.returns), "held-out episode")
    if not different.any() and np.array_equal(repeated.seeds, kept.seeds):
        return Verdict(True, f"the champion of {pluralize(champion.num_generations, 'generation')}, {episodes} again")
    if not different.any():
        summary = "the environment seeds of its held-out episodes do not follow from its seed"
        return _unequal(champion, local_manifest, summary, "log")
    episode = int(np.argmax(different))
    returns = float(kept.returns[episode]), float(repeated.returns[episode])
    summary = f"{np.count_nonzero(different)} of {episodes} have different returns, first episode {episode}: "
    summary += f"{returns[0]!r} against {returns[1]!r} on {HERE}"
    return replace(_unequal(champion, local_manifest, summary, "held-out", returns), episode=episode)


class _NewestGeneration:
    """Takes the place of a run file in `training.iterate`, and keeps only the newest generation.

    Args:
        run: The file whose run is repeated.
        expected: The records of that file, for a comparison with each generation. If it is empty, nothing is compared.
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
        """Keep a generation in place of the one before.

        Raises:
            _DifferenceFound: It differs from the expected one. The generation before, which was equal, is still kept.
        """
        if self._expected:
            difference = logs.first_difference(self.num_generations, self._expected[self.num_generations], record)
            if difference is not None:
                raise _DifferenceFound(difference, record)
        self.num_generations += 1
        self.last = record
        self.checkpoint = checkpoint

    def flush_if_due(self) -> None:
        """Do nothing: there is no file."""

    def flush(self) -> None:
        """Do nothing: there is no file."""


class _DifferenceFound(Exception):  # noqa: N818 - the difference is the result
    """The record of this machine differs from the record in the log."""

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
    """Run an experiment again, for the number of generations in the file and without a held-out evaluation."""
    settings = {"generations": run.num_generations, "held_out_episodes": 0, "early_stop": EarlyStopOptions()}
    config = experiment.config.model_copy(update=settings)
    for record in training.iterate(replace(experiment, config=config), coordinator, log):
        on_generation(record)


def rerun(
    run: StoredRun,
    experiment: Experiment,
    coordinator: Coordinator,
    local_manifest: Mapping[str, Any],
    on_generation: Callable[[Record], None],
) -> Verdict:
    """Run an experiment again, for the number of generations in the file, and compare everything that is stored.

    Args:
        run: The run file.
        experiment: The experiment of the run, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        local_manifest: The manifest of this process.
        on_generation: Called with each generation that is equal.
    """
    log = _NewestGeneration(run, run.records)
    try:
        _repeat(run, experiment, coordinator, log, on_generation)
    except _DifferenceFound as found:
        return _explain_difference(run, experiment, log, found, local_manifest)
    if not logs.same_arrays(run.checkpoint, log.checkpoint):
        summary = "the checkpoint does not belong to its generations"
        return Verdict(False, summary, *explain("log", None), what="log")
    equal = Verdict(True, f"{pluralize(run.num_generations, 'generation')}, digest {run.digest}")
    return _check_digests_and_held_out(run, experiment, coordinator) or equal


def _explain_difference(
    run: StoredRun,
    experiment: Experiment,
    log: _NewestGeneration,
    found: _DifferenceFound,
    local_manifest: Mapping[str, Any],
) -> Verdict:
    """Return the verdict on the first difference between a run and its repetition, with its cause."""
    manifests = manifest_texts(run.header.manifest, local_manifest)
    difference = found.difference
    generation, candidate, episode = difference.generation, difference.candidate, difference.episode
    # Only an episode can be played again for a diagnosis.
    if difference.what != "episode" or candidate is None or episode is None:
        kind = "init" if difference.what == "genome" and generation == 0 else difference.what
        cause, why = explain(logs.refine(kind, generation, manifests), None, run.header.seed)
        return Verdict(
            False,
            difference.summary,
            cause,
            why,
            generation,
            candidate,
            episode,
            what=kind,
            sides=(Side(str(run.path)), Side(HERE)),
            manifests=manifests,
        )
    # The log still has the state before this generation, from which the strategy generates the candidate again.
    strategy, state = training.restore(experiment, log)
    genome = strategy.ask(state, generation, np.array([candidate]))
    local_log = logs.log_of_record(found.record, candidate)
    return playing.diagnose(run, experiment, (generation, candidate, episode), local_log, None, manifests, genome)


def rerun_champion(
    champion: StoredChampion,
    experiment: Experiment,
    coordinator: Coordinator,
    local_manifest: Mapping[str, Any],
    on_generation: Callable[[Record], None],
) -> Verdict:
    """Run the experiment of a champion file again; compare the digest, the champion and its held-out returns.

    Args:
        champion: The file.
        experiment: Its experiment, whose episodes may fail (`with_failures_allowed`).
        coordinator: Distributes the episodes.
        local_manifest: The manifest of this process.
        on_generation: Called with each generation.
    """
    log = _NewestGeneration(champion)
    _repeat(champion, experiment, coordinator, log, on_generation)
    digest = "" if log.last is None else log.last.digest.decode()
    if digest != champion.digest:
        summary = f"on {HERE} its run ends with digest {digest}, not {champion.digest}"
        return _unequal(champion, local_manifest, summary, "digest")
    strategy, state = training.restore(experiment, log)
    kept = Genomes(champion.held_out.weights[None], champion.held_out.mask[None])
    if not np.array_equal(strategy.champion(state).fingerprints(), kept.fingerprints()):
        summary = "its genome is not the champion of its run, though the digest is equal"
        return _unequal(champion, local_manifest, summary, "log")
    verdict = reevaluate_champion(champion, experiment, coordinator, local_manifest)
    return replace(verdict, summary=f"{verdict.summary}; digest {digest}") if verdict.equal else verdict


class _LongerError(Exception):
    """An episode goes on after the step in which it ended in the log."""


def spot_check(run: StoredRun, experiment: Experiment, stop_reason: Callable[[], str | None]) -> str | None:
    """Play the first episode of the newest champion; return its difference from the log in words, None if it is equal.

    If the episode failed in the log, any failure here counts as equal.

    Args:
        run: The run file.
        experiment: The experiment of the run.
        stop_reason: A function that returns a reason to stop, or None; called in every step.

    Raises:
        Stopped: `stop_reason` has returned a reason.
        InputError: The file lacks the episode.
    """
    chosen = playing.choose_episode(run, experiment)  # by default this episode
    kept = logs.log_of_record(run.records[-1], chosen.candidate)

    def each_step(step: int, _returned: float) -> None:
        if (why := stop_reason()) is not None:
            raise Stopped(why)
        if step > kept.lengths[0]:
            raise _LongerError

    try:
        with closing(playing.make_engine(experiment, chosen)) as engine:
            played = playing.play(run, experiment, chosen, engine, each_step)
    except _LongerError:
        difference = f"goes on here after step {kept.lengths[0]}"
    except EpisodeError as error:
        difference = f"fails here: {str(error).splitlines()[-1]}"
    else:
        local_log = CandidateLog(played.returns, played.lengths, played.fingerprints, 0, [played.step_hashes])
        failed = np.isnan(local_log.returns[0]) and np.isnan(kept.returns[0])
        if failed or not logs.different_episodes(local_log, kept)[0]:
            return None
        difference = f"has a return of {local_log.episode_log(0).summary} here"
    difference += f" (in the log {kept.episode_log(0).summary})"
    return f"generation {chosen.generation}, candidate {chosen.candidate}, episode 0, which {difference}"
