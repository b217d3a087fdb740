"""All runs of one `evolve run` command: dry run, the runs one after another, and their report."""

import math
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import reduce
from itertools import groupby
from operator import add
from pathlib import Path
from typing import NamedTuple

from evolve import environments, store
from evolve.analysis import html
from evolve.analysis.statistics import summary
from evolve.analysis.video.encoders import library
from evolve.cli.app import App
from evolve.cli.mpirun import is_supervised
from evolve.cli.parser import command_line, how_to_resume, replay_line, steps_after
from evolve.cli.progress import ProgressReporter, RunsClock
from evolve.cli.report import write_page
from evolve.cli.workers import Work, crew
from evolve.cluster import Coordinator
from evolve.config import Config, seconds
from evolve.errors import EpisodeError, RunError, Stopped, pluralize, sanitize
from evolve.store import RunFile
from evolve.store.disk import check_writable
from evolve.training import Experiment, iterate, prepare
from evolve.training.experiment import PlannedRun
from evolve.training.plan import RunPreview, RunSize, plan_runs, preview, size_of
from evolve.training.resume import check_and_create_runs, generations_on_disk, open_run, replace_run
from evolve.training.rollouts import choose_backend, host_fallback
from evolve.verification import spot_check

_DOES = {"begin": "new", "resume": "resumed", "replace": "replaced", "keep": "complete already"}
_HINT = (
    "evolve.run: the loss of a worker ends this run; complete generations are kept, --resume continues it. "
    "(Under mpirun --with-ft ulfm it would outlive its workers.)"
)


class Request(NamedTuple):
    """What is to run, and how.

    Attributes:
        configs: The experiments, at least one.
        file: The run file that is resumed by name, if any.
        resume: Whether runs whose files exist are resumed.
        overwrite: Whether they are replaced.
        dry_run: Whether to say only what would run.
        report: Whether a page is made of the runs when they have ended.
        workers: How many processes are to play episodes, or "auto"; None where the launcher decides.
    """

    configs: list[Config]
    file: Path | None
    resume: bool
    overwrite: bool = False
    dry_run: bool = False
    report: bool = False
    workers: int | str | None = None

    @property
    def work(self) -> Work:
        """How much there is to do at most, run files that are there left aside."""
        at_once = max(config.population * config.episodes for config in self.configs)
        sizes = (size_of(config) for config in self.configs for _ in config.seeds)
        quick = all(environments.is_quick(config.env) for config in self.configs)
        return Work(at_once, reduce(add, sizes).steps if quick else None)


def describe(previews: Sequence[RunPreview], who: str) -> str:
    """Return in words what would become of runs. who: the processes that would do the work."""
    lines = ["Dry run: nothing is written."]
    for _, runs in groupby(previews, key=lambda each: id(each.run.experiment)):
        lines += ["", *_describe_experiment(list(runs))]
    total = _quantity(reduce(add, (each.size for each in previews)))
    return "\n".join([*lines, "", f"In all: {pluralize(len(previews), 'run')}, {total}, by {who}."])


def _describe_experiment(previews: list[RunPreview]) -> list[str]:
    experiment = previews[0].run.experiment
    begun = [f"  {each.run.path.name}: {_describe_run(each)}" for each in previews]
    return [sanitize(f"{previews[0].run.path.parent}/", 4000), f"  {_describe_size(experiment)}", *begun]


def _describe_size(experiment: Experiment) -> str:
    config = experiment.config
    names = sanitize(f"{config.env.id}, {config.network.name}, {config.strategy.name}")
    parameters = f"{pluralize(experiment.network.num_weights, 'parameter')} per network"
    episodes = pluralize(config.episodes, "episode")
    generations = pluralize(config.generations, "generation")
    return f"{names}: {parameters}, population of {config.population:,}, {episodes} each, {generations}"


def _describe_run(run_preview: RunPreview) -> str:
    stored = run_preview.stored
    there = ""
    if stored is not None:
        of = run_preview.run.experiment.config.generations
        there = f", {stored.num_generations:,} of {pluralize(of, 'generation')} complete"
        if run_preview.action == "replace":
            there = f", {pluralize(stored.num_generations, 'generation')} would be lost"
    left = "" if run_preview.action == "keep" else f"; {_quantity(run_preview.size)}"
    return f"{_DOES[run_preview.action]}{there}{left}"


def _quantity(size: RunSize) -> str:
    steps = "no limit of steps is known" if size.steps is None else f"at most {pluralize(size.steps, 'step')}"
    return f"{pluralize(size.episodes, 'episode')}, {steps}"


def page_of(runs: Sequence[PlannedRun]) -> Path:
    """Return where the page of runs goes: into the directory that holds all their files."""
    return Path(os.path.commonpath([run.path.parent for run in runs]) or ".") / "report.html"


def check_report(runs: Sequence[PlannedRun], dry: bool = False) -> None:
    """Raise InputError where the page of runs, or a film for it, cannot be made for want of a library or a place.

    dry: whether nothing may be written, not even to find out whether it can be.
    """
    html.check_libraries()
    for name in ("PIL.ImageFont", "av", "imageio.v3"):
        library(name)
    page = page_of(runs)
    if page.parent.exists() and not dry:
        check_writable(page, html.FORMATS)
    for env in {run.experiment.config.env.model_dump_json(): run.experiment.config.env for run in runs}.values():
        environments.check_drawable(env)


def write_report(app: App, runs: Sequence[PlannedRun]) -> str:
    """Write the page of runs that have ended; return the line that says where it is. Raises Stopped."""
    page = page_of(runs)
    files = [run.path for run in runs]
    try:
        has_film = write_page(app, files, page)
    except Stopped as why:
        later = command_line("report", *(files if len(files) == 1 else [page.parent]), "-o", page)
        raise Stopped(f"stopped by {why}: the runs are complete, but not the report; make it with: {later}") from None
    return sanitize(f"Report{' with film' if has_film else ''}: {page}", 4000)


def run_all(app: App, request: Request) -> None:
    """Do what a command line asks for, and say what has become of it. Raises EvolveError."""
    limit = request.configs[0].compute.time_limit
    if limit is not None:
        app.stop.limit(seconds(limit))
    if request.report:
        environments.without_display()  # before an environment is made
    experiments = [prepare(config) for config in request.configs]
    if not request.dry_run:
        experiments = [_with_backend(experiment) for experiment in experiments]
    runs = plan_runs(experiments, request.file)
    for run in runs:  # what a strategy refuses is to be refused before there is a file, and seeds decide too
        run.experiment.strategy(run.seed)
    previews = []
    if request.dry_run or request.overwrite:
        previews = [preview(run, request.resume, request.overwrite) for run in runs]
    if request.report:
        check_report(runs, request.dry_run)
    if request.dry_run:
        then = f"\nReport: {page_of(runs)}" if request.report else ""
        print(describe(previews, _who(app, request)) + then, flush=True)
        return
    new = check_and_create_runs(
        runs, request.resume, app.transport, app.stop.reason, spot_check, overwrite=request.overwrite
    )
    if request.resume and new:
        more = f", and {len(new) - 1} more" if new[1:] else ""
        _say(f"nothing to resume, a new run begins: {new[0].path}{more}")
    replaced = [each for each in previews if each.action == "replace"]
    for each in replaced:
        _say(_loss(each))
    if app.transport.could_tolerate and not is_supervised():
        print(_HINT, file=sys.stderr, flush=True)
    _evolve(app, runs, {each.run.path for each in replaced})
    report = write_report(app, runs) if request.report else ""
    print(steps_after([run.path for run in runs], report), flush=True)


def _with_backend(experiment: Experiment) -> Experiment:
    """Return an experiment with the back end that "auto" stands for here, and say what a GPU would do."""
    chosen, trial = choose_backend(experiment)
    for words in (str(trial or ""), host_fallback(chosen)):
        if words:
            _say(words)
    return chosen


def _who(app: App, request: Request) -> str:
    """Return in words which processes would do the work."""
    if request.workers is not None:
        return crew(request.workers, request.work).describe()
    ranks = app.transport.size
    return "one process" if ranks == 1 else f"{pluralize(ranks - 1, 'worker')} and a coordinator"


def _say(text: str) -> None:
    print(f"evolve.run: {text}", file=sys.stderr, flush=True)


def _loss(replaced: RunPreview) -> str:
    """Return what is lost when a run file is replaced."""
    stored = replaced.stored
    assert stored is not None
    best = max(float(record.champion_fitness) for record in stored.records)
    whole = "complete" if stored.complete else "not complete"
    lost = f"{pluralize(stored.num_generations, 'generation')} ({whole}; best fitness {best:.2f})"
    return f"{replaced.run.path} is replaced as soon as a new generation is complete; then {lost} will be lost"


def _evolve(app: App, runs: Sequence[PlannedRun], replaced: set[object]) -> None:
    coordinator = app.coordinator()
    clock = RunsClock([_episodes_left(run, run.path in replaced) for run in runs])
    for number, run in enumerate(runs, 1):
        with closing(replace_run(run, app.transport) if run.path in replaced else open_run(run)) as opened:
            if opened.complete:
                print(f"{run.path}: already complete")
                continue
            print(_title(run, number, runs), end="", flush=True)
            clock.start(number - 1)
            resume = how_to_resume(runs, app.transport.size)
            app.stop.last_words = (
                f"evolve.run: stopped; {run.path} keeps its complete generations; continue with: {resume}"
            )
            _run_one(coordinator, run, opened, resume, clock)
            app.stop.last_words = ""


def _episodes_left(run: PlannedRun, replaced: bool) -> int:
    """Return how many episodes a run has to play, as far as its file tells; a complete one may be extended."""
    config = run.experiment.config
    done, complete = (0, False) if replaced else store.read_progress(run.path)
    return 0 if complete and done >= config.generations else size_of(config, done).episodes


def _title(run: PlannedRun, number: int, runs: Sequence[PlannedRun]) -> str:
    """Return what one of several runs is announced by; a directory's name is what its sweep calls the experiment."""
    if len(runs) == 1:
        return ""
    return f"run {number} of {len(runs)}: {run.path.parent.resolve().name}/{run.path.name}\n"


def _run_one(coordinator: Coordinator, run: PlannedRun, file: RunFile, resume: str, clock: RunsClock) -> None:
    config = run.experiment.config
    steps = config.early_stop.steps
    left = math.inf if steps is None else steps - file.steps
    try:
        with ProgressReporter(run.seed, file.num_generations, config.generations, steps=left, clock=clock) as reporter:
            coordinator.progress = reporter.update
            for record in iterate(run.experiment, coordinator, file):
                reporter(record)
    except Stopped as why:
        then = "" if file.replaces else f"; continue with --resume: {resume}"
        raise type(why)(f"stopped by {why}: {generations_on_disk(file)}{then}") from None
    except EpisodeError as error:
        alone = f"Play it alone: {replay_line(run.path, error)}"
        worst = "Let such episodes count as the worst: --set env.on_failure=worst (in a new run)"
        raise RunError(error, f"\n{alone}\n{worst}\n{generations_on_disk(file)}.") from None
    except RunError as error:
        raise RunError(error, f"\n{generations_on_disk(file)}.") from None
    print(_summary(file, config.generations), flush=True)


def _summary(file: RunFile, generations: int) -> str:
    last = file.last
    assert last is not None
    ever = "best of all {:.2f}, in generation {}".format(*file.best)
    best = f"best of the last generation ({file.num_generations - 1}) {last.champion_fitness:.2f}"
    lines = [f"{file.path}: {best}; {ever}; digest {last.digest.decode()}"]
    if file.num_generations < generations:
        of = f"{file.num_generations} of {pluralize(generations, 'generation')}"
        lines.append(f"stopped early, after {of} and {file.steps:,} steps")
    if file.held_out is not None:
        episodes = pluralize(len(file.held_out.returns), "held-out episode")
        lines.append(f"held-out champion, {episodes}: {summary(file.held_out.returns)}")
    return "\n".join(lines)
