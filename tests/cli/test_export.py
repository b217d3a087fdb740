"""The export command, and the commands that accept its champion files."""

import csv
import json
import shutil

import h5py
import numpy as np
import pytest
from conftest import ROOT, make_runs
from events import curves

import evolve
from evolve import store

QUICK = ("-e", "Pendulum-v1", "-p", 6, "-r", 2, "-g", 3, "--set", "env.max_episode_steps=20")
EVALUATED = (*QUICK, "--set", "held_out_episodes=4")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A plain network, and one with normalized observations; and one that has no held-out returns."""
    where = tmp_path_factory.mktemp("export")
    make_runs(where, *EVALUATED, "-d", 3, "-s", 1, "-o", "plain")
    make_runs(
        where, *EVALUATED, "-a", "mlp", "-d", 3, "-s", 2, "-o", "normalized", "--set", "normalize_observations=true"
    )
    make_runs(where, *QUICK, "-d", 3, "-s", 3, "-o", "bare", "--set", "held_out_episodes=0")
    return where


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["plain", "normalized"])
def champion(request, here, call):
    """The run file and the champion file of a run."""
    run = next((here / request.param).glob("*.h5"))
    assert call("export", run).out.strip() == str(run.with_suffix(".champion"))
    return run, run.with_suffix(".champion")


def test_a_champion_file_has_the_values_of_its_run(champion):
    run, file = map(evolve.load, champion)
    assert file.digest == run.digest
    assert file.config == run.config
    assert file.num_generations == 3
    assert file.steps == sum(record.steps for record in store.read(run.path).records)
    assert file.held_out.returns.tolist() == run.held_out.returns.tolist()
    assert file.evaluate(6).returns.tolist() == run.evaluate(6).returns.tolist()
    assert "<ChampionFile " in repr(file)


def test_its_policy_acts_as_that_of_the_run(champion):
    run, file = map(evolve.load, champion)
    one, other = run.champion(), file.champion()
    rng = np.random.default_rng(0)
    for _ in range(20):
        observation = rng.normal(size=one.experiment.network.observation_size)
        assert one.outputs(observation).tobytes() == other.outputs(observation).tobytes()


def test_every_command_takes_it(champion, call):
    run, file = champion
    assert call("verify", file).out.startswith(f"{file}: equal: the champion of 3 generations, 4 held-out episodes")
    full = call("verify", file, "--full", "--json")
    assert (full.code, json.loads(full.out)[str(file)]["equal"]) == (0, True)
    before = file.read_bytes()
    call("evaluate", file, "--episodes", 6, "--json").ok()
    assert file.read_bytes() == before
    done = call("replay", file, "--episode", 2)
    assert (done.code, done.out.splitlines()[-1]) == (0, "equal to the log, to the bit")
    assert done.out == call("replay", run, "--held-out", "--episode", 2).out
    call("plot", file, "--network", "-o", "network.svg").ok()


def test_many_champions_are_verified_by_one_command(here, call):
    files = []
    for name in ("plain", "normalized"):
        files.append(next((here / name).glob("*.h5")).with_suffix(".champion"))
        call("export", files[-1].with_suffix(".h5")).ok()
    done = call("verify", *files, files[0])  # a shell may name one file twice
    assert (done.code, done.out.count(": equal: ")) == (0, 3)
    with h5py.File(files[0], "r+") as file:
        file["evaluation/returns"][2] += 1.0
    done = call("verify", *files)
    assert done.code == 1
    assert "different: 1 of 4 held-out episodes have different returns, first episode 2" in done.out
    assert done.out.count(": equal: ") == 1
    assert call("verify", files[0], next((here / "plain").glob("*.h5"))).code == 2


@pytest.mark.parametrize("what", ["evaluation/weights", "evaluation/normalizer", "digest", "steps"])
def test_a_champion_that_was_changed_does_not_verify(champion, call, what):
    _, path = champion
    with h5py.File(path, "r+") as file:
        match what:
            case "digest":
                file.attrs["digest"] = "00" * 32
            case "steps":
                file.attrs.modify("steps", file.attrs["steps"] + 1)
            case "evaluation/normalizer" if what not in file:
                return
            case _:
                file[what][...] = np.nextafter(file[what][...], np.float32(9))  # no episode shows it
    done = call("verify", path, "--full")
    assert done.code == 1
    assert "different: " in done.out


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--engine", "exact"), "this experiment has one digest everywhere"),
        (("--engine", "exact", "--set", "fitness=toy_fitness:worst_two"), "the fitness is a function of the user"),
        ((), "the repeated run differs"),  # an environment of a library
    ],
)
def test_the_likeliest_cause_of_another_digest_is_named(tmp_path, monkeypatch, call, words, cause):
    make_runs(tmp_path, *QUICK, "-e", "Acrobot-v1", "-d", 3, "-s", 4, "-o", "one", *words)
    monkeypatch.chdir(tmp_path)
    (run,) = (tmp_path / "one").glob("*.h5")
    call("export", run, "-o", "one.champion").ok()
    with h5py.File("one.champion", "r+") as file:
        file.attrs["digest"] = "00" * 32
    (verdict,) = json.loads(call("verify", "one.champion", "--full", "--json").out).values()
    assert not verdict["equal"]
    assert verdict["why"].startswith(cause)


def test_exports_that_a_champion_file_cannot_give_are_refused(champion, call):
    _, file = champion
    network = ("plot", file, "--network", "--generation", 0)
    generations = ("replay", file, "--generations", "0")
    export = ("export", file, "--format", "c", "--cell", "3,8")
    for words in (
        ("replay", file, "--generation", 1),
        generations,
        network,
        export,
        ("plot", file),
        ("run", "--resume", file),
    ):
        call(*words).refused()


def test_a_run_without_held_out_returns_names_the_cure(here, call):
    run = next((here / "bare").glob("*.h5"))
    call("export", run).refused(f"Evaluate its champion first: python -m evolve.evaluate {run}")
    call("evaluate", run, "--episodes", 3).ok()
    call("export", run, "-o", "ours.champion").ok()
    assert evolve.load("ours.champion").held_out.returns.shape == (3,)
    assert evolve.load(run).export("again.champion").read_bytes()


def test_another_genome_becomes_a_network_file(here, call):
    run = next((here / "plain").glob("*.h5"))
    call("export", run, "--generation", 0, "-o", "early.json").ok()
    evolve.load(run).champion(generation=0).export("expected.json")
    assert (here / "early.json").read_bytes() == (here / "expected.json").read_bytes()
    call("export", run, "--generation", 0).refused("A champion file holds the held-out returns of the final champion.")
    call("export", run, "--generation", 0, "--format", "csv").refused("other than the final champion, got csv.\n")


def test_columns_as_csv(here, call, monkeypatch):
    run = next((here / "plain").glob("*.h5"))
    with monkeypatch.context() as patch:  # under mpirun the other ranks serve the command, and not a script
        patch.delattr("evolve.analysis.runs.script_ranks")
        call("export", run, "-o", "numbers.csv").ok()
    with open("numbers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    table = evolve.load(run).table()
    assert [row["digest"] for row in rows] == table["digest"]
    assert [float(row["best_fitness"]) for row in rows] == table["best_fitness"]
    records = [generation.record for generation in evolve.load(run).generations]
    assert [float(row["mean_length"]) for row in rows] == [float(record.lengths.mean()) for record in records]
    best = [float(record.lengths[record.champion_candidate].mean()) for record in records]
    assert [float(row["best_length"]) for row in rows] == best


def test_columns_for_tensorboard(here, call):
    pytest.importorskip("tensorboardX")
    run = next((here / "plain").glob("*.h5"))
    call("export", run, "--format", "tensorboard", "-o", "logs").ok()
    call("export", run, "--format", "tensorboard", "-o", "logs").ok()
    assert len(list((here / "logs").iterdir())) == 1
    found = {name: [value for _, value in pairs] for name, pairs in curves(here / "logs").items()}
    table = evolve.load(run).table()
    assert found["best_fitness"] == pytest.approx(table["best_fitness"])
    assert found["steps"] == table["steps"]


def test_without_the_library_for_tensorboard(here, call, absent):
    run = next((here / "plain").glob("*.h5"))
    absent("tensorboardX", "torch")
    call("export", run, "--format", "tensorboard", "-o", "logs").refused(f"pip install -e '{ROOT}[tensorboard]'")
    assert not (here / "logs").exists()


def test_outputs_are_refused_before_any_work(here, call):
    run = next((here / "plain").glob("*.h5"))
    for output in ("wrong.txt", "nowhere/a.champion"):
        call("export", run, "-o", output).refused()
    assert call("export", run, "--format", "csv", "--tensorboard").code == 2


def test_a_missing_run_file_is_named_and_an_existing_output_stays(call, tmp_path):
    output = tmp_path / "pole.c"
    output.write_text("mine")
    call("export", "mistyped.h5", "-o", output).refused("mistyped.h5: expected a run file, got no such file")
    assert output.read_text() == "mine"


def test_a_champion_file_is_not_replaced_by_itself(champion, call):
    _, file = champion
    before = file.read_bytes()
    call("export", file).refused("expected another file than FILE")
    assert file.read_bytes() == before
