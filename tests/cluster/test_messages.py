import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from evolve.cluster import messages
from evolve.cluster.messages import Chunk, Failure, Results, Setup, Stop, StopRequest

shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


def equal(a, b):
    assert type(a) is type(b)
    for name in a.__dataclass_fields__:
        x, y = getattr(a, name), getattr(b, name)
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert x.tobytes() == y.tobytes()


@given(
    arrays(np.int64, shapes),
    arrays(np.int64, shapes),
    arrays(np.float32, shapes),
    arrays(np.bool_, shapes),
    arrays(np.int32, shapes),
)
def test_chunks_survive_the_wire_to_the_bit(task, keys, weights, mask, units):
    chunk = Chunk(task, keys, weights, mask, weights, units)
    equal(messages.decode(messages.encode(chunk)), chunk)


@given(st.integers(0, 5), st.integers(0, 4))
def test_results_survive_the_wire_to_the_bit(n, T):
    keys = np.ones(n, np.int32), np.zeros(n, np.int32)
    traces = np.full((n, T), -0.0, np.float32)
    lengths, prints = np.arange(n, dtype=np.int32), np.full((n, 2), 2**64 - 1, np.uint64)
    trails = np.zeros((int(lengths.sum()), 2), np.uint8)
    told = keys[0], keys[1], np.full(n, np.nan), lengths, traces, prints, trails, np.ones((n, 2, T))
    results = Results(*told, np.array([7]), np.array([0.5, 0.25]))
    equal(messages.decode(messages.encode(results)), results)


@pytest.mark.parametrize(
    "message",
    [Setup(messages.text("seeds = [1] # ü")), Failure(messages.text("")), Stop(), StopRequest(np.array([15]))],
)
def test_other_messages(message):
    equal(messages.decode(messages.encode(message)), message)


def test_slices_are_framed_by_value():
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    chunk = Chunk(
        np.zeros(3, np.int64),
        np.zeros((2, 2), np.int64),
        weights[1:, ::2],
        np.ones((2, 2), np.bool_),
        np.zeros((2, 2, 0), np.float32),
        np.zeros((0, 3), np.int32),
    )
    assert messages.decode(messages.encode(chunk)).weights.tolist() == [[4, 6], [8, 10]]
