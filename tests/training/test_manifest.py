"""The manifest of a run: the versions and the hardware that may explain a difference later."""

import importlib
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint

import gymnasium
import pytest
import toy_fitness

import evolve
from evolve.config import Config, parse
from evolve.training import manifest


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_revision_is_not_the_one_of_a_repository_around_an_installed_package(tmp_path, monkeypatch):
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    author = "-c", "user.name=a", "-c", "user.email=a@example.org"
    for command in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "Begin"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    uncached = manifest.revision.__wrapped__
    monkeypatch.setattr(manifest, "SOURCE", tmp_path)
    assert len(uncached()) == 40
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))  # as in a hook of another repository
    assert len(uncached()) == 40
    monkeypatch.setattr(manifest, "SOURCE", packages)
    assert uncached() is None


def test_a_package_that_pip_has_installed_from_git_has_a_revision(tmp_path, monkeypatch):
    about = tmp_path / "evolve_mpi-9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: evolve-mpi\nVersion: 9.9\n")
    (about / "direct_url.json").write_text(
        '{"url": "https://x.org/y", "vcs_info": {"vcs": "git", "commit_id": "abc1"}}'
    )
    monkeypatch.syspath_prepend(tmp_path)
    uncached = manifest.revision.__wrapped__
    monkeypatch.setattr(manifest, "SOURCE", tmp_path / "another copy")
    assert uncached() is None
    monkeypatch.setattr(manifest, "SOURCE", tmp_path)
    assert uncached() == "abc1"
    (about / "direct_url.json").write_text('{"url": "file:///y", "dir_info": {"editable": true}}')
    assert uncached() is None


def test_a_strategy_of_another_package_has_a_digest(monkeypatch):
    point = EntryPoint("mine", "toys:Elsewhere", "evolve.strategy")
    monkeypatch.setattr(manifest, "points_of", lambda section, _: (point,) if section == "strategy" else ())
    named = parse(Config, {"env": {"id": "CartPole-v1"}, "strategy": {"name": "ga"}})
    importlib.import_module("toys")
    assert [*manifest.module_digests(named)] == ["toys", "arithmetic"]


def test_the_modules_of_the_user_have_digests(tmp_path, monkeypatch):
    named = {"env": {"id": "toys:Elsewhere-v0"}, "fitness": "toy_fitness:worst_two"}
    importlib.import_module("toys")
    found = manifest.module_digests(parse(Config, named))
    assert [*found] == ["toys", "toy_fitness", "arithmetic"]  # toys imports a part of arithmetic
    monkeypatch.setattr(toy_fitness.__spec__, "origin", str(tmp_path / "gone.py"))
    now = manifest.module_digests(parse(Config, named))
    assert [*now] == ["toys", "arithmetic"]
    assert [name for name in now if now[name] != found[name]] == []
    assert manifest.module_digests(parse(Config, {"env": {"id": "CartPole-v1"}, "fitness": "quantile:0.5"})) == {}


def test_the_files_that_a_module_of_the_user_imports_have_digests(tmp_path, monkeypatch, caplog):
    for name, text in [
        ("arms/__init__.py", "from arms.task import Arm"),
        (
            "arms/task.py",
            "import json\nimport numpy\nfrom levers import pull\nfrom .sizes import LENGTH\nclass Arm: pass",
        ),
        ("arms/sizes.py", "LENGTH = 2"),
        ("arms/unused.py", ""),
        ("levers.py", "import springs\ndef pull(): pass"),
        ("springs.py", "import levers"),
        ("site-packages/bought.py", "def buy(): pass"),
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "springs.py").write_text("import levers\nfrom bought import buy")
    named = parse(Config, {"env": {"id": "arms:Arm"}})
    assert [*manifest.module_digests(named)] == ["arms"]  # not imported yet
    importlib.import_module("arms")
    before = manifest.module_digests(named)
    assert [*before] == ["arms", "arms.sizes", "arms.task", "levers", "springs"]
    (tmp_path / "levers.py").write_text("import springs\ndef pull(): return 1")
    assert manifest.module_digests(named) == before, "this process has the earlier code"
    assert "the file of levers has changed" in caplog.text
    caplog.clear()
    importlib.reload(sys.modules["levers"])
    now = manifest.module_digests(named)
    assert [name for name in now if now[name] != before[name]] == ["levers"]
    assert not caplog.text


def test_a_module_that_cannot_be_imported_has_no_digest(tmp_path, monkeypatch):
    (tmp_path / "unlicensed").mkdir()
    (tmp_path / "unlicensed" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    named = {"env": {"id": "CartPole-v1"}, "fitness": "unlicensed.scores:best"}
    assert manifest.module_digests(parse(Config, named)) == {}


def test_the_package_of_the_environment_has_a_version(tmp_path, monkeypatch):
    """Its version may explain a difference; the file that `env.id` names may be equal in all versions."""
    (tmp_path / "maze_world").mkdir()
    (tmp_path / "maze_world" / "__init__.py").touch()
    (tmp_path / "maze_world-1.4.2.dist-info").mkdir()
    (tmp_path / "maze_world-1.4.2.dist-info" / "METADATA").write_text("Name: maze-world\nVersion: 1.4.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = gymnasium.envs.registration.EnvSpec("World/Maze-v0", entry_point="maze_world.envs:Maze")
    monkeypatch.setitem(gymnasium.registry, "World/Maze-v0", spec)
    for env in ({"id": "maze_world:World/Maze-v0"}, {"id": "World/Maze-v0"}, {"wrappers": ["maze_world.envs:Wall"]}):
        assert manifest.packages_of(parse(Config, {"env": env})) == {"maze_world": "1.4.2"}
    for env in ({"id": "toys:Elsewhere-v0"}, {"id": "CartPole-v1", "engine": "exact"}):
        assert "maze_world" not in manifest.packages_of(parse(Config, {"env": env}))
    (tmp_path / "toys-3.0.dist-info").mkdir()
    (tmp_path / "toys-3.0.dist-info" / "METADATA").write_text("Name: toys\nVersion: 3.0\n")
    few = {"generations": 1, "population": 2, "episodes": 1, "held_out_episodes": 0}
    run = evolve.train(env={"id": "toys:Values-v0", "kwargs": {"x": 1.0}}, **few, output=tmp_path / "run")
    assert run.manifest["packages"]["toys"] == "3.0"
    assert run.manifest["packages"]["numpy"]


def test_packages_that_the_modules_of_the_user_import_have_versions(tmp_path, monkeypatch):
    """The same wrapper of an optimizer gives other candidates with another version of the optimizer."""
    for name, text in [("steepest", "class Descent: pass"), ("plots", "def draw(): pass"), ("unused", "")]:
        (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / f"{name}-2.7.dist-info").mkdir()
        (tmp_path / f"{name}-2.7.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 2.7\n")
    (tmp_path / "my_search.py").write_text(
        "import json\nimport numpy as np\nfrom plots import draw\nfrom steepest import Descent\n"
        "from evolve import strategies\nlimit = np.float64(3.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    named = parse(Config, {"env": {"id": "CartPole-v1", "engine": "exact"}, "fitness": "my_search:best"})
    assert manifest.packages_of(named) == {}  # not imported yet
    importlib.import_module("my_search")
    found = manifest.packages_of(named)
    assert {*found} == {"numpy", "plots", "steepest"}
    assert found["steepest"] == "2.7"
