"""A whole run, repeated on this machine."""

import itertools
import json

import h5py
import numpy as np
import pytest
from tampering import tamper

import evolve
from evolve.strategies import STRATEGIES


def test_all_of_it_can_be_run_again(command, runs):
    done = command("verify", runs["a"], "--full", ranks=2)
    assert (done.code, "equal: 3 generations, digest" in done.out) == (0, True)


def test_the_generations_before_the_difference_are_shown(call, runs):
    tamper(runs["a"], "generation/returns", (2, 5, 1), -1.0)
    done = call("verify", runs["a"], "--full")
    assert done.code == 1
    assert "generation 2: candidate 5, episode 1: return -1.0" in done.out
    shown = [line for line in done.out.splitlines() if line.startswith("seed 1 ")]
    assert [line.split("  ")[1] for line in shown] == ["generation 0 (1 of 3)", "generation 1 (2 of 3)"]


@pytest.mark.parametrize("candidate", [0, 5])
def test_an_episode_that_no_champion_played_is_explained_too(verdict, runs, candidate):
    """Its genome is the one that the strategy asks for."""
    tamper(runs["d"], "fingerprint/episodes", (2, candidate, 1, 0), 1)
    found = verdict(runs["d"], "--full")
    assert (found["generation"], found["candidate"], found["episode"]) == (2, candidate, 1)
    assert found["cause"] in ("environment", "log")


def test_nothing_is_written(call, runs, tmp_path):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.h5")}
    done = call("verify", runs["a"], "--full", "--json")
    assert (done.code, json.loads(done.out)["equal"]) == (0, True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.h5")} == before


def test_a_changed_checkpoint_is_found(verdict, runs):
    """All generations are equal, so only the repetition of the whole run, or another file, can tell."""
    tamper(runs["a"], "checkpoint/leaderboard_total", 0, 1000.0)
    found = verdict(runs["a"], "--full")
    assert (found["what"], found["summary"]) == ("log", "the checkpoint does not belong to its generations")
    assert verdict(runs["a"], runs["b"])["summary"] == "the checkpoints differ, though every generation is equal"
    with h5py.File(runs["c"], "r+") as file:
        del file["checkpoint/leaderboard_total"]
    assert verdict(runs["c"], "--full")["summary"] == "the checkpoint does not belong to its generations"


def test_a_state_with_a_clock_is_equal_if_it_gives_the_same_candidates(monkeypatch, tmp_path):
    """A strategy of another package may store a pickle, whose bytes differ between two runs."""
    kind, clock = STRATEGIES.kind({"name": "hill-climber"}), itertools.count()
    to_arrays = kind.to_arrays
    monkeypatch.setattr(kind, "to_arrays", lambda *given: to_arrays(*given) | {"clock": np.array([next(clock)])})
    one, other = (
        evolve.train(env={"id": "CartPole-v1", "engine": "exact"}, network={"name": "mlp", "hidden": [4]}, population=4,
                     strategy="hill-climber", generations=2, episodes=1, held_out_episodes=1, output=tmp_path / name)
        for name in ("one", "other")
    )  # fmt: skip
    assert one.verify(full=True).equal
    assert one.verify_against(other).equal
    tamper(one.path, "checkpoint/weights", (0, 0), 9.0)
    one = evolve.load(one.path)
    alone, beside = one.verify(full=True), one.verify_against(other)
    assert alone.summary == "the checkpoint does not belong to its generations"
    assert beside.summary == "the checkpoints differ, though every generation is equal"
    # The file may be as it was written, if such a strategy keeps something outside of its state.
    assert alone.cause == beside.cause == "strategy"
    assert "keep something outside of its state" in beside.why
