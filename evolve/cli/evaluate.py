"""evolve evaluate: how good is a run's champion on episodes that training never met?

Episodes come from keyed streams of their own, so asking for more of them later adds to the same ones. The returns are
kept in the run file, in the place of fewer. Those in another environment than the champion was evolved in are not.
"""

import argparse
import json
import math
from contextlib import closing
from pathlib import Path

import numpy as np

from evolve import store
from evolve.analysis.statistics import interval, mean, summary
from evolve.cli.app import App, launch
from evolve.cli.parser import Parser
from evolve.cli.run_files import one_run_file
from evolve.cli.workers import Work, add_workers_option
from evolve.config import EnvOptions, parse, read_assignment, set_key
from evolve.errors import InputError, RunError
from evolve.shapes import Float64
from evolve.store import HeldOut, Stored, StoredChampion
from evolve.training import evaluate_champion, load_config, reload


def _parser() -> Parser:
    parser = Parser(
        "evolve.evaluate",
        "Evaluate the champion of a run on held-out episodes, and keep the returns in the run file.",
        "mpirun -n 8 python -m evolve.evaluate runs/CartPole-v1-hebbian-dag/seed-0.h5 --episodes 1000",
        "python -m evolve.evaluate seed-0.h5 --set env.kwargs.gravity=-3.7   # elsewhere; not kept",
    )
    add = parser.add_argument
    what = "a run file that no run is writing, or its directory; or a champion file, which stays as it is"
    add("file", type=Path, metavar="FILE", help=what)
    add("--episodes", type=int, default=100, metavar="N", help="how many (100)")
    add("-e", "--env", metavar="ID", help="in another environment")
    add("--engine", metavar="NAME", help="by another environment engine")
    more = "with another setting of the environment"
    add("--set", action="append", default=[], dest="assignments", metavar="env.key=value", help=more)
    add("--json", action="store_true", help="print the result as JSON, returns included")
    add_workers_option(parser)
    return parser


def _elsewhere(options: argparse.Namespace, own: EnvOptions) -> EnvOptions | None:
    """Return the other environment that is asked for, None for none. Raises InputError."""
    given: list[tuple[str, object]] = [("env.id", options.env), ("env.engine", options.engine)]
    given = [(key, value) for key, value in given if value is not None]
    given += map(read_assignment, options.assignments)
    table = {"env": own.model_dump(mode="json", exclude_none=True)}
    for key, value in given:
        if not key.startswith("env."):
            raise InputError("--set", "a key of env", key, "The rest of the experiment is what the champion is.")
        set_key(table, key, value)
    return parse(EnvOptions, table["env"], "env") if given else None


def _evaluate(app: App, run: Stored, episodes: int, env: EnvOptions | None) -> HeldOut:
    """Evaluate the champion; keep its returns in the run file, unless they are elsewhere's. Raises InputError."""
    if env is not None or isinstance(run, StoredChampion):
        return evaluate_champion(run, reload(run, env), app.coordinator(), episodes)
    with closing(store.reopen(run.path)) as file:
        evaluated = evaluate_champion(run, reload(run), app.coordinator(), episodes)
        if run.held_out is None or len(run.held_out.returns) <= episodes:
            file.held_out = evaluated
            file.flush()
        return evaluated


def _as_json(run: Stored, env: EnvOptions, returns: Float64) -> str:
    numbers = [value if math.isfinite(value) else None for value in returns.tolist()]
    known = returns[np.isfinite(returns)]
    about = {
        "file": str(run.path),
        "generation": run.num_generations - 1,
        "env": env.model_dump(mode="json", exclude_none=True),
    }
    found = {"mean": mean(known), "interval": interval(known)} if len(known) else {}
    return json.dumps(about | found | {"failed": len(numbers) - len(known), "returns": numbers})


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if not 1 <= options.episodes < 2**31:
        raise InputError("--episodes", "at least 1", options.episodes)
    run = store.read_any(one_run_file(options.file))
    if not run.num_generations:
        raise RunError(f"{run.path}: no generation is complete yet, so there is no champion")
    own = load_config(run.header.config, str(run.path)).in_evaluation().env
    other = _elsewhere(options, own)
    returns = _evaluate(app, run, options.episodes, other).returns
    if options.json:
        print(_as_json(run, other or own, returns))
        return 0
    where = f" in another environment, {other.id}: not kept" if other else ""
    if isinstance(run, StoredChampion):
        where = where.removesuffix(": not kept")
    print(
        f"{run.path}: champion after generation {run.num_generations - 1}, {options.episodes} held-out episodes{where}"
    )
    print(summary(returns))
    return 0


def _work(argv: list[str]) -> Work:
    return Work(episodes_at_once=_parser().parse_args(argv).episodes)


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("evaluate", _body, argv, _work)
