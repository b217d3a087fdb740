"""The command: its options, what it measures, and tables or JSON."""

import json
import tempfile
from pathlib import Path
from typing import Any

from evolve.cli.app import App, StopFlag, launch
from evolve.cli.bench import bounds, rollouts, tables
from evolve.cli.parser import HIDDEN, Parser
from evolve.cluster import Transport
from evolve.config import Config, parse, read_assignment, set_key
from evolve.environments.function_task import ID as SLEEP
from evolve.errors import InputError
from evolve.training import Experiment, prepare

_ENVIRONMENT = {"env.id": "CartPole-v1", "env.engine": "gymnasium"}
"""Where none is asked for."""
_RANKS = [3]


def _parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        "evolve.bench",
        "Measure the engine against bare environments on the same episodes, side by side. It starts mpirun itself.",
        "python -m evolve.bench -e BipedalWalker-v3 -p 138 -r 8 --ranks 1 3",
        "python -m evolve.bench --sleep-env 0.03 -p 640 -r 10 --ranks 65",
    )
    add = made.add_argument
    add("-e", "--env", dest="env.id", metavar="ID", help="environment")
    add("--engine", dest="env.engine", metavar="NAME", help="gymnasium, envpool or exact")
    add("-p", "--population", type=int, metavar="P", default=138, help="candidates")
    add("-r", "--episodes", type=int, metavar="E", default=8, help="episodes per candidate")
    add("-d", "--hidden", dest="network.hidden", type=int, nargs="*", metavar="H", default=[8, 8], help="hidden layers")
    add(
        "-g",
        "--generation",
        type=int,
        default=0,
        metavar="G",
        help="measure this generation; 0: the initial population",
    )
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help="set any key")
    add("--ranks", type=int, nargs="+", metavar="R", help="ranks: a coordinator and R - 1 workers")
    add("--pairs", type=int, default=3, metavar="N", help="how many times each is measured; 0: no rollouts")
    sleep = "episodes that only sleep, for so long in the mean: measures scheduling on any number of ranks"
    add("--sleep-env", type=float, nargs="?", const=0.03, metavar="SECONDS", dest="sleep", help=sleep)
    add("--json", action="store_true", help="print the figures as JSON")
    add(rollouts.MEASURE, metavar="FILE", help=HIDDEN)
    return made


def _check_options(arguments: dict[str, Any], transport: Transport) -> None:
    """Raise InputError for options that make no sense, and where this is not the only rank."""
    for option, least in (("pairs", 0), ("generation", 0), ("sleep", 0)):
        if arguments[option] is not None and arguments[option] < least:
            raise InputError(f"--{option}", f"at least {least}", arguments[option])
    if min(arguments["ranks"] or [1]) < 1:
        raise InputError("--ranks", "at least one rank", min(arguments["ranks"]))
    if transport.size > 1:
        raise InputError(
            "mpirun", "evolve.bench to be started alone: it starts mpirun itself", f"{transport.size} ranks"
        )


def _experiment(arguments: dict[str, Any]) -> Experiment:
    table: dict[str, Any] = {"network": {"name": "hebbian-dag"}, "held_out_episodes": 0}
    table["generations"] = arguments["generation"] + 1
    for key in ("env.id", "env.engine", "population", "episodes", "network.hidden"):
        set_key(table, key, _ENVIRONMENT.get(key) if arguments[key] is None else arguments[key])
    if arguments["sleep"] is not None:
        asleep = {"id": SLEEP, "kwargs": {"seconds": arguments["sleep"]}, "reuse": True}
        table |= {"env": asleep, "compute": {"slots": 1}}
    for assignment in arguments["assignments"]:
        set_key(table, *read_assignment(assignment))
    return prepare(parse(Config, table))


def _words(experiment: Experiment) -> list[str]:
    """Return the options that give evolve.run the environment and network of this bench."""
    c = experiment.config
    hidden = [str(size) for size in getattr(c.network.options, "hidden", ())]
    words = ["-e", c.env.id, "--engine", c.env.engine, "--set", f"compute.slots={c.compute.slots}"]
    return [*words, *(["-d", *hidden] if hidden else [])]


def _sweep(
    experiment: Experiment, run: Path, arguments: dict[str, Any], argv: list[str], stop: StopFlag, show: Any
) -> dict[int, Any]:
    sweep: dict[int, Any] = {}
    for ranks in arguments["ranks"] or _RANKS:
        if arguments["sleep"] is None:
            sweep[ranks] = rollouts.compare(experiment, argv, run, ranks, arguments["pairs"], stop)
            show(tables.rollouts(sweep[ranks]))
        else:
            sweep[ranks] = rollouts.schedule(argv, run, ranks, arguments["pairs"])
            show(tables.schedule(sweep[ranks]))
    return sweep


def _body(app: App, argv: list[str]) -> int:
    arguments = vars(_parser().parse_args(argv))
    if arguments["measure"]:
        return rollouts.measure(_experiment(arguments), app, arguments["measure"])
    _check_options(arguments, app.transport)

    def show(text: str) -> None:
        if not arguments["json"]:
            print(text, flush=True)

    experiment = _experiment(arguments)
    figures: dict[str, Any] = {"measured": tables.header(experiment)}
    show(figures["measured"])
    if arguments["sleep"] is None:
        with tempfile.TemporaryDirectory() as folder:
            figures["startup"] = bounds.startup_seconds(_words(experiment), folder)
        show(tables.startup(figures["startup"]))
        figures["inference"] = bounds.network_rows(experiment.network)
        show(tables.inference(figures["inference"]))
    if arguments["pairs"]:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run.h5"
            genomes = rollouts.begin(experiment, arguments["generation"], run)
            if arguments["sleep"] is None:
                figures["engines"] = bounds.engine_rows(experiment, genomes, arguments["generation"])
                show(tables.engines(figures["engines"]))
            figures["rollouts"] = _sweep(experiment, run, arguments, argv, app.stop, show)
    if arguments["json"]:
        print(json.dumps(figures))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("bench", _body, argv)
