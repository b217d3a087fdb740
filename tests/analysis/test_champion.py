"""The champion of a run, and its mean traces."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_runs

from evolve import store
from evolve.analysis.champion import champion_of, mean_traces, typical_episode
from evolve.cluster import Coordinator, connect
from evolve.training import make_rollout, reload


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A complete run whose held-out champion is not the best of its last generation."""
    folder = tmp_path_factory.mktemp("run")
    words = "--strategy openai-es -p 6 -r 1 -g 2 -d 2 --set held_out_episodes=3 --set env.max_episode_steps=30 -o out"
    make_runs(folder, *words.split())
    return store.read(store.path_of(folder / "out", 0))


def test_a_complete_run_is_represented_by_its_held_out_champion(run):
    champion = champion_of(run)
    assert np.array_equal(champion.genome.weights[0], run.held_out.weights)
    assert champion.title == "held-out champion"
    assert not np.array_equal(champion.genome.weights[0], run.records[-1].champion_weights)
    unfinished = champion_of(replace(run, complete=False))
    assert np.array_equal(unfinished.genome.weights[0], run.records[-1].champion_weights)
    assert unfinished.title == "best of generation 1"
    assert champion_of(run, 0).generation == 0


@pytest.mark.parametrize(
    ("returns", "median"),
    [([3.0, 1.0, 2.0], 2), ([4.0, np.nan, np.nan, 5.0, np.nan, 6.0], 3), ([np.nan, 2.0, np.nan, 1.0], 3),
     ([np.nan] * 3, 1)],
)  # fmt: skip
def test_the_median_episode_is_found_among_those_that_did_not_fail(run, returns, median):
    held_out = replace(run.held_out, returns=np.array(returns), seeds=np.arange(len(returns)))
    stored = replace(run, held_out=held_out)
    episode, words = typical_episode(stored, reload(run), champion_of(stored))
    assert episode.episode == median
    assert words == f"the episode of median return, number {median}"


def test_traces_are_those_of_the_champion_s_own_episodes(run):
    experiment = reload(run)
    coordinator = Coordinator(connect(), make_rollout)
    champion = champion_of(run)
    traces = mean_traces(run, experiment, champion, coordinator)
    assert traces.shape == (champion.genome.num_weights,)
    same_genome = replace(champion, generation=1)
    assert not np.array_equal(traces, mean_traces(run, experiment, same_genome, coordinator))
    best = champion_of(run, 1)
    assert np.isfinite(mean_traces(run, experiment, best, coordinator)).all()
