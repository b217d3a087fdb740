"""The base of elitist strategies, and random search: survivors, repeated evaluation, and scores."""

import numpy as np
import pytest

from evolve import networks
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import Results
from evolve.strategies.elitist import Random, RandomOptions, ScoredGenomes
from evolve.strategies.strategy import arrays_of, state_of

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3]}, 4, 2)
W = NETWORK.num_weights


def play(made, state, generation, fitness):
    genomes = made.ask(state, generation)
    return genomes, made.tell(state, genomes, Results(np.array(fitness, float)))


def random(P=4, **options):
    return Random(RandomOptions(**options), NETWORK, P, 7)


def test_the_traces_of_a_genome_are_those_of_its_newest_evaluation():
    genomes = Genomes(np.ones((2, W), np.float32), np.ones((2, W), np.bool_))
    scored = ScoredGenomes.evaluated(genomes, np.zeros(2), np.ones((2, W), np.float32))
    again = scored.with_evaluation(np.ones(1), np.full((1, W), 2, np.float32))
    assert again.traces.tolist() == [[2] * W, [1] * W]
    assert scored.traces.tolist() == [[1] * W] * 2  # a state does not change


def test_random_candidates_are_new_in_every_generation():
    made = random(survivors=1)
    _, state = play(made, made.start(), 0, [0, 3, 1, 2])
    asked = made.ask(state, 5)
    for p in (1, 2, 3):
        assert np.array_equal(asked.weights[p], NETWORK.init(Stream(7, Purpose.INIT, 5, p)).weights[0])


def test_survivors_are_evaluated_again_and_their_score_is_the_mean():
    made = random(survivors=2)
    first, state = play(made, made.start(), 0, [0, 10, 1, 8])
    assert state.score.tolist() == [10, 8]
    second, state = play(made, state, 1, [2, 6, 5, 4])
    assert np.array_equal(second.weights[:2], first.weights[[1, 3]])
    # (10 + 2)/2 = 6 and (8 + 6)/2 = 7, better than the newcomers' 5 and 4
    assert state.score.tolist() == [7, 6]
    assert state.count.tolist() == [2, 2]
    assert np.array_equal(made.champion(state).weights[0], first.weights[3])


def test_a_lucky_score_lasts_one_generation():
    made = random(survivors=1)
    first, state = play(made, made.start(), 0, [0, 100, 1, 2])
    assert np.array_equal(made.champion(state).weights[0], first.weights[1])
    second, state = play(made, state, 1, [0, 3, 60, 4])
    assert np.array_equal(made.champion(state).weights[0], second.weights[2])  # 60 > (100 + 0)/2


def test_a_newcomer_is_shrunk_towards_the_mean_of_its_generation():
    made = random(survivors=1, prior_evaluations=3)
    _, state = play(made, made.start(), 0, [16, 0, 0, np.nan])
    assert state.score[0] == pytest.approx((16 + 3 * 16 / 3) / 4)  # the mean of what is finite is 16/3


def test_penalties_with_an_infinite_sum_leave_the_other_scores_alone():
    made = random(survivors=2)
    _, state = play(made, made.start(), 0, [-1.7e308, 5, -1.7e308, 7])
    assert state.score.tolist() == [7, 5]


def test_one_candidate_is_always_new():
    made = random(P=2, survivors=9)
    _, state = play(made, made.start(), 0, [1, 2])
    assert len(state.count) == 1


def test_a_survivor_that_fails_once_is_gone():
    made = random(survivors=1)
    _, state = play(made, made.start(), 0, [9, 0, 0, 0])
    genomes, state = play(made, state, 1, [np.nan, -5, -6, -7])
    assert np.array_equal(made.champion(state).weights[0], genomes.weights[1])


def test_traces_are_stored_only_where_there_are_any():
    genomes = Genomes(np.ones((2, W), np.float32), np.ones((2, W), np.bool_))
    without = ScoredGenomes.evaluated(genomes, np.zeros(2))
    with_traces = ScoredGenomes.evaluated(genomes, np.zeros(2), np.ones((2, W), np.float32))
    assert "e_traces" not in arrays_of(without, "e_")
    for scored, T in ((without, 0), (with_traces, W), (with_traces.best(0), W)):
        again = state_of(ScoredGenomes, arrays_of(scored, "e_"), "e_", {"W": W, "T": T})
        assert again.traces.shape == (len(scored), T)
        assert np.array_equal(again.traces, scored.traces)
