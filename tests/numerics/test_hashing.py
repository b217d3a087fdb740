"""Fingerprints: every back end gives the same, any changed bit shows, and step hashes tell in which step."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics import native
from evolve.numerics.hashing import (
    MAX_HASHED_STEPS,
    StepHashes,
    coefficients,
    count_present,
    fold,
    fold_present,
    sha256,
)
from evolve.numerics.native import available

BACKENDS = ["numpy", pytest.param("native", marks=pytest.mark.skipif(not available(), reason="no compiler"))]
O, A = 5, 3


def steps(n, slots=1, seed=0):
    draw = np.random.Generator(np.random.Philox(seed))
    return [tuple(draw.normal(size=(slots, k)).astype(np.float32) for k in (O, A)) for _ in range(n)]


def run(played, backend="numpy", slots=1):
    prints = StepHashes(np.zeros((slots, O), np.float32), np.zeros((slots, A), np.float32), backend)
    return go_on(prints, played)


def go_on(prints, played):
    for seen, done in played:
        prints.observations[: len(seen)] = seen
        prints.outputs[: len(seen)] = done
        prints.update(len(seen))
    return prints


def of(prints, slots, *lengths):
    return [array.tolist() for array in prints.of(np.array(slots), np.array(lengths, np.int32))]


def by_hand(rows):
    """The fingerprint and the step hashes of rows, in Python's own integers."""
    h, hashes = 0, []
    for row in rows:
        words = [0x7FC00000 if np.isnan(x) else int(np.float32(x).view(np.uint32)) for x in row]
        h ^= sum(int(c) * w for c, w in zip(coefficients(len(row)), words, strict=True)) % 2**64
        h = h * 0x9E3779B97F4A7C15 % 2**64
        h ^= h >> 32
        hashes.append(h >> 56)
    return h, hashes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [1, 7, 300])
def test_the_formula(backend, n):
    played = steps(n)
    played[0][1][0, 1] = -np.nan
    (seen, done), hashes = of(run(played, backend), [0], n)[0][0], of(run(played, backend), [0], n)[1]
    expected = [by_hand([row[which][0] for row in played]) for which in (0, 1)]
    assert [seen, done] == [expected[0][0], expected[1][0]]
    assert hashes == [list(pair) for pair in zip(expected[0][1], expected[1][1], strict=True)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_slots_are_independent_and_move(backend):
    played = steps(20, slots=4)
    prints = run(played[:10], backend, slots=4)
    prints.move(np.array([3]), np.array([1]))
    prints.begin(np.array([0]))
    go_on(prints, [(s[:2], d[:2]) for s, d in played[10:]])  # slots 2 and 3 stand idle
    alone = run([(s[:1], d[:1]) for s, d in played[10:]], backend)
    assert of(prints, [0], 10) == of(alone, [0], 10)
    moved = run([(s[3:], d[3:]) for s, d in played[:10]] + [(s[1:2], d[1:2]) for s, d in played[10:]], backend)
    assert of(prints, [1], 20) == of(moved, [0], 20)
    both = of(prints, [0, 1], 10, 20)
    assert both[1] == of(prints, [0], 10)[1] + of(prints, [1], 20)[1]  # end to end


@pytest.mark.parametrize("backend", BACKENDS)
def test_step_hashes_have_an_end_and_the_fingerprint_none(backend):
    played = steps(3) * (MAX_HASHED_STEPS // 3 + 5)
    n = len(played)
    fingerprints, hashes = of(run(played, backend), [0], n)
    assert len(hashes) == MAX_HASHED_STEPS
    assert hashes == of(run(played[:MAX_HASHED_STEPS], backend), [0], MAX_HASHED_STEPS)[1]
    assert fingerprints != of(run(played[:-1], backend), [0], n - 1)[0]


@given(st.integers(0, 27), st.integers(0, O - 1), st.integers(0, 31), st.sampled_from([0, 1]))
def test_one_changed_bit_shows_and_the_step_hashes_tell_when(step, column, bit, which):
    played, other = steps(30), steps(30)
    column %= (O, A)[which]
    other[step][which].view(np.uint32)[0, column] ^= np.uint32(1 << bit)
    (ours, our_hashes), (theirs, their_hashes) = (of(run(p), [0], 30) for p in (played, other))
    assert ours[0][which] != theirs[0][which]
    assert ours[0][1 - which] == theirs[0][1 - which]
    assert our_hashes[:step] == their_hashes[:step]
    assert our_hashes[step : step + 3] != their_hashes[step : step + 3]  # a byte shows it, but once in 256


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize(("n", "k"), [(0, 3), (2, 0), (1, 1), (3, 700), (2, 5000)])
def test_values_that_are_not_present_count_as_the_same_word(monkeypatch, built, n, k):
    if built and not available():
        pytest.skip("the native kernels were not built")
    monkeypatch.setattr(native, "available", lambda: built)
    draw = np.random.Generator(np.random.Philox(0))
    values, present = draw.normal(size=(n, k)).astype(np.float32), draw.random((n, k)) < 0.7
    words = np.where(present, values.view(np.uint32), 0xFFFFFFFF).tolist()
    expected = [sum(c * w for c, w in zip(coefficients(k).tolist(), row, strict=True)) % 2**64 for row in words]
    assert fold_present(values, present).tolist() == expected


@pytest.mark.parametrize("kernel", ["sha256", "sha256_by_lanes", "hashlib"])
@pytest.mark.parametrize("n", [0, 3, 8, 33])
def test_rows_have_the_sha256_of_their_bytes_whatever_their_length(monkeypatch, kernel, n):
    """By the instructions of this CPU, if it has any; by those that all CPUs have; and without a kernel."""
    built, bind = kernel != "hashlib", native.bind
    if built and not available():
        pytest.skip("the native kernels were not built")
    monkeypatch.setattr(native, "available", lambda: built)
    monkeypatch.setattr(native, "bind", lambda name, *more: bind(kernel if name == "sha256" else name, *more))
    draw = np.random.Generator(np.random.Philox(0))
    for k in (*range(40), 63, 64, 1000):  # the message ends everywhere in a block of 64 bytes
        values, present = draw.normal(size=(n, k)).astype(np.float32), draw.random((n, k)) < 0.7
        rows = [hashlib.sha256(v.tobytes() + p.tobytes()).digest() for v, p in zip(values, present, strict=True)]
        assert sha256(values, present).tobytes() == b"".join(rows)
        assert count_present(present).tolist() == [sum(row) for row in present.tolist()]
        assert sha256(values[::-1], present[::-1]).tobytes() == b"".join(rows[::-1])  # of views, too


def test_folds_of_rows_that_differ_in_one_word_differ():
    rows = np.zeros((33, 4), np.uint32)
    rows[1:, 2] = 1 << np.arange(32, dtype=np.uint32)
    assert len(set(fold(rows).tolist())) == 33
    assert (coefficients(1000) % np.uint64(2) == 1).all()
