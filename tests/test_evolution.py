"""What selection sees of a generation."""

import contextlib
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from evolve import evolution, store
from evolve.config import Config, EarlyStopOptions
from evolve.evolution import fitness_of
from evolve.genome import Genomes
from evolve.rng import Purpose, environment_seeds

MASK = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], np.bool_)
GENOMES = Genomes(MASK.astype(np.float32), MASK)
RETURNS = np.array([[10.0, 20.0], [14.0, 14.0], [-1.0, 1.0], [3.0, math.nan]])


@pytest.mark.parametrize(("cost", "expected"), [(0.0, [15, 14, 0]), (1.0, [14, 13.5, 0]), (4.0, [11, 12, 0])])
def test_fitness_is_the_mean_return_minus_what_the_connections_cost(cost, expected):
    everything = SimpleNamespace(returns=RETURNS, played=np.ones(RETURNS.shape, np.bool_))
    ours = fitness_of(Config(connection_cost=cost), GENOMES, everything)
    assert ours[:3].tolist() == expected
    assert math.isnan(ours[3])


def test_the_run_file_has_the_fitness_that_selection_saw(command, tmp_path):
    small = ("-e", "CartPole-v1", "-p", 6, "-r", 2, "-g", 2, "--set", "held_out_episodes=0")
    for cost in (0, 500):
        done = command("run", *small, "--set", f"connection_cost={cost}.0", "-o", cost)
        assert done.code == 0, done.err
    free, dear = (store.read(store.path_of(tmp_path / cost, 0)).records for cost in ("0", "500"))
    assert (free[0].returns == dear[0].returns).all()
    for record, cost in ((free[0], 0), (dear[0], 500), (dear[1], 500)):
        W = len(record.champion_weights)
        assert record.fitness == pytest.approx(record.returns.mean(axis=1) - cost * record.connections / W)
        assert record.champion_candidate == record.fitness.argmax()


CART = ("-e", "CartPole-v1", "-p", 8, "-r", 2, "-d", 2, "-s", 3, "--set", "held_out_episodes=4")
EARLY = (*CART, "--set", "strategy.weight_noise=0.5", "--set", "early_stop.every=2", "--set", "early_stop.episodes=6")


def told(tmp_path, name):
    return store.read(tmp_path / name / "seed-3.h5")


def test_a_run_stops_once_its_champion_is_good_enough(command, tmp_path):
    good = ("--set", "early_stop.mean_return=60.0")
    assert command("run", *EARLY, "-g", 12, "-o", "whole").code == 0
    done = command("run", *EARLY, "-g", 20, *good, "-o", "early")
    assert done.code == 0, done.err
    whole, early = told(tmp_path, "whole"), told(tmp_path, "early")
    assert early.complete
    assert 0 < early.told < 20
    assert early.told % 2 == 0
    assert f"stopped early, after {early.told} of 20 generations" in done.out
    assert "stopped early" not in command("run", *EARLY, "-g", 2, "-o", "short").out
    assert [r.digest for r in early.records] == [r.digest for r in whole.records[: early.told]]
    assert len(early.held_out.returns) == 4
    assert command("run", *EARLY, "-g", 20, *good, "-o", "three", ranks=3).code == 0
    assert told(tmp_path, "three").records[-1].digest == early.records[-1].digest
    assert command("evaluate", "early/seed-3.h5", "--episodes", 9).code == 0
    again = command("run", *EARLY, "-g", 20, *good, "-o", "early", "--resume")
    assert "already complete" in again.out
    assert len(told(tmp_path, "early").held_out.returns) == 9
    assert command("verify", "early/seed-3.h5", "--full").code == 0
    harder = command("run", *EARLY, "-g", 12, "--set", "early_stop.mean_return=501.0", "-o", "early", "--resume")
    assert harder.code == 0, harder.err
    assert [r.digest for r in told(tmp_path, "early").records] == [r.digest for r in whole.records]


def test_a_run_stops_once_it_has_taken_its_steps(command, tmp_path):
    budget = (*EARLY, "--set", "early_stop.steps=3000", "-o", "out")
    assert command("run", *budget, "-g", 2).code == 0
    between = told(tmp_path, "out").told
    done = command("run", *budget, "-g", 50, "--resume", ranks=3)
    assert done.code == 0, done.err
    steps = [record.steps for record in told(tmp_path, "out").records]
    assert between == 2 < len(steps) < 50
    assert sum(steps) >= 3000 > sum(steps[:-1])
    assert f"stopped early, after {len(steps)} of 50 generations and {sum(steps):,} steps" in done.out


def test_validation_plays_validation_episodes_of_the_generation(monkeypatch):
    asked = []

    class Farm:
        playing = staticmethod(contextlib.nullcontext)

        def evaluate(self, task, champion, episodes, traces, race=None):
            asked.append((task.purpose, task.keys.tolist(), episodes))
            return SimpleNamespace(returns=np.array([[1.0, 3.0]]))

    stop = EarlyStopOptions(mean_return=2.0, episodes=2, every=3)
    experiment = SimpleNamespace(config=Config(early_stop=stop), network=SimpleNamespace(traces=0))
    judged = evolution.validate(experiment, Farm(), GENOMES.take(np.array([0])), 1, 3, None)
    assert asked == [(Purpose.VALIDATION, [[3, 0]], 2)]
    assert [evolution._is_due(experiment.config, told) for told in (3, 4, 6)] == [True, False, True]
    file = SimpleNamespace(steps=10)
    assert evolution._is_enough(experiment.config, file, judged)
    assert not evolution._is_enough(experiment.config, file, None)
    better = Config(early_stop=stop.model_copy(update={"mean_return": 2.1}))
    assert not evolution._is_enough(better, file, judged)


def test_champions_are_judged_in_episodes_with_a_limit_of_their_own(command, tmp_path):
    short = (*CART, "-g", 3, "--set", "env.max_episode_steps=20")
    long = ("--set", "evaluation_max_episode_steps=300")
    assert command("run", *short, "-o", "short").code == 0
    assert command("run", *short, *long, "-o", "long").code == 0
    assert command("run", *short, *long, "-o", "three", ranks=3).code == 0
    runs = [told(tmp_path, name) for name in ("short", "long", "three")]
    assert len({run.records[-1].digest for run in runs}) == 1
    judged = runs[1].held_out.returns.tolist()
    assert max(judged) > 20 >= runs[0].held_out.returns.max()
    assert runs[2].held_out.returns.tolist() == judged
    elsewhere = ("short/seed-3.h5", "--episodes", 4, "--set", "env.max_episode_steps=300", "--json")
    assert json.loads(command("evaluate", *elsewhere).out)["returns"] == judged
    assert json.loads(command("evaluate", "long/seed-3.h5", "--episodes", 4, "--json").out)["returns"] == judged
    assert "equal to the log" in command("replay", "long/seed-3.h5", "--held-out", "--episode", 1).out
    assert command("verify", "long/seed-3.h5").code == 0
    assert command("verify", "short/seed-3.h5", "long/seed-3.h5").code == 0
    again = command("run", *short, *long, "-o", "short", "--resume", ranks=3)
    assert again.code == 0, again.err
    assert told(tmp_path, "short").held_out.returns.tolist() == judged
    assert "already complete" in command("run", *short, *long, "-o", "short", "--resume").out


def test_validation_has_the_limit_of_evaluation(command, tmp_path):
    short = (*CART, "-g", 4, "--set", "env.max_episode_steps=5", "--set", "evaluation_max_episode_steps=300")
    stop = ("--set", "early_stop={every=2, episodes=3, mean_return=6.0}")  # a pole cannot fall in five steps
    assert command("run", *short, "-o", "whole").code == 0
    whole = told(tmp_path, "whole").records
    for name, ranks in (("alone", None), ("three", 3)):
        assert command("run", *short, *stop, "-o", name, ranks=ranks).code == 0
        assert [r.digest for r in told(tmp_path, name).records] == [r.digest for r in whole[:2]]
    stop = ("--set", "early_stop={every=2, episodes=3, mean_return=301.0}")
    assert command("run", *short, *stop, "-o", "on", ranks=3).code == 0
    on = told(tmp_path, "on").records  # after validation, generations have their own limit again
    assert [r.digest for r in on] == [r.digest for r in whole]


def test_validation_episodes_are_neither_selected_on_nor_held_out():
    generations, episodes = (part.ravel() for part in np.mgrid[:5, :9])
    purposes = (Purpose.EPISODE, Purpose.HELD_OUT, Purpose.VALIDATION)
    seeds = [environment_seeds(3, purpose, generations, 0 * episodes, episodes) for purpose in purposes]
    assert len(np.unique(seeds)) == 3 * 45


def test_a_validation_episode_that_fails_is_named_and_can_be_played_alone(command, tmp_path):
    seldom = ("-e", "toys:Faulty-v0", "--set", "env.kwargs.share=0.02", "-p", 2, "-r", 1, "-g", 4, "-d", 2)
    done = command("run", *seldom, "--set", "early_stop={every=1, episodes=200, mean_return=1e6}", "-o", "out")
    assert done.code == 1
    assert "validation episode" in done.err, done.err
    line = next(line for line in done.err.splitlines() if "evolve.replay" in line)
    alone = command("replay", *line.split("evolve.replay ")[1].split())
    assert alone.code == 1
    assert "the motor burnt out" in alone.err
    assert "step 3" in alone.err
