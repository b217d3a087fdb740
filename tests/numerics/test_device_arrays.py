"""Columns on a device can be written, read, moved and cleared, in pieces that fit, beside other copies under way."""

import numpy as np
import pytest

from evolve.numerics import device
from evolve.numerics.device import DeviceArrays

pytestmark = pytest.mark.usefixtures("any_device")


@pytest.mark.parametrize("at_once", [1, 300, 2**24])
@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32, np.uint64, np.float64])
def test_columns_are_put_taken_moved_and_cleared(monkeypatch, at_once, dtype):
    monkeypatch.setattr(device, "LARGEST_COPY", at_once)
    arrays = DeviceArrays(70)
    columns = arrays.columns(9, dtype)
    expected = np.zeros((70, 9), dtype)
    assert np.array_equal(columns.take(np.arange(70)), expected)
    values = np.random.Generator(np.random.Philox(1)).integers(1, 60_000, size=(50, 9)).astype(dtype)
    columns.put(np.arange(10, 60), values)
    expected[10:60] = values
    columns.move(np.array([11, 59, 33]), np.array([69, 0, 32]))
    expected[[69, 0, 32]] = expected[[11, 59, 33]]
    columns.clear(np.array([12, 40]))
    expected[[12, 40]] = 0
    columns.put(np.arange(0), values[:0])
    assert np.array_equal(columns.take(np.arange(70)), expected)
    assert np.array_equal(columns.take(np.array([69, 3, 32]), 4), expected[[69, 3, 32], :4])
    assert columns.take(np.array([5]), 0).shape == (1, 0)


def test_what_is_on_its_way_is_not_overwritten(monkeypatch):
    monkeypatch.setattr(device, "STAGING", 1024)
    arrays = DeviceArrays(32)
    columns = [arrays.columns(n) for n in (3, 8, 21)]
    values = [np.full((32, n), n, np.float32) for n in (3, 8, 21)]
    for _ in range(5):
        for column, value in zip(columns, values, strict=True):
            column.put(np.arange(32), value)
    for column, value in zip(columns, values, strict=True):
        assert np.array_equal(column.take(np.arange(32)), value)


@pytest.mark.parametrize("n", [1, 3, 4, 31])
def test_the_names_of_slots_do_not_overwrite_their_numbers(monkeypatch, n):
    """Whatever is left of the memory for copies when a launch begins."""
    monkeypatch.setattr(device, "STAGING", 2048)
    slots = np.arange(64)
    values = np.arange(64 * n, dtype=np.float64).reshape(64, n) + 1
    for before in range(8):
        arrays = DeviceArrays(128)
        columns = arrays.columns(n, np.float64)
        for _ in range(before):
            arrays.scratch(256)
        columns.put(slots, values)
        for _ in range(before):
            arrays.scratch(256)
        columns.move(slots, slots + 64)
        assert np.array_equal(columns.take(slots), values)
        assert np.array_equal(columns.take(slots + 64), values)
