"""The door to CuPy, with CuPy's functions over the emulated device: rollouts run through it, and errors have names."""

import gc
import importlib.util
import inspect
import re
import sys
import threading
import types
from contextlib import suppress

import numpy as np
import pytest
from conftest import ROOT
from emulation import EmulatedDevice, emulation_available
from emulation.cuda import Cuda, CudaError, Driver, Runtime

from evolve.errors import InputError, RunError
from evolve.numerics import cupy_device, device, device_protocol
from evolve.numerics.cupy_device import CupyDevice, open_device
from evolve.numerics.device import DeviceArrays
from evolve.numerics.device_protocol import DeviceMemoryError, local_ranks

pytestmark = pytest.mark.skipif(not emulation_available(), reason="no gcc or no NVRTC")


@pytest.fixture
def cuda(monkeypatch, no_device):
    """A `cupy` in place, and its GPU as the device of this process."""
    made = Cuda(EmulatedDevice())
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=made))
    monkeypatch.setattr(cupy_device, "machine_code", lambda architecture, unit: f"{architecture} {unit}".encode())
    for names in device_protocol.LOCAL_RANKS:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    return made


def rollout_tests(name="inference"):
    """The tests of inference, or of "play", on a device, as a module."""
    path = ROOT / f"tests/rollouts/test_device_{name}.py"
    spec = importlib.util.spec_from_file_location("rollouts_on_a_device", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parameters(function):
    """The parameters of a function of CuPy, by name; its docstring begins with its signature in Cython."""
    given = re.match(r"\w+\((.*?)\)", function.__doc__)[1]
    return [parameter.split()[-1] for parameter in given.split(", ")] if given else []


@pytest.mark.parametrize("part", [Runtime, Driver, Cuda])
def test_the_functions_in_use_are_those_of_cupy(part):
    cuda = pytest.importorskip("cupy").cuda
    theirs = {Runtime: cuda.runtime, Driver: cuda.driver, Cuda: cuda}[part]
    ours = {name: function for name, function in vars(part).items() if not name.startswith("_")}
    for name, function in ours.items():
        names = list(inspect.signature(getattr(function, "__func__", function)).parameters)
        assert parameters(getattr(theirs, name)) == [each for each in names if each != "self"], name


def test_cupy_without_a_driver_is_refused_in_a_sentence(no_device):
    cuda = pytest.importorskip("cupy").cuda
    assert issubclass(cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cuda.driver.CUDADriverError, RuntimeError)
    with suppress(RuntimeError):
        pytest.skip(f"there are {cuda.runtime.getDeviceCount()} GPUs")
    with pytest.raises(InputError, match="expected a driver that finds a GPU, got cudaError"):
        open_device()


def test_the_first_part_of_the_gpu_benchmark_runs_through_cupy(cuda, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    machine = importlib.import_module("gpu_parts.machine")
    opened = device.device()
    about = machine.about(opened)
    assert (about["architecture"], about["multiprocessors"], about["driver"]) == ("sm_90", 132, 13000)
    effort = machine.Effort(0, 0.0)
    assert machine.memory_bandwidth(opened, 2**16, effort) > 0
    assert all(rate > 0 for rate in machine.bus_bandwidth(opened, 2**16, effort).values())
    assert opened.allocated == 0


@pytest.mark.parametrize("halves", [False, True])
def test_rollouts_run_through_cupy(cuda, halves):
    there = rollout_tests()
    network = {"name": "hebbian-dag", "hidden": [4], "plasticity": 0.5}
    rollout, batch = there.setting("toys:Switches-v0", network, normalize=True)
    assert there.play(rollout(4, "cupy", halves), batch) == there.play(rollout(3, "numpy"), batch)
    assert isinstance(device.device(), CupyDevice)
    assert device.device().name == "an emulated GPU"


def test_whole_episodes_run_through_cupy(cuda):
    there = rollout_tests("play")
    there.agree(("CartPole-v1", there.LSTM, True), 40, genomes=3)
    assert list(device.device().modules) == ["", "hebbian_lstm, cart_pole"]


def test_memory_and_streams_are_given_back(cuda):
    arrays = DeviceArrays(40)
    columns = arrays.columns(7)
    columns.put(np.arange(40), np.ones((40, 7)))
    assert cuda.runtime.streams
    assert device.device().allocated == sum(memory.nbytes for memory in cuda.runtime.memory.values()) > 0
    del arrays, columns
    gc.collect()
    assert device.device().allocated == 0
    assert not cuda.runtime.memory
    assert not cuda.runtime.streams


@pytest.mark.parametrize(("ranks", "share"), [((0, 1), 1), ((3, 4), 4)])
def test_ranks_share_the_memory(cuda, monkeypatch, ranks, share):
    monkeypatch.setattr(cupy_device, "local_ranks", lambda: ranks)
    assert device.device().free_memory() == int(2**30 * 0.9) // share


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "5", "OMPI_COMM_WORLD_LOCAL_SIZE": "8", "SLURM_LOCALID": "0"}, (5, 8)),
        ({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, (1, 2)),
        ({"SLURM_LOCALID": "3", "SLURM_STEP_TASKS_PER_NODE": "4,8(x20)"}, (3, 8)),
        ({"SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "8"}, (0, 1)),  # a batch script, which srun has not started
        ({}, (0, 1)),
    ],
)
def test_launchers_give_the_ranks_of_a_host(cuda, monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert local_ranks() == expected


def test_too_little_memory_is_no_other_failure(cuda):
    with pytest.raises(DeviceMemoryError):
        device.device().allocate(2**31)
    cuda.runtime.fail["malloc"] = CudaError(2, "cudaErrorMemoryAllocation")
    with pytest.raises(DeviceMemoryError):
        device.device().allocate(8)
    cuda.runtime.fail["malloc"] = CudaError(700, "cudaErrorIllegalAddress")
    with pytest.raises(RunError, match="the GPU failed while allocating memory: cudaErrorIllegalAddress"):
        device.device().allocate(8)


def test_a_gpu_that_fails_ends_the_run_in_a_sentence(cuda):
    arrays = DeviceArrays(4)
    cuda.runtime.fail["streamSynchronize"] = CudaError(700, "cudaErrorIllegalAddress")
    with pytest.raises(RunError, match="the GPU failed while computing: cudaErrorIllegalAddress"):
        arrays.wait()
    cuda.runtime.fail["memcpyAsync"] = CudaError(1, "cudaErrorInvalidValue")
    with pytest.raises(RunError, match="the GPU failed while copying: cudaErrorInvalidValue"):
        arrays.uploads(np.ones(3))
    cuda.runtime.fail.clear()


@pytest.mark.parametrize(
    ("status", "expected"), [(100, "expected a GPU, got no GPU"), (35, "expected a driver that finds")]
)
def test_without_a_gpu_or_its_driver(cuda, status, expected):
    cuda.runtime.fail["getDeviceCount"] = CudaError(status, "cudaError")
    with pytest.raises(InputError, match=expected):
        open_device()


@pytest.mark.parametrize("module", ["raise OSError('no such library')", "pass  # without its part `cuda`"])
def test_a_damaged_cupy_is_refused_in_a_sentence(no_device, monkeypatch, tmp_path, module):
    (tmp_path / "cupy.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", None)  # so that the module is removed after the test
    monkeypatch.delitem(sys.modules, "cupy")
    with pytest.raises(InputError, match=r"expected a working CuPy, got \w+Error"):
        open_device()
    assert not device.has_device()


def test_each_thread_sets_its_gpu(cuda, monkeypatch):
    # A new thread may get the identifier of one that has ended.
    same = types.SimpleNamespace(get_ident=lambda: 7, current_thread=threading.current_thread)
    monkeypatch.setattr(cupy_device, "threading", same)
    device.device()
    chosen = []
    monkeypatch.setattr(cuda.runtime, "setDevice", lambda number: chosen.append((number, threading.get_ident())))
    monkeypatch.setattr(cuda.runtime.emulated, "check_thread", lambda: None)
    thread = threading.Thread(target=lambda: DeviceArrays(4).wait())
    thread.start()
    thread.join()
    assert chosen[0] == (0, thread.ident)
