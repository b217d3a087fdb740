"""evolve bench: measure the start of evolve, a step of networks and of environments, and the speed of training.

Bare environments replay recorded network outputs, without networks and MPI. Their speed is the upper bound. In each
pair of measurements, the training loop plays the same episodes right after the bare environments. The speed of a
machine drifts, so compare the ratios of pairs, not the rates of different pairs. With `--sleep-env`, only the training
loop is measured. Then the least possible time is the duration of all episodes, divided by the number of workers.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.analysis.progress import width
from evolve.cli.app import App, StopFlag, stdout_for_json
from evolve.cli.bench import measurements
from evolve.cli.parser import Parser
from evolve.cluster import Transport, check_start
from evolve.cluster.cores import check_not_too_many
from evolve.cluster.hosts import mpirun_words
from evolve.config import Config, parse, read_assignment, set_key
from evolve.display import table
from evolve.environments.function_task import SLEEP
from evolve.errors import InputError, RunError, Stopped, pluralize
from evolve.numerics import backend
from evolve.training import Experiment, prepare

_ENVIRONMENT = {"env.id": "CartPole-v1", "env.engine": "gymnasium"}
"""The default environment."""
_BATCH_SIZES = (1, 16, 64, 256)  # the numbers of slots that one step of a network advances
_IMPORT_BUDGET, _FIRST_STEP_BUDGET = 1.0, 2.0  # seconds
Row = dict[str, Any]
"""The figures of one measurement by name, see `measurements`."""


def _parser() -> Parser:
    parser = Parser(
        "evolve.bench",
        "Measure the training loop and bare environments on the same episodes, in turn. It starts mpirun itself.",
        "evolve bench -e BipedalWalker-v3 -p 138 -r 8 --ranks 1 3",
        "evolve bench --sleep-env 0.03 -p 640 -r 10 --ranks 65",
    )
    add = parser.add_argument
    add("-e", "--env", dest="env.id", metavar="ID", help="environment (CartPole-v1)")
    add("--engine", dest="env.engine", metavar="NAME", help="gymnasium, envpool or exact (gymnasium)")
    add("-p", "--population", type=int, metavar="P", default=138, help="candidates (138)")
    add("-r", "--episodes", type=int, metavar="E", default=8, help="episodes per candidate (8)")
    sizes = "hidden layer sizes (8 8 for hebbian-dag)"
    add("-d", "--hidden", dest="network.hidden", type=int, nargs="*", metavar="H", help=sizes)
    measured = "measure this generation (0, the initial population)"
    add("-g", "--generation", type=int, default=0, metavar="G", help=measured)
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help="set any setting")
    add("--ranks", type=int, nargs="+", default=[3], metavar="R", help="ranks: a coordinator and R - 1 workers (3)")
    pairs = "pairs of measurements, or single measurements with --sleep-env (3); 0: only the start and the networks"
    add("--pairs", type=int, default=3, metavar="N", help=pairs)
    sleep = "measure only the scheduling: episodes sleep for SECONDS on average (0.03), so ranks may outnumber cores"
    add("--sleep-env", type=float, nargs="?", const=0.03, metavar="SECONDS", help=sleep)
    add("--json", action="store_true", help="print the figures as JSON")
    add(measurements.MEASURE, metavar="FILE", help=argparse.SUPPRESS)
    return parser


def _check_options(arguments: dict[str, Any], transport: Transport) -> None:
    """Raise InputError for invalid options, if mpirun started this process, and if mpirun cannot start ranks."""
    for name in ("pairs", "generation", "sleep_env"):
        if arguments[name] is not None and arguments[name] < 0:
            raise InputError(f"--{name.replace('_', '-')}", "at least 0", arguments[name])
    if arguments["sleep_env"] is not None and (arguments["env.id"] or arguments["env.engine"]):
        given = "--env" if arguments["env.id"] else "--engine"
        raise InputError("--sleep-env", "no --env and no --engine with it, because its episodes only sleep", given)
    ranks = arguments["ranks"]
    if min(ranks) < 1:
        raise InputError("--ranks", "at least one rank", min(ranks))
    check_not_too_many("--ranks", max(ranks))
    if transport.size > 1:
        expected = "evolve.bench to be started without mpirun, which it starts itself"
        raise InputError("mpirun", expected, f"{transport.size} ranks")
    if arguments["pairs"] and max(ranks) > 1:
        check_start("--ranks")
        mpirun_words(max(ranks))  # raises InputError if there is no mpirun


def _experiment(arguments: dict[str, Any]) -> Experiment:
    """Return the experiment that the options describe. `--set` overrides every other option."""
    # One thread, because each worker is compared with a bare process, which has one thread.
    settings: dict[str, Any] = {"network": {"name": "hebbian-dag"}, "held_out_episodes": 0, "compute": {"threads": 1}}
    # The measured generation is the last one of the experiment.
    settings["generations"] = arguments["generation"] + 1
    keys = ("env.id", "env.engine", "population", "episodes", "network.hidden")
    given = {key: arguments[key] for key in keys if arguments[key] is not None}
    for key, value in (_ENVIRONMENT | given).items():
        set_key(settings, key, value)
    if arguments["sleep_env"] is not None:
        asleep = {"id": SLEEP, "kwargs": {"seconds": arguments["sleep_env"]}, "reuse": True}
        settings["env"], settings["compute"]["slots"] = asleep, 1
    for assignment in arguments["assignments"]:
        set_key(settings, *read_assignment(assignment))
    return prepare(parse(Config, settings))


def _header(experiment: Experiment) -> str:
    """Return a line that names the environment, the population, the network and the kernel."""
    config = experiment.config
    return (
        f"{config.env.id} ({config.env.engine}, {config.compute.slots} slots), {config.population} candidates × "
        f"{config.episodes} episodes, {config.network.name} with {experiment.network.num_weights} weights on the "
        f"{backend(config.compute.backend)} kernel"
    )


def _startup_text(row: Row) -> str:
    """Return the start-up times beside their budgets."""
    return (
        f"\nimport evolve.cli.run: {row['import'] - row['python']:.2f} s "
        f"beyond the interpreter's {row['python']:.2f} s (budget {_IMPORT_BUDGET:.1f} s)\n"
        f"evolve.run to its first environment step: {row['first_step']:.2f} s (budget {_FIRST_STEP_BUDGET:.1f} s)"
    )


def _inference_table(rows: list[Row]) -> str:
    """Return a table of nanoseconds per step of one network, with a line for each number of slots."""
    names = [name for name in rows[0] if name != "slots"]
    lines = [(f"{row['slots']}", *(f"{row[name]:,.0f}" for name in names)) for row in rows]
    return f"\nnanoseconds per network step\n{_table(('slots', *names), *lines)}"


def _engine_table(rows: list[Row]) -> str:
    """Return a table of microseconds per step of bare environments, and ratios to the fastest engine."""
    fastest = rows[0]["microseconds"]  # `engine_rows` sorts the rows
    lines = [(row["engine"], f"{row['microseconds']:.2f}", f"{row['microseconds'] / fastest:.1f}") for row in rows]
    title = "microseconds of CPU time per step of bare environments, resets included"
    return f"\n{title}\n{_table(('engine', 'time', 'ratio'), *lines)}"


def _table(*rows: Sequence[str]) -> str:
    return table(rows, width(), left=(), indent="  ")


# "ask+tell" is all time outside episodes, also for the digest and the file. "idle" is a share of the time of a worker.
_COST_HEADINGS = ("\nratio", "rank 0\nCPU ms", "rank 0\nCPU", "ask+tell\nms", "moved\nMB",
                  "idle\nleast", "idle\nmean", "idle\nmost")  # fmt: skip


def _cost_cells(row: Row) -> tuple[str, ...]:
    """Return the cells below `_COST_HEADINGS`. The first "rank 0 CPU" is a time, and the second a share of all time."""
    idle = row["idle"]
    return (f"{row['ratio']:.3f}", f"{row['cpu_seconds'] * 1e3:,.0f}", f"{row['cpu_seconds'] / row['seconds']:.1%}",
            f"{row['serial_seconds'] * 1e3:,.0f}", f"{row['bytes'] / 1e6:.1f}",
            f"{min(idle):.1%}", f"{statistics.fmean(idle):.1%}", f"{max(idle):.1%}")  # fmt: skip


def _median(rows: list[Row]) -> str:
    return f"median ratio {statistics.median(row['ratio'] for row in rows):.3f}"


def _rollout_table(rows: list[Row]) -> str:
    """Return a table that compares the training loop with bare environments, with a line for each pair."""
    workers = max(rows[0]["ranks"] - 1, 1)
    title = (
        f"\n{pluralize(rows[0]['ranks'], 'rank')}: {rows[0]['steps']:,} environment steps by "
        f"{pluralize(workers, 'worker')}, and by {workers} bare process{'es' if workers > 1 else ''}"
    )
    lines = [(f"{row['bare_rate']:,.0f}", f"{row['rate']:,.0f}", *_cost_cells(row)) for row in rows]
    return "\n".join([title, _table(("bare\nsteps/s", "engine\nsteps/s", *_COST_HEADINGS), *lines), _median(rows)])


def _schedule_table(rows: list[Row]) -> str:
    """Return a table that compares the workers with workers that never wait, with a line for each measurement."""
    title = f"\n{pluralize(rows[0]['ranks'], 'rank')}, environments that only sleep"
    times = ("ideal_seconds", "list_seconds", "seconds")
    lines = [(*(f"{row[name]:.2f}" for name in times), *_cost_cells(row)) for row in rows]
    note = "ideal: no worker ever waits; free: workers wait only for the last episodes; ratio: ideal to real"
    return "\n".join([title, _table(("ideal\ns", "free\ns", "real\ns", *_COST_HEADINGS), *lines), _median(rows), note])


def _measure_rollouts(
    experiment: Experiment, run: Path, arguments: dict[str, Any], argv: list[str], stop: StopFlag, show: Any
) -> dict[int, list[Row]]:
    """Measure the rollouts, or only the scheduling; show the tables, and return the rows by the number of ranks."""
    rows: dict[int, list[Row]] = {}
    # With --json, `cli.app` lets environments on all ranks print to stderr, so that stdout has only the figures.
    words = ["-m", "evolve.bench", *argv, "--json", measurements.MEASURE, str(run)]
    for ranks in arguments["ranks"]:
        if arguments["sleep_env"] is None:
            rows[ranks] = measurements.compare(experiment, words, run, ranks, arguments["pairs"], stop)
            show(_rollout_table(rows[ranks]))
        else:
            rows[ranks] = measurements.schedule(words, ranks, arguments["pairs"], stop)
            show(_schedule_table(rows[ranks]))
    return rows


def _measure(arguments: dict[str, Any], argv: list[str], stop: StopFlag) -> dict[str, Any]:
    """Make and show the measurements that the options ask for; return the figures for --json."""

    def show(text: str) -> None:
        if not arguments["json"]:
            print(text, flush=True)

    experiment = _experiment(arguments)
    figures: dict[str, Any] = {"measured": _header(experiment)}
    show(figures["measured"])
    only_scheduling = arguments["sleep_env"] is not None
    with tempfile.TemporaryDirectory() as folder:
        if not only_scheduling:
            figures["startup"] = measurements.startup_seconds(experiment.config, folder)
            show(_startup_text(figures["startup"]))
            figures["inference"] = [measurements.network_row(experiment.network, slots) for slots in _BATCH_SIZES]
            show(_inference_table(figures["inference"]))
        if arguments["pairs"]:
            run = Path(folder) / "run.h5"
            measurements.play_earlier_generations(experiment, arguments["generation"], run, stop)
            if not only_scheduling:
                figures["engines"] = measurements.engine_rows(experiment, run)
                if figures["engines"]:  # empty if only the exact engine has the environment, and no kernel is built
                    show(_engine_table(figures["engines"]))
            figures["rollouts"] = _measure_rollouts(experiment, run, arguments, argv, stop, show)
    return figures


def _body(app: App, argv: list[str]) -> int:
    arguments = vars(_parser().parse_args(argv))
    # `figures_of_job` starts the bench again with the hidden option. This process is then rank 0 of a measurement.
    if arguments["measure"]:
        with stdout_for_json(True):
            figures = measurements.measure(_experiment(arguments), app, arguments["measure"])
        print(json.dumps(figures), flush=True)
        return 0
    _check_options(arguments, app.transport)
    try:
        with stdout_for_json(arguments["json"]):
            figures = _measure(arguments, argv, app.stop)
    except (RunError, Stopped):
        # Ctrl-C also interrupts the measured processes. `check` raises Stopped, which then replaces their failure.
        app.stop.check()
        raise
    if arguments["json"]:
        print(json.dumps(figures))
    return 0
