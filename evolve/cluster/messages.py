"""The messages between ranks, and their encoding as bytes without pickle.

A message is a record (a frozen dataclass), and travels as one buffer, its frame. The fields of a record are other
records, or leaves: arrays, numbers and texts.

A frame begins with the size of its header, an int64. The header is a JSON list: the number of the message's type, and
all leaves in the order of the fields. In place of an array it has the array's dtype and shape. The bytes of the arrays
follow the header, each array aligned to eight bytes. Both ends know the fields of each type, so a frame does not name
them.

A job is the evaluation of a batch of episodes, or a list of questions (`jobs.py`). `serial` is the number of a job.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from evolve.genome import NO_GENOMES, Genomes, GenomeSource
from evolve.rollouts import EpisodeBatch, EpisodeFailure, EpisodeResults


@dataclass(frozen=True)
class Setup:
    """To a worker: make a rollout, the object that plays episodes, for the chunks that follow.

    experiment: The TOML text of the experiment.
    versions: The versions of packages on rank 0 (JSON). The worker must have the same versions.
    trial: The fingerprints of an episode on rank 0 (JSON, `RolloutSpec.trial`). The worker plays this episode, too, and
        must get the same fingerprints.
    """

    experiment: str
    versions: str = "{}"
    trial: str = "[]"


@dataclass(frozen=True)
class Chunk:
    """To a worker: episodes to play with the rollout of the last setup.

    Genomes that are not in memory are not sent: the worker generates them from the shared state.
    """

    serial: int
    batch: EpisodeBatch


@dataclass(frozen=True)
class Update:
    """To a worker: bytes for `SharedState.update`, such as the fitness values for a strategy's `tell`."""

    content: NDArray[np.uint8]


@dataclass(frozen=True)
class Question:
    """To a worker: question `number` of a job, for `SharedState.answer`."""

    serial: int
    number: int
    content: NDArray[np.uint8]


@dataclass(frozen=True)
class Answer:
    """To the coordinator: the answer to a question."""

    serial: int
    number: int
    content: NDArray[np.uint8]


@dataclass(frozen=True)
class ChunkResults:
    """To the coordinator: results, and the seconds that the worker was busy since its last results.

    environment_seconds: The part of `busy_seconds` that was spent in environments.
    """

    serial: int
    busy_seconds: float
    environment_seconds: float
    results: EpisodeResults


@dataclass(frozen=True)
class FailedEpisode:
    """To the coordinator: an episode failed. Its result, with a return of NaN, follows in `ChunkResults`."""

    serial: int
    failure: EpisodeFailure


@dataclass(frozen=True)
class Heartbeat:
    """To the coordinator: a worker has made its environments, or is still working and has no results yet."""


@dataclass(frozen=True)
class WorkerError:
    """To the coordinator: a worker cannot go on. The report has its rank, its host, and a message or a traceback."""

    report: str


@dataclass(frozen=True)
class StopRequest:
    """To the coordinator: a worker received a signal that asks it to stop."""

    signal: int


@dataclass(frozen=True)
class Kill:
    """To a worker: kill the process `pid` on the worker's host. It is a rank that hangs."""

    pid: int


@dataclass(frozen=True)
class Dismiss:
    """To a worker: drop all work, and return `answer` from `serve`.

    The worker confirms by a `Dismiss` with an empty answer.
    """

    answer: NDArray[np.uint8]


@dataclass(frozen=True)
class Ended:
    """Between the ranks of a script: the sender's script has ended. The sender will not answer."""


JobMessage = ChunkResults | Answer | FailedEpisode
"""The messages to the coordinator that belong to a job."""
Message = (
    Setup | Chunk | Update | Question | JobMessage | Heartbeat | WorkerError | StopRequest | Kill | Dismiss | Ended
)
_TYPES: tuple[type[Any], ...] = get_args(Message)


def encode(message: Message) -> NDArray[np.uint8]:
    """Return the frame of a message."""
    # Genomes that are not in memory are not sent, see `Chunk`.
    if isinstance(message, Chunk) and not isinstance(message.batch.genomes, Genomes):
        message = replace(message, batch=replace(message.batch, genomes=NO_GENOMES))
    return frame_of(message, _TYPES)


def decode(frame: NDArray[np.uint8]) -> Message:
    """Return the message of a frame; its arrays are views into the frame."""
    return record_of(frame, _TYPES)


def frame_of(record: Any, types: Sequence[type[Any]]) -> NDArray[np.uint8]:
    """Return the frame of a record. Its type must be one of `types`, the same list as for `record_of`."""
    header: list[Any] = [types.index(type(record))]
    arrays: list[Any] = []
    for leaf in _leaves(type(record), record):
        if isinstance(leaf, np.ndarray):
            header.append([leaf.dtype.str, leaf.shape])
            arrays += (np.ascontiguousarray(leaf), bytes(_padding(leaf.nbytes)))  # `bytes(n)` has n zeros
        else:
            header.append(leaf)
    text = json.dumps(header, default=np.generic.item).encode()  # a number may have a type of NumPy
    text += b" " * _padding(len(text))
    # A `bytearray` makes the frame writable, as received frames are.
    return np.frombuffer(bytearray().join([struct.pack("<q", len(text)), text, *arrays]), np.uint8)


def record_of(frame: NDArray[np.uint8], types: Sequence[type[Any]]) -> Any:
    """Return the record of a frame; its arrays are views into the frame."""
    (size,) = struct.unpack_from("<q", frame.data)
    number, *leaves = json.loads(frame[8 : 8 + size].tobytes())
    return _build(types[number], _with_arrays(leaves, frame, 8 + size))


def _padding(size: int) -> int:
    """Return the number of bytes to add to a size, so that it is a multiple of eight."""
    return -size % 8


def _with_arrays(leaves: list[Any], frame: NDArray[np.uint8], offset: int) -> Iterator[Any]:
    """Yield the leaves of a header, with arrays in place of dtypes and shapes. offset: the first byte of the arrays."""
    for leaf in leaves:
        if isinstance(leaf, list):  # dtype and shape of an array
            dtype, shape = leaf
            array: NDArray[Any] = np.ndarray(shape, dtype, frame.data, offset)
            offset += array.nbytes + _padding(array.nbytes)
            yield array
        else:
            yield leaf


def _build(record_type: Any, leaves: Iterator[Any]) -> Any:
    """Return a record of a type. It and the records in it take their leaves from one iterator."""
    types = _inner_types(record_type).values()
    return record_type(*[next(leaves) if inner is None else _build(inner, leaves) for inner in types])


def _leaves(record_type: Any, record: Any) -> Iterator[Any]:
    """Yield the leaves of a record, and of the records in it, in the order of the fields."""
    for name, inner in _inner_types(record_type).items():
        value = getattr(record, name)
        if inner is None:
            yield value
        else:
            yield from _leaves(inner, value)


@cache
def _inner_types(record_type: Any) -> dict[str, Any]:
    """Return the fields of a record type by name: the type of an inner record, or None for a leaf."""
    # A `GenomeSource` is a protocol; the receiver builds `Genomes`.
    hints = {name: Genomes if hint is GenomeSource else hint for name, hint in get_type_hints(record_type).items()}
    return {name: hint if is_dataclass(hint) else None for name, hint in hints.items()}
