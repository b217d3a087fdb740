"""Two run files against each other."""

from dataclasses import replace
from typing import Any

import numpy as np

from evolve.config import differences
from evolve.divergence.causes import explain, genome_apart
from evolve.divergence.episode import Enacted, enact
from evolve.divergence.logs import Place, Track, digests_apart, first_difference, of_record, parting, same_arrays
from evolve.divergence.verdict import Side, Verdict, flat
from evolve.errors import EvolveError, counted
from evolve.experiment import load_config, reload
from evolve.playback import genome_of
from evolve.store import Run


def compare(a: Run, b: Run, play: bool = True) -> Verdict:
    """Return whether two runs are equal in all that they hold; if not, where and why they part.

    Times, ranks and manifests may differ, and one may know more of held-out episodes, or of genomes, than the other.
    play: whether the episode in which they part may be played here.
    """
    both = Verdict(
        False,
        f"equal for {counted(min(a.told, b.told), 'generation')}, but {a.path} has {a.told} and {b.path} {b.told}",
        sides=(Side(str(a.path)), Side(str(b.path))),
        configuration=_configuration(a, b),
        manifests=(flat(a.header.manifest), flat(b.header.manifest)),
    )
    pairs = enumerate(zip(a.records, b.records, strict=False))
    place = next((found for g, pair in pairs if (found := first_difference(g, *pair))), None)
    if place is not None:
        return _apart(a, b, place, both, play)
    if both.configuration:
        keys = ", ".join(key for key, _, _ in both.configuration)
        told = f"equal in every generation, but set to something else: {keys}"
        return replace(both, told=told, cause="configuration", why=f"{keys}, or one of the files was changed")
    if a.told != b.told:
        return both
    beyond = _beyond(a, b)
    if beyond is not None:
        return replace(both, told=beyond, cause="log", why=explain("log", None)[1], what="log")
    digest = a.records[-1].digest.decode() if a.records else "none"
    return Verdict(True, f"{counted(a.told, 'generation')}, digest {digest}")


def _beyond(a: Run, b: Run) -> str | None:
    """Return what differs beyond generations: checkpoints, held-out episodes that both have, genomes that are kept."""
    if not same_arrays(a.checkpoint, b.checkpoint):
        return "the checkpoints differ, though every generation is equal"
    if a.held_out is not None and b.held_out is not None:
        n = min(len(a.held_out.returns), len(b.held_out.returns)) if _judged_alike(a, b) else 0
        for name, end in (("returns", n), ("seeds", n), ("weights", None), ("mask", None)):
            one, other = (getattr(held_out, name)[:end] for held_out in (a.held_out, b.held_out))
            if not np.array_equal(one, other, equal_nan=name == "returns"):
                return f"the {name} of the held-out evaluation differ, though every generation is equal"
    found = digests_apart(a) or digests_apart(b)
    return None if found is None else found.told


def _judged_alike(a: Run, b: Run) -> bool:
    one, other = (load_config(run.header.config, str(run.path)) for run in (a, b))
    return one.judges_like(other)


def _apart(a: Run, b: Run, place: Place, both: Verdict, play: bool) -> Verdict:
    step, what, sides = _look_closer(a, b, place, play)
    known = genome_apart(place.generation, both.manifests) if what == "genome" else what
    cause, why = explain(known, step)
    keys = ", ".join(key for key, _, _ in both.configuration)
    if keys:
        cause, why = ("random stream", "the seeds differ") if keys == "seed" else ("configuration", f"{keys}; {why}")
    at: dict[str, Any] = {
        "generation": place.generation,
        "candidate": place.candidate,
        "episode": place.episode,
        "step": step,
    }
    return replace(both, told=place.told, cause=cause, why=why, what=what, sides=sides or both.sides, **at)


def _configuration(a: Run, b: Run) -> tuple[tuple[str, object, object], ...]:
    configs = (load_config(run.header.config, str(run.path)) for run in (a, b))
    seeds = a.header.seed, b.header.seed
    return (*((("seed", *seeds),) if len(set(seeds)) == 2 else ()), *differences(*configs))


def _look_closer(a: Run, b: Run, place: Place, play: bool) -> tuple[int | None, str, tuple[Side, ...]]:
    """Return the step at which an episode parts, what does, and what both have there."""
    if place.what != "episode" or place.candidate is None or place.episode is None:
        return None, place.what, ()
    key, runs = (place.generation, place.candidate, place.episode), (a, b)
    logged = [of_record(run.records[key[0]], key[1]).track(key[2]) for run in runs]
    played = [_enact(run, key) if play else None for run in runs]
    # Where no trail was kept, that of the episode as it goes here does as well, if it goes as it did.
    known = [
        found.track if track.trail is None and found is not None and found.agrees(track) else track
        for track, found in zip(logged, played, strict=True)
    ]
    step, what = parting(*known)
    each = zip(runs, logged, played, strict=True)
    return step, what, tuple(_side(run, track, found, step) for run, track, found in each)


def _side(run: Run, track: Track, played: Enacted | None, step: int | None) -> Side:
    """Return what a run has in a step: what is seen here, if the episode goes here as it did as far as that."""
    here = Side("")
    if played is not None and step is not None:
        later, _ = parting(track, played.track)
        if played.agrees(track) or (later is not None and later > step):
            here = played.side("", step)
    return Side(str(run.path), track.returned, track.length, here.step_observation, here.step_action)


def _enact(run: Run, key: tuple[int, int, int]) -> Enacted | None:
    """Play an episode of a run here, if its genome is known and its environment can be had."""
    try:
        experiment = reload(run)
        genome = genome_of(run, experiment, key[0], key[1])
        return None if genome is None else enact(run, experiment, key, genome)
    except EvolveError:
        return None
