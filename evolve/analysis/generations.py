"""The generations and the evaluations of a run as Python objects, as columns of a table, and as bytes.

A script gets the objects `Generation` and `Evaluation`. `table` returns the columns that CSV files, figures and event
files of TensorBoard show. `pack` makes bytes of values, so that a rank can send them to other ranks.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.analysis import statistics
from evolve.shapes import Float64, Int32, Int64, read_only
from evolve.store import Record, Stored, StoredRun, disk


def pack(**values: Any) -> bytes:
    """Return values as bytes: arrays, numbers, texts, bytes, and dictionaries of arrays. None values are left out."""
    arrays: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            # `unpack` splits these names again.
            arrays |= {f"{name}/{key}": part for key, part in value.items()}
        elif value is not None:
            # NumPy stores bytes in an array. `np.void` keeps all bytes; `np.bytes_` would drop zero bytes at the end.
            arrays[name] = np.void(value) if isinstance(value, bytes) else value
    buffer = io.BytesIO()
    # `savez` has no `allow_pickle` before NumPy 2.2. `unpack` refuses pickled objects anyway.
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack(packed: bytes) -> dict[str, Any]:
    """Return the values by name from the bytes that `pack` returned. None and empty dictionaries are missing."""
    values: dict[str, Any] = {}
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        for path, array in arrays.items():
            name, is_part, key = path.partition("/")
            if is_part:
                values.setdefault(name, {})[key] = array
            else:
                # Numbers, texts and bytes are arrays without axes.
                values[name] = array if array.shape else array.item()
    return values


def table(run: StoredRun) -> dict[str, list[Any]]:
    """Return the columns of a run by name, with an entry for each generation, see `Run.table`."""
    records, no_returns = run.records, np.zeros(0)
    # Only the last row has held-out episodes, because the champion after the last generation plays them.
    held_out, failed = [no_returns] * len(records), [np.nan] * len(records)
    means: dict[str, float] = {}
    if records and run.held_out is not None:
        held_out[-1] = run.held_out.returns
        failed[-1] = float(np.isnan(run.held_out.returns).sum())
        means = statistics.metrics_means(run.held_out.metrics, run.held_out.returns)
    return {
        "generation": list(range(len(records))),
        "best_fitness": [float(record.champion_fitness) for record in records],
        **_statistics("{}_fitness", [record.fitness for record in records]),
        "best_connections": best_connections(run),
        "median_connections": median_connections(run),
        "best_length": [_mean_length(record.lengths[record.champion_candidate]) for record in records],
        "mean_length": [_mean_length(record.lengths) for record in records],
        "steps": [int(record.steps) for record in records],
        "seconds": [float(record.seconds) for record in records],
        "digest": [record.digest.decode() for record in records],
        # The champion after generation g is validated when g + 1 generations are complete.
        **_statistics("validation_{}", [run.validations.get(g + 1, no_returns) for g in range(len(records))]),
        **_statistics("held_out_{}", held_out),
        "held_out_failed": failed,
        # Each metric is NaN in all rows except the last, like `failed`.
        **{f"held_out_metric_{name}": [*failed[:-1], mean] for name, mean in means.items()},
        **_metric_columns(records),
        **_archive_columns(records),
    }


def _mean_length(lengths: Int32) -> float:
    """Return the mean number of steps of the episodes that were played; NaN without such episodes."""
    return statistics.mean(lengths[lengths > 0].astype(np.float64))


def best_connections(run: StoredRun) -> list[int]:
    """Return the number of connections of the best candidate of each generation."""
    return [int(np.count_nonzero(record.champion_mask)) for record in run.records]


def median_connections(run: StoredRun) -> list[float]:
    """Return the median number of connections of the candidates of each generation."""
    return [float(np.median(record.connections)) for record in run.records]


def idle_percentages(run: StoredRun) -> list[float]:
    """Return the mean idle time of the workers in each generation, in % of its duration; 0 without workers."""
    # A damaged run file may hold a generation of 0 seconds, by which nothing can be divided.
    busy = np.array([record.busy_seconds / (record.seconds or np.nan) for record in run.records])
    # Of several ranks, rank 0 is the coordinator and not a worker.
    workers = busy[:, 1:] if busy.shape[1] > 1 else busy
    # An absent worker has NaN, which the mask leaves out. `nanmean` would warn of a generation without workers.
    idle = np.ma.masked_invalid(100 * (1 - np.minimum(workers, 1)))
    return idle.mean(axis=1).filled(0).tolist()


def _statistics(name: str, samples: Sequence[Float64]) -> dict[str, list[float]]:
    """Return columns with statistics of the finite values of samples; NaN if a sample has too few values.

    name: The pattern of the columns' names, such as "{}_fitness". The name of a statistic replaces "{}".
    """
    return {
        name.format("mean"): [statistics.mean(sample) for sample in samples],
        name.format("std"): [statistics.deviation(sample) for sample in samples],
        name.format("q25"): [statistics.quantile(sample, 0.25) for sample in samples],
        name.format("median"): [statistics.median(sample) for sample in samples],
        name.format("q75"): [statistics.quantile(sample, 0.75) for sample in samples],
    }


def _metric_columns(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return two columns for each metric: the mean of the best candidate's episodes, and of all episodes."""
    columns = {}
    for name in records[0].metrics if records else ():
        # An episode without a return may have a metric of 0 or False, which must not count.
        values = [np.where(np.isnan(record.returns), np.nan, record.metrics[name]) for record in records]  # [P, E] each
        best = [row[record.champion_candidate] for row, record in zip(values, records, strict=True)]
        columns[f"best_metric_{name}"] = list(map(statistics.mean, best))
        columns[f"mean_metric_{name}"] = list(map(statistics.mean, values))
    return columns


def _archive_columns(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return two columns: the share of the archive's cells that are filled, and the sum of the fitness in these cells.

    Without an archive, return no columns.
    """
    archives = [record.archive for record in records if record.archive is not None]
    if not archives or len(archives) < len(records):  # the file of another program may lack some of them
        return {}
    return {
        "archive_coverage": [float(np.isfinite(archive).mean()) for archive in archives],
        "archive_qd_score": [float(archive[np.isfinite(archive)].sum()) for archive in archives],
    }


def write_csv(run: StoredRun, path: Path) -> None:
    """Write the columns of `table`, one line per generation. Raises InputError if the file cannot be written."""
    columns = table(run)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    disk.write_output(path, text.getvalue().encode())


@dataclass(frozen=True, eq=False)
class Generation:
    """A complete generation. `number` counts from 0, and `record` is its part of the run file."""

    number: int
    record: Record

    def __eq__(self, other: object) -> bool:
        """Return whether number and digest are equal. If so, the runs were equal up to this generation."""
        if not isinstance(other, Generation):
            return NotImplemented
        return (self.number, self.digest) == (other.number, other.digest)

    def __hash__(self) -> int:
        return hash((self.number, self.digest))

    @property
    def best(self) -> float:
        """The fitness of its best candidate."""
        return float(self.record.champion_fitness)

    @property
    def fitness(self) -> Float64:
        """[P]: the fitness of each candidate, as selection saw it."""
        return read_only(self.record.fitness)

    @property
    def returns(self) -> Float64:
        """[P, E]: the return of each episode; NaN if it failed or was not played."""
        return read_only(self.record.returns)

    @property
    def metrics(self) -> Mapping[str, NDArray[Any]]:
        """The metrics of `env.metrics` by name, as arrays [P, E] of bool, int64 or float64.

        An episode that failed or was not played has False, 0 or NaN.
        """
        return {name: read_only(values) for name, values in self.record.metrics.items()}

    @property
    def mean(self) -> float:
        """The mean of the finite fitness values; NaN if there are none."""
        return statistics.mean(self.record.fitness)

    @property
    def digest(self) -> str:
        """64 hexadecimal characters that identify the run up to this generation."""
        return self.record.digest.decode()

    def __repr__(self) -> str:
        return f"<Generation {self.number}: best fitness {self.best:.6g}, mean {self.mean:.6g}>"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluation of a champion on N held-out episodes. All arrays are [N].

    Attributes:
        returns: The returns; NaN for a failed episode.
        seeds: The seeds of the environments.
        metrics: The metrics of `env.metrics` by name.
        lengths: The numbers of steps; None for an evaluation at the end of a run, because a file has no lengths.
    """

    returns: Float64
    seeds: Int64
    metrics: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    lengths: Int32 | None = None

    def __post_init__(self) -> None:
        # The arrays may belong to a stored run, which must not change.
        for name in ("returns", "seeds", "lengths"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else read_only(np.asarray(value)))
        object.__setattr__(self, "metrics", {name: read_only(values) for name, values in self.metrics.items()})

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same returns, seeds and metrics; a failed episode equals another one."""
        if not isinstance(other, Evaluation):
            return NotImplemented
        if self.metrics.keys() != other.metrics.keys():
            return False
        pairs = [(self.returns, other.returns), (self.seeds, other.seeds)]
        pairs += [(values, other.metrics[name]) for name, values in self.metrics.items()]
        return all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in pairs)

    # Equality compares the values of arrays, and arrays have no hash.
    __hash__ = None  # type: ignore[assignment]

    @property
    def mean(self) -> float:
        """The mean return of the episodes that did not fail; NaN if all failed."""
        return statistics.mean(self.returns)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, see `interval_of_returns`; None for fewer than two returns."""
        return statistics.interval_of_returns(self.returns)

    @property
    def failed(self) -> int:
        """The number of episodes that failed."""
        return len(self.returns) - len(statistics.finite(self.returns))

    def __repr__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        between = f", 95 % interval {self.interval[0]:.6g} to {self.interval[1]:.6g}" if self.interval else ""
        return f"<Evaluation: {len(self.returns)} episodes, mean {self.mean:.6g}{between}{failed}>"


def evaluation_of(run: Stored) -> Evaluation | None:
    """Return the held-out evaluation of the final champion that a file contains; None if it contains no evaluation."""
    held_out = run.held_out
    return None if held_out is None else Evaluation(held_out.returns, held_out.seeds, held_out.metrics)


def pack_generation(generation: Generation) -> bytes:
    """Return a generation as bytes."""
    return pack(number=generation.number, **vars(generation.record))


def unpack_generation(content: bytes) -> Generation:
    """Return the generation from the bytes that `pack_generation` returned."""
    values = unpack(content)
    return Generation(values.pop("number"), Record(**values))
