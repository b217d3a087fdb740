"""Evaluate the champions of a run file again on this machine.

`spot_check` plays one logged episode again before a resumed run goes on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from evolve.cluster import Coordinator
from evolve.config import flatten
from evolve.errors import EpisodeError, Stopped, pluralize
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, PopulationResults, by_candidate, generation_keys
from evolve.store import StoredRun
from evolve.training import Experiment, held_out, in_generation, limit_of, normalizer_of
from evolve.verification.logs import (
    CandidateLog,
    different_episodes,
    digest_difference,
    explain,
    inconsistency,
    log_of_record,
    log_of_results,
)
from evolve.verification.playing import (
    HERE,
    EachStep,
    Episode,
    choose,
    diagnose,
    initial_fingerprints,
    make_engine,
    play,
)
from evolve.verification.verdict import Side, Verdict, as_texts

_GENERATIONS_AT_ONCE = 200  # generations, so that little memory is taken


def reevaluate(
    run: StoredRun,
    experiment: Experiment,
    coordinator: Coordinator,
    here: Mapping[str, Any],
    generations: Sequence[int] | None = None,
) -> Verdict:
    """Evaluate champions again, on the very episodes they were selected by.

    Held-out episodes are played again too, and where all genomes are kept, their digests are computed again.

    Args:
        run: The run file.
        experiment: That of the run, one whose episodes may fail (`tolerant`).
        coordinator: Who has the episodes played.
        here: The manifest of this process.
        generations: Whose champions; by default all.
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
    return check_rest(run, experiment, coordinator) or Verdict(True, summary)


def _in_parts(run: StoredRun, experiment: Experiment, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield at most `_GENERATIONS_AT_ONCE` successive generations that have the same limit of steps."""
    for _, alike in groupby(numbers, partial(limit_of, experiment, run.records)):
        together = list(alike)
        for begin in range(0, len(together), _GENERATIONS_AT_ONCE):
            yield together[begin : begin + _GENERATIONS_AT_ONCE]


def _check_champions(
    run: StoredRun, experiment: Experiment, coordinator: Coordinator, here: Mapping[str, Any], numbers: Sequence[int]
) -> Verdict | None:
    """Return the first difference between the champions' logs and what they do here, None for none."""
    genomes, results = _evaluate(run, experiment, coordinator, numbers)
    fingerprints = genomes.fingerprints()
    traces = results.trace_fingerprints()
    for row, generation in enumerate(numbers):
        what = _check_genomes(run, experiment, generation, int(fingerprints[row]))
        log = log_of_results(results, row, int(traces[row]))
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
    found = [normalizer_of(experiment, run, generation) for generation in numbers]
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
    spec = in_generation(experiment, run.records, numbers[0]).rollout_spec
    results = coordinator.evaluate(spec, batch)
    return genomes, by_candidate(results, len(genomes), config.episodes)


def _check_genomes(run: StoredRun, experiment: Experiment, generation: int, champion: int) -> str | None:
    """Return what is wrong with the genomes of a generation. champion: the fingerprint of the one that is stored."""
    record = run.records[generation]
    same = None
    if generation == 0:
        same = initial_fingerprints(run, experiment) == record.genome_fingerprints
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
    """Return how a champion's log differs from the one made here, None for not at all."""
    record = run.records[generation]
    candidate = int(record.champion_candidate)
    error = inconsistency(record)
    kept = log_of_record(record, candidate)
    different = np.flatnonzero(different_episodes(kept, log)).tolist()
    manifests = as_texts(flatten(run.header.manifest)), as_texts(flatten(here))
    if different:
        return diagnose(run, experiment, (generation, candidate, different[0]), log, what, manifests)
    if kept.trace_fingerprint and log.trace_fingerprint != kept.trace_fingerprint:  # 0: it is not known
        what = what or "traces"
    if not np.array_equal(record.champion_step_hashes, np.concatenate(log.step_hashes or [])):
        what = what or "log"
        error = error or "the champion's step hashes are not those of its episodes"
    if what is None and error is None:
        return None
    cause, why = explain(what or "log", None, run.header.seed)
    summary = f"generation {generation}: {error or f'candidate {candidate}: not all that was logged of it is true'}"
    sides = Side(str(run.path)), Side(HERE)
    return Verdict(False, summary, cause, why, generation, candidate, None, None, what or "log", sides, (), manifests)


def check_rest(run: StoredRun, experiment: Experiment, coordinator: Coordinator) -> Verdict | None:
    """Check what is known beyond the champions' episodes: digests where all genomes are kept, and held-out episodes."""
    error = digest_difference(run)
    if error is not None:
        return Verdict(False, error.summary, *explain("log", None), generation=error.generation, what="log")
    kept = run.held_out
    if kept is None and run.complete and experiment.config.held_out_episodes:
        summary = "its held-out evaluation is missing, though it is complete"
        return Verdict(False, summary, *explain("log", None), what="log")
    if kept is None:
        return None
    champion = Genomes(kept.weights[None], kept.mask[None])
    normalizer = normalizer_of(experiment, run, run.num_generations)
    made = held_out(experiment, coordinator, champion, run.header.seed, len(kept.returns), normalizer)
    if np.array_equal(made.returns, kept.returns, equal_nan=True) and np.array_equal(made.seeds, kept.seeds):
        return None
    summary = f"the champion's returns on {pluralize(len(kept.returns), 'held-out episode')} are not those of {HERE}"
    return Verdict(False, summary, *explain("held-out", None), what="held-out")


class _LongerError(Exception):
    """An episode goes on where it ended in the log."""


def spot_check(run: StoredRun, experiment: Experiment, stop_reason: Callable[[], str | None]) -> str | None:
    """Play the first episode of the newest champion; return how it differs from the log, None for not at all.

    An episode that failed may fail again in any way. stop_reason: called in every step; why to stop, or None. Raises
    Stopped where it says why, and InputError for a file that does not have that episode.
    """
    chosen = choose(run, experiment)
    kept = log_of_record(run.records[-1], chosen.candidate)

    def each_step(step: int, _returned: float) -> None:
        if (why := stop_reason()) is not None:
            raise Stopped(why)
        if step > kept.lengths[0]:
            raise _LongerError

    try:
        made = _played(run, experiment, chosen, each_step)
    except _LongerError:
        words = f"goes on here after step {kept.lengths[0]}"
    except EpisodeError as error:
        words = f"fails here: {str(error).splitlines()[-1]}"
    else:
        failed = np.isnan(made.returns[0]) and np.isnan(kept.returns[0])
        if failed or not different_episodes(made, kept)[0]:
            return None
        words = f"has a return of {made.episode_log(0).summary} here"
    words += f" (in the log {kept.episode_log(0).summary})"
    return f"generation {chosen.generation}, candidate {chosen.candidate}, episode 0, which {words}"


def _played(run: StoredRun, experiment: Experiment, chosen: Episode, each_step: EachStep) -> CandidateLog:
    """Return the log [E = 1] of an episode that is played here. Raises EpisodeError."""
    with closing(make_engine(experiment, chosen)) as engine:
        done = play(run, experiment, chosen, engine, each_step)
    return CandidateLog(done.returns, done.lengths, done.fingerprints, 0, [done.step_hashes])
