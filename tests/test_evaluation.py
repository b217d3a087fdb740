from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evolve.evaluation import Ledger, Outcomes

P, E, T = 3, 4, 5


MASK = np.ones((P, T), np.bool_)


def outcomes():
    """What every unit came to; its trail holds nothing but its number."""
    draw = np.random.Generator(np.random.Philox(0))
    p, e = np.divmod(np.arange(P * E, dtype=np.int32), np.int32(E))
    lengths = draw.integers(1, 99, P * E).astype(np.int32)
    traces = (draw.normal(size=(P * E, T)) * 10).astype(np.float32)
    prints = np.stack([p, e], axis=1).astype(np.uint64)
    trails = np.repeat(np.arange(P * E, dtype=np.uint8)[:, None], 2, axis=1).repeat(lengths, axis=0)
    moments = np.arange(P * E * 4.0).reshape(P * E, 2, 2)
    return Outcomes(p, e, draw.normal(size=P * E), lengths, traces, prints, trails, moments)


def some(units):
    """The outcomes of these units, in this order."""
    whole, begin = outcomes(), np.cumsum(outcomes().lengths) - outcomes().lengths
    trails = [whole.trails[begin[n] : begin[n] + whole.lengths[n]] for n in units]
    columns = (whole.candidates, whole.episodes, whole.returns, whole.lengths, whole.traces, whole.fingerprints)
    return Outcomes(*(c[units] for c in columns), np.concatenate([whole.trails[:0], *trails]), whole.moments[units])


def filed(*parcels):
    """A ledger that got the outcomes of these units, parcel by parcel."""
    ledger = Ledger(P, E, T, O=2)
    ledger.expect(P * E)
    for parcel in parcels:
        ledger.put(some(np.array(parcel, np.intp)))
    return ledger


@given(st.permutations(range(P * E)), st.lists(st.integers(0, P * E - 1)), st.sets(st.integers(0, 2 * P * E)))
def test_order_repetition_and_parcels_do_not_matter(order, repeated, cuts):
    expected = filed(list(range(P * E))).evaluation(MASK, np.zeros((2, 1)))
    units, edges = [*order, *repeated], [0, *sorted(cuts), None]
    ledger = filed(*(list(dict.fromkeys(units[a:b])) for a, b in pairwise(edges)))
    assert ledger.waiting == 0
    ours = ledger.evaluation(MASK, np.zeros((2, 1)))
    for name in ("returns", "lengths", "traces", "fingerprints", "moments"):
        assert np.array_equal(getattr(ours, name), getattr(expected, name))
    for candidate in range(P):
        pairs = zip(ours.trails.of(candidate, E), expected.trails.of(candidate, E), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)


def test_values_stand_at_their_key():
    evaluation = filed(list(range(P * E))).evaluation(MASK, np.array([[1.5], [0.5]]))
    traces = np.zeros((P, T))
    done = outcomes()
    columns = done.candidates, done.episodes, done.returns, done.lengths, done.traces
    for p, e, episode_return, length, trace in zip(*columns, strict=True):
        assert evaluation.returns[p, e] == episode_return
        assert evaluation.fingerprints[p, e].tolist() == [p, e]
        trail = evaluation.trails.of(p, E)
        assert [len(t) for t in trail] == done.lengths[p * E : p * E + E].tolist()
        assert trail[e].tolist() == [[p * E + e] * 2] * length
        assert evaluation.lengths[p, e] == length
        traces[p] += trace / E
    assert np.allclose(evaluation.traces, traces, atol=1e-5)
    assert np.array_equal(evaluation.moments, done.moments.reshape(P, E, 2, 2))
    assert evaluation.busy_seconds.tolist() == [1.5]
    assert evaluation.environment_seconds.tolist() == [0.5]


def test_waiting_counts_units_once():
    ledger = filed([0], [0, 0])
    assert ledger.waiting == P * E - 1


def test_a_trace_that_is_no_number_spoils_nothing_else():
    ledger, zero = Ledger(1, 1, 3), np.zeros(1, np.int32)
    traces = np.array([[np.nan, np.inf, 2.0]], np.float32)
    nothing = np.zeros((1, 2), np.uint64), np.zeros((0, 2), np.uint8), np.zeros((1, 2, 0))
    ledger.put(Outcomes(zero, zero, np.ones(1), zero, traces, *nothing))
    assert ledger.evaluation(np.ones((1, 3), np.bool_), np.zeros((2, 1))).traces.tolist() == [[0, 0, 2]]


def test_a_unit_that_is_given_up_has_failed_and_left_nothing():
    ledger = filed(list(range(P * E - 1)))
    ledger.give_up(P - 1, E - 1)
    evaluation = ledger.evaluation(MASK, np.zeros((2, 1)))
    assert (ledger.waiting, ledger.failed) == (0, 1)
    assert np.isnan(evaluation.returns[-1, -1])
    assert len(evaluation.trails.of(P - 1, E)[-1]) == 0


def test_a_pruned_connection_has_no_trace():
    mask = MASK.copy()
    mask[1, 3] = False
    traces = filed(list(range(P * E))).evaluation(mask, np.zeros((2, 1))).traces
    assert traces[1, 3] == 0
    assert traces[mask].all()
