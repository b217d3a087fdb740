"""Event files for TensorBoard, from a run file or during a run.

Only this module imports a library that writes event files: tensorboardX (extra `tensorboard`) or PyTorch.
"""

import hashlib
import math
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from evolve.errors import InputError, RunError, Setting, import_extra
from evolve.store import Header, Record, StoredRun, disk, read

LogGeneration = Callable[[int, Record], None]
"""A function of the number and the record of a generation."""

_EXPORTED_NAME = "events.out.tfevents.evolve"  # the file that `write` writes
_LIVE_ENDING = ".evolve"  # of the names of files that are written during a run
_FLUSH_INTERVAL = 1.0  # seconds
_WITHOUT_CURVE = ("generation", "seconds", "digest")  # columns of `generations.table`


def check_library(argument: str) -> None:
    """Raise InputError about an argument unless a library that writes event files is installed."""
    _summary_writer(argument)


def _summary_writer(argument: str) -> Any:
    """Return the class that writes event files. Raises InputError if neither library is installed."""
    try:
        import_extra("tensorboardX", "tensorboard", argument)
        return _EventFile
    except InputError:
        # Without PyTorch, too, raise this first error: it says how to install tensorboardX, the smaller library.
        with suppress(InputError):
            return import_extra("torch.utils.tensorboard", "tensorboard", argument).SummaryWriter
        raise


class _EventFile:
    """An event file of tensorboardX, written in the thread of the caller.

    It replaces tensorboardX's `SummaryWriter`, which writes in another thread. If the disk is full, that thread ends,
    and later calls wait forever.
    """

    def __init__(self, directory: str, purge_step: int | None = None, filename_suffix: str = "") -> None:
        modules = ("record_writer", "proto.event_pb2", "proto.summary_pb2")
        files, events, summaries = (import_extra(f"tensorboardX.{m}", "tensorboard", "tensorboard") for m in modules)
        self._event, self._summary = events.Event, summaries.Summary
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}{filename_suffix}"
        self._file = files.RecordWriter(str(Path(directory, name)))
        # The first event of a file states the version of the format.
        self._write(file_version="brain.Event:2")
        # TensorBoard ignores the values of earlier files from `purge_step` on.
        if purge_step is not None:
            self._write(step=purge_step, session_log=events.SessionLog(status=events.SessionLog.START))

    def _write(self, **fields: Any) -> None:
        self._file.write(self._event(**{"wall_time": time.time()} | fields).SerializeToString())

    def add_scalar(self, name: str, value: float, step: int, walltime: float | None = None) -> None:
        """Add a point to a curve.

        walltime: The time of the point, in seconds since 1970; None for the present time.
        """
        summary = self._summary(value=[self._summary.Value(tag=name, simple_value=value)])
        self._write(wall_time=time.time() if walltime is None else walltime, step=step, summary=summary)

    def flush(self) -> None:
        """Write all points to the disk."""
        self._file.flush()

    def close(self) -> None:
        """Write all points to the disk, and close the file."""
        try:
            self._file.flush()
        finally:
            self._file.close()


def _curves(run: StoredRun) -> dict[str, list[float]]:
    """Return the columns of `generations.table` that have a curve."""
    from evolve.analysis.generations import table  # noqa: PLC0415 - only runs with event files need it

    return {name: values for name, values in table(run).items() if name not in _WITHOUT_CURVE}


def write(run: StoredRun, directory: Path) -> None:
    """Write the curves of a run over its generations to an event file. An event file of an earlier call is replaced.

    Raises InputError without the library, or if the directory cannot be written.
    """
    writer_class = _summary_writer("--tensorboard")
    seconds = np.cumsum([record.seconds for record in run.records])
    with disk.explain_write_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        # The library chooses the name of the file. So write to an empty directory, and then rename the file.
        with tempfile.TemporaryDirectory(prefix=".events-", dir=directory) as temporary:
            with closing(writer_class(temporary)) as writer:
                for name, values in _curves(run).items():
                    for generation, value in enumerate(values):
                        if math.isfinite(value):
                            # A run file has no dates, so the times begin in 1970. TensorBoard can show relative times.
                            writer.add_scalar(name, value, generation, walltime=float(seconds[generation]))
            (written,) = Path(temporary).iterdir()
            written.replace(directory / _EXPORTED_NAME)


def _read_if_present(path: Path) -> StoredRun | None:
    """Return the run of a run file; None if it cannot be read."""
    try:
        return read(path)
    except InputError:  # there is no such file, or it was removed
        return None


class LiveLog:
    """An event file to which each generation of a run is added. The end of its `with` block closes it.

    The end of the block also adds the returns of validations and held-out episodes, if the run file has them. A new run
    deletes the event files of an earlier run. A resumed run adds a file. TensorBoard shows its values instead of
    earlier values of the same generations.

    Args:
        directory: The directory of the event files of all runs.
        run: The path of the run file. The event file is in `<directory>/NAME/seed-S`. NAME is the name of the run
            directory, which holds the run file. If `<directory>/NAME` has event files of another run directory, NAME
            is followed by a digest of the path of this run directory.
        argument: The option that asks for the event file, for errors.

    Raises:
        InputError: No library for event files is installed, or the directory cannot be written.
    """

    def __init__(self, directory: str | Path, run: Path, argument: str) -> None:
        self._writer_class = _summary_writer(argument)
        directory = Path(os.path.expanduser(directory))  # no shell expands "~" in Python
        self._run_path = Path(os.path.abspath(run))  # without "..", which would lead out of `directory`
        name = self._run_path.parent.name
        digest = hashlib.sha256(os.fsencode(run.parent.resolve())).hexdigest()[:8]
        # The digest of the run directory is in the names of its event files, so that no other run deletes them.
        self._ending = f".{digest}{_LIVE_ENDING}"
        self.directory = directory / name / run.stem
        """The directory of the event files."""
        self._writer: Any = None
        self._flushed_at = time.monotonic()
        earlier_run = _read_if_present(self._run_path)
        # The earlier event files have these validations, by the number of complete generations.
        self._validated = set() if earlier_run is None else set(earlier_run.validations)
        with disk.explain_write_errors(self.directory):
            event_files = self.directory.parent.glob(f"*/events.out.tfevents.*{_LIVE_ENDING}")
            if not all(path.name.endswith(self._ending) for path in event_files):  # of another run directory
                self.directory = directory / f"{name}-{digest}" / run.stem
            self.directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __call__(self, generation: int, record: Record) -> None:
        """Add a generation. Raises RunError if the file cannot be written."""
        # `_curves` takes a run, so make a run of this generation alone. Each curve then has one value.
        header = Header(config="", manifest={}, seed=0, env="")
        run = StoredRun(
            Path(), header, complete=False, records=(record,), checkpoint={}, held_out=None, has_population=False
        )
        with self._explain_errors():
            if self._writer is None:
                self._open(generation)
            for name, (value,) in _curves(run).items():
                if math.isfinite(value):
                    self._writer.add_scalar(name, value, generation)
            if time.monotonic() - self._flushed_at >= _FLUSH_INTERVAL:
                self._writer.flush()
                self._flushed_at = time.monotonic()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Raise RunError with a cure if the block raises an OSError."""
        try:
            yield
        except OSError as error:
            cure = "Free disk space or mend the error, and continue with ", Setting("resume", True), "."
            raise RunError(f"{self.directory} cannot be written ({error}). ", *cure) from error

    def _open(self, generation: int) -> None:
        """Open an event file that begins with a generation. For generation 0, delete the files of an earlier run."""
        self._first = generation
        if generation == 0:
            for path in self.directory.glob(f"events.out.tfevents.*{self._ending}"):
                path.unlink(missing_ok=True)
        # The library's file names contain the time in seconds. The generation in the suffix distinguishes the files of
        # a run that is resumed within a second. `purge_step` makes TensorBoard ignore generations from this one on in
        # earlier files; before generation 0 there are none.
        self._writer = self._writer_class(
            str(self.directory), purge_step=generation or None, filename_suffix=f".{generation:06d}{self._ending}"
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # If the block has raised an error, do not replace it by an error of this file.
        with self._explain_errors() if error is None else suppress(OSError):
            self._add_evaluations()
            if self._writer is not None:
                self._writer.close()

    def _add_evaluations(self) -> None:
        """Add returns that are not in the records: of new validations, and of held-out episodes."""
        run = _read_if_present(self._run_path)
        # Without a writer, no generation was added, and there are no new validations.
        if run is None or (run.held_out is None and self._writer is None):
            return
        if self._writer is None:
            self._open(run.num_generations)
        # A new run (`_first` is 0) has deleted the earlier event files, so all of its validations are new.
        validated = self._validated if self._first else set()
        for name, values in _curves(run).items():
            for generation, value in enumerate(values):
                is_new = name.startswith("validation_") and generation + 1 not in validated
                if (is_new or name.startswith("held_out_")) and math.isfinite(value):
                    self._writer.add_scalar(name, value, generation)


def live_log(directory: str | Path | None, run: Path, argument: str) -> AbstractContextManager[LogGeneration]:
    """Return a `LiveLog`; if `directory` is None, a context manager with a function that does nothing.

    Raises InputError as `LiveLog` does, and if `directory` is no path.
    """
    if directory is None:
        return nullcontext(lambda _generation, _record: None)
    if not isinstance(directory, str | Path) or directory == "" or "\0" in str(directory):
        raise InputError(argument, "a directory", repr(directory))
    return LiveLog(directory, run, argument)
