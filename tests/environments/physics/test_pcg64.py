"""The generator of episodes draws what NumPy's Generator draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.environments.exact.task import Pcg64
from evolve.environments.physics.frames import GENERATOR

seeds = st.integers(0, 2**63 - 1)
DRAWS = st.sampled_from(["word", "random", "uniform", "integer", "certain"])


def theirs(seed):
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def draw(ours, numpy, what):
    """Return one draw of both generators."""
    match what:
        case "word":
            return ours.word(), int(numpy.bit_generator.random_raw())
        case "random":
            return ours.random(), numpy.random()
        case "uniform":  # which NumPy may compute by a fused multiply-add
            return ours.uniform(-1.0, 1.0), pytest.approx(numpy.uniform(-1.0, 1.0), rel=1e-15, abs=1e-15)
        case "integer":
            return ours.integer(-9999, 9999), int(numpy.integers(-9999, 9999))
        case _:
            return ours.integer(4, 5), int(numpy.integers(4, 5))


@given(seeds, st.lists(DRAWS, max_size=20))
def test_draws_are_numpys_in_any_order(seed, order):
    ours, numpy = Pcg64.seeded(seed), theirs(seed)
    for what in order:
        one, other = draw(ours, numpy, what)
        assert one == other
        ours = Pcg64.from_record(ours.to_record())  # as in the world of an episode
    state = numpy.bit_generator.state
    assert (ours.state, ours.increment) == (state["state"]["state"], state["state"]["inc"])
    assert (ours.has_half, ours.half) == (bool(state["has_uint32"]), state["uinteger"])


@given(seeds, st.integers(-(2**31), 2**31 - 2), st.integers(1, 2**31 - 1))
def test_whole_numbers_are_numpys(seed, low, count):
    high = min(low + count, 2**31 - 1)
    ours, numpy = Pcg64.seeded(seed), theirs(seed)
    assert [ours.integer(low, high) for _ in range(5)] == numpy.integers(low, high, 5).tolist()


@given(seeds)
def test_a_record_keeps_all_bits(seed):
    ours = Pcg64.seeded(seed)
    ours.integer(0, 10)
    record = ours.to_record()
    assert record.dtype == GENERATOR
    assert Pcg64.from_record(record) == ours
