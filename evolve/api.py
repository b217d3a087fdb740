"""The Python interface: train, load, and what a run can tell.

Under `mpirun -n R python script.py` every rank calls the same functions: rank 0 coordinates, the others play episodes,
and all get the same objects. Nothing here prints, catches signals or changes the process.
"""

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from evolve import store
from evolve.analysis import statistics
from evolve.analysis.exports import export_champion, table
from evolve.cluster import Coordinator
from evolve.cluster.collective import Collective
from evolve.config import Config, parse, read_file, set_key
from evolve.config.sweep import experiments
from evolve.errors import InputError
from evolve.numerics import backend
from evolve.shapes import Float64
from evolve.store import Record, Stored, StoredChampion, StoredRun
from evolve.training import (
    Experiment,
    evaluate_champion,
    final_champion,
    is_portable,
    load_config,
    make_rollout,
    manifest,
    normalizer_of,
    prepare,
    reload,
    restore,
)
from evolve.training import iterate as evolve_generations
from evolve.training.foresight import foresee
from evolve.training.plan import PlannedRun, plan_runs
from evolve.training.policy import Policy
from evolve.training.resume import check_and_create_runs, check_same_run, experiment_table, open_run, replace_run
from evolve.verification import Verdict, choose, environment_seed, reevaluate, reevaluate_champion, spot_check, tolerant

__all__ = [
    "ChampionFile",
    "Config",
    "Evaluation",
    "Experiment",
    "Generation",
    "Policy",
    "Run",
    "Verdict",
    "iterate",
    "load",
    "train",
]

_LARGEST_IMAGE = 2**29  # bytes of a run file that travel to the other ranks; a larger one these read themselves


@dataclass(frozen=True)
class Generation:
    """A generation that is complete: its number, from 0 on, and its record in the run file."""

    number: int
    record: Record

    @property
    def best(self) -> float:
        """The fitness of its best candidate."""
        return float(self.record.champion_fitness)

    @property
    def fitness(self) -> Float64:
        """[P]: what selection saw of each candidate."""
        return self.record.fitness

    @property
    def returns(self) -> Float64:
        """[P, E]: the return of each episode; NaN for one that failed or was not played."""
        return self.record.returns

    @property
    def mean(self) -> float:
        """The mean fitness of the candidates that have one."""
        known = self.fitness[np.isfinite(self.fitness)]
        return float(known.mean()) if len(known) else float("nan")

    @property
    def digest(self) -> str:
        """64 hexadecimal characters that stand for the run up to here."""
        return self.record.digest.decode()

    def __repr__(self) -> str:
        return f"<Generation {self.number}: best fitness {self.best:.6g}, mean {self.mean:.6g}>"


@dataclass(frozen=True)
class Evaluation:
    """A champion on N held-out episodes: their returns and environment seeds, [N] each."""

    returns: Float64
    seeds: Any

    @property
    def mean(self) -> float:
        """The mean return of the episodes that did not fail."""
        return statistics.mean(self._known)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, by Student's t; None for fewer than two returns."""
        return statistics.interval(self._known)

    @property
    def failed(self) -> int:
        """How many episodes failed."""
        return len(self.returns) - len(self._known)

    @property
    def _known(self) -> Float64:
        return self.returns[np.isfinite(self.returns)]


class _Evolved:
    """What a run and a champion file have in common: an experiment, and a final champion of it."""

    _stored: Stored

    @property
    def path(self) -> Path:
        """The file."""
        return self._stored.path

    @property
    def seed(self) -> int:
        """The seed."""
        return self._stored.header.seed

    @cached_property
    def config(self) -> Config:
        """The configuration, every setting spelled out."""
        return load_config(self._stored.header.config, str(self.path))

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment, prepared on this machine. Raises InputError where its environment cannot be made here."""
        return reload(self._stored)

    @property
    def held_out(self) -> Evaluation | None:
        """The evaluation of the final champion that is in the file."""
        kept = self._stored.held_out
        return None if kept is None else Evaluation(kept.returns, kept.seeds)

    def evaluate(self, episodes: int = 100) -> Evaluation:
        """Return an evaluation of the final champion on held-out episodes, which training never meets.

        The same episodes come first, however many are asked for; nothing is written.
        """
        self._check_champion()
        if episodes < 1:
            raise InputError("episodes", "at least 1", episodes)

        def work(coordinator: Coordinator) -> bytes:
            found = evaluate_champion(self._stored, self.experiment, coordinator, episodes)
            return _pack(returns=found.returns, seeds=found.seeds)

        return Evaluation(**_unpack(_ranks().call(work)))

    def verify(self) -> Verdict:
        """Evaluate here again what is known of the champions; return whether all is equal, to the bit.

        Those of a run are the best candidates of every generation; of a champion file it is the final champion.
        """
        self._check_champion()
        ranks = _ranks()
        experiment = tolerant(self.experiment)

        def work(coordinator: Coordinator) -> bytes:
            config = experiment.config
            here = manifest(ranks.transport, backend(config.compute.backend), is_portable(config))
            stored = self._stored
            if isinstance(stored, StoredRun):
                verdict = reevaluate(stored, experiment, coordinator, here)
            else:
                verdict = reevaluate_champion(stored, experiment, coordinator, here)
            return json.dumps(verdict.to_json()).encode()

        return Verdict.from_json(json.loads(ranks.call(work)))

    def _check_champion(self) -> None:
        """Raise InputError where there is no champion yet."""


class ChampionFile(_Evolved):
    """The final champion of a run in a small file of its own, which `Run.export` or `evolve export` has written."""

    def __init__(self, stored: StoredChampion) -> None:
        self._stored = stored

    @property
    def digest(self) -> str:
        """The digest of the last generation of its run."""
        return self._champion.digest

    @property
    def num_generations(self) -> int:
        """How many generations its run had."""
        return self._champion.num_generations

    @property
    def steps(self) -> int:
        """How many environment steps these took."""
        return self._champion.steps

    @property
    def _champion(self) -> StoredChampion:
        assert isinstance(self._stored, StoredChampion)
        return self._stored

    def champion(self) -> Policy:
        """Return the champion as a policy. Raises InputError where its environment cannot be made here."""
        return Policy(self.experiment, *final_champion(self.experiment, self._stored))

    def __repr__(self) -> str:
        return f"<ChampionFile {self.path}: {self.config.env.id}, {self.config.network.name}>"


class Run(_Evolved):
    """A run, complete or not: what its file holds, and what can be done with its champion."""

    _stored: StoredRun

    def __init__(self, stored: StoredRun) -> None:
        self._stored = stored

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self._stored.complete

    @property
    def generations(self) -> list[Generation]:
        """The complete generations."""
        return [Generation(number, record) for number, record in enumerate(self._stored.records)]

    @property
    def digest(self) -> str:
        """The digest of the last generation. Raises InputError where there is none."""
        return self._last().digest

    def champion(self, generation: int | None = None) -> Policy:
        """Return a policy: the final champion, or the best candidate of a generation.

        Raises InputError where there is no such generation, or the environment cannot be made here.
        """
        experiment = self.experiment
        if generation is None:
            self._last()
            strategy, state = restore(experiment, self._stored)
            number = self._stored.num_generations
            return Policy(experiment, strategy.champion(state), normalizer_of(experiment, self._stored, number))
        if not 0 <= generation < self._stored.num_generations:
            raise InputError("generation", f"0 … {self._stored.num_generations - 1}, or None", generation)
        chosen = choose(self._stored, experiment, generation)
        return Policy(experiment, chosen.genome, normalizer_of(experiment, self._stored, generation))

    def environment_seed(self, generation: int, episode: int = 0) -> int:
        """Return the seed of the environment in which the best candidate of a generation played one of its episodes."""
        chosen = choose(self._stored, self.experiment, generation, episode=episode)
        return environment_seed(self._stored, self.experiment, chosen)

    def export(self, path: str | Path) -> Path:
        """Write the final champion to a small file (`NAME.champion`), which `load` reads; return its path.

        In a script of several ranks, rank 0 writes. Raises InputError without held-out returns (`evolve evaluate` keeps
        them in the run file), or when the file cannot be written.
        """

        def work(_: Coordinator) -> bytes:
            return bytes(export_champion(self._stored, Path(path)).path)

        return Path(os.fsdecode(_ranks().call(work)))

    def table(self) -> dict[str, list[Any]]:
        """Return columns by generation, for CSV or pandas (`pandas.DataFrame(run.table())`).

        Fitness and connections say whose they are: the best candidate's, or over all candidates.
        """
        return table(self._stored)

    def _check_champion(self) -> None:
        self._last()

    def _last(self) -> Generation:
        if not self._stored.records:
            raise InputError(str(self.path), "a run with a complete generation", "none yet")
        return self.generations[-1]

    def __repr__(self) -> str:
        of = f"{self._stored.num_generations} of {self.config.generations} generations"
        return f"<Run {self.path}: {self.config.env.id}, {self.config.network.name}, {of}>"


def load(path: str | Path) -> Run | ChampionFile:
    """Return the run of a run file, or what a champion file holds. Raises InputError when it cannot be read."""
    stored = store.read_any(Path(path))
    return Run(stored) if isinstance(stored, StoredRun) else ChampionFile(stored)


def train(
    experiment: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    seed: int | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Iterable[Callable[[Generation], object]] = (),
    **settings: Any,
) -> Run:
    """Evolve an experiment to its end; return its run.

    Args:
        experiment: A TOML file, a table, or a configuration; by default the settings alone. With `resume`, also a run
            file.
        seed: By default the first one of the experiment.
        output: The directory of the run file, by default `runs/<environment>-<network>`.
        resume: Whether to go on where the run file ends, if there is one; a complete one is returned as it is.
        overwrite: Whether to replace the run file by the first new generation, if it is of the same experiment.
        callbacks: Each is called with every generation, by rank 0.
        settings: Any settings, as in TOML; those of the experiment are overridden. Of env, network and strategy the
            name alone will do: `env="CartPole-v1", network={"name": "elman", "hidden": [8]}, generations=20`.

    Raises:
        InputError: A setting is wrong, or the run file is there already.
        EpisodeError: An episode failed.
        RunError: A rank cannot go on.
    """
    ranks = _ranks()

    def work(coordinator: Coordinator) -> bytes:
        plan = _plan(experiment, seed, output, settings)
        for generation in _generations(ranks, coordinator, plan, resume, overwrite):
            for callback in callbacks:
                callback(generation)
        image = plan.path.read_bytes() if plan.path.stat().st_size < _LARGEST_IMAGE else b""
        return _pack(path=np.frombuffer(str(plan.path).encode(), np.uint8), image=np.frombuffer(image, np.uint8))

    answer = _unpack(ranks.call(work))
    path = Path(answer["path"].tobytes().decode())
    return Run(store.read_image(path, answer["image"].tobytes()) if answer["image"].size else store.read(path))


def iterate(
    experiment: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    seed: int | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> Iterator[Generation]:
    """Evolve an experiment as `train` does, yielding each generation, on every rank.

    A loop that is left early leaves a run file that can be resumed.
    """
    ranks = _ranks()
    if not ranks.leads:
        while answer := ranks.follow():
            parts = _unpack(answer)
            yield Generation(int(parts.pop("number")), _record(parts))
        return
    try:
        plan = _plan(experiment, seed, output, settings)
        coordinator = ranks.coordinator()
        for generation in _generations(ranks, coordinator, plan, resume, overwrite):
            ranks.release(_pack(number=np.array(generation.number), **_arrays(generation.record)))
            coordinator.forget()
            yield generation
    except GeneratorExit:  # the loop was left, on all ranks
        raise
    except BaseException as error:
        ranks.release_error(error)
        raise
    ranks.release(b"")


def _ranks() -> Collective:
    """Return the ranks of this script, for one call: rollouts are not shared, for threads may call at the same time."""
    # Two rollouts are kept: of generations, and of held-out episodes.
    return Collective(lru_cache(maxsize=2)(make_rollout))


def _generations(
    ranks: Collective, coordinator: Coordinator, plan: PlannedRun, resume: bool, overwrite: bool
) -> Iterator[Generation]:
    """Evolve a run on rank 0."""
    plan.experiment.strategy(plan.seed)
    if resume and overwrite:
        raise InputError("overwrite", "no resume=True with it: the one begins anew, the other continues", "both")
    replaced = overwrite and foresee([plan], overwrite=True)[0].action == "replace"
    check_and_create_runs([plan], resume, ranks.transport, lambda: None, spot_check, overwrite)
    with closing(replace_run(plan, ranks.transport) if replaced else open_run(plan)) as file:
        if not file.complete:
            for record in evolve_generations(plan.experiment, coordinator, file):
                yield Generation(file.num_generations - 1, record)


def _plan(experiment: Any, seed: int | None, output: str | Path | None, settings: Mapping[str, Any]) -> PlannedRun:
    """Return the one run that is asked for. Raises InputError."""
    file = None
    if isinstance(experiment, Config):
        table: dict[str, Any] = experiment.model_dump(mode="json", exclude_none=True)
    elif isinstance(experiment, Mapping):
        table = {}
        for key, value in deepcopy(dict(experiment)).items():
            _override(table, key, value)
    elif experiment is not None and Path(experiment).suffix == ".h5":
        file = Path(experiment)
        table = experiment_table(file)
        stored = parse(Config, table)
    else:
        table = {} if experiment is None else read_file(Path(experiment))
    for key, value in settings.items():
        _override(table, key, value)
    if output is not None:
        set_key(table, "output.directory", str(output))
    found = experiments(table, "sweep")
    if len(found) > 1:
        raise InputError("experiment", "one experiment", f"a sweep of {len(found)}", "Run it by the command line.")
    config = found[0]
    config = config.model_copy(update={"seeds": (config.seeds[0] if seed is None else _seed(seed),)})
    if file is not None:
        check_same_run(config, stored, file)
    return plan_runs([prepare(config)], file)[0]


def _seed(seed: int) -> int:
    return parse(Config, {"seeds": [seed]}).seeds[0]


def _override(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a setting; a table is merged into the one there, and a name stands for itself."""
    if key in _NAMES and isinstance(value, str):
        set_key(table, f"{key}.{_NAMES[key]}", value)
    elif isinstance(value, Mapping):
        for part, inner in value.items():
            set_key(table, f"{key}.{part}", list(inner) if isinstance(inner, tuple) else inner)
    else:
        set_key(table, key, list(value) if isinstance(value, tuple) else value)


_NAMES = {"env": "id", "network": "name", "strategy": "name"}


def _pack(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _unpack(packed: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


def _arrays(record: Record) -> dict[str, Any]:
    return {name: np.asarray(value) for name, value in vars(record).items() if value is not None}


def _record(arrays: Mapping[str, Any]) -> Record:
    return Record(**{name: value if value.shape else value.item() for name, value in arrays.items()})
