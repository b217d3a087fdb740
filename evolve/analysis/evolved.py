"""Runs and champion files as objects: what the file holds, and what can be done with the champion."""

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from evolve.analysis.exports import export_champion, table
from evolve.analysis.generation import Evaluation, Generation
from evolve.analysis.packing import pack, unpack
from evolve.cluster import Coordinator
from evolve.cluster.collective import Collective
from evolve.config import Config
from evolve.errors import InputError, check_whole
from evolve.numerics import backend
from evolve.store import Stored, StoredChampion, StoredRun
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
from evolve.training.policy import Policy
from evolve.verification import (
    Verdict,
    choose,
    environment_seed,
    name_engines,
    reevaluate,
    reevaluate_champion,
    tolerant,
)


def script_ranks() -> Collective:
    """Return the ranks of this script, for one call: rollouts are not shared, for threads may call at the same time."""
    return Collective(make_rollout, notes=StrategyReplica())


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
