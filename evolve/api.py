"""The Python interface: train, load, and what a run can tell.

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

_LARGEST_IMAGE = 2**29  # bytes of a run file that travel to the other ranks; a larger one these read themselves


def load(path: str | Path) -> Run | ChampionFile:
    """Return the run of a run file, or what a champion file holds. Raises InputError when it cannot be read."""
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
        experiment: A TOML file, a table, or a configuration; by default the settings alone. With `resume`, also a run
            file.
        seed: By default the first one of the experiment.
        output: The directory of the run file, by default `runs/<environment>-<network>`; or the table of settings.
        resume: Whether to go on where the run file ends, if there is one; a complete one is returned as it is.
        overwrite: Whether to replace the run file by the first new generation, if it is of the same experiment.
        callbacks: Each is called with every generation, by rank 0, once the run file holds that generation.
        settings: Any settings, as in TOML; those of the experiment are overridden. Of env, network and strategy the
            name alone will do: `env="CartPole-v1", network={"name": "elman", "hidden": [8]}, generations=20`.

    Raises:
        InputError: A setting is wrong, or the run file is there already.
        EpisodeError: An episode failed.
        RunError: A rank cannot go on.
    """
    ranks = script_ranks()

    def work(coordinator: Coordinator) -> bytes:
        called = _functions(callbacks)
        plan = plan_from_arguments(experiment, seed, output, settings)
        for generation in _generations(ranks, coordinator, plan, resume, overwrite, seen=bool(called)):
            for callback in called:
                callback(generation)
        image = plan.path.read_bytes() if plan.path.stat().st_size < _LARGEST_IMAGE else b""
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

    A loop that is left early, in any way, leaves a run file that can be resumed.
    """
    with closing(script_ranks()) as ranks:
        if ranks.leads:
            yield from _lead(ranks, lambda: plan_from_arguments(experiment, seed, output, settings), resume, overwrite)
        else:
            yield from _follow(ranks)


def _lead(
    ranks: Collective, make_plan: Callable[[], PlannedRun], resume: bool, overwrite: bool
) -> Iterator[Generation]:
    """Evolve a run on rank 0, yielding each generation when the others have it, too."""
    try:
        plan = make_plan()
        coordinator = ranks.coordinator()
        for generation in _generations(ranks, coordinator, plan, resume, overwrite, seen=True):
            ranks.release(pack(number=np.array(generation.number), **record_to_arrays(generation.record)))
            coordinator.forget_setup()
            yield generation
    except GeneratorExit:  # the loop was left, on all ranks
        raise
    except BaseException as error:
        ranks.release_error(error)
        raise
    ranks.release(b"")


def _follow(ranks: Collective) -> Iterator[Generation]:
    """Work for rank 0, yielding each generation that it has."""
    while answer := ranks.follow():
        parts = unpack(answer)
        yield Generation(int(parts.pop("number")), record_from_arrays(parts))


def _functions(callbacks: Any) -> list[Callable[[Generation], object]]:
    """Return the callbacks. Raises InputError where they are not functions in a list."""
    if not isinstance(callbacks, Iterable):
        raise InputError("callbacks", "a list of functions", repr(callbacks), "Put one alone into a list: [it].")
    called = list(callbacks)
    for callback in called:
        if not callable(callback):
            raise InputError("callbacks", "a list of functions", f"one with {callback!r}")
    return called


def _generations(
    ranks: Collective,
    coordinator: Coordinator,
    plan: PlannedRun,
    resume: bool,
    overwrite: bool,
    seen: bool,
) -> Iterator[Generation]:
    """Evolve a run on rank 0. seen: whether the script sees the generations; each is then on disk before that."""
    plan.experiment.strategy(plan.seed)
    if resume and overwrite:
        raise InputError("overwrite", "no resume=True with it: the one begins anew, the other continues", "both")
    replaced = overwrite and preview(plan, overwrite=True).action == "replace"
    check_and_create_runs([plan], resume, ranks.transport, lambda: None, spot_check, overwrite)
    with closing(replace_run(plan, ranks.transport) if replaced else open_run(plan)) as file:
        file.flushes_each = seen
        if not file.complete:
            for record in evolve_generations(plan.experiment, coordinator, file):
                yield Generation(file.num_generations - 1, record)
