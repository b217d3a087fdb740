from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evolve.evaluation import Ledger

P, E, T = 3, 4, 5


MASK = np.ones((P, T), np.bool_)


def outcomes():
    """Candidates, episodes, returns, lengths and traces of every unit."""
    draw = np.random.Generator(np.random.Philox(0))
    p, e = np.divmod(np.arange(P * E, dtype=np.int32), np.int32(E))
    lengths = draw.integers(1, 99, P * E).astype(np.int32)
    return p, e, draw.normal(size=P * E), lengths, (draw.normal(size=(P * E, T)) * 10).astype(np.float32)


def filed(*parcels):
    """A ledger that got the outcomes of these units, parcel by parcel."""
    ledger = Ledger(P, E, T)
    for parcel in parcels:
        ledger.put(*(array[parcel] for array in outcomes()))
    return ledger


@given(st.permutations(range(P * E)), st.lists(st.integers(0, P * E - 1)), st.sets(st.integers(0, 2 * P * E)))
def test_order_repetition_and_parcels_do_not_matter(order, repeated, cuts):
    expected = filed(list(range(P * E))).evaluation(MASK, np.zeros(1))
    units, edges = [*order, *repeated], [0, *sorted(cuts), None]
    ledger = filed(*(list(dict.fromkeys(units[a:b])) for a, b in pairwise(edges)))
    assert ledger.waiting == 0
    ours = ledger.evaluation(MASK, np.zeros(1))
    for name in ("returns", "lengths", "traces"):
        assert np.array_equal(getattr(ours, name), getattr(expected, name))


def test_values_stand_at_their_key():
    evaluation = filed(list(range(P * E))).evaluation(MASK, np.array([1.5]))
    traces = np.zeros((P, T))
    for p, e, episode_return, length, trace in zip(*outcomes(), strict=True):
        assert evaluation.returns[p, e] == episode_return
        assert evaluation.lengths[p, e] == length
        traces[p] += trace / E
    assert np.allclose(evaluation.traces, traces, atol=1e-5)
    assert evaluation.busy_seconds.tolist() == [1.5]


def test_waiting_counts_units_once():
    ledger = filed([0], [0, 0])
    assert ledger.waiting == P * E - 1


def test_a_trace_that_is_no_number_spoils_nothing_else():
    ledger, zero = Ledger(1, 1, 3), np.zeros(1, np.int32)
    ledger.put(zero, zero, np.ones(1), zero, np.array([[np.nan, np.inf, 2.0]], np.float32))
    assert ledger.evaluation(np.ones((1, 3), np.bool_), np.zeros(1)).traces.tolist() == [[0, 0, 2]]


def test_a_pruned_connection_has_no_trace():
    mask = MASK.copy()
    mask[1, 3] = False
    traces = filed(list(range(P * E))).evaluation(mask, np.zeros(1)).traces
    assert traces[1, 3] == 0
    assert traces[mask].all()
