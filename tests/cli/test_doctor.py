"""evolve doctor: what works and what is missing, whatever is broken."""

import copy
import errno
import os
import platform
import signal
import sys
import tempfile
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from conftest import OPENMPI, ROOT

from evolve.analysis import contest
from evolve.analysis.contest import session
from evolve.cli import doctor as installation
from evolve.cli.doctor import EXTRAS, examine, run_probe
from evolve.cluster import Transport, hosts
from evolve.errors import InputError, RunError, Stopped
from evolve.numerics import cupy_device, native

GPU = {"NVRTC": "13.5", "name": "a GPU", "architecture": "sm_90", "free_bytes": 8e10, "driver": 13020, "runtime": 13000}
VALIDATE = session.validate
NO_CUPY = {"NVRTC": "13.5", "error": ["a working CuPy", "ModuleNotFoundError"]}


@pytest.fixture
def examined(monkeypatch, tmp_path):
    """Examine with the given answers of processes, by default without known runs; return (state, text) by part."""
    monkeypatch.setattr(installation, "DRIVER_FILE", tmp_path / "driver")

    def findings(ranks=(2, "Open MPI v5.0.11, and more", "4.1.2"), gpu=NO_CUPY, transport=None, validate=lambda *_: {}):
        monkeypatch.setattr(session, "validate", validate)

        def ask(words, _environment, _check):
            found = ranks if "-n" in words else gpu
            return (None, found) if isinstance(found, str) else (found, "")

        monkeypatch.setattr(installation, "run_probe", ask)
        found = examine(Transport() if transport is None else transport)
        parts = {each.part: (each.state, each.text) for each in found if each.part != "extras"}
        return parts | {f"extras that are {each.state}": each.text for each in found if each.part == "extras"}

    return findings


@pytest.mark.cold
@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
def test_this_installation_works(call):
    done = call("doctor")
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) <= 12
    states = {line.split()[0]: line.split()[1] for line in done.out.splitlines() if not line.startswith("extras")}
    assert states["MPI"] == "works", done.out
    assert "two ranks met by mpi4py" in done.out
    assert states["evolve"] == states["cores"] == states["engines"] == "works"
    assert states["kernels"] == ("works" if native.available() else "missing")


@pytest.mark.cold
@pytest.mark.parametrize(
    ("module", "said"),
    [("raise OSError('no libcuda')", "OSError: no libcuda"), ("import os; os.abort()", "exit code -6")],
)
def test_a_cupy_that_cannot_be_imported_is_broken(call, tmp_path, monkeypatch, module, said):
    (tmp_path / "cupy.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)  # for this process; the process that opens the GPU has PYTHONPATH
    monkeypatch.setattr(hosts, "find_launchers", lambda: iter(()))
    done = call("doctor", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.code, done.err) == (1, ""), done.out
    (line,) = (line for line in done.out.splitlines() if line.startswith("GPU"))
    assert line.split()[1] == "broken"
    assert said in line
    assert "MPI      missing" in done.out


@pytest.mark.cold
def test_a_process_that_hangs_is_ended():
    begin = time.monotonic()
    hangs = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert run_probe(hangs, os.environ, Mock(), 0.5) == (None, "no answer within 0.5 s")
    with pytest.raises(Stopped):
        run_probe(hangs, os.environ, Mock(side_effect=Stopped))
    assert time.monotonic() - begin < 300
    found, why = run_probe(["/nowhere/mpirun"], os.environ, Mock())
    assert found is None
    assert "/nowhere/mpirun" in why


def test_a_full_disk_is_a_reason(monkeypatch):
    monkeypatch.setattr(tempfile, "mkdtemp", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    assert run_probe(["true"], os.environ, Mock()) == (None, "[Errno 28] No space left on device")


def test_an_interrupt_ends_the_processes(call, monkeypatch):
    """Whoever waits for an MPI that hangs presses Ctrl-C."""
    launcher = Mock(path="sh", more_ranks_than_cores=Mock(return_value=["-c", "sleep 600"]))
    monkeypatch.setattr(installation, "is_installed", lambda *_: True)
    monkeypatch.setattr(installation, "Launcher", Mock(find=Mock(return_value=launcher)))
    monkeypatch.setattr(native, "available", lambda: signal.raise_signal(signal.SIGINT))
    begin = time.monotonic()
    done = call("doctor")
    assert (done.code, done.out, done.err) == (75, "", "evolve.doctor: stopped by SIGINT\n")
    assert time.monotonic() - begin < 100


LAUNCHER = """
import subprocess, sys, time
rank = subprocess.Popen(["sleep", "600"], process_group=0)
open(sys.argv[1], "w").write(str(rank.pid))
time.sleep(600)
"""


@pytest.mark.cold
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the children of a process")
def test_the_ranks_of_a_launcher_that_hangs_are_ended(tmp_path):
    file = tmp_path / "rank"
    words = [sys.executable, "-IS", "-c", LAUNCHER, str(file)]
    assert run_probe(words, os.environ, Mock(), 2.0) == (None, "no answer within 2 s")
    deadline = time.monotonic() + 60
    with suppress(psutil.NoSuchProcess):
        rank = psutil.Process(int(file.read_text()))
        while rank.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
def test_ranks_that_do_not_meet_are_broken(examined):
    state, text = examined(ranks=(1, "MPICH Version: 4.3.0\n...", "4.1.2"))["MPI"]
    assert state == "broken"
    assert "mpirun of Open MPI 5" in text
    assert "is not the one of MPICH Version: 4.3.0, which mpi4py loads. Use its own mpirun" in text
    state, text = examined(ranks="no answer within 120 s")["MPI"]
    assert (state, text.rpartition(": ")[2]) == ("broken", "no answer within 120 s")


def test_kernels_of_other_headers_are_broken(examined, monkeypatch):
    def refuse():
        raise RunError("native kernels: built from others")

    monkeypatch.setattr(native, "available", refuse)
    assert examined()["kernels"] == ("broken", "native kernels: built from others")


def test_without_mpi_the_command_installs_it(examined, absent, monkeypatch):
    monkeypatch.chdir(ROOT)
    absent("mpi4py")
    assert examined()["MPI"] == ("missing", "one process needs no MPI; for several processes: pip install -e '.[mpi]'")


def test_under_mpirun_no_other_ranks_are_started(examined):
    rank = SimpleNamespace(size=3, host="here", hosts=["here"] * 3, library="Open MPI v5.0.11")
    assert examined(transport=rank, ranks="must not be asked")["MPI"] == (
        "works",
        "this is rank 0 of 3, by Open MPI v5.0.11",
    )


@pytest.mark.parametrize(
    ("driver", "extra"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12", "gpu-cuda12"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release", "gpu"),
    ],
)
def test_the_driver_decides_which_cupy_is_missing(examined, absent, monkeypatch, driver, extra):
    monkeypatch.chdir(ROOT)
    absent("cupy")
    assert "neither an NVIDIA driver nor CuPy" in examined()["GPU"][1]
    installation.DRIVER_FILE.write_text(driver)
    state, text = examined()["GPU"]
    assert state == "missing"
    assert text.endswith(f", but no CuPy: pip install -e '.[{extra}]'")


def test_a_system_that_does_not_name_its_libc_has_no_empty_entry(examined, monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))  # as on macOS
    assert examined()["evolve"][1].endswith(f" {platform.machine()}")


def test_the_facts_about_a_gpu_or_its_error_are_found(monkeypatch):
    monkeypatch.setattr(cupy_device, "load_nvrtc", lambda: None)
    monkeypatch.setattr(cupy_device, "open_device", lambda: SimpleNamespace(name="a GPU", facts=lambda: {"driver": 1}))
    assert installation.try_gpu() == {"NVRTC": False, "name": "a GPU", "driver": 1}
    monkeypatch.setattr(cupy_device, "open_device", Mock(side_effect=InputError("backend", "a GPU", "none")))
    assert installation.try_gpu() == {"NVRTC": False, "error": ["a GPU", "none"]}


def test_a_gpu_is_described(examined):
    found = examined(gpu=GPU)
    assert found["GPU"] == ("works", "a GPU, sm_90, 80 GB free; driver for CUDA 13.2, CuPy for CUDA 13.0")
    assert found["NVRTC"][0] == "works"
    assert examined(gpu=NO_CUPY | {"NVRTC": False})["NVRTC"][0] == "missing"


@pytest.mark.parametrize(
    ("expected", "state"),
    [("a GPU", "missing"), ("a driver that finds a GPU", "missing"), ("a working CuPy", "broken")],
)
def test_a_gpu_that_is_not_there_is_not_broken(examined, monkeypatch, expected, state):
    monkeypatch.setattr(installation, "is_installed", lambda *_: True)
    found = examined(gpu=NO_CUPY | {"error": [expected, "an error"]})
    assert found["GPU"] == (state, f"expected {expected}, got an error")


def test_kernels_are_missing_or_compute_the_wrong_bits(examined, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(native, "available", lambda: False)
        state, text = examined()["kernels"]
        assert state == "missing"
        assert f"pip install -e {ROOT}" in text
    if native.available():
        state, text = examined(validate=VALIDATE)["kernels"]
        assert (state, text.rpartition("; ")[2]) == ("works", f"{len(contest.LEGS)} known runs have their digests")
        golden = copy.deepcopy(contest.golden())
        golden["sizes"]["trial"]["walker"]["digest"] = "0" * 64
        monkeypatch.setattr(contest, "golden", lambda: golden)
        state, text = examined(validate=VALIDATE)["kernels"]
        assert (state, text.partition(", ")[0]) == ("broken", "different work: walker")
        assert f"pip install -e {ROOT}" in text


def test_every_extra_is_known(examined, absent, monkeypatch):
    monkeypatch.chdir(ROOT)
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    reported_elsewhere = {"mpi", "mpich", "gpu", "gpu-cuda12"}
    assert set(EXTRAS) == set(extras) - reported_elsewhere - {"docs", "test"}
    absent("shtab", "onnx", "torch", "jinja2")
    found = examined()
    assert "completion (Tab completion)" in found["extras that are missing"]
    assert found["extras that are missing"].endswith("pip install -e '.[report,onnx,torch,completion]'")
    assert "stats" in found["extras that are works"]
