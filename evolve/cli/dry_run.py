"""`evolve run --dry-run`: what would run, how large it is, and where it would go."""

from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from operator import add

from evolve.errors import pluralize, sanitize
from evolve.training.experiment import Experiment
from evolve.training.foresight import Outlook
from evolve.training.plan import RunSize

_DOES = {"begin": "new", "resume": "resumed", "replace": "replaced", "keep": "complete already"}


def describe(outlooks: Sequence[Outlook], who: str) -> str:
    """Return in words what would become of runs. who: the processes that would do the work."""
    lines = ["Dry run: nothing is written."]
    for _, runs in groupby(outlooks, key=lambda outlook: id(outlook.run.experiment)):
        lines += ["", *_describe_experiment(list(runs))]
    total = _quantity(reduce(add, (outlook.size for outlook in outlooks)))
    return "\n".join([*lines, "", f"In all: {pluralize(len(outlooks), 'run')}, {total}, by {who}."])


def _describe_experiment(outlooks: list[Outlook]) -> list[str]:
    experiment = outlooks[0].run.experiment
    begun = [f"  {outlook.run.path.name}: {_describe_run(outlook)}" for outlook in outlooks]
    return [sanitize(f"{outlooks[0].run.path.parent}/", 4000), f"  {_describe_size(experiment)}", *begun]


def _describe_size(experiment: Experiment) -> str:
    config = experiment.config
    names = sanitize(f"{config.env.id}, {config.network.name}, {config.strategy.name}")
    parameters = f"{pluralize(experiment.network.num_weights, 'parameter')} per network"
    episodes = pluralize(config.episodes, "episode")
    generations = pluralize(config.generations, "generation")
    return f"{names}: {parameters}, population of {config.population:,}, {episodes} each, {generations}"


def _describe_run(outlook: Outlook) -> str:
    stored = outlook.stored
    there = ""
    if stored is not None:
        of = outlook.run.experiment.config.generations
        there = f", {stored.num_generations:,} of {pluralize(of, 'generation')} complete"
        if outlook.action == "replace":
            there = f", {pluralize(stored.num_generations, 'generation')} would be lost"
    left = "" if outlook.action == "keep" else f"; {_quantity(outlook.size)}"
    return f"{_DOES[outlook.action]}{there}{left}"


def _quantity(size: RunSize) -> str:
    steps = "no limit of steps is known" if size.steps is None else f"at most {pluralize(size.steps, 'step')}"
    return f"{pluralize(size.episodes, 'episode')}, {steps}"
