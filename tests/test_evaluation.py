import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evolve.evaluation import Ledger

P, E, T = 3, 4, 5


def outcomes():
    draw = np.random.Generator(np.random.Philox(0))
    return [
        (p, e, float(draw.normal()), int(draw.integers(1, 99)), (draw.normal(size=T) * 10).astype(np.float32))
        for p in range(P)
        for e in range(E)
    ]


def filed(results):
    ledger = Ledger(P, E, T)
    for result in results:
        ledger.put(*result)
    return ledger


@given(st.permutations(range(P * E)), st.lists(st.integers(0, P * E - 1)))
def test_order_and_repetition_do_not_matter(order, repeated):
    results = outcomes()
    expected = filed(results).evaluation(np.zeros(1))
    ledger = filed([results[i] for i in [*order, *repeated]])
    assert ledger.waiting == 0
    ours = ledger.evaluation(np.zeros(1))
    for name in ("returns", "lengths", "traces"):
        assert np.array_equal(getattr(ours, name), getattr(expected, name))


def test_values_stand_at_their_key():
    evaluation = filed(outcomes()).evaluation(np.array([1.5]))
    traces = np.zeros((P, T))
    for p, e, episode_return, length, trace in outcomes():
        assert evaluation.returns[p, e] == episode_return
        assert evaluation.lengths[p, e] == length
        traces[p] += trace / E
    assert np.allclose(evaluation.traces, traces, atol=1e-5)
    assert evaluation.busy_seconds.tolist() == [1.5]


def test_waiting_counts_units_once():
    ledger = filed([outcomes()[0]] * 2)
    assert ledger.waiting == P * E - 1


def test_a_trace_that_is_no_number_spoils_nothing_else():
    ledger = Ledger(1, 1, 3)
    ledger.put(0, 0, 1.0, 1, np.array([np.nan, np.inf, 2.0], np.float32))
    assert ledger.evaluation(np.zeros(1)).traces.tolist() == [[0, 0, 2]]
