"""evolve run: evolve an experiment, one seed after another, each into a run file of its own."""

import math
import sys
from collections.abc import Sequence
from contextlib import closing, redirect_stdout
from pathlib import Path

from evolve.analysis.statistics import summary
from evolve.cli.app import App, launch
from evolve.cli.output import BestEffortStream
from evolve.cli.parser import Parser
from evolve.cli.progress import ProgressReporter
from evolve.cli.replay import replay_line
from evolve.cluster import Coordinator
from evolve.config import Config, parse, read_assignment, read_file, seconds, sweep
from evolve.errors import EpisodeError, InputError, RunError, Stopped, pluralize
from evolve.networks import NETWORKS
from evolve.store import RunFile
from evolve.strategies import STRATEGIES
from evolve.training import iterate, prepare, settings_text
from evolve.training.resume import (
    PlannedRun,
    check_and_create_runs,
    check_same_names,
    check_same_run,
    experiment_table,
    generations_on_disk,
    open_run,
    plan_runs,
)
from evolve.verification import spot_check

_HINT = (
    "evolve.run: Ctrl-C and the loss of a worker end this run; complete generations are kept, --resume continues it. "
    "(Under mpirun --with-ft ulfm it would outlive its workers.)"
)
"""Said at the start: Open MPI's mpirun lets no rank say anything after Ctrl-C."""


def _parser() -> Parser:
    parser = Parser(
        "evolve.run",
        "Evolve an experiment; without arguments a small one. Flags override the TOML file.",
        "mpirun -n 64 python -m evolve.run -e BipedalWalker-v3 -r 8 -a hebbian-dag -p 138 -g 200 -d 8 8 -s 13 41337",
    )
    add = parser.add_argument
    usual = Config()
    add("experiment", nargs="?", metavar="EXPERIMENT.toml", help="the experiment; or, to --resume it, a run file")
    add("-e", "--env", dest="env.id", metavar="ID", help="Gymnasium environment, or module:Env-v0")
    add("-a", "--agent", dest="network.name", metavar="NAME", help=f"network (hebbian-dag): {', '.join(NETWORKS)}")
    known = f"strategy (prune): {', '.join(STRATEGIES)}"
    add("--strategy", dest="strategy.name", metavar="NAME", help=known)
    add("-p", "--population", type=int, metavar="P", help=f"candidates per generation ({usual.population})")
    add("-g", "--generations", type=int, metavar="G", help=f"generations ({usual.generations})")
    add("-r", "--episodes", type=int, metavar="E", help=f"episodes per candidate ({usual.episodes})")
    add(
        "-d",
        "--hidden",
        dest="network.hidden",
        type=int,
        nargs="+",
        metavar="H",
        help="hidden layer sizes (8 8 for hebbian-dag)",
    )
    add("-s", "--seed", dest="seeds", type=int, nargs="+", metavar="S", help="seeds, one run file each (0)")
    add("--engine", dest="env.engine", metavar="NAME", help="environment engine (gymnasium)")
    add("--backend", dest="compute.backend", metavar="NAME", help="network arithmetic: auto, numpy or native")
    add("-o", "--output", dest="output.directory", metavar="DIR", help="directory of the run files (runs/ENV-NETWORK)")
    add("--time-limit", dest="compute.time_limit", metavar="DURATION", help="stop resumably after 23h50m, 90s, …")
    add("--settings", action="store_true", help="print all settings, what they mean and their values, as TOML")
    add("--resume", action="store_true", help="continue from what the run files hold")
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help="set any key")
    return parser


def load(argv: list[str]) -> tuple[list[Config], Path | None, bool]:
    """Return the experiments a command line asks for, the run file that it names, if any, and whether to resume.

    Raises InputError.
    """
    parser = _parser()
    arguments = vars(parser.parse_args(argv))
    name = arguments.pop("experiment")
    assignments = arguments.pop("assignments")
    resume = arguments.pop("resume")
    shown = arguments.pop("settings")
    path = Path(name or "sweep")
    file = path if path.suffix == ".h5" else None
    if file and not (resume or shown):
        cure = f"To continue it: python -m evolve.run --resume {path}."
        raise InputError("EXPERIMENT.toml", "a TOML file", f"{path}, by its name a run file", cure)
    table = experiment_table(file) if file else read_file(path) if name else {}
    stored = parse(Config, table) if file else None
    given = [(key, value) for key, value in arguments.items() if value is not None]
    sweep.override(table, given + [read_assignment(words) for words in assignments])
    try:
        configs = sweep.experiments(table, path.stem)
    except InputError:
        if file and stored:  # the options are those of another network or strategy
            check_same_names(table, stored, file)
        raise
    if file and stored:
        check_same_run(configs[0], stored, file)
    if shown:
        _show(configs)
        parser.exit()
    return configs, file, resume


def _show(configs: list[Config]) -> None:
    if len(configs) > 1:
        cure = "Give what it sweeps over one value each, by flags or --set."
        raise InputError("--settings", "one experiment", f"a sweep of {len(configs)}", cure)
    print(settings_text(configs[0]), flush=True)


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


def _body(app: App, argv: list[str]) -> int:
    configs, file, resume = load(argv)
    with redirect_stdout(BestEffortStream(sys.stdout)):
        _run_all(app, configs, file, resume)
    return 0


def _run_all(app: App, configs: list[Config], file: Path | None, resume: bool) -> None:
    limit = configs[0].compute.time_limit
    if limit is not None:
        app.stop.limit(seconds(limit))
    runs = plan_runs([prepare(config) for config in configs], file)
    for run in runs:  # what a strategy refuses is to be refused before there is a file, and seeds decide too
        run.experiment.strategy(run.seed)
    new = check_and_create_runs(runs, resume, app.transport, app.stop.reason, spot_check)
    if resume and new:
        more = f", and {len(new) - 1} more" if new[1:] else ""
        print(f"evolve.run: nothing to resume, a new run begins: {new[0].path}{more}", file=sys.stderr, flush=True)
    if app.transport.could_tolerate:
        print(_HINT, file=sys.stderr, flush=True)
    coordinator = app.coordinator()
    for number, run in enumerate(runs, 1):
        with closing(open_run(run)) as opened:
            if opened.complete:
                print(f"{run.path}: already complete")
                continue
            print(_title(run, number, runs), end="", flush=True)
            _run_one(app, coordinator, run, opened)


def _title(run: PlannedRun, number: int, runs: Sequence[PlannedRun]) -> str:
    """Return what one of several runs is announced by; a directory's name is what its sweep calls the experiment."""
    if len(runs) == 1:
        return ""
    return f"run {number} of {len(runs)}: {run.path.parent.resolve().name}/{run.path.name}\n"


def _run_one(app: App, coordinator: Coordinator, run: PlannedRun, file: RunFile) -> None:
    config = run.experiment.config
    steps = config.early_stop.steps
    left = math.inf if steps is None else steps - file.steps
    try:
        with ProgressReporter(run.seed, file.num_generations, config.generations, steps=left) as reporter:
            coordinator.progress = reporter.update
            for record in iterate(run.experiment, coordinator, file):
                reporter(record)
    except Stopped as why:
        raise Stopped(f"stopped by {why}: {generations_on_disk(file)}; continue with --resume.") from None
    except EpisodeError as error:
        alone = f"Play it alone: {replay_line(run.path, error)}"
        worst = "Let such episodes count as the worst: --set env.on_failure=worst (in a new run)"
        raise RunError(f"{error}\n{alone}\n{worst}\n{generations_on_disk(file)}.") from None
    except RunError as error:
        raise RunError(f"{error}\n{generations_on_disk(file)}.") from None
    print(_summary(file, config.generations), flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("run", _body, argv)
