"""The machine code of the kernels: made for every architecture, of exact instructions only, and kept on disk."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from emulation import EmulatedDevice, NotExactError, emulation_available
from emulation.comparison import differences, same
from emulation.compiled import kept, ptx
from emulation.instructions import FUSED
from emulation.ptx import translate
from emulation.sources import only

from evolve.environments import TASKS
from evolve.errors import InputError
from evolve.numerics import cupy_device, portable
from evolve.numerics.cupy_device import EXACT_OPTIONS, compile_source, machine_code, source_files, unit_of

ARCHITECTURES = ("sm_75", "sm_90", "sm_120")
NETWORKS = sorted({path.stem for path in (ROOT / "evolve" / "networks" / "kernels").glob("*.h")} - {"steps"})
OLDEST = Path(os.environ.get("EVOLVE_NVRTC", ROOT / ".nvrtc")) / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
"""The first NVRTC of CUDA 13, which machines with a GPU have for years: `.ci/run` installs it beside the newest."""
needs_nvrtc = pytest.mark.skipif(cupy_device.load_nvrtc() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
needs_emulation = pytest.mark.skipif(not emulation_available(), reason="no gcc or no NVRTC")


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_is_exact(architecture):
    kernels = translate(ptx(architecture))  # raises NotExactError
    others = {"hebbian_dag_settle", "hebbian_lstm_settle", "put_32", "take_64", "clear_16", "move_32", "tanh"}
    assert {f"evolve_{name}" for name in {*NETWORKS, *others}} <= kernels.keys()


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_becomes_machine_code(architecture):
    code = kept(
        repr((source_files(), EXACT_OPTIONS, architecture)),
        ".cubin",
        lambda path: path.write_bytes(cubin(architecture)),
    )
    assert code.read_bytes().startswith(b"\x7fELF")
    assert all(f"\0{name}\0".encode() in code.read_bytes() for name in translate(ptx(architecture)))


def cubin(architecture):
    return compile_source(source_files(), architecture, "CUBIN")


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("task", sorted({task.kernel for task in TASKS.values()}))
@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_and_task_is_exact(network, task):
    kernel = f"play_{network}_on_{task}"
    assert unit_of(kernel) == f"{network}, {task}"
    files = source_files(unit_of(kernel))
    for architecture in ARCHITECTURES:
        assert list(translate(ptx(architecture, files))) == [f"evolve_{kernel}"]
    assert compile_source(files, "sm_90", "CUBIN").startswith(b"\x7fELF")


@needs_nvrtc
@pytest.mark.parametrize(
    "wrong", ["--fmad=true", "--use_fast_math", "--ftz=true", "--prec-div=false", "--prec-sqrt=false"]
)
def test_a_wrong_option_is_refused(wrong):
    files = only("tanh")
    files["kernels.cu"] += (
        '\nextern "C" __global__ void evolve_root(float *x) { *x = sqrtf(*x) / x[1] + x[2] * x[3]; }\n'
    )
    translate(ptx("sm_90", files))
    kept_options = EXACT_OPTIONS if "fast" not in wrong else ("--std=c++17",)  # the exact options would win
    options = (*(option for option in kept_options if option.partition("=")[0] not in wrong), wrong)
    with pytest.raises(NotExactError, match=r"evolve_.*is not known to give the same bits everywhere"):
        translate(ptx("sm_90", files, options))


def special_values():
    denormals = np.array([1, 2, 0x7FFFFF, 0x400000], np.uint32)
    positive = np.concatenate([[0, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x3F800000], denormals])
    return np.concatenate([positive, positive | 0x80000000]).astype(np.uint32)


def of_device(device, name, x):
    queue = device.queue()
    memory = device.allocate(2 * x.nbytes)
    y = np.empty_like(x)
    queue.upload(memory.address, x)
    queue.launch(name, -(-len(x) // 256), 8, memory.address, memory.address + x.nbytes, len(x))
    queue.download(memory.address + x.nbytes, y)
    queue.wait()
    return y


@needs_emulation
@pytest.mark.parametrize("name", ["tanh", "exp", "sigmoid"])
def test_functions_over_all_bit_patterns(name):
    stride = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([stride, special_values()]).view(np.float32)
    with np.errstate(invalid="ignore"):
        wanted = getattr(portable, name)(x)
    assert same(of_device(EmulatedDevice(files=only(name)), name, x), wanted)


@needs_emulation
def test_contraction_would_change_bits():
    options = ("--fmad=true", *(option for option in EXACT_OPTIONS if "fmad" not in option))
    contracted = EmulatedDevice(files=only("layered", "16", "32", "64"), options=options, allow=FUSED)
    assert {"actions", "fingerprints"} <= set(differences(contracted, {"name": "mlp"}, slots=8, steps=3))


@needs_nvrtc
def test_sources_that_do_not_compile():
    with pytest.raises(InputError, match=r"compute.backend: .*kernels that compile for sm_90.*undefined") as error:
        compile_source({"kernels.cu": 'extern "C" __global__ void f() { nobody_knows(); }'}, "sm_90", "PTX")
    assert "\n" not in str(error.value)


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    """What is compiled, without doing it, with an empty cache in `tmp_path`."""
    made = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def count(files, architecture, kind):
        made.append(architecture)
        return f"code for {architecture}".encode()

    monkeypatch.setattr(cupy_device, "compile_source", count)
    monkeypatch.setattr(cupy_device, "nvrtc_version", lambda: (13, 0))
    return made


def test_code_is_compiled_once(tmp_path, compilations):
    for _ in range(3):
        assert machine_code("sm_90") == b"code for sm_90"
        assert machine_code("sm_120") == b"code for sm_120"
    assert compilations == ["sm_90", "sm_120"]
    assert len(list((tmp_path / "evolve").iterdir())) == 2  # nothing else is left


def test_other_sources_or_another_compiler_need_other_code(compilations, monkeypatch):
    machine_code("sm_90")
    changed = source_files() | {"exact.h": "/* nothing */"}
    with monkeypatch.context() as patch:
        patch.setattr(cupy_device, "source_files", lambda unit="": changed)
        machine_code("sm_90")
    monkeypatch.setattr(cupy_device, "nvrtc_version", lambda: (13, 1))
    machine_code("sm_90")
    assert len(compilations) == 3


def test_a_cache_that_cannot_be_written_is_no_hindrance(tmp_path, compilations, monkeypatch):
    (tmp_path / "evolve").write_text("in the way")
    for place in (tmp_path, tmp_path / "evolve") * 2:
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        assert machine_code("sm_90") == b"code for sm_90"
    assert len(compilations) == 4


def test_a_user_without_a_home_has_no_cache(tmp_path, compilations, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as without HOME and an entry in /etc/passwd
    assert machine_code("sm_90") == b"code for sm_90"
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_made_again(tmp_path, compilations):
    machine_code("sm_90")
    (kept,) = (tmp_path / "evolve").iterdir()
    kept.write_bytes(kept.read_bytes()[:4])
    assert machine_code("sm_90") == b"code for sm_90"
    assert len(compilations) == 2


@pytest.fixture
def nvrtc_at(monkeypatch):
    """Look for NVRTC only at some paths."""

    def look(*paths):
        monkeypatch.setattr(cupy_device, "nvrtc_candidates", lambda: list(map(str, paths)))
        cupy_device.load_nvrtc.cache_clear()
        cupy_device.nvrtc_version.cache_clear()

    yield look
    cupy_device.load_nvrtc.cache_clear()
    cupy_device.nvrtc_version.cache_clear()


@pytest.mark.skipif(not OLDEST.exists(), reason="no old NVRTC: pip install --target .nvrtc nvidia-cuda-nvrtc==13.0.88")
def test_the_oldest_compiler_makes_exact_kernels_too(nvrtc_at):
    nvrtc_at(OLDEST)
    assert cupy_device.nvrtc_version() == (13, 0)
    play = source_files("layered, cart_pole")
    assert list(translate(ptx("sm_90", play))) == ["evolve_play_layered_on_cart_pole"]
    assert len(translate(ptx("sm_90"))) > len(NETWORKS)
    assert compile_source(play, "sm_90", "CUBIN").startswith(b"\x7fELF")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_compiler_that_does_not_find_its_builtins_gets_them(nvrtc_at, tmp_path):
    """In the wheel of 13.0.88, NVRTC opens its builtins by name, and has no path to them."""
    library, builtins = tmp_path / "libnvrtc.so.99", tmp_path / "libnvrtc-builtins.so.99.0"
    program = """
        #include <dlfcn.h>
        int nvrtcVersion(int *major, int *minor)
        {
            *major = 99;
            *minor = 0;
            return dlopen("libnvrtc-builtins.so.99.0", RTLD_LAZY) == 0;
        }"""
    for text, path in ((program, library), ("int builtins;", builtins)):
        words = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-x", "c", "-", "-o", path, "-ldl"]
        subprocess.run(words, input=text.encode(), check=True)
    (tmp_path / "libnvrtc-builtins.alt.so.99.0").write_text("for debugging, and never loaded")
    nvrtc_at(library)
    assert cupy_device.nvrtc_version() == (99, 0)


def test_without_nvrtc(nvrtc_at):
    nvrtc_at("/nowhere/libnvrtc.so.13")
    assert cupy_device.load_nvrtc() is None
    with pytest.raises(InputError, match=r"NVRTC.*no library that can be loaded.*pip install .*\[gpu\]'") as error:
        machine_code("sm_90")
    assert error.value.argument == "compute.backend"
    assert "\n" not in str(error.value)
