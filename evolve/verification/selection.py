"""Which episodes of a run can be played again.

The champion of each generation is stored, and every candidate where the experiment says so (`output.genomes`). The
candidates of generation 0 can always be made again, and so can those of the generation that comes next, since the
strategy asks for the same ones: an episode at which a run failed can be looked at alone.
"""

import re
from dataclasses import dataclass

import numpy as np

from evolve import store
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose
from evolve.shapes import UInt64
from evolve.store import Stored, StoredChampion, StoredRun
from evolve.strategies import ask_for, is_made_anywhere
from evolve.training import Experiment, final_champion, restore

_AT_ONCE = 2**22  # weights of the candidates that are made to be looked at


@dataclass(frozen=True)
class Episode:
    """What to play: a genome (P = 1), the key of its episode, and the return in the log, None where there is none.

    champion: whether it is its generation's best, as far as that is known.
    """

    genome: Genomes
    purpose: Purpose
    generation: int
    candidate: int
    episode: int
    logged: float | None
    champion: bool = True

    @property
    def title(self) -> str:
        """What it is, in words."""
        if self.purpose is not Purpose.EPISODE:
            return f"{self.purpose.title} episode {self.episode}"
        candidate = "" if self.champion else f", candidate {self.candidate}"
        return f"generation {self.generation}{candidate}{f', episode {self.episode}' if self.episode else ''}"


def choose(
    run: Stored,
    experiment: Experiment,
    generation: int | None = None,
    candidate: int | None = None,
    episode: int = 0,
    purpose: Purpose = Purpose.EPISODE,
) -> Episode:
    """Return an episode of a run.

    Args:
        run: The run, or a champion file, whose episodes are held out unless they are for validation.
        experiment: That of the run.
        generation: A complete one, or the one that comes next; by default the last complete one.
        candidate: Whose episode it is; by default the champion's.
        episode: Its number.
        purpose: With another than EPISODE it is one of the final champion, held out or for validation.

    Raises:
        InputError: The file does not have it.
    """
    if isinstance(run, StoredChampion):
        _check_is_final(run, generation, candidate)
        purpose = Purpose.HELD_OUT if purpose is Purpose.EPISODE else purpose
    num_generations = run.num_generations
    most = experiment.config.episodes if purpose is Purpose.EPISODE else 2**31  # there is no end of the others
    if not 0 <= episode < most:
        raise InputError("episode", f"one of the {most:,} episodes (0 to {most - 1:,})", episode)
    if isinstance(run, StoredChampion) or purpose is not Purpose.EPISODE:
        return _of_final_champion(run, experiment, episode, purpose)
    generation = max(num_generations - 1, 0) if generation is None else generation
    if not 0 <= generation <= num_generations:
        raise InputError("generation", f"one of 0 to {num_generations} (the next one)", generation)
    if generation == num_generations:
        return _of_next_generation(run, experiment, generation, candidate or 0, episode)
    best = int(run.records[generation].champion_candidate)
    chosen = best if candidate is None else candidate
    _check_candidate(chosen, experiment.config.population)
    genome = genome_of(run, experiment, generation, chosen)
    if genome is None:
        expected = f"the champion of generation {generation}, {best}, which alone is stored"
        cure = 'To keep all genomes: output.genomes="all" (in a new run).'
        raise InputError("candidate", expected, candidate, cure)
    logged = _logged_return(run.records[generation], chosen, episode)
    return Episode(genome, Purpose.EPISODE, generation, chosen, episode, logged, chosen == best)


def _check_is_final(champion: StoredChampion, generation: int | None, candidate: int | None) -> None:
    """Raise InputError where another than the final champion is asked for."""
    for name, given in (("generation", generation), ("candidate", candidate)):
        if given is not None:
            raise InputError(name, f"none with {champion.path}, which has the final champion alone", given)


def _logged_return(record: store.Record, candidate: int, episode: int) -> float | None:
    """Return the return in the log, None for an episode that a candidate did not play, having left the race."""
    returned = float(record.returns[candidate, episode])
    played = record.lengths[candidate, episode] or record.fingerprints[candidate, episode].any()
    return returned if played or not np.isnan(returned) else None


def genome_of(run: StoredRun, experiment: Experiment, generation: int, candidate: int) -> Genomes | None:
    """Return the genome (P = 1) of a candidate of a complete generation; None where it cannot be had."""
    record = run.records[generation]
    one = np.array([candidate])
    if run.has_population:
        return store.population(run.path, generation).take(one)
    if candidate == record.champion_candidate:
        return Genomes(record.champion_weights[None], record.champion_mask[None])
    if generation:
        return None
    strategy = experiment.strategy(run.header.seed)
    return ask_for(strategy, strategy.start(), 0, one)


def initial_fingerprints(run: StoredRun, experiment: Experiment) -> UInt64:
    """Return [P]: the fingerprints of the candidates of generation 0, as the seed of a run has them."""
    strategy = experiment.strategy(run.header.seed)
    state, population = strategy.start(), experiment.config.population
    at_once = max(1, _AT_ONCE // experiment.network.num_weights) if is_made_anywhere(strategy, 0) else population
    parts = (np.arange(first, min(first + at_once, population)) for first in range(0, population, at_once))
    return np.concatenate([ask_for(strategy, state, 0, part).fingerprints() for part in parts])


def _check_candidate(candidate: int, population: int) -> None:
    if not 0 <= candidate < population:
        raise InputError("candidate", f"one of the {population} candidates (0 to {population - 1})", candidate)


def _of_next_generation(
    run: StoredRun, experiment: Experiment, generation: int, candidate: int, episode: int
) -> Episode:
    """Return an episode of the generation that comes next; the strategy is asked for its candidates once more."""
    _check_candidate(candidate, experiment.config.population)
    strategy, state = restore(experiment, run)
    genome = ask_for(strategy, state, generation, np.array([candidate]))
    return Episode(genome, Purpose.EPISODE, generation, candidate, episode, None, champion=False)


def _of_final_champion(run: Stored, experiment: Experiment, episode: int, purpose: Purpose) -> Episode:
    if not run.num_generations:
        came = f"{run.path}, without a complete generation"
        raise InputError(f"--{purpose.title}", "a run that has a champion", came)
    champion, _ = final_champion(experiment, run)
    if purpose is Purpose.VALIDATION:
        return Episode(champion, purpose, run.num_generations, 0, episode, None)
    known = () if run.held_out is None else run.held_out.returns
    logged = float(known[episode]) if episode < len(known) else None
    return Episode(champion, purpose, 0, 0, episode, logged)


def choose_champions(run: StoredRun, experiment: Experiment, generations: str, episode: int) -> list[Episode]:
    """Return the same episode of the champions of several complete generations, "0,10,last".

    Raises InputError when the list is no such list, or the file does not have them all.
    """
    last = run.num_generations - 1
    if last < 0:
        came = f"{run.path}, without a complete generation"
        raise InputError("--generations", "a run that has champions", came)
    numbers = []
    for part in generations.split(","):
        number = last if part == "last" else int(part) if re.fullmatch("[0-9]{1,9}", part) else last + 1
        if number > last:
            expected = f"a list of complete generations, like 0,{last} or 0,last (0 to {last})"
            raise InputError("--generations", expected, generations)
        numbers.append(number)
    return [choose(run, experiment, number, None, episode) for number in numbers]
