"""Sweeps: a grid of experiments from one file, queued over the same ranks."""

import math
import os
import resource

import pytest

from evolve import store
from evolve.cli.run import load
from evolve.config.documents import experiment_tables, experiments, override
from evolve.errors import InputError


def test_every_combination_in_the_order_of_the_file():
    table = {"population": 8, "sweep": {"strategy.survivors": [1, 8], "network": {"hidden": [[4], [8, 8]]}}}
    found = experiment_tables(table)
    assert [name for name, _ in found] == [
        "survivors=1,hidden=4", "survivors=1,hidden=8-8", "survivors=8,hidden=4", "survivors=8,hidden=8-8",
    ]  # fmt: skip
    assert found[1][1] == {"population": 8, "strategy": {"survivors": 1}, "network": {"hidden": [8, 8]}}
    assert "sweep" in table  # it is left as it was


def test_no_sweep_is_one_experiment():
    assert experiment_tables({"population": 8}) == [("", {"population": 8})]


def test_names_tell_keys_of_one_name_apart_and_fit_into_a_path():
    (name, _), *_ = experiment_tables({"sweep": {"network.name": ["dag"], "strategy.name": ["../x y"]}})
    assert name == "network.name=dag,strategy.name=..-x-y"
    grid = {"fitness": ["maße:größe", "maße:weite", "尺度:最小"]}
    names = [name for name, _ in experiment_tables({"sweep": grid})]
    assert names == ["fitness=maße-größe", "fitness=maße-weite", "fitness=尺度-最小"]


def test_settings_that_go_together_are_one_value():
    grid = {"strategy": [{"name": "ga"}, {"name": "prune", "survivors": 8}], "network.hidden": [[4, 2]]}
    (one, _), (two, table) = experiment_tables({"sweep": grid, "strategy": {"name": "umda", "min_probability": 0.1}})
    assert (one, two) == ("strategy=ga,hidden=4-2", "strategy=prune-8,hidden=4-2")
    assert table["strategy"] == {"name": "prune", "survivors": 8}


def test_a_table_without_a_name_keeps_its_section():
    table = {"network": {"name": "mlp", "init_scale": 2.0}, "env": {"id": "Acrobot-v1"}}
    grid = {"network": [{"hidden": [3]}, {"name": "elman"}], "env": [{"max_episode_steps": 5}]}
    (_, kept), (_, replaced) = experiment_tables(table | {"sweep": grid})
    assert kept["network"] == {"name": "mlp", "init_scale": 2.0, "hidden": [3]}
    assert replaced["network"] == {"name": "elman"}
    assert kept["env"] == {"id": "Acrobot-v1", "max_episode_steps": 5}


def test_tables_that_look_alike_are_named_by_their_keys():
    grid = {"strategy": [{"name": "ga", "survivors": 2}, {"name": "ga", "parents": 2}]}
    assert [name for name, _ in experiment_tables({"sweep": grid})] == [
        "strategy=name-ga-survivors-2",
        "strategy=name-ga-parents-2",
    ]
    for equal in ({"episodes": [2, 2]}, {"env.kwargs.mode": ["a/b", "a-b"]}):
        with pytest.raises(InputError, match=r"^sweep: expected combinations that differ in .* two of"):
            experiment_tables({"sweep": equal})


def test_a_name_that_no_directory_may_have_ends_in_a_hash():
    one, other = (
        name for name, _ in experiment_tables({"sweep": {"network.hidden": [[100] * 64 + [n] for n in (3, 4)]}})
    )
    assert one[:-16] == other[:-16]
    assert one != other
    assert len(one) == 255


def test_a_title_that_a_run_file_cannot_hold_is_refused():
    """It is the name of a file, which need not be valid UTF-8."""
    with pytest.raises(InputError, match=r"^output\.directory: expected text in UTF-8, got runs/caf\\udce9/population"):
        experiments({"sweep": {"population": [4, 8]}}, "caf\udce9")


def test_points_share_nothing():
    grid = {"strategy": [{"name": "ga"}], "strategy.weight_noise": [0.1, 0.2]}
    found = experiment_tables({"sweep": grid})
    assert [(name, table["strategy"]["weight_noise"]) for name, table in found] == [
        ("strategy=ga,weight_noise=0.1", 0.1),
        ("strategy=ga,weight_noise=0.2", 0.2),
    ]
    found = experiment_tables({"sweep": dict(reversed(grid.items()))})  # the table must not replace the other key
    assert [table["strategy"]["weight_noise"] for _, table in found] == [0.1, 0.2]


@pytest.mark.parametrize("words", [("--strategy", "random"), ("--set", "strategy.survivors=2")])
def test_a_flag_inside_a_table_of_the_sweep_is_refused(tmp_path, words):
    (tmp_path / "x.toml").write_text("[sweep]\nstrategy = [{name = 'ga'}, {name = 'umda'}]\n")
    with pytest.raises(InputError) as wrong:
        load([str(tmp_path / "x.toml"), *words])
    assert wrong.value.argument in ("strategy.name", "strategy.survivors")
    assert len(load([str(tmp_path / "x.toml"), "-p", "7"])[0]) == 2


def test_a_flag_beside_a_sweep_over_names(tmp_path):
    (tmp_path / "x.toml").write_text('[sweep]\nstrategy = ["ga", "umda"]\n')

    def found(*words):
        return [(c.strategy.name, c.strategy.options.weight_noise) for c in load([str(tmp_path / "x.toml"), *words])[0]]

    assert found("--strategy", "prune") == [("prune", 0.2)]
    assert found("--set", "strategy.weight_noise=0.5") == [("ga", 0.5), ("umda", 0.5)]
    configs, *_ = load(["--set", 'sweep.strategy=["ga", "umda"]', "--set", "strategy={weight_noise=0.5}"])
    assert [(c.strategy.name, c.strategy.options.weight_noise) for c in configs] == [("ga", 0.5), ("umda", 0.5)]


def test_a_name_leaves_the_sweep_over_other_settings_of_its_section(tmp_path):
    (tmp_path / "x.toml").write_text("[sweep]\nstrategy.weight_noise = [0.5, 0.6]\n")
    for words in (("--strategy", "ga"), ("--set", "strategy=ga")):
        configs, *_ = load([str(tmp_path / "x.toml"), *words])
        assert [(c.strategy.name, c.strategy.options.weight_noise) for c in configs] == [("ga", 0.5), ("ga", 0.6)]


def test_a_flag_beside_tables_without_a_name(tmp_path):
    (tmp_path / "x.toml").write_text("[sweep]\nstrategy = [{survivors = 2}, 'ga']\n")
    sources = ([str(tmp_path / "x.toml")], ["--set", "sweep.strategy=[{survivors = 2}, 'ga']"])
    for source in sources:
        configs, *_ = load([*source, "--set", "strategy.weight_noise=0.5"])
        assert [(c.strategy.name, c.strategy.options.weight_noise) for c in configs] == [("prune", 0.5), ("ga", 0.5)]
        for words in (("--set", "strategy.survivors=3"), ("--strategy", "umda")):
            with pytest.raises(InputError, match=r"^strategy\.\w+ is given twice: "):
                load([*source, *words])


@pytest.mark.parametrize(
    ("words", "argument"),
    [(("--set", "sweep.episodes=[1, 2]", "-r", "3"), "episodes"),
     (("--set", 'sweep.strategy=["ga", "umda"]', "--strategy", "ga"), "strategy.name"),
     (("--set", 'sweep.strategy.name=["ga", "umda"]', "--set", "strategy=ga"), "strategy.name"),
     (("--set", "sweep.episodes=[1, 2]", "--set", "episodes=3"), "episodes"),
     (("--set", "sweep={episodes = [1, 2]}", "-r", "3"), "episodes"),
     (("--set", 'sweep.strategy=[{name = "ga"}]', "--strategy", "umda"), "strategy.name")],
)  # fmt: skip
def test_a_key_given_both_ways_is_refused(words, argument):
    with pytest.raises(InputError) as wrong:
        load(list(words))
    assert wrong.value.argument == argument
    assert "sweep." in str(wrong.value)


def test_a_sweep_from_the_command_line():
    configs, *_ = load(["-a", "dag", "--set", "sweep.network.hidden=[[4], [8]]", "--set", "strategy={name='ga'}",
                        "--set", "sweep.strategy.parents=[2, 3]"])  # fmt: skip
    found = [(c.network.name, *c.network.options.hidden, c.strategy.options.parents) for c in configs]
    assert found == [("dag", 4, 2), ("dag", 4, 3), ("dag", 8, 2), ("dag", 8, 3)]


def test_a_point_that_a_strategy_refuses_leaves_no_file(call, tmp_path):
    (tmp_path / "x.toml").write_text("population = 3\n[sweep]\nstrategy = [{name = 'ga'}, {name = 'cma-es'}]\n")
    call("run", "x.toml", "-o", "out").refused()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("sweep", "argument"),
    [(3, "sweep"), ({"population": 3}, "sweep.population"), ({"episodes": []}, "sweep.episodes"),
     ({"seeds": [1]}, "sweep.seeds"), ({"output": {"directory": ["a"]}}, "sweep.output.directory"),
     ({"population": list(range(40)), "episodes": list(range(40))}, "sweep")],
)  # fmt: skip
def test_an_invalid_sweep_is_refused(sweep, argument):
    with pytest.raises(InputError) as wrong:
        experiment_tables({"sweep": sweep})
    assert wrong.value.argument == argument


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pole.toml"
    path.write_text(
        "seeds = [1, 2]\ngenerations = 2\npopulation = 6\nepisodes = 1\nheld_out_episodes = 2\n"
        "env.max_episode_steps = 30\n[network]\nhidden = [2]\n"
        "[sweep]\nstrategy.survivors = [1, 3]\nnetwork.plasticity = [0.0, 0.1]\n"
    )
    return path


def test_flags_override_keys_of_the_sweep(file):
    configs, *_ = load([str(file), "--set", "network.plasticity=0.5"])
    assert [c.output.directory for c in configs] == ["runs/pole/survivors=1", "runs/pole/survivors=3"]
    assert {c.network.options.plasticity for c in configs} == {0.5}


def test_a_sweep_is_run_over_the_same_ranks_and_resumed(call, command, file, tmp_path):
    done = command("run", file, "-o", "grid", ranks=2).ok()
    begun = "run 3 of 8: survivors=1,plasticity=0.1/seed-1.h5\nseed 1  generation 0 (1 of 2)"
    assert begun in done.out
    made = sorted(p.relative_to(tmp_path / "grid") for p in tmp_path.glob("grid/*/*.h5"))
    assert [str(p) for p in made] == [
        f"survivors={s},plasticity={m}/seed-{seed}.h5" for s in (1, 3) for m in (0.0, 0.1) for seed in (1, 2)
    ]
    alone = ("--set", "strategy.survivors=3", "--set", "network.plasticity=0.1", "-s", 2, "-o", "alone")
    call("run", file, *alone).ok()
    runs = [store.read(tmp_path / p) for p in ("grid/survivors=3,plasticity=0.1/seed-2.h5", "alone/seed-2.h5")]
    assert runs[0].records[-1].digest == runs[1].records[-1].digest
    (tmp_path / "grid" / made[5]).unlink()
    done = call("run", file, "-o", "grid", "--resume")
    assert (done.code, done.out.count("already complete")) == (0, 7)
    assert done.out.count("run ") == done.out.count("run 6 of 8: survivors=3,plasticity=0.0/seed-2.h5\n") == 1
    call("plot", *(tmp_path / "grid" / p for p in made), "-o", "grid.svg").ok()
    assert "4 experiments, seeds 1, 2" in (tmp_path / "grid.svg").read_text()


def test_a_wrong_point_is_refused_before_anything_is_written(call, file, tmp_path):
    file.write_text(file.read_text().replace("[1, 3]", "[1, 0]"))
    call("run", file, "-o", "grid").refused("strategy.survivors")
    assert not (tmp_path / "grid").exists()


def test_more_run_files_than_may_be_open(call, tmp_path):
    (tmp_path / "x.toml").write_text(
        f"seeds = {list(range(16))}\npopulation = 2\nepisodes = 1\ngenerations = 1\nheld_out_episodes = 0\n"
        "[env]\nmax_episode_steps = 1\n[network]\nhidden = []\n"
    )
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(max(used) + 20) if number not in used]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[12], hard))
    try:
        done = call("run", "x.toml", "-o", "out")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (done.code, done.err) == (0, "")
    assert len(list(tmp_path.glob("out/*.h5"))) == 16


def test_a_flag_may_be_nan_beside_a_sweep():
    table = {"sweep": {"strategy.sigma": [0.1, 0.2]}, "env": {"id": "CartPole-v1"}}
    override(table, [("env.kwargs.x", math.nan)])
    assert math.isnan(table["env"]["kwargs"]["x"])
