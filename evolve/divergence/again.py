"""One run file against this machine: its champions are evaluated again."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evolve.cluster import Coordinator, Task, keys_of
from evolve.divergence.causes import explain
from evolve.divergence.here import HERE, judge
from evolve.divergence.logs import Log, differs, digests_apart, inconsistent, of_evaluation, of_record
from evolve.divergence.verdict import Side, Verdict, flat
from evolve.errors import counted
from evolve.evaluation import Evaluation
from evolve.evolution import held_out
from evolve.experiment import Experiment, normalizer_of
from evolve.genome import Genomes
from evolve.playback import newborn
from evolve.rng import Purpose
from evolve.store import Run

_AT_ONCE = 200  # generations, so that little memory is taken


def again(
    run: Run,
    experiment: Experiment,
    farm: Coordinator,
    here: Mapping[str, Any],
    generations: Sequence[int] | None = None,
) -> Verdict:
    """Evaluate the champions of all generations, or of those named, again, on the very episodes they were scored on.

    Held-out episodes are played again too, and where all genomes are kept, their digests are computed again. farm: one
    that lets episodes fail. here: the manifest of this process.
    """
    numbers = range(run.told) if generations is None else generations
    for begin in range(0, len(numbers), _AT_ONCE):
        found = _champions(run, experiment, farm, here, numbers[begin : begin + _AT_ONCE])
        if found is not None:
            return found
    part = "" if len(numbers) == run.told else f"{len(numbers)} of "
    episodes = len(numbers) * experiment.config.episodes
    told = f"the champions of {part}{counted(run.told, 'generation')}, {counted(episodes, 'episode')} evaluated again"
    told += f", and {len(run.held_out.returns)} held-out ones" if run.held_out is not None else ""
    return rest(run, experiment, farm) or Verdict(True, told)


def _champions(
    run: Run, experiment: Experiment, farm: Coordinator, here: Mapping[str, Any], numbers: Sequence[int]
) -> Verdict | None:
    """Return how the champions of some generations part from what they do here, None for not at all."""
    genomes, made = _evaluate(run, experiment, farm, numbers)
    prints, traces = genomes.fingerprints(), made.trace_fingerprints()
    for row, generation in enumerate(numbers):
        what = _genomes(run, experiment, generation, int(prints[row]))
        found = _champion(run, experiment, generation, of_evaluation(made, row, traces), what, here)
        if found is not None:
            return found
    return None


def _evaluate(
    run: Run, experiment: Experiment, farm: Coordinator, numbers: Sequence[int]
) -> tuple[Genomes, Evaluation]:
    """Return the champions of some generations, and what they come to here."""
    config, records = experiment.config, [run.records[g] for g in numbers]
    chosen = [record.champion_candidate for record in records]
    keyed = zip(numbers, chosen, strict=True)
    keys = np.concatenate([keys_of(g, c + 1, config.common_random_numbers)[-1:] for g, c in keyed])
    genomes = Genomes(np.stack([r.champion_weights for r in records]), np.stack([r.champion_mask for r in records]))
    normalizers = [normalizer_of(experiment, run, g) for g in numbers]
    given = np.stack([n for n in normalizers if n is not None]) if config.normalize_observations else None
    task = Task(run.header.seed, Purpose.EPISODE, keys, np.array(chosen), given)
    return genomes, farm.evaluate(task, genomes, config.episodes, experiment.network.traces)


def _genomes(run: Run, experiment: Experiment, generation: int, champion: int) -> str | None:
    """Return what is wrong with the genomes of a generation. champion: the fingerprint of the one that is stored."""
    record, born = run.records[generation], None
    if generation == 0:
        born = newborn(run, experiment).fingerprints() == record.genome_fingerprints
        if 2 * np.count_nonzero(born) < len(born):
            return "birth"
    if champion != int(record.genome_fingerprints[record.champion_candidate]):
        return "weights"
    return None if born is None or born.all() else "log"


def _champion(
    run: Run, experiment: Experiment, generation: int, made: Log, what: str | None, here: Mapping[str, Any]
) -> Verdict | None:
    """Return how a champion's log and what was made of it here part, None for not at all."""
    record = run.records[generation]
    candidate, wrong = int(record.champion_candidate), inconsistent(record)
    kept = of_record(record, candidate)
    apart = np.flatnonzero(differs(kept, made)).tolist()
    manifests = flat(run.header.manifest), flat(here)
    if apart:
        return judge(run, experiment, (generation, candidate, apart[0]), made, what, manifests)
    if made.traces != kept.traces:
        what = what or "traces"
    if not np.array_equal(record.champion_trail, np.concatenate(made.trails or [])):
        what, wrong = what or "log", wrong or "the champion's trail is not that of its episodes"
    if what is None and wrong is None:
        return None
    cause, why = explain(what or "log", None, run.header.seed)
    told = f"generation {generation}: {wrong or f'candidate {candidate}: not all that was logged of it is true'}"
    sides = Side(str(run.path)), Side(HERE)
    return Verdict(False, told, cause, why, generation, candidate, None, None, what or "log", sides, (), manifests)


def rest(run: Run, experiment: Experiment, farm: Coordinator) -> Verdict | None:
    """Check what is known beyond the champions' episodes: digests where all genomes are kept, and held-out episodes."""
    wrong, kept = digests_apart(run), run.held_out
    if wrong is not None:
        return Verdict(False, wrong.told, *explain("log", None), generation=wrong.generation, what="log")
    if kept is None and run.complete and experiment.config.held_out_episodes:
        told = "its held-out evaluation is missing, though it is complete"
        return Verdict(False, told, *explain("log", None), what="log")
    if kept is None:
        return None
    champion = Genomes(kept.weights[None], kept.mask[None])
    normalizer = normalizer_of(experiment, run, run.told)
    made = held_out(experiment, farm, champion, run.header.seed, len(kept.returns), normalizer)
    same = np.array_equal(made.returns, kept.returns, equal_nan=True) and np.array_equal(made.seeds, kept.seeds)
    told = f"the champion's returns on {counted(len(kept.returns), 'held-out episode')} are not those of {HERE}"
    return None if same else Verdict(False, told, *explain("held-out", None), what="held-out")
