"""Fitness, the number that selection uses; and racing, in which returns alone decide which candidates play on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve import store
from evolve.config import Config, RacingOptions
from evolve.genome import Genomes
from evolve.training.fitness import Scores, first_round, fitness_function, next_round

NO_RACE = RacingOptions()
MASK = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], np.bool_)
GENOMES = Genomes(MASK.astype(np.float32), MASK)
RETURNS = np.array([[10.0, 20.0], [14.0, 14.0], [-1.0, 1.0], [3.0, math.nan]])


@pytest.mark.parametrize(("cost", "expected"), [(0.0, [15, 14, 0]), (1.0, [14, 13.5, 0]), (4.0, [11, 12, 0])])
def test_fitness_is_the_mean_return_less_the_cost_of_connections(cost, expected):
    scores = Scores.of(Config(connection_cost=cost), RETURNS, {}, GENOMES.connections(), GENOMES.num_weights)
    ours = scores.fitness(np.ones(RETURNS.shape, np.bool_))
    assert ours[:3].tolist() == expected
    assert math.isnan(ours[3])


def test_the_run_file_has_the_fitness_that_selection_saw(call, tmp_path):
    small = ("-e", "CartPole-v1", "--engine", "exact", "-p", 6, "-r", 2, "-g", 2, "--set", "held_out_episodes=0")
    for cost in (0, 500):
        call("run", *small, "--set", f"connection_cost={cost}.0", "-o", cost).ok()
    free, dear = (store.read(store.path_of(tmp_path / cost, 0)).records for cost in ("0", "500"))
    assert (free[0].returns == dear[0].returns).all()
    for record, cost in ((free[0], 0), (dear[0], 500), (dear[1], 500)):
        W = len(record.champion_weights)
        assert record.fitness == pytest.approx(record.returns.mean(axis=1) - cost * record.connections / W)
        assert record.champion_candidate == record.fitness.argmax()


def mean_return(returns, played, costs):
    """Return the fitness [P] by the mean of returns, less costs."""
    nothing = np.zeros(len(returns), np.int32)
    return Scores(fitness_function("mean"), returns, {}, nothing, costs).fitness(played)


def race(options, scores, costs=0.0, fitness="mean"):
    """Play a race with returns of scores [P, E].

    Returns the arguments of `mean_return`, with a return of NaN for each episode that was not played, and each round as
    (candidates, episodes).
    """
    P, E = scores.shape
    returns, costs, rounds = np.full((P, E), np.nan), np.full(P, costs), []
    played = np.zeros((P, E), np.bool_)
    now = first_round(options, P, E)
    while now is not None:
        at = np.ix_(now.candidates, now.episodes)
        assert not played[at].any()  # no candidate plays an episode twice
        returns[at] = scores[at]
        played[at] = True
        rounds.append((now.candidates.tolist(), list(now.episodes)))
        found = Scores(fitness_function(fitness), returns, {}, np.zeros(P, np.int32), costs)
        now = next_round(now, options, found)
    return (returns, played, costs), rounds


def test_by_hand():
    scores = np.array([[3.0, 0, 9, 9], [1, 9, 9, 9], [2, 2, 2, 2], [5, 1, 0, 0]])
    made, rounds = race(RacingOptions(rounds=(1, 2), keep=0.5), scores)
    # 3 and 5 go on, and of (3 + 0) / 2 and (5 + 1) / 2 the second.
    assert rounds == [([0, 1, 2, 3], [0]), ([0, 3], [1]), ([3], [2, 3])]
    # Candidate 3 has (5 + 1 + 0 + 0) / 4. Candidate 0 left with as much; 2 left earlier, and its 2.0 is cut to that.
    assert mean_return(*made).tolist() == [1.5, 1.0, 1.5, 1.5]


def test_what_connections_cost_counts_in_the_race_and_after_it():
    scores, costs = np.array([[10.0, 10, 10], [9, 9, 9], [1, 0, 0], [8, 8, 8]]), np.array([12.0, 12, 0, 1])
    made, rounds = race(RacingOptions(rounds=(1,), keep=0.5), scores, costs)
    assert [candidates for candidates, _ in rounds] == [[0, 1, 2, 3], [2, 3]]  # -2, -3, 1 and 7
    assert mean_return(*made).tolist() == [-2.0, -3.0, 1 / 3, 7.0]
    tied = np.array([[9.0, 9], [9, np.nan]]), np.array([[True, True], [True, False]]), np.array([5.0, 0.0])
    assert mean_return(*tied).tolist() == [4.0, 4.0]  # a candidate that left is not better than one that stayed


def test_without_rounds_everybody_plays_everything():
    scores = np.arange(6.0).reshape(3, 2)
    made, rounds = race(NO_RACE, scores)
    assert rounds == [([0, 1, 2], [0, 1])]
    assert mean_return(*made).tolist() == [0.5, 2.5, 4.5]


def test_who_has_played_nothing_has_no_fitness():
    played = np.array([[True, True], [False, False]])
    assert np.isnan(mean_return(np.ones((2, 2)), played, np.zeros(2))).tolist() == [False, True]


@given(st.integers(2, 20), st.integers(1, 6), st.sets(st.integers(1, 8), max_size=3), st.floats(0.05, 0.95), st.data())
def test_the_best_remaining_candidates_lead(P, E, cuts, keep, data):
    draw = np.random.Generator(np.random.Philox(data.draw(st.integers(0, 999))))
    scores = draw.normal(size=(P, E)).round(1)
    scores[draw.random((P, E)) < 0.05] = np.nan
    (returns, played, costs), _ = race(RacingOptions(rounds=tuple(sorted(cuts)), keep=keep), scores)
    counts = played.sum(axis=1)
    assert counts.max() == E
    assert all(played[p, : counts[p]].all() for p in range(P))
    found = mean_return(returns, played, costs)
    for p in range(P):
        stayed = found[(counts > counts[p]) & ~np.isnan(found)]
        assert np.isnan(found[p]) == np.isnan(scores[p, : counts[p]]).any()
        assert not len(stayed) or np.isnan(found[p]) or found[p] <= stayed.min()


@pytest.mark.parametrize("rounds", [(2, 1), (1, 1), (0,)])
def test_rounds_have_to_rise(rounds):
    with pytest.raises(ValueError, match=r"increasing|greater"):
        RacingOptions(rounds=rounds)


RUN = ("-e", "CartPole-v1", "--engine", "exact", "-p", 12, "-r", 4, "-g", 3, "-d", 3, "--set", "racing.rounds=[1, 2]",
       "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=0")  # fmt: skip


def test_races_are_the_same_on_any_ranks_and_can_be_verified_and_replayed(call, command, tmp_path):
    for done in (call("run", *RUN, "-o", "alone"), command("run", *RUN, "-o", "two", ranks=2)):
        assert done.code == 0, done.err
        assert "50% of the episodes played" in done.out
    alone, two = (store.read(tmp_path / name / "seed-0.h5") for name in ("alone", "two"))
    assert alone.records[-1].digest == two.records[-1].digest
    played = alone.records[1].lengths > 0
    assert sorted(played.sum(axis=1).tolist()) == [1] * 6 + [2] * 3 + [4] * 3
    assert played[alone.records[1].champion_candidate].all()
    call("verify", "alone/seed-0.h5").ok()
    left = int(np.flatnonzero(alone.records[0].lengths[:, 3] == 0)[0])
    done = call("replay", "alone/seed-0.h5", "--generation", 0, "--candidate", left, "--episode", 3).ok()
    assert "equal" not in done.out  # there is nothing to compare it with
