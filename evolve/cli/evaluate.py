"""evolve evaluate: play held-out episodes with a run's champion, and print their returns.

A larger evaluation begins with the same episodes as a smaller one. The run file stores the returns if the final
champion played, and neither its environment nor its network was changed. Nothing is stored if the file already has as
many returns, cannot be written, or is being written by another process. A champion file never changes.
"""

import argparse
import json
import os
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import store, training
from evolve.analysis import statistics
from evolve.cli.app import App, stdout_for_json
from evolve.cli.parser import Changes, Parser, changes_of, file_argument, genome_choice_of
from evolve.cluster.cores import Work
from evolve.errors import InputError, RunError, pluralize, sanitize
from evolve.store.disk import is_protected, without_links
from evolve.strategies.acting import Paths
from evolve.training.plan import threads_for
from evolve.training.stored import check_which
from evolve.verification.logs import equal_numbers


def _parser() -> Parser:
    parser = Parser(
        "evolve.evaluate",
        "Evaluate the champion of a run on held-out episodes, and keep the returns in the run file.",
        "mpirun -n 8 evolve evaluate runs/CartPole-v1-hebbian-dag/seed-0.h5 --episodes 1000",
        "evolve evaluate seed-0.h5 --engine exact --set env.kwargs.length=2.0   # another environment; not stored",
        "evolve evaluate seed-0.h5 --set network.plasticity=0   # as if it could not learn; not stored",
        "evolve evaluate seed-0.h5 --generation 10   # an earlier champion; not stored",
    )
    add = parser.add_argument
    what = "a run file, its directory, or a champion file (which does not change)"
    add("file", type=file_argument, metavar="FILE", help=what)
    add("--episodes", type=int, default=100, metavar="N", help="the number of episodes (100)")
    add("-e", "--env", metavar="ID", help="play in another environment")
    parser.add_changes()
    parser.add_genome_choice()
    add("--json", action="store_true", help="print the result as JSON, returns included")
    parser.add_threads()
    parser.add_workers()
    return parser


def _store(file: store.RunFile, evaluated: store.HeldOut) -> None:
    """Store an evaluation that has new episodes. Raises RunError if old episodes differ, or the write fails."""
    before, episodes = file.held_out, len(evaluated.returns)
    if before is not None:
        shared = min(len(before.returns), episodes)
        if different := _first_difference(before, evaluated, shared):
            why = f"the first {shared} episodes have other {different} in {file.path}, so nothing is stored. "
            raise RunError(why, "Has the environment changed? Compare with evolve verify.")
        # The file has all these episodes. A write would only change the file's modification time and hash.
        if len(before.returns) >= episodes:
            return
    file.held_out = evaluated
    try:
        file.flush()
    except RunError as error:
        why = f"{file.path} cannot be written ({error.__cause__}), so the evaluation is not stored. "
        raise RunError(why, "Free disk space or mend the error, and evaluate again.") from None


def _first_difference(before: store.HeldOut, now: store.HeldOut, episodes: int) -> str:
    """Return the name of the numbers that differ in the first episodes of two evaluations; empty if all are equal."""
    pairs = {"returns": (before.returns, now.returns)}
    pairs |= {f"values of the metric {name}": (before.metrics[name], now.metrics[name]) for name in before.metrics}
    different = (name for name, (a, b) in pairs.items() if not equal_numbers(a[:episodes], b[:episodes]).all())
    return next(different, "")


def _why_not_stored(run: store.Stored, changes: Changes, genome_choice: training.GenomeChoice) -> str | None:
    """Return a note why the file of a run does not store this evaluation; None if the file stores it.

    The note follows the title of the evaluation. It is empty for a champion file, which never changes.
    """
    if not isinstance(run, store.StoredRun):
        return ""
    if changes or not genome_choice.is_final_champion:
        return ": not stored in the run file"
    if is_protected(run.path):
        return ": not stored in the run file, because it is read-only"
    # A new file is written beside the run file, and then takes its place, see `atomic_write`.
    if not os.access(without_links(run.path).parent, os.W_OK):
        return ": not stored in the run file, because its directory cannot be written"
    try:
        store.check_unlocked(run.path)
    except InputError:
        return ": not stored in the run file, because another process is writing it"
    return None


def _as_text(title: str, evaluated: store.HeldOut) -> str:
    """Return the mean and its interval, and the means of the metrics, as lines below a title."""
    lines = [title, statistics.summary(evaluated.returns)]
    if evaluated.metrics:
        lines.append(f"metrics, mean: {statistics.metrics_summary(evaluated.metrics, evaluated.returns)}")
    return "\n".join(lines)


def _as_json(
    run: store.Stored, options: argparse.Namespace, experiment: training.Experiment, evaluated: store.HeldOut
) -> str:
    """Return an evaluation as JSON. A return or metric is null if its episode failed or the metric is not finite."""
    played = np.isfinite(evaluated.returns)

    def numbers(values: NDArray[Any]) -> list[Any]:
        known = played & np.isfinite(values)  # JSON has neither NaN nor infinity
        return [value if is_known else None for value, is_known in zip(values.tolist(), known, strict=True)]

    valid = evaluated.returns[played]
    config = experiment.config.in_evaluation()
    about = {
        "file": str(run.path),
        "generation": run.num_generations - 1 if options.generation is None else options.generation,
        **genome_choice_of(options).criteria,
        "env": config.env.model_dump(mode="json", exclude_none=True),
        "network": config.network.table(),
    }
    summary = {"mean": statistics.mean(valid), "interval": statistics.interval_of_returns(valid)} if len(valid) else {}
    episodes: dict[str, Any] = {"failed": len(played) - len(valid), "returns": numbers(evaluated.returns)}
    if evaluated.lengths is not None:
        episodes["lengths"] = evaluated.lengths.tolist()
    metrics = {name: numbers(values) for name, values in evaluated.metrics.items()}
    return json.dumps(about | summary | episodes | ({"metrics": metrics} if metrics else {}))


def _options(argv: list[str]) -> argparse.Namespace:
    """Return the options of the command line. Raises InputError."""
    options = _parser().parse_args(argv)
    if not 1 <= options.episodes < 2**31:
        raise InputError("--episodes", "1 to 2,147,483,647", options.episodes)
    return options


def _body(app: App, argv: list[str]) -> int:
    options = _options(argv)
    run = store.read_any(store.one_run_file(options.file))
    store.check_begun("there is no champion", run)
    genome_choice = genome_choice_of(options)
    check_which(run, genome_choice)
    own_env = training.config_of(run).env  # the environment of the run
    changes = changes_of(options).without(own_env)
    why_not_stored = _why_not_stored(run, changes, genome_choice)
    # Lock the file before the evaluation. If another process is writing it, the error then comes before the work.
    with closing(store.reopen(run.path)) if why_not_stored is None else nullcontext() as file:
        if file is not None and file.num_generations != run.num_generations:  # another process has just written it
            raise RunError(f"{run.path} has more generations than when it was read. ", "Evaluate it again.")
        with stdout_for_json(options.json):
            experiment = training.reload(run, changes.env, changes.network, threads=options.threads or "auto")
            evaluated = training.evaluate_champion(run, experiment, app.coordinator(), options.episodes, genome_choice)
        try:
            if file is not None:
                _store(file, evaluated)
        finally:  # print the returns even if they cannot be stored
            genome = genome_choice.title or f"champion after generation {run.num_generations - 1}"
            if genome_choice.connections is not None:
                genomes, _ = training.chosen_genome(experiment, run, genome_choice)
                acting_connections = Paths(experiment.network).count(genomes.mask)[0]
                genome += f" ({acting_connections} in this genome)"
            episodes = f"{pluralize(options.episodes, 'held-out episode')}{changes.describe(own_env)}"
            title = f"{sanitize(str(run.path), 4000)}: {genome}, {episodes}{why_not_stored or ''}"
            print(_as_json(run, options, experiment, evaluated) if options.json else _as_text(title, evaluated))
    return 0


def _work(argv: list[str]) -> Work:
    """Return the amount of work, by which `--workers auto` chooses processes or threads."""
    options = _options(argv)
    threads = threads_for([options.file], changes_of(options).env, options.threads)
    return Work(episodes_at_once=options.episodes, threads=threads)
