"""Results are collected by key: neither their order nor their division into messages matters."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_results import checked, results

from evolve.genome import Genomes, describe
from evolve.numerics import ordered_sum
from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.rollouts import EPISODE_QUANTITIES, EpisodeResults, PopulationResults, sum_traces
from evolve.rollouts.results import TRACE_UNIT, quantize_traces

P, E, T = 3, 4, 5
N = P * E


def everything():
    """The results of every episode; its step hashes are nothing but its number."""
    draw = np.random.Generator(np.random.Philox(0))
    p, e = np.divmod(np.arange(N, dtype=np.int32), np.int32(E))
    lengths = draw.integers(1, 99, N).astype(np.int32)
    return results(
        genomes=p,
        episodes=e,
        returns=draw.normal(size=N),
        lengths=lengths,
        fingerprints=np.stack([p, e], axis=1),
        moments=np.arange(N * 4.0).reshape(N, 2, 2),
        step_hashes=np.repeat(np.arange(N)[:, None], 2, axis=1).repeat(lengths, axis=0),
        traced=p,
        traces=quantize_traces((draw.normal(size=(N, T)) * 10).astype(np.float32)),
    )


def some(places):
    """The results of these episodes, in this order."""
    whole = everything()
    begin = np.cumsum(whole.lengths) - whole.lengths
    hashes = [whole.step_hashes[begin[n] : begin[n] + whole.lengths[n]] for n in places]
    parts = {f.name: getattr(whole, f.name) for f in fields(whole)}
    whole_anyway = {"step_hashes", "described", "digests", "connections", "genome_fingerprints"}
    parts = {name: array if name in whole_anyway else array[places] for name, array in parts.items()}
    return checked(EpisodeResults(**parts | {"step_hashes": np.concatenate([whole.step_hashes[:0], *hashes])}))


def collected(*parcels):
    """The results of these episodes, message by message."""
    found = PopulationResults(P, E, T)
    for parcel in parcels:
        if len(parcel):
            found.add(some(np.array(parcel, np.intp)))
    return found


@given(st.permutations(range(N)), st.sets(st.integers(0, N)))
def test_order_and_parcels_do_not_matter(order, cuts):
    expected = collected(range(N))
    ours = collected(*(order[a:b] for a, b in pairwise([0, *sorted(cuts), None])))
    for name in EPISODE_QUANTITIES:
        if name != "step_hashes":
            assert np.array_equal(ours.quantities[name], expected.quantities[name])
    assert np.array_equal(ours.traces, expected.traces)
    assert np.array_equal(ours.trace_fingerprints(), expected.trace_fingerprints())
    for candidate in range(P):
        pairs = zip(ours.step_hashes(candidate), expected.step_hashes(candidate), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)


def test_values_stand_at_their_key():
    table = collected(range(N))
    whole = everything()
    means = np.zeros((P, T))
    for n in range(N):
        p, e = divmod(n, E)
        assert table.returns[p, e] == whole.returns[n]
        assert table.fingerprints[p, e].tolist() == [p, e]
        assert table.lengths[p, e] == whole.lengths[n]
        hashes = table.step_hashes(p)
        assert [len(part) for part in hashes] == whole.lengths[p * E : p * E + E].tolist()
        assert hashes[e].tolist() == [[n] * 2] * whole.lengths[n]
        means[p] += whole.traces[n] * TRACE_UNIT / E
    assert np.allclose(table.traces, means, atol=1e-5)
    assert np.array_equal(table.moments, whole.moments.reshape(P, E, 2, 2))
    assert table.played.all()


def test_a_candidate_that_left_a_race_has_the_mean_of_its_episodes():
    table = collected([0, 1, 2, 3, 4, 8])
    assert table.played.tolist() == [[True] * 4, [True, *[False] * 3], [True, *[False] * 3]]
    assert np.isnan(table.returns).tolist() == (~table.played).tolist()
    assert not table.lengths[~table.played].any()
    assert not table.fingerprints[~table.played].any()
    assert len(table.step_hashes(1)[3]) == 0
    assert np.allclose(table.traces[1], everything().traces[4] * TRACE_UNIT, atol=1e-5)


def test_traces_travel_as_one_row_for_each_genome():
    summed = sum_traces(everything())
    assert summed.traced.tolist() == [0, 1, 2]
    assert np.array_equal(summed.traces, everything().traces.reshape(P, E, T).sum(axis=1))
    assert np.array_equal(sum_traces(summed).traces, summed.traces)


def test_collected_results_keep_nothing_of_a_message_alive():
    """The arrays of a message are views into its buffer, genomes and all."""
    played = some(np.arange(N))
    message = EpisodeResults(**{f.name: getattr(played, f.name)[:] for f in fields(played)})
    found = PopulationResults(P, E, T)
    found.add(message)
    kept = [*found.quantities.values(), found.trace_sums, *found.step_hashes(0)]
    assert not any(np.shares_memory(ours, getattr(message, f.name)) for ours in kept for f in fields(message))


def test_a_trace_that_is_no_number_counts_as_zero():
    traces = quantize_traces(np.array([[np.nan, np.inf, 2.0, -np.inf]], np.float32))
    assert traces.tolist() == [[0, 0, 2 / TRACE_UNIT, 0]]


def test_an_episode_that_is_given_up_has_failed_and_left_nothing():
    table = PopulationResults(P, E, T)
    table.add(some(np.arange(N - 1)))
    table.add_failure(P - 1, E - 1, observation_size=2)
    assert np.isnan(table.returns[-1, -1])
    assert np.count_nonzero(np.isnan(table.returns)) == 1
    assert table.played.all()
    assert not table.moments[-1, -1].any()
    assert len(table.step_hashes(P - 1)[-1]) == 0
    assert len(table.step_hashes(P - 1)[-2])


def test_the_sum_of_all_traces_gives_the_same_mean():
    whole = everything()
    added_up = PopulationResults(P, E, T, "mean")
    for n in range(N):
        added_up.add(replace(some(np.array([n])), traced=np.zeros(1, np.int32)))
    each, together = collected(range(N)), added_up
    assert np.array_equal(each.mean_traces, together.mean_traces)
    assert together.mean_traces == pytest.approx(whole.traces.mean(axis=0) * TRACE_UNIT)
    assert together.traces[0] == pytest.approx(together.mean_traces)
    assert each.trace_fingerprints().all()
    assert not together.trace_fingerprints().any()


def test_after_a_race_every_candidate_counts_the_same_in_the_mean():
    longer = (everything().episodes == 0) | (everything().genomes == 0)  # only candidate 0 has played on
    results = collected(np.flatnonzero(longer))
    assert np.array_equal(results.mean_traces, ordered_sum(results.traces.T.astype(np.float64)) / P)
    summed = PopulationResults(P, E, T, "mean")
    played = some(np.flatnonzero(longer))
    summed.add(replace(played, traced=np.zeros_like(played.traced)))
    with pytest.raises(ValueError, match="each candidate"):
        _ = summed.mean_traces


def test_traces_that_are_not_wanted_are_not_returned():
    table = PopulationResults(P, E, T, "none")
    table.add(replace(some(np.arange(N)), traced=np.zeros(0, np.int32), traces=np.zeros((0, 0), np.int64)))
    assert table.traces.shape == (0, 0)
    assert not table.trace_fingerprints().any()


def test_genomes_that_no_worker_described_are_described_here():
    genomes = Genomes(np.arange(P * 2, dtype=np.float32).reshape(P, 2), np.ones((P, 2), np.bool_))
    expected = describe(genomes)
    known = np.array([2, 0, 2])
    said = describe(genomes.take(known))
    part = replace(some(np.arange(N)), described=known.astype(np.int32), digests=said.digests,
                   connections=said.connections, genome_fingerprints=said.genome_fingerprints)  # fmt: skip
    found = PopulationResults(P, E, T)
    found.add(part)
    ours = found.descriptions(genomes)
    for name in vars(expected):
        assert np.array_equal(getattr(ours, name), getattr(expected, name))


def test_traces_that_int64_cannot_hold_are_left_out():
    """Processors differ in what they make of such a number."""
    limit = np.float32(2.0**43)
    largest = np.nextafter(limit, np.float32(0))
    traces = np.array([[np.nan, np.inf, -np.inf, 1e30, -1e30, limit, largest, -largest, 1.5]], np.float32)
    expected = [0, 0, 0, 0, 0, 0, int(largest) << 20, -(int(largest) << 20), 3 << 19]
    assert quantize_traces(traces).tolist() == [expected]


def test_networks_without_traces_have_none():
    found = PopulationResults(1, 1, 0)
    found.add(results(genomes=[0], lengths=[0], traced=[0], traces=np.zeros((1, 0), np.int64)))
    assert found.traces.shape == (1, 0)


def test_step_hashes_of_a_long_episode_end_early():
    """The step hashes of the next episode begin where they end."""
    lengths = np.array([MAX_HASHED_STEPS + 50, 3], np.int32)
    hashes = np.arange(2 * (MAX_HASHED_STEPS + 3)).astype(np.uint8).reshape(-1, 2)
    both = results(genomes=[0, 0], episodes=[0, 1], lengths=lengths, step_hashes=hashes, traced=[0],
                   traces=np.zeros((1, 0), np.int64))  # fmt: skip
    found = PopulationResults(1, 2, 0)
    found.add(both)
    first, second = found.step_hashes(0)
    assert np.array_equal(first, hashes[:MAX_HASHED_STEPS])
    assert np.array_equal(second, hashes[MAX_HASHED_STEPS:])
