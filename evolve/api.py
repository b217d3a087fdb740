"""The Python interface: functions such as `train`, `iterate` and `load`, and the runs of a sweep.

Under `mpirun -n R python script.py` every rank calls the same functions and gets the same results. Rank 0 coordinates;
the other ranks play episodes. With `workers`, the process of the script starts such ranks itself. Their rank 0 sends
each generation to the process, and waits for the answer whether to go on.

This module reads the arguments. `evolve.analysis.script_runs` evolves the runs, on the script's ranks or on new ones.

Functions print only with `progress=True`. During a call, an alarm (SIGALRM) interrupts an environment that hangs. After
the call, the script has its own signal handlers again.
"""

import json
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from evolve import store
from evolve.analysis import statistics
from evolve.analysis.exhibits import RunComparison
from evolve.analysis.generations import Evaluation, Generation, pack, pack_generation, unpack, unpack_generation
from evolve.analysis.policy import Policy
from evolve.analysis.progress import heading
from evolve.analysis.runs import ChampionFile, Run, wrap_stored
from evolve.analysis.script_runs import RunOptions, evolve_elsewhere, evolve_here, number_of_workers, script_ranks
from evolve.analysis.statistics import between, number, words
from evolve.analysis.tensorboard import live_log
from evolve.cluster import Coordinator
from evolve.cluster.script import Collective, all_ranks
from evolve.config import Config, assignments
from evolve.errors import EpisodeError, InputError, check_path, pluralize
from evolve.store.disk import LocksReleased
from evolve.training import Experiment
from evolve.training.experiment import PlannedRun, load_config, prepare
from evolve.training.fitness import check_not_importing
from evolve.training.plan import plan_from_arguments, plan_runs, preview, sweep_from_arguments
from evolve.verification import Verdict
from evolve.verification.verdict import html_rows

_LOG = logging.getLogger("evolve")
_MAX_SENT_BYTES = 2**29
"""Rank 0 sends smaller run files to the other ranks. The other ranks read larger run files from the disk."""


class Sweep(Sequence[Run]):
    """The runs of a sweep: all seeds of the first point of the grid, then all seeds of the second point, and so on.

    Args:
        runs: The runs.
        points: For each run, the values of the settings that the sweep varies.
    """

    def __init__(self, runs: Sequence[Run], points: Sequence[Mapping[str, Any]]) -> None:
        self.runs = tuple(runs)
        self.points = tuple(points)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Run, ...]: ...
    def __getitem__(self, index: int | slice) -> Run | tuple[Run, ...]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def table(self) -> dict[str, list[Any]]:
        """Return columns with an entry for each run (`pandas.DataFrame(sweep.table())`).

        The first columns are the varied settings. A table or a list among their values becomes a text. The columns
        `held_out_…` describe the champion's held-out episodes. `held_out_failed` counts the failed episodes, which the
        other columns ignore. `held_out_low` and `held_out_high` are the 95 % interval of the mean return, NaN for fewer
        than two episodes. `held_out_metric_NAME` is the mean of a metric.
        """
        columns: dict[str, list[Any]] = {key: [_cell(point[key]) for point in self.points] for key in self.points[0]}
        last_generations = [run.generations[-1] if run.generations else None for run in self.runs]
        held_out = [run.held_out for run in self.runs]
        intervals: list[tuple[float, float]] = []
        metric_means: list[Mapping[str, float]] = []  # of each run, by the names of the metrics
        for evaluation in held_out:
            interval = None if evaluation is None else evaluation.interval
            intervals.append(interval or (np.nan, np.nan))
            means = {} if evaluation is None else statistics.metrics_means(evaluation.metrics, evaluation.returns)
            metric_means.append(means)
        names = sorted(set().union(*metric_means))
        metrics = {f"held_out_metric_{name}": [means.get(name, np.nan) for means in metric_means] for name in names}
        return columns | {
            "seed": [run.seed for run in self.runs],
            "generations": [len(run.generations) for run in self.runs],
            "best_fitness": [np.nan if generation is None else generation.best for generation in last_generations],
            "mean_fitness": [np.nan if generation is None else generation.mean for generation in last_generations],
            "held_out_mean": [np.nan if evaluation is None else evaluation.mean for evaluation in held_out],
            "held_out_low": [low for low, _ in intervals],
            "held_out_high": [high for _, high in intervals],
            "held_out_failed": [np.nan if evaluation is None else evaluation.failed for evaluation in held_out],
            **metrics,
            "steps": [run.steps for run in self.runs],
            "seconds": [run._stored.seconds for run in self.runs],
            "digest": ["" if generation is None else generation.digest for generation in last_generations],
            "file": [str(run.path) for run in self.runs],
        }

    def compare(self, metric: str | None = None, control: str | None = None) -> RunComparison:
        """Return the comparison of the experiments, see `evolve.compare`."""
        return compare(self.runs, metric, control)

    def _repr_html_(self) -> str:
        """Return a table with a row for each point of the grid: the held-out mean over its seeds, best first."""
        # The held-out means of all seeds, by the texts of the values of a point.
        scores_of: dict[tuple[str, ...], list[float]] = {}
        for point, run in zip(self.points, self.runs, strict=True):
            cells = tuple(words(_cell(value)) for value in point.values())
            scores = scores_of.setdefault(cells, [])
            if run.held_out is not None and not np.isnan(run.held_out.mean):
                scores.append(run.held_out.mean)
        means = {cells: statistics.mean(np.array(scores)) for cells, scores in scores_of.items()}
        rows = []
        # A point without a held-out mean has NaN, and comes last.
        for cells in sorted(means, key=lambda cells: np.nan_to_num(means[cells], nan=-np.inf), reverse=True):
            scores = scores_of[cells]
            range_of_seeds = between((min(scores), max(scores))) if len(scores) > 1 else ""
            rows.append((*cells, number(means[cells]), range_of_seeds))
        title = f"{pluralize(len(self), 'run')}, {pluralize(len({run.seed for run in self.runs}), 'seed')}"
        return html_rows(title, (*self.points[0], "held-out mean", "range of seeds"), rows)

    def __repr__(self) -> str:
        over = f" over {', '.join(self.points[0])}" if self.points[0] else ""
        return f"<Sweep: {pluralize(len(self), 'run')}{over}>"


def _cell(value: Any) -> Any:
    """Return a value of a sweep as an entry of a column. A table or a list becomes text, by which pandas can group."""
    if isinstance(value, Mapping):
        return assignments(value)
    return words(value) if isinstance(value, list) else value


def load(path: str | Path) -> Run | ChampionFile:
    """Return the run of a run file, or the content of a champion file.

    path: The file, or a directory that holds one run file. Raises InputError for a file that cannot be read.
    """
    return wrap_stored(store.read_any(store.one_run_file(check_path("path", path))))


def train(
    experiment: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    seed: int | None = None,
    output: str | Path | Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    workers: int | str | None = None,
    progress: bool = False,
    tensorboard: str | Path | None = None,
    callbacks: Iterable[Callable[[Generation], object]] = (),
    **settings: Any,
) -> Run:
    """Evolve an experiment to its end, and return its run.

    The run ends early if a callback returns False, or after `compute.time_limit`. Such a run can be resumed.

    Args:
        experiment: A TOML file, a table, or a configuration. By default, `settings` define the experiment. With
            `resume`, a run file is possible, too, because it holds its experiment.
        seed: The seed of the run; by default the first seed of the experiment.
        output: The directory of the run file, by default `runs/<environment>-<network>`; or the table `[output]`.
        resume: Whether to continue an existing run file. A complete run is returned unchanged.
        overwrite: Whether to replace an existing run file, even one with other settings. The old file stays until the
            first new generation is complete.
        workers: The number of processes that play episodes. This process starts them with mpirun. "auto" starts one
            for each core if that pays. By default this process plays all episodes; in a script under mpirun with
            several ranks, all ranks except rank 0 play.
        progress: Whether to show the progress: as a bar on a terminal and in Jupyter, otherwise as a line every few
            seconds.
        tensorboard: The directory of event files for TensorBoard, which grow with each generation. The files of this
            run are in `<tensorboard>/<directory of the run file>/seed-S`.
        callbacks: Functions that are called with each generation. If a function returns False, the run stops. In a
            script of several ranks only rank 0 calls the functions. In a script of one process, a function can already
            read the generation from the run file with `evolve.load`.
        settings: Any settings, as in TOML; they override settings of the experiment. For env, network and strategy the
            name is enough: `env="CartPole-v1", network={"name": "elman", "hidden": [8]}, generations=20`. `start_from`
            is the genome with which the search begins: a path as in TOML, a run, a champion file, a policy, or a vector
            of weights [W]. Its network must fit. With None the search begins with random genomes.

    Raises:
        InputError: A setting is wrong, or the run file exists already.
        EpisodeError: An episode failed.
        RunError: A rank cannot go on.
    """
    check_not_importing()
    functions = _checked_callbacks(callbacks)
    options = RunOptions(resume, overwrite, progress, receives_generations=bool(functions) or tensorboard is not None)
    # Several places below need the plan. `cache` makes it in the first of them.
    make_plan = cache(partial(plan_from_arguments, experiment, seed, output, settings, resume))

    def pass_on(plan: PlannedRun, generations: Iterator[Generation]) -> None:
        """Pass each generation to TensorBoard and to the callbacks, until a callback returns False."""
        with live_log(tensorboard, plan.path, "tensorboard") as log:
            for generation in generations:
                log(generation.number, generation.record)
                answers = [callback(generation) for callback in functions]
                # A comparison of NumPy's numbers gives np.False_, which is not False.
                if any(isinstance(answer, bool | np.bool_) and not answer for answer in answers):
                    break

    # With `workers`, this process makes the plan. Otherwise only rank 0 makes the plan, in `work`.
    num_workers = 1 if workers is None else number_of_workers(workers, make_plan(), options)
    if num_workers > 1:
        plan = make_plan()
        file = plan.path.absolute()  # a callback may change the current directory
        with closing(evolve_elsewhere(plan, options, num_workers)) as generations:
            pass_on(plan, generations)
        # The run keeps the path as the caller gave it, which may be relative.
        return Run(replace(store.read(file), path=plan.path))
    # No ranks were started. The script's own ranks play: this process, or the ranks that a launcher started.
    ranks = script_ranks()

    def work(coordinator: Coordinator) -> bytes:
        plan = make_plan()
        file = plan.path.absolute()
        generations = evolve_here(ranks, coordinator, plan, options, options.make_reporter)
        with LocksReleased(file), closing(generations):
            pass_on(plan, generations)
        # All ranks return the same run, so rank 0 sends the path and the content of the run file. `pack` leaves out an
        # image that is None.
        image = file.read_bytes() if file.stat().st_size < _MAX_SENT_BYTES else None
        return pack(path=str(plan.path), image=image)

    answer = unpack(ranks.call(work))
    path = Path(answer["path"])
    run = Run(store.read_image(path, answer["image"]) if "image" in answer else store.read(path))
    # Rank 0 planned the run with its own `seed`. So the `seed` of this rank can differ only if this is another rank.
    if seed not in (None, run.seed):
        cure = "All ranks work on one run. Train seed after seed, or start a job for each seed."
        raise InputError("seed", f"the same seed on all ranks, {run.seed} as on rank 0", seed, cure)
    return run


def sweep(
    grid: Mapping[str, Any],
    experiment: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    seeds: Iterable[int] | None = None,
    output: str | Path | Mapping[str, Any] | None = None,
    resume: bool = True,
    overwrite: bool = False,
    workers: int | str | None = None,
    progress: bool = False,
    tensorboard: str | Path | None = None,
    callbacks: Iterable[Callable[[Generation], object]] = (),
    **settings: Any,
) -> Sweep:
    """Evolve an experiment for each combination of values and each seed, one run after another; return all runs.

    Existing run files are continued, and complete ones are kept, so a cell of a notebook can run again.

    Args:
        grid: A list of values for each setting: `{"strategy.sigma": [0.1, 0.3], "network": ["mlp", "elman"]}`. Each
            combination is an experiment; the last setting changes fastest.
        experiment: As for `train`. If it has a table `[sweep]`, the grid is added to this table.
        seeds: The seeds of each experiment; by default the seeds of `experiment`.
        output: The directory in which each experiment has a directory, by default `runs/sweep`, or `runs/<name>` for a
            file <name>.toml. With an empty grid it is the directory of the run files, as for `train`.
        resume: Whether to continue existing run files.
        overwrite: Whether to replace existing run files.
        workers: As for `train`.
        progress: As for `train`.
        tensorboard: As for `train`.
        callbacks: As for `train`, called with each generation of each run. If one returns False, the present run stops,
            and the next one begins.
        settings: Settings that all experiments share, as for `train`.

    Raises:
        InputError: A setting is wrong, or a run file contradicts its experiment, checked before the first run begins.
        EpisodeError: An episode failed. The first such error is raised after all other runs have been evolved.
        RunError: A rank cannot go on.
    """
    check_not_importing()
    RunOptions(resume, overwrite, progress, receives_generations=False)  # raises InputError for wrong flags
    resumes = resume and not overwrite
    functions = _checked_callbacks(callbacks)

    def list_runs(_coordinator: Coordinator) -> bytes:
        planned = []
        for values, config in sweep_from_arguments(grid, experiment, seeds, output, settings):
            for plan in plan_runs([prepare(config)], resume=resumes):
                # Check all runs before the first one begins: `strategy` and `preview` raise the InputError that the run
                # itself would raise later. Their results are not needed.
                plan.experiment.strategy(plan.seed)
                preview(plan, resumes, overwrite)
                planned.append((values, config.to_toml(), plan.seed))
        return json.dumps(planned).encode()

    # Rank 0 makes the list, and all ranks receive it, because `train` must be called on all ranks with the same run.
    planned = json.loads(script_ranks().call(list_runs))
    runs: list[Run] = []
    errors: list[EpisodeError] = []
    for place, (_, config_text, seed) in enumerate(planned, 1):
        config = load_config(config_text)
        if progress and all_ranks().rank == 0:
            path = store.path_of(config.directory(), seed)
            print(heading(path, place, len(planned)), end="", file=sys.stderr, flush=True)
        train_one = partial(train, config, seed=seed, resume=resumes, overwrite=overwrite)
        try:
            runs.append(train_one(workers=workers, progress=progress, tensorboard=tensorboard, callbacks=functions))
        except EpisodeError as error:
            if all_ranks().rank == 0:
                _LOG.error("%s: %s", store.path_of(config.directory(), seed), error)
            errors.append(error)
    if errors:
        count = f"{len(errors)} of {len(planned)} runs failed; the first: " if len(planned) > 1 else ""
        raise EpisodeError(f"{count}{errors[0].which}", errors[0].message, errors[0].key)
    return Sweep(runs, [values for values, *_ in planned])


def iterate(
    experiment: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    seed: int | None = None,
    output: str | Path | Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    workers: int | str | None = None,
    progress: bool = False,
    **settings: Any,
) -> Generator[Generation, None, None]:
    """Evolve an experiment as `train` does, and yield each generation on every rank.

    `train` explains the arguments, and which errors a search may raise. In a script of one process, `evolve.load` finds
    the generation in the run file. If a script leaves the loop early, the run can be resumed.
    """
    check_not_importing()
    options = RunOptions(resume, overwrite, progress, receives_generations=True)
    # `cache`, because two calls below need the plan.
    make_plan = cache(partial(plan_from_arguments, experiment, seed, output, settings, resume))
    num_workers = 1 if workers is None else number_of_workers(workers, make_plan(), options)
    if num_workers > 1:
        with closing(evolve_elsewhere(make_plan(), options, num_workers)) as generations:
            yield from generations
        return
    with closing(script_ranks()) as ranks:
        if ranks.is_rank_0:
            yield from _run_on_rank_0(ranks, make_plan, options)
        else:
            # An empty answer ends the loop, see `_run_on_rank_0`.
            while answer := ranks.follow():
                yield unpack_generation(answer)


def _run_on_rank_0(ranks: Collective, make_plan: Callable[[], PlannedRun], options: RunOptions) -> Iterator[Generation]:
    """Evolve a run on rank 0. Send each generation to the other ranks, and then yield it."""
    try:
        # The other ranks already wait for an answer. So even an error of the plan must be sent to them, below.
        plan = make_plan()
        coordinator = ranks.coordinator()
        generations = evolve_here(ranks, coordinator, plan, options, options.make_reporter)
        with LocksReleased(plan.path.absolute()), closing(generations):
            for generation in generations:
                if ranks.transport.size > 1:
                    ranks.release(pack_generation(generation))
                    # To receive the generation, the other ranks left `serve`. They call it again, but have forgotten
                    # the experiment, so the coordinator must send the experiment again.
                    coordinator.forget_setup()
                yield generation
    except GeneratorExit:  # all ranks have left the loop of the script, so no rank waits for an answer
        raise
    except BaseException as error:
        ranks.release_error(error)
        raise
    ranks.release(b"")  # the empty answer ends the loop of the other ranks


def _checked_callbacks(callbacks: Any) -> list[Callable[[Generation], object]]:
    """Return the callbacks as a list. Raises InputError unless they are a list of functions."""
    if not isinstance(callbacks, Iterable):
        raise InputError("callbacks", "a list of functions", repr(callbacks), "Write a single function as [function].")
    functions = list(callbacks)
    for callback in functions:
        if not callable(callback):
            raise InputError("callbacks", "a list of functions", f"one with {callback!r}")
    return functions


def compare(runs: Iterable[Run | str | Path], metric: str | None = None, control: str | None = None) -> RunComparison:
    """Return a comparison of experiments as a picture. A notebook shows it; `save` writes PNG, SVG or PDF.

    The score of a seed is its champion's mean return on held-out episodes. If no run has held-out episodes, the score
    is the best fitness of the last generation.

    Args:
        runs: Runs, or the paths of run files and directories; a directory stands for all run files in or below it.
            Runs that differ only in their seeds are one experiment. Each experiment is tested against the best one, or
            against the control, so give only the experiments of a question.
        metric: The name of a metric of `env.metrics`. The score is then the mean of the metric over the champion's
            held-out episodes, and the largest mean counts as the best.
        control: The experiment against which the others are tested, instead of the best: its name in the column
            `experiment` of the table. With several environments, each needs an experiment of this name.

    Raises:
        InputError: A run is of another type, a file cannot be read, a run lacks the metric, an environment has no
            experiment with the name of the control, or matplotlib is not installed.
        RunError: No run has a complete generation.
    """
    if isinstance(runs, str | Path | Run) or not isinstance(runs, Iterable):
        cure = "Write a single run or path as [run]."
        raise InputError("runs", "a list of runs, or of paths of run files", repr(runs), cure)
    stored_runs: list[store.StoredRun] = []
    for run in runs:
        stored_runs += _stored_runs(run)
    if not stored_runs:
        raise InputError("runs", "at least one run", "none")
    return RunComparison(stored_runs, metric, control)


def _stored_runs(run: Any) -> list[store.StoredRun]:
    """Return the contents of the run files that a run or a path stands for. Raises InputError for other values."""
    if isinstance(run, Run):
        return [run._stored]
    if isinstance(run, str | Path):
        return [store.read(path) for path in store.run_files([check_path("runs", run)])]
    raise InputError("runs", "a list of runs, or of paths of run files", f"one with {run!r}")
