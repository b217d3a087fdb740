"""What a run is written to, and how it is taken up again where that ends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from evolve import store, strategies
from evolve.errors import InputError
from evolve.genome import Genomes, GenomeSource
from evolve.rollouts import Moments
from evolve.shapes import Float32
from evolve.training.experiment import Experiment


class RunState(Protocol):
    """Where a run stands: a run file that was read, or one that is being written."""

    @property
    def path(self) -> Path:
        """The run file."""

    @property
    def header(self) -> store.Header:
        """What was known when the run began."""

    @property
    def num_generations(self) -> int:
        """How many generations are complete."""

    @property
    def checkpoint(self) -> Mapping[str, NDArray[Any]]:
        """The state after the last of them."""


class RunLog(RunState, Protocol):
    """What a run is written to: a run file, or what takes its place. Its fields are those of `store.RunFile`."""

    steps: int
    last: store.Record | None
    held_out: store.HeldOut | None
    complete: bool

    def append(
        self,
        record: store.Record,
        checkpoint: Mapping[str, NDArray[Any]],
        genomes: GenomeSource | None = None,
        flush: bool = True,
    ) -> None:
        """Add a generation, the state after it, and its candidates if they are to be kept.

        flush: whether it may be put where it is to stay at once; otherwise `flush_if_due` follows soon.
        """

    def flush_if_due(self) -> None:
        """Put everything where it is to stay, if it is time."""

    def flush(self) -> None:
        """Put everything where it is to stay."""


def restore(experiment: Experiment, run: RunState) -> tuple[strategies.Strategy[Any], Any]:
    """Return the strategy of a run and its state after the last complete generation.

    Raises InputError when the checkpoint does not fit.
    """
    strategy = experiment.strategy(run.header.seed)
    if not run.num_generations:
        return strategy, strategy.start()
    try:
        state = strategy.from_arrays(run.checkpoint)
        strategy.champion(state)
    except (ValueError, IndexError) as error:
        raise InputError(str(run.path), "a whole checkpoint", f"a damaged one ({error})") from None
    return strategy, state


def restore_moments(experiment: Experiment, run: RunState) -> Moments:
    """Return the moments of all observations so far. Raises InputError when the checkpoint lacks them."""
    size = experiment.network.observation_size
    if not (experiment.config.normalize_observations and run.num_generations):
        return Moments.none(size)
    try:
        return Moments.from_arrays(run.checkpoint, size)
    except ValueError as error:
        raise InputError(str(run.path), "a whole checkpoint", f"a damaged one ({error})") from None


def final_champion(experiment: Experiment, run: store.Stored) -> tuple[Genomes, Float32 | None]:
    """Return the final champion (P = 1) and its normalizer [2, O], None where observations are not normalized.

    Args:
        experiment: That of the run.
        run: A run with a complete generation, or a champion file.

    Raises:
        InputError: The file is damaged.
    """
    if isinstance(run, store.StoredRun):
        strategy, state = restore(experiment, run)
        return strategy.champion(state), normalizer_of(experiment, run, run.num_generations)
    genome = Genomes(run.held_out.weights[None], run.held_out.mask[None])
    O = experiment.network.observation_size if experiment.config.normalize_observations else None
    if (None if run.normalizer is None else run.normalizer.shape[1]) != O:
        raise InputError(str(run.path), "a normalizer that fits its configuration", "another one, or none")
    return genome, run.normalizer


def normalizer_of(experiment: Experiment, run: store.StoredRun, generation: int) -> Float32 | None:
    """Return [2, O]: with what a generation's observations are normalized, up to the next one; None for not at all.

    Raises InputError when the file lacks it.
    """
    if not experiment.config.normalize_observations:
        return None
    if generation >= run.num_generations:
        return restore_moments(experiment, run).normalizer()
    normalizer = run.records[generation].normalizer
    if normalizer is None or normalizer.shape[1] != experiment.network.observation_size:
        raise InputError(str(run.path), f"the normalizer of generation {generation}", "none that fits")
    return normalizer
