"""Run files gathered into groups: the runs of one configuration, which differ in their seeds only."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from evolve import networks, store
from evolve.config import Config, differences
from evolve.errors import InputError, RunError, pluralize, sanitize
from evolve.store import StoredRun
from evolve.training import load_config

_LONGEST_LABEL = 240  # characters
_LONGEST_NOTE = 1000
_MOST_SEEDS = 8  # that are named
_NAMES = ("env.id", "network.name", "strategy.name")  # labels give their values without saying what they are


@dataclass(frozen=True)
class RunGroup:
    """The runs of one configuration; `label` says what sets it apart from the other groups."""

    label: str
    config: Config
    runs: tuple[StoredRun, ...]

    @property
    def name(self) -> str:
        """The label without the environment, for where that is named already."""
        return self.label.removeprefix(f"{self.config.env.id}, ")

    @cached_property
    def num_generations(self) -> int:
        """G: as many generations as every run has completed."""
        return min(run.num_generations for run in self.runs)

    @cached_property
    def mask_unit(self) -> str:
        """What the mask of a genome counts, see `mask_unit`."""
        return mask_unit(self.config)


def mask_unit(config: Config) -> str:
    """Return what the mask of a genome counts: "connections", or "coefficients" of learning rules."""
    try:
        network = networks.make(config.network, 1, 1)  # of any size
    except InputError:  # a network that this installation does not know
        return "connections"
    return "coefficients" if network.blocks[0].span else "connections"


def read_groups(files: Sequence[Path]) -> tuple[list[StoredRun], list[RunGroup]]:
    """Read run files; return all of them, and the groups of those with a complete generation.

    Raises:
        InputError: A file cannot be read.
        RunError: No generation is complete in any of them.
    """
    runs = [store.read(path) for path in files]
    begun = [(run, load_config(run.header.config, str(run.path))) for run in runs if run.num_generations]
    if not begun:
        raise RunError(f"{', '.join(map(str, files))}: no generation is complete yet, so there is nothing to draw")
    return runs, group_runs(begun)


def group_runs(runs: Sequence[tuple[StoredRun, Config]]) -> list[RunGroup]:
    """Group runs by configuration, that of their held-out evaluation included."""
    groups: list[tuple[Config, list[StoredRun]]] = []
    for run, config in runs:
        for known, members in groups:
            if not differences(known, config) and known.evaluates_like(config):
                members.append(run)
                break
        else:
            groups.append((config, [run]))
    configs = [config for config, _ in groups]
    return [RunGroup(_label(config, configs), config, tuple(members)) for config, members in groups]


def _label(config: Config, configs: Sequence[Config]) -> str:
    """Return the names in which a configuration differs from any other, and its settings that differ among its like."""
    names = [_value(config, key) for key in _NAMES]
    alike = [other for other in configs if [_value(other, key) for key in _NAMES] == names]
    words = [str(name) for key, name in zip(_NAMES, names, strict=True) if len({_value(c, key) for c in configs}) > 1]
    apart = {key for other in alike for key, _, _ in differences(alike[0], other)}
    if not all(alike[0].evaluates_like(other) for other in alike):
        apart.add("evaluation_max_episode_steps")
    settings = {key.rpartition(".")[2]: _value(config, key) for key in sorted(apart)}
    words += [f"{key} {value}" for key, value in settings.items() if value is not None]
    return sanitize(", ".join(words) or f"{config.env.id}, {config.network.name}", _LONGEST_LABEL)


def described(groups: Sequence[RunGroup]) -> str:
    """Return what was evolved in words: environments, networks, strategies and seeds."""
    envs, networks, strategies = (dict.fromkeys(str(_value(g.config, key)) for g in groups) for key in _NAMES)
    seeds = sorted({run.header.seed for group in groups for run in group.runs})
    named = ", ".join(map(str, seeds)) if len(seeds) <= _MOST_SEEDS else f"{len(seeds)} seeds"
    what = [f"{_one_or_many(networks, 'network')} evolved by {_one_or_many(strategies, 'strategy', 'strategies')}"]
    if len(groups) > 1:
        what.append(pluralize(len(groups), "experiment"))
    what.append(f"seed {named}" if len(seeds) == 1 else named if len(seeds) > _MOST_SEEDS else f"seeds {named}")
    return sanitize(f"{', '.join(envs)}: {', '.join(what)}", _LONGEST_NOTE)


def _one_or_many(names: Collection[str], what: str, plural: str = "") -> str:
    return next(iter(names)) if len(names) == 1 else f"{len(names)} {plural or f'{what}s'}"


def _value(config: Config, key: str) -> Any:
    value: Any = config.model_dump(mode="json")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def deduplicate_seeds(groups: Sequence[RunGroup]) -> tuple[list[RunGroup], str]:
    """Return groups with one run for each seed, the longest, and a line that says what was left out, if anything."""
    kept_groups = []
    left_out = []
    for group in groups:
        kept: dict[int, StoredRun] = {}
        for run in sorted(group.runs, key=_length, reverse=True):
            longest = kept.setdefault(run.header.seed, run)
            if longest is not run:
                left_out.append(_why_left_out(run, longest))
        seeds = dict.fromkeys(run.header.seed for run in group.runs)
        kept_groups.append(replace(group, runs=tuple(kept[seed] for seed in seeds)))
    if not left_out:
        return kept_groups, ""
    return kept_groups, sanitize(f"a seed counts once, so these are left out: {'; '.join(left_out)}", _LONGEST_NOTE)


def uneven_lengths(groups: Sequence[RunGroup]) -> str:
    """Return a line that says whose seeds have several numbers of generations, and what follows; empty for nobody."""
    said = []
    for group in groups:
        lengths = sorted(run.num_generations for run in group.runs)
        if lengths[0] < lengths[-1]:
            whose = f"{group.name}: seeds" if len(groups) > 1 else "seeds"
            said.append(f"{whose} have {lengths[0]:,} to {lengths[-1]:,} generations")
    if not said:
        return ""
    so = "so curves end with the first seed that does, and means are of champions that had more and less time"
    return sanitize(f"{'; '.join(said)}: {so}", _LONGEST_NOTE)


def _length(run: StoredRun) -> tuple[int, bool, int]:
    return run.num_generations, run.complete, 0 if run.held_out is None else len(run.held_out.returns)


def _why_left_out(run: StoredRun, kept: StoredRun) -> str:
    """Return how a run relates to the run of the same seed that is kept."""
    if kept.records[run.num_generations - 1].digest != run.records[-1].digest:
        return f"{run.path} (another run than {kept.path}: evolve.verify finds the first difference)"
    if run.num_generations < kept.num_generations:
        return f"{run.path} ({run.num_generations} of the {kept.num_generations} generations of {kept.path})"
    return f"{run.path} (equal to {kept.path})"
