"""Chooses episodes of a run (`choose_episode`), and plays an episode again in this process (`play`).

`spot_check` compares an episode of the newest champion with its log, before a resumed run goes on. `repetition.py`
repeats whole runs, also on other ranks.
"""

import logging
import math
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import environments, store
from evolve.cluster import Watchdog
from evolve.config import EnvOptions, names_function
from evolve.environments import Engine, Mode, Recorder, Recording
from evolve.errors import EpisodeError, InputError, Setting, Stopped, exception_line
from evolve.genome import Genomes, candidate_digests, concatenate
from evolve.numerics import host_backend
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, EpisodeFailure, EpisodeResults, Rollout, generation_keys, metrics_of
from evolve.shapes import UInt8, UInt64
from evolve.store import Stored, StoredChampion, StoredRun
from evolve.strategies import is_added
from evolve.training import Experiment, GenomeChoice, chosen_genome, normalizer_of, recorded_limit, restore
from evolve.training.resume import OBSERVATION_ARRAYS, RunState
from evolve.training.stored import check_which, require_run_file
from evolve.verification import logs
from evolve.verification.verdict import Side

_LOG = logging.getLogger("evolve")
_WEIGHTS_AT_ONCE = 2**22  # the weights in memory while fingerprints are computed


@dataclass(frozen=True)
class Episode:
    """An episode to play: a genome, and the key of the episode, from which its random numbers follow.

    Attributes:
        genome: The genome, P = 1.
        purpose, generation, candidate, episode: The parts of the key.
        logged: The return in the log; NaN if the episode failed, None if the return is unknown.
        champion: Whether the candidate is the best of its generation. False if the generation is not evaluated yet.
        which: The choice of the genome, for held-out and validation episodes.
    """

    genome: Genomes
    purpose: Purpose
    generation: int
    candidate: int
    episode: int
    logged: float | None
    champion: bool = True
    which: GenomeChoice = GenomeChoice()  # noqa: RUF009 - frozen

    @property
    def title(self) -> str:
        """The episode in words."""
        if self.purpose is not Purpose.EPISODE:
            return f"{self.purpose.title} episode {self.episode}"
        candidate = "" if self.champion else f", candidate {self.candidate}"
        episode = f", episode {self.episode}" if self.episode else ""
        return f"generation {self.generation}{candidate}{episode}"


def choose_episode(
    run: Stored,
    experiment: Experiment,
    generation: int | None = None,
    candidate: int | None = None,
    episode: int = 0,
    purpose: Purpose = Purpose.EPISODE,
    which: GenomeChoice = GenomeChoice(),  # noqa: B008 - frozen
) -> Episode:
    """Return an episode of a run.

    Args:
        run: The run file or champion file. A champion file has only held-out and validation episodes.
        experiment: The experiment of the run.
        generation: A complete generation, or the generation that comes next. By default the last complete one.
        candidate: The candidate that plays. By default the champion; in the generation that comes next, candidate 0.
        episode: The number of the episode.
        purpose: EPISODE; HELD_OUT or VALIDATION for an episode of the final champion.
        which: A genome in place of the final champion. The elite of a cell plays an episode by which it took the cell.
            Other genomes play a held-out episode, or a validation episode if `purpose` is VALIDATION.

    Raises:
        InputError: The file does not have the episode.
    """
    require_run_file(run, "generation", generation)
    require_run_file(run, "candidate", candidate)
    is_elite = purpose is Purpose.EPISODE and which.cell is not None
    # Only the final champion and elites have training episodes, and only in a run file.
    has_no_training_episodes = not is_elite and (isinstance(run, StoredChampion) or not which.is_final_champion)
    if purpose is Purpose.EPISODE and has_no_training_episodes:
        purpose = Purpose.HELD_OUT
    # Any held-out or validation episode can be played: their numbers end only where the type of the numbers ends.
    most = experiment.config.episodes if purpose is Purpose.EPISODE else 2**31
    if not 0 <= episode < most:
        raise InputError("episode", f"one of the {most:,} episodes (0 to {most - 1:,})" if most > 1 else "0", episode)
    if is_elite:
        return _episode_of_elite(run, experiment, episode, which)
    if isinstance(run, StoredChampion) or purpose is not Purpose.EPISODE:
        return _episode_of_final_champion(run, experiment, episode, purpose, which)
    return _training_episode(run, experiment, generation, candidate, episode)


def _training_episode(
    run: StoredRun, experiment: Experiment, generation: int | None, candidate: int | None, episode: int
) -> Episode:
    """Return a training episode. For the arguments and their defaults see `choose_episode`."""
    num_generations = run.num_generations
    generation = max(num_generations - 1, 0) if generation is None else generation
    if not 0 <= generation <= num_generations:
        raise InputError("generation", f"one of 0 to {num_generations} (the next one)", generation)
    is_next = generation == num_generations
    best = 0 if is_next else int(run.records[generation].champion_candidate)
    chosen = best if candidate is None else candidate
    population = experiment.config.population
    if not 0 <= chosen < population:
        raise InputError("candidate", f"one of the {population} candidates (0 to {population - 1})", chosen)
    if is_next:  # the strategy computes the candidate from the checkpoint
        strategy, state = restore(experiment, run)
        asked = strategy.ask(state, generation, np.array([chosen]))
        return Episode(asked, Purpose.EPISODE, generation, chosen, episode, None, champion=False)
    genome = genome_of(run, experiment, generation, chosen)
    if genome is None:
        expected = f"the champion of generation {generation}, {best}, which alone is stored"
        cure = "To keep all genomes: ", Setting("output.genomes", "all"), " (in a new run)."
        raise InputError("candidate", expected, candidate, *cure)
    return _logged_episode(run, experiment, genome, generation, chosen, episode)


def _logged_episode(
    run: StoredRun, experiment: Experiment, genome: Genomes, generation: int, candidate: int, episode: int
) -> Episode:
    """Return an episode of a complete generation, with its return if the log shows that it was played."""
    record = run.records[generation]
    is_champion = candidate == int(record.champion_candidate)
    played = logs.is_logged(record)[candidate, episode]
    # The log does not show whether an episode failed in `reset` or was not played. But the number of episodes that the
    # champion played is known.
    if is_champion:
        played = played or episode < logs.num_champion_episodes(experiment.config, record)
    logged = float(record.returns[candidate, episode]) if played else None
    return Episode(genome, Purpose.EPISODE, generation, candidate, episode, logged, is_champion)


def same_states(experiment: Experiment, ours: RunState, theirs: RunState) -> bool:
    """Return whether the checkpoints of two runs with equal generations are equal.

    The state of a strategy of another package may have bytes that differ between processes, such as a pickle or a time.
    Such states are equal if they give the same next candidates and the same champion.

    Raises InputError if that strategy cannot read a checkpoint.
    """
    if logs.same_checkpoints(ours.checkpoint, theirs.checkpoint):
        return True
    if not is_added(experiment.config.strategy):
        return False

    # The moments and the normalizer do not belong to the strategy, and must be equal in any case.
    def observation_arrays(run: RunState) -> dict[str, NDArray[Any]]:
        return {name: array for name, array in run.checkpoint.items() if name in OBSERVATION_ARRAYS}

    def digests(run: RunState) -> UInt8:
        strategy, state = restore(experiment, run)
        return candidate_digests(concatenate(strategy.ask(state, run.num_generations), strategy.champion(state)))

    same_observations = logs.same_checkpoints(observation_arrays(ours), observation_arrays(theirs))
    return same_observations and np.array_equal(digests(ours), digests(theirs))


def genome_of(run: StoredRun, experiment: Experiment, generation: int, candidate: int) -> Genomes | None:
    """Return the genome (P = 1) of a candidate of a complete generation; None if the file does not determine it."""
    record = run.records[generation]
    candidates = np.array([candidate])
    if run.has_population:
        return store.population(run.path, generation).take(candidates)
    if candidate == record.champion_candidate:
        return record.champion
    # The genomes of later generations follow from states that the file does not have.
    if generation:
        return None
    strategy = experiment.strategy(run.header.seed)
    return strategy.ask(strategy.start(), 0, candidates)


def initial_fingerprints(run: StoredRun, experiment: Experiment) -> UInt64:
    """Return the fingerprints [P] of the candidates of generation 0, computed from the seed of a run."""
    strategy = experiment.strategy(run.header.seed)
    state, candidates = strategy.start(), np.arange(experiment.config.population)
    # Ask for the candidates in parts, to limit the memory. But the bits of a strategy that is not portable may depend
    # on the parts, so ask for all candidates in one call, as rank 0 of the run did.
    at_once = max(1, _WEIGHTS_AT_ONCE // experiment.network.num_weights) if strategy.portable else len(candidates)
    parts = np.split(candidates, range(at_once, len(candidates), at_once))
    return np.concatenate([strategy.ask(state, 0, part).fingerprints() for part in parts])


def _episode_of_final_champion(
    run: Stored, experiment: Experiment, episode: int, purpose: Purpose, which: GenomeChoice
) -> Episode:
    """Return a held-out or validation episode of the genome that `which` chooses, by default the final champion."""
    if not run.num_generations:
        got = f"{run.path}, without a complete generation"
        raise InputError(f"--{purpose.title}", "a run that has a champion", got)
    champion, _ = chosen_genome(experiment, run, which)
    # In the keys of held-out episodes the generation is 0; in the keys of a validation it is the next generation.
    generation = 0
    returns = () if run.held_out is None else run.held_out.returns
    if purpose is Purpose.VALIDATION:
        generation = run.num_generations
        returns = logs.validation_returns(run, generation) if isinstance(run, StoredRun) else ()
    logged = float(returns[episode]) if which.is_final_champion and episode < len(returns) else None
    return Episode(champion, purpose, generation, 0, episode, logged, which=which)


def _episode_of_elite(run: Stored, experiment: Experiment, episode: int, which: GenomeChoice) -> Episode:
    """Return one of the episodes by which an elite took its cell."""
    check_which(run, which)  # refuses a champion file
    assert isinstance(run, StoredRun)
    assert which.cell is not None
    strategy, state = restore(experiment, run)
    genome = strategy.select(state, cell=which.cell)
    return _logged_episode(run, experiment, genome, *strategy.origin(state, which.cell), episode)


def champion_episodes(run: StoredRun, experiment: Experiment, generations: str, episode: int) -> list[Episode]:
    """Return an episode of the champion of each of several generations.

    Args:
        run: The run file.
        experiment: The experiment of the run.
        generations: A list of complete generations, such as "0,10,last".
        episode: The number of the episode, the same for all champions.

    Raises:
        InputError: The list is invalid, or the file lacks one of the generations.
    """
    last = run.num_generations - 1
    if last < 0:
        raise InputError("--generations", "a run that has champions", f"{run.path}, without a complete generation")
    numbers = []
    for part in generations.split(","):
        number = last
        if part != "last":
            number = int(part) if re.fullmatch("[0-9]{1,9}", part) else last + 1  # refused below
        if number > last:
            expected = f"a list of complete generations, like 0,{last} or 0,last (0 to {last})"
            raise InputError("--generations", expected, generations)
        numbers.append(number)
    return [choose_episode(run, experiment, number, None, episode) for number in numbers]


def environment_of(experiment: Experiment, chosen: Episode) -> EnvOptions:
    """Return the environment settings of an episode. They may differ between training and evaluation."""
    config = experiment.config
    return config.env if chosen.purpose is Purpose.EPISODE else config.in_evaluation().env


EachStep = Callable[[int, float], None]
"""Called with the step and the return so far: with (0, 0.0) after reset, and after each step that did not fail."""


@environments.keeping_directory()
def make_engine(experiment: Experiment, chosen: Episode, mode: Mode | None = None) -> Engine:
    """Return an engine with one slot for an episode. Raises InputError if it cannot be made.

    mode: The way in which the engine draws; None if it does not draw.
    """
    options = environment_of(experiment, chosen)
    if mode is not None:
        options = environments.drawable_options(options, mode)
    return environments.make(options, slots=1, compiled=experiment.config.compute.backend != "numpy")


def play(
    run: Stored, experiment: Experiment, chosen: Episode, engine: Engine, each_step: EachStep | None = None
) -> EpisodeResults:
    """Play an episode in slot 0 of an engine; return its results (N = 1).

    Args:
        run: The run of the episode.
        experiment: The experiment of the run.
        chosen: The episode.
        engine: The engine; the caller closes it.
        each_step: Called with each step, for example to draw it. Because this may take long, `env.max_episode_seconds`
            then limits each step, and not the episode.

    Raises:
        EpisodeError: The episode fails here, and the log does not say that it failed in the run.
    """
    results, failures = _play(run, experiment, chosen, engine, each_step)
    for failure in failures:
        place, message = f"in step {failure.step}" if failure.step else "in reset", failure.message.rstrip()
        if chosen.logged is None or not math.isnan(chosen.logged):
            key = int(chosen.purpose), chosen.generation, chosen.candidate, chosen.episode
            raise EpisodeError("the episode", f"{place}, environment seed {failure.seed}:\n{message}", key)
        _LOG.warning("the episode fails %s, as it does in the log: %s", place, exception_line(message))
    return results


@environments.keeping_directory()
def _play(
    run: Stored, experiment: Experiment, chosen: Episode, engine: Engine, each_step: EachStep | None = None
) -> tuple[EpisodeResults, list[EpisodeFailure]]:
    """Play an episode as `play` does; return its results, and a list with its failure if it fails."""
    config = experiment.config
    seconds = config.env.max_episode_seconds if each_step is None else math.inf
    backend = host_backend(config.compute.backend)
    limit = None
    if isinstance(run, StoredRun) and chosen.purpose is Purpose.EPISODE:
        # The step limit of a training episode may depend on the lengths of the previous generation.
        limit = recorded_limit(experiment, run.records, chosen.generation)
    normalize = config.normalize_observations
    rollout = Rollout(engine, experiment.network, 1, backend, seconds, normalize, max_steps=limit)
    with Watchdog(config.env.max_episode_seconds, fatal=True) as watchdog:
        # Generating a genome may take long, and must not count as a hang.
        rollout.queue.generating = watchdog.paused
        rollout.submit(episode_batch(run, experiment, chosen))

        def report_step(has_failed: bool) -> None:
            if each_step is not None and not has_failed:
                # `each_step` may take long. The next `pat` watches the episode again.
                watchdog.disarm()
                each_step(*rollout.newest())

        report_step(bool(engine.faults))  # the observation of reset
        while True:
            # If the caller has set an alarm (SIGALRM), deliver it here, where no environment runs.
            watchdog.deliver_alarm()
            watchdog.pat()
            results = rollout.tick()
            failures = rollout.take_failures()
            report_step(bool(failures))
            if results is not None:
                return results, failures


def episode_batch(run: Stored, experiment: Experiment, chosen: Episode) -> EpisodeBatch:
    """Return the batch (N = 1) of an episode of a run."""
    # The keys of candidates 0 to c; the last one is the key of the candidate.
    common = experiment.config.common_random_numbers
    keys = generation_keys(chosen.generation, chosen.candidate + 1, common)[-1:]
    if isinstance(run, StoredRun) and chosen.purpose is Purpose.EPISODE:
        normalizer = normalizer_of(experiment, run, chosen.generation)
    else:
        _, normalizer = chosen_genome(experiment, run, chosen.which)
    episodes = range(chosen.episode, chosen.episode + 1)
    return EpisodeBatch.of(run.header.seed, chosen.purpose, chosen.genome, keys, episodes, normalizer)


def environment_seed(run: Stored, experiment: Experiment, chosen: Episode) -> int:
    """Return the seed of an episode's environment."""
    return int(episode_batch(run, experiment, chosen).environment_seeds()[0])


def log_of_played(played: EpisodeResults, metric_names: Sequence[str]) -> logs.EpisodeLog:
    """Return the log of an episode that was played here (N = 1)."""
    metrics = {name: values[0].item() for name, values in metrics_of(vars(played), metric_names).items()}
    return_, length = float(played.returns[0]), int(played.lengths[0])
    return logs.EpisodeLog(return_, length, played.fingerprints[0], played.step_hashes, metrics)


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode that was played here: all of its steps, and its log."""

    recording: Recording
    log: logs.EpisodeLog


def side(name: str, log: logs.EpisodeLog, played: PlayedEpisode | None, step: int | None) -> Side:
    """Return one side of a verdict: the return and the length in a log, and the observation and the action of a step.

    A log has no observations and actions. They are known if the episode that was played here equals the log up to this
    step, otherwise they are None.

    Args:
        name: The name of the side.
        log: The log of the episode.
        played: The same episode, played here; None if it was not played.
        step: The step; None if it is unknown.
    """
    observation = action = None
    if played is not None and step is not None:
        first_different, _ = logs.first_different_step(log, played.log)
        if played.log.has_same_steps(log) or (first_different is not None and first_different > step):
            observations, outputs = played.recording.observations, played.recording.outputs
            observation = tuple(observations[step].tolist()) if step < len(observations) else None
            action = tuple(outputs[step].tolist()) if step < len(outputs) else None
    return Side(name, log.return_, log.length, observation, action)


def play_recorded(run: StoredRun, experiment: Experiment, key: tuple[int, int, int], genome: Genomes) -> PlayedEpisode:
    """Play an episode (generation, candidate, episode) of a run with a genome (P = 1). The episode may fail."""
    chosen = Episode(genome, Purpose.EPISODE, *key, logged=None)
    with closing(Recorder(make_engine(experiment, chosen), 1, observations=True)) as recorder:
        results, _ = _play(run, experiment, chosen, recorder.engine)
    return PlayedEpisode(recorder.running[0], log_of_played(results, experiment.config.env.metrics))


class _LongerEpisodeError(Exception):
    """An episode goes on after the step in which it ended in the log."""


def spot_check(run: StoredRun, experiment: Experiment, stop_reason: Callable[[], str | None]) -> str | None:
    """Play the first episode of the last generation's champion again. Return its difference from the log, or None.

    If the episode failed in the log, a failure here counts as equal, unless the episode first takes more steps than in
    the log. With env.reuse = true, an episode may depend on earlier episodes, so no episode is played.

    Args:
        run: The run file.
        experiment: The experiment of the run.
        stop_reason: Called in every step. Returns a reason to stop, or None.

    Raises:
        Stopped: `stop_reason` has returned a reason.
        InputError: The environment cannot be made. Or a fitness function of the user cannot be imported, or no longer
            gives the logged fitness.
    """
    # First check a fitness function of the user, because this check needs no episode.
    generations = [run.num_generations - 1] if names_function(experiment.config.fitness) else []
    if (changed := logs.fitness_difference(run, experiment, generations)) is not None:
        expected = "a function that gives the fitness in the log"
        cure = (
            "Its code has changed, it keeps something between calls, or this machine's arithmetic differs: restore the "
            "function. To resume nevertheless, with a log that cannot be repeated: "
        )
        check = Setting("compute.check", False)
        raise InputError("fitness", expected, changed.summary, cure, check, ".", where=f"resuming {run.path}")
    if experiment.config.env.reuse is True:
        return None
    chosen = choose_episode(run, experiment)  # by default episode 0 of the last generation's champion
    stored = logs.logs_of_record(run.records[-1], chosen.candidate)[0]

    def each_step(step: int, _return_so_far: float) -> None:
        if (reason := stop_reason()) is not None:
            raise Stopped(f"stopped by {reason}")
        if step > stored.length:
            raise _LongerEpisodeError

    # Play the episode, and describe its difference from the log.
    try:
        with closing(make_engine(experiment, chosen)) as engine:
            played = play(run, experiment, chosen, engine, each_step)
    except _LongerEpisodeError:
        difference = f"goes on here after step {stored.length}"
    except EpisodeError as error:
        difference = f"fails here: {exception_line(str(error))}"
    else:
        here = log_of_played(played, experiment.config.env.metrics)
        both_failed = math.isnan(here.return_) and math.isnan(stored.return_)
        if both_failed or here.equals(stored):
            return None
        # If return and length are equal, name the observations and actions, or the metrics that differ.
        if here.summary == stored.summary:
            return f"generation {chosen.generation}, {logs.describe_difference(chosen.candidate, 0, here, stored)}"
        difference = f"has a return of {here.summary} here"
    difference += f" (in the log {stored.summary})"
    return f"generation {chosen.generation}, candidate {chosen.candidate}, episode 0, which {difference}"
