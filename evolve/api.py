"""The Python interface: functions that train, load and iterate, and the classes of their results.

Under `mpirun -n R python script.py` every rank calls the same functions: rank 0 coordinates, the others play episodes,
and all get the same objects. Nothing here prints, catches signals or changes the process.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from evolve import store
from evolve.analysis.runs import (
    ChampionFile,
    Evaluation,
    Generation,
    Run,
    pack,
    record_from_arrays,
    record_to_arrays,
    script_ranks,
    unpack,
)
from evolve.cluster import Coordinator
from evolve.cluster.collective import Collective
from evolve.config import Config
from evolve.errors import InputError
from evolve.store import StoredRun
from evolve.training import Experiment
from evolve.training import iterate as evolve_generations
from evolve.training.champion import Policy
from evolve.training.experiment import PlannedRun
from evolve.training.plan import plan_from_arguments, preview
from evolve.training.resume import check_and_create_runs, open_run, replace_run
from evolve.verification import Verdict, spot_check

__all__ = [
    "ChampionFile",
    "Config",
    "Evaluation",
    "Experiment",
    "Generation",
    "Policy",
    "Run",
    "Verdict",
    "iterate",
    "load",
    "train",
]

_MAX_SENT_BYTES = 2**29
"""Rank 0 sends the content of a run file to the other ranks; they read a larger file from the disk instead."""


def load(path: str | Path) -> Run | ChampionFile:
    """Return the run of a run file, or the content of a champion file. Raises InputError if it cannot be read."""
    stored = store.read_any(Path(path))
    return Run(stored) if isinstance(stored, StoredRun) else ChampionFile(stored)


def train(
    experiment: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    seed: int | None = None,
    output: str | Path | Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Iterable[Callable[[Generation], object]] = (),
    **settings: Any,
) -> Run:
    """Evolve an experiment to its end; return its run.

    Args:
        experiment: A TOML file, a table, or a configuration. Without it, `settings` define the experiment. With
            `resume` it may also be a run file, which holds its experiment.
        seed: The seed of the run; by default the first seed of the experiment.
        output: The directory of the run file, by default `runs/<environment>-<network>`; or the table `[output]`.
        resume: Whether to continue an existing run file. If its run is complete, it is returned unchanged.
        overwrite: Whether to replace an existing run file, also of other settings. It is replaced when the first new
            generation is complete.
        callbacks: Functions that rank 0 calls with each generation, after the generation is in the run file.
        settings: Any settings, as in TOML; they override settings of the experiment. For env, network and strategy the
            name is enough: `env="CartPole-v1", network={"name": "elman", "hidden": [8]}, generations=20`.

    Raises:
        InputError: A setting is wrong, or the run file exists already.
        EpisodeError: An episode failed.
        RunError: A rank cannot go on.
    """
    ranks = script_ranks()

    def work(coordinator: Coordinator) -> bytes:
        functions = _checked_callbacks(callbacks)
        plan = plan_from_arguments(experiment, seed, output, settings)
        for generation in _generations(ranks, coordinator, plan, resume, overwrite, script_sees_each=bool(functions)):
            for callback in functions:
                callback(generation)
        # All ranks return the same run, so rank 0 sends its path and the content of its file.
        image = plan.path.read_bytes() if plan.path.stat().st_size < _MAX_SENT_BYTES else b""
        return pack(path=np.frombuffer(str(plan.path).encode(), np.uint8), image=np.frombuffer(image, np.uint8))

    answer = unpack(ranks.call(work))
    path = Path(answer["path"].tobytes().decode())
    return Run(store.read_image(path, answer["image"].tobytes()) if answer["image"].size else store.read(path))


def iterate(
    experiment: str | Path | Mapping[str, Any] | Config | None = None,
    *,
    seed: int | None = None,
    output: str | Path | Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> Iterator[Generation]:
    """Evolve an experiment as `train` does, yielding each generation on every rank once the run file holds it.

    A script may leave the loop early, by `break` or by an exception. The run file can then be resumed.
    """
    with closing(script_ranks()) as ranks:
        if ranks.leads:
            yield from _lead(ranks, lambda: plan_from_arguments(experiment, seed, output, settings), resume, overwrite)
        else:
            yield from _follow(ranks)


def _lead(
    ranks: Collective, make_plan: Callable[[], PlannedRun], resume: bool, overwrite: bool
) -> Iterator[Generation]:
    """Evolve a run on rank 0, yielding each generation after sending it to the other ranks."""
    try:
        plan = make_plan()
        coordinator = ranks.coordinator()
        for generation in _generations(ranks, coordinator, plan, resume, overwrite, script_sees_each=True):
            ranks.release(pack(number=np.array(generation.number), **record_to_arrays(generation.record)))
            # The other ranks left `serve` to receive the generation, so their next batch begins with a new setup.
            coordinator.forget_setup()
            yield generation
    except GeneratorExit:  # the script left its loop, on all ranks: no rank waits for an answer
        raise
    except BaseException as error:
        ranks.release_error(error)
        raise
    ranks.release(b"")  # the empty answer ends the loop of `_follow`


def _follow(ranks: Collective) -> Iterator[Generation]:
    """Play episodes for rank 0, yielding each generation that rank 0 sends."""
    while answer := ranks.follow():
        parts = unpack(answer)
        yield Generation(int(parts.pop("number")), record_from_arrays(parts))


def _checked_callbacks(callbacks: Any) -> list[Callable[[Generation], object]]:
    """Return the callbacks as a list. Raises InputError unless they are a list of functions."""
    if not isinstance(callbacks, Iterable):
        raise InputError("callbacks", "a list of functions", repr(callbacks), "Write a single function as [function].")
    functions = list(callbacks)
    for callback in functions:
        if not callable(callback):
            raise InputError("callbacks", "a list of functions", f"one with {callback!r}")
    return functions


def _generations(
    ranks: Collective,
    coordinator: Coordinator,
    plan: PlannedRun,
    resume: bool,
    overwrite: bool,
    script_sees_each: bool,
) -> Iterator[Generation]:
    """Evolve a run on rank 0.

    script_sees_each: whether the script sees each generation. The run file is then flushed before the script sees it.
    """
    plan.experiment.strategy(plan.seed)  # raises InputError for options that do not fit, before any file is written
    if resume and overwrite:
        raise InputError(
            "overwrite", "not together with resume=True: overwrite begins a new run, resume continues one", "both"
        )
    # A file that is replaced stays in place until the first new generation is complete.
    replaced = overwrite and preview(plan, overwrite=True).action == "replace"
    # `lambda: None` never gives a reason to stop: this interface catches no signals.
    check_and_create_runs([plan], resume, ranks.transport, lambda: None, spot_check, overwrite)
    with closing(replace_run(plan, ranks.transport) if replaced else open_run(plan)) as file:
        file.flushes_each = script_sees_each
        if not file.complete:
            for record in evolve_generations(plan.experiment, coordinator, file):
                yield Generation(file.num_generations - 1, record)
