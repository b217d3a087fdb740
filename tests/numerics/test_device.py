"""A device that is missing or too small is refused in one sentence, with the missing part and how to get it."""

import importlib
import sys
import types
from dataclasses import replace

import pytest
from emulation import emulation_available

from evolve.config import Config, parse
from evolve.environments.exact import exact_task
from evolve.errors import InputError, install_command
from evolve.numerics import backend, cupy_device, host_backend
from evolve.rollouts.device_play import in_whole_blocks
from evolve.training import prepare
from evolve.training.experiment import load_config
from evolve.training.rollouts import choose_backend, rollout_of, with_fitting_slots

TABLE = {"env": {"id": "CartPole-v1"}, "network": {"name": "hebbian-dag"}, "compute": {"backend": "cupy"}}


class FakeRuntime:
    """CUDA's runtime on a machine with some GPUs, none of which is free."""

    def __init__(self, count):
        self._count = count

    def getDeviceCount(self):  # noqa: N802 - CUDA's name
        return self._count

    def setDevice(self, number):  # noqa: N802 - CUDA's name
        raise RuntimeError(f"cudaErrorDevicesUnavailable: GPU {number} is busy")


@pytest.fixture
def cuda(monkeypatch, no_device):
    """Install a CuPy with another runtime."""

    def install(runtime):
        driver = types.SimpleNamespace()
        cuda = types.SimpleNamespace(runtime=runtime, driver=driver, alloc_pinned_memory=bytearray)
        monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))

    return install


def refusal():
    with pytest.raises(InputError) as caught:
        backend("cupy")
    return str(caught.value)


def test_without_cupy(no_device, absent):
    absent("cupy")
    message = refusal()
    assert message.startswith("compute.backend: expected a working CuPy, got ")
    assert f"Install it: {install_command('gpu')}. For CUDA 12 the extra is gpu-cuda12" in message
    assert 'compute.backend="auto": its results are the same to the bit' in message


@pytest.mark.parametrize(("rank", "number"), [("0", 0), ("5", 1)])
def test_ranks_of_a_host_take_its_gpus_in_turn(cuda, monkeypatch, rank, number):
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", rank)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "6")
    cuda(FakeRuntime(count=2))
    assert f"expected GPU {number} to be usable, got cudaErrorDevicesUnavailable: GPU {number} is busy" in refusal()


def test_what_is_too_little_for_a_gpu_is_done_on_the_host():
    assert host_backend("cupy") == host_backend("auto")
    assert host_backend("numpy") == "numpy"


def test_the_command_line_refuses_it_once(call, no_device, absent):
    absent("cupy")
    call("run", "-g", 1, "--backend", "cupy", "-o", "run").refused(
        "compute.backend (--backend): expected a working CuPy"
    )


@pytest.mark.parametrize(("engine", "capacity"), [("gymnasium", 2**24), ("exact", 2**25)])
def test_too_little_memory_names_the_slots_that_fit(emulated_device, monkeypatch, engine, capacity):
    monkeypatch.setattr(emulated_device, "capacity", capacity)
    env = {"id": "CartPole-v1", "engine": engine}
    experiment = prepare(parse(Config, TABLE | {"env": env, "compute": {"backend": "cupy", "slots": 4096}}))

    def with_slots(slots):
        compute = experiment.config.compute.model_copy(update={"slots": slots})
        return replace(experiment, config=experiment.config.model_copy(update={"compute": compute}))

    expected = (
        r"compute.slots: expected at most [\d,]+ slots, which fit into the [\d,]+ free bytes of an emulated device"
    )
    with pytest.raises(InputError, match=expected) as caught:
        with_fitting_slots(experiment)
    fitting = int(str(caught.value).split("at most ")[1].split()[0].replace(",", ""))
    assert 64 <= fitting < 4096
    with_fitting_slots(with_slots(fitting))
    rollout_of(with_slots(fitting).config)
    with pytest.raises(InputError, match=r"compute\.slots"):
        with_fitting_slots(with_slots(fitting + 64))
    rollout_of(with_slots(4096).config)  # by a rank whose device has less memory than that of rank 0
    monkeypatch.setattr(emulated_device, "capacity", 2**14)
    with pytest.raises(InputError, match=r"compute\.slots"):
        rollout_of(with_slots(4096).config)


EXACT = {"id": "CartPole-v1", "engine": "exact"}
SIZES = {"population": 96, "episodes": 20}


@pytest.mark.parametrize(
    ("env", "compute", "slots"),
    [(EXACT, {}, 1920), (EXACT, {"slots": 70}, 70), ({"id": "CartPole-v1"}, {}, None)],
)
def test_a_device_has_a_slot_for_each_episode_of_a_generation(emulated_device, env, compute, slots):
    table = TABLE | SIZES | {"env": env, "compute": {"backend": "cupy"} | compute}
    chosen, _ = choose_backend(prepare(parse(Config, table)))
    # By default an environment on the host has as many slots as without a device.
    assert chosen.rollout_spec.slots == (slots or chosen.config.compute.slots)
    assert chosen.on("native").compute.slots == chosen.config.compute.slots  # the host's


def test_a_device_has_fewer_slots_if_more_do_not_fit(emulated_device, monkeypatch):
    monkeypatch.setattr(emulated_device, "capacity", 2**25)
    chosen, _ = choose_backend(prepare(parse(Config, TABLE | SIZES | {"env": EXACT, "compute": {"backend": "cupy"}})))
    assert 64 <= chosen.rollout_spec.slots < 1920
    rollout_of(load_config(chosen.rollout_spec.experiment)).close()
    monkeypatch.setattr(emulated_device, "capacity", 2**20)
    with pytest.raises(InputError, match=r"compute\.slots: expected at most 0 slots"):
        choose_backend(prepare(parse(Config, TABLE | {"env": EXACT, "compute": {"backend": "cupy"}})))


@pytest.mark.parametrize("capacity", [2**20, 2**23, 2**24])
def test_a_device_without_memory_for_a_world_is_refused(emulated_device, monkeypatch, capacity):
    monkeypatch.setattr(emulated_device, "capacity", capacity)
    table = {"env": {"id": "LunarLander-v3", "engine": "exact"}, "network": {"name": "mlp"}}
    with pytest.raises(InputError, match=r"compute\.slots: expected at most 0 slots"):
        choose_backend(prepare(parse(Config, table | {"compute": {"backend": "cupy"}})))


@pytest.mark.parametrize("capacity", [139_460_608, 150_000_000, 171_000_000])
def test_slots_that_fit_also_fit_in_whole_blocks(emulated_device, monkeypatch, capacity):
    """Rigid bodies round the slots up to blocks of several tiles."""
    monkeypatch.setattr(emulated_device, "capacity", capacity)
    env, network = {"id": "LunarLander-v3", "engine": "exact"}, {"name": "mlp", "hidden": [64, 64]}
    table = {"env": env, "network": network, "population": 256, "episodes": 10, "compute": {"backend": "cupy"}}
    chosen, _ = choose_backend(prepare(parse(Config, table)))
    rollout = rollout_of(load_config(chosen.rollout_spec.experiment))
    assert 64 <= chosen.rollout_spec.slots < 2560
    assert rollout.play.slots == in_whole_blocks(exact_task(chosen.config.env), chosen.rollout_spec.slots)


def test_the_command_line_refuses_too_many_slots_before_there_is_a_file(call, emulated_device, monkeypatch, tmp_path):
    monkeypatch.setattr(emulated_device, "capacity", 2**20)
    call("run", "-g", 1, "--backend", "cupy", "--set", "compute.slots=4096", "-o", "run").refused(
        "compute.slots: expected at most 0 slots"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not emulation_available(), reason="no gcc or no NVRTC")
def test_many_ranks_are_refused_too_many_slots_once(command):
    words = ("-e", "CartPole-v1", "-g", 1, "--backend", "cupy", "--set", "compute.slots=4096", "-o", "run")
    done = command("run", *words, module="emulated_run", ranks=3, EMULATED_CAPACITY="8_000_000")
    assert done.code == 2
    assert done.err.count("compute.slots: expected at most") == 1
    assert "Traceback" not in done.err


def test_cupy_has_the_functions_that_are_called():
    """Where CuPy is installed, with a GPU or without: the functions are there."""
    cupy = pytest.importorskip("cupy")
    for name in ("getDeviceCount", "setDevice", "getDeviceProperties", "deviceGetAttribute", "free", "malloc",
                 "memGetInfo", "memset", "memcpyAsync", "streamCreateWithFlags", "streamSynchronize",
                 "streamDestroy"):  # fmt: skip
        assert callable(getattr(cupy.cuda.runtime, name))
    for name in ("moduleLoadData", "moduleGetFunction", "launchKernel"):
        assert callable(getattr(cupy.cuda.driver, name))
    assert callable(cupy.cuda.alloc_pinned_memory)
    assert importlib.util.find_spec("cupy") is not None
    assert cupy_device.open_device
