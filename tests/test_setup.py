"""setup.py builds the present source, with kernels if there is a compiler. Here the source is a few small files."""

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest
from conftest import LONG, ROOT


@pytest.fixture
def source(tmp_path):
    """Return the folder of a package with one module and kernels of one function."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    folder = tmp_path / "source"
    (folder / "evolve" / "rollouts").mkdir(parents=True)
    (folder / "evolve" / "numerics").mkdir()
    shutil.copy(ROOT / "setup.py", folder)
    (folder / "setup.cfg").write_text("[options]\npackages = evolve, evolve.numerics\n")
    for name in ("__init__.py", "old.py", "numerics/__init__.py"):
        (folder / "evolve" / name).touch()
    (folder / "evolve" / "rollouts" / "kernels.c").write_text("int evolve_first(void) { return 1; }")
    return folder


def install(folder, into, **variables):
    """Return the exit code of setup.py and its output. It installs the package into a folder."""
    env = {name: value for name, value in os.environ.items() if name != "EVOLVE_KERNELS"} | variables
    words = [sys.executable, "-Wignore", "setup.py", "install", "--root", into]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=LONG, check=False)
    return done.returncode, done.stdout + done.stderr


def installed(folder):
    return sorted(path.name for path in folder.rglob("*") if path.suffix in (".py", ".so") and path.stem != "__init__")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_an_earlier_build_leaves_nothing_for_the_next(source, tmp_path):
    """Its modules would change the fingerprint of the source, and its kernels may have other instructions."""
    assert install(source, tmp_path / "first")[0] == 0
    names = installed(tmp_path / "first")
    assert len(names) == 2
    assert names[1] == "old.py"
    (source / "evolve" / "old.py").unlink()
    assert install(source, tmp_path / "second", CFLAGS="-Devolve_first=evolve_second")[0] == 0
    assert installed(tmp_path / "second") == names[:1]
    (library,) = (tmp_path / "second").rglob(names[0])
    assert b"evolve_second" in library.read_bytes()


def test_without_a_compiler_packagers_may_want_an_error(source, tmp_path):
    code, printed = install(source, tmp_path / "without", CC="false")
    assert (code, installed(tmp_path / "without")) == (0, ["old.py"])
    assert "no native kernels" in printed
    assert install(source, tmp_path / "required", CC="false", EVOLVE_KERNELS="require")[0] == 1
    assert not (tmp_path / "required").exists()
    code, printed = install(source, tmp_path / "unknown", EVOLVE_KERNELS="yes")
    assert code == 1
    assert "EVOLVE_KERNELS: expected require, got yes" in printed


@pytest.mark.parametrize(("given", "ours"), [("-O2", True), ("-O2 -g", False)])
def test_the_library_has_debug_information_if_the_user_wants_it(monkeypatch, given, ours):
    monkeypatch.setenv("CFLAGS", given)
    assert ("-g0" in runpy.run_path(str(ROOT / "setup.py"))["FLAGS"]) == ours


def test_a_source_distribution_has_what_the_tests_read():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    read = {name for name in re.findall(r'ROOT / "([^"/]+)', tests) if (ROOT / name).is_dir()}
    assert read >= {".ci", "benchmarks", "docs", "zoo"}
    grafted = {line.removeprefix("graft ") for line in (ROOT / "MANIFEST.in").read_text().splitlines()}
    built = {".mpich", ".nvrtc"}  # in a clone, by the commands of CONTRIBUTING.md
    assert read - grafted - built == {"evolve"}
