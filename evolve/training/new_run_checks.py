"""What is refused in a new run: settings that have no effect, or defeat themselves."""

from evolve import environments, strategies
from evolve.config import Config
from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES
from evolve.training.experiment import Experiment


def validate_new_run(experiment: Experiment) -> None:
    """Raise InputError for settings that have no effect, or defeat themselves; runs that have begun may have them."""
    config = experiment.config
    NETWORKS.validate(config.network)
    STRATEGIES.validate(config.strategy, experiment.network)
    rounds, E = config.racing.rounds, config.episodes
    if rounds and rounds[-1] >= E:
        raise InputError("racing.rounds", f"fewer episodes than a candidate has, {E} (episodes)", list(rounds))
    _check_growth(experiment)
    _check_step_limits(experiment)
    if config.connection_cost and strategies.shared_mask(config.strategy):
        expected = f"0 with {config.strategy.name}, whose candidates all have the same connections"
        raise InputError("connection_cost", expected, config.connection_cost)


def _check_growth(experiment: Experiment) -> None:
    """Raise InputError for a population that is to grow, and cannot."""
    config = experiment.config
    least, most, steps = config.least_population, config.population, config.num_interactions
    if least is None and steps is None:
        return
    if steps is None:
        raise InputError("num_interactions", "steps until which the population grows from least_population", "none")
    if least is None or least >= most or least % 2 or most % 2:
        expected = "two even numbers, the smaller first, between which it grows until num_interactions"
        raise InputError("least_population, population", expected, f"{'none' if least is None else least}, {most}")
    if config.racing.rounds:
        raise InputError("racing.rounds", "none where the population grows", list(config.racing.rounds))
    strategy = experiment.strategy(0)
    traces = strategies.wanted_traces(strategy, experiment.network.num_traces)
    if not getattr(strategy, "grows", False) or traces != "none":
        expected = "openai-es or pgpe, without pruning by traces, where the population grows"
        raise InputError("strategy.name", expected, config.strategy.name)


def _check_step_limits(experiment: Experiment) -> None:
    """Raise InputError for limits of steps of training episodes that shorten nothing, or defeat something else."""
    config = experiment.config
    early, usual = config.early_max_episode_steps, environments.max_episode_steps(config.env)
    if early is None and config.early_generations != Config.model_fields["early_generations"].default:
        expected = f"the steps that episodes have at most in the first {config.early_generations:,} generations"
        raise InputError("early_max_episode_steps", expected, "none")
    if early is not None and usual is not None and early >= usual:
        expected = f"fewer steps than an episode may have later, {usual:,}"
        raise InputError("early_max_episode_steps", expected, f"{early:,}")
    for name in ("early_max_episode_steps", "episode_cap"):
        value = getattr(config, name)
        if value is not None and config.env.wrappers:  # they may skip steps, or show how many are left
            expected = "none with env.wrappers, for these count steps in another way"
            raise InputError(name, expected, value)
    if early is not None:
        _check_scores_in_early_episodes(experiment)


def _check_scores_in_early_episodes(experiment: Experiment) -> None:
    """Raise InputError for a strategy that compares the returns of short episodes at first with those of later ones."""
    config = experiment.config
    options = config.strategy.table()
    if hasattr(experiment.strategy(0), "survivors"):
        expected = f"none with {config.strategy.name}, which compares returns with those of earlier generations"
        raise InputError("early_max_episode_steps", expected, config.early_max_episode_steps)
    if options.get("restart_after", 0):
        expected = "0 where episodes are short at first, for their returns are compared with those of longer ones"
        raise InputError("strategy.restart_after", expected, options["restart_after"])
    if options.get("starts", 1) > 1:
        all_starts = options["starts"] * options.get("start_generations", 0)
        _check_lengths_of_starts(config.early_generations, all_starts, options.get("pruning_every", 0))


def _check_lengths_of_starts(early: int, all_starts: int, pruning_every: int) -> None:
    """Raise InputError unless all starts of a search, also of one after a round of pruning, are of one length."""
    one_length = "so that all starts have episodes of one length"
    if early < all_starts:
        expected = f"starts × start_generations, {all_starts:,}, or more, {one_length}"
        raise InputError("early_generations", expected, early)
    if pruning_every and 0 < early % pruning_every < all_starts:
        least = early - early % pruning_every
        expected = f"{least:,}, or {least + all_starts:,} or more, for each round begins with its starts, {one_length}"
        raise InputError("early_generations", expected, early)
