"""evolve run: evolve an experiment, one seed after another, each into a run file of its own."""

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

from evolve.cli.app import App, BestEffortStream, launch
from evolve.cli.parser import Parser, one_run_file
from evolve.cli.run_all import Request
from evolve.cli.workers import Work, add_workers_option
from evolve.config import Config, annotated_toml, parse, read_assignment, read_file, sweep
from evolve.environments import TASKS
from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES
from evolve.training.resume import check_same_names, check_same_run, experiment_table


def _parser() -> Parser:
    parser = Parser(
        "evolve.run",
        "Evolve an experiment; without arguments a small one. Flags override the TOML file.",
        "mpirun -n 64 python -m evolve.run -e BipedalWalker-v3 -r 8 -a hebbian-dag -p 138 -g 200 -d 8 8 -s 13 41337",
    )
    add = parser.add_argument
    usual = Config()
    add(
        "experiment",
        nargs="?",
        metavar="EXPERIMENT.toml",
        help="the experiment; or, to --resume it, a run file or its directory",
    )
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
    add(
        "--backend",
        dest="compute.backend",
        metavar="NAME",
        help="network arithmetic: auto, numpy, native or cupy (a GPU)",
    )
    add("-o", "--output", dest="output.directory", metavar="DIR", help="directory of the run files (runs/ENV-NETWORK)")
    add("--time-limit", dest="compute.time_limit", metavar="DURATION", help="stop resumably after 23h50m, 90s, …")
    report = "at the end write a page with the champion's film, DIR/report.html (needs the extras report and video)"
    add("--report", action="store_true", help=report)
    add("--settings", action="store_true", help="print all settings, what they mean and their values, as TOML")
    add("--resume", action="store_true", help="continue from what the run files hold")
    overwrite = "replace run files of the same experiment that are there, each with its first new generation"
    add("--overwrite", action="store_true", help=overwrite)
    dry = "say what would run, how large it is and where it would go; write nothing"
    add("--dry-run", action="store_true", help=dry)
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help="set any key")
    add_workers_option(parser)
    return parser


def load(argv: list[str]) -> Request:
    """Return what a command line asks for; answers it where it asks for the settings. Raises InputError."""
    parser = _parser()
    arguments = vars(parser.parse_args(argv))
    name = arguments.pop("experiment")
    assignments = arguments.pop("assignments")
    flags = {flag: arguments.pop(flag) for flag in ("resume", "overwrite", "dry_run", "report", "workers")}
    shown = arguments.pop("settings")
    if flags["overwrite"] and flags["resume"]:
        raise InputError("--overwrite", "no --resume with it: the one begins anew, the other continues", "both")
    path = Path(name or "sweep")
    if path.suffix == ".champion":
        cure = "It has no search to go on with; evolve.evaluate and evolve.replay take it."
        raise InputError("EXPERIMENT.toml", "a TOML file", f"{path}, by its name a champion file", cure)
    file = one_run_file(path) if path.suffix == ".h5" or (flags["resume"] and path.is_dir()) else None
    if file and not (flags["resume"] or shown):
        cure = f"To continue it: python -m evolve.run --resume {shlex.quote(str(path))}."
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
    return Request(configs, file, **flags)


def _show(configs: list[Config]) -> None:
    if len(configs) > 1:
        cure = "Give what it sweeps over one value each, by flags or --set."
        raise InputError("--settings", "one experiment", f"a sweep of {len(configs)}", cure)
    config = configs[0]
    task = TASKS.get(config.env.id) if config.env.engine == "exact" else None
    print(annotated_toml(config, task.settings if task else None), flush=True)


def _body(app: App, argv: list[str]) -> int:
    request = load(argv)
    from evolve.cli.run_all import run_all  # noqa: PLC0415 - only rank 0 needs it, and only for good input

    with redirect_stdout(BestEffortStream(sys.stdout)):
        run_all(app, request)
    return 0


def _work(argv: list[str]) -> Work:
    return load(argv).work


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("run", _body, argv, _work)
