"""Which episodes of a run can be played again.

Of a told generation the champion is stored, and every candidate where the experiment says so (`output.genomes`).
Newborn ones can always be had, and so can those of the generation that comes next, since the strategy asks for the same
ones again: so an episode at which a run failed can be looked at alone.
"""

import re
from dataclasses import dataclass

import numpy as np

from evolve import store, strategies
from evolve.cluster import keys_of
from evolve.errors import InputError
from evolve.experiment import Experiment, restore
from evolve.genome import Genomes
from evolve.rng import Purpose, environment_seeds
from evolve.store import Run


@dataclass(frozen=True)
class Episode:
    """What to play: a genome (P = 1), the key of its episode, and the return in the log, None where there is none."""

    genome: Genomes
    purpose: Purpose
    generation: int
    candidate: int
    episode: int
    logged: float | None
    champion: bool = True
    """Whether it is its generation's best, as far as that is known."""

    @property
    def title(self) -> str:
        """What it is, in words."""
        if self.purpose is not Purpose.EPISODE:
            return f"{self.purpose.title} episode {self.episode}"
        candidate = "" if self.champion else f", candidate {self.candidate}"
        return f"generation {self.generation}{candidate}{f', episode {self.episode}' if self.episode else ''}"


def choose(
    run: Run,
    experiment: Experiment,
    generation: int | None,
    candidate: int | None,
    episode: int,
    purpose: Purpose = Purpose.EPISODE,
) -> Episode:
    """Return the episode that the options name: one of a generation, or with another purpose of the final champion.

    Raises InputError when the file does not have it.
    """
    told, config = len(run.records), experiment.config
    most = config.episodes if purpose is Purpose.EPISODE else 2**31  # there is no end of the others
    if not 0 <= episode < most:
        raise InputError("--episode", f"one of the {most:,} episodes (0 to {most - 1:,})", episode)
    if purpose is not Purpose.EPISODE:
        return _of_final_champion(run, experiment, episode, purpose)
    generation = max(told - 1, 0) if generation is None else generation
    if not 0 <= generation <= told:
        raise InputError("--generation", f"one of 0 to {told} (the next to be told)", generation)
    if generation == told:
        return _coming(run, experiment, generation, candidate, episode)
    best = int(run.records[generation].champion_candidate)
    chosen = best if candidate is None else candidate
    _check_candidate(chosen, config.population)
    genome = genome_of(run, experiment, generation, chosen)
    if genome is None:
        expected = f"the champion of generation {generation}, {best}, which alone is stored"
        cure = "To keep all genomes: --set output.genomes=all (in a new run)."
        raise InputError("--candidate", expected, candidate, cure)
    logged = _logged(run.records[generation], chosen, episode)
    return Episode(genome, Purpose.EPISODE, generation, chosen, episode, logged, chosen == best)


def _logged(record: store.Record, candidate: int, episode: int) -> float | None:
    """Return the return in the log, None for an episode that a candidate did not play, having left the race."""
    returned = float(record.returns[candidate, episode])
    played = record.lengths[candidate, episode] or record.fingerprints[candidate, episode].any()
    return returned if played or not np.isnan(returned) else None


def genome_of(run: Run, experiment: Experiment, generation: int, candidate: int) -> Genomes | None:
    """Return the genome (P = 1) of a candidate of a told generation; None where it is neither stored nor newborn."""
    record, one = run.records[generation], np.array([candidate])
    if run.has_population:
        return store.population(run.path, generation).take(one)
    if candidate == record.champion_candidate:
        return Genomes(record.champion_weights[None], record.champion_mask[None])
    return newborn(run, experiment).take(one) if generation == 0 else None


def newborn(run: Run, experiment: Experiment) -> Genomes:
    """Return the candidates of generation 0, as the seed of a run has them."""
    config = experiment.config
    strategy = strategies.make(config.strategy, experiment.network, config.population, run.header.seed)
    newborn: Genomes = strategy.ask(strategy.start(), 0)
    return newborn


def _check_candidate(candidate: int, population: int) -> None:
    if not 0 <= candidate < population:
        raise InputError("--candidate", f"one of the {population} candidates (0 to {population - 1})", candidate)


def _coming(run: Run, experiment: Experiment, generation: int, candidate: int | None, episode: int) -> Episode:
    """Return an episode of the generation that has not been told yet; its candidates are asked for once more."""
    candidate = candidate or 0
    _check_candidate(candidate, experiment.config.population)
    strategy, state = restore(experiment, run)
    genome = strategy.ask(state, generation).take(np.array([candidate]))
    return Episode(genome, Purpose.EPISODE, generation, candidate, episode, None, champion=False)


def _of_final_champion(run: Run, experiment: Experiment, episode: int, purpose: Purpose) -> Episode:
    if not run.records:
        raise InputError(f"--{purpose.title}", "a run that has a champion", f"{run.path}, without a told generation")
    strategy, state = restore(experiment, run)
    if purpose is Purpose.VALIDATION:
        return Episode(strategy.champion(state), purpose, run.told, 0, episode, None)
    known = () if run.held_out is None else run.held_out.returns
    logged = float(known[episode]) if episode < len(known) else None
    return Episode(strategy.champion(state), purpose, 0, 0, episode, logged)


def choose_champions(run: Run, experiment: Experiment, generations: str, episode: int) -> list[Episode]:
    """Return the same episode of the champions of several told generations, "0,10,last".

    Raises InputError when the list is no such list, or the file does not have them all.
    """
    told = len(run.records)
    if not told:
        raise InputError("--generations", "a run that has champions", f"{run.path}, without a told generation")
    numbers = []
    for part in generations.split(","):
        number = told - 1 if part == "last" else int(part) if re.fullmatch("[0-9]{1,9}", part) else told
        if number >= told:
            expected = f"a list of told generations, like 0,{told - 1} or 0,last (0 to {told - 1})"
            raise InputError("--generations", expected, generations)
        numbers.append(number)
    return [choose(run, experiment, number, None, episode) for number in numbers]


def environment_seed(run: Run, experiment: Experiment, chosen: Episode) -> int:
    """Return the seed of an episode's environment."""
    keys = keys_of(chosen.generation, chosen.candidate + 1, experiment.config.common_random_numbers)[-1]
    key = [np.array([part]) for part in (*keys, chosen.episode)]
    return int(environment_seeds(run.header.seed, chosen.purpose, *key)[0])
