"""Racing: who plays on follows from returns alone, and those who left have at most the fitness of those who stayed."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import environment, launcher
from hypothesis import given
from hypothesis import strategies as st

from evolve import store
from evolve.config import RacingOptions
from evolve.racing import NO_RACE, fitness, rounds


def race(options, scores, episodes):
    """Play a race with returns of scores [P, E]; return them with NaN where nobody played, and the units of rounds."""
    returns, played = np.full(scores.shape, np.nan), []
    for units in rounds(options, returns):
        at = np.divmod(units, episodes)
        assert np.isnan(returns[at]).all()  # nobody plays an episode twice
        returns[at] = scores[at]
        played.append(units.tolist())
    return returns, played


def test_by_hand():
    scores = np.array([[3.0, 0, 9, 9], [1, 9, 9, 9], [2, 2, 2, 2], [5, 1, 0, 0]])
    returns, played = race(RacingOptions(rounds=(1, 2), keep=0.5), scores, 4)
    assert played == [[0, 4, 8, 12], [1, 13], [14, 15]]  # 3 and 5 go on, and of (3 + 0) / 2 and (5 + 1) / 2 the second
    # Candidate 3 has (5 + 1 + 0 + 0) / 4. Candidate 0 left with as much; 2 left earlier, and its 2.0 is cut to that.
    assert fitness(returns, ~np.isnan(returns)).tolist() == [1.5, 1.0, 1.5, 1.5]


def test_what_connections_cost_counts_in_the_race_and_after_it():
    scores, costs = np.array([[10.0, 10, 10], [9, 9, 9], [1, 0, 0], [8, 8, 8]]), np.array([12.0, 12, 0, 1])
    returns, played = np.full((4, 3), np.nan), []
    for units in rounds(RacingOptions(rounds=(1,), keep=0.5), returns, costs):
        at = np.divmod(units, 3)
        returns[at] = scores[at]
        played.append(sorted(set(at[0].tolist())))
    assert played == [[0, 1, 2, 3], [2, 3]]  # -2, -3, 1 and 7
    assert fitness(returns, ~np.isnan(returns), costs).tolist() == [-2.0, -3.0, 1 / 3, 7.0]
    tied = fitness(np.array([[9.0, 9], [9, np.nan]]), np.array([[True, True], [True, False]]), np.array([5.0, 0.0]))
    assert tied.tolist() == [4.0, 4.0]  # who left is not better than who stayed


def test_without_rounds_everybody_plays_everything():
    scores = np.arange(6.0).reshape(3, 2)
    returns, played = race(NO_RACE, scores, 2)
    assert played == [list(range(6))]
    assert fitness(returns, np.ones((3, 2), np.bool_)).tolist() == [0.5, 2.5, 4.5]


@given(st.integers(2, 20), st.integers(1, 6), st.sets(st.integers(1, 8), max_size=3), st.floats(0.05, 0.95), st.data())
def test_the_best_of_those_who_stay_lead(P, E, cuts, keep, data):
    draw = np.random.Generator(np.random.Philox(data.draw(st.integers(0, 999))))
    scores = draw.normal(size=(P, E)).round(1)
    scores[draw.random((P, E)) < 0.05] = np.nan
    options = RacingOptions(rounds=tuple(sorted(cuts)), keep=keep)
    returns, played = np.full((P, E), np.nan), np.zeros((P, E), np.bool_)
    for units in rounds(options, returns):
        at = np.divmod(units, E)
        returns[at], played[at] = scores[at], True
    counts = played.sum(axis=1)
    assert counts.max() == E
    assert all(played[p, : counts[p]].all() for p in range(P))
    found = fitness(returns, played)
    for p in range(P):
        stayed = found[(counts > counts[p]) & ~np.isnan(found)]
        assert np.isnan(found[p]) == np.isnan(scores[p, : counts[p]]).any()
        assert not len(stayed) or np.isnan(found[p]) or found[p] <= stayed.min()


@pytest.mark.parametrize("rounds", [(2, 1), (1, 1), (0,)])
def test_rounds_have_to_rise(rounds):
    with pytest.raises(ValueError, match=r"rising|greater"):
        RacingOptions(rounds=rounds)


RUN = ("-e", "CartPole-v1", "-p", 12, "-r", 4, "-g", 3, "-d", 3, "--set", "racing.rounds=[1, 2]", "--set",
       "env.max_episode_steps=60", "--set", "held_out_episodes=0")  # fmt: skip


def test_races_are_the_same_on_any_ranks_and_can_be_verified_and_replayed(command, tmp_path):
    for name, ranks in (("alone", None), ("three", 3)):
        words = [*launcher(ranks), sys.executable, "-m", "evolve.run", *map(str, RUN), "-o", name]
        done = subprocess.run(words, env=environment(), cwd=tmp_path, check=True, timeout=60, capture_output=True)
        assert b"50% of the episodes played" in done.stdout
    alone, three = (store.read(tmp_path / name / "seed-0.h5") for name in ("alone", "three"))
    assert alone.records[-1].digest == three.records[-1].digest
    played = alone.records[1].lengths > 0
    assert sorted(played.sum(axis=1).tolist()) == [1] * 6 + [2] * 3 + [4] * 3
    assert played[alone.records[1].champion_candidate].all()
    assert command("verify", "alone/seed-0.h5").code == 0
    left = int(np.flatnonzero(alone.records[0].lengths[:, 3] == 0)[0])
    done = command("replay", "alone/seed-0.h5", "--generation", 0, "--candidate", left, "--episode", 3)
    assert done.code == 0
    assert "equal" not in done.out  # there is nothing to compare it with
