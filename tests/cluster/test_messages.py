"""Messages survive the wire to the bit: arrays of any shape, numbers and texts, records within records."""

import struct
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from some_results import results

from evolve.cluster import messages
from evolve.cluster.messages import (
    Chunk,
    ChunkResults,
    Dismiss,
    FailedEpisode,
    Heartbeat,
    Kill,
    Setup,
    StopRequest,
    WorkerError,
)
from evolve.genome import NO_GENOMES, Genomes, SelectedGenomes
from evolve.rollouts import EpisodeBatch, EpisodeFailure

shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
lengths = array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


def equal(a, b):
    """Assert that two messages are the same, down to the types of their numbers."""
    assert type(a) is type(b)
    for field in fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if is_dataclass(x):
            equal(x, y)
        elif isinstance(x, np.ndarray):
            assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
        else:
            assert (type(x), x) == (type(y), y)


def survives(message):
    equal(messages.decode(messages.encode(message)), message)


@given(
    arrays(np.int64, lengths),
    arrays(np.float32, lengths),
    arrays(np.int32, lengths),
    st.integers(0, 6),
    st.integers(0, 5),
    st.integers(0, 2**62),
)
def test_chunks_survive_the_wire_to_the_bit(keys, normalizers, rows, P, W, seed):
    draw = np.random.Generator(np.random.Philox(seed))
    genomes = Genomes(draw.normal(size=(P, W)).astype(np.float32), draw.random((P, W)) < 0.5)
    ids = np.arange(P, dtype=np.int32)
    survives(Chunk(3, EpisodeBatch(seed, 2, genomes, ids, ids, keys, normalizers, rows, rows)))


@given(st.integers(0, 5), st.integers(0, 4))
def test_results_survive_the_wire_to_the_bit(n, T):
    lengths = np.arange(n, dtype=np.int32)
    given = results(
        genomes=np.ones(n), returns=np.full(n, np.nan), lengths=lengths,
        fingerprints=np.full((n, 2), 2**64 - 1, np.uint64), moments=np.full((n, 2, T), -0.0), traced=[0],
        traces=np.full((1, T), -(2**62)),
    )  # fmt: skip
    survives(ChunkResults(7, 0.5, 0.25, given))


@pytest.mark.parametrize(
    "message",
    [
        Setup("seeds = [1] # ü"),
        WorkerError(""),
        WorkerError("line 1\nline 2"),
        WorkerError("no such file: \udcff"),  # UTF-8 cannot encode this name of a file
        StopRequest(15),
        Kill(2**31),
        Heartbeat(),
        Dismiss(np.zeros(0, np.uint8)),
        Dismiss(np.arange(256).astype(np.uint8)),
        FailedEpisode(3, EpisodeFailure(1, 2, 2**40, -1, "the motor burnt out: °C")),
    ],
    ids=lambda message: type(message).__name__,
)
def test_other_messages(message):
    survives(message)


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, 2**63, 2**64 - 1])
def test_whole_numbers_of_64_bits_arrive_as_pythons_own(number):
    survives(Kill(number))


@pytest.mark.parametrize("number", [np.int64(3), np.uint64(2**63), np.bool_(True)])
def test_a_number_of_numpy_arrives_as_pythons_own(number):
    arrived = messages.decode(messages.encode(Kill(number)))
    equal(arrived, Kill(number.item()))


@pytest.mark.parametrize("number", [np.nan, np.inf, -0.0, 5e-324])
def test_numbers_arrive_to_the_bit(number):
    busy = messages.decode(
        messages.encode(ChunkResults(1, number, 0.0, results(genomes=[0], lengths=[1])))
    ).busy_seconds
    assert struct.pack("<d", busy) == struct.pack("<d", number)


def test_genomes_that_were_not_in_memory_stay_where_they_are():
    there = SelectedGenomes(NO_GENOMES, np.arange(3))
    none = np.zeros(0, np.int32)
    keys, normalizers = np.zeros((3, 2), np.int64), np.zeros((3, 2, 0), np.float32)
    ids = np.arange(3, dtype=np.int32)
    batch = EpisodeBatch(0, 0, there, ids, ids, keys, normalizers, none, none)
    arrived = messages.decode(messages.encode(Chunk(1, batch))).batch
    assert (len(arrived.genomes), arrived.genome_ids.tolist()) == (0, [0, 1, 2])


def test_slices_are_framed_by_value():
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    none = np.zeros(0, np.int32)
    batch = EpisodeBatch(
        0, 0, Genomes(weights[1:, ::2], np.ones((2, 2), np.bool_)), none, none, np.zeros((2, 2), np.int64),
        np.zeros((2, 2, 0), np.float32), none, none,
    )  # fmt: skip
    assert messages.decode(messages.encode(Chunk(1, batch))).batch.genomes.weights.tolist() == [[4, 6], [8, 10]]


def test_decoded_arrays_are_views_into_the_frame():
    frame = messages.encode(Dismiss(np.arange(100, dtype=np.uint8)))
    assert np.shares_memory(messages.decode(frame).answer, frame)
