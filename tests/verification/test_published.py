"""Files against the published results: real runs, a list that the test writes, and the list that is installed."""

import json
import shutil
import tomllib
from dataclasses import replace

import h5py
import pytest
from conftest import ROOT, make_runs

import evolve
from evolve import store, verification
from evolve.config import read_file
from evolve.config.documents import experiments
from evolve.errors import InputError
from evolve.verification import Verdict, compare_with_published, read_published
from evolve.verification.comparison import PUBLISHED

SMALL = ("-p", 6, "-r", 2, "-g", 3, "-d", 3, "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=2")
ZOO = sorted((ROOT / "zoo").iterdir())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Run files of one experiment: three generations, four, two, those of another seed, and another experiment's."""
    where = tmp_path_factory.mktemp("published")
    for name, *more in (
        ("three", "-s", 1), ("four", "-s", 1, "-g", 4), ("two", "-s", 1, "-g", 2), ("seed", "-s", 2),
        ("cost", "-s", 1, "--set", "connection_cost=1.0"), ("exact", "-s", 1, "--engine", "exact"),
    ):  # fmt: skip
        make_runs(where, *SMALL, *more, "-o", name)
    return {path.parent.name: path for path in where.glob("*/*.h5")}


@pytest.fixture
def published(files, tmp_path):
    """The list in which the first of these runs is published."""
    run = store.read(files["three"])
    settings = {key: value for key, value in tomllib.loads(run.header.config).items() if key != "seeds"}
    result = {"seed": 1, "generations": 3, "digest": run.digest}
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"small": {"settings": settings, "results": [result]}}))
    return read_published(path)


def test_the_published_held_out_mean_is_compared(files, published, tmp_path):
    run = store.read(files["three"])
    mean = float(run.held_out.returns.mean())
    (right,) = [replace(each, mean=mean * (1 + 1e-12)) for each in published]
    found = compare_with_published(run, [right])
    assert found.equal
    assert found.summary.endswith(f", held-out mean {mean:.6g}")
    wrong = replace(right, mean=mean + 0.01)
    found = compare_with_published(run, [wrong])
    assert (found.equal, found.what, found.cause) == (False, "held-out", "environment")
    assert f"has a held-out mean of {mean + 0.01:.6g}, and this file {mean:.6g}" in found.summary
    assert compare_with_published(store.read(files["four"]), [wrong]).equal, "its champion is another one"
    few = replace(run, held_out=replace(run.held_out, returns=run.held_out.returns[:1]))
    assert compare_with_published(few, [wrong]).equal


def another_digest(published):
    return [replace(each, digest="0" * 64) for each in published]


def test_equal_runs_have_the_published_digest(files, published):
    for name in ("three", "four"):
        run = store.read(files[name])
        found = compare_with_published(run, published)
        assert found.equal, found
        assert "small" in found.summary
        assert published[0].digest in found.summary
        assert Verdict.from_json(found.to_json()) == found


def test_another_engine_may_have_the_published_digest(files, published):
    run = store.read(files["exact"])
    found = compare_with_published(run, [replace(each, digest=run.digest) for each in published])
    assert (found.equal, found.configuration) == (True, (("env.engine", "gymnasium", "exact"),))


def test_another_number_of_generations_is_a_difference(files, published):
    found = compare_with_published(store.read(files["two"]), published)
    assert (found.equal, found.cause, found.what) == (False, "configuration", "shape")


def test_another_digest_is_explained_by_the_library_of_the_environments(files, published):
    run = store.read(files["three"])
    found = compare_with_published(run, another_digest(published))
    assert (found.equal, found.cause, found.what) == (False, "environment", "digest")
    assert run.digest in found.summary
    for version in (evolve.__version__, run.header.manifest["packages"]["gymnasium"]):
        assert version in found.why


def test_another_digest_is_explained_by_another_engine(files, published):
    found = compare_with_published(store.read(files["exact"]), another_digest(published))
    assert (found.cause, [key for key, *_ in found.configuration]) == ("environment", ["env.engine"])


def test_exact_environments_explain_no_other_digest(files, published):
    exact = [
        replace(each, config=each.config.with_env_changes({"engine": "exact"})) for each in another_digest(published)
    ]
    assert compare_with_published(store.read(files["exact"]), exact).cause == "log"


def test_what_is_not_published_is_refused(files, published):
    with pytest.raises(InputError, match=r"small.*seed 2"):
        compare_with_published(store.read(files["seed"]), published)
    with pytest.raises(InputError, match=r"nearest is small, in which connection_cost is 0\.0 and not 1\.0"):
        compare_with_published(store.read(files["cost"]), published)


def test_the_published_settings_are_those_of_the_experiments():
    for published in {each.experiment: each for each in read_published()}.values():
        path = ROOT / "experiments" / f"{published.experiment}.toml"
        (config,) = experiments(read_file(path), str(path))
        assert published.differences(config) == []


def test_a_missing_list_is_named(tmp_path):
    with pytest.raises(InputError, match=r"missing\.json"):
        read_published(tmp_path / "missing.json")


def test_the_zoo_has_published_digests(call):
    done = call("verify", *ZOO, "--published")
    assert (done.code, done.out.count(": equal: ")) == (0, len(ZOO)), done.err
    for path in ZOO:
        assert f"{path}: equal: seed 1 of the published experiment {path.stem}, " in done.out.replace("\n    ", " ")


def test_the_command_says_which_digest_differs(call, tmp_path):
    path = tmp_path / "cartpole.champion"
    path.write_bytes((ROOT / "zoo" / "cartpole.champion").read_bytes())
    with h5py.File(path, "r+") as file:
        file.attrs["digest"] = "00" * 32
    done = call("verify", path, "--published", "--json")
    assert done.code == 1
    verdict = json.loads(done.out)[str(path)]
    assert (verdict["equal"], verdict["what"]) == (False, "digest")
    with h5py.File(path, "r+") as file:
        file.attrs["num_generations"] += 1
    assert json.loads(call("verify", path, "--published", "--json").out)[str(path)]["what"] == "shape"


def test_a_directory_stands_for_all_of_its_run_files(call, files, published, monkeypatch, tmp_path):
    monkeypatch.setattr(verification, "read_published", lambda: published)
    for name in ("three", "four"):
        shutil.copytree(files[name].parent, tmp_path / "runs" / name)
    done = call("verify", "runs", "--published").ok()
    assert done.out.count(": equal: seed 1 of the published experiment small, ") == 2
    empty = tmp_path / "runs" / "empty" / "seed-1.h5"  # a run that has just begun keeps no other from being compared
    store.create(empty, store.read(files["three"]).header).close()
    done = call("verify", "runs", "--published")
    assert (done.code, done.out.count(": equal: seed 1 ")) == (2, 2)
    assert "empty/seed-1.h5: not verified" in done.err
    assert call("verify", empty, "--published").code == 1


def test_the_command_refuses_invalid_combinations(call, files):
    assert call("verify", files["three"], "--published").code == 2
    for more in (("--full",), ("--engine", "exact"), ("--threads", "2"), ("--workers", "auto")):
        call("verify", ZOO[0], "--published", *more).refused(f"got {more[0]}.")


def test_the_list_is_installed_with_the_package():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = table["tool"]["setuptools"]["package-data"]
    assert PUBLISHED.name in data[".".join(PUBLISHED.relative_to(ROOT).parent.parts)]
