"""evolve evaluate: the returns of a run's champion on held-out episodes, which training never used.

Episodes come from keyed streams of their own, so asking for more of them later adds to the same ones. The returns are
kept in the run file, in place of a smaller evaluation. Returns in another environment than the champion's own, or with
other settings of its network, are not kept.
"""

import argparse
import json
import math
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from evolve import store, training
from evolve.analysis import statistics
from evolve.cli.app import App, launch
from evolve.cli.parser import Parser, add_workers_option, file_argument, one_run_file
from evolve.cluster.crew import Work
from evolve.config import EnvOptions, Table, parse, read_assignment, set_key
from evolve.errors import InputError
from evolve.shapes import Float64


def _parser() -> Parser:
    parser = Parser(
        "evolve.evaluate",
        "Evaluate the champion of a run on held-out episodes, and keep the returns in the run file.",
        "mpirun -n 8 python -m evolve.evaluate runs/CartPole-v1-hebbian-dag/seed-0.h5 --episodes 1000",
        "python -m evolve.evaluate seed-0.h5 --set env.kwargs.gravity=-3.7   # another environment; not kept",
        "python -m evolve.evaluate seed-0.h5 --set network.plasticity=0   # as if it could not learn; not kept",
    )
    add = parser.add_argument
    what = "a run file that no run is writing, or its directory; or a champion file, which is not changed"
    add("file", type=file_argument, metavar="FILE", help=what)
    add("--episodes", type=int, default=100, metavar="N", help="the number of episodes (100)")
    add("-e", "--env", metavar="ID", help="in another environment")
    add("--engine", metavar="NAME", help="by another environment engine")
    more = "with another setting of the environment (env.key) or of the network (network.key)"
    add("--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE", help=more)
    add("--json", action="store_true", help="print the result as JSON, returns included")
    add_workers_option(parser)
    return parser


@dataclass(frozen=True)
class _Changes:
    """Changes for an evaluation: another environment, or other settings of the network.

    Attributes:
        env: The environment, if it is not the champion's own.
        network: The changed settings of the network.
        engine: Another engine for the champion's own environment, whose own engine need not be installed then.
    """

    env: EnvOptions | None
    network: Table
    engine: str | None

    def __bool__(self) -> bool:
        return self.env is not None or bool(self.network)

    def describe(self) -> str:
        """Return the changes in words."""
        where = f" in another environment, {self.env.id}" if self.env else ""
        where += f" (engine {self.engine})" if self.engine else ""
        settings = ", ".join(f"network.{key}={value}" for key, value in self.network.items())
        return where + (f" with {settings}" if settings else "")


def _changes(options: argparse.Namespace, own: EnvOptions) -> _Changes:
    """Return the changes that the options ask for. own: the environment of the champion. Raises InputError."""
    given: list[tuple[str, object]] = [("env.id", options.env), ("env.engine", options.engine)]
    given = [(key, value) for key, value in given if value is not None]
    given += map(read_assignment, options.assignments)
    table: Table = {"env": own.model_dump(mode="json", exclude_none=True), "network": {}}
    for key, value in given:
        if not key.startswith(("env.", "network.")):
            cure = "The rest of the experiment belongs to the champion."
            raise InputError("--set", "a key of env or of network", key, cure)
        set_key(table, key, value)
    elsewhere = any(key.startswith("env.") for key, _ in given)
    env = parse(EnvOptions, table["env"], "env") if elsewhere else None
    other = env is not None and env.id == own.id and env.engine != own.engine
    return _Changes(env, table["network"], env.engine if env is not None and other else None)


def _evaluate(app: App, run: store.Stored, episodes: int, changes: _Changes) -> store.HeldOut:
    """Evaluate the champion; keep its returns in the run file if nothing was changed. Raises InputError."""
    if changes or isinstance(run, store.StoredChampion):
        experiment = training.reload(run, changes.env, changes.network, changes.engine)
        return training.evaluate_champion(run, experiment, app.coordinator(), episodes)
    with closing(store.reopen(run.path)) as file:
        evaluated = training.evaluate_champion(run, training.reload(run), app.coordinator(), episodes)
        if run.held_out is None or len(run.held_out.returns) <= episodes:
            file.held_out = evaluated
            file.flush()
        return evaluated


def _as_json(run: store.Stored, env: EnvOptions, network: Table, returns: Float64) -> str:
    numbers = [value if math.isfinite(value) else None for value in returns.tolist()]
    known = returns[np.isfinite(returns)]
    about = {
        "file": str(run.path),
        "generation": run.num_generations - 1,
        "env": env.model_dump(mode="json", exclude_none=True),
        "network": network,
    }
    found = {"mean": statistics.mean(known), "interval": statistics.interval_of_returns(known)} if len(known) else {}
    return json.dumps(about | found | {"failed": len(numbers) - len(known), "returns": numbers})


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if not 1 <= options.episodes < 2**31:
        raise InputError("--episodes", "1 to 2,147,483,647", options.episodes)
    run = store.read_any(one_run_file(options.file))
    if not run.num_generations:
        raise store.no_generation(run.path, "there is no champion")
    config = training.load_config(run.header.config, str(run.path)).in_evaluation()
    changes = _changes(options, config.env)
    returns = _evaluate(app, run, options.episodes, changes).returns
    if options.json:
        print(_as_json(run, changes.env or config.env, config.network.table() | changes.network, returns))
        return 0
    where = f"{changes.describe()}: not kept" if changes else ""
    if isinstance(run, store.StoredChampion):
        where = where.removesuffix(": not kept")
    print(
        f"{run.path}: champion after generation {run.num_generations - 1}, {options.episodes} held-out episodes{where}"
    )
    print(statistics.summary(returns))
    return 0


def _work(argv: list[str]) -> Work:
    return Work(episodes_at_once=_parser().parse_args(argv).episodes)


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("evaluate", _body, argv, _work)
