"""One run file against this machine: its champions are evaluated again."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evolve import store
from evolve.cluster import Coordinator, Task, keys_of
from evolve.divergence.causes import explain
from evolve.divergence.here import HERE, judge
from evolve.divergence.logs import Log, differs, of_evaluation, of_record
from evolve.divergence.verdict import Side, Verdict, flat
from evolve.evolution import Experiment, held_out, normalizer_of
from evolve.genome import DIGEST_START, Genomes, chain_digest
from evolve.playback import newborn
from evolve.rng import Purpose
from evolve.store import Run


def again(
    run: Run,
    experiment: Experiment,
    farm: Coordinator,
    here: Mapping[str, Any],
    generations: Sequence[int] | None = None,
) -> Verdict:
    """Evaluate the champions of all generations, or of those named, again, on the very episodes they were scored on.

    Held-out episodes are played again too, and where all genomes are kept, their digests are computed again. here: the
    manifest of this process.
    """
    config = experiment.config
    numbers = range(run.told) if generations is None else generations
    records = [run.records[g] for g in numbers]
    chosen = [record.champion_candidate for record in records]
    keyed = zip(numbers, chosen, strict=True)
    keys = np.concatenate([keys_of(g, c + 1, config.common_random_numbers)[-1:] for g, c in keyed])
    genomes = Genomes(np.stack([r.champion_weights for r in records]), np.stack([r.champion_mask for r in records]))
    normalizers = [normalizer_of(experiment, run, g) for g in numbers]
    given = np.stack([n for n in normalizers if n is not None]) if config.normalize_observations else None
    task = Task(run.header.seed, Purpose.EPISODE, keys, np.array(chosen), given)
    made = farm.evaluate(task, genomes, config.episodes, experiment.network.traces)
    prints, traces = genomes.fingerprints(), made.trace_fingerprints()
    for row, generation in enumerate(numbers):
        what = _genomes(run, experiment, generation, int(prints[row]))
        found = _champion(run, experiment, generation, of_evaluation(made, row, traces), what, here)
        if found is not None:
            return found
    part = "" if len(numbers) == run.told else f"{len(numbers)} of "
    told = f"the champions of {part}{run.told} generations, {made.returns.size} episodes evaluated again"
    told += f", and {len(run.held_out.returns)} held-out ones" if run.held_out is not None else ""
    return _rest(run, experiment, farm) or Verdict(True, told)


def _genomes(run: Run, experiment: Experiment, generation: int, champion: int) -> str | None:
    """Return what is wrong with the genomes of a generation. champion: the fingerprint of the one that is stored."""
    record = run.records[generation]
    if generation == 0:
        born = newborn(run, experiment).fingerprints() == record.genome_fingerprints
        if 2 * np.count_nonzero(born) < len(born):
            return "birth"
    return None if champion == int(record.genome_fingerprints[record.champion_candidate]) else "weights"


def _champion(
    run: Run, experiment: Experiment, generation: int, made: Log, what: str | None, here: Mapping[str, Any]
) -> Verdict | None:
    """Return how a champion's log and what was made of it here part, None for not at all."""
    record = run.records[generation]
    candidate = int(record.champion_candidate)
    kept = of_record(record, candidate)
    apart = np.flatnonzero(differs(kept, made)).tolist()
    if not apart and made.traces != kept.traces:
        what = what or "traces"
    if not apart and what is None:
        return None
    at, manifests = f"generation {generation}", (flat(dict(run.header.manifest)), flat(dict(here)))
    names = Side(str(run.path)), Side(HERE)
    if not apart:
        cause, why = explain(what or "", None, run.header.seed)
        told = f"{at}: candidate {candidate}: its episodes are equal on {HERE}, but not all that was logged of it"
        return Verdict(False, told, cause, why, generation, candidate, None, None, what, names, (), manifests)
    return judge(run, experiment, (generation, candidate, apart[0]), made, what, manifests)


def _rest(run: Run, experiment: Experiment, farm: Coordinator) -> Verdict | None:
    """Check what is known beyond the champions' episodes: digests where all genomes are kept, and held-out episodes."""
    previous = DIGEST_START
    for generation, record in enumerate(run.records if run.has_population else ()):
        genomes = store.population(run.path, generation)
        previous = chain_digest(previous, genomes, record.returns, record.lengths)
        if previous.hex().encode() != record.digest:
            told = f"generation {generation}: its digest is not that of its genomes, returns and lengths"
            return Verdict(False, told, *explain("log", None), generation=generation, what="log")
    kept = run.held_out
    if kept is None:
        return None
    champion = Genomes(kept.weights[None], kept.mask[None])
    made = held_out(
        experiment, farm, champion, run.header.seed, len(kept.returns), normalizer_of(experiment, run, run.told)
    )
    same = np.array_equal(made.returns, kept.returns, equal_nan=True) and np.array_equal(made.seeds, kept.seeds)
    told = f"the champion's returns on {len(kept.returns)} held-out episodes are not those of {HERE}"
    return None if same else Verdict(False, told, *explain("held-out", None), what="held-out")
