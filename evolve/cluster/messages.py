"""The messages between ranks, and their encoding as bytes without pickle.

A message is a record (a frozen dataclass), and travels as one buffer, its frame. The fields of a record are arrays,
numbers, texts, or other records. A leaf is an array, a number or a text, in the message or in one of its records.

A frame begins with the size of its header, an int64. The header is JSON: the kind of the message, and the leaves in the
order of the fields. Of an array it has the type and the shape; the bytes of the arrays follow, each aligned to eight
bytes. Both ends know the fields of a kind, so a frame does not name them.
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
    trial: The fingerprints of an episode on rank 0 (JSON, `RolloutSpec.trial`). The worker must play the same episode.
    """

    experiment: str
    versions: str = "{}"
    trial: str = "[]"


@dataclass(frozen=True)
class Chunk:
    """To a worker: episodes to play with the rollout of the last setup, for the job `serial`.

    Genomes that are not in memory do not travel: the worker generates them from the shared state.
    """

    serial: int
    batch: EpisodeBatch


@dataclass(frozen=True)
class Update:
    """To a worker: bytes for `SharedState.update`, such as a strategy's results. Later chunks and questions need it."""

    content: NDArray[np.uint8]


@dataclass(frozen=True)
class Question:
    """To a worker: question `number` of a job, for `SharedState.answer`. A job is a batch or a list of questions."""

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
    """To the coordinator: results, the busy seconds since the last results, and their part spent in environments."""

    serial: int
    busy_seconds: float
    environment_seconds: float
    results: EpisodeResults


@dataclass(frozen=True)
class FailedEpisode:
    """To the coordinator: an episode failed. Its result, a return of NaN, follows."""

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
    """To a worker: kill the process `pid`, a rank that hangs. It is on the same host as this worker."""

    pid: int


@dataclass(frozen=True)
class Dismiss:
    """To a worker: drop all work, and return `answer` from `serve`. From a worker, with an empty answer: it leaves."""

    answer: NDArray[np.uint8]


@dataclass(frozen=True)
class Ended:
    """Between the ranks of a script: the sender's script has ended. The sender will not answer."""


JobMessage = ChunkResults | Answer | FailedEpisode
"""The messages to the coordinator that belong to a job; `serial` is the number of the job."""
Message = (
    Setup | Chunk | Update | Question | JobMessage | Heartbeat | WorkerError | StopRequest | Kill | Dismiss | Ended
)
_KINDS: tuple[type[Any], ...] = get_args(Message)


def encode(message: Message) -> NDArray[np.uint8]:
    """Return the frame of a message."""
    return frame_of(message, _KINDS)


def decode(frame: NDArray[np.uint8]) -> Message:
    """Return the message of a frame; its arrays are views into the frame."""
    return record_of(frame, _KINDS)


def frame_of(record: Any, kinds: Sequence[type[Any]]) -> NDArray[np.uint8]:
    """Return the frame of a record. Its type must be one of `kinds`."""
    header: list[Any] = [kinds.index(type(record))]
    parts: list[Any] = []
    for leaf in _leaves(type(record), _without_lazy_genomes(record)):
        if isinstance(leaf, np.ndarray):
            header.append([leaf.dtype.str, leaf.shape])
            parts += (np.ascontiguousarray(leaf), bytes(-leaf.nbytes % 8))
        else:
            header.append(leaf)
    text = json.dumps(header, default=np.generic.item).encode()  # a number may have a type of NumPy
    text += b" " * (-len(text) % 8)
    return np.frombuffer(bytearray().join([struct.pack("<q", len(text)), text, *parts]), np.uint8)


def record_of(frame: NDArray[np.uint8], kinds: Sequence[type[Any]]) -> Any:
    """Return the record of a frame; its arrays are views into the frame."""
    (size,) = struct.unpack_from("<q", frame.data)
    kind, *leaves = json.loads(frame[8 : 8 + size].tobytes())
    return _build(kinds[kind], _read(frame, 8 + size, leaves))


def _without_lazy_genomes(record: Any) -> Any:
    """Return a record without genomes that are not in memory, because those do not travel."""
    if isinstance(record, Chunk) and not isinstance(record.batch.genomes, Genomes):
        return replace(record, batch=replace(record.batch, genomes=NO_GENOMES))
    return record


def _read(frame: NDArray[np.uint8], at: int, leaves: list[Any]) -> Iterator[Any]:
    """Yield the leaves of a header, with arrays in place of their types and shapes. at: where the arrays begin."""
    for leaf in leaves:
        if isinstance(leaf, list):
            dtype, shape = leaf
            array: NDArray[Any] = np.ndarray(shape, dtype, frame.data, at)
            at += array.nbytes + -array.nbytes % 8
            yield array
        else:
            yield leaf


def _build(kind: Any, leaves: Iterator[Any]) -> Any:
    # All records take their leaves from one iterator, in the order of the fields.
    parts = _records(kind).values()
    return kind(*[next(leaves) if part is None else _build(part, leaves) for part in parts])


def _leaves(kind: Any, record: Any) -> Iterator[Any]:
    """Yield the leaves of a record, and of the records in it, in the order of the fields."""
    for name, part in _records(kind).items():
        value = getattr(record, name)
        if part is None:
            yield value
        else:
            yield from _leaves(part, value)


@cache
def _records(kind: Any) -> dict[str, Any]:
    """Return a dictionary: the name of each field of a kind, and the kind of the record in it; None for a leaf."""
    # A `GenomeSource` is a protocol; the receiver builds `Genomes`.
    parts = {name: Genomes if hint is GenomeSource else hint for name, hint in get_type_hints(kind).items()}
    return {name: part if is_dataclass(part) else None for name, part in parts.items()}
