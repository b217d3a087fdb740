"""Columns of slots: what is put into some can be taken from them, and the others keep what they have."""

import numpy as np
import pytest

from evolve.networks.network import HostArrays
from evolve.numerics import native

SLOTS = 40  # tiles and a half


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("slots", [[0], [17, 3, 39], range(SLOTS), range(15, 33)])
@pytest.mark.parametrize("n", [1, 64, 150])
def test_columns_are_put_and_taken(backend, slots, n):
    if backend == "native" and not native.available():
        pytest.skip("the native kernels were not built")
    columns = HostArrays(SLOTS, backend).columns(n)
    expected = np.zeros((SLOTS, n), np.float32)
    for turn in range(2):
        values = np.random.Generator(np.random.Philox(turn)).normal(size=(len(slots), n)).astype(np.float32)
        columns.put(np.array(slots), values)
        expected[np.array(slots)] = values
    assert np.array_equal(columns.take(np.arange(SLOTS)), expected)
