"""The run that the arguments of a Python call ask for."""

import logging
from collections.abc import Collection, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from evolve.config import Config, parse, read_file, set_key
from evolve.config.sweep import experiments
from evolve.errors import InputError
from evolve.training.backend_trial import choose_backend
from evolve.training.experiment import prepare
from evolve.training.plan import PlannedRun, plan_runs
from evolve.training.resume import check_same_run, experiment_table


def plan_from_arguments(
    experiment: str | Path | Mapping[str, Any] | Config | None,
    seed: int | None,
    output: str | Path | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> PlannedRun:
    """Return the one run that is asked for. Raises InputError."""
    file = Path(experiment) if isinstance(experiment, str | Path) and Path(experiment).suffix == ".h5" else None
    table = _table(experiment) if file is None else experiment_table(file)
    stored = None if file is None else parse(Config, table)
    seeds = _plain(settings.get("seeds"))
    if isinstance(seeds, Collection) and not isinstance(seeds, str) and len(seeds) > 1:
        raise InputError("seeds", "one, as seed=1: several seeds are several calls", settings["seeds"])
    for key, value in settings.items():
        _override(table, key, value)
    if isinstance(output, Mapping):
        _override(table, "output", output)
    elif output is not None:
        if not isinstance(output, str | Path):
            raise InputError("output", "a directory, or a table of settings", repr(output))
        set_key(table, "output.directory", str(output))
    found = experiments(table, "sweep")
    if len(found) > 1:
        raise InputError("experiment", "one experiment", f"a sweep of {len(found)}", "Run it by the command line.")
    config = found[0]
    config = config.model_copy(update={"seeds": (config.seeds[0] if seed is None else _seed(seed),)})
    if file is not None and stored is not None:
        check_same_run(config, stored, file)
    prepared, trial = choose_backend(prepare(config))
    if trial is not None:
        _LOG.info("%s", trial)
    return plan_runs([prepared], file)[0]


def _table(experiment: Any) -> dict[str, Any]:
    """Return an experiment that is no run file as a table of its own."""
    if experiment is None:
        return {}
    if isinstance(experiment, Config):
        return experiment.model_dump(mode="json", exclude_none=True)
    if isinstance(experiment, str | Path):
        return read_file(Path(experiment))
    if not isinstance(experiment, Mapping):
        raise InputError("experiment", "a TOML file, a table, a Config or a run file", repr(experiment))
    table: dict[str, Any] = {}
    for key, value in deepcopy(dict(experiment)).items():
        _override(table, key, value)
    return table


def _seed(seed: Any) -> int:
    return parse(Config, {"seeds": [_plain(seed)]}).seeds[0]


def _override(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a setting; a table is merged into the one there, and a name stands for itself."""
    if key in _NAMES and isinstance(value, str):
        set_key(table, f"{key}.{_NAMES[key]}", value)
    elif isinstance(value, Mapping):
        for part, inner in value.items():
            set_key(table, f"{key}.{part}", _plain(inner))
    else:
        set_key(table, key, _plain(value))


def _plain(value: Any) -> Any:
    """Return a value as TOML has it: numbers and arrays of NumPy as Python's, tuples as lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value


_LOG = logging.getLogger("evolve")
_NAMES = {"env": "id", "network": "name", "strategy": "name"}
