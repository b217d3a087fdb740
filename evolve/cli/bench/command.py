"""The command: parse, measure, print tables or JSON."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolve.cli.app import App, launch
from evolve.cli.bench import network_speed, rollouts, startup, tables
from evolve.cli.bench.device_bench import BUDGET, check_figure, draw, measure_devices
from evolve.cli.bench.recording import population
from evolve.cli.parser import HIDDEN, Parser
from evolve.cli.signals import StopFlag
from evolve.cluster import Transport
from evolve.config import Config, parse, read_assignment, set_key
from evolve.environments.sleeping import ID as SLEEP
from evolve.errors import InputError, Stopped
from evolve.training import Experiment, prepare

_ENVIRONMENT = {"env.id": "CartPole-v1", "env.engine": "gymnasium"}
"""Where none is asked for."""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        "evolve.bench",
        "Measure the engine against bare environments on the same episodes, side by side. It starts mpirun itself.",
        "python -m evolve.bench -e BipedalWalker-v3 -p 138 -r 8 --ranks 1 3",
        "python -m evolve.bench --sleep-env 0.03 -p 640 -r 10 --ranks 65",
        "python -m evolve.bench --devices -o speed.png",
    )
    add = made.add_argument
    add("-e", "--env", dest="env.id", metavar="ID", help="environment")
    add("--engine", dest="env.engine", metavar="NAME", help="gymnasium or envpool")
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
    add("--ranks", type=int, nargs="+", default=[3], metavar="R", help="ranks: a coordinator and R - 1 workers")
    add("--pairs", type=int, default=3, metavar="N", help="how many times each is measured; 0: no rollouts")
    sleep = "episodes that only sleep, for so long in the mean: measures scheduling on any number of ranks"
    add("--sleep-env", type=float, nargs="?", const=0.03, metavar="SECONDS", dest="sleep", help=sleep)
    add("--json", action="store_true", help="print the figures as JSON")
    devices = "when a GPU pays: steps of small to large networks on the host and on a GPU, then whole rollouts"
    add("--devices", action="store_true", help=devices)
    budget = "with --devices: about how long it may take; what is too large for that is not measured"
    add("--budget", type=float, default=BUDGET, metavar="SECONDS", help=budget)
    add("-o", "--figure", type=Path, metavar="OUT", help="with --devices: draw it, as OUT.png, .svg or .pdf")
    add(rollouts.MEASURE, metavar="FILE", help=HIDDEN)
    return made


def _experiment(arguments: dict[str, Any]) -> Experiment:
    table: dict[str, Any] = {"network": {"name": "hebbian-dag"}, "held_out_episodes": 0}
    for key in ("env.id", "env.engine", "population", "episodes", "network.hidden"):
        set_key(table, key, _ENVIRONMENT.get(key) if arguments[key] is None else arguments[key])
    if arguments["sleep"] is not None:
        asleep = {"id": SLEEP, "kwargs": {"seconds": arguments["sleep"]}, "reuse": True}
        table |= {"env": asleep, "compute": {"slots": 1}}
    for assignment in arguments["assignments"]:
        set_key(table, *read_assignment(assignment))
    return prepare(parse(Config, table))


def _check(arguments: dict[str, Any], transport: Transport) -> None:
    for option, least in (("pairs", 0), ("generation", 0), ("sleep", 0), ("budget", 0)):
        if arguments[option] is not None and arguments[option] < least:
            raise InputError(f"--{option}", f"at least {least}", arguments[option])
    if arguments["figure"] is not None and not arguments["devices"]:
        raise InputError("--figure", "--devices, whose measurements it draws", "none")
    check_figure(arguments["figure"])
    if min(arguments["ranks"]) < 1:
        raise InputError("--ranks", "at least one rank", min(arguments["ranks"]))
    if transport.size > 1:
        raise InputError(
            "mpirun", "evolve.bench to be started alone: it starts mpirun itself", f"{transport.size} ranks"
        )


def _words(experiment: Experiment) -> list[str]:
    """Return the options that give evolve.run the environment and network of this bench."""
    c = experiment.config
    hidden = [str(size) for size in getattr(c.network.options, "hidden", ())]
    words = ["-e", c.env.id, "--engine", c.env.engine, "--set", f"compute.slots={c.compute.slots}"]
    return [*words, *(["-d", *hidden] if hidden else [])]


def _sweep(experiment: Experiment, arguments: dict[str, Any], argv: list[str], stop: StopFlag, show: Any) -> Any:
    sweep: dict[int, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        genomes = Path(folder) / "genomes.npz"
        rollouts.save(population(experiment, arguments["generation"]), genomes)
        for ranks in arguments["ranks"]:
            if arguments["sleep"] is None:
                sweep[ranks] = rollouts.compare(experiment, argv, genomes, ranks, arguments["pairs"], stop)
                show(tables.rollouts(sweep[ranks]))
            else:
                sweep[ranks] = rollouts.schedule(argv, genomes, ranks, arguments["pairs"])
                show(tables.schedule(sweep[ranks]))
    return sweep


def _devices(arguments: dict[str, Any], stop: StopFlag, show: Callable[[str], None]) -> dict[str, Any]:
    def check() -> None:
        if stop.reason() is not None:
            raise Stopped(f"stopped by {stop.reason()}")

    given = {key: arguments[key] for key in _ENVIRONMENT if arguments[key] is not None}
    env = _ENVIRONMENT | given
    asked = (env["env.id"], env["env.engine"]) if given else None
    found = measure_devices(arguments["budget"], show, check, asked)
    if arguments["figure"] is not None:
        draw(found, arguments["figure"])
        show(f"\n{arguments['figure']}")
    return found


def _body(app: App, argv: list[str]) -> int:
    arguments = vars(parser().parse_args(argv))
    if arguments["measure"]:
        return rollouts.measure(_experiment(arguments), app, arguments["measure"])
    _check(arguments, app.transport)

    def show(text: str) -> None:
        if not arguments["json"]:
            print(text, flush=True)

    if arguments["devices"]:
        found = _devices(arguments, app.stop, show)
        if arguments["json"]:
            print(json.dumps(found))
        return 0
    experiment = _experiment(arguments)
    figures: dict[str, Any] = {"measured": tables.header(experiment)}
    show(figures["measured"])
    if arguments["sleep"] is None:
        with tempfile.TemporaryDirectory() as folder:
            figures["startup"] = startup.figures(_words(experiment), folder)
        show(tables.startup(figures["startup"]))
        figures["inference"] = network_speed.table(experiment.network)
        show(tables.inference(figures["inference"]))
    if arguments["pairs"]:
        figures["rollouts"] = _sweep(experiment, arguments, argv, app.stop, show)
    if arguments["json"]:
        print(json.dumps(figures))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("bench", _body, argv)
