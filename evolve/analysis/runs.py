"""Runs and champion files as objects: what a file holds, what can be exported, and what the champion can do."""

import csv
import io
import json
import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evolve.analysis import statistics
from evolve.cluster import Coordinator
from evolve.cluster.collective import Collective
from evolve.config import Config
from evolve.config.extras import import_extra
from evolve.errors import InputError, check_whole
from evolve.numerics import backend
from evolve.shapes import Float64
from evolve.store import Record, Stored, StoredChampion, StoredRun, write_champion
from evolve.store.disk import atomic_write, check_writable, naming_output
from evolve.training import (
    Experiment,
    StrategyReplica,
    evaluate_champion,
    final_champion,
    is_portable,
    load_config,
    make_rollout,
    manifest,
    normalizer_of,
    reload,
    restore,
)
from evolve.training.champion import Policy
from evolve.verification import (
    Verdict,
    choose,
    environment_seed,
    name_engines,
    reevaluate,
    reevaluate_champion,
    tolerant,
)

CHAMPION_SUFFIX = ".champion"
_EVENTS = "events.out.tfevents.evolve"


def pack(**arrays: Any) -> bytes:
    """Return arrays as bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(packed: bytes) -> dict[str, Any]:
    """Return the arrays that `pack` has packed, by name."""
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


def record_to_arrays(record: Record) -> dict[str, Any]:
    """Return what a record has, by name."""
    return {name: np.asarray(value) for name, value in vars(record).items() if value is not None}


def record_from_arrays(arrays: Mapping[str, Any]) -> Record:
    """Return the record that `record_to_arrays` has taken apart."""
    return Record(**{name: value if value.shape else value.item() for name, value in arrays.items()})


def export_champion(run: StoredRun, path: Path) -> StoredChampion:
    """Write the final champion of a run with its held-out returns to a file; return what was written.

    Raises InputError where the run has no held-out returns of it yet, or the file cannot be written, or has the name of
    another kind of file, which it would replace.
    """
    check_writable(path, (CHAMPION_SUFFIX,))
    if run.held_out is None:
        cure = f"Evaluate its champion first: python -m evolve.evaluate {shlex.quote(str(run.path))}"
        raise InputError(str(run.path), "a run with held-out returns of its champion", "none yet", cure)
    champion, normalizer = final_champion(reload(run), run)
    kept = run.held_out
    if not (np.array_equal(champion.weights[0], kept.weights) and np.array_equal(champion.mask[0], kept.mask)):
        raise InputError(str(run.path), "held-out returns of its champion", "those of another genome")
    work = run.digest, run.num_generations, run.steps, run.seconds
    stored = StoredChampion(path, run.header, kept, normalizer, *work)
    write_champion(stored)
    return stored


def table(run: StoredRun) -> dict[str, list[Any]]:
    """Return columns by generation; fitness and connections say whose they are."""
    records = run.records
    return {
        "generation": list(range(len(records))),
        "best_fitness": [float(record.champion_fitness) for record in records],
        "mean_fitness": [_mean(record.fitness) for record in records],
        "best_connections": [int(np.count_nonzero(record.champion_mask)) for record in records],
        "median_connections": [float(np.median(record.connections)) for record in records],
        "steps": [int(record.steps) for record in records],
        "seconds": [float(record.seconds) for record in records],
        "digest": [record.digest.decode() for record in records],
    }


def _mean(fitness: Any) -> float:
    """Return the mean fitness of the candidates that have one."""
    known = fitness[np.isfinite(fitness)]
    return float(known.mean()) if len(known) else float("nan")


def write_csv(run: StoredRun, path: Path) -> None:
    """Write the columns of `table`, one line per generation. Raises InputError when the file cannot be written."""
    columns = table(run)
    with naming_output(path), atomic_write(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def check_tensorboard() -> None:
    """Raise InputError unless the library that writes event files is there."""
    _summary_writer()


def _summary_writer() -> Any:
    return import_extra("tensorboardX", "tensorboard", "--tensorboard").SummaryWriter


def write_tensorboard(run: StoredRun, directory: Path) -> None:
    """Write the numbers of `table` as an event file for TensorBoard, by generation, in the place of one that is there.

    Raises InputError without the library, or when the directory cannot be written.
    """
    writer_class = _summary_writer()
    columns = table(run)
    seconds = np.cumsum(columns["seconds"])
    with naming_output(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".events-", dir=directory) as partial:
            writer = writer_class(partial)  # which chooses a name by the time
            for name in ("best_fitness", "mean_fitness", "best_connections", "median_connections", "steps"):
                for generation, value in enumerate(columns[name]):
                    writer.add_scalar(name, value, generation, walltime=float(seconds[generation]))
            writer.close()
            (written,) = Path(partial).iterdir()
            written.replace(directory / _EVENTS)


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

    def __repr__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        between = f", 95 % interval {self.interval[0]:.6g} to {self.interval[1]:.6g}" if self.interval else ""
        return f"<Evaluation: {len(self.returns)} episodes, mean {self.mean:.6g}{between}{failed}>"

    @property
    def _known(self) -> Float64:
        return self.returns[np.isfinite(self.returns)]


def script_ranks() -> Collective:
    """Return the ranks of this script, for one call: rollouts are not shared, for threads may call at the same time."""
    return Collective(make_rollout, shared=StrategyReplica())


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

    def evaluate(
        self, episodes: int = 100, network: Mapping[str, Any] | None = None, engine: str | None = None
    ) -> Evaluation:
        """Return an evaluation of the final champion on held-out episodes, which training never meets.

        The same episodes come first, however many are asked for; nothing is written.

        Args:
            episodes: How many.
            network: Other settings of the network than those it has evolved with: {"plasticity": 0.0} takes learning
                from a hebbian-dag. They have to leave it its connections.
            engine: Another environment engine than its own: "gymnasium", "envpool" or "exact".
        """
        self._check_champion()
        episodes = check_whole("episodes", episodes, 1)
        experiment = reload(self._stored, network=network, engine=engine) if network or engine else self.experiment

        def work(coordinator: Coordinator) -> bytes:
            found = evaluate_champion(self._stored, experiment, coordinator, episodes)
            return pack(returns=found.returns, seeds=found.seeds)

        return Evaluation(**unpack(script_ranks().call(work)))

    def verify(self, engine: str | None = None) -> Verdict:
        """Evaluate here again what is known of the champions; return whether all is equal, to the bit.

        Those of a run are the best candidates of every generation; of a champion file it is the final champion.

        Args:
            engine: Another environment engine than its own: "gymnasium", "envpool" or "exact".

        Raises:
            InputError: That engine cannot play the environment.
        """
        self._check_champion()
        ranks = script_ranks()
        experiment = tolerant(reload(self._stored, engine=engine) if engine else self.experiment)

        def work(coordinator: Coordinator) -> bytes:
            config = experiment.config
            here = manifest(ranks.transport, backend(config.compute.backend), is_portable(config))
            stored = self._stored
            if isinstance(stored, StoredRun):
                verdict = reevaluate(stored, experiment, coordinator, here)
            else:
                verdict = reevaluate_champion(stored, experiment, coordinator, here)
            return json.dumps(name_engines(verdict, stored, experiment).to_json()).encode()

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
        if check_whole("generation", generation, 0) >= self._stored.num_generations:
            raise InputError("generation", f"0 … {self._stored.num_generations - 1}, or None", generation)
        chosen = choose(self._stored, experiment, generation)
        return Policy(experiment, chosen.genome, normalizer_of(experiment, self._stored, generation))

    def environment_seed(self, generation: int, episode: int = 0) -> int:
        """Return the seed of the environment in which the best candidate of a generation played one of its episodes."""
        generation, episode = check_whole("generation", generation, 0), check_whole("episode", episode, 0)
        chosen = choose(self._stored, self.experiment, generation, episode=episode)
        return environment_seed(self._stored, self.experiment, chosen)

    def export(self, path: str | Path) -> Path:
        """Write the final champion to a small file (`NAME.champion`), which `load` reads; return its path.

        In a script of several ranks, rank 0 writes. Raises InputError without held-out returns (`evolve evaluate` keeps
        them in the run file), or when the file cannot be written.
        """

        def work(_: Coordinator) -> bytes:
            return bytes(export_champion(self._stored, Path(path)).path)

        return Path(os.fsdecode(script_ranks().call(work)))

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
