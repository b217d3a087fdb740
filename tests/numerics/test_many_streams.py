"""Streams read side by side: the numbers of each, with and without kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics.streams import Purpose, Stream, Streams, normal_rows

part = st.integers(0, 2**32 - 1)
parts = st.lists(part, max_size=3)
sizes = st.integers(0, 600)


pytestmark = pytest.mark.usefixtures("with_and_without_kernels")


def opened(seed, candidates):
    return Streams(seed, Purpose.MASKS, 3, np.array(candidates, np.int64))


def alone(seed, candidates):
    return [Stream(seed, Purpose.MASKS, 3, candidate) for candidate in candidates]


@given(st.integers(0, 2**70), parts, sizes, sizes)
def test_rows_are_read_on_as_each_stream_is(seed, candidates, first, size):
    together, streams = opened(seed, candidates), alone(seed, candidates)
    for read in (lambda s: s.uniform(first), lambda s: s.normal_rows(size), lambda s: s.uniform(1)):
        rows = read(together)
        assert [row.tobytes() for row in rows] == [read(stream).tobytes() for stream in streams]
    assert len(together) == len(rows) == len(candidates)


@given(st.integers(0, 2**70), parts, sizes, sizes)
def test_rows_of_normals_are_those_of_the_streams(seed, candidates, first, size):
    rows = normal_rows(seed, Purpose.MASKS, 3, np.array(candidates, np.int64), first + size, first)
    assert rows.shape == (len(candidates), size)
    assert rows.dtype == np.float32
    assert rows.tolist() == [s.normal(first + size)[first:].tolist() for s in alone(seed, candidates)]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_size_may_be_an_integer_of_numpy(kind):
    """The number of weights of a network of another package, for example."""
    assert opened(3, [1, 2]).normal_rows(kind(5)).tolist() == opened(3, [1, 2]).normal_rows(5).tolist()


@given(parts, sizes)
def test_each_number_is_compared_with_its_threshold(candidates, size):
    n = len(candidates)
    table = np.random.Generator(np.random.Philox(1)).random((2 * n, size + 1))
    uniform = opened(7, candidates).skip(5).uniform(size)
    for threshold in (0.3, table[0, :size] if n else 0.5, table[::2, 1:], uniform):
        streams = opened(7, candidates).skip(5)
        reached = streams.at_least(threshold, size)
        assert reached.dtype == np.bool_
        assert np.array_equal(reached, uniform >= threshold)
        assert np.array_equal(streams.uniform(1), opened(7, candidates).skip(5 + size).uniform(1))


def test_one_stream_compares_as_many_do():
    (together,) = opened(7, [4]).at_least(0.5, 30)
    assert Stream(7, Purpose.MASKS, 3, 4).at_least(0.5, 30).tolist() == [together.tolist()]


def test_some_are_read_on_from_where_all_are():
    streams = opened(7, [4, 5, 6])
    streams.uniform(3)
    whole = opened(7, [4, 5, 6]).uniform(8)[:, 3:]
    assert np.array_equal(streams.take(np.array([2, 0])).uniform(5), whole[[2, 0]])
    assert np.array_equal(streams.take(np.array([False, True, False])).uniform(5), whole[[1]])
    assert np.array_equal(streams.uniform(5), whole)


@given(st.lists(st.integers(0, 2**63 - 1), max_size=4))
def test_every_stream_may_have_a_seed_of_its_own(seeds):
    streams = Streams(np.array(seeds, np.int64), Purpose.INITIAL_WEIGHTS, 0, np.zeros(len(seeds), np.int64))
    expected = [Stream(seed, Purpose.INITIAL_WEIGHTS).uniform(7).tolist() for seed in seeds]
    assert streams.uniform(7).tolist() == expected


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_parts_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=r"\[0, 2\*\*32\)"):
        opened(0, [bad])
