import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics import native, normal_quantile
from evolve.numerics.streams import Purpose, Stream, environment_seeds, first_words, purpose_number, seed_sequence

part = st.integers(0, 2**32 - 1)


def environment_seed(seed, purpose, *key):
    (one,) = environment_seeds(seed, purpose, *np.array(key)[:, None])
    return int(one)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 100])
def test_seeds_of_many_episodes_are_those_of_each(n):
    generations, candidates, episodes = np.random.Generator(np.random.Philox(0)).integers(0, 2**32, (3, n))
    together = environment_seeds(7, Purpose.HELD_OUT, generations, candidates, episodes)
    assert together.dtype == np.int64
    assert together.tolist() == [
        environment_seed(7, Purpose.HELD_OUT, *key) for key in zip(generations, candidates, episodes, strict=True)
    ]


@given(st.integers(0, 2**63 - 1), part, part, part)
def test_equal_keys_give_equal_streams(seed, generation, candidate, episode):
    key = (seed, Purpose.SWAPS, generation, candidate, episode)
    assert Stream(*key).bits(5).tolist() == Stream(*key).bits(5).tolist()


def test_every_part_of_the_key_matters():
    keys = [
        (s, p, g, c, e)
        for s in (0, 1)
        for p in (Purpose.INIT, Purpose.EPISODE)
        for g in (0, 1)
        for c in (0, 1)
        for e in (0, 1)
    ]
    assert len({tuple(Stream(*key).bits(2)) for key in keys}) == len(keys)
    assert len({environment_seed(*key) for key in keys}) == len(keys)


def test_trailing_zeros_of_a_key_are_not_padding():
    # numpy.random.SeedSequence([7]) and ([7, 0]) are the same stream; ours must not be.
    plain = [np.random.SeedSequence(key).generate_state(2).tolist() for key in ([7], [7, 0])]
    assert plain[0] == plain[1]
    ours = [np.random.Philox(seed_sequence(7, Purpose.INIT, 0, 0, e)).random_raw(2).tolist() for e in (0, 1)]
    assert ours[0] != ours[1]


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_parts_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=r"\[0, 2\*\*32\)"):
        Stream(0, Purpose.INIT, bad)
    with pytest.raises(ValueError, match=r"generation, candidate and episode in \[0, 2\*\*32\)"):
        first_words(0, np.array([[0, 0, 0, bad]]), 1)


def test_uniform_is_open_and_flat():
    u = Stream(3, Purpose.INIT).uniform(100_000)
    assert 0 < u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 44  # chi-square, 19 degrees of freedom, p = 0.001


def test_uniform_never_touches_its_ends():
    class Extreme(Stream):
        def bits(self, n):
            return np.array([0, 2**64 - 1], np.uint64)

    low, high = Extreme(0, Purpose.INIT).uniform(2)
    assert low == 2.0**-53
    assert high == 1 - 2.0**-53


@given(st.integers(1, 10**6))
def test_below_stays_below(bound):
    draws = Stream(1, Purpose.PARENTS).below(bound, 50)
    assert draws.min() >= 0
    assert draws.max() < bound


@pytest.mark.parametrize("built", [True, False])
def test_normal_deviates_are_quantiles_of_uniform_ones(monkeypatch, built):
    if built and not native.available():
        pytest.skip("the native kernels were not built")
    monkeypatch.setattr(native, "available", lambda: built)
    made = Stream(5, Purpose.WEIGHT_NOISE, 1, 2).normal(3, 50)
    uniform = Stream(5, Purpose.WEIGHT_NOISE, 1, 2).uniform(3, 50)
    assert made.shape == (3, 50)
    assert made.tobytes() == normal_quantile(uniform).tobytes()


def test_environment_seeds_fit_a_signed_word():
    seeds = environment_seeds(13, Purpose.EPISODE, np.arange(500), *np.zeros((2, 500), np.int64))
    assert min(seeds) >= 0
    assert max(seeds) < 2**31


def test_golden_words(golden):
    assert [int(w) for w in Stream(41337, Purpose.EPISODE, 3, 2, 1).bits(3)] == golden["philox_words"]
    assert environment_seed(41337, Purpose.EPISODE, 3, 2, 1) == golden["environment_seed"]


@given(st.text())
def test_named_purposes_have_numbers_of_their_own(name):
    number = purpose_number(name)
    digest = hashlib.sha256(name.encode()).digest()
    assert number == int.from_bytes(digest[:4], "big") | 2**31
    assert max(Purpose) < 2**31 <= number < 2**32


def test_named_purposes_have_streams_of_their_own():
    names = ["outside.mutation", "outside.masks", ""]
    keys = [*Purpose, *names]
    assert len({tuple(Stream(3, purpose, 1, 2).bits(2)) for purpose in keys}) == len(keys)
    assert Stream(3, "outside.mutation", 1, 2).bits(4).tolist() == Stream(3, "outside.mutation", 1, 2).bits(4).tolist()
    assert len({environment_seed(7, purpose, 1, 2, 3) for purpose in keys}) == len(keys)
    many = np.arange(40)
    together = environment_seeds(7, "outside.episodes", many, many, many)
    assert together.tolist() == [environment_seed(7, "outside.episodes", n, n, n) for n in range(40)]


def test_a_named_purpose_never_changes_its_number():
    assert purpose_number("outside.mutation") == 3864486450
    assert purpose_number(Purpose.SWAPS) == 4
