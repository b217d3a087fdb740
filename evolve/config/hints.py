"""Advice for unknown names: the setting of the same name in another section, or of the same meaning in another tool."""

import difflib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic.fields import FieldInfo

from evolve.config.options import Options, fold
from evolve.config.registry import REGISTRIES, registry_of
from evolve.errors import InputError

_WORKERS = "The number of workers is no setting: write workers=N in Python, or --workers N on the command line."
_PROGRESS = "progress=True of evolve.train shows the progress."
_CALLBACKS = "evolve.train takes callbacks=[function]; a loop over evolve.iterate needs none."
_TENSORBOARD = 'tensorboard="logs" of evolve.train, or --tensorboard logs, writes event files.'
_OPTIONS = 'Options are in the table of a network or strategy: network={"name": "mlp", "hidden": [64, 64]}.'
_ARGUMENTS = ("callbacks", "overwrite", "progress", "resume", "tensorboard", "workers")
"""Arguments of `evolve.train` that are no settings."""
_SETTINGS = {
    "learning_rate": "lr, step_size",
    "sigma": "std, stdev, stdev_init, init_stdev, sigma_init, init_sigma, noise_std, noise_stdev",
    "weight_noise": "mutation_rate, mutation_std, mutation_power, mutate_power, weight_mutate_power",
    "survivors": "elitism, elites, num_elites, n_elites, elite_size",
    "parents": "survival_threshold, num_parents, n_parents",
    "hidden": "hidden_size, hidden_sizes, hidden_layers, hidden_dim, hidden_dims, num_hidden, layers, net_arch",
    "population": "popsize, pop_size, population_size, num_individuals, n_individuals",
    "generations": "num_generations, n_generations, max_generations, n_gen, num_steps, iterations, epochs",
    "episodes": "num_episodes, n_episodes, num_rollouts, n_rollouts, rollouts, trials, runs",
    "held_out_episodes": "n_eval_episodes, eval_episodes, test_episodes",
    "early_stop.steps": "total_timesteps, timesteps, num_timesteps, max_interactions",
    "early_stop.mean_return": "fitness_threshold, target_fitness, reward_threshold, target_return, solved_at",
    "env.max_episode_steps": "episode_length, max_episode_length, max_steps, horizon, n_steps",
    "env.id": "env_id, env_name, environment, gym_env, task",
    "env.kwargs": "env_kwargs, env_args, env_config",
    "env.randomize": "domain_randomization, randomization, randomizations, env_randomization, distributions",
    "env.wrappers": "wrapper, wrapper_class, wrapper_kwargs",
    "normalize_observations": "obs_norm, norm_obs, normalize_obs, observation_normalization, vec_normalize",
    "network": "policy, agent, model, architecture, genome",
    "strategy": "algorithm, algo, searcher, optimizer, emitter, solver",
    "seeds": "random_state, random_seed, rng, key, prng_key",
    "fitness": "fitness_function, fitness_fn, fitness_func, objective, objective_func, fit_fun",
    "env.metrics": "info_keywords, info_keys, track, measures, descriptors",
    "start_from": "x0, center_init, initial_solution, init_from, load_from, pretrained, warm_start, restore",
    "compute.slots": "batch_size",
    "compute.backend": "device, use_gpu, gpu, cuda, jit",
    "compute.time_limit": "timeout, walltime, max_time, time_budget",
    "output": "log_dir, logdir, save_path, out_dir, output_dir, results_dir",
    _PROGRESS: "progress_bar, verbose, verbosity, show_progress, log_interval",
    _CALLBACKS: "callback, callbacks, reporter, logger",
    _TENSORBOARD: "tensorboard_log, tensorboard_dir, log_tensorboard",
    _OPTIONS: "policy_kwargs, net_kwargs, network_kwargs, strategy_kwargs, model_kwargs",
    _WORKERS: "workers, n_envs, num_envs, vec_env, n_workers, num_workers, num_actors, n_jobs, num_processes",
}  # fmt: skip
MEANINGS = {fold(foreign): ours for ours, names in _SETTINGS.items() for foreign in names.split(", ")}
"""The names of settings here, by the folded names of other tools."""


def advice(key: str, table: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    """Return one sentence of advice about an unknown setting; empty if there is none.

    Args:
        key: The dotted path of the unknown setting.
        table: The sections that name the network and the strategy.
        fields: The settings and sections of an experiment.
    """
    name = key.rpartition(".")[2]
    meant = MEANINGS.get(fold(name), name)
    if " " in meant:
        return meant
    if key == name and (close := difflib.get_close_matches(name, _ARGUMENTS, n=1, cutoff=0.75)):
        return f"Did you mean the argument {close[0]} of evolve.train?"
    sections = {section: _names_in(section, field.annotation, table) for section, field in fields.items()}
    for setting in (name, meant):
        if keys := _keys_named(setting, sections):
            return f"Did you mean {' or '.join(keys)}?"
    for setting in (name, meant):
        if found := _kinds_with(setting, sections):
            return found
    return ""


def _keys_named(setting: str, sections: Mapping[str, list[str]]) -> list[str]:
    """Return the dotted keys of all settings called `setting`; a dotted `setting` is such a key itself."""
    section, _, name = setting.rpartition(".")
    if section:
        return [setting] * (name in sections.get(section, ()))
    keys = [setting] if setting in sections else []
    return keys + [f"{section}.{setting}" for section, names in sections.items() if setting in names]


def _kinds_with(setting: str, sections: Mapping[str, list[str]]) -> str:
    """Return the networks or strategies that have a setting, which the chosen one lacks, as a sentence."""
    for section, registry in REGISTRIES.items():
        kinds = [kind for kind in registry if setting in registry.options_class({"name": kind}).model_fields]
        if kinds:
            known = ", ".join(name for name in sections[section] if name != "name") or "none"
            listed = " or ".join(kinds)
            return f"With {section}.name {listed} it is {section}.{setting}. Settings of the chosen {section}: {known}."
    return ""


def _names_in(section: str, kind: Any, table: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings of a section; empty for a value that is not a section, or an unknown kind."""
    if isinstance(kind, type) and issubclass(kind, Options):
        return list(kind.model_fields)
    if section in REGISTRIES:
        with suppress(InputError):
            return ["name", *registry_of(section).options_class(table[section]).model_fields]
    return []
