"""The loop: early stops, validation and held-out episodes; consecutive runs share no state."""

import json
from contextlib import closing

import numpy as np
import pytest
from some_results import results

import evolve
from evolve import store
from evolve.analysis.statistics import number
from evolve.cluster import Coordinator, Transport, cores
from evolve.config import Config, EnvOptions
from evolve.errors import EvolveError, InputError
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.rollouts import EPISODE_QUANTITIES, PopulationResults
from evolve.store import Record
from evolve.strategies import STRATEGIES
from evolve.training import evaluate_champion, iterate, make_rollout, prepare
from evolve.training.loop import validation_returns

CART = ("-e", "CartPole-v1", "-p", 8, "-r", 2, "-d", 2, "-s", 3, "--set", "held_out_episodes=4")
EXACT = (*CART, "--engine", "exact")
EARLY = (*EXACT, "--set", "env.max_episode_steps=150", "--set", "strategy.weight_noise=0.5", "--set",
         "early_stop.every=2", "--set", "early_stop.episodes=6")  # fmt: skip


def stored(tmp_path, name):
    return store.read(tmp_path / name / "seed-3.h5")


def test_a_run_stops_once_its_champion_is_good_enough(call, command, tmp_path):
    good = ("--set", "early_stop.mean_return=100.0")
    call("run", *EARLY, "-g", 6, "-o", "whole").ok()
    done = call("run", *EARLY, "-g", 20, *good, "-o", "early").ok()
    whole, early = stored(tmp_path, "whole"), stored(tmp_path, "early")
    assert early.complete
    assert 2 < early.num_generations < 6
    assert early.num_generations % 2 == 0
    assert f"stopped early, after {early.num_generations} of 20 generations" in done.out
    mean = number(float(early.validations[early.num_generations].mean()))
    why = f"the champion's mean of {mean} in 6 validation episodes reaches early_stop.mean_return"
    assert why in done.out
    assert f"  validation {mean}" not in done.out, "the run ended with this validation"
    assert f"  validation {number(float(early.validations[2].mean()))}  " in done.out
    said = " ".join(call("info", "early").out.split())
    assert f"{early.num_generations} of 20, stopped early: {why}" in said
    assert f", {mean} in the last of {len(early.validations)}" in said
    assert "stopped early" not in call("run", *EARLY, "-g", 2, "-o", "short").out
    assert [r.digest for r in early.records] == [r.digest for r in whole.records[: early.num_generations]]
    assert len(early.held_out.returns) == 4
    command("run", *EARLY, "-g", 20, *good, "-o", "two", ranks=2).ok()
    assert stored(tmp_path, "two").records[-1].digest == early.records[-1].digest
    call("evaluate", "early/seed-3.h5", "--episodes", 9).ok()
    again = call("run", *EARLY, "-g", 20, *good, "-o", "early", "--resume")
    why = f"already complete: it stopped early, after {early.num_generations} of 20 generations"
    assert why in again.out
    assert len(stored(tmp_path, "early").held_out.returns) == 9
    call("verify", "early/seed-3.h5", "--full").ok()
    call("run", *EARLY, "-g", 6, "--set", "early_stop.mean_return=501.0", "-o", "early", "--resume").ok()
    assert [r.digest for r in stored(tmp_path, "early").records] == [r.digest for r in whole.records]


def test_a_run_stops_once_it_has_taken_its_steps(call, command, tmp_path):
    budget = (*EARLY, "--set", "early_stop.steps=3000", "-o", "out")
    call("run", *budget, "-g", 2).ok()
    between = stored(tmp_path, "out").num_generations
    done = command("run", *budget, "-g", 50, "--resume", ranks=2).ok()
    steps = [record.steps for record in stored(tmp_path, "out").records]
    assert between == 2 < len(steps) < 50
    assert sum(steps) >= 3000 > sum(steps[:-1])
    assert f"stopped early, after {len(steps)} of 50 generations and {sum(steps):,} steps: early_stop.steps" in done.out


def test_validation_plays_validation_episodes_of_the_generation():
    asked = []

    class FakeCoordinator:
        def evaluate(self, spec, batch, meanwhile=None):
            asked.append((spec, batch.purpose, batch.keys.tolist(), batch.rows.tolist(), batch.episodes.tolist()))
            found = PopulationResults(1, 2, 0)
            found.add(results(genomes=[0, 0], episodes=[1, 0], returns=[3.0, 1.0], lengths=[1, 1], traced=[0]))
            return found

    experiment = prepare(Config(evaluation_max_episode_steps=70))
    genome = Genomes(np.zeros((1, 4), np.float32), np.ones((1, 4), np.bool_))
    returns = validation_returns(experiment, FakeCoordinator(), (genome, None), 1, 3, 2)
    assert returns.tolist() == [1.0, 3.0]
    assert asked == [(experiment.in_evaluation().rollout_spec, Purpose.VALIDATION, [[3, 0]], [0, 0], [0, 1])]
    assert "max_episode_steps = 70" in asked[0][0].experiment


FEW = {"generations": 7, "population": 2, "episodes": 1, "held_out_episodes": 0, "compute": {"check": False}}


@pytest.mark.parametrize(("returns", "validated"), [([1.0, 3.0], [3]), ([1.0, 2.9], [3, 6]), ([3.0, np.nan], [3, 6])])
def test_a_validation_every_few_generations_may_end_a_run(tmp_path, monkeypatch, returns, validated):
    """It ends no run if an episode failed: the return of this episode is NaN."""
    monkeypatch.setattr("evolve.training.loop.validation_returns", lambda *_: np.array(returns))
    stop = {"mean_return": 2.0, "episodes": 2, "every": 3}
    evolve.train(env="toys:Values-v0", early_stop=stop, **FEW, output=tmp_path)
    run = store.read(store.one_run_file(tmp_path))
    assert list(run.validations) == validated
    assert run.num_generations == (3 if validated == [3] else 7)


def test_a_run_without_a_mean_return_has_no_validations(tmp_path):
    evolve.train(env="toys:Values-v0", early_stop={"every": 1}, **FEW, output=tmp_path)
    assert not store.read(store.one_run_file(tmp_path)).validations


def new_file(path, experiment, seed=1):
    return store.create(path, store.Header(experiment.config.to_toml(), {}, seed, experiment.config.env.id))


SLOW = EnvOptions(id="toys:Slow-v0", kwargs={"seconds": 0.001})


def test_time_is_counted_for_the_run_that_it_was_spent_on(tmp_path):
    """A coordinator may serve several runs: the held-out episodes of one are not the work of the next."""
    made = prepare(Config(population=2, episodes=1, generations=1, held_out_episodes=40, env=SLOW))
    coordinator = Coordinator(Transport(), make_rollout)
    for seed in (1, 2):
        with closing(new_file(tmp_path / f"{seed}.h5", made, seed)) as file:
            (record,) = iterate(made, coordinator, file)
            assert file.complete
        assert 0 < record.environment_seconds[0] <= record.busy_seconds[0] <= record.seconds


def test_a_loop_that_is_left_has_all_its_generations_in_the_file(tmp_path):
    made = prepare(Config(population=2, episodes=1, generations=9, env=SLOW))
    path = tmp_path / "run.h5"
    with closing(new_file(path, made)) as file:
        file.flush_cost = 1e6  # seconds: no flush is due for a long time
        generations = iterate(made, Coordinator(Transport(), make_rollout), file)
        digests = [next(generations).digest for _ in range(3)]
        assert store.read(path).num_generations < 3
        generations.close()
    run = store.read(path)
    assert ([record.digest for record in run.records], run.complete) == (digests, False)


def test_a_record_has_every_quantity_that_it_declares(tmp_path):
    """Quantities of episodes get into the file by their names alone."""
    made = prepare(Config(population=3, episodes=2, generations=1, held_out_episodes=0))
    with closing(new_file(tmp_path / "run.h5", made)) as file:
        (record,) = iterate(made, Coordinator(Transport(), make_rollout), file)
    shared = [name for name in EPISODE_QUANTITIES if name in Record.__dataclass_fields__]
    assert {"returns", "lengths", "fingerprints"} <= set(shared)
    for name in shared:
        assert getattr(record, name).shape[:2] == (3, 2)
        assert np.array_equal(getattr(store.read(tmp_path / "run.h5").records[0], name), getattr(record, name))


def test_champions_are_evaluated_in_episodes_with_a_limit_of_their_own(call, command, tmp_path):
    short = (*EXACT, "-g", 3, "--set", "env.max_episode_steps=20")
    long = ("--set", "evaluation_max_episode_steps=300")
    call("run", *short, "-o", "short").ok()
    call("run", *short, *long, "-o", "long").ok()
    command("run", *short, *long, "-o", "two", ranks=2).ok()
    runs = [stored(tmp_path, name) for name in ("short", "long", "two")]
    assert len({run.records[-1].digest for run in runs}) == 1
    returns = runs[1].held_out.returns.tolist()
    assert max(returns) > 20 >= runs[0].held_out.returns.max()
    assert runs[2].held_out.returns.tolist() == returns
    elsewhere = ("short/seed-3.h5", "--episodes", 4, "--set", "env.max_episode_steps=300", "--json")
    assert json.loads(call("evaluate", *elsewhere).out)["returns"] == returns
    assert json.loads(call("evaluate", "long/seed-3.h5", "--episodes", 4, "--json").out)["returns"] == returns
    assert "equal to the log" in call("replay", "long/seed-3.h5", "--held-out", "--episode", 1).out
    call("verify", "long/seed-3.h5").ok()
    call("verify", "short/seed-3.h5", "long/seed-3.h5").ok()
    call("run", *short, *long, "-o", "short", "--resume").ok()
    assert stored(tmp_path, "short").held_out.returns.tolist() == returns
    assert "already complete" in call("run", *short, *long, "-o", "short", "--resume").out


def test_validation_has_the_limit_of_evaluation(call, command, tmp_path):
    short = (*CART, "-g", 4, "--set", "env.max_episode_steps=5", "--set", "evaluation_max_episode_steps=300")
    stop = ("--set", "early_stop={every=2, episodes=3, mean_return=6.0}")  # a pole cannot fall in five steps
    call("run", *short, "-o", "whole").ok()
    whole = stored(tmp_path, "whole").records
    call("run", *short, *stop, "-o", "alone").ok()
    assert [r.digest for r in stored(tmp_path, "alone").records] == [r.digest for r in whole[:2]]
    stop = ("--set", "early_stop={every=2, episodes=3, mean_return=301.0}")
    command("run", *short, *stop, "-o", "on", ranks=2).ok()
    on = stored(tmp_path, "on").records  # after validation, generations have their own limit again
    assert [r.digest for r in on] == [r.digest for r in whole]


def test_validation_episodes_are_neither_selected_on_nor_held_out():
    generations, episodes = (part.ravel() for part in np.mgrid[:5, :9])
    purposes = (Purpose.EPISODE, Purpose.HELD_OUT, Purpose.VALIDATION)
    seeds = [environment_seeds(3, purpose, generations, 0 * episodes, episodes) for purpose in purposes]
    assert len(np.unique(seeds)) == 3 * 45


def test_a_validation_episode_that_fails_is_named_and_can_be_played_alone(call):
    seldom = ("-e", "toys:Faulty-v0", "--set", "env.kwargs.share=0.02", "-p", 2, "-r", 1, "-g", 4, "-d", 2)
    done = call("run", *seldom, "--set", "early_stop={every=1, episodes=200, mean_return=1e6}", "-o", "out")
    assert done.code == 1
    assert "validation episode" in done.err, done.err
    line = next(line for line in done.err.splitlines() if "evolve.replay" in line)
    alone = call("replay", *line.split("evolve.replay ")[1].split())
    assert alone.code == 1
    assert "the motor burnt out" in alone.err
    assert "step 3" in alone.err


def test_validation_returns_are_in_the_file_and_in_the_table(call, tmp_path):
    quick = ("-e", "CartPole-v1", "-p", 4, "-r", 1, "-s", 1, "--set", "env.max_episode_steps=30", "--set",
             "early_stop={mean_return = 31.0, every = 2, episodes = 3}", "--set", "held_out_episodes=2")  # fmt: skip
    call("run", *quick, "-g", 7, "-o", "whole").ok()
    call("run", *quick, "-g", 4, "-o", "parts").ok()
    call("run", *quick, "-g", 7, "-o", "parts", "--resume").ok()
    whole, parts = (evolve.load(tmp_path / name / "seed-1.h5") for name in ("whole", "parts"))
    assert whole.digest == parts.digest
    kept = [store.read(run.path).validations for run in (whole, parts)]
    assert list(kept[0]) == list(kept[1]) == [2, 4, 6]
    assert all(kept[0][number].tolist() == kept[1][number].tolist() for number in kept[0])
    column = whole.table()["validation_mean"]
    assert [not np.isnan(value) for value in column] == [False, True, False, True, False, True, False]
    assert column[3] == pytest.approx(kept[0][4].mean())
    assert whole.table()["validation_std"][3] == pytest.approx(kept[0][4].std(ddof=1))


def test_validations_of_other_episodes_are_forgotten(call, tmp_path):
    settings = "held_out_episodes=0", "early_stop={mean_return=999,every=1,episodes=2}"
    words = ("-e", "CartPole-v1", "--engine", "exact", "-p", 4, "-r", 1, "-d", 2, "-s", 3, "-o", "out")
    words += tuple(word for setting in settings for word in ("--set", setting))
    call("run", *words, "-g", 3).ok()
    call("run", *words, "-g", 5, "--resume", "--set", "evaluation_max_episode_steps=4").ok()
    run = stored(tmp_path, "out")
    assert {generations: returns.tolist() for generations, returns in run.validations.items()} == {3: [4, 4], 4: [4, 4]}
    call("verify", run.path, "--full").ok()


def test_an_evaluation_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(cores.os, "sysconf", lambda name: 1000)  # a page of 1,000 bytes, 1,000 times
    with pytest.raises(InputError, match=r"episodes: expected as many as fit into 0\.0 GB of memory, got 1,000,000"):
        evaluate_champion(None, None, None, 1_000_000)


def test_a_strategy_whose_state_is_a_dictionary_of_arrays_gets_its_own_arrays_alone(tmp_path, monkeypatch):
    kind, seen = STRATEGIES.kind({"name": "hill-climber"}), []
    to_arrays, from_arrays = kind.to_arrays, kind.from_arrays

    def stored(self, state):
        seen.append(to_arrays(self, state))
        return seen[-1]

    def restored(self, arrays):
        seen.append(arrays)
        return from_arrays(self, arrays)

    monkeypatch.setattr(kind, "to_arrays", stored)
    monkeypatch.setattr(kind, "from_arrays", restored)
    small = {"env": {"id": "CartPole-v1", "engine": "exact"}, "population": 4, "episodes": 1, "held_out_episodes": 0}
    for generations in (1, 2):  # the second run is resumed
        evolve.train(small, strategy="hill-climber", normalize_observations=True, generations=generations, resume=True,
                     output=tmp_path)  # fmt: skip
    assert {tuple(sorted(arrays)) for arrays in seen} == {("mask", "weights")}


def test_a_strategy_of_another_package_may_call_its_methods_with_keywords(tmp_path, monkeypatch):
    kind, found = STRATEGIES.kind({"name": "hill-climber"}), []
    tell = kind.tell

    def asks(self, state, *results):
        found.append(self.ask(state=state, generation=0, candidates=np.arange(2)))
        self.to_arrays(state=state)
        return tell(self, state, *results)

    monkeypatch.setattr(kind, "tell", asks)
    env = {"id": "CartPole-v1", "engine": "exact"}
    evolve.train(env=env, strategy="hill-climber", population=4, generations=2, held_out_episodes=0, output=tmp_path)
    assert {len(genomes) for genomes in found} == {2}


def _fail(*_):
    raise RuntimeError("singular")


@pytest.mark.parametrize(
    ("method", "wrong", "fault"),
    [
        ("tell", _fail, r"tell fails \(RuntimeError: singular, line \d+ of test_loop\.py\)"),
        ("ask", _fail, r"ask fails \(RuntimeError: singular, line \d+ of test_loop\.py\)"),
        ("ask", lambda genomes: genomes.take(slice(1)), r"ask fails \(ValueError: weights: expected .*P=\d"),
        ("ask", lambda genomes: Genomes(genomes.weights[:, 1:], genomes.mask[:, 1:]), "ask fails .*W=30"),
        ("ask", lambda genomes: Genomes(genomes.weights * np.nan, genomes.mask), "ask fails .*expected finite weights"),
        ("ask", lambda genomes: None, "ask fails .*got NoneType"),
        ("champion", _fail, r"champion fails \(RuntimeError: singular"),
        ("to_arrays", lambda arrays: arrays | {"x": np.array([object()])}, "to_arrays fails .*got 'x': object"),
        ("to_arrays", lambda arrays: None, "to_arrays fails .*expected a dictionary of arrays, got NoneType"),
    ],
)
@pytest.mark.parametrize("portable", [True, False])
def test_a_strategy_that_fails_later_is_named_and_nothing_is_lost(
    tmp_path, monkeypatch, method, wrong, fault, portable
):
    kind, told = STRATEGIES.kind({"name": "hill-climber"}), []
    tell, original = kind.tell, getattr(kind, method)

    def failing(self, *given):
        result = original(self, *given)
        return wrong(result) if len(told) > 2 else result

    monkeypatch.setattr(kind, "portable", portable)
    monkeypatch.setattr(kind, method, failing)
    inner = kind.tell

    def counted(self, state, genomes, results):
        if results.fitness.min() > 5:  # the results of episodes, and not the made-up ones of the check before the run
            told.append(0)
        return inner(self, state, genomes, results)

    monkeypatch.setattr(kind, "tell", counted)
    run = {
        "env": {"id": "CartPole-v1", "engine": "exact"}, "network": {"name": "mlp", "hidden": [4]}, "population": 4,
        "episodes": 1, "held_out_episodes": 1, "generations": 6, "strategy": "hill-climber", "output": tmp_path,
        "seed": 3,
    }  # fmt: skip
    with pytest.raises(EvolveError, match=rf"strategy\.name: expected a strategy .*got hill-climber, whose {fault}"):
        evolve.train(**run)
    complete = len(store.read(tmp_path / "seed-3.h5").records)
    assert complete >= 2
    monkeypatch.setattr(kind, method, original)
    monkeypatch.setattr(kind, "tell", tell)
    resumed, whole = evolve.train(**run, resume=True), evolve.train(**run | {"output": tmp_path / "whole"})
    assert resumed.digest == whole.digest
