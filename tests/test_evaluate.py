"""The held-out evaluation: keyed episodes, whatever the ranks, kept in the run file."""

import json

import numpy as np
import pytest
from test_run import without

from evolve import statistics, store

QUICK = ("-p", 6, "-r", 2, "-g", 3, "-d", 2, "--set", "env.max_episode_steps=40", "-o", "out")
FILE = "out/seed-0.h5"


def kept(tmp_path):
    return store.read(tmp_path / FILE)


def test_more_episodes_begin_with_the_same_ones(command, tmp_path):
    assert command("run", *QUICK, "--set", "held_out_episodes=5").code == 0
    first, digests = kept(tmp_path).held_out.returns, [r.digest for r in kept(tmp_path).records]
    done = command("evaluate", FILE, "--episodes", 40, ranks=3)
    assert done.code == 0, done.err
    run = kept(tmp_path)
    assert run.complete
    assert [r.digest for r in run.records] == digests
    assert len(run.held_out.returns) == 40
    assert run.held_out.returns[:5].tolist() == first.tolist()
    line = done.out.splitlines()[-1]
    assert line == statistics.summary(run.held_out.returns)
    assert f"mean {run.held_out.returns.mean():.2f} (95 % interval " in line
    assert f"worst {run.held_out.returns.min():.2f}   best {run.held_out.returns.max():.2f}" in line
    assert command("evaluate", FILE, "--episodes", 10).code == 0
    assert len(kept(tmp_path).held_out.returns) == 40  # fewer do not take the place of more
    assert "already complete" in command("run", *QUICK, "--set", "held_out_episodes=5", "--resume").out


def test_elsewhere_nothing_is_kept(command, tmp_path):
    assert command("run", *QUICK, "--set", "held_out_episodes=5").code == 0
    before = (tmp_path / FILE).read_bytes()
    short = command("evaluate", FILE, "--episodes", 4, "--set", "env.max_episode_steps=7", "--json", ranks=3)
    assert short.code == 0, short.err
    told = json.loads(short.out)
    assert told["returns"] == [7.0] * 4  # a pole cannot fall in seven steps
    assert (told["mean"], told["interval"], told["failed"]) == (7.0, [7.0, 7.0], 0)
    assert (told["generation"], told["env"]["max_episode_steps"]) == (2, 7)
    other = command("evaluate", FILE, "-e", "toys:Faulty-v0")
    assert other.code == 2
    assert "env: expected an environment of the champion's 4 observations and 2 actions" in other.err
    assert "got toys:Faulty-v0, of 3 and 2" in other.err
    same = command("evaluate", FILE, "--episodes", 5, "--engine", "envpool")
    assert "in another environment, CartPole-v1: not kept" in same.out
    assert (tmp_path / FILE).read_bytes() == before
    own = command("evaluate", FILE, "--episodes", 5, "--json")
    assert json.loads(own.out)["returns"] == kept(tmp_path).held_out.returns.tolist()


def test_wrong_input(command, tmp_path):
    store.create(store.path_of(tmp_path, 0), store.Header("", {}, 0, "x")).close()
    for words, code, message in (
        (("seed-0.h5",), 1, "there is no champion"),
        (("none.h5",), 2, "no such file"),
        (("seed-0.h5", "--episodes", 0), 2, "--episodes: expected at least 1, got 0"),
    ):
        done = command("evaluate", *words)
        assert done.code == code
        assert message in done.err
        assert done.err.count("\n") == 1


def test_without_scipy(command, tmp_path):
    assert command("run", *QUICK, "--set", "held_out_episodes=0", **without("scipy")).code == 0
    done = command("evaluate", FILE, **without("scipy"))
    assert done.code == 2
    assert "pip install -e '.[stats]'" in done.err


def test_the_interval_covers_the_mean_95_times_in_100():
    draw = np.random.Generator(np.random.Philox(1))
    covered = 0
    for _ in range(200):
        low, high = statistics.interval(draw.exponential(3.0, 60))
        covered += low <= 3.0 <= high
    assert 176 <= covered <= 198


@pytest.mark.parametrize(
    ("returns", "words"),
    [
        ([5.0], "mean 5.00 (95 % interval 5.00 to 5.00)"),
        ([1.0, np.nan], "failed 1"),
        ([np.nan], "no episode has a return   failed 1"),
    ],
)
def test_summaries_of_odd_samples(returns, words):
    assert words in statistics.summary(np.array(returns))


def test_the_same_returns_have_the_same_interval():
    returns = np.arange(30.0) ** 1.5
    assert statistics.interval(returns) == statistics.interval(returns.copy())
