"""Sweeps and comparisons of the Python interface."""

import shutil
import sys
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from conftest import finished, launcher

import evolve
from evolve import environments, store
from evolve.errors import InputError

SMALL = {"generations": 2, "population": 6, "episodes": 1, "held_out_episodes": 2}
ENV = {"id": "CartPole-v1", "max_episode_steps": 12}
GRID = {"network": ["mlp", "elman"], "strategy.sigma": [0.1, 0.3]}


def swept(output, grid=GRID, **more):
    arguments = {"seeds": range(2), "env": ENV, "strategy": "openai-es"} | SMALL | more
    return evolve.sweep(grid, output=output, **arguments)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return swept(tmp_path_factory.mktemp("sweep"))


def test_a_sweep_has_a_run_for_each_combination_and_seed(sweep):
    assert [(p["network.name"], p["strategy.sigma"]) for p in sweep.points[::2]] == [
        ("mlp", 0.1), ("mlp", 0.3), ("elman", 0.1), ("elman", 0.3),
    ]  # fmt: skip
    assert [run.seed for run in sweep] == [0, 1] * 4
    for point, run in zip(sweep.points, sweep, strict=True):
        assert run.config.network.name == point["network.name"]
        assert run.config.strategy.table()["sigma"] == point["strategy.sigma"]
    assert sweep[0].path.parent.name == "name=mlp,sigma=0.1"
    assert len({run.digest for run in sweep}) == 8
    alone = evolve.train(sweep[3].config, seed=1, output=sweep[0].path.parent / "alone")
    assert alone.digest == sweep[3].digest


def test_the_table_of_a_sweep_has_a_row_for_each_run(sweep):
    table = sweep.table()
    assert {len(column) for column in table.values()} == {8}
    assert list(table)[:3] == ["network.name", "strategy.sigma", "seed"]
    assert table["held_out_mean"] == [run.held_out.mean for run in sweep]
    assert table["best_fitness"] == [run.generations[-1].best for run in sweep]
    shown = ElementTree.fromstring(sweep._repr_html_())
    rows = ["|".join(row.itertext()) for row in shown]
    assert rows[:2] == ["8 runs, 2 seeds", "network.name|strategy.sigma|held-out mean|range of seeds"]
    means = [float(row.split("|")[2]) for row in rows[2:]]
    assert len(means) == 4
    assert means == sorted(means, reverse=True)


def test_a_seed_whose_held_out_episodes_failed_does_not_hide_the_others(sweep, tmp_path):
    for run in sweep[:2]:
        shutil.copy(run.path, tmp_path)
    with h5py.File(tmp_path / "seed-0.h5", "r+") as file:
        file["evaluation/returns"][...] = np.nan
    runs = [evolve.load(tmp_path / f"seed-{seed}.h5") for seed in range(2)]
    row = list(ElementTree.fromstring(evolve.Sweep(runs, sweep.points[:2])._repr_html_()))[-1]
    assert list(row.itertext())[2:] == [f"{runs[1].held_out.mean:.2f}"]


def test_the_table_of_a_sweep_can_be_grouped_and_has_the_metrics_of_held_out_episodes(tmp_path):
    env = {"id": "CartPole-v1", "engine": "exact", "metrics": ["mean_observation_0"]}
    grid = {"strategy": [{"name": "ga", "weight_noise": 0.3}, "random"], "network.hidden": [[2, 2]]}
    swept = evolve.sweep(grid, network="mlp", env=env, normalize_observations=True, **SMALL, output=tmp_path)
    table = swept.table()
    assert table["strategy"] == ["name=ga, weight_noise=0.3", "random"]
    assert table["network.hidden"] == ["2, 2"] * 2
    expected = [run.held_out.metrics["mean_observation_0"].mean() for run in swept]
    assert table["held_out_metric_mean_observation_0"] == pytest.approx(expected)
    assert "name=ga, weight_noise=0.3" in swept._repr_html_()


def test_a_sweep_that_runs_again_keeps_its_runs_and_a_longer_one_continues_them(sweep, tmp_path):
    shutil.copytree(sweep[0].path.parent.parent, tmp_path, dirs_exist_ok=True)
    some = {"output": tmp_path, "grid": GRID | {"network": ["mlp"]}, "seeds": [1]}
    first = [run for run in sweep if run.seed == 1 and run.config.network.name == "mlp"]
    assert len(first) == 2
    seen = []
    again = swept(**some, callbacks=[seen.append])
    assert [run.path.read_bytes() for run in again] == [run.path.read_bytes() for run in first]
    assert seen == []
    assert [run.digest for run in again] == [run.digest for run in first]
    with pytest.raises(InputError, match="already exists"):
        swept(**some, resume=False)
    with pytest.raises(InputError, match=r"^population, .*expected 6 as in the run file|^population"):
        swept(**some, population=8)
    longer = swept(**some, generations=3, callbacks=[seen.append])
    assert [generation.number for generation in seen] == [2] * 2
    assert [run.generations[1].digest for run in longer] == [run.digest for run in first]


def test_a_wrong_point_is_refused_before_the_first_run(tmp_path):
    for grid, message in (
        ({"strategy.sigma": [0.1, -1.0]}, "strategy.sigma"),
        ({"strategy.sigm": [0.1]}, "strategy.sigm"),
        ({"strategy.sigma": 0.1}, r"sweep\.strategy\.sigma: expected a list of values"),
        ([0.1], "grid: expected a table of lists"),
        ({"seeds": [1, 2]}, r"grid: expected settings .*, got seeds\. Seeds are an argument: seeds=\[1, 2\]\.$"),
        ({"seed": [1, 2]}, r"grid: .*seeds=\[1, 2\]\.$"),
    ):
        with pytest.raises(InputError, match=message):
            evolve.sweep(grid, strategy="openai-es", **SMALL, output=tmp_path / "out")
    with pytest.raises(InputError, match=r"start_from: expected a file in a sweep.*, got a genome in memory"):
        evolve.sweep({}, **SMALL, output=tmp_path / "out", start_from=[0.1, 0.2])
    with pytest.raises(InputError, match="callbacks"):
        evolve.sweep({}, **SMALL, output=tmp_path / "out", callbacks=print)
    for flag in ("resume", "overwrite", "progress"):
        with pytest.raises(InputError, match=f"{flag}: expected True or False, got 'bar'"):
            evolve.sweep({}, **SMALL, output=tmp_path / "out", **{flag: "bar"})
    assert not (tmp_path / "out").exists()


def test_an_experiment_of_a_sweep_is_checked_once_for_all_its_seeds(sweep, tmp_path, monkeypatch):
    shutil.copytree(sweep[0].path.parent.parent, tmp_path, dirs_exist_ok=True)
    checked, check = [], environments.check_repeatable
    monkeypatch.setattr(
        environments, "check_repeatable", lambda engine, *rest: checked.append(engine) or check(engine, *rest)
    )
    assert [run.digest for run in swept(tmp_path)] == [run.digest for run in sweep]
    assert len(checked) == 4 + 8  # before the first run, and for each run


def test_the_progress_of_a_sweep_names_its_experiments(tmp_path, capsys):
    quick = {"env": ENV, "generations": 1, "population": 6, "episodes": 1, "held_out_episodes": 0}
    evolve.sweep({"network": ["mlp", "elman"]}, **quick, output=tmp_path, progress=True)
    headings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("run ")]
    assert headings == ["run 1 of 2: name=mlp/seed-0.h5", "run 2 of 2: name=elman/seed-0.h5"]
    alone = evolve.sweep({}, **quick, output=tmp_path / "alone", progress=True)
    assert "run 1 of 1" not in capsys.readouterr().err
    assert repr(alone) == "<Sweep: 1 run>"


def test_a_comparison_is_a_picture_with_a_table(sweep, tmp_path):
    found = sweep.compare()
    table = found.table()
    assert table["seeds"] == [2] * 4
    assert table["best"] == [True, False, False, False]
    assert table["mean"] == sorted(table["mean"], reverse=True)
    assert np.isnan(table["p"]).all()
    assert any("too few seeds" in note for note in found.notes)
    assert found.title == "4 experiments, held-out champion's mean return"
    assert found.save(tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    paths = evolve.compare([str(run.path) for run in sweep.runs[:4]])
    assert sorted(paths.table()["experiment"]) == ["sigma 0.1", "sigma 0.3"]
    directories = evolve.compare([run.path.parent for run in sweep.runs[:4:2]])
    assert directories.table() == paths.table()
    assert evolve.compare([sweep[0].path.parent.parent]).table()["seeds"] == table["seeds"]
    with pytest.raises(InputError, match="a directory that holds run files"):
        evolve.compare([tmp_path])
    assert found.curves().figure.axes
    assert evolve.compare(sweep.runs[0:4:2]).report(quick=True).text.count("seed-0.h5") >= 2
    for wrong in (sweep[0], "seed-0.h5", 3, [3]):
        with pytest.raises(InputError, match=r"^runs: expected a list of runs"):
            evolve.compare(wrong)


def test_a_sweep_over_ranks_has_the_digests_of_one_process(sweep, tmp_path):
    program = f"""
import evolve
grid, more = {GRID | {"network": ["elman"]}!r}, {dict(SMALL, env=ENV, strategy="openai-es")!r}
print(*(run.digest for run in evolve.sweep(grid, seeds=[1], output="out", **more)))
"""
    done = finished([*launcher(3), sys.executable, "-c", program], tmp_path)
    assert done.code == 0, done.err
    expected = " ".join(run.digest for run in sweep if run.seed == 1 and run.config.network.name == "elman")
    assert done.out.splitlines() == [expected] * 3


def test_a_callback_stops_a_run_and_the_next_one_begins(tmp_path):
    def stop(generation):
        return False

    more = {"env": ENV, "strategy": "openai-es"} | SMALL
    found = evolve.sweep({"strategy.sigma": [0.1, 0.3]}, **more, output=tmp_path, callbacks=[stop])
    assert found.table()["generations"] == [1, 1]
    assert np.isnan(found.table()["held_out_mean"]).all()
    assert "0.1|none|" in "|".join(ElementTree.fromstring(found._repr_html_()).itertext())


def test_a_failed_run_does_not_end_a_sweep(tmp_path):
    env = {"id": "toys:Faulty-v0"}
    small = SMALL | {"held_out_episodes": 0, "compute": {"check": False}, "env": env}
    grid = {"env.kwargs.share": [0.0, 1.0, 1e-9]}
    with pytest.raises(evolve.EpisodeError, match="the motor burnt out"):
        evolve.sweep(grid, **small, output=tmp_path)
    assert [store.read(path).complete for path in sorted(tmp_path.glob("*/*.h5"))] == [True, False, True]


def test_a_sweep_does_not_need_the_directory_that_its_output_replaces(tmp_path, monkeypatch):
    monkeypatch.setenv("SCRATCH_OF_A_TEST", str(tmp_path))
    run = evolve.train(env=ENV, network="mlp", output="$SCRATCH_OF_A_TEST/first", **SMALL)
    assert run.path.parent == tmp_path / "first"
    monkeypatch.delenv("SCRATCH_OF_A_TEST")
    swept = evolve.sweep({"population": [4]}, run.config, output=tmp_path / "second")
    assert swept[0].complete
    # An output without a directory replaces none, so the sweep is beside the run and not among its files.
    monkeypatch.setenv("SCRATCH_OF_A_TEST", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    beside = evolve.sweep({"population": [4]}, run.config, output={"genomes": "all"})
    assert run.path.parent not in beside[0].path.parents
