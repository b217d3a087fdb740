"""python -m evolve.run: evolve an experiment, one seed after another, each into a run file of its own."""

import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

from evolve import resuming, store, strategies, sweep
from evolve.cluster import World
from evolve.commands import Indifferent, Parser, coordinator, launch
from evolve.config import Config, parse, read_assignment, read_file, seconds
from evolve.console import Watch, interval
from evolve.errors import EpisodeError, InputError, RunError, Stopped, counted
from evolve.evolution import evolve
from evolve.experiment import Experiment, prepare, settings
from evolve.networks import NETWORKS
from evolve.stopping import StopFlag

_HINT = (
    "evolve.run: Ctrl-C and the loss of a worker end this run; what was told is kept, and --resume continues it. "
    "(Under mpirun --with-ft ulfm it would outlive its workers.)"
)
"""Said at the start: Open MPI's mpirun lets no rank say anything after Ctrl-C."""


def _parser() -> Parser:
    parser = Parser(
        "evolve.run",
        "Evolve an experiment; without arguments a small one. Flags override the TOML file.",
        "mpirun -n 64 python -m evolve.run -e BipedalWalker-v3 -r 8 -a hebbian-dag -p 138 -g 200 -d 8 8 -s 13 41337",
    )
    add, usual = parser.add_argument, Config()
    add("experiment", nargs="?", metavar="EXPERIMENT.toml", help="the experiment; or, to --resume it, a run file")
    add("-e", "--env", dest="env.id", metavar="ID", help="Gymnasium environment, or module:Env-v0")
    add("-a", "--agent", dest="network.name", metavar="NAME", help=f"network (hebbian-dag): {', '.join(NETWORKS)}")
    known = f"strategy (prune): {', '.join(strategies.STRATEGIES)}"
    add("--strategy", dest="strategy.name", metavar="NAME", help=known)
    add("-p", "--population", type=int, metavar="P", help=f"candidates per generation ({usual.population})")
    add("-g", "--generations", type=int, metavar="G", help=f"generations ({usual.generations})")
    add("-r", "--episodes", type=int, metavar="E", help=f"episodes per candidate ({usual.episodes})")
    add("-d", "--hidden", dest="network.hidden", type=int, nargs="+", metavar="H", help="hidden layer sizes (8 8)")
    add("-s", "--seed", dest="seeds", type=int, nargs="+", metavar="S", help="seeds, one run file each (0)")
    add("--engine", dest="env.engine", metavar="NAME", help="environment engine (gymnasium)")
    add("--backend", dest="compute.backend", metavar="NAME", help="network arithmetic: auto, numpy or native")
    add("-o", "--output", dest="output.directory", metavar="DIR", help="directory of the run files (runs/ENV-NETWORK)")
    add("--time-limit", dest="compute.time_limit", metavar="DURATION", help="stop resumably after 23h50m, 90s, …")
    add("--settings", action="store_true", help="print all settings, what they mean and their values, as TOML")
    add("--resume", action="store_true", help="continue from what the run files hold")
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help="set any key")
    return parser


def load(argv: list[str]) -> tuple[list[Config], bool | Path]:
    """Return the experiments a command line asks for, and whether to resume: the run file itself where one is named.

    Raises InputError.
    """
    parser = _parser()
    arguments = vars(parser.parse_args(argv))
    name, assignments, resume, shown = (
        arguments.pop(name) for name in ("experiment", "assignments", "resume", "settings")
    )
    path = Path(name or "sweep")
    itself = path if path.suffix == ".h5" else None
    table = resuming.table_of(path, resume or shown) if itself else read_file(path) if name else {}
    before = parse(Config, table) if itself else None
    given = [(key, value) for key, value in arguments.items() if value is not None]
    sweep.override(table, given + [read_assignment(words) for words in assignments])
    configs = sweep.experiments(table, path.stem)
    if itself and before:
        resuming.check_same(configs[0], before, itself)
    if shown:
        _show(configs)
        parser.exit()
    return configs, itself or resume


def _show(configs: list[Config]) -> None:
    if len(configs) > 1:
        cure = "Give what it sweeps over one value each, by flags or --set."
        raise InputError("--settings", "one experiment", f"a sweep of {len(configs)}", cure)
    print(settings(configs[0]), flush=True)


def _summary(file: store.RunFile, generations: int) -> str:
    last = file.last
    assert last is not None
    ever = "best ever {:.2f} in generation {}".format(*file.best)
    lines = [f"{file.path}: last generation ({file.told - 1}): best {last.champion_fitness:.2f}; {ever}; "
             f"digest {last.digest.decode()}"]  # fmt: skip
    if file.told < generations:
        lines.append(
            f"stopped early, after {file.told} of {counted(generations, 'generation')} and {file.steps:,} steps"
        )
    if file.held_out is not None:
        mean, half = interval(file.held_out.returns)
        spread = f" ± {half:.2f} (95 %)" if math.isfinite(half) else ""
        lines.append(f"champion on {counted(len(file.held_out.returns), 'held-out episode')}: {mean:.2f}{spread}")
    return "\n".join(lines)


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    configs, resume = load(argv)
    with redirect_stdout(Indifferent(sys.stdout)):
        return _run_all(configs, resume, world, stop)


def _run_all(configs: list[Config], resume: bool | Path, world: World, stop: StopFlag) -> int:
    limit = configs[0].compute.time_limit
    if limit is not None:
        stop.limit(seconds(limit))
    experiments = [prepare(config) for config in configs]
    for made in experiments:  # what a strategy refuses is to be refused before there is a file, and seeds decide too
        for seed in made.config.seeds:
            strategies.make(made.config.strategy, made.network, made.config.population, seed)
    with ExitStack() as opened:
        queued = resuming.open_all(opened, experiments, resume, world, stop.reason)
        if world.could_tolerate:
            print(_HINT, file=sys.stderr, flush=True)
        runs = [file.path for _, files in queued for file in files]
        titles = {path: _title(path, number, len(runs)) for number, path in enumerate(runs, 1)}
        for made, files in queued:
            _run(made, files, world, stop, titles)
    return 0


def _title(path: Path, number: int, runs: int) -> str:
    """Return what one of several runs is announced by; a directory's name is what its sweep calls the experiment."""
    return f"run {number} of {runs}: {path.parent.resolve().name}/{path.name}\n" if runs > 1 else ""


def _run(
    experiment: Experiment, files: list[store.RunFile], world: World, stop: StopFlag, titles: Mapping[Path, str]
) -> None:
    generations, enough = experiment.config.generations, experiment.config.early_stop.steps or math.inf
    farm = None
    for file in files:
        if file.complete:
            print(f"{file.path}: already complete")
            continue
        print(titles[file.path], end="", flush=True)
        farm = farm or coordinator(world, experiment.config, stop)
        try:
            with Watch(file.header.seed, file.told, generations, steps=enough - file.steps) as watch:
                farm.progress = watch.within
                evolve(experiment, farm, file, watch)
        except Stopped as why:
            raise Stopped(f"stopped by {why}: {resuming.told_in(file)}; continue with --resume.") from None
        except EpisodeError as wrong:
            alone = f"Play it alone: python -m evolve.replay {file.path} {wrong.replay}"
            worst = "Let such episodes count as the worst: --set env.on_failure=worst (in a new run)"
            raise RunError(f"{wrong}\n{alone}\n{worst}\n{resuming.told_in(file)}.") from None
        except RunError as wrong:
            raise RunError(f"{wrong}\n{resuming.told_in(file)}.") from None
        print(_summary(file, generations), flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("run", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
