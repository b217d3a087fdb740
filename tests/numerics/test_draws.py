"""The random numbers of episodes equal the numbers of NumPy's Philox, also in C."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, INT64
from evolve.numerics.streams import DRAWS_KEY, draws


@given(st.integers(0, 2**31 - 1), st.integers(0, 500))
def test_a_draw_is_a_word_of_philox(seed, number):
    words = np.random.Philox(key=np.array([seed, DRAWS_KEY], np.uint64)).random_raw(number + 1)
    (drawn,) = draws(np.array([seed]), np.array([number]))
    assert drawn == ((int(words[-1]) >> 12) + 0.5) / 2**52


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_the_kernel_equals_the_reference():
    random = np.random.Generator(np.random.Philox(3))
    seeds, numbers = random.integers(0, 2**31, 5000), random.integers(0, 10**9, 5000)
    ours = np.zeros(5000)
    arguments = (array.ctypes.data for array in (seeds, numbers, ours))
    native.bind("draws", [ADDRESS] * 3 + [INT64])(*arguments, 5000)
    assert ours.tobytes() == draws(seeds, numbers).tobytes()
