"""What travels between ranks: frozen records of arrays, numbers and texts, framed in one buffer without pickling.

A frame is int64 words [kind, then per leaf: type code, dimensions, shape …] followed by the bytes of the leaves, each
aligned to eight. A leaf is a field that is no record itself; records in records are laid end to end. Both ends know the
fields of a kind, so nothing else has to be said.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from evolve.genome import NO_GENOMES, Genomes, GenomeSource
from evolve.rollouts import EpisodeBatch, EpisodeFailure, EpisodeResults

_DTYPES = tuple(
    np.dtype(code) for code in ("u1", "?", "<i4", "<i8", "<f4", "<f8", "<u8", "i1", "<i2", "<u2", "<u4", "<f2")
)
_AS: dict[Any, Any] = {GenomeSource: Genomes}
"""As what a type travels."""
_TEXT = len(_DTYPES)
"""The type code of a text, which travels as UTF-8; numbers of no dimension arrive as Python's own."""


@dataclass(frozen=True)
class Setup:
    """To a worker: make the rollout of an experiment (TOML text), to which chunks refer by its number."""

    number: int
    experiment: str


@dataclass(frozen=True)
class Chunk:
    """To a worker: episodes to be played by the rollout of a setup, for the evaluation `serial`.

    Genomes that were not in memory do not travel: the worker makes them, of what it has taken note of.
    """

    serial: int
    setup: int
    batch: EpisodeBatch


@dataclass(frozen=True)
class Note:
    """To a worker: take note of something, for what it is asked next."""

    content: NDArray[np.uint8]


@dataclass(frozen=True)
class Question:
    """To a worker: answer, by this number, in the round `serial`."""

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
    """To the coordinator: results, and the seconds of work and of environments since the last results."""

    serial: int
    busy_seconds: float
    environment_seconds: float
    results: EpisodeResults


@dataclass(frozen=True)
class FailedEpisode:
    """To the coordinator, before the results that hold its NaN: an episode failed."""

    serial: int
    failure: EpisodeFailure


@dataclass(frozen=True)
class Alive:
    """To the coordinator: a worker is ready, or has been working on long episodes since its last message."""


@dataclass(frozen=True)
class WorkerError:
    """To the coordinator: a worker cannot go on; the report has its host and the traceback."""

    report: str


@dataclass(frozen=True)
class StopRequest:
    """To the coordinator: a worker has had a signal."""

    signal: int


@dataclass(frozen=True)
class Kill:
    """To a worker: end the process `pid` on your host, a rank that hangs."""

    pid: int


@dataclass(frozen=True)
class Stop:
    """To a worker: drop everything, and leave with this answer. From a worker: leaving."""

    answer: NDArray[np.uint8]


ToWorker = Setup | Chunk | Note | Question | Kill | Stop
ToCoordinator = ChunkResults | Answer | FailedEpisode | Alive | WorkerError | StopRequest
Message = ToWorker | ToCoordinator
_KINDS: tuple[type[Any], ...] = get_args(Message)


def encode(message: Message) -> NDArray[np.uint8]:
    """Return the frame of a message."""
    return frame_of(message, _KINDS)


def decode(frame: NDArray[np.uint8]) -> Message:
    """Return the message of a frame; its arrays are views into the frame."""
    message: Message = record_of(frame, _KINDS)
    return message


def frame_of(record: Any, kinds: Sequence[type[Any]]) -> NDArray[np.uint8]:
    """Return the frame of a record, which is of one of these kinds."""
    words = [kinds.index(type(record))]
    arrays = []
    for leaf in _leaves(record):
        code, array = _as_array(leaf)
        words += [code, array.ndim, *array.shape]
        arrays.append(array)
    frame = np.zeros(8 * len(words) + sum(_aligned(array.nbytes) for array in arrays), np.uint8)
    frame[: 8 * len(words)] = np.array(words, "<i8").view(np.uint8)
    at = 8 * len(words)
    for array in arrays:
        frame[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
        at += _aligned(array.nbytes)
    return frame


def record_of(frame: NDArray[np.uint8], kinds: Sequence[type[Any]]) -> Any:
    """Return the record of a frame; its arrays are views into the frame."""
    words = frame[: len(frame) // 8 * 8].view("<i8")
    kind = kinds[int(words[0])]
    cursor = 1
    layouts = []
    for _ in range(_count(cast(Hashable, kind))):
        code, dimensions = (int(word) for word in words[cursor : cursor + 2])
        layouts.append((code, tuple(int(word) for word in words[cursor + 2 : cursor + 2 + dimensions])))
        cursor += 2 + dimensions
    return _build(kind, _read(frame, 8 * cursor, layouts))


def _leaves(record: Any) -> Iterator[Any]:
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, EpisodeBatch) and not isinstance(value.genomes, Genomes):
            value = replace(value, genomes=NO_GENOMES)
        if is_dataclass(value):
            yield from _leaves(value)
        else:
            yield value


def _as_array(leaf: Any) -> tuple[int, NDArray[Any]]:
    if isinstance(leaf, str):
        return _TEXT, np.frombuffer(leaf.encode("utf-8", "backslashreplace"), np.uint8)
    array = np.asarray(leaf, order="C")
    return _DTYPES.index(array.dtype), array


def _read(frame: NDArray[np.uint8], at: int, layouts: list[tuple[int, tuple[int, ...]]]) -> Iterator[Any]:
    for code, shape in layouts:
        dtype = _DTYPES[0] if code == _TEXT else _DTYPES[code]
        size = math.prod(shape) * dtype.itemsize
        array = frame[at : at + size].view(dtype).reshape(shape)
        yield array.tobytes().decode(errors="replace") if code == _TEXT else array if shape else array.item()
        at += _aligned(size)


def _build(kind: Any, leaves: Iterator[Any]) -> Any:
    return kind(*(_build(part, leaves) if is_dataclass(part) else next(leaves) for part in _parts(kind)))


@cache
def _parts(kind: Hashable) -> tuple[Any, ...]:
    """Return the types of the fields of a record."""
    record: Any = kind
    hints = get_type_hints(record)
    return tuple(_AS.get(hints[field.name], hints[field.name]) for field in fields(record))


@cache
def _count(kind: Hashable) -> int:
    """Return how many leaves a kind has."""
    count = 0
    for part in _parts(kind):
        count += _count(cast(Hashable, part)) if is_dataclass(part) else 1
    return count


def _aligned(size: int) -> int:
    return -(-size // 8) * 8
