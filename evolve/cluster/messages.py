"""What travels between ranks: frozen records of plain arrays, framed in one buffer without pickling.

A frame is int64 words [kind, then per field: dtype code, dimensions, shape …] followed by the arrays' bytes, each
aligned to eight. Both ends know the fields of a kind, so nothing else has to be said.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.evaluation import Outcomes
from evolve.shapes import Bool, Float32, Float64, Int32, Int64

_DTYPES = tuple(np.dtype(code) for code in ("u1", "?", "<i4", "<i8", "<f4", "<f8", "<u8"))


@dataclass(frozen=True)
class Setup:
    """To a worker: the experiment (TOML text as bytes). It makes its network and environments from it."""

    config: NDArray[np.uint8]


@dataclass(frozen=True)
class Chunk:
    """To a worker: units to evaluate.

    task: [3] = serial, seed, purpose. keys: [C, 2], weights: [C, W], mask: [C, W]: the genomes needed and what keys
    their episodes: generation, candidate. normalizers: [C, 2, O], or [C, 2, 0] for none. units: [N, 3] = row among
    these C, candidate to report, episode.
    """

    task: Int64
    keys: Int64
    weights: Float32
    mask: Bool
    normalizers: Float32
    units: Int32


@dataclass(frozen=True)
class Results(Outcomes):
    """To the coordinator: what N units came to, and the seconds of evaluating since the last results.

    serial: [1]; seconds: [2], all of them and those spent in environments.
    """

    serial: Int64
    seconds: Float64


@dataclass(frozen=True)
class EpisodeFault:
    """To the coordinator, before the results that hold its NaN: an episode failed.

    numbers: [5] = serial, candidate, episode, environment seed, step (0 for reset); told: UTF-8 text, what happened.
    """

    numbers: Int64
    told: NDArray[np.uint8]


@dataclass(frozen=True)
class Alive:
    """To the coordinator: a worker is ready, or has been working on long episodes since its last message."""


@dataclass(frozen=True)
class Failure:
    """To the coordinator: a worker cannot go on; `report` is UTF-8 text with host and traceback."""

    report: NDArray[np.uint8]


@dataclass(frozen=True)
class StopRequest:
    """To the coordinator: a worker was signalled; signal: [1]."""

    signal: Int64


@dataclass(frozen=True)
class Kill:
    """To a worker: end the rank on your host whose process is pid: [1]; it hangs."""

    pid: Int64


@dataclass(frozen=True)
class Stop:
    """To a worker: drop everything and leave. From a worker: leaving."""


Message = Setup | Chunk | Results | EpisodeFault | Alive | Failure | StopRequest | Kill | Stop
_KINDS: tuple[type[Any], ...] = (Setup, Chunk, Results, EpisodeFault, Alive, Failure, StopRequest, Kill, Stop)


def text(string: str) -> NDArray[np.uint8]:
    """Return a string as UTF-8 bytes."""
    return np.frombuffer(string.encode("utf-8", "backslashreplace"), np.uint8)


def encode(message: Message) -> NDArray[np.uint8]:
    """Return the frame of a message."""
    arrays = [np.asarray(getattr(message, field.name), order="C") for field in fields(message)]
    words = [_KINDS.index(type(message))]
    for array in arrays:
        words += [_DTYPES.index(array.dtype), array.ndim, *array.shape]
    frame = np.zeros(8 * len(words) + sum(_aligned(array.nbytes) for array in arrays), np.uint8)
    frame[: 8 * len(words)] = np.array(words, "<i8").view(np.uint8)
    at = 8 * len(words)
    for array in arrays:
        frame[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
        at += _aligned(array.nbytes)
    return frame


def decode(frame: NDArray[np.uint8]) -> Message:
    """Return the message of a frame; its arrays are views into the frame."""
    words, cursor = frame[: len(frame) // 8 * 8].view("<i8"), 1
    kind = _KINDS[int(words[0])]
    layouts = []
    for _ in fields(kind):
        code, dimensions = (int(word) for word in words[cursor : cursor + 2])
        shape = tuple(int(word) for word in words[cursor + 2 : cursor + 2 + dimensions])
        layouts.append((_DTYPES[code], shape))
        cursor += 2 + dimensions
    at, arrays = 8 * cursor, []
    for dtype, shape in layouts:
        size = math.prod(shape) * dtype.itemsize
        arrays.append(frame[at : at + size].view(dtype).reshape(shape))
        at += _aligned(size)
    message: Message = kind(*arrays)
    return message


def _aligned(size: int) -> int:
    return -(-size // 8) * 8
