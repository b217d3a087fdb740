"""The command: parse, measure, print a table or JSON."""

import argparse
import json
import statistics
import sys
from typing import Any

from evolve.bench import inference, rollouts
from evolve.cluster import World
from evolve.commands import Parser, launch
from evolve.config import Config, parse, read_assignment, set_key
from evolve.errors import InputError
from evolve.evolution import Experiment, prepare
from evolve.stopping import StopFlag

_EXAMPLE = """example:
  python -m evolve.bench -e BipedalWalker-v3 -p 138 -r 8 --workers 2
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="evolve.bench",
        description="Measure the engine against bare environments on the same episodes. It starts mpirun itself.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("-e", "--env", dest="env.id", metavar="ID", default="CartPole-v1", help="environment")
    add("--engine", dest="env.engine", metavar="NAME", default="gymnasium", help="gymnasium or envpool")
    add("-p", "--population", type=int, metavar="P", default=138, help="candidates")
    add("-r", "--episodes", type=int, metavar="E", default=8, help="episodes per candidate")
    add("-d", "--hidden", dest="network.hidden", type=int, nargs="*", metavar="H", default=[8, 8], help="hidden layers")
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help="set any key")
    add("--workers", type=int, nargs="+", default=[2], metavar="N", help="worker ranks, and bare processes; a sweep")
    add("--pairs", type=int, default=3, metavar="N", help="how many times each is measured")
    add("--json", action="store_true", help="print the figures as JSON")
    add(rollouts.MEASURE, action="store_true", help=argparse.SUPPRESS)
    return made


def _experiment(arguments: dict[str, Any]) -> Experiment:
    table: dict[str, Any] = {"network": {"name": "hebbian-dag"}, "held_out_episodes": 0}
    for key in ("env.id", "env.engine", "population", "episodes", "network.hidden"):
        set_key(table, key, arguments[key])
    for assignment in arguments["assignments"]:
        set_key(table, *read_assignment(assignment))
    return prepare(parse(Config, table))


def _print_inference(rows: list[dict[str, Any]], experiment: Experiment) -> None:
    names = [name for name in rows[0] if name != "slots"]
    print(f"{experiment.config.network['name']}, {experiment.network.weights} weights: nanoseconds per network step")
    print(f"{'slots':>14}" + "".join(f"{name:>12}" for name in names))
    for row in rows:
        print(f"{row['slots']:>14}" + "".join(f"{row[name]:>12,.0f}" for name in names))


def _print_rollouts(rows: list[dict[str, Any]], workers: int) -> None:
    print(f"\n{rows[0]['steps']:,} environment steps by {workers} workers, and by as many bare processes")
    print(
        f"{'bare steps/s':>14}{'engine steps/s':>16}{'ratio':>8}{'coordinator':>13}{'MB moved':>10}{'idle share':>12}"
    )
    for row in rows:
        print(f"{row['bare_rate']:>14,.0f}{row['rate']:>16,.0f}{row['ratio']:>8.3f}{row['coordinator_cpu']:>13.1%}"
              f"{row['bytes'] / 1e6:>10.1f}{statistics.fmean(row['idle']):>12.1%}")  # fmt: skip
    print(f"median ratio {statistics.median(row['ratio'] for row in rows):.3f}")


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = vars(parser().parse_args(argv))
    experiment = _experiment(arguments)
    if arguments["pairs"] < 1 or min(arguments["workers"]) < 0:
        raise InputError("--pairs, --workers", "at least one pair, and no negative number of workers", str(argv))
    if arguments["measure"]:
        return rollouts.measure(experiment, world, stop)
    if world.size > 1:
        raise InputError("mpirun", "evolve.bench to be started alone: it starts mpirun itself", f"{world.size} ranks")
    quiet = arguments["json"]
    steps = inference.table(experiment.network)
    if not quiet:
        _print_inference(steps, experiment)
    sweep = {}
    for workers in arguments["workers"]:
        sweep[workers] = rollouts.compare(experiment, argv, workers, arguments["pairs"], stop)
        if not quiet:
            _print_rollouts(sweep[workers], workers)
    if quiet:
        print(json.dumps({"inference": steps, "rollouts": sweep}))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("bench", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
