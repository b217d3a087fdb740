"""Two run files against each other."""

from dataclasses import replace
from typing import Any

import numpy as np

from evolve.config import differences, flatten
from evolve.errors import EvolveError, pluralize
from evolve.store import StoredRun
from evolve.training import load_config, reload
from evolve.verification.logs import (
    EpisodeLog,
    FirstDifference,
    digest_difference,
    explain,
    first_difference,
    first_different_step,
    genome_cause,
    log_of_record,
    same_arrays,
)
from evolve.verification.playing import PlayedEpisode, genome_of, play_recorded
from evolve.verification.verdict import ENGINE, Side, Verdict, as_texts


def compare(a: StoredRun, b: StoredRun, play: bool = True) -> Verdict:
    """Return whether two runs are equal in all that they hold; if not, where they differ first, and why.

    Times, ranks and manifests may differ, and one may know more of held-out episodes, or of genomes, than the other.
    The engines may differ, too, if they have played the same episodes.
    play: whether the first episode that differs may be played here.
    """
    both = Verdict(
        False,
        _lengths(a, b),
        sides=(Side(str(a.path)), Side(str(b.path))),
        configuration=_configuration(a, b),
        manifests=tuple(as_texts(flatten(run.header.manifest)) for run in (a, b)),
    )
    pairs = enumerate(zip(a.records, b.records, strict=False))
    place = next((found for g, pair in pairs if (found := first_difference(g, *pair))), None)
    if place is not None:
        return _explain_difference(a, b, place, both, play)
    keys = _keys(both)
    if keys:
        summary = f"equal in every generation, but set to something else: {keys}"
        return replace(both, summary=summary, cause="configuration", why=f"{keys}, or one of the files was changed")
    if a.num_generations != b.num_generations:
        return both
    beyond = _later_difference(a, b)
    if beyond is not None:
        return replace(both, summary=beyond, cause="log", why=explain("log", None)[1], what="log")
    digest = a.digest if a.records else "none"
    summary = f"{pluralize(a.num_generations, 'generation')}, digest {digest}"
    return Verdict(True, summary, configuration=both.configuration)


def _lengths(a: StoredRun, b: StoredRun) -> str:
    equal = pluralize(min(a.num_generations, b.num_generations), "generation")
    return f"equal for {equal}, but {a.path} has {a.num_generations} and {b.path} {b.num_generations}"


def _later_difference(a: StoredRun, b: StoredRun) -> str | None:
    """Return what differs beyond generations: checkpoints, held-out episodes that both have, genomes that are kept."""
    if not same_arrays(a.checkpoint, b.checkpoint):
        return "the checkpoints differ, though every generation is equal"
    if a.held_out is not None and b.held_out is not None:
        n = min(len(a.held_out.returns), len(b.held_out.returns)) if _evaluated_alike(a, b) else 0
        for name, end in (("returns", n), ("seeds", n), ("weights", None), ("mask", None)):
            one, other = (getattr(held_out, name)[:end] for held_out in (a.held_out, b.held_out))
            if not np.array_equal(one, other, equal_nan=name == "returns"):
                return f"the {name} of the held-out evaluation differ, though every generation is equal"
    found = digest_difference(a) or digest_difference(b)
    return None if found is None else found.summary


def _evaluated_alike(a: StoredRun, b: StoredRun) -> bool:
    one, other = (load_config(run.header.config, str(run.path)) for run in (a, b))
    return one.evaluates_like(other.with_engine(one.env.engine))


def _explain_difference(a: StoredRun, b: StoredRun, place: FirstDifference, both: Verdict, play: bool) -> Verdict:
    step, what, sides = _look_closer(a, b, place, play)
    known = genome_cause(place.generation, both.manifests) if what == "genome" else what
    cause, why = explain(known, step)
    keys = _keys(both)
    if keys:
        cause, why = ("random stream", "the seeds differ") if keys == "seed" else ("configuration", f"{keys}; {why}")
    at: dict[str, Any] = {
        "generation": place.generation,
        "candidate": place.candidate,
        "episode": place.episode,
        "step": step,
    }
    return replace(both, summary=place.summary, cause=cause, why=why, what=what, sides=sides or both.sides, **at)


def _configuration(a: StoredRun, b: StoredRun) -> tuple[tuple[str, object, object], ...]:
    configs = (load_config(run.header.config, str(run.path)) for run in (a, b))
    seeds = a.header.seed, b.header.seed
    return (*((("seed", *seeds),) if len(set(seeds)) == 2 else ()), *differences(*configs))


def _keys(both: Verdict) -> str:
    """Return the settings that differ, in words, but for the engine: its episodes show whether that matters."""
    return ", ".join(key for key, _, _ in both.configuration if key != ENGINE)


def _look_closer(
    a: StoredRun, b: StoredRun, place: FirstDifference, play: bool
) -> tuple[int | None, str, tuple[Side, ...]]:
    """Return the first step in which an episode differs, what differs, and what both have there."""
    if place.what != "episode" or place.candidate is None or place.episode is None:
        return None, place.what, ()
    key, runs = (place.generation, place.candidate, place.episode), (a, b)
    logged = [log_of_record(run.records[key[0]], key[1]).episode_log(key[2]) for run in runs]
    played = [_play(run, key) if play else None for run in runs]
    # Where no step hashes were kept, those of the episode as it is played here do as well, if it is the same.
    known = [
        found.log if log.step_hashes is None and found is not None and found.agrees(log) else log
        for log, found in zip(logged, played, strict=True)
    ]
    step, what = first_different_step(*known)
    each = zip(runs, logged, played, strict=True)
    return step, what, tuple(_side(run, log, found, step) for run, log, found in each)


def _side(run: StoredRun, log: EpisodeLog, played: PlayedEpisode | None, step: int | None) -> Side:
    """Return what a run has in a step: what is seen here, if the episode is played here as it was up to there."""
    here = Side("")
    if played is not None and step is not None:
        later, _ = first_different_step(log, played.log)
        if played.agrees(log) or (later is not None and later > step):
            here = played.side("", step)
    return Side(str(run.path), log.return_, log.length, here.step_observation, here.step_action)


def _play(run: StoredRun, key: tuple[int, int, int]) -> PlayedEpisode | None:
    """Play an episode of a run here, if its genome is known and its environment can be had."""
    try:
        experiment = reload(run)
        genome = genome_of(run, experiment, key[0], key[1])
        return None if genome is None else play_recorded(run, experiment, key, genome)
    except EvolveError:
        return None
