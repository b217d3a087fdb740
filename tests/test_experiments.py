"""The tables of docs/results.md: one command writes them from run files, and only from complete runs."""

import importlib
import importlib.util
import json
import os
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, make_runs
from tampering import edit_config

import evolve
from evolve import store
from evolve.cli.run import load
from evolve.config import Config, differences
from evolve.errors import InputError
from evolve.strategies import STRATEGIES
from evolve.training import load_config, prepare, validate_new_run

sys.path.insert(0, str(ROOT / "benchmarks"))

import study
from resumable import Clock, Job, run_all

SMALL = """# Does {name} hold its pole?
seeds = [1, 2]
generations = 3
population = 6
episodes = 2
held_out_episodes = 4
{more}
[env]
id = "CartPole-v1"
engine = "exact"
max_episode_steps = 60
[network]
hidden = [2]
"""
SWEEP = SMALL.replace(
    "[network]\nhidden = [2]", "[sweep]\nstrategy = [{{name = 'ga'}}, {{name = 'prune', survivors = 2}}]"
)


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", ROOT / "experiments" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Experiments and their runs: complete runs, a shorter run, and a run with other settings."""
    place = tmp_path_factory.mktemp("experiments")
    (place / "one.toml").write_text(SMALL.format(name="one", more=""))
    (place / "two.toml").write_text(SMALL.format(name="two", more="[early_stop]\nsteps = 100\n"))
    (place / "three.toml").write_text(SMALL.format(name="three", more="connection_cost = 1.0"))
    (place / "many.toml").write_text(SWEEP.format(name="many", more=""))
    for name in ("one", "two", "many"):
        make_runs(place, f"{name}.toml", "-o", f"runs/{name}")
    for other in ("-g2", "-p7"):
        make_runs(place, "one.toml", other, "-s1", "-o", f"runs/one{other}")
    shutil.copy(place / "one.toml", place / "runs" / "seed-1.h5")  # no run file
    return place


def known(results, place, *names):
    """Return the results of experiments, read from their run files."""
    runs = results.find(place / "runs")
    configs = {name: load([str(place / f"{name}.toml")])[0][0] for name in names}
    return {name: list(map(results.result_of, results.of(config, runs))) for name, config in configs.items()}


def test_results_of_seeds_are_kept_until_the_settings_change(results, place, tmp_path):
    runs = results.of(load([str(place / "one.toml")])[0][0], results.find(place / "runs"))
    experiment, file = tmp_path / "one.toml", tmp_path / "results.json"
    experiment.write_text(SMALL.format(name="one", more=""))
    one, other = map(results.result_of, runs)
    assert results.update(experiment, runs[1:], file) == [other]
    assert results.update(experiment, runs[:1], file) == [one, other]
    experiment.write_text(SMALL.format(name="another", more="").replace("[1, 2]", "[1, 2, 3]"))
    assert results.update(experiment, [], file) == [one, other]
    text = file.read_text()
    assert text.count("\n      {") == 2
    experiment.write_text(SMALL.format(name="one", more="connection_cost = 1.0"))
    assert results.update(experiment, [], file) == []
    assert json.loads(file.read_text()) == {}


def test_a_full_disk_leaves_the_results_of_seeds(results, place, tmp_path, monkeypatch):
    runs = results.of(load([str(place / "one.toml")])[0][0], results.find(place / "runs"))
    file = tmp_path / "results.json"
    kept = results.update(place / "one.toml", runs, file)

    def full_disk(_descriptor):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(InputError, match="no space"):
            results.update(place / "one.toml", runs, file)
    assert results.update(place / "one.toml", [], file) == kept


def test_results_are_those_of_whole_runs(results, place, capfd):
    found = known(results, place, "one", "two", "three")
    assert "seed-1.h5" in capfd.readouterr().err
    table = results.results([place / f"{name}.toml" for name in ("one", "two", "three")], found)
    assert "three.toml: no whole run" in capfd.readouterr().err
    head, _, one, two = table.splitlines()
    assert head.split(" | ")[2:6] == ["held-out mean", "worst", "aim reached", "connections"]
    ours = [store.read(place / "runs" / "one" / f"seed-{seed}.h5") for seed in (1, 2)]
    means = [run.held_out.returns.mean() for run in ours]
    assert f"| **{means[0]:.1f}**, **{means[1]:.1f}** | {min(means):.1f} | 2 seeds |" in one
    left = [np.count_nonzero(run.held_out.mask) for run in ours]
    assert f"{left[0]}, {left[1]} of {ours[0].held_out.mask.size}" in one
    assert "Does two hold its pole?" in two
    assert [seed.digest for seed in found["one"]] == [run.records[-1].digest.decode() for run in ours]


def test_runs_with_settings_of_another_version_are_named_and_left_out(results, place, tmp_path, capfd):
    for name in ("seed-1.h5", "seed-2.h5"):
        shutil.copy(place / "runs" / "one" / name, tmp_path)
    edit_config(tmp_path / "seed-1.h5", "population = 6", 'population = "six"')
    assert [run.header.seed for run, _ in results.find(tmp_path)] == [2]
    assert "seed-1.h5: expected settings that version" in capfd.readouterr().err


def test_an_aim_is_counted_over_all_seeds(results, place, monkeypatch):
    found = known(results, place, "one")
    best, worst = max(seed.mean for seed in found["one"]), min(seed.mean for seed in found["one"])
    for aim, count in ((results.Aim(worst), 2), (results.Aim(best + 1), 0), (results.Aim(worst, connections=0), 0)):
        monkeypatch.setattr(results, "AIMS", {"one": aim})
        assert f"| {count} of 2: {aim} |" in results.results([place / "one.toml"], found)


def test_many_seeds_are_shown_by_their_quartiles(results):
    assert results.each([5, 1, 3, 2, 4], "{:.0f}".format) == "3 (2 to 4)"
    assert results.each([7, 7, 7, 7, 7], "{:.0f}".format) == "7"


def test_a_sweep_has_a_table_of_means_over_seeds_for_each_network(results, place):
    runs = results.find(place / "runs")
    table = results.swept(place / "many.toml", runs).splitlines()
    assert table[1] == f"**{prepare(load([str(place / 'many.toml')])[0][0]).config.network.name}**"
    assert table[3] == "| strategy | CartPole-v1 |"
    means = [store.read(place / "runs/many/strategy=ga" / f"seed-{s}.h5").held_out.returns.mean() for s in (1, 2)]
    assert table[5].endswith(f"| ga | {np.mean(means):.0f} ({min(means):.0f} to {max(means):.0f}) |")
    assert "| prune |" in table[6]
    assert results.swept(place / "many.toml", [run for run in runs if run[0].path.parent.name != "strategy=ga"]) == ""
    assert results.swept(place / "many.toml", [run for run in runs if run[0].header.seed == 1]) == ""
    known = [{"name": "ga", "parents": 2}, {"name": "ga", "parents": 3, "survivors": 1}, {"name": "umda", "parents": 9}]
    assert results.describe(known[0], known) == "ga (parents 2)"
    assert results.describe(known[1], known) == "ga (parents 3)"
    assert results.describe(known[2], known) == "umda"


def test_strategies_are_compared_with_random_search_seed_by_seed(results, place, tmp_path):
    found = {"random": [3.0, 500.0], "ga": [2.0, 500.0], "umda": [12.0, 499.5]}
    path = tmp_path / "defaults.toml"
    path.write_text(
        SMALL.format(name="all", more="") + f"[sweep]\nstrategy.name = {list(found)}\nenv.id = ['CartPole-v1']"
    )

    def of(config, _):
        return [(config.strategy.name, seed) for seed in (0, 1)][: len(found[config.strategy.name])]

    def result_of(run):
        name, seed = run
        return results.SeedResult(seed, found[name][seed], 1, 1, 3, 1, 1.0, "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "of", of)
        patch.setattr(results, "result_of", result_of)
        rows = results.against_random(path, []).splitlines()[2:]
        assert rows == [
            "| `random` | **251.5** (3.000 to 500.0) |",
            "| `ga` | **251.0** (2.000 to 500.0); 1 of 2 |",
            "| `umda` | **255.8** (12.0 to 499.5); 1 of 2 |",
        ]
        found["ga"].pop()
        assert results.against_random(path, []) == ""  # a run is missing


def test_every_strategy_is_compared_by_its_defaults():
    configs = load([str(ROOT / "experiments" / "defaults.toml")])[0]
    others = {"map-elites", "nsga2"}  # the best champion is not their only aim
    missing = set(STRATEGIES) - others - {config.strategy.name for config in configs}
    assert not missing, "add these strategies to experiments/defaults.toml, or to `others` in this test"
    assert all(config.strategy == STRATEGIES.parse({"name": config.strategy.name}) for config in configs)


def test_experiments_are_compared_with_the_first(results, place):
    table = results.compared([place / "one.toml", place / "two.toml"], results.find(place / "runs")).splitlines()
    assert table[2].count("| 1.00 |") == 1
    assert float(table[3].split(" | ")[3]) < 1
    for missing in (["three", "one"], ["one", "three"]):
        assert results.compared([place / f"{name}.toml" for name in missing], results.find(place / "runs")) == ""
    first_seeds = [run for run in results.find(place / "runs") if run[0].header.seed == 1]
    assert results.compared([place / "one.toml", place / "two.toml"], first_seeds) == ""


def test_tables_take_their_place(results, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "PAGE", tmp_path / "README.md")
    text = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n"
    results.PAGE.write_text(text)
    for _ in range(2):
        results.write("x", r"new \1")
        assert results.PAGE.read_text() == text.replace("old", r"new \1")
    results.write("x", results.swept(ROOT / "experiments" / "pruning.toml", []))  # no run, so the table stays
    assert results.PAGE.read_text() == text.replace("old", r"new \1")


def test_an_experiment_without_runs_keeps_its_rows(results, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "PAGE", tmp_path / "page.md")
    rows = ["| `a`: first? | 1 |", "| `ab`: second? | 2 |", "| `c`: third? | 3 |"]
    page = "x\n<!-- t -->\n{}\n<!-- end of t -->\n| `c`: elsewhere | 9 |\n"
    results.PAGE.write_text(page.format("\n".join(["| e | n |", "| --- | --- |", *rows])))
    results.write("t", "| e | m |\n| --- | --- |\n| `ab`: second? | 5 |", ["c", "a", "ab", "d"])
    expected = ["| e | m |", "| --- | --- |", rows[2], rows[0], "| `ab`: second? | 5 |"]
    assert results.PAGE.read_text() == page.format("\n".join(expected))
    digests = "| e |\n| --- |\n| a | 1 |\n| a | 2 |"
    assert results.merged(digests, ["a", "ab"], "| a | 0 |\n| ab | 7 |").splitlines()[2:] == [
        "| a | 1 |", "| a | 2 |", "| ab | 7 |"
    ]  # fmt: skip


def test_champions_are_evaluated_elsewhere(results, place):
    """A command of its own evaluates them, and what it refuses is said."""
    with pytest.raises(SystemExit, match="leg_2"):
        results.elsewhere(place / "runs" / "one" / "seed-1.h5", "leg_2=0.75")


def test_every_table_of_the_page_has_its_place(results):
    page = results.PAGE.read_text()
    for section in ("results", "strategies", "pruning", "racing", "robustness"):
        assert page.count(f"<!-- {section} -->") == page.count(f"<!-- end of {section} -->") == 1


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_every_experiment_can_begin(path):
    for config in load([str(path)])[0]:
        if config.env.engine == "envpool":
            pytest.importorskip("envpool", exc_type=ImportError)  # the system may lack libEGL
        # A run on a GPU needs one; its other settings do not.
        validate_new_run(prepare(config.model_copy(update={"compute": Config().compute})))


def test_the_experiments_that_are_compared_differ_in_nothing_else():
    full, raced = (
        prepare(load([str(ROOT / "experiments" / f"walker-{name}.toml")])[0][0]).config for name in ("all", "racing")
    )
    assert {key for key, _, _ in differences(full, raced)} == {"racing.rounds", "racing.keep"}
    assert raced.early_stop.steps == 0.6 * full.early_stop.steps
    assert load_config(full.to_toml()) == full


def test_the_study_runs_the_missing_runs_and_estimates_their_time(place, tmp_path):
    jobs = [job for name in ("one", "many") for job in study.jobs_of(name, place)]
    assert [(job.directory, job.seed) for job in jobs] == [
        *(("one", seed) for seed in (1, 2)),
        *((f"many/strategy={name}", seed) for name in ("ga", "prune-2") for seed in (1, 2)),
    ]
    shutil.copytree(place / "runs" / "one", tmp_path / "one")
    clock = Clock(tmp_path, jobs)
    assert clock.left() == clock.left("many") == jobs[2:]
    clock.try_kinds()
    assert 0 < clock.seconds(jobs[2:3]) < clock.seconds()
    said = []
    assert [run.complete for _, run in run_all(jobs, tmp_path, said.append)] == [True] * 6
    assert re.search(r"\b0 left, 0 s$", said[-1])
    assert study.jobs_of("two", place)[0].generations(50.0) == 2


def test_the_study_has_the_experiments_for_cores_unless_some_are_named(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(study, "describe", lambda names, _: asked.append(names))
    for words in ([], ["cues", "lander"]):
        monkeypatch.setattr(sys, "argv", ["study.py", *words, "--dry-run"])
        study.main()
    assert asked == [study.FOR_CORES, ["cues", "lander"]]
    monkeypatch.setattr(sys, "argv", ["study.py", "cues", "landr", "--dry-run"])
    with pytest.raises(SystemExit):
        study.main()
    assert re.search(r"expected experiments .*, got landr$", capsys.readouterr().err, re.M)


@pytest.mark.parametrize(
    "words",
    [
        ["walker-sparse", "walker-farther"],  # the first is needed first
        ["walker-farther", "walker-sparse", "-o", "elsewhere"],
        ["walker-farther", "walker-sparser"],
    ],
)
def test_the_study_refuses_experiments_whose_first_runs_are_missing(monkeypatch, tmp_path, capsys, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "run_all", lambda *_: pytest.fail("the study has begun"))
    monkeypatch.setattr(sys, "argv", ["study.py", *words])
    with pytest.raises(SystemExit):
        study.main()
    name = "walker-sparse" if "walker-sparser" in words else "walker-farther"
    assert f"begins with runs in runs/study/{name}: expected them there, or {name} before" in capsys.readouterr().err
    (tmp_path / "runs" / "study" / name).mkdir(parents=True)
    assert study.missing_start(words[:2], tmp_path) == ""


def test_the_time_of_a_run_that_begins_with_a_missing_run_is_estimated(place, tmp_path):
    (settings,) = (job.settings for job in study.jobs_of("one", place) if job.seed == 1)
    clock = Clock(tmp_path, [Job(settings | {"start_from": {"file": str(tmp_path / "missing")}}, 1, "later")])
    clock.try_kinds()
    assert clock.seconds() > 0


def test_a_seed_goes_through_the_stages_of_pruning(results, tmp_path, monkeypatch):
    import sparse  # beside results.py, which puts its folder on the path

    monkeypatch.setattr(sparse, "STAGES", ("dense", "few", "fewer"))
    monkeypatch.setattr(sparse, "WHILE_PRUNING", (1,))
    settings = {
        "env": {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 30},
        "network": {"name": "mlp", "hidden": [3]},
        "generations": 3,
        "population": 6,
        "episodes": 1,
        "held_out_episodes": 4,
    }
    pruning = {"name": "openai-es", "pruning": 0.5, "pruning_generations": 2, "pruning_by": "flow"}
    for seed in (2, 10):
        evolve.train(settings, strategy="openai-es", seed=seed, output=tmp_path / "dense")
    start = {"file": str(tmp_path / "dense"), "generation": 2}
    evolve.train(settings, strategy=pruning, start_from=start, seed=2, output=tmp_path / "few")
    whole, alone = found = sparse.chains(tmp_path, sparse.STAGES)
    assert [[run.seed for run in chain] for chain in found] == [[2, 2], [10]]
    dense, few = whole
    taken = [[generation.record.steps for generation in run.generations] for run in whole]
    assert sparse.steps(whole) == sum(taken[0][:2]) + sum(taken[1])
    assert sparse.steps(alone) == sum(generation.record.steps for generation in alone[0].generations)
    assert sparse.acting(dense) == 23
    assert sparse.acting(few) <= 12 < sparse.acting(few, 0)
    assert sparse.walkers(alone) == []
    begun, pruned = made = sparse.walkers(whole)
    assert (begun.connections, begun.steps, len(begun.returns)) == (23, sum(taken[0][:2]), 4)
    assert (pruned.connections, pruned.steps) == (sparse.acting(few), sparse.steps(whole))
    assert [count for count, _ in pruned.on_the_way] == [sparse.acting(few, 1)]
    rows = sparse.table([made]).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| `dense`, generation 2", "| `few`"]
    assert "| 4 of 4 |" in rows[1]  # no episode is that long
    panel = sparse.draw([made]).axes[0]
    assert [text.get_text() for text in panel.texts][-1] == f"median {few.held_out.mean:.0f}"


def test_a_rank_that_never_learns_is_not_the_fastest(results):
    import low_rank  # beside pages.py, whose folder `results` puts on the path

    def run(means):
        held_out = SimpleNamespace(returns=np.array(means[-1:]))
        return SimpleNamespace(table=lambda: {"mean_fitness": means}, held_out=held_out, digest="0" * 64)

    found = {"full rank": [run([-300.0, -90.0, -80.0])], "rank 1": [run([-300.0, -200.0, -150.0])]}
    *_, full, one = low_rank.table(found).splitlines()
    assert full.startswith("| full rank | **2** (2 to 2) |")
    assert one.startswith("| rank 1 | **inf** (inf to inf) |")


@pytest.mark.parametrize(("name", "option"), [("sparse", ()), ("hardcore", ()), ("low_rank", ("--runs",))])
def test_without_runs_the_table_and_the_figure_stay(results, tmp_path, monkeypatch, name, option):
    script = importlib.import_module(name)  # `results` puts experiments/ and benchmarks/ on the path
    for function in ("fill", "save"):
        monkeypatch.setattr(script, function, lambda *_: pytest.fail("a page or a figure is written"))
    for folder in (tmp_path, tmp_path / "missing"):
        monkeypatch.setattr(sys, "argv", [name, *option, str(folder)])
        with pytest.raises(SystemExit, match=rf"^{re.escape(str(folder))}: expected .*, got none\."):
            script.main()


def test_a_hardcore_walker_is_shown_with_the_steps_of_its_stages(results, tmp_path, monkeypatch):
    import hardcore  # beside results.py, which puts its folder on the path
    import sparse

    settings = {
        "env": {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 30},
        "network": {"name": "mlp", "hidden": [3]},
        "strategy": "openai-es",
        "early_max_episode_steps": 20,
        "early_generations": 6,
        "generations": 8,
        "population": 6,
        "held_out_episodes": 4,
    }
    before = {}
    for stage in hardcore.STAGES:
        run = evolve.train(settings | before, seed=3, output=tmp_path / stage)
        before = {"start_from": {"file": str(run.path.parent)}}
    runs = [evolve.load(tmp_path / stage / "seed-3.h5") for stage in hardcore.STAGES]
    assert sparse.steps(runs) == sum(sum(each.table()["steps"]) for each in runs)
    found = hardcore.read(tmp_path)
    (stages,) = found.values()
    assert [stage.digest for stage in stages] == [each.digest for each in runs[1:]]
    _, _, row, medians = hardcore.table(found).splitlines()
    *earlier, last = (f"{each.held_out.mean:.0f}" for each in runs[1:])
    assert row.startswith(f"| 3 | {', '.join(earlier)} | {last} | ")
    assert row.endswith(f"`{run.digest[:8]}` |")
    assert medians.startswith("| all | ")
    taken, smoothed = hardcore.curve(stages[-1])
    assert len(taken) == len(smoothed) == 8 - hardcore.SMOOTH + 1
    first = [np.mean(generation.record.fitness) for generation in run.generations]
    assert smoothed[0] == pytest.approx(np.mean(first[: hardcore.SMOOTH]), abs=0.01)
    assert hardcore.draw(found).axes[0].get_ylim() == (-60, 300)
    monkeypatch.setattr(hardcore, "fill", lambda *_: None)
    monkeypatch.setattr(hardcore, "FIGURE", tmp_path / "figure.svg")
    monkeypatch.setattr(sys, "argv", ["hardcore.py", str(tmp_path), "--save", str(tmp_path / "saved.json")])
    hardcore.main()
    assert hardcore.read(tmp_path / "saved.json") == found
