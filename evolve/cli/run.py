"""evolve run: evolve an experiment, one seed after another. Each seed has its own run file.

`load` reads the command line and returns a `Request`. `run_all` plans its runs, describes them for --dry-run, or
evolves them by `training.iterate`.
"""

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, redirect_stdout, suppress
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evolve import environments, networks, store, strategies
from evolve.analysis import statistics, tensorboard
from evolve.analysis.progress import ProgressReporter, RunsClock, heading, why_early
from evolve.cli.app import App, BestEffortStream, print_error, say
from evolve.cli.parser import Parser, command_line, file_argument, how_to_resume, steps_after
from evolve.cluster import Watchdog, supervision
from evolve.cluster.cores import Work, count_workers
from evolve.config import (
    Config,
    EnvOptions,
    Table,
    UnknownKeyError,
    annotated_toml,
    differences,
    documents,
    parse,
    read_assignment,
    read_file,
    seconds,
)
from evolve.errors import EpisodeError, EpisodeTimeout, InputError, RunError, Setting, Stopped, pluralize, sanitize
from evolve.training import Experiment, config_of, iterate, plan, prepare, resume, rollouts
from evolve.training.experiment import PlannedRun
from evolve.verification import spot_check

_ACTIONS = {"begin": "new", "resume": "resumed", "replace": "replaced", "keep": "complete already"}
_CAN_FILM_SECONDS = 10.0  # the longest time in which `_can_film` may make and close an environment
_HINT_ON_LOST_WORKERS = (
    "if a worker is lost, this run ends; complete generations are kept, and --resume continues it. (With mpirun "
    "--with-ft ulfm the run would go on without the worker.)"
)


class Request(NamedTuple):
    """The experiments of a command line, and the options for their runs.

    Attributes:
        configs: The experiments, at least one.
        file: The run file that the command line names to resume it, if any.
        resume: Whether to resume existing runs.
        overwrite: Whether to replace existing runs.
        dry_run: Whether only to describe the runs.
        report: Whether to write a page about all runs when they have ended.
        tensorboard: The directory of event files for TensorBoard, if any.
        workers: The value of --workers, a number or "auto". None without the option, and in the ranks that it starts.
    """

    configs: list[Config]
    file: Path | None
    resume: bool
    overwrite: bool = False
    dry_run: bool = False
    report: bool = False
    tensorboard: Path | None = None
    workers: int | str | None = None

    def options_to_repeat(self) -> list[str]:
        """Return the options that a resumed run needs again, because its file does not have them."""
        options = ["--report"] if self.report else []
        if self.tensorboard is not None:
            options += ["--tensorboard", str(self.tensorboard)]
        return options


_say = partial(say, "run")


def _parser() -> Parser:
    parser = Parser(
        "evolve.run",
        "Evolve an experiment; without arguments, a small example. Options override the TOML file.",
        "mpirun -n 64 evolve run -e BipedalWalker-v3 -r 8 -a hebbian-dag -p 138 -g 200 -d 8 8 -s 13 41337",
    )
    add = parser.add_argument
    default = Config()
    experiment = "the experiment; with --resume also a run file or its directory"
    add("experiment", nargs="?", type=file_argument, metavar="EXPERIMENT.toml", help=experiment)
    environment = "a Gymnasium environment, an exact task, or module:Env-v0 (CartPole-v1)"
    add("-e", "--env", dest="env.id", metavar="ID", help=environment)
    known = f"network (hebbian-dag): {', '.join(networks.NETWORKS)}, or one of an installed package"
    add("-a", "--network", dest="network.name", metavar="NAME", help=known)
    add("--agent", dest="network.name", help=argparse.SUPPRESS)  # the former name of --network
    known = f"strategy (prune): {', '.join(strategies.STRATEGIES)}, or one of an installed package"
    add("--strategy", dest="strategy.name", metavar="NAME", help=known)
    add("-p", "--population", type=int, metavar="P", help=f"candidates per generation ({default.population})")
    add("-g", "--generations", type=int, metavar="G", help=f"generations ({default.generations})")
    add("-r", "--episodes", type=int, metavar="E", help=f"episodes per candidate ({default.episodes})")
    sizes = "hidden layer sizes (8 8 for hebbian-dag)"
    add("-d", "--hidden", dest="network.hidden", type=int, nargs="+", metavar="H", help=sizes)
    add("-s", "--seed", dest="seeds", type=int, nargs="+", metavar="S", help="seeds, one run file each (0)")
    engine = "environment engine: gymnasium, envpool or exact (gymnasium)"
    add("--engine", dest="env.engine", metavar="NAME", help=engine)
    arithmetic = "back end of networks: auto, numpy, native for compiled kernels, or cupy for a GPU (auto)"
    add("--backend", dest="compute.backend", metavar="NAME", help=arithmetic)
    parser.add_threads("compute.threads")
    start = "genome with which the search begins: of a champion file, or the final champion of a run file or directory"
    add("--start-from", type=lambda file: {"file": file}, metavar="FILE", help=start)
    add("-o", "--output", dest="output.directory", metavar="DIR", help="directory of the run files (runs/ENV-NETWORK)")
    add("--time-limit", dest="compute.time_limit", metavar="DURATION", help="stop after 23h50m, 90s, … (resumable)")
    film = "at the end, write DIR/report.html with a film of the champion (needs the extras report and video)"
    add("--report", action="store_true", help=film)
    live = "write event files for TensorBoard during the runs, each in DIR/<directory of the run file>/seed-S"
    add("--tensorboard", type=file_argument, metavar="DIR", help=live)
    add("--settings", action="store_true", help="print all settings, their meanings and their values, as TOML")
    add("--resume", action="store_true", help="continue from the complete generations in the run files")
    overwrite = "replace existing run files, even with other settings, when the first new generation is complete"
    add("--overwrite", action="store_true", help=overwrite)
    add("--dry-run", action="store_true", help="describe the runs, their size and their files; write nothing")
    any_setting = "set any setting, such as strategy.sigma=0.1; may be repeated"
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help=any_setting)
    parser.add_workers()
    return parser


def load(argv: list[str]) -> Request:
    """Return the request of a command line. Raises InputError, and `Answered` after printing the settings."""
    parser = _parser()
    arguments = vars(parser.parse_args(argv))
    name = arguments.pop("experiment")
    assignments = arguments.pop("assignments")
    # The options that are fields of `Request`. The other options are settings of the experiment.
    fields = ("resume", "overwrite", "dry_run", "report", "tensorboard", "workers")
    request_fields = {field: arguments.pop(field) for field in fields}
    show_settings = arguments.pop("settings")
    resumes = request_fields["resume"]
    if request_fields["overwrite"] and resumes:
        raise InputError("--overwrite", "no --resume with it: one replaces run files, the other continues them", "both")
    # EXPERIMENT may name a TOML file, or a run file to resume. Refuse other names with a cure. Without a name, the path
    # "sweep" gives a sweep its title.
    path = Path(name or "sweep")
    if path.suffix == ".champion":
        cure = "A champion cannot be resumed; use it with evolve.evaluate, evolve.replay or --start-from."
        raise InputError("EXPERIMENT.toml", "a TOML file", f"{path}, which is named like a champion file", cure)
    if resumes and name and not os.path.exists(path):
        raise InputError("--resume", "a run file, its directory, or its TOML file", f"{path}, which does not exist")
    names_run = path.suffix == ".h5" or (resumes and name and os.path.isdir(path))
    file = store.one_run_file(path) if names_run else None
    if file and not (resumes or show_settings):
        cure = f"To continue it: python -m evolve.run --resume {shlex.quote(str(path))}."
        raise InputError("EXPERIMENT.toml", "a TOML file", f"{path}, which is named like a run file", cure)
    if name and path.suffix != ".toml" and not os.path.exists(path):
        cures = ("An environment is named with ", Setting("env.id", str(name)), ".")
        raise InputError("EXPERIMENT.toml", "a TOML file", f"{path}, which does not exist", *cures)
    # Keep the experiment of a run file as `stored`, because the options below change the table.
    stored = None
    if file:
        table = resume.experiment_table(file)
        stored = parse(Config, table)
    else:
        table = read_file(path) if name else {}
    # Keep the sections of the file for the cure of an error, because the options change `table`.
    in_file = {section: dict(table[section]) for section in table if isinstance(table[section], dict)}
    # Options override the file. The assignments of --set come last, so they override the other options.
    settings = [(key, value) for key, value in arguments.items() if value is not None]
    documents.override(table, settings + [read_assignment(words) for words in assignments])
    try:
        configs = documents.experiments(table, path.stem)
    except InputError as error:
        if file and stored:  # raises a clearer error if options name another network or strategy than the run file
            resume.check_same_names(table, stored, file)
        raise _with_cure(error, path, in_file, table) from None
    if file and stored:
        resume.check_same_run(configs[0], stored, file)
    if show_settings:
        _print_settings(configs)
        parser.exit()
    return Request(configs, file, **request_fields)


def _with_cure(error: InputError, path: Path, in_file: Table, table: Table) -> InputError:
    """Return an error, with a cure if options name another network or strategy, which lacks a setting in the file.

    in_file: The sections of the file. table: The same sections, changed by the options.
    """
    section, _, key = error.argument.partition(".")
    if not isinstance(error, UnknownKeyError) or key not in in_file.get(section, {}):
        return error
    chosen, earlier = table[section].get("name"), in_file[section].get("name")
    if chosen == earlier:
        return error
    # The option has replaced the name in the file, but not the settings beside the name.
    cure = f"{path} sets {key} for {earlier}. To leave out its settings: --set '{section}={{name=\"{chosen}\"}}'."
    return InputError.plainly(error.argument, error, " ", cure)


def _print_settings(configs: list[Config]) -> None:
    if len(configs) > 1:
        cure = "Give each setting of the sweep one value by --set. Give a table as --set 'network={name=\"mlp\"}'."
        raise InputError("--settings", "one experiment", f"a sweep of {len(configs)}", cure)
    config = configs[0]
    print(annotated_toml(config, environments.kwargs_model(config.env)), flush=True)


def describe(previews: Sequence[plan.RunPreview], processes: str) -> str:
    """Return the text that a dry run prints. processes: The processes that would play the episodes, in words."""
    lines = ["Dry run: nothing is written."]
    # Group by the object `experiment`, which runs share if they have the same settings and begin with the same genome.
    for _, runs in groupby(previews, key=lambda each: id(each.run.experiment)):
        lines += ["", *_describe_experiment(list(runs))]
    total = _quantity(sum((each.size for each in previews), start=plan.RunSize(0, 0)))
    return "\n".join([*lines, "", f"In all: {pluralize(len(previews), 'run')}, {total}, by {processes}."])


def _describe_experiment(previews: list[plan.RunPreview]) -> list[str]:
    first = previews[0].run
    config, start = first.experiment.config, first.experiment.config.start_from
    names = sanitize(f"{config.env.id}, {config.network.name}, {config.strategy.name}")
    parameters = f"{pluralize(first.experiment.network.num_weights, 'parameter')} per network"
    episodes, generations = pluralize(config.episodes, "episode"), pluralize(config.generations, "generation")
    size = f"  {names}: {parameters}, population of {config.population:,}, {episodes} each, {generations}"
    size += f"; run files of about {max(0.1, plan.file_bytes(first.experiment) / 1e6):,.1f} MB"
    genome = [] if start is None else [sanitize(f"  begins with {start.describe()}", 4000)]
    runs = [f"  {each.run.path.name}: {_describe_run(each)}" for each in previews]
    return [sanitize(f"{first.path.parent}/", 4000), size, *genome, *runs]


def _describe_run(preview: plan.RunPreview) -> str:
    stored, progress = preview.stored, ""
    if stored is not None and preview.action == "replace":
        progress = f", {pluralize(stored.num_generations, 'generation')} would be lost"
    elif stored is not None:
        generations = pluralize(preview.run.experiment.config.generations, "generation")
        progress = f", {stored.num_generations:,} of {generations} complete"
    remaining = "" if preview.action == "keep" else f"; {_quantity(preview.size)}"
    return f"{_ACTIONS[preview.action]}{progress}{remaining}"


def _quantity(size: plan.RunSize) -> str:
    steps = "no limit of steps is known" if size.steps is None else f"at most {pluralize(size.steps, 'step')}"
    return f"{pluralize(size.episodes, 'episode')}, {steps}"


def run_all(app: App, request: Request) -> None:
    """Evolve or describe the runs of a request, and print the results. Raises EvolveError."""
    limit = request.configs[0].compute.time_limit  # the same in all experiments of a sweep
    if limit is not None:
        app.stop.limit(seconds(limit))
    if request.report and any(config.env.engine != "exact" for config in request.configs):
        environments.draw_without_display()  # before an environment is made
    # A dry run chooses no back end, because a GPU may play trial episodes for the choice.
    experiments = [prepare(config) for config in request.configs]
    if not request.dry_run:
        experiments = [_with_backend(experiment) for experiment in experiments]
    runs = plan.plan_runs(experiments, request.file, request.resume)
    # Making a strategy checks its settings, and the checks can depend on the seed. So make the strategy of each run
    # before the first file is created.
    for run in runs:
        run.experiment.strategy(run.seed)
    # For the text of a dry run, and for the warnings of --overwrite.
    previews = []
    if request.dry_run or request.overwrite:
        previews = [plan.preview(run, request.resume, request.overwrite) for run in runs]
    after_generation = None
    # Check that the page can be made: now, or after the first generation.
    if request.report:
        from evolve.cli import report  # noqa: PLC0415 - a run without a report does not need it

        if request.dry_run or not report.can_check_later(runs):
            report.check(runs, request.dry_run)
        else:
            # The check imports libraries for seconds, so it waits until the first generation has been shown.
            report.check_path(runs)
            after_generation = cache(partial(report.check, runs))  # cached: only the first call checks
    _check_tensorboard(request, runs)
    if request.dry_run:
        report_line = f"\nReport: {report.path_for(runs)}" if request.report else ""
        print(describe(previews, _processes(app, request)) + report_line, flush=True)
        return
    # Check the existing files of all runs, and create all new files, before the first run begins.
    check = partial(spot_check, stop_reason=app.stop.reason)
    new = resume.check_and_create_runs(runs, request.resume, app.transport, check, request.overwrite)
    if request.resume and new:
        more = f", and {len(new) - 1} more" if new[1:] else ""
        _say(f"nothing to resume, a new run begins: {new[0].path}{more}")
    replaced = [each for each in previews if each.action == "replace"]
    for each in replaced:
        _say(_replacement_warning(each))
    # The hint names an option of mpirun. With a supervisor, the user does not start mpirun.
    if app.transport.could_tolerate and not supervision.is_supervised():
        _say(_HINT_ON_LOST_WORKERS)
    failed = _evolve(app, runs, {each.run.path for each in replaced}, request, after_generation)
    # The page has all runs except failed ones without a complete generation.
    begun = [run for run in runs if run.path not in failed or store.read_progress(run.path)[0]]
    page = report.write_after_runs(app, begun) if request.report and begun else ""
    _check_none_failed(runs, failed, page)
    can_film = _can_film(runs[0].experiment.config.env)
    print(steps_after([run.path for run in runs], page, can_film), flush=True)


def _check_none_failed(runs: Sequence[PlannedRun], failed: Sequence[Path], page: str) -> None:
    """Raise RunError if runs have failed, after printing `page`: a line about the page of the other runs, or ""."""
    if failed:
        print(page, end="\n" if page else "", flush=True)
        names = statistics.listed([str(path) for path in failed])
        raise RunError(f"{len(failed)} of {len(runs)} runs failed, see above: {names}")


def _can_film(env: EnvOptions) -> bool:
    """Return whether an environment can be drawn; True if this is unknown. Gymnasium may draw in place of EnvPool."""
    if env.engine == "exact":
        return environments.is_drawable_task(env.id)
    # The run has succeeded, so an environment that now fails must not end this command, and neither must one that hangs
    # in Python. Only a hang in C ends the command, with a traceback.
    with suppress(InputError, EpisodeTimeout), Watchdog(min(_CAN_FILM_SECONDS, env.max_episode_seconds), fatal=True):
        return env.engine == "envpool" or environments.declares_frames(env)
    return True


def _check_tensorboard(request: Request, runs: Sequence[PlannedRun]) -> None:
    """Raise InputError if event files cannot be written, as a library is missing or their directory is read-only."""
    if request.tensorboard is None:
        return
    tensorboard.check_library("--tensorboard")
    if not request.dry_run:
        for run in runs:  # making a log makes its directory, or raises the error
            tensorboard.LiveLog(request.tensorboard, run.path, "--tensorboard")


def _with_backend(experiment: Experiment) -> Experiment:
    """Return an experiment with the back end that "auto" selects here. Print why a GPU is used or not used."""
    chosen, trial = rollouts.choose_backend(experiment)
    for remark in (str(trial or ""), rollouts.host_fallback(chosen)):
        if remark:
            _say(remark)
    return chosen


def _processes(app: App, request: Request) -> str:
    """Return the processes that would play the episodes, in words."""
    if request.workers is not None:
        return count_workers(request.workers, plan.work_of(request.configs)).describe()
    ranks = app.transport.size
    return "one process" if ranks == 1 else f"{pluralize(ranks - 1, 'worker')} and a coordinator"


def _replacement_warning(preview: plan.RunPreview) -> str:
    """Return the warning that a run file will be replaced, and its generations will be lost."""
    stored = preview.stored
    assert stored is not None
    state = "complete" if stored.complete else "not complete"
    best = statistics.number(stored.best_fitness)
    lost = f"{pluralize(stored.num_generations, 'generation')} ({state}; best fitness {best})"
    # For example "seed-7.h5, of seed 5, is replaced".
    parts = [sanitize(str(preview.run.path), 4000)]
    if changed := differences(preview.run.experiment.config, config_of(stored)):
        key, here, there = changed[0]
        parts.append(f"of another experiment ({key} is {there!r} in it, and {here!r} here)")
    if stored.header.seed != preview.run.seed:  # the file was renamed
        parts.append(f"of seed {stored.header.seed}")
    comma = "," if len(parts) > 1 else ""
    replaced = f"{', '.join(parts)}{comma} is replaced as soon as a new generation is complete"
    return f"{replaced}; then {lost} will be lost"


def _evolve(
    app: App,
    runs: Sequence[PlannedRun],
    replaced: set[Path],
    request: Request,
    after_generation: Callable[[], None] | None,
) -> list[Path]:
    """Evolve runs one after another. Return the paths of the failed runs. The error of a single run is raised instead.

    replaced: The paths of the run files that the new runs replace.
    after_generation: Called after each generation, if it is not None.
    """
    coordinator = app.coordinator()
    clock = RunsClock([_remaining_episodes(run, run.path in replaced) for run in runs])
    failed: list[Path] = []
    for number, run in enumerate(runs, 1):
        # `number` counts from 1, so `runs[number:]` are the later runs.
        to_replace = [later for later in runs[number:] if later.path in replaced]
        command = how_to_resume(runs, app.transport.size, request.options_to_repeat(), request.overwrite, to_replace)
        generations, limit = run.experiment.config.generations, run.experiment.config.early_stop.steps
        if run.path not in replaced and resume.is_finished(run):
            played, _ = store.read_progress(run.path)
            stopped = f"after {played:,} of {generations:,} generations"
            early = f": it stopped early, {stopped}. Change early_stop to continue the run"
            print(f"{sanitize(str(run.path), 4000)}: already complete{early if played < generations else ''}")
            continue
        opened = resume.replace_run(run, app.transport) if run.path in replaced else resume.open_run(run, app.transport)
        with closing(opened) as file:
            print(heading(run.path, number, len(runs)), end="", flush=True)
            clock.start(number - 1)
            steps_left = math.inf if limit is None else limit - file.steps
            reporter = ProgressReporter(
                run.seed, file.num_generations, generations, steps_left=steps_left, clock=clock,
                validations=file.validations, plays_whole_episodes=run.experiment.plays_whole_episodes,
            )  # fmt: skip
            live_log = tensorboard.live_log(request.tensorboard, run.path, "--tensorboard")
            try:
                with _say_what_is_kept(app, file, command), reporter, live_log as log:
                    coordinator.progress = reporter.update
                    for record in iterate(run.experiment, coordinator, file):
                        reporter(record)
                        log(file.num_generations - 1, record)
                        if after_generation is not None:
                            after_generation()
            except _FailedRunError as error:
                if len(runs) == 1:
                    raise
                print_error("run", error)
                failed.append(run.path)
                continue
            print(_summary(file, run.experiment.config), flush=True)
            # A failed episode has the return NaN. If each candidate has one, no fitness is a number.
            if math.isnan(file.best[0]):
                _say(_failure_warning(file))
    return failed


class _FailedRunError(RunError):
    """An episode failed, so this run cannot go on. Other runs can."""


def _remaining_episodes(run: PlannedRun, is_replaced: bool) -> int:
    """Return the number of episodes that a run still has to play. is_replaced: Whether a new run replaces its file."""
    if not is_replaced and resume.is_finished(run):
        return 0
    generations = 0 if is_replaced else store.read_progress(run.path)[0]
    return plan.size_of(run.experiment.config, generations).episodes


@contextmanager
def _say_what_is_kept(app: App, file: store.RunFile, command: str) -> Iterator[None]:
    """After a signal or an error in this block, name the generations that the run file keeps, and the cure.

    command: The line that resumes the run.
    """

    def stop_message() -> str:
        # Until a generation replaces the old file, --resume would continue the old run.
        unchanged = file.replaces and not file.num_generations
        kept = f"{file.path} keeps its complete generations; continue with: {command}"
        return f"evolve.run: stopped; {resume.generations_on_disk(file) if unchanged else kept}"

    app.stop.stop_message = stop_message
    try:
        yield
    except Stopped as why:
        moved = not file.path.exists()
        how = "name its new place after --resume" if moved else f"continue with --resume: {command}"
        cure = "" if file.replaces else f"; {how}"
        # Keep the class, because `why` may be HostLost, a subclass of Stopped.
        raise type(why)(f"{why}: {resume.generations_on_disk(file)}{cure}") from None
    except EpisodeError as error:
        cures = resume.cures_of_failure(file, error)
        raise _FailedRunError(error, *cures, f"\n{resume.generations_on_disk(file)}.") from None
    except RunError as error:
        raise RunError(error, f"\n{resume.generations_on_disk(file)}.") from None
    except InputError as error:  # code of the user failed: a strategy, or a fitness
        raise InputError.plainly(error.argument, error, f" {resume.generations_on_disk(file)}.") from None
    finally:
        app.stop.stop_message = None


def _summary(file: store.RunFile, config: Config) -> str:
    last = file.last
    assert last is not None
    best, generation = file.best
    of_all = f"best of all {statistics.number(best)}, in generation {generation}"
    of_last = f"best of the last generation ({file.num_generations - 1}) {statistics.number(last.champion_fitness)}"
    fitness = "no candidate has a fitness" if math.isnan(best) else f"{of_last}; {of_all}"
    lines = [f"{sanitize(str(file.path), 4000)}: {fitness}; digest {last.digest.decode()}"]
    if file.num_generations < config.generations:
        done = f"{file.num_generations} of {pluralize(config.generations, 'generation')}"
        why = why_early(config.early_stop, file.steps, file.validations)
        lines.append(f"stopped early, after {done} and {file.steps:,} steps: {why}")
    if file.held_out is not None:
        episodes = pluralize(len(file.held_out.returns), "held-out episode")
        lines.append(f"champion, {episodes}: {statistics.summary(file.held_out.returns)}")
    return "\n".join(lines)


def _failure_warning(file: store.RunFile) -> str:
    """Return the warning that all candidates failed, with the command that plays a failed episode again."""
    assert file.last is not None
    failed = np.isnan(file.last.returns[file.last.champion_candidate])
    episode = int(np.argmax(failed))  # the first failed one
    last = ("--generation", str(file.num_generations - 1), "--episode", str(episode))
    see = f"see an error with: {command_line('replay', file.path, *last)}"
    return f"no candidate has a fitness, because each had a failed episode, so nothing was selected; {see}"


def _body(app: App, argv: list[str]) -> int:
    request = load(argv)
    # The results of a run are in its file, so the run goes on if stdout fails. A dry run has no other output.
    with nullcontext() if request.dry_run else redirect_stdout(BestEffortStream(sys.stdout)):
        run_all(app, request)
    return 0


def _work(argv: list[str]) -> Work:
    """Return the amount of work, by which `--workers auto` chooses the number of workers."""
    return plan.work_of(load(argv).configs)
