"""The options of the bench, and which of them go together."""

from pathlib import Path
from typing import Any

from evolve.cli.bench import rollouts
from evolve.cli.bench.device_bench import check_figure
from evolve.cli.parser import HIDDEN, Parser
from evolve.cluster import Transport
from evolve.errors import InputError


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        "evolve.bench",
        "Measure the engine against bare environments on the same episodes, side by side. It starts mpirun itself.",
        "python -m evolve.bench -e BipedalWalker-v3 -p 138 -r 8 --ranks 1 3",
        "python -m evolve.bench --sleep-env 0.03 -p 640 -r 10 --ranks 65",
        "python -m evolve.bench --devices -o speed.png",
        "python -m evolve.bench --scale --ranks 1 3 -o scale.png",
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
    devices = "when a GPU pays: steps of small to large networks on the host and on a GPU, then whole rollouts"
    add("--devices", action="store_true", help=devices)
    scale = "how bytes, rank 0's seconds and its memory grow with weights, candidates and ranks"
    add("--scale", action="store_true", help=scale)
    add("--weights", type=int, nargs="+", metavar="W", help="with --scale: about how many weights, 100 to 10,000,000")
    add("--candidates", type=int, nargs="+", metavar="P", help="with --scale: how many candidates, 64 to 16,384")
    budget = "with --devices or --scale: about how long it may take; what is too large for that is not measured"
    add("--budget", type=float, metavar="SECONDS", help=budget)
    add("-o", "--figure", type=Path, metavar="OUT", help="with either: draw it, as OUT.png, .svg or .pdf")
    add(rollouts.MEASURE, metavar="FILE", help=HIDDEN)
    return made


def check_options(arguments: dict[str, Any], transport: Transport) -> None:
    """Raise InputError for options that make no sense, and where this is not the only rank."""
    for option, least in (("pairs", 0), ("generation", 0), ("sleep", 0), ("budget", 0)):
        if arguments[option] is not None and arguments[option] < least:
            raise InputError(f"--{option}", f"at least {least}", arguments[option])
    if arguments["devices"] and arguments["scale"]:
        raise InputError("--scale", "one measurement at a time", "--devices, too")
    if arguments["figure"] is not None and not (arguments["devices"] or arguments["scale"]):
        raise InputError("--figure", "--devices or --scale, whose measurements it draws", "none")
    for option in ("weights", "candidates"):
        if arguments[option] is not None and not arguments["scale"]:
            raise InputError(f"--{option}", "--scale, whose grid it gives", "none")
    check_figure(arguments["figure"])
    if min(arguments["ranks"] or [1]) < 1:
        raise InputError("--ranks", "at least one rank", min(arguments["ranks"]))
    if transport.size > 1:
        raise InputError(
            "mpirun", "evolve.bench to be started alone: it starts mpirun itself", f"{transport.size} ranks"
        )
