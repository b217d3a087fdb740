"""Evolution against PPO: both are evaluated alike, runs are kept, and a table shows their results."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT

import evolve
from evolve.config import Config, EnvOptions
from evolve.numerics import native

HAS_PPO = all(find_spec(name) for name in ("torch", "stable_baselines3", "sb3_contrib"))


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from ppo_parts import episodes, page

    return episodes, page


def test_ppo_is_evaluated_in_the_held_out_episodes_of_evolve(parts, tmp_path):
    episodes, _ = parts
    env = {"id": "CartPole-v1", "engine": "exact"}
    run = evolve.train(env=env, generations=2, population=8, episodes=1, seed=5, held_out_episodes=6, output=tmp_path)
    seeds = episodes.held_out_seeds(5, 6)
    policies = [run.champion() for _ in seeds]

    def act(observations):
        return np.stack([policy.outputs(row) for policy, row in zip(policies, observations, strict=True)])

    found = episodes.play(run.config.env, seeds, act)
    assert np.array_equal(seeds, run.held_out.seeds)
    assert np.array_equal(found, run.held_out.returns)


def test_episodes_follow_one_another(parts):
    episodes, _ = parts
    options = EnvOptions(id="CartPole-v1", engine="exact", max_episode_steps=12)
    actions = episodes.Actions(choices=2, size=2)
    for by_itself in (False, True):
        playing = episodes.Episodes(options, 3, seed=1, ends_by_itself=by_itself)
        first = playing.reset()
        right = [playing.step(actions.outputs(np.ones(3))) for _ in range(11)]  # falls before the limit
        assert sum(step.ended.sum() for step in right) >= 3
        assert not any(step.cut.any() for step in right)
        ended = next(step for step in right if step.ended.any())
        slot = int(np.flatnonzero(ended.ended)[0])
        assert not np.array_equal(ended.observations[slot], ended.last[slot])
        assert not np.array_equal(ended.observations[slot], first[slot])  # another episode
        playing.reset()
        in_turns = [playing.step(actions.outputs(np.full(3, number % 2))) for number in range(12)]
        assert in_turns[-1].ended.all()
        assert in_turns[-1].cut.all() is np.bool_(not by_itself)


def test_actions_become_outputs(parts):
    episodes, _ = parts
    assert episodes.Actions(None, 2).outputs(np.array([[0.5, -2.0]])).tolist() == [[0.5, -2.0]]
    assert episodes.Actions(3, 3).outputs(np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert episodes.Actions(2, 1).outputs(np.array([0, 1])).tolist() == [[-1], [1]]


def record(seed, means, digest):
    curve = [
        {"steps": 1000 * 10**n, "seconds": 2.0 * 10**n, "cpu_seconds": 3.0, "mean": m} for n, m in enumerate(means)
    ]
    about = {"machine": {"cpu": "one", "cores used": 2, "load": 0.5}, "load after": 1.5, "versions": {"torch": "2"}}
    settings = {"source": "the zoo's", "experiment": f"seeds = [{seed}]"}
    more = {
        "asked": {"steps": None},
        "settings": settings,
        "date": "2026-01-02T03:04:05",
        "digest": digest,
        "seed": seed,
    }
    return {"schema": 1, "curve": curve, "returns": []} | about | more


def test_the_table_counts_the_seeds_that_reached_the_aim(parts):
    _, page = parts
    ours = [record(1, [100, 480, 500], "ab"), record(2, [90, 470, 490], "cd"), record(3, [90, 470, 470], "ef")]
    theirs = [record(1, [20, 30, 40], None)]
    text = page.table({("cartpole", "evolution"): ours, ("cartpole", "ppo"): theirs})
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| cartpole")]
    assert cells[0][2:9] == ["1, 2, 3", "**490** (480 to 495)", "100 k", "3.3 min", "3 s", "475", "2 of 3"]
    assert cells[1][2:] == ["1 (few: a run takes 3 s)", "**40**", "100 k", "3.3 min", "3 s", "475", "0 of 1", "–", "–"]
    assert re.search("cartpole, evolution: seed 1 `ab…`, seed 2 `cd…`, seed 3 `ef…`", text)
    assert re.search(r"2026-01-02, on one, 2 cores.* 0\.5 to 1\.5", text)


def test_the_legend_names_both_methods_wherever_they_are(parts):
    _, page = parts
    runs = [record(1, [100, 480, 500], None)]
    figure = page.draw({("walker", "ppo"): runs, ("cheetah", "evolution"): runs})
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["evolution", "PPO"]


def test_steps_to_the_aim_are_those_of_the_median_seed(parts):
    _, page = parts
    runs = [[480, 0, 0], [0, 480, 0], [0, 0, 480], [0, 0, 0], [0, 0, 0]]
    *_, reached, steps, seconds = page.row("cartpole", "ppo", [record(n, means, None) for n, means in enumerate(runs)])
    assert (reached, steps, seconds) == ("3 of 5", "100 k", "3.3 min")
    assert page.row("cartpole", "ppo", [record(1, [480], None), record(2, [0], None)])[-3:] == ["1 of 2", "–", "–"]


def test_records_are_kept_beside_those_of_earlier_runs(parts, monkeypatch, tmp_path):
    _, page = parts
    kept, text, figure = tmp_path / "kept", tmp_path / "page.md", tmp_path / "ppo.svg"
    text.write_text("Before.\n\n<!-- ppo -->\nold\n<!-- end of ppo -->\n\nAfter.\n")
    for name, value in {"RESULTS": kept, "PAGE": text, "FIGURE": figure}.items():
        monkeypatch.setattr(page, name, value)
    for folder, method, digest in (("yesterday", "evolution", "ab"), ("today", "ppo", None)):
        place = tmp_path / folder / "cartpole" / f"{method}-seed-1.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(record(1, [100, 480, 500], digest)))
        page.publish(tmp_path / folder)
    assert sorted(path.name for path in kept.rglob("*.json")) == ["evolution-seed-1.json", "ppo-seed-1.json"]
    lines = text.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("Before.", "After.")
    assert [line.split(" | ")[1] for line in lines if line.startswith("| cartpole")] == ["evolution", "PPO"]
    assert "old" not in lines
    drawn = figure.read_text()
    assert ">environment steps<" in drawn  # texts, not outlines
    assert "mathdefault" not in drawn
    before = text.read_text()
    page.publish(kept)  # nothing new
    assert text.read_text() == before
    other = record(2, [100, 480, 500], "cd")
    other["asked"]["steps"] = 2000
    place.write_text(json.dumps(record(1, [100], None)))
    (tmp_path / "today" / "cartpole" / "evolution-seed-2.json").write_text(json.dumps(other))
    with pytest.raises(SystemExit, match="cartpole, evolution: seeds 1 and 2 "):
        page.publish(tmp_path / "today")
    assert not (kept / "cartpole" / "evolution-seed-2.json").exists()
    with pytest.raises(SystemExit, match="nowhere: "):
        page.publish(tmp_path / "nowhere")


def test_the_page_has_the_settings_of_all_tasks(parts):
    from ppo_parts import tasks

    text = (ROOT / "docs" / "comparison.md").read_text()
    for name, task in tasks.TASKS.items():
        experiment = task.experiment.relative_to(ROOT)
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` | `{experiment}` |")]
        assert [cell.strip() for cell in line.split("|")][4:6] == [f"{task.ppo.steps:,}", f"{task.aim:,g}"]


@pytest.mark.parametrize(("most", "expected"), [(None, [10, 60, 100]), (80, [10, 60, 80]), (900, [10, 60, 100])])
def test_an_evolution_ends_where_its_experiment_does(parts, monkeypatch, tmp_path, most, expected):
    from ppo_parts import evolution, tasks

    asked = []
    config = Config(early_stop={"steps": 100})

    def evolve_until(_task, _seed, _folder, _cores, steps, _episodes):
        asked.append(steps)
        held_out = SimpleNamespace(mean=1.0, returns=[1.0])
        experiment = SimpleNamespace(in_evaluation=lambda: SimpleNamespace(config=config))
        table = {"steps": [steps], "seconds": [1.0]}
        return SimpleNamespace(table=lambda: table, held_out=held_out, config=config, experiment=experiment, digest="")

    monkeypatch.setattr(evolution, "configuration", lambda _: config)
    monkeypatch.setattr(evolution, "evolve_until", evolve_until)
    outcome = evolution.evolve_task(tasks.TASKS["cheetah"], 1, tmp_path, 1, [10, 60, 300, 900], most, 4)
    assert asked == [point.steps for point in outcome.curve] == expected
    assert f"steps = {expected[-1]}" in outcome.settings["experiment"]


def test_an_interrupted_evolution_keeps_its_processor_time(parts, tmp_path, monkeypatch):
    from ppo_parts import evolution, tasks

    config = Config(early_stop={"steps": 100})
    held_out = SimpleNamespace(mean=1.0, returns=[1.0])
    experiment = SimpleNamespace(in_evaluation=lambda: SimpleNamespace(config=config))
    table = {"steps": [100], "seconds": [1.0]}
    run = SimpleNamespace(table=lambda: table, held_out=held_out, config=config, experiment=experiment, digest="")
    spent, outcomes = iter(range(0, 100, 5)), iter([KeyboardInterrupt, run])

    def evolve_until(*_):
        outcome = next(outcomes)
        if outcome is run:
            return run
        (tmp_path / "seed-1.h5").touch()
        raise outcome

    monkeypatch.setattr(evolution, "configuration", lambda _: config)
    monkeypatch.setattr(evolution, "evolve_until", evolve_until)
    monkeypatch.setattr(
        evolution.resource, "getrusage", lambda _: SimpleNamespace(ru_utime=float(next(spent)), ru_stime=0.0)
    )
    arguments = tasks.TASKS["cheetah"], 1, tmp_path, 1, [], None, 4
    with pytest.raises(KeyboardInterrupt):
        evolution.evolve_task(*arguments)
    (point,) = evolution.evolve_task(*arguments).curve
    assert point.cpu_seconds == 10.0


@pytest.mark.usefixtures("warm_ranks")
def test_a_record_does_not_tell_after_which_point_an_evolution_came_to_its_end(parts, tmp_path):
    from ppo_parts import evolution, tasks

    # The slots are given, because a trial of the environment's speed would choose them anew for each run.
    settings = "generations = 3\npopulation = 4\nepisodes = 1\nenv.id = 'CartPole-v1'\ncompute.slots = 8\n"
    (tmp_path / "short.toml").write_text(settings)
    task = replace(tasks.TASKS["cartpole"], experiment=tmp_path / "short.toml")
    made = [evolution.evolve_task(task, 1, tmp_path / str(n), 1, [n, 10**6], None, 2) for n in (10, 30)]
    assert made[0].settings == made[1].settings
    assert made[0].digest == made[1].digest
    assert "steps" not in made[0].settings["experiment"].partition("[early_stop]")[2].partition("[")[0]


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_a_finished_run_is_not_run_again(bench, tmp_path):
    words = ("--tasks", "cues", "--seeds", 1, "--steps", 150_000, "--episodes", 4, "--cores", 1, "-o", tmp_path)
    code, out, err = bench("ppo", *words, "--methods", "evolution")
    assert code == 0, out + err
    path = tmp_path / "cues" / "evolution-seed-1.json"
    kept = json.loads(path.read_text())
    steps = [point["steps"] for point in kept["curve"]]
    assert steps == [98_304, 196_608]  # whole generations; smaller numbers of steps are in the first
    assert (len(kept["returns"]), len(kept["digest"])) == (4, 64)
    assert kept["curve"][-1]["mean"] == pytest.approx(np.mean(kept["returns"]))
    code, out, err = bench("ppo", *words, "--methods", "evolution")
    assert (code, out) == (0, f"{path} is there already\n"), err
    path.unlink()  # as if it had been interrupted before it was written
    code, out, err = bench("ppo", *words, "--methods", "evolution")
    assert code == 0, out + err
    again = json.loads(path.read_text())
    assert [point["steps"] for point in again["curve"]] == steps
    assert again["digest"] == kept["digest"]
    path.unlink()
    path.with_name("seed-1.curve").unlink()
    code, _, err = bench("ppo", *words, "--methods", "evolution")
    assert code == 1
    assert "seed-1.curve" in err
    path.write_text(json.dumps(kept))
    code, _, err = bench("ppo", *words, "--methods", "evolution", "--episodes", 5)
    assert code == 1
    assert "'episodes': 4" in err
    code, out, err = bench("ppo", "--show", "-o", tmp_path)
    assert code == 0, out + err
    assert any(line.startswith("| cues | evolution | 1 (few: ") for line in out.splitlines()), out
    assert (tmp_path / "ppo.png").stat().st_size > 10_000


def test_without_its_libraries_the_cure_is_said(bench, absent, tmp_path):
    absent("stable_baselines3")
    code, out, err = bench("ppo", "--tasks", "cartpole", "-o", tmp_path)
    assert (code, out) == (1, "")
    for word in ("stable-baselines3", "benchmarks/requirements-ppo.txt", "--methods evolution"):
        assert word in err
    assert not any(tmp_path.iterdir())
    code, _, err = bench("ppo", "--show", "-o", tmp_path)
    assert code == 1
    assert err.startswith(f"{tmp_path}: ")


def test_tqc_takes_hours_and_learns_only_on_request(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import ppo

    asked = []
    monkeypatch.setattr(ppo, "check_libraries", lambda: None)
    monkeypatch.setattr(ppo, "run_all", lambda options: asked.append(options.methods))
    ppo.main(["--tasks", "walker"])
    ppo.main(["--tasks", "walker", "--methods", "tqc"])
    assert asked == [["evolution", "ppo"], ["tqc"]]


@pytest.mark.skipif(not HAS_PPO, reason="no Stable-Baselines3")
@pytest.mark.parametrize(
    ("task", "method", "envs", "settings"),
    [
        ("cartpole", "ppo", 2, {"n_steps": 32, "batch_size": 64, "n_epochs": 1}),
        ("cues", "ppo", 2, {"n_steps": 32, "batch_size": 64, "n_epochs": 1}),
        ("walker", "tqc", 1, {"learning_starts": 64, "batch_size": 8, "gradient_steps": 1}),
    ],
)
def test_gradients_learn_in_the_engine(task, method, envs, settings, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from ppo_parts import evolution, learner, tasks

    known = tasks.TASKS[task]
    asked = getattr(known, method)
    small = replace(known, **{method: replace(asked, envs=envs, settings=asked.settings | settings)})
    found = learner.learn(small, method, evolution.configuration(small), 1, 1, [64], 128, 3)
    assert [point.steps for point in found.curve] == [64, 128]
    assert len(found.returns) == 3
    assert found.digest is None
