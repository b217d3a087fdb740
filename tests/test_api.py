"""The Python interface, in one process and under mpirun, and its side effects."""

import dataclasses
import json
import math
import re
import shlex
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import h5py
import numpy as np
import pytest
import toys
from conftest import ROOT, finished, launcher, wait_for
from gymnasium.envs.classic_control import CartPoleEnv
from tampering import edit_config

import evolve
from evolve import store
from evolve.cli.app import launch
from evolve.errors import InputError
from evolve.numerics.hashing import QUIET_NAN, fold, updated
from evolve.verification import Verdict

POLE = {"id": "CartPole-v1", "engine": "exact"}
SHORT = {"id": "CartPole-v1", "max_episode_steps": 200}
"""As Gymnasium plays it."""
SMALL = {"env": POLE, "generations": 3, "population": 8, "episodes": 2, "held_out_episodes": 4}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return evolve.train(
        **SMALL | {"env": SHORT},
        network={"name": "elman", "hidden": [4]},
        seed=1,
        output=tmp_path_factory.mktemp("out"),
    )


def test_training_gives_the_bits_of_the_command_line(run, here):
    flags = ["-e", "CartPole-v1", "-a", "elman", "-d", "4", "-p", "8", "-r", "2", "-g", "3", "-s", "1", "-o", "cli"]
    assert launch("run", [*flags, "--set", "held_out_episodes=4", "--set", "env.max_episode_steps=200"]) == 0
    assert evolve.load("cli/seed-1.h5").digest == run.digest
    assert evolve.load("cli/seed-1.h5").held_out.returns.tolist() == run.held_out.returns.tolist()


def test_a_run_has_the_contents_of_its_file(run):
    assert run.complete
    assert run.seed == 1
    assert run.config.network.name == "elman"
    assert [generation.number for generation in run.generations] == [0, 1, 2]
    assert run.generations is run.generations  # a loop over numbers of generations takes linear time
    assert run.generations[-1].digest == run.digest == store.read(run.path).records[-1].digest.decode()
    assert "3 of 3 generations" in repr(run)
    assert evolve.load(run.path.parent).digest == run.digest
    table = run.table()
    assert {len(column) for column in table.values()} == {3}
    assert table["best_fitness"] == [generation.best for generation in run.generations]
    assert table["mean_fitness"] == pytest.approx([generation.fitness.mean() for generation in run.generations])


def test_nobody_changes_the_numbers_of_a_run_by_accident(run):
    evaluation, first = run.held_out, run.generations[0]
    for array in (evaluation.returns, evaluation.seeds, first.fitness, first.returns):
        with pytest.raises(ValueError, match="read-only"):
            np.subtract(array, 1, out=array)
    policy = run.champion(generation=0)
    policy.genome.weights[:] = 0  # the policy has a copy, and `reset` takes it
    assert run.verify_against(run.path).equal
    assert policy.outputs([1.0, 0.0, 0.0, 0.0]).any()
    policy.reset()
    assert not policy.outputs([1.0, 0.0, 0.0, 0.0]).any()


def test_a_loop_cannot_change_the_records_of_the_next_write(here):
    env = POLE | {"metrics": ["mean_observation_0"]}
    for generation in evolve.iterate(**SMALL | {"env": env}, normalize_observations=True, seed=1, output="out"):
        record = generation.record
        arrays = [
            *record.metrics.values(),
            *(value for value in vars(record).values() if isinstance(value, np.ndarray)),
        ]
        assert len(arrays) > 10
        assert not any(array.flags.writeable for array in arrays)


def test_objects_with_arrays_compare_without_an_error(run):
    results = evolve.strategies.Results(np.zeros(4))
    for one in (run.generations[0].record, run.experiment, results):
        other = dataclasses.replace(one)
        assert one != other
        assert len({one, other}) == 2


def test_the_final_champion_is_evaluated_on_the_held_out_episodes_of_the_file(run):
    found = run.evaluate(episodes=9)
    assert found.returns[:4].tolist() == run.held_out.returns.tolist()
    assert found.mean == pytest.approx(found.returns.mean())
    low, high = found.interval
    assert low < found.mean < high
    assert found.failed == 0
    assert found.lengths.tolist() == found.returns.tolist()  # the reward of each step is 1
    assert run.held_out.lengths is None
    assert run.verify().equal
    assert run.verify(full=True).summary.startswith("3 generations")


def test_a_run_is_verified_against_another(run, tmp_path):
    assert run.verify_against(run.path).equal
    other = evolve.train(run.config.model_dump(), seed=2, output=tmp_path)
    found = run.verify_against(other)
    assert (found.equal, found.generation) == (False, 0)
    with pytest.raises(InputError, match="path of a file"):
        run.verify_against(3)


def test_a_champion_has_its_published_digest(run):
    champion = evolve.load(ROOT / "zoo" / "acrobot.champion")
    assert champion.verify_published().equal
    with pytest.raises(InputError, match="published"):
        run.verify_published()


def test_a_path_is_no_run():
    with pytest.raises(TypeError, match=r"evolve\.load\('runs/x\.h5'\)"):
        evolve.Run("runs/x.h5")


def test_a_champion_is_evaluated_where_its_own_environment_is_missing(run, tmp_path):
    """As in another process than the notebook that has registered the task of the run."""
    copy = shutil.copy(run.path, tmp_path / "copy.h5")
    edit_config(copy, '"CartPole-v1"', '"nowhere:Gone-v0"')
    lost = evolve.load(copy)
    with pytest.raises(InputError, match=r"^env\.id: expected .*nowhere"):
        lost.evaluate(2)
    found = lost.evaluate(4, env={"id": "CartPole-v1", "kwargs": run.config.env.kwargs})
    assert found.returns.tolist() == run.evaluate(4).returns.tolist()
    with pytest.raises(InputError, match=r"^env: expected an environment of the champion's 4 observations"):
        lost.evaluate(2, env="Acrobot-v1")


def test_a_file_of_a_task_that_a_notebook_registered_has_a_cure_that_works(run, tmp_path, call, monkeypatch):
    copy = shutil.copy(run.path, tmp_path / "copy.h5")
    edit_config(copy, '"CartPole-v1"', '"Mine-v0"')
    (tmp_path / "mymod.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Mine-v0', CartPoleEnv, max_episode_steps=200)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    command = re.search(r"python -m evolve\.(evaluate .*) --env module:Mine-v0", call("verify", copy).err)[1]
    try:
        said = call(*shlex.split(command), "--env", "mymod:Mine-v0", "--episodes", 4).ok().out
    finally:
        gymnasium.registry.pop("Mine-v0", None)
    assert f"mean {run.evaluate(4).mean:.2f} " in said


def test_a_verdict_is_true_if_the_runs_are_equal(run):
    assert run.verify()
    assert not Verdict(False, "different")


def test_workers_find_the_file_after_a_change_of_the_directory(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.path.parent)
    loaded = evolve.load(run.path.name)
    monkeypatch.chdir(tmp_path)
    found = loaded.evaluate(30, workers=2)
    assert found.returns.tolist() == run.evaluate(30).returns.tolist()


def test_ipython_shows_the_place_and_the_sentence_of_an_error():
    with pytest.raises(InputError) as raised:
        evolve.train(env="CartPol-v1")
    first, *_, last = raised.value._render_traceback_()  # a name of IPython
    assert "test_api.py" in first
    assert 'evolve.train(env="CartPol-v1")' in first
    assert last == f"InputError: {raised.value}"


def test_films_of_exact_tasks_can_be_made_in_threads(tmp_path):
    pytest.importorskip("av")
    exact = SMALL | {"env": SHORT | {"engine": "exact"}}
    pole = evolve.train(**exact, network="mlp", seed=1, output=tmp_path)
    with ThreadPoolExecutor(2) as pool:
        films = list(pool.map(lambda generation: pole.film(generation=generation, seconds=0.2), range(2)))
    assert len({film.title for film in films}) == 2


def test_a_champion_is_evaluated_elsewhere(run):
    for steps in (3, np.int64(3)):
        short = run.evaluate(4, env={"id": CartPoleEnv, "max_episode_steps": steps})
        assert short.returns.tolist() == [3.0] * 4
    same = run.evaluate(4, env={"kwargs": {"sutton_barto_reward": True}, "engine": "gymnasium"})
    assert (same.returns <= 0).all()
    assert same.seeds.tolist() == run.held_out.seeds.tolist()
    found = run.evaluate(4, generation=2, threads=np.int64(1))
    env, policy = gymnasium.make("CartPole-v1", max_episode_steps=200), run.champion(generation=2)
    assert "elman" in repr(policy)
    for seed, expected in zip(found.seeds.tolist(), found.returns.tolist(), strict=True):
        seen, _ = env.reset(seed=seed)
        policy.reset(seed=seed)
        steps, over = 0, False
        while not over:
            action = policy(seen)
            assert env.action_space.contains(action)
            seen, _, *ends, _ = env.step(action)
            steps, over = steps + 1, any(ends)
        assert steps == expected
    for wrong, message in (
        ({"env": "Pendulum-v1"}, "the champion's 4 observations and 2 actions, got Pendulum-v1, of 3 and 1"),
        ({"env": {"kwargs": {"length": 1.0}}}, "env.kwargs: expected arguments that CartPole-v1 takes"),
        ({"env": {"kwarg": {}}}, "Did you mean kwargs"),
        ({"env": 3}, "expected the id of an environment, its class"),
        ({"generation": 3}, "one of 0 to 2, got 3"),
        ({"generation": "last"}, "generation: expected a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            run.evaluate(4, **wrong)


def test_a_run_tells_the_arguments_of_each_episode(here):
    env = {"id": "CartPole-v1", "engine": "exact", "kwargs": {"masspole": 0.2}}
    env["randomize"] = {"length": {"uniform": [0.4, 0.6]}}
    run = evolve.train(**SMALL | {"env": env}, seed=1, output="out")
    drawn = [run.environment_kwargs(generation, episode) for generation in range(3) for episode in range(2)]
    assert len({table["length"] for table in drawn}) == 6
    assert all(table.keys() == {"masspole", "length"} and 0.4 <= table["length"] <= 0.6 for table in drawn)
    held_out = [run.environment_kwargs(episode=episode)["length"] for episode in range(4)]
    for length, expected in zip(held_out, run.held_out.returns.tolist(), strict=True):
        returns = run.evaluate(4, env={"kwargs": {"length": length}}).returns.tolist()
        assert returns[held_out.index(length)] == expected
    store.create(here / "empty.h5", store.read(run.path).header).close()
    with pytest.raises(InputError, match="a run with a complete generation, got none yet"):
        evolve.load("empty.h5").environment_kwargs()


def test_a_run_makes_the_environment_of_an_episode(here):
    env = {"id": "Pendulum-v1", "randomize": {"g": {"uniform": [5.0, 9.0]}}, "wrappers": ["ClipAction"]}
    run = evolve.train(**SMALL | {"env": env | {"max_episode_steps": 7}}, seed=1, output="out")
    for generation, logged in ((2, run.generations[2].returns[run.generations[2].record.champion_candidate][1]),
                               (None, run.held_out.returns[1])):  # fmt: skip
        policy, played = run.champion(generation), run.environment(generation, episode=1, render_mode="rgb_array")
        seed = run.held_out.seeds[1] if generation is None else run.environment_seed(generation, 1)
        policy.reset(seed=int(seed))
        observation, _ = played.reset(seed=int(seed))
        total, ended = 0.0, False
        while not ended:
            observation, reward, _, ended, _ = played.step(policy(observation))
            total += reward
        assert total == logged
        assert type(played).__name__ == "ClipAction"
        assert played.render().shape == (500, 500, 3)
        played.close()
    exact = evolve.train(**SMALL | {"env": {"id": "Cues-v0", "engine": "exact"}}, seed=1, output="exact")
    with pytest.raises(
        InputError, match=r"^env\.engine: expected gymnasium, or exact for a task .* got exact, Cues-v0"
    ):
        exact.environment()


@pytest.mark.parametrize("engine", ["exact", "gymnasium", "envpool"])
def test_a_policy_refuses_observations_of_another_shape(engine, tmp_path):
    if engine == "envpool":
        pytest.importorskip("envpool")
    sizes = {"generations": 1, "population": 2, "episodes": 1, "held_out_episodes": 0}
    env = {"id": "CartPole-v1", "engine": engine, "max_episode_steps": 9}
    policy = evolve.train(**sizes, env=env, seed=1, output=tmp_path).champion()
    for wrong in (0.5, [0.5], None, [0.0] * 7, [[0.0] * 7] * 2, np.zeros((0, 4))):
        with pytest.raises(InputError, match=r"CartPole-v1, 4 numbers, got"):
            policy(wrong)
    assert policy([0.0, 0.1, 0.0, -0.1]) in (0, 1)


def test_a_policy_refuses_values_that_a_discrete_space_lacks(tmp_path):
    sizes = {"generations": 1, "population": 2, "episodes": 1, "held_out_episodes": 0}
    policy = evolve.train(**sizes, env="FrozenLake-v1", seed=1, output=tmp_path).champion()
    for wrong in (-1, 16, [1, 16], [[1, 2]], None, "a"):
        with pytest.raises(InputError, match=r"FrozenLake-v1, 16 numbers, got"):
            policy(wrong)
    assert policy(15) in range(4)


def test_an_export_replaces_no_other_kind_of_file(run, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    before = run.path.read_bytes()
    for path in (run.path, notes):
        with pytest.raises(InputError, match=r"\.champion"):
            run.export(path)
    assert (run.path.read_bytes(), notes.read_text()) == (before, "mine")
    run.export(tmp_path / "mine.champion")
    assert evolve.load(tmp_path / "mine.champion").digest == run.digest


def test_the_output_is_a_directory_or_a_table(here):
    small = SMALL | {"generations": 1, "population": 4}
    table = {"directory": "at", "genomes": "all"}
    one, other = (evolve.train(**small, output=output, seed=1) for output in (table, "b"))
    assert (one.path.parent.name, other.path.parent.name) == ("at", "b")
    assert (one.config.output.genomes, one.digest) == ("all", other.digest)
    for wrong in (5, ["x"], b"bb"):
        with pytest.raises(InputError, match=r"^output: expected"):
            evolve.train(**small, output=wrong, seed=2)
    assert sorted(path.name for path in here.iterdir()) == ["at", "b"]


def test_all_genomes_of_a_generation_are_returned_if_they_are_stored(run, tmp_path):
    kept = evolve.train(run.config, output={"directory": str(tmp_path), "genomes": "all"})
    found, best = kept.population(1), int(kept.generations[1].record.champion_candidate)
    assert found.weights.shape == found.mask.shape == (8, kept.experiment.network.num_weights)
    chosen, champion = found.take([best]), kept.champion(1)
    assert chosen.fingerprints().tolist() == champion.genome.fingerprints().tolist()
    seen = [0.1, 0.2, 0.3, 0.4]
    policy = evolve.Policy(kept.experiment, chosen, champion.normalizer)
    assert policy.outputs(seen).tobytes() == champion.outputs(seen).tobytes()
    with pytest.raises(InputError, match=r"^generation: expected one of 0 to 2, got 3"):
        kept.population(3)
    other = (best + 1) % 8  # the best candidate may be the same in another run, such as an elite
    with h5py.File(kept.path, "r+") as file:  # as if another run had replaced it
        file["population/weights"][1, other] += 1
    with pytest.raises(InputError, match=r"the file that the script has loaded, .* Load it again: evolve\.load\("):
        kept.population(1)
    with pytest.raises(InputError, match=r"a run that stores all genomes, got .*output\.genomes=\"all\""):
        run.population(1)


def test_a_tilde_is_the_home_directory_and_paths_are_texts(here, monkeypatch):
    monkeypatch.setenv("HOME", str(here / "home"))
    small = SMALL | {"generations": 1, "population": 4, "seed": 1}
    first = evolve.train(**small, output="~/runs")
    assert first.path == here / "home/runs/seed-1.h5"
    second = evolve.train(**small, output={"directory": Path("ü")}, start_from={"file": first.path})
    assert (second.path, second.start.digest) == (Path("ü/seed-1.h5"), second.config.start_from.digest)
    for start in ("~/runs", "~/runs/seed-1.h5"):
        third = evolve.train(**small, output="~/third", overwrite=True, start_from=start)
        assert third.start.digest == second.start.digest
    assert evolve.load("~/third").digest == evolve.train("~/third/seed-1.h5", resume=True).digest == third.digest
    assert sorted(path.name for path in here.iterdir()) == ["home", "ü"]


BEGINS = """
import evolve
from evolve import register_task


def one_step(random):
    yield [0.0]
    return 1.0


def score(returns, metrics, connections):
    return returns.mean(axis=1)


register_task("OneStep-v0", one_step, 1, 1)
if __name__ != "begins_guarded":
    evolve.train(env="begins:OneStep-v0", generations=1, population=2, output="begun", overwrite=True)
"""


@pytest.mark.parametrize("settings", [{"env": "begins:OneStep-v0"}, {"fitness": "begins:score"}])
def test_a_module_that_begins_a_run_when_it_is_imported_is_refused(settings, here, monkeypatch):
    Path("begins.py").write_text(BEGINS)
    Path("begins_guarded.py").write_text(BEGINS)
    monkeypatch.syspath_prepend(here)
    small = {"generations": 1, "population": 2, "episodes": 1, "held_out_episodes": 0}
    with pytest.raises(InputError, match=r"a module that begins no run .* begins:.* if __name__ == \"__main__\""):
        evolve.train(**small | {"env": "CartPole-v1"} | settings)
    assert not Path("begun").exists()
    assert evolve.train(**small, env="begins_guarded:OneStep-v0", output="guarded").complete


PLAYS = """
import os
import evolve
import toys

if os.path.exists("made"):
    evolve.load("made").verify(workers=2)
"""


def test_a_module_that_starts_workers_when_it_is_imported_is_refused(here, monkeypatch):
    """Each worker would import it, and start workers."""
    Path("plays.py").write_text(PLAYS)
    monkeypatch.syspath_prepend(here)
    small = {"generations": 1, "population": 2, "episodes": 1, "held_out_episodes": 0, "output": "made"}
    run = evolve.train(env="plays:Elsewhere-v0", **small)
    monkeypatch.delitem(sys.modules, "plays")
    monkeypatch.setattr("evolve.analysis.runs.call_elsewhere", lambda *_: pytest.fail("workers are started"))
    with pytest.raises(InputError, match=r"no workers when it is imported, got plays:Elsewhere-v0\. .*__main__"):
        run.verify(workers=2)


def test_a_wrapper_may_be_a_class(here):
    named = [{"name": "FrameStackObservation", "kwargs": {"stack_size": 2}}, "FlattenObservation"]
    wrappers = gymnasium.wrappers
    classes = [{"name": wrappers.FrameStackObservation, "kwargs": {"stack_size": 2}}, wrappers.FlattenObservation]
    env = SHORT | {"max_episode_steps": 30}
    by_class, by_name = (
        evolve.train(**SMALL | {"env": env | {"wrappers": given}}, seed=1, output=output)
        for given, output in ((classes, "class"), (named, "name"))
    )
    assert by_class.config.env == by_name.config.env
    assert by_class.digest == by_name.digest
    sweep = evolve.sweep({"env.wrappers": [classes, []]}, seeds=[1], output="sweep", **SMALL | {"env": env})
    assert [run.config.env.wrappers for run in sweep] == [by_name.config.env.wrappers, ()]


def test_a_file_that_this_process_writes_is_refused_with_a_cure(here):
    iterator = evolve.iterate(**SMALL, output="at", seed=2)
    next(iterator)
    with pytest.raises(InputError, match=r"This script has started that run: close .*evolve\.iterate"):
        evolve.train(**SMALL, output="at", seed=2, resume=True)
    iterator.close()
    assert evolve.train(**SMALL, output="at", seed=2, resume=True).complete


def _changes(policy):
    """Return how far an episode has changed the weights of a policy."""
    now = policy.weights
    policy.reset()
    return {name: part - now[name] for name, part in policy.weights.items()}


def test_settings_without_effect_on_a_champion_are_refused(run):
    with pytest.raises(InputError, match=r"network\.init_scale: expected a setting that acts on a champion"):
        run.evaluate(2, network={"init_scale": 5.0})


def test_a_champion_is_evaluated_with_other_settings_of_its_network(tmp_path):
    network = {"name": "hebbian-dag", "hidden": [3], "plasticity": 1.0, "init_sparsity": 0.0}
    run = evolve.train(
        env={"id": "Cues-v0", "engine": "exact"}, network=network, generations=1, population=4, episodes=1, seed=1,
        output=tmp_path, held_out_episodes=9,
    )  # fmt: skip
    whole, static = run.evaluate(9), run.evaluate(9, network={"plasticity": 0.0})
    assert whole.returns.tolist() == run.held_out.returns.tolist()
    assert (static.seeds == whole.seeds).all()
    assert static.returns.tolist() != whole.returns.tolist()
    with pytest.raises(evolve.InputError, match=r"^network: expected .*hebbian-dag"):
        run.evaluate(9, network={"hidden": [4]})
    with pytest.raises(evolve.InputError, match=r"^network: expected a table of settings, .* got 'elman'"):
        run.evaluate(9, network="elman")
    seen = np.ones((3, run.experiment.network.observation_size), np.float32)
    frozen, learns = run.champion(network={"plasticity": 0.0}), run.champion()
    assert [frozen.outputs(one).tolist() for one in seen] != [learns.outputs(one).tolist() for one in seen]
    assert {0.0} == {float(np.abs(part).max()) for part in _changes(frozen).values()}
    assert max(float(np.abs(part).max()) for part in _changes(learns).values()) > 0
    exported = evolve.load(run.export(tmp_path / "x.champion")).champion(network={"plasticity": 0.0})
    assert [exported.outputs(one).tolist() for one in seen] != [learns.outputs(one).tolist() for one in seen]
    for argument, value in (("engine", "auto"), ("network", "auto"), ("threads", None)):
        with pytest.raises(evolve.InputError, match=rf"{argument}: expected .* got '?{value}"):
            run.evaluate(9, **{argument: value})


def fingerprint(rows):
    """Return what the run file has of rows [steps, k] of float32."""
    state = np.zeros(1, np.uint64)
    for row in rows:
        words = np.where(np.isnan(row), np.uint32(QUIET_NAN), row.astype(np.float32).view(np.uint32))
        state = updated(state, fold(words[None]))
    return int(state[0])


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("network", [*evolve.networks.NETWORKS, "plastic"])
def test_a_policy_repeats_the_logged_episodes_to_the_bit(network, normalize, here):
    options = {"name": network}
    if network == "plastic":
        options = {"name": "hebbian-dag", "plasticity": 0.3, "neuromodulated": True}
    short = {"id": "Pendulum-v1", "max_episode_steps": 12}
    sizes = {"generations": 2, "population": 3, "episodes": 2, "held_out_episodes": 0}
    made = evolve.train(env=short, network=options, normalize_observations=normalize, seed=5, output="out", **sizes)
    run = evolve.load(made.path)
    env = gymnasium.make("Pendulum-v1", max_episode_steps=12)
    for number, generation in enumerate(run.generations):
        policy = run.champion(generation=number)
        best = generation.record.champion_candidate
        for episode in range(2):
            seed = run.environment_seed(number, episode)
            seen, outputs, returned = [env.reset(seed=seed)[0]], [], 0.0
            policy.reset(seed=seed)
            ended = False
            while not ended:
                outputs.append(policy.outputs(seen[-1]))
                observation, reward, terminated, truncated, _ = env.step(policy.decode(outputs[-1]))
                returned += float(reward)
                ended = terminated or truncated
                seen.append(observation)
            logged = generation.record.fingerprints[best, episode].tolist()
            assert [fingerprint(np.array(seen[:-1])), fingerprint(np.array(outputs))] == logged
            assert returned == generation.returns[best, episode]


def test_generations_can_be_iterated_and_the_loop_be_left(here):
    for generation in evolve.iterate(**SMALL, seed=2):
        assert generation.returns.shape == (8, 2)
        if generation.number == 1:
            break
    left = evolve.load("runs/CartPole-v1-hebbian-dag/seed-2.h5")
    assert (len(left.generations), left.complete) == (2, False)
    seen = []
    run = evolve.train(**SMALL, seed=2, resume=True, callbacks=[seen.append])
    assert [generation.number for generation in seen] == [2]
    assert run.complete
    again = evolve.train(**SMALL, seed=2, resume=True)  # a cell of a notebook that is run once more
    assert again.digest == run.digest
    longer = evolve.train(run.path, resume=True, generations=4)
    assert len(longer.generations) == 4


def test_an_experiment_may_be_a_file_a_table_or_a_configuration(here):
    (here / "small.toml").write_text(
        "seeds = [4, 5]\ngenerations = 2\npopulation = 3\nepisodes = 1\nheld_out_episodes = 1\n"
        '[env]\nid = "CartPole-v1"\n'
    )
    by_file = evolve.train("small.toml", output="a")
    assert by_file.seed == 4
    for env in ({"id": "CartPole-v1"}, "CartPole-v1"):
        table = {"generations": 2, "population": 3, "episodes": 1, "held_out_episodes": 1, "env": env}
        assert evolve.train(table, seed=4, output=f"b{len(env)}").digest == by_file.digest
    assert evolve.train(by_file.config, output="c").digest == by_file.digest
    other = evolve.train("small.toml", seed=4, output="d", strategy={"weight_noise": 0.7})
    assert other.generations[0].digest == by_file.generations[0].digest
    assert other.digest != by_file.digest


def test_a_sweep_over_the_configuration_of_a_run_leaves_the_directory_of_the_run_alone(here):
    small = {"population": 4, "episodes": 1, "generations": 1, "held_out_episodes": 0}
    run = evolve.train(small, env=POLE, output="first")
    assert evolve.sweep({"population": [5]}, run.config)[0].path == Path("runs/sweep/population=5/seed-0.h5")
    assert evolve.sweep({"population": [5]}, run.config, output="first")[0].path.parent.parent == Path("first")
    for _ in range(2):  # without a grid it resumes the runs of the directory
        paths = [each.path for each in evolve.sweep({}, run.config, seeds=[0, 1], resume=True)]
        assert paths == [Path("first/seed-0.h5"), Path("first/seed-1.h5")]


def test_a_class_gives_the_bits_of_its_registration(here):
    small = {"population": 4, "episodes": 1, "generations": 2, "held_out_episodes": 2, "seed": 3}
    runs = [
        evolve.train(**small, env={"id": env, "kwargs": {"seconds": 0.0}}, output=name)
        for env, name in ((toys.Unregistered, "class"), ("toys:Slow-v0", "id"))
    ]
    assert runs[0].digest == runs[1].digest
    assert runs[0].config.env.id == "toys:Unregistered"
    assert evolve.load(runs[0].path).verify().equal


def test_numbers_may_be_those_of_numpy(here):
    small = {"episodes": 2, "held_out_episodes": 1, "output": "numpy"}
    (seed,) = np.arange(3, 4)
    run = evolve.train(
        env={"id": "CartPole-v1", "max_episode_steps": np.int64(50)},
        network={"name": "mlp", "hidden": np.array([3, 2])},
        generations=np.int32(2),
        population=np.uint8(4),
        seed=seed,
        **small,
    )
    assert (run.seed, len(run.generations), run.config.env.max_episode_steps) == (3, 2, 50)
    assert list(run.config.network.options.hidden) == [3, 2]


Unnamed = type("Unnamed", (gymnasium.Wrapper,), {"__qualname__": "Hidden.Unnamed"})
"""A class that no module names."""


@pytest.mark.parametrize(
    ("settings", "name", "said"),
    [
        ({"env": "CartPol-v1"}, "env.id", "CartPole-v1"),
        ({"network": "elmann"}, "network.name", "elman"),
        ({"population": 1}, "population", "got 1"),
        ({"strategy": {"survivers": 1}}, "strategy.survivers", "survivors"),
        ({"seed": -1}, "seed", "got -1"),
        ({"seed": [1, 2]}, "seed", "evolve.sweep({}, seeds=[1, 2], …)"),
        ({"seeds": [1, [2, 3]]}, "seeds", "seed=1"),
        ({"seeds": {1, 2}}, "seeds", "seed=1"),
        ({"seeds": [1, 2]}, "seeds", "got [1, 2]"),
        ({"experiment": 3}, "experiment", "got 3"),
        ({"callbacks": print}, "callbacks", "[function]"),
        ({"callbacks": [3]}, "callbacks", "3"),
        ({"generations": "5"}, "generations", "got '5'"),
        ({"sweep": {"population": [2, 3]}}, "experiment", "sweep of 2"),
        ({"output": "a\0b"}, "output.directory", r"got 'a\x00b'"),
        ({"env": "CartPole-v1 "}, "env.id", "Did you mean CartPole-v1?"),
        ({"env": "toys:"}, "env.id", "module:Name, got 'toys:'"),
        (
            {"env": {"id": "CartPole-v1", "wrappers": ["FlatenObservation"]}},
            "env.wrappers",
            "Did you mean FlattenObservation",
        ),
        ({"env": {"id": "CartPole-v1", "wrappers": [Unnamed]}}, "env.wrappers", 'env.wrappers=["tasks:Wrapper"]'),
        ({"strategy": None}, "strategy", "the name of a strategy, or a table"),
        ({"early_stop": 475}, "early_stop", "a table with mean_return, episodes"),
        ({"fitness": 3}, "fitness", '"mean", "min"'),
        ({"gamma": 0.99}, "gamma", "methods that learn by gradients"),
        ({"render_mode": "human"}, "render_mode", "run.film()"),
        ({"start_from": 3}, "start_from", "a run, a champion file or its path"),
    ],
)
def test_errors_name_settings(settings, name, said, here):
    with pytest.raises(evolve.InputError) as refused:
        evolve.train(**SMALL | settings)
    assert (refused.value.argument, said in str(refused.value)) == (name, True), refused.value
    assert "--" not in str(refused.value)
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("call", "name", "got"),
    [
        (lambda run: run.evaluate("5"), "episodes", "'5'"),
        (lambda run: run.evaluate(2**40), "episodes", "1,099,511,627,776"),
        (lambda run: run.champion("1"), "generation", "'1'"),
        (lambda run: run.champion(99), "generation", "99"),
        (lambda run: run.environment_seed(0, 0.5), "episode", "0.5"),
        (lambda run: run.film(episode=0.5), "episode", "0.5"),
        (lambda run: run.film(seconds="12"), "seconds", "'12'"),
        (lambda run: run.film(network="elman"), "network", "'elman'"),
        (lambda run: run.report(quick="no"), "quick", "'no'"),
        (lambda run: run.champion().reset("a"), "seed", "'a'"),
        (lambda _: evolve.strategies.make("ga", "10"), "genome_size", "'10'"),
        (lambda _: evolve.strategies.make("ga", 9, population=1.5), "population", "1.5"),
        (lambda _: evolve.networks.make({"name": "mlp"}, 0, 2), "observation_size", "0"),
        (lambda _: evolve.load(None), "path", "None"),
        (evolve.load, "path", "<Run "),
        (lambda run: run.export(None), "path", "None"),
        (lambda run: run.champion().export(3), "path", "3"),
        (lambda _: evolve.compare([]), "runs", "none"),
        (lambda _: evolve.compare([""]), "runs", "''"),
        (
            lambda _: evolve.train(env="CartPole-v1", workers=10**5000),
            "workers",
            "one of type int, which cannot be printed",
        ),
    ],
)
def test_values_of_another_type_are_refused_by_name(call, name, got, run):
    with pytest.raises(evolve.InputError) as refused:
        call(run)
    assert (refused.value.argument, f"got {got}" in str(refused.value)) == (name, True), refused.value


@pytest.mark.parametrize("wrong", [0.5, [0.5] * 3, [[0.5] * 3], [[[0.5] * 2]]])
def test_a_policy_decodes_outputs_of_its_own_shape(wrong, run):
    policy = run.champion()
    assert policy.decode([0.1, 0.3]) == 1
    with pytest.raises(InputError, match=r"^outputs: expected 2 numbers, or N rows of them, got an array of shape \["):
        policy.decode(wrong)
    with pytest.raises(InputError, match=r"^outputs: .*could not convert"):
        policy.decode("up")


def test_a_run_is_resumed_through_a_symbolic_link(here):
    small = {"env": POLE, "population": 4, "episodes": 1, "held_out_episodes": 0}
    first = evolve.train(**small, generations=2, output="whole")
    (here / "link").mkdir()
    (here / "link" / "seed-0.h5").symlink_to("../whole/seed-0.h5")
    evolve.train(**small, generations=3, output="link", resume=True)
    assert (here / "link" / "seed-0.h5").is_symlink()
    assert len(evolve.load(first.path).generations) == 3


def test_an_existing_run_is_not_overwritten(run):
    with pytest.raises(evolve.InputError, match=r"seed-1\.h5 .*resume=True.*overwrite=True"):
        evolve.train(**SMALL, network={"name": "elman", "hidden": [4]}, seed=1, output=run.path.parent)


def test_a_run_is_replaced_if_that_is_asked_for(here):
    small = {"env": POLE, "population": 4, "episodes": 1, "held_out_episodes": 0, "output": here / "again"}
    first = evolve.train(**small, generations=3)
    again = evolve.train(**small, generations=2, overwrite=True)
    assert (again.path, len(again.generations)) == (first.path, 2)
    assert again.digest == first.generations[1].digest
    other = {"population": 6, "env": "Acrobot-v1", "network": "elman", "generations": 1}
    changed = evolve.train(**small | other, overwrite=True)
    assert (changed.path, changed.config.env.id) == (first.path, "Acrobot-v1")
    assert changed.generations[0].fitness.shape == (6,)
    with pytest.raises(evolve.InputError, match=r"^overwrite: .*resume=True"):
        evolve.train(**small, overwrite=True, resume=True)
    assert evolve.load(first.path).digest == changed.digest


def test_a_run_that_fails_replaces_nothing(here):
    small = {"env": POLE, "population": 4, "episodes": 1, "held_out_episodes": 0, "output": here / "again"}
    first = evolve.train(**small, generations=1)
    (here / "again" / "seed-2.h5").write_text("a poem")
    for wrong in ({"population": 6, "racing": {"rounds": [1]}}, {"seed": 2}):
        with pytest.raises(evolve.InputError):
            evolve.train(**small | wrong, overwrite=True)
    assert evolve.load(first.path).digest == first.digest
    assert (here / "again" / "seed-2.h5").read_text() == "a poem"


def python(code, tmp_path, ranks=None):
    (tmp_path / "script.py").write_text(code)
    return finished([*launcher(ranks), sys.executable, "script.py"], tmp_path)


@pytest.mark.cold
def test_importing_changes_nothing(tmp_path):
    code = """
import os, signal, sys, warnings

def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return handlers, list(warnings.filters), dict(os.environ), sys.excepthook, sys.displayhook

before = state()
import evolve
assert state() == before and "numpy" not in sys.modules
import gymnasium, h5py, numpy, pydantic  # what these change is theirs
before = state()
for name in evolve.__all__:
    getattr(evolve, name)
assert state() == before
assert not {"mpi4py", "matplotlib", "rich", "scipy"} & set(sys.modules)
print(sorted(evolve.__all__) == evolve.__all__ == dir(evolve))
"""
    done = python(code, tmp_path)
    assert (done.code, done.out, done.err) == (0, "True\n", "")


def test_every_public_name_is_documented():
    for name in evolve.__all__:
        assert name.startswith("__") or getattr(evolve, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = evolve.trian


SCRIPT = """
import json
import math
import evolve

SHORT = {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 60}
SMALL = {"env": SHORT, "population": 4, "episodes": 2, "held_out_episodes": 3}

run = evolve.train(**SMALL, network="hebbian-dag", generations=3, seed=1, output="out")
policy = run.champion()
found = run.evaluate(episodes=4)
seen = [[g.number, g.best, g.digest] for g in evolve.iterate(**SMALL, generations=2, seed=2, output="out")]
for generation in evolve.iterate(**SMALL, generations=9, seed=3, output="out"):
    if generation.number == 1:
        break
try:
    evolve.train(**SMALL, generations=2, seed=2, output="out")
except evolve.InputError as wrong:
    refused = str(wrong)
try:
    evolve.train(env="toys:Broken-v0", generations=2, seed=2, output="broken", compute={"check": False})
except evolve.EpisodeError as wrong:
    broken = ["the motor burnt out" in str(wrong), len(wrong.key)]
def goes_on(each):
    return each.number < 2 and run.evaluate(episodes=4) == found  # on rank 0 alone

stopped = evolve.train(**SMALL, generations=9, seed=4, output="out", callbacks=[goes_on])
late = SMALL | {"generations": 9, "seed": 4, "output": "out", "resume": True, "compute": {"time_limit": "0s"}}
stopped = [stopped.digest, evolve.train(**late).digest, list(evolve.iterate(**late)), len(stopped.generations)]
again = evolve.load("out/seed-1.h5")
found = [run.digest, again.digest, int(policy([0.1, 0.2, 0.3, 0.4])), found.returns.tolist(),
         run.verify().summary, seen, refused, broken, stopped, run.table()["best_fitness"]]
print(json.dumps(found) + "\\n", end="", flush=True)
"""


RAISES = """
import os
import evolve

for generation in evolve.iterate(env="CartPole-v1", population=4, generations=9, held_out_episodes=0, output="out"):
    if os.environ["OMPI_COMM_WORLD_RANK"] == str({rank}) and generation.number == 1:
        raise OSError("no space for the plot")
"""


@pytest.mark.parametrize(("rank", "ranks"), [(0, 2), (2, 3)])
def test_an_exception_on_one_rank_ends_all_of_them(tmp_path, rank, ranks):
    done = python(RAISES.format(rank=rank), tmp_path, ranks=ranks)
    assert (done.code, done.err.count("OSError: no space for the plot")) == (1, 1)
    generations, complete = store.read_progress(tmp_path / "out" / "seed-0.h5")
    assert (1 <= generations < 9, complete) == (True, False)


def test_an_exception_on_a_rank_that_cannot_print_ends_all_of_them(tmp_path):
    code = RAISES.format(rank=1).replace("raise OSError", "import sys; sys.stdout = None; raise OSError")
    assert python(code, tmp_path, ranks=2).code == 1


def test_an_exception_that_takes_no_attributes_is_raised_as_it_is(here):
    @dataclasses.dataclass(frozen=True)
    class MineError(Exception):
        code: int

    def callback(_):
        raise MineError(3)

    with pytest.raises(MineError):
        evolve.train(**SMALL, output="mine", callbacks=[callback])


def test_an_error_on_all_ranks_is_reported_by_all(tmp_path):
    done = python('import evolve; evolve.train(env="CartPole-v1", population=0)', tmp_path, ranks=2)
    assert (done.code, done.err.count("InputError: population: expected")) == (1, 2)
    assert "MPI_ABORT" not in done.err


@pytest.mark.parametrize("calls", ["not rank", "rank"])
def test_no_rank_waits_for_one_that_has_ended(tmp_path, calls):
    """The others leave the script while some rank calls a function that is meant for all ranks."""
    script = f"""
import os, evolve
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
run = evolve.train(env="CartPole-v1", population=4, generations=1, held_out_episodes=0)
if {calls}:
    print(run.verify().equal)
"""
    done = python(script, tmp_path, ranks=3)
    if calls == "not rank":
        assert (done.code, done.out.split()) == (0, ["True"])
        assert "rank 1 on" in done.err
    else:
        assert done.code != 0
        assert "rank 0 has ended its script" in done.err


def test_ranks_that_ask_for_different_seeds_are_told(tmp_path):
    code = "import os, evolve; evolve.train(env='CartPole-v1', population=4, generations=1, seed={rank})"
    done = python(code.format(rank="int(os.environ['OMPI_COMM_WORLD_RANK'])"), tmp_path, ranks=2)
    assert done.code != 0  # usually 1; Open MPI's mpirun once crashed while it ended this job
    assert "InputError: seed: expected the same seed on all ranks, 0 as on rank 0, got 1" in done.err


def test_a_script_under_mpirun_gives_every_rank_the_results_of_one_process(here, tmp_path, capsys):
    exec(SCRIPT, {})
    expected = json.loads(capsys.readouterr().out)
    assert expected[0] == expected[1]
    assert "already exists" in expected[6]
    assert expected[7] == [True, 4]
    assert (expected[8][0], expected[8][2:]) == (expected[8][1], [[], 3])
    (tmp_path / "three").mkdir()
    three = python(SCRIPT, tmp_path / "three", ranks=3)
    assert three.code == 0, three.err
    assert [json.loads(line) for line in three.out.splitlines()] == [expected] * 3


def test_an_uncaught_error_ends_the_job(tmp_path):
    code = "import evolve\nevolve.train(env='toys:Broken-v0', generations=1, compute={'check': False})\n"
    done = python(code, tmp_path, ranks=2)
    assert done.code != 0
    assert "the motor burnt out" in done.err


def test_after_training_in_a_thread_ctrl_c_still_works(start, tmp_path):
    code = """
import threading, time
import evolve

found = []
small = {"env": "CartPole-v1", "generations": 1, "population": 2, "episodes": 1, "held_out_episodes": 0}
thread = threading.Thread(target=lambda: found.append(evolve.train(**small)))
thread.start()
thread.join()
try:
    print(found[0].digest, flush=True)
    time.sleep(200)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    (tmp_path / "script.py").write_text(code)
    script = start("script", module="script")
    wait_for(lambda: script.output()[0].endswith("\n"), script.output)
    script.popen.send_signal(signal.SIGINT)
    digest, *rest = script.wait().ok().out.splitlines()
    assert (len(digest), rest) == (64, ["interrupted"])


def test_a_callback_may_change_the_current_directory(here, monkeypatch):
    """The path of the run is relative to the directory in which the run began."""
    (here / "plots").mkdir()
    run = evolve.train(**SMALL, output="moved", callbacks=[lambda _: monkeypatch.chdir(here / "plots")])
    assert run.complete
    monkeypatch.chdir(here)
    assert evolve.load(run.path).digest == run.digest


def test_an_environment_may_change_the_current_directory(here):
    tiny = {"env": "toys:Wanders-v0", "population": 2, "episodes": 1, "held_out_episodes": 1, "generations": 1}
    run = evolve.train(**tiny, output="moved")
    assert Path.cwd() == here
    assert (here / run.path).exists()


def test_training_can_be_interrupted_and_resumed(here):
    """As by a notebook's stop button: KeyboardInterrupt comes through, and complete generations are kept."""
    before = signal.getsignal(signal.SIGALRM)
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)  # a command run in this process catches it

    def stop(generation):
        if generation.number == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        evolve.train(**SMALL | {"generations": 30}, seed=7, callbacks=[stop])
    signal.signal(signal.SIGINT, earlier)
    assert signal.getsignal(signal.SIGALRM) is before
    kept = evolve.load("runs/CartPole-v1-hebbian-dag/seed-7.h5")
    assert len(kept.generations) == 3
    assert len(evolve.train(kept.path, resume=True, generations=4).generations) == 4


def test_two_threads_may_train_at_the_same_time(here):
    found, small = {}, SMALL | {"env": SHORT}

    def work(seed):
        found[seed] = evolve.train(**small, seed=seed, output=f"threads{seed}").digest

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: evolve.train(**small, seed=seed, output="alone").digest for seed in (1, 2)}


def test_a_table_has_the_spread_of_fitness_and_of_held_out_returns(run):
    table = run.table()
    for number, generation in enumerate(run.generations):
        assert table["std_fitness"][number] == pytest.approx(np.std(generation.fitness, ddof=1))
        quartiles = [table[f"{name}_fitness"][number] for name in ("q25", "median", "q75")]
        assert quartiles == pytest.approx(np.quantile(generation.fitness, [0.25, 0.5, 0.75]).tolist())
    returns = run.held_out.returns
    assert table["held_out_mean"][-1] == pytest.approx(returns.mean())
    assert table["held_out_std"][-1] == pytest.approx(returns.std(ddof=1))
    assert table["held_out_q75"][-1] == pytest.approx(np.quantile(returns, 0.75))
    assert all(math.isnan(value) for value in table["held_out_mean"][:-1])
    assert table["held_out_failed"][-1] == run.held_out.failed == 0
