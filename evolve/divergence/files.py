"""Two run files against each other."""

from dataclasses import replace
from typing import Any

from evolve.config import differences
from evolve.divergence.causes import explain
from evolve.divergence.episode import Enacted, enact
from evolve.divergence.logs import Log, Place, first_difference, of_record, parting
from evolve.divergence.verdict import Side, Verdict, flat
from evolve.errors import EvolveError
from evolve.evolution import load_config, reload
from evolve.playback import genome_of
from evolve.store import Run


def compare(a: Run, b: Run, play: bool = True) -> Verdict:
    """Return whether two runs are equal in every stored value; if not, where and why they part.

    play: whether the episode in which they part may be played here.
    """
    pairs = enumerate(zip(a.records, b.records, strict=False))
    place = next((found for g, pair in pairs if (found := first_difference(g, *pair))), None)
    if place is None and a.told == b.told:
        digest = a.records[-1].digest.decode() if a.records else "none"
        return Verdict(True, f"{a.told} generations, digest {digest}")
    both = Verdict(
        False,
        f"equal for {min(a.told, b.told)} generations, but {a.path} has {a.told} and {b.path} {b.told}",
        sides=(Side(str(a.path)), Side(str(b.path))),
        configuration=_configuration(a, b),
        manifests=(flat(dict(a.header.manifest)), flat(dict(b.header.manifest))),
    )
    return both if place is None else _apart(a, b, place, both, play)


def _apart(a: Run, b: Run, place: Place, both: Verdict, play: bool) -> Verdict:
    step, what, sides = _look_closer(a, b, place, play)
    cause, why = explain(what, step)
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
    logs = [of_record(run.records[key[0]], key[1]) for run in runs]
    played = [_enact(run, key) if play else None for run in runs]
    agrees = [found is not None and found.agrees(log, key[2]) for found, log in zip(played, logs, strict=True)]
    step, what = _step(logs, played, agrees, key[2])
    sides = []
    for run, log, found, same in zip(runs, logs, played, agrees, strict=True):
        later = None if found is None else found.parts(log, key[2])
        known = same or (later is not None and step is not None and later[0] > step)
        returned, length = float(log.returns[key[2]]), int(log.lengths[key[2]])
        seen = found.side("", step) if found is not None and known else Side("")
        sides.append(Side(str(run.path), returned, length, seen.step_observation, seen.step_action))
    return step, what, tuple(sides)


def _enact(run: Run, key: tuple[int, int, int]) -> Enacted | None:
    """Play an episode of a run here, if its genome is known and its environment can be had."""
    try:
        experiment = reload(run)
        genome = genome_of(run, experiment, key[0], key[1])
        return None if genome is None else enact(run, experiment, key, genome)
    except EvolveError:
        return None


def _step(logs: list[Log], played: list[Enacted | None], agrees: list[bool], episode: int) -> tuple[int | None, str]:
    """Return the step at which two logs of an episode part, if trails tell it, and what parts there."""
    seen, done = (logs[0].fingerprints[episode] == logs[1].fingerprints[episode]).tolist()
    if seen:
        return None, "return" if done else "last action"
    trails = [
        log.trail[episode] if log.trail is not None else found.outcomes.trails if found is not None and same else None
        for log, found, same in zip(logs, played, agrees, strict=True)
    ]
    if trails[0] is None or trails[1] is None:
        return None, "somewhere"
    lengths = int(logs[0].lengths[episode]), int(logs[1].lengths[episode])
    return parting(trails[0], trails[1], lengths) or (None, "somewhere")
