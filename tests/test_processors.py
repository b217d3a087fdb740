"""Exact tasks have the same bits everywhere: natively, by arrays, on several ranks, and on other processors."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig

import arm64
import exact_runs
import pytest
from conftest import HELPERS, ROOT, Process, as_a_process, environment
from disassembly import fused
from processors import HASWELL, MASKED, NEHALEM, build_package, nehalem, x86

from evolve.numerics import native

bodies = pytest.mark.skipif(
    not native.available() and "numpy" in exact_runs.WITHOUT_BODIES, reason="the native kernels were not built"
)


def only(golden, *sets):
    """Return the golden digests of some sets of runs."""
    return {run: digest for run, digest in golden["exact_digests"].items() if run.split()[0] in sets}


def all_of(golden, *backends):
    """Return for each back end the golden digests of all that it can play."""
    return [only(golden, *exact_runs.sets(backend)) for backend in backends]


def said(done):
    """Return the digests that a process of `exact_runs` has printed, of each back end."""
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_golden_digests_of_exact_tasks(golden, backend):
    if backend == "native" and not native.available():
        pytest.skip("the native kernels were not built")
    names = (
        exact_runs.sets("native")
        if backend == "native"
        else ("dag", "hebbian-lstm", "low-rank", "elman", "plastic-mlp")
    )
    with as_a_process():
        assert exact_runs.all_digests(backend, names) == only(golden, *names)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_golden_digests_of_all_exact_tasks_by_arrays(golden):
    """Rigid bodies as well, which take three minutes."""
    with as_a_process():
        assert exact_runs.all_digests("numpy", exact_runs.SETS) == golden["exact_digests"]


def test_a_device_agrees(call, golden, emulated_device, tmp_path):
    call("run", *exact_runs.words("hebbian-lstm", ["CartPole-v1"]), "--backend", "cupy", "-o", "run").ok()
    (found,) = exact_runs.digests(tmp_path / "run", "hebbian-lstm").items()
    assert found in golden["exact_digests"].items()
    assert "play_hebbian_lstm_on_cart_pole" in emulated_device.executed


@pytest.mark.slow
def test_a_device_agrees_on_all_tasks(golden, emulated_device):
    with as_a_process():
        assert [exact_runs.all_digests("cupy")] == all_of(golden, "cupy")


@pytest.mark.parametrize("name", ["mlp-bodies", "lstm-bodies", "wind-bodies"])
def test_gymnasium_has_the_same_digests(golden, name):
    """Rigid bodies of all four tasks move as Gymnasium's do: networks see and do the same in every step."""
    with as_a_process():
        assert exact_runs.all_digests("auto", [name], "gymnasium") == only(golden, name)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("hebbian-lstm", 3),
        pytest.param("lstm-bodies", 1, marks=bodies),
        pytest.param("lstm-bodies", 3, marks=bodies),
    ],
)
def test_ranks_do_not_matter(command, golden, tmp_path, name, ranks):
    command("run", *exact_runs.words(name), "-o", "run", ranks=ranks).ok()
    assert exact_runs.digests(tmp_path / "run", name) == only(golden, name)


@bodies
@pytest.mark.parametrize("slots", [3, 17])
def test_slots_do_not_matter(call, golden, tmp_path, slots):
    """The kernels solve few worlds, and many, in other ways."""
    call("run", *exact_runs.words("lstm-bodies"), "--set", f"compute.slots={slots}", "-o", "run").ok()
    assert exact_runs.digests(tmp_path / "run", "lstm-bodies") == only(golden, "lstm-bodies")


@x86
@pytest.mark.parametrize("name", ["dag", pytest.param("wind-bodies", marks=pytest.mark.slow)])
def test_an_older_processor_agrees(command, golden, name):
    done = command("run", "numpy", name, module="exact_runs", **MASKED)
    assert said(done) == [only(golden, name)]


def play(words, folder, *path, backends="native,numpy", **env):
    """Return what a Python, started by words, finds natively and by arrays, importing from folders."""
    env["PYTHONPATH"] = os.pathsep.join(map(str, [*path, HELPERS]))
    process = Process([*words, "-m", "exact_runs", backends], environment(**env), folder)
    try:
        return said(process.wait(3400))
    finally:
        process.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang: apt-get install clang")
@pytest.mark.cold
def test_another_compiler_agrees(golden, tmp_path):
    assert fused(build_package(tmp_path, "clang", sysconfig.get_config_var("EXT_SUFFIX"))) == []
    assert play([sys.executable], tmp_path, tmp_path) == all_of(golden, "native", "numpy")


@pytest.mark.slow
@nehalem
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_an_emulated_old_processor_agrees(golden, tmp_path):
    # OpenBLAS, which nothing of ours uses, takes an emulated processor for another and dies.
    found = play([*NEHALEM, sys.executable], tmp_path, ROOT, OPENBLAS_CORETYPE="Nehalem")
    assert found == all_of(golden, "native", "numpy")


@pytest.mark.slow
@nehalem
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_each_clone_of_the_kernels_agrees(golden, tmp_path):
    """Nehalem above takes the clones for SSE2, this processor those for AVX-512 if it has it, and Haswell AVX2."""
    # NumPy's own argsort for AVX2 dies under this emulator.
    env = {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 X86_V3"}
    found = play([*HASWELL, sys.executable], tmp_path, ROOT, backends="native", **env)
    assert found == all_of(golden, "native")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(bool(arm64.lacking()), reason=arm64.lacking())
def test_an_emulated_arm64_agrees(golden, tmp_path):
    try:
        root = arm64.root()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no Python for ARM64 could be made here: {error}\n{error.output[-1000:]}")
    assert fused(build_package(tmp_path, arm64.COMPILER, arm64.suffix(root))) == []
    assert play(arm64.python(root), tmp_path, tmp_path, root / "site") == all_of(golden, "native", "numpy")
