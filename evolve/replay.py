"""python -m evolve.replay: play one episode of a run again, in this process alone, and compare it with the log.

Of a told generation the champion is stored. Of the generation that comes next every candidate can be played, since the
strategy asks for the same ones again: so an episode at which a run failed can be looked at alone.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve import store
from evolve.cluster import Watchdog, World, keys_of
from evolve.commands import Parser, launch
from evolve.errors import EpisodeError, InputError, RunError
from evolve.evaluation import Outcomes
from evolve.evolution import Experiment, make_rollout, reload, restore
from evolve.genome import Genomes
from evolve.rng import Purpose, environment_seeds
from evolve.rollout import Units
from evolve.stopping import StopFlag
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


def _parser() -> Parser:
    parser = Parser(
        "evolve.replay",
        "Play one episode of a run again. Exit 0: the return is that of the log, to the bit.",
        "python -m evolve.replay runs/CartPole-v1-hebbian-dag/seed-0.h5",
        "python -m evolve.replay seed-0.h5 --generation 3 --candidate 17 --episode 2",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a run file")
    add("--generation", type=int, metavar="G", help="a told one, or the next (the last told one)")
    add("--candidate", type=int, metavar="P", help="of the next generation; of told ones the champion is stored")
    add("--episode", type=int, default=0, metavar="E", help="which of its episodes (0)")
    add("--held-out", action="store_true", help="a held-out episode of the final champion")
    return parser


def choose(
    run: Run, experiment: Experiment, generation: int | None, candidate: int | None, episode: int, held_out: bool
) -> Episode:
    """Return the episode that the options name. Raises InputError when the file does not have it."""
    told, config = len(run.records), experiment.config
    most = config.held_out_episodes if held_out else config.episodes
    if not 0 <= episode < most:
        raise InputError("--episode", f"one of the {most} episodes (0 to {most - 1})", episode)
    if held_out:
        return _held_out(run, experiment, episode)
    generation = max(told - 1, 0) if generation is None else generation
    if not 0 <= generation <= told:
        raise InputError("--generation", f"one of 0 to {told} (the next to be told)", generation)
    if generation == told:
        return _coming(run, experiment, generation, candidate, episode)
    record = run.records[generation]
    if candidate not in (None, record.champion_candidate):
        expected = f"the champion of generation {generation}, {record.champion_candidate}, which alone is stored"
        raise InputError("--candidate", expected, candidate)
    chosen = record.champion_candidate
    genome = Genomes(record.champion_weights[None], record.champion_mask[None])
    return Episode(genome, Purpose.EPISODE, generation, chosen, episode, float(record.returns[chosen, episode]))


def _coming(run: Run, experiment: Experiment, generation: int, candidate: int | None, episode: int) -> Episode:
    """Return an episode of the generation that has not been told yet; its candidates are asked for once more."""
    config, candidate = experiment.config, candidate or 0
    if not 0 <= candidate < config.population:
        raise InputError("--candidate", f"one of the {config.population} candidates", candidate)
    strategy, state = restore(experiment, run)
    genome = strategy.ask(state, generation).take(np.array([candidate]))
    return Episode(genome, Purpose.EPISODE, generation, candidate, episode, None)


def _held_out(run: Run, experiment: Experiment, episode: int) -> Episode:
    if not run.records:
        raise InputError("--held-out", "a run that has a champion", f"{run.path}, without a told generation")
    strategy, state = restore(experiment, run)
    known = () if run.held_out is None else run.held_out.returns
    logged = float(known[episode]) if episode < len(known) else None
    return Episode(strategy.champion(state), Purpose.HELD_OUT, 0, 0, episode, logged)


def play(run: Run, experiment: Experiment, chosen: Episode) -> tuple[Outcomes, int]:
    """Play an episode; return its outcome, and the seed of its environment. Raises EpisodeError when it fails."""
    config = experiment.config
    alone = config.model_copy(update={"compute": config.compute.model_copy(update={"slots": 1})})
    rollout = make_rollout(alone.to_toml())
    keys = keys_of(chosen.generation, chosen.candidate + 1, config.common_random_numbers)[-1]
    key = [np.array([part]) for part in (*keys, chosen.episode)]
    seeds = environment_seeds(run.header.seed, chosen.purpose, *key)
    one = np.zeros(1, np.int32)
    rollout.submit(Units(one, one, seeds, one, chosen.genome))
    outcomes = None
    with Watchdog(config.env.max_episode_seconds, fatal=True) as watchdog:
        while outcomes is None:
            watchdog.pat()
            outcomes = rollout.tick()
    for fault in rollout.take_faults():
        if chosen.logged is not None and np.isnan(chosen.logged):
            print(f"it fails in step {fault.step}: {fault.told.rstrip().splitlines()[-1]}")
            break
        where = f"in {f'step {fault.step}' if fault.step else 'reset'}, environment seed {fault.seed}"
        raise EpisodeError("the episode", f"{where}:\n{fault.told.rstrip()}", "")
    return outcomes, int(seeds[0])


def _body(_world: World, _stop: StopFlag, argv: list[str]) -> int:
    options = vars(_parser().parse_args(argv))
    run = store.read(options.pop("file"))
    experiment = reload(run)
    chosen = choose(run, experiment, **options)
    outcomes, seed = play(run, experiment, chosen)
    returned = float(outcomes.returns[0])
    print(f"return {returned!r} in {outcomes.lengths[0]} steps (environment seed {seed})")
    if chosen.logged is None:
        return 0
    if returned != chosen.logged and not (np.isnan(returned) and np.isnan(chosen.logged)):
        raise RunError(f"{run.path} has a return of {chosen.logged!r} for this episode")
    print("equal to the log, to the bit")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("replay", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
