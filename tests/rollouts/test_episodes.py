"""Batches and results: plain arrays by key, which can be cut, joined and checked."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_results import checked, results

from evolve.genome import Genomes
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.rollouts import EPISODE_QUANTITIES, EpisodeBatch, RolloutSpec, generation_keys, join

P, E, W = 5, 3, 4


def batch(**how):
    draw = np.random.Generator(np.random.Philox(0))
    genomes = Genomes(draw.normal(size=(P, W)).astype(np.float32), draw.random((P, W)) < 0.5)
    normalizers = draw.normal(size=(P, 2, 6)).astype(np.float32)
    how = {"keys": generation_keys(2, P), "episodes": range(E), "normalizer": normalizers} | how
    return EpisodeBatch.of(7, Purpose.EPISODE, genomes, **how)


def test_genomes_play_one_after_another():
    whole = batch()
    assert len(whole) == P * E
    assert whole.rows.tolist() == [p for p in range(P) for _ in range(E)]
    assert whole.episodes.tolist() == list(range(E)) * P
    some = batch(rows=np.array([3, 1]), episodes=range(4, 6))
    assert (some.rows.tolist(), some.episodes.tolist()) == ([3, 3, 1, 1], [4, 5, 4, 5])
    assert len(some.genomes) == P


def test_all_episodes_of_a_race_have_no_genome_that_has_left_it():
    """One process takes all at once, and would also generate the genomes between those that play."""
    whole = batch()
    assert whole.take(np.arange(P * E)) is whole
    race = batch(rows=np.array([1, 3]), episodes=range(E, E + 2))
    part = race.take(np.arange(4))
    assert part.genome_ids.tolist() == [1, 3]
    assert part.rows.tolist() == [0, 0, 1, 1]


@given(st.lists(st.integers(0, P * E - 1), unique=True))
def test_a_part_has_its_episodes_and_no_genome_that_it_does_not_need(places):
    whole = batch(candidates=np.arange(P) + 100)
    part = whole.take(np.array(places, np.int64))
    assert len(part) == len(places)
    assert len(part.genomes) == len({place // E for place in places})
    at = whole.rows[places]
    assert part.genome_ids[part.rows].tolist() == at.tolist()
    assert part.candidates[part.rows].tolist() == (at + 100).tolist()
    assert part.episodes.tolist() == whole.episodes[places].tolist()
    assert np.array_equal(part.genomes.weights[part.rows], whole.genomes.weights[at])
    assert np.array_equal(part.genomes.mask[part.rows], whole.genomes.mask[at])
    assert np.array_equal(part.keys[part.rows], whole.keys[at])
    assert np.array_equal(part.normalizers[part.rows], whole.normalizers[at])
    assert np.array_equal(part.environment_seeds(), whole.environment_seeds()[places])


def test_an_environments_seed_follows_from_the_key():
    whole = batch()
    generations, candidates = np.full(P * E, 2), np.repeat(np.arange(P), E)
    expected = environment_seeds(7, Purpose.EPISODE, generations, candidates, np.tile(np.arange(E), P))
    assert np.array_equal(whole.environment_seeds(), expected)
    assert len(set(expected.tolist())) == P * E
    common = batch(keys=generation_keys(2, P, common=True)).environment_seeds().reshape(P, E)
    assert (common == expected[:E]).all()  # everybody meets the episodes of candidate 0
    pairs = batch(keys=generation_keys(2, P, common="pairs")).environment_seeds().reshape(P, E)
    own = expected.reshape(P, E)
    assert all((pairs[c] == own[c - c % 2]).all() for c in range(P))
    for common in (False, True, "pairs"):  # replays take the last key of a smaller population
        assert (generation_keys(2, P - 1, common) == generation_keys(2, P, common)[:-1]).all()


def test_one_normalizer_serves_all_genomes_and_none_has_no_observations():
    one = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert np.array_equal(batch(normalizer=one).normalizers, np.stack([one] * P))
    assert batch(normalizer=None).normalizers.shape == (P, 2, 0)


def test_keys_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="keys: expected"):
        batch(keys=generation_keys(2, P + 1))
    with pytest.raises(ValueError, match="keys: expected"):
        batch(keys=generation_keys(2, P).astype(np.int32))


def some(N=2, T=3, O=1):
    return results(
        genomes=np.arange(N), lengths=np.full(N, 2), moments=np.zeros((N, 2, O)), traced=np.arange(N),
        traces=np.zeros((N, T)),
    )  # fmt: skip


@pytest.mark.parametrize("name", [*EPISODE_QUANTITIES, "genomes", "episodes", "traced", "traces"])
def test_results_that_do_not_fit_together_are_refused(name):
    good = some()
    assert checked(good) is good
    array = getattr(good, name)
    if name not in ("genomes", "step_hashes", "traced"):  # which decide the sizes
        with pytest.raises(ValueError, match=f"{name}: expected"):
            checked(replace(good, **{name: array[:-1]}))
    with pytest.raises(ValueError, match=f"{name}: expected"):
        checked(replace(good, **{name: array.astype(np.complex64)}))


def test_joined_results_lie_end_to_end():
    both = checked(join([some(2), some(3)]))
    assert len(both) == 5
    assert both.genomes.tolist() == [0, 1, 0, 1, 2]
    assert len(both.step_hashes) == 10
    one = some()
    assert join([one]) is one


def test_equal_specs_are_one_rollout():
    """A coordinator sets its workers up anew only for another spec."""
    spec = RolloutSpec("seeds = [1]", slots=2, num_traces=3, max_episode_seconds=1.0)
    assert spec == RolloutSpec("seeds = [1]", slots=2, num_traces=3, max_episode_seconds=1.0)
    assert spec != replace(spec, slots=3)
