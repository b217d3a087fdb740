"""Step limits that depend on the generation, and on the mean episode length of the previous generation."""

import math
import time

import numpy as np
import pytest
from conftest import make_runs, run_on

from evolve import environments, store
from evolve.config import Config, EnvOptions, parse
from evolve.environments import gymnasium_engine
from evolve.errors import InputError
from evolve.training.experiment import prepare, validate_new_run
from evolve.training.loop import step_limit

WORDS = ("-e", "CartPole-v1", "-p", 7, "-r", 3, "-d", 3, "-s", 18, "--strategy", "openai-es", "--set",
         "strategy.sigma=0.5", "--set", "held_out_episodes=3", "--set", "output.genomes=all", "--set",
         "episode_cap=1.5", "--set", "early_max_episode_steps=6", "--set", "early_generations=2")  # fmt: skip
G = 5


@pytest.mark.parametrize(
    ("factor", "lengths", "limit"),
    [
        (2.0, [[10, 20], [30, 41]], 51),  # ceil(2 · 25.25)
        (2.0, [[10, 0], [21, 0]], 31),  # candidates that left a race played no more episodes
        (1.01, [[1, 1]], 2),
        (30.0, [[20, 20]], 500),  # the environment's own
        (2.0, [[0, 0]], None),
        (None, [[10, 20]], None),
    ],
)
def test_the_limit_is_a_multiple_of_the_mean_length(factor, lengths, limit):
    previous = np.array(lengths, np.int32)
    assert step_limit(Config(episode_cap=factor), 3, previous) == limit
    low = Config(episode_cap=factor, env=EnvOptions(max_episode_steps=25))
    assert step_limit(low, 3, previous) == (limit and min(limit, 25))


@pytest.mark.parametrize(
    ("factor", "generation", "limit"),
    [(None, 0, 40), (None, 4, 40), (None, 5, None), (1.5, 4, 30), (3.0, 4, 40), (3.0, 5, 60)],
)
def test_the_first_generations_have_a_limit_of_their_own(factor, generation, limit):
    config = Config(early_max_episode_steps=40, early_generations=5, episode_cap=factor)
    assert step_limit(config, generation, np.array([[20, 20]], np.int32) if generation else None) == limit


def test_no_factor_exceeds_the_limit_that_a_module_registers():
    config = Config(episode_cap=2.0, env=EnvOptions(id="toys:RememberingCart-v0"))
    assert step_limit(config, 3, np.array([[100, 100]], np.int32)) == 100


def test_an_environment_without_an_end_is_announced(caplog):
    for limit in (30, None):
        caplog.clear()
        prepare(parse(Config, {"env": {"id": "toys:Endless", "max_episode_steps": limit}}))
        assert ("toys:Endless declares no limit of steps, and an episode" in caplog.text) == (limit is None)
        assert ("an episode without an end lasts for env.max_episode_seconds" in caplog.text) == (limit is None)
    caplog.clear()
    prepare(parse(Config, {"env": {"id": "toys:Switches"}}))  # its episodes end by themselves
    assert not caplog.text


def test_an_episode_that_does_not_end_is_announced_while_it_lasts(caplog, monkeypatch):
    """Random actions may end the episodes in which a network goes to and fro forever."""
    for limit, seconds in ((30, 0.0), (None, 60.0), (None, 0.0)):
        monkeypatch.setattr(gymnasium_engine, "NO_END_SECONDS", seconds)
        caplog.clear()
        engine = environments.make(EnvOptions(id="toys:Endless", max_episode_steps=limit), 1)
        observations, outputs = (np.zeros((1, n), np.float32) for n in (engine.observation_size, engine.action_size))
        engine.reset(np.array([0]), np.array([0]), observations)
        for _ in range(3):
            time.sleep(1e-3)
            engine.step(np.array([0]), outputs, observations)
        said = (
            "toys:Endless declares no limit of steps, and no episode has ended here for 0 s: an episode without an end"
        )
        assert caplog.text.count(said) == (limit is None and not seconds)  # once
        engine.close()


@pytest.fixture(scope="module")
def on_ranks(tmp_path_factory):
    """Return the folder of runs on three ranks."""
    where = tmp_path_factory.mktemp("on_ranks")
    run_on(3, *WORDS, "-g", G, "--set", "sweep.env.engine=['gymnasium', 'exact']", "-o", "ranks", where=where)
    return where / "ranks"


@pytest.mark.parametrize("engine", ["gymnasium", "envpool", "exact"])
def test_no_episode_is_longer_than_its_limit_on_any_ranks_and_resumed(request, call, tmp_path, engine):
    if engine == "envpool":  # ranks would take long to import it
        pytest.importorskip("envpool", exc_type=ImportError)  # the system may lack libEGL
        folder = tmp_path / "whole"
        make_runs(tmp_path, *WORDS, "--engine", engine, "-g", G, "-o", folder)
    else:
        folder = request.getfixturevalue("on_ranks") / f"engine={engine}"
    for generations, resume in ((1, ()), (3, ("--resume",)), (G, ("--resume",))):
        call("run", *WORDS, "--engine", engine, "-g", generations, "-o", "parts", *resume).ok()
    whole, parts = (store.read(store.path_of(at, 18)) for at in (folder, tmp_path / "parts"))
    assert [r.digest for r in whole.records] == [r.digest for r in parts.records]
    assert [record.lengths.max() for record in parts.records[:2]] == [6, 6]
    cut = 0
    for before, record in zip(parts.records[1:], parts.records[2:], strict=False):
        limit = math.ceil(1.5 * before.lengths.mean())
        assert 6 < record.lengths.max() <= limit
        cut += np.count_nonzero(record.lengths == limit)
    assert cut > 2
    assert max(whole.held_out.returns) > limit  # held-out episodes have the environment's limit
    for words in (("verify", parts.path), ("verify", "--full", parts.path), ("replay", parts.path, "--generation", 1)):
        call(*words).ok()
    candidate = int(parts.records[-1].lengths[:, 1].argmax())
    done = call("replay", parts.path, "--generation", G - 1, "--candidate", candidate, "--episode", 1)
    assert (done.code, "equal to the log" in done.out) == (0, True), done.out


def test_array_operations_give_the_same_as_kernels(on_ranks, call, tmp_path):
    call("run", *WORDS, "--engine", "exact", "-g", G, "--backend", "numpy", "-o", "arrays").ok()
    kernels, arrays = (store.read(store.path_of(at, 18)) for at in (on_ranks / "engine=exact", tmp_path / "arrays"))
    assert [r.digest for r in kernels.records] == [r.digest for r in arrays.records]


def test_a_cap_below_the_mean_is_refused(call):
    call("run", *WORDS, "--set", "episode_cap=1.0", "-g", 3, "-o", "x").refused("episode_cap")


SKIPPED = {
    "id": "CartPole-v1",
    "wrappers": [{"name": "gymnasium.wrappers:MaxAndSkipObservation", "kwargs": {"skip": 4}}],
}
ROUNDS = {"name": "pgpe", "starts": 2, "start_generations": 10, "pruning_every": 25}
STARTS = {"name": "openai-es", "starts": 3, "start_generations": 4}


@pytest.mark.parametrize(
    ("settings", "name", "got"),
    [
        ({"early_max_episode_steps": 500}, "early_max_episode_steps", "500"),
        (
            {"early_max_episode_steps": 100, "env": {"id": "toys:RememberingCart-v0"}},
            "early_max_episode_steps",
            "100",
        ),
        ({"early_generations": 5}, "early_max_episode_steps", "none"),
        ({"early_max_episode_steps": 9, "env": SKIPPED}, "early_max_episode_steps", "9"),
        ({"episode_cap": 2.0, "env": SKIPPED}, "episode_cap", "2.0"),
        ({"early_max_episode_steps": 9, "early_generations": 11, "strategy": STARTS}, "early_generations", "11"),
        ({"early_max_episode_steps": 9, "early_generations": 36, "strategy": ROUNDS}, "early_generations", "36"),
        (
            {"early_max_episode_steps": 9, "strategy": {"name": "openai-es", "restart_after": 7}},
            "strategy.restart_after",
            "7",
        ),
        *(
            ({"early_max_episode_steps": 9, "strategy": strategy}, "early_max_episode_steps", "9")
            for strategy in (
                *({"name": name} for name in ("prune", "umda", "random")),
                {"name": "ga", "starts": 2, "start_generations": 3},
            )
        ),
    ],
)
def test_limits_that_shorten_nothing_or_defeat_something_are_refused(settings, name, got):
    config = parse(Config, {"env": {"id": "CartPole-v1"}} | settings)
    with pytest.raises(InputError, match=rf"\bgot {got}\b") as refused:
        validate_new_run(prepare(config))
    assert refused.value.argument == name


@pytest.mark.parametrize(("early", "strategy"), [(12, STARTS), (25, ROUNDS), (45, ROUNDS), (50, ROUNDS)])
def test_all_starts_may_have_short_episodes(early, strategy):
    settings = {"early_max_episode_steps": 9, "early_generations": early, "strategy": strategy}
    validate_new_run(prepare(parse(Config, {"env": {"id": "CartPole-v1"}} | settings)))
