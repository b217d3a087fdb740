"""Objects of the Python interface for the files that evolve writes.

A `Run` is the content of a run file, a `ChampionFile` the content of a small file with one champion. Their methods
check the arguments of a script. Other packages do the work: `training` evaluates, `verification` compares, and
`exhibits` draws. Methods that play episodes use all ranks of the script, or start ranks (`script_runs`).
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from evolve import environments, training, verification
from evolve.analysis import champion as champion_files
from evolve.analysis import exhibits, figures, statistics
from evolve.analysis.champion import Elite, Member, elites_of, members_of_front
from evolve.analysis.exports import FORMATS
from evolve.analysis.generations import Evaluation, Generation, evaluation_of, pack, table, unpack, write_csv
from evolve.analysis.policy import Policy
from evolve.analysis.script_runs import call_elsewhere, error_outside_script, script_ranks, serve_script
from evolve.analysis.statistics import between, duration, number
from evolve.cluster import Coordinator
from evolve.cluster.cores import Work
from evolve.cluster.script import Collective, Link
from evolve.config import Config, EnvOptions, assignments, plain
from evolve.errors import InputError, Setting, check_flag, check_path, check_whole, pluralize
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose
from evolve.store import (
    Start,
    Stored,
    StoredChampion,
    StoredRun,
    check_begun,
    disk,
    one_run_file,
    population,
    read,
    read_any,
)
from evolve.training import Experiment, GenomeChoice
from evolve.training.experiment import num_threads
from evolve.training.fitness import check_not_importing
from evolve.training.plan import plain_setting
from evolve.training.stored import check_which
from evolve.verification import Episode, Verdict, playing
from evolve.verification.verdict import html_table

_CSV = ".csv"


def _env_settings(env: Any) -> Mapping[str, Any]:
    """Return the argument `env` of a method as a table of settings. Raises InputError for a wrong value."""
    setting: str | Mapping[str, Any] = plain_setting("env", {} if env is None else env)
    return {"id": setting} if isinstance(setting, str) else setting


class _EvolvedFile:
    """The common base of `Run` and `ChampionFile`: an experiment and its final champion."""

    _stored: Stored
    # The endings of the files that `export` writes.
    _endings: tuple[str, ...] = (champion_files.SUFFIX, *FORMATS.values())

    def __init__(self, stored: Stored) -> None:
        if not isinstance(stored, StoredRun | StoredChampion):
            cure = f"Read a file with evolve.load({stored!r})."
            raise TypeError(f"{type(self).__name__}: expected the contents of a file, got {stored!r}. {cure}")
        self._stored = stored
        self._absolute_path = stored.path
        with suppress(FileNotFoundError):  # the current directory was removed
            self._absolute_path = stored.path.absolute()  # the script may change the directory later

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._stored.path

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._stored.header.seed

    @cached_property
    def config(self) -> Config:
        """The configuration, with all settings."""
        return training.config_of(self._stored)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment, prepared on this machine. Raises InputError if its environment cannot be made here."""
        return training.reload(self._stored)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The versions, the machine and the ranks that made the file. No digest depends on them."""
        return self._stored.header.manifest

    @property
    def start(self) -> Start | None:
        """The genome with which the run began (`start_from`); None if it began with random genomes."""
        return self._stored.header.start

    @property
    def digest(self) -> str:
        """The digest of the last generation of the run. Raises InputError if no generation is complete."""
        self._check_champion()
        return self._stored.digest

    @property
    def num_generations(self) -> int:
        """The number of complete generations of the run."""
        return self._stored.num_generations

    @property
    def steps(self) -> int:
        """The number of environment steps of the run."""
        return self._stored.steps

    @property
    def held_out(self) -> Evaluation | None:
        """The held-out evaluation of the final champion in the file; None if there is none."""
        return evaluation_of(self._stored)

    def evaluate(
        self,
        episodes: int = 100,
        network: Mapping[str, Any] | None = None,
        engine: str | None = None,
        env: str | Mapping[str, Any] | Callable[..., Any] | None = None,
        generation: int | None = None,
        threads: int | str = "auto",
        connections: int | None = None,
        cell: Sequence[int] | None = None,
        workers: int | str | None = None,
        member: int | None = None,
    ) -> Evaluation:
        """Return an evaluation of a champion on held-out episodes. Nothing is written.

        If you ask for more episodes, the first ones stay the same.

        Args:
            episodes: The number of episodes.
            network: Settings of the network to change. {"plasticity": 0.0} removes learning from a hebbian-dag. The
                connections must stay the same.
            engine: Another environment engine: "gymnasium", "envpool" or "exact".
            env: Another environment: an id, a class, or a table of changed settings such as
                {"kwargs": {"gravity": 12.0}}. Another id drops the arguments and wrappers of the run.
            generation: Evaluate the best candidate of this generation; by default the final champion.
            threads: The number of threads, as `compute.threads`.
            connections: Evaluate the best genome of the front (nsga2) with at most this number of acting connections.
            cell: Evaluate the elite of this cell of the archive (map-elites).
            workers: The number of processes that play the episodes, as for `evolve.train`.
            member: Evaluate this genome of the front, counted from 0 in the order of `front`.

        Raises InputError if the run has no such genome, or if the environment is missing or does not fit the network.
        """
        self._check_champion()
        episodes = check_whole("episodes", episodes, 1)
        changes = {"env": _env_settings(env), "network": plain_setting("network", network), "engine": engine}
        choice = GenomeChoice(generation, connections, member, cell)
        check_which(self._stored, choice)
        arguments = {"episodes": episodes, **vars(choice)}
        answer = self._play("_evaluate", changes | {"threads": threads}, arguments, workers)
        return Evaluation(**unpack(answer))

    def _evaluate(
        self, _ranks: Collective, coordinator: Coordinator, experiment: Experiment, episodes: int, **choice: Any
    ) -> bytes:
        """Return the fields of an `Evaluation` as bytes. choice: the attributes of a `GenomeChoice`."""
        results = training.evaluate_champion(self._stored, experiment, coordinator, episodes, GenomeChoice(**choice))
        return pack(returns=results.returns, seeds=results.seeds, metrics=results.metrics, lengths=results.lengths)

    def verify(
        self,
        engine: str | None = None,
        threads: int | str = "auto",
        full: bool = False,
        workers: int | str | None = None,
    ) -> Verdict:
        """Evaluate the champions again on this machine. Return a verdict: whether all results are equal, to the bit.

        The champions of a run are the best candidates of all generations. A champion file has only the final champion.
        Raises InputError if the engine cannot play the environment.

        engine, threads, workers: As in `evaluate`.
        full: Whether to run the whole experiment again, and compare everything.
        """
        check_flag("full", full)
        self._check_champion()
        changes = {"engine": engine, "threads": threads, "trains": full}
        answer = self._play("_verify", changes, {"full": full}, workers)
        return Verdict.from_json(json.loads(answer))

    def _verify(self, ranks: Collective, coordinator: Coordinator, experiment: Experiment, full: bool) -> bytes:
        """Return the verdict as JSON."""
        repetition = verification.repetition(self._stored, experiment, coordinator, ranks.transport)
        verdict = repetition.rerun(on_generation=lambda _: None) if full else repetition.reevaluate()
        return json.dumps(verdict.to_json()).encode()

    def _play(
        self, method: str, changes: Mapping[str, Any], arguments: Mapping[str, Any], workers: int | str | None
    ) -> bytes:
        """Call a method on rank 0, where it may use all ranks; return its answer on every rank.

        Args:
            method: The name of the method. It gets the ranks, the coordinator, the experiment and `arguments`.
            changes: The changes of the experiment, see `_reloaded`.
            arguments: Further arguments of the method. "episodes", if present, limits the number of workers.
            workers: The argument `workers` of the script.
        """
        if workers is not None:
            # The ranks import the script if it holds the environment. Such an import must not start ranks again.
            check_not_importing()
        experiment = self._reloaded(**changes)
        if workers is not None:
            work = Work(arguments.get("episodes"), threads=num_threads(experiment.config))
            # The ranks read the file again. They compare its digest, and refuse a file that has changed.
            file = {"path": self._absolute_path, "digest": self._stored.digest}
            request = plain({**file, "method": method, "changes": changes, "arguments": arguments})
            answer = call_elsewhere(workers, work, f"{__name__}:play_for_script", request)
            # Without an answer, no ranks were needed, and this process plays.
            if answer is not None:
                return answer
        ranks = script_ranks()
        return ranks.call(lambda coordinator: getattr(self, method)(ranks, coordinator, experiment, **arguments))

    def verify_published(self) -> Verdict:
        """Compare the digest with the published digest of this experiment and seed. No episode is played.

        Raises InputError if the experiment is not published with this seed, and RunError if no generation is complete.
        """
        check_begun("there is nothing to compare", self._stored)
        return verification.compare_with_published(self._stored, verification.read_published())

    def plot_network(
        self,
        generation: int | None = None,
        traces: bool = False,
        connections: int | None = None,
        cell: Sequence[int] | None = None,
        member: int | None = None,
    ) -> exhibits.Picture:
        """Return a picture of the final champion's network, for display in a notebook; `save` writes a file.

        generation, connections, cell, member: Another genome to draw, as in `evaluate`.
        traces: Whether to draw mean Hebbian traces instead of weights.
        """
        choice = GenomeChoice(generation, connections, member, cell)
        return exhibits.plot_network(self._stored, script_ranks(), choice, traces)

    def film(
        self,
        generation: int | Sequence[int] | None = None,
        episode: int | None = None,
        seconds: float = 12.0,
        env: str | Mapping[str, Any] | Callable[..., Any] | None = None,
        connections: int | None = None,
        cell: Sequence[int] | None = None,
        network: Mapping[str, Any] | None = None,
        member: int | None = None,
    ) -> exhibits.Film:
        """Return a film of the final champion, for display in a notebook; `save` writes it as MP4 or GIF.

        Args:
            generation: Film the best candidate of this generation, or of each generation of a list, one after another.
            episode: The number of the episode. By default the champion plays the held-out episode that had the median
                return in the environment of the run, and other genomes play episode 0.
            seconds: The longest duration of an episode in the film. A longer episode is shown at a higher speed.
            env: Another environment, as in `evaluate`.
            connections: Film a member of the front, as in `evaluate`. It plays a held-out episode.
            cell: Film an elite of the archive, as in `evaluate`. It plays an episode by which it took the cell.
            network: Settings of the network, as in `evaluate`.
            member: Film this genome of the front, as in `evaluate`. It plays a held-out episode.

        Raises InputError if the environment cannot be drawn here, or a library is missing.
        """
        changes = {"env": _env_settings(env), "network": plain_setting("network", network or {})}
        experiment = self._reloaded(**changes)
        generations = plain(generation)  # turns an array into a list
        # A single value becomes a list, too. If it is a text, `film` refuses it.
        if isinstance(generations, str) or not isinstance(generations, Sequence):
            generations = [generations]
        choices = [GenomeChoice(number, connections, member, cell) for number in generations]
        # Only rank 0 calls `work`. It keeps the film, which can also be saved as GIF. The other ranks get the bytes.
        films: list[exhibits.Film] = []

        def work(_: Coordinator) -> bytes:
            films.append(exhibits.film(self._stored, experiment, choices, episode, seconds, assignments(changes)))
            return films[0].to_bytes()

        content = script_ranks().call(work)
        return films[0] if films else exhibits.Film.from_bytes(content)

    def _repr_html_(self) -> str:
        return html_table(*self._summary())

    def _summary(self) -> tuple[str, dict[str, str]]:
        """Return the heading and the rows of a table about the file. A row has a name and a text."""
        config = self.config
        heading = f"{config.env.id}, {config.network.name}, {config.strategy.name}, seed {self.seed}"
        held_out, stored = self.held_out, self._stored
        mean = ""
        if held_out is not None and len(statistics.finite(held_out.returns)):
            interval = f", 95 % interval {between(held_out.interval)}" if held_out.interval else ""
            mean = f"mean {number(held_out.mean)} over {pluralize(len(held_out.returns), 'episode')}{interval}"
        work = f"{stored.steps:,} steps in {duration(stored.seconds)}"
        digest = stored.digest if stored.num_generations else ""
        return heading, {"held-out return": mean, "work": work, "digest": digest, "file": str(self.path)}

    def champion(self, *, network: Mapping[str, Any] | None = None) -> Policy:
        """Return the final champion as a policy, which needs no environment.

        Raises InputError if there is no champion. A file of an early version does not hold the spaces of observations
        and actions, so its environment must be installed.

        network: Settings of the network to change, as for `evaluate`: {"plasticity": 0.0} removes learning.
        """
        return self._policy(GenomeChoice(), network)

    def _policy(self, choice: GenomeChoice, network: Mapping[str, Any] | None = None) -> Policy:
        self._check_champion()
        experiment = training.reload_policy(self._stored)
        genome, normalizer = training.chosen_genome(experiment, self._stored, choice)
        origin = f"the {choice.title or 'champion'} of seed {self.seed}, digest {self._stored.digest}"
        if network:
            experiment = training.with_network(experiment, plain_setting("network", network), for_policy=True)
            origin += f", with {assignments({'network': network})}"
        return Policy(experiment, genome, normalizer, origin)

    def export(self, path: str | Path) -> Path:
        """Write the final champion, or a table of a run; return the path. The ending of the name selects the format.

        `.champion` is a small file, which `load` reads. For `.c`, `.json`, `.onnx` and `.pt2` see `Policy.export`.
        `.csv` has the columns of `Run.table`. In a script of several ranks, rank 0 writes.

        Raises InputError if the name has another ending, or if the file cannot be written. A `.champion` file also
        needs held-out returns, which `evolve evaluate` adds to the run file.
        """

        def work(_: Coordinator) -> bytes:
            # A path may have bytes that are not UTF-8, so the path travels as bytes.
            return bytes(self._export(check_path("path", path)))

        return Path(os.fsdecode(script_ranks().call(work)))

    def _export(self, path: Path) -> Path:
        """Write the file on rank 0; return its path."""
        if path.suffix in FORMATS.values():
            return self.champion().export(path)
        disk.check_writable(path, self._endings)
        return champion_files.export_champion(self._stored, path).path

    def _reloaded(self, threads: int | str = "auto", **changes: Any) -> Experiment:
        """Return the experiment with changes, see `training.reload`; without changes, the cached `experiment`."""
        # A change that is None or empty changes nothing, and neither does `trains=False`.
        if threads == "auto" and all(value in (None, {}, False) for value in changes.values()):
            return self.experiment
        return training.reload(self._stored, threads=threads, **changes)

    def _check_champion(self) -> None:
        """Raise InputError if there is no champion yet. A champion file always has one, so only `Run` checks."""


class ChampionFile(_EvolvedFile):
    """A small file with the final champion of a run. `Run.export` and `evolve export` write it."""

    _stored: StoredChampion

    def __repr__(self) -> str:
        return f"<ChampionFile {self.path}: {self.config.env.id}, {self.config.network.name}>"


class Run(_EvolvedFile):
    """A run, complete or not: the contents of its file. Methods evaluate, verify, draw and export its champion."""

    _stored: StoredRun
    _endings = (champion_files.SUFFIX, *FORMATS.values(), _CSV)

    @property
    def complete(self) -> bool:
        """Whether the run has reached its last generation or an early stop, and its held-out evaluation is done."""
        return self._stored.complete

    @cached_property
    def generations(self) -> list[Generation]:
        """The complete generations."""
        return [Generation(number, record) for number, record in enumerate(self._stored.records)]

    def verify_against(self, other: "Run | str | Path") -> Verdict:
        """Return a verdict: whether another run has the same bits, and if not, the first difference.

        Only an episode that differs is played again. Raises RunError if neither run has a complete generation.

        other: A run, or the path of a run file.
        """
        theirs = other._stored if isinstance(other, Run) else read(one_run_file(check_path("other", other)))
        check_begun("there is nothing to compare", self._stored, theirs)
        return verification.compare(self._stored, theirs)

    def champion(
        self,
        generation: int | None = None,
        connections: int | None = None,
        cell: Sequence[int] | None = None,
        *,
        network: Mapping[str, Any] | None = None,
        member: int | None = None,
    ) -> Policy:
        """Return the final champion, or another genome of the run, as a policy, which needs no environment.

        Args:
            generation: Return the best candidate of this generation.
            connections: Return the best genome of the front (nsga2) with at most this number of acting connections.
            cell: Return the elite of this cell of the archive (map-elites).
            network: Settings of the network to change, as for `evaluate`: {"plasticity": 0.0} removes learning.
            member: Return this genome of the front, counted from 0 in the order of `front`.

        Raises InputError if there is no such genome, and as `ChampionFile.champion` does.
        """
        return self._policy(GenomeChoice(generation, connections, member, cell), network)

    def population(self, generation: int) -> Genomes:
        """Return the genomes of all candidates of a generation from the run file: `weights` [P, W] and `mask` [P, W].

        Raises InputError if the run has no such generation or does not store all genomes (`output.genomes`), or if
        another run has replaced the file.
        """
        self._check_champion()
        check_which(self._stored, GenomeChoice(generation))
        if not self._stored.has_population:
            cure = "Begin a new run with ", Setting("output.genomes", "all"), "."
            raise InputError(str(self.path), "a run that stores all genomes", "a run that stores only champions", *cure)
        genomes = population(self.path, generation)
        # The fingerprints in memory show whether the file still has the same run.
        if not np.array_equal(genomes.fingerprints(), self._stored.records[generation].genome_fingerprints):
            raise _changed_file(str(self.path), self.path)
        return genomes

    def front(self, generation: int | None = None) -> list[Member]:
        """Return the front of a run of nsga2 after a generation (by default the last), sorted by its first measure.

        The default measure is the number of acting connections: the smallest genome comes first. Raises InputError if
        the run has no such generation, or no front.
        """
        self._check_champion()
        return members_of_front(self._stored, generation)

    def archive(self) -> list[Elite]:
        """Return the elites of a run of map-elites after the last generation, in the order of their cells.

        Raises InputError if the run has no archive.
        """
        self._check_champion()
        return elites_of(self._stored)

    def environment_seed(self, generation: int, episode: int = 0) -> int:
        """Return the seed of the environment in an episode that the best candidate of a generation played."""
        _, seed = self._episode(check_whole("generation", generation, 0), episode)
        return seed

    def environment_kwargs(self, generation: int | None = None, episode: int = 0) -> dict[str, Any]:
        """Return the arguments of the environment in an episode: `env.kwargs`, and the values drawn by `env.randomize`.

        The best candidate of the generation plays the episode. Without a generation, it is a held-out episode of the
        final champion.
        """
        return self._options_of(generation, episode).kwargs

    def environment(self, generation: int | None = None, episode: int = 0, render_mode: str | None = None) -> Any:
        """Return the environment of an episode as an object of Gymnasium, for a loop or a recorder of your own.

        It has the wrappers, the step limit and the arguments of the episode, see `environment_kwargs`. Reset it with
        the seed of the episode, see `environment_seed`. If the run has the engine "exact", this is Gymnasium's
        environment of the same name, which plays equal episodes only for tasks with rigid bodies: walkers and landers.

        Raises InputError if Gymnasium cannot make the environment, or for the engine "envpool".
        """
        options = self._options_of(generation, episode)
        rendering = {} if render_mode is None else {"render_mode": render_mode}
        return environments.gymnasium_environment(options.model_copy(update={"kwargs": options.kwargs | rendering}))

    def _options_of(self, generation: int | None, episode: int) -> EnvOptions:
        """Return the options of an episode's environment; `kwargs` includes the values that `env.randomize` draws."""
        if generation is not None:
            generation = check_whole("generation", generation, 0)
        chosen, seed = self._episode(generation, episode)
        return environments.with_drawn_arguments(playing.environment_of(self.experiment, chosen), seed)

    def _episode(self, generation: int | None, index: int) -> tuple[Episode, int]:
        """Return an episode and its environment seed.

        The best candidate of the generation plays the episode. Without a generation, it is a held-out episode of the
        final champion.
        """
        purpose = Purpose.EPISODE
        if generation is None:
            purpose = Purpose.HELD_OUT
            self._check_champion()
        index = check_whole("episode", index, 0)
        chosen = verification.choose_episode(self._stored, self.experiment, generation, episode=index, purpose=purpose)
        return chosen, playing.environment_seed(self._stored, self.experiment, chosen)

    def _export(self, path: Path) -> Path:
        if path.suffix != _CSV:
            return super()._export(path)
        write_csv(self._stored, path)
        return path

    def plot(self, over: str = "generation", load: bool = False) -> exhibits.Picture:
        """Return the curves of the run as a picture, for display in a notebook; `save` writes PNG, SVG or PDF.

        Raises InputError if matplotlib is not installed.

        over: The horizontal axis, "generation", "steps" or "time".
        load: Whether to draw throughput and idle workers, too.
        """
        return exhibits.plot([self._stored], over, load)

    def plot_front(self) -> exhibits.Picture:
        """Return a picture of the front of a run of nsga2 and its growth. Raises InputError for other runs."""
        check_begun("there is no champion", self._stored)
        return exhibits.Picture(figures.draw_front([self._stored]), "front")

    def plot_archive(self) -> exhibits.Picture:
        """Return a picture of the archive of a run of map-elites and its growth. Raises InputError for other runs."""
        check_begun("there is no champion", self._stored)
        return exhibits.Picture(figures.draw_archive(self._stored), "archive")

    def report(self, quick: bool = False) -> exhibits.Page:
        """Return a page about the run, with a film and a verification, for display in a notebook; `save` writes it.

        Raises InputError if a library is missing.

        quick: Whether to leave out the parts for which episodes must be played.
        """
        return exhibits.report([self._stored], script_ranks(), quick)

    def table(self) -> dict[str, list[Any]]:
        """Return columns by generation, for CSV or pandas (`pandas.DataFrame(run.table())`).

        Columns of fitness and connections begin with `best` for the best candidate. Otherwise they begin with a
        statistic of all candidates: `mean`, `std` (n - 1), `median`, or the quartiles `q25` and `q75`.

        Columns `validation_…` describe the champion's returns on the validation episodes (`early_stop.mean_return`).
        Columns `held_out_…` describe the final champion's returns on the held-out episodes, in the last row. Rows
        without such episodes have NaN. For a metric NAME of `env.metrics`, `best_metric_NAME` is the mean over the best
        candidate's episodes, `mean_metric_NAME` the mean over all candidates, and `held_out_metric_NAME` the mean over
        the held-out episodes. `archive_coverage` is the share of the cells of an archive that have an elite, and
        `archive_qd_score` the sum of the fitness of the elites. Statistics ignore values that are not finite.
        """
        return table(self._stored)

    def _summary(self) -> tuple[str, dict[str, str]]:
        heading, rows = super()._summary()
        done = f"{self._stored.num_generations:,} of {self.config.generations:,}"
        fitness = ""
        if self.generations:
            first, last = self.generations[0], self.generations[-1]
            best = f"best {number(first.best)} → {number(last.best)}"
            fitness = f"{best}, mean {number(first.mean)} → {number(last.mean)}"
        return heading, {"generations": done if self.complete else f"{done}, not complete", "fitness": fitness} | rows

    def _check_champion(self) -> None:
        if not self._stored.records:
            raise InputError(str(self.path), "a run with a complete generation", "none yet")

    def __repr__(self) -> str:
        done = f"{self._stored.num_generations} of {self.config.generations} generations"
        return f"<Run {self.path}: {self.config.env.id}, {self.config.network.name}, {done}>"


def wrap_stored(stored: Stored) -> Run | ChampionFile:
    """Return the `Run` or the `ChampionFile` of a file that was read."""
    return Run(stored) if isinstance(stored, StoredRun) else ChampionFile(stored)


def _changed_file(argument: str, path: str | Path) -> InputError:
    """Return the error for a file that has changed since the script loaded it."""
    cure = f"Load it again: evolve.load({str(path)!r})."
    return InputError(argument, "the file that the script has loaded", "one that has changed since then", cure)


def _play_for_script(ranks: Collective, _link: Link, request: Mapping[str, Any], coordinator: Coordinator) -> bytes:
    """Do the request of `_EvolvedFile._play`: load the file again, call the method, and return its answer."""
    file = wrap_stored(read_any(Path(request["path"])))
    if file.digest != request["digest"]:
        raise _changed_file("workers", request["path"])
    try:
        experiment = file._reloaded(**request["changes"])
    except InputError as error:
        raise error_outside_script(error) from None
    return getattr(file, request["method"])(ranks, coordinator, experiment, **request["arguments"])


play_for_script = partial(serve_script, _play_for_script)
"""The main function of the ranks that a script starts to play episodes of a file."""
