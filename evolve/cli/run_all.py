"""The runs of one command line, one after another, each into a run file of its own."""

import math
import sys
from collections.abc import Sequence
from contextlib import closing

from evolve import environments, store
from evolve.analysis.statistics import summary
from evolve.cli.app import App
from evolve.cli.dry_run import describe
from evolve.cli.next_steps import how_to_resume, replay_line, steps_after
from evolve.cli.progress import ProgressReporter, RunsClock
from evolve.cli.request import Request
from evolve.cli.supervision import is_supervised
from evolve.cli.workers import crew
from evolve.cluster import Coordinator
from evolve.config import seconds
from evolve.errors import EpisodeError, RunError, Stopped, pluralize
from evolve.store import RunFile
from evolve.training import Experiment, iterate, prepare
from evolve.training.backend_trial import choose_backend, on_host
from evolve.training.foresight import Outlook, foresee
from evolve.training.plan import PlannedRun, plan_runs, size_of
from evolve.training.resume import check_and_create_runs, generations_on_disk, open_run, replace_run
from evolve.verification import spot_check

_HINT = (
    "evolve.run: the loss of a worker ends this run; complete generations are kept, --resume continues it. "
    "(Under mpirun --with-ft ulfm it would outlive its workers.)"
)


def run_all(app: App, request: Request) -> None:
    """Do what a command line asks for, and say what has become of it. Raises EvolveError."""
    limit = request.configs[0].compute.time_limit
    if limit is not None:
        app.stop.limit(seconds(limit))
    if request.report:
        from evolve.cli import run_report  # noqa: PLC0415 - with all that draws

        environments.without_display()  # before an environment is made
    experiments = [prepare(config) for config in request.configs]
    if not request.dry_run:
        experiments = [_with_backend(experiment) for experiment in experiments]
    runs = plan_runs(experiments, request.file)
    for run in runs:  # what a strategy refuses is to be refused before there is a file, and seeds decide too
        run.experiment.strategy(run.seed)
    outlooks = foresee(runs, request.resume, request.overwrite) if request.dry_run or request.overwrite else []
    if request.report:
        run_report.check_report(runs, request.dry_run)
    if request.dry_run:
        then = f"\nReport: {run_report.page_of(runs)}" if request.report else ""
        print(describe(outlooks, _who(app, request)) + then, flush=True)
        return
    new = check_and_create_runs(
        runs, request.resume, app.transport, app.stop.reason, spot_check, overwrite=request.overwrite
    )
    if request.resume and new:
        more = f", and {len(new) - 1} more" if new[1:] else ""
        _say(f"nothing to resume, a new run begins: {new[0].path}{more}")
    replaced = [outlook for outlook in outlooks if outlook.action == "replace"]
    for outlook in replaced:
        _say(_loss(outlook))
    if app.transport.could_tolerate and not is_supervised():
        print(_HINT, file=sys.stderr, flush=True)
    _evolve(app, runs, {outlook.run.path for outlook in replaced})
    report = run_report.write_report(app, runs) if request.report else ""
    print(steps_after([run.path for run in runs], report), flush=True)


def _with_backend(experiment: Experiment) -> Experiment:
    """Return an experiment with the back end that "auto" stands for here, and say what a GPU would do."""
    chosen, trial = choose_backend(experiment)
    for words in (str(trial or ""), on_host(chosen)):
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


def _loss(outlook: Outlook) -> str:
    """Return what is lost when a run file is replaced."""
    stored = outlook.stored
    assert stored is not None
    best = max(float(record.champion_fitness) for record in stored.records)
    whole = "complete" if stored.complete else "not complete"
    lost = f"{pluralize(stored.num_generations, 'generation')} ({whole}; best fitness {best:.2f})"
    return f"{outlook.run.path} is replaced as soon as a new generation is complete; then {lost} will be lost"


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
    done, complete = (0, False) if replaced else store.how_far(run.path)
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
        raise RunError(f"{error}\n{alone}\n{worst}\n{generations_on_disk(file)}.") from None
    except RunError as error:
        raise RunError(f"{error}\n{generations_on_disk(file)}.") from None
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
