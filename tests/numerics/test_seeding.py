import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics import native
from evolve.numerics.streams import first_words

part = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("built", [True, False])
@given(
    seed=st.integers(0, 2**200), keys=st.lists(st.tuples(part, part, part, part), max_size=5), count=st.integers(1, 4)
)
def test_words_of_many_keys_are_numpys(seed, keys, count, built):
    expected = [np.random.SeedSequence(seed, spawn_key=key).generate_state(count).tolist() for key in keys]
    with pytest.MonkeyPatch.context() as patch:
        if not built:
            patch.setattr(native, "available", lambda: False)
        words = first_words(seed, np.array(keys, np.int64).reshape(-1, 4), count)
    assert words.shape == (len(keys), count)
    assert words.tolist() == expected
