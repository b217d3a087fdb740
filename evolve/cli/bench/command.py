"""The command: parse, measure, print tables or JSON."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolve.cli.app import App, StopFlag, launch
from evolve.cli.bench import engines, network_speed, rollouts, scale_run, startup, tables
from evolve.cli.bench.bench_options import check_options, parser
from evolve.cli.bench.device_bench import BUDGET, draw, measure_devices
from evolve.cli.bench.recording import population
from evolve.cli.bench.scale_bench import SCALE_BUDGET, cells, draw_scale, measure_scale
from evolve.cli.bench.scale_grid import Cell
from evolve.config import Config, parse, read_assignment, set_key
from evolve.environments.function_task import ID as SLEEP
from evolve.errors import Stopped
from evolve.genome import Genomes
from evolve.training import Experiment, prepare

_ENVIRONMENT = {"env.id": "CartPole-v1", "env.engine": "gymnasium"}
"""Where none is asked for."""
_RANKS = [3]


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


def _words(experiment: Experiment) -> list[str]:
    """Return the options that give evolve.run the environment and network of this bench."""
    c = experiment.config
    hidden = [str(size) for size in getattr(c.network.options, "hidden", ())]
    words = ["-e", c.env.id, "--engine", c.env.engine, "--set", f"compute.slots={c.compute.slots}"]
    return [*words, *(["-d", *hidden] if hidden else [])]


def _sweep(
    experiment: Experiment,
    genomes_asked: Genomes,
    arguments: dict[str, Any],
    argv: list[str],
    stop: StopFlag,
    show: Any,
) -> Any:
    sweep: dict[int, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        genomes = Path(folder) / "genomes.npz"
        rollouts.save(genomes_asked, genomes)
        for ranks in arguments["ranks"] or _RANKS:
            if arguments["sleep"] is None:
                sweep[ranks] = rollouts.compare(experiment, argv, genomes, ranks, arguments["pairs"], stop)
                show(tables.rollouts(sweep[ranks]))
            else:
                sweep[ranks] = rollouts.schedule(argv, genomes, ranks, arguments["pairs"])
                show(tables.schedule(sweep[ranks]))
    return sweep


def _studies(arguments: dict[str, Any], stop: StopFlag, show: Callable[[str], None]) -> dict[str, Any]:
    """Measure devices, or growth; return what was found."""

    def check() -> None:
        if stop.reason() is not None:
            raise Stopped(f"stopped by {stop.reason()}")

    budget = arguments["budget"]
    if arguments["scale"]:
        grid = cells(*(arguments[option] for option in ("weights", "candidates", "ranks")))
        found = measure_scale(grid, SCALE_BUDGET if budget is None else budget, show, check)
    else:
        given = {key: arguments[key] for key in _ENVIRONMENT if arguments[key] is not None}
        env = _ENVIRONMENT | given
        asked = (env["env.id"], env["env.engine"]) if given else None
        found = measure_devices(BUDGET if budget is None else budget, show, check, asked)
    if arguments["figure"] is not None:
        (draw_scale if arguments["scale"] else draw)(found, arguments["figure"])
        show(f"\n{arguments['figure']}")
    return found


def _body(app: App, argv: list[str]) -> int:
    arguments = vars(parser().parse_args(argv))
    if arguments["measure"] and arguments["scale"]:
        cell = Cell(arguments["weights"][0], arguments["candidates"][0], app.transport.size)
        return scale_run.measure(cell, app, arguments["measure"])
    if arguments["measure"]:
        return rollouts.measure(_experiment(arguments), app, arguments["measure"])
    check_options(arguments, app.transport)

    def show(text: str) -> None:
        if not arguments["json"]:
            print(text, flush=True)

    if arguments["devices"] or arguments["scale"]:
        found = _studies(arguments, app.stop, show)
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
        genomes = population(experiment, arguments["generation"])
        if arguments["sleep"] is None:
            figures["engines"] = engines.rows(experiment, genomes)
            show(tables.engines(figures["engines"]))
        figures["rollouts"] = _sweep(experiment, genomes, arguments, argv, app.stop, show)
    if arguments["json"]:
        print(json.dumps(figures))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("bench", _body, argv)
