"""evolve doctor: print what works in this installation, and what is missing.

The parts are MPI, kernels, cores, engines, a GPU, and extras.
Parts that may crash or hang, such as launchers and drivers, are tried in processes with a time limit.
"""

import json
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evolve import display
from evolve.analysis import progress
from evolve.cli.app import App
from evolve.cli.parser import Parser
from evolve.cluster import Transport
from evolve.cluster.cores import number_of_cores
from evolve.cluster.hosts import MPI_PROBE, Launcher, mpirun_environment, python_words
from evolve.cluster.supervision import SESSION_FOLDER, kill_launcher
from evolve.errors import SOURCE, InputError, how_to_build, install_command, is_installed, sanitize
from evolve.numerics import cupy_device, native, portable
from evolve.training.manifest import kernel_variant, machine_manifest, short_revision

EXTRAS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "box2d": ("Gymnasium's walkers, landers and cars", ("Box2D",)),
    "mujoco": ("HalfCheetah and similar tasks", ("mujoco",)),
    "envpool": ("EnvPool's environments", ("envpool",)),
    "plot": ("figures", ("matplotlib",)),
    "report": ("HTML pages", ("jinja2", "matplotlib")),
    "stats": ("rank tests", ("scipy",)),
    "tensorboard": ("event files for TensorBoard", ("tensorboardX",)),
    "onnx": ("champions as ONNX", ("onnx",)),
    "torch": ("champions as PyTorch", ("torch",)),
    "completion": ("Tab completion", ("shtab",)),
    "video": ("films", ("av", "PIL", "pygame")),
}
"""The purpose of each extra, and the modules that show whether it is installed.

MPI and the GPU are missing here, because they have findings of their own.
"""
SECONDS = 120.0
"""The time limit of a process; it includes the compilation of kernels for a GPU."""
_CHECK_EVERY = 0.1  # seconds between two checks whether to stop
_MARK = "evolve.doctor: "  # precedes the value in the output of a probe
_GPU_PROBE = f"""
import json
from evolve.cli.doctor import try_gpu
print({_MARK!r} + json.dumps(try_gpu()), flush=True)
"""
DRIVER = Path("/proc/driver/nvidia/version")
"""The file in which NVIDIA's driver states its version."""
_CUDA13 = 580
"""The first driver for CUDA 13."""

_ABSENT = "a GPU", "a driver that finds a GPU"
"""The `expected` of errors of `cupy_device.open_device` if no GPU is found, perhaps because the driver is too old."""

State = Literal["works", "missing", "broken"]


@dataclass(frozen=True)
class Finding:
    """The state of a part of the installation.

    Attributes:
        part: The name of the part.
        state: "broken" if it is installed but does not work.
        text: For a working part its versions or details, for a broken part the failure. For a missing part its purpose
            or the reason, and mostly the command that installs it.
    """

    part: str
    state: State
    text: str


def run_probe(
    words: Sequence[str], environment: Mapping[str, str], check: Callable[[], object], seconds: float = SECONDS
) -> tuple[Any, str]:
    """Run a process to its end. Return the JSON value that it printed after `_MARK`, or None and the reason.

    The process is killed after a number of seconds, or when `check`, which is called often, raises an error.
    """
    # The process has to import this copy of the package.
    path = os.pathsep.join(filter(None, [str(SOURCE), environment.get("PYTHONPATH", "")]))
    deadline = time.monotonic() + seconds
    answer: tuple[str, str] | None = None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="evolve-", ignore_cleanup_errors=True) as folder,
            subprocess.Popen(
                words,
                # Open MPI's launcher keeps files in this folder. If it is killed, this `with` block removes the files.
                env={**environment, "PYTHONPATH": path, SESSION_FOLDER: folder},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # `kill_launcher` kills the process group, which must not be this one
            ) as process,
        ):
            try:
                while answer is None:
                    check()
                    if time.monotonic() > deadline:
                        return None, f"no answer within {seconds:g} s"
                    # After a timeout, `communicate` may be called again, and loses no output.
                    with suppress(subprocess.TimeoutExpired):
                        answer = process.communicate(timeout=_CHECK_EVERY)
            finally:
                # Kill the process here, because `Popen.__exit__` waits for the end of the process.
                if process.poll() is None:
                    kill_launcher(process)
    except OSError as error:  # there is no such program, or no room for temporary files
        return None, f"{error}"
    out, err = answer
    # Libraries may print lines, too, so only the line with the mark counts.
    answers = [line.partition(_MARK)[2] for line in out.splitlines() if _MARK in line]
    if answers:
        return json.loads(answers[0]), ""
    # Without an answer, the last line is the reason, or the last line of an exception: launchers print more after it.
    said = [line for line in (err or out).splitlines() if line.strip(" -=*")]
    said = [line for line in said if re.match(r"[\w.]*Error: ", line.strip())] or said
    return None, f"exit code {process.returncode}: {said[-1].strip() if said else 'it printed nothing'}"


def examine(transport: Transport, check: Callable[[], object] = lambda: None) -> list[Finding]:
    """Return the state of every part.

    The probes start a process that opens a GPU. Unless this process is a rank already, they also start two ranks.

    check: Called often while the probes run. If it raises an error, the examination ends.
    """
    software = machine_manifest(transport)
    revision = f" ({short_revision(software['revision'])})" if software["revision"] else ""
    about = f"Python {platform.python_version()}", f"{platform.system()} {platform.machine()}", software["libc"].strip()
    evolve = Finding("evolve", "works", f"{software['evolve']}{revision}, {', '.join(filter(None, about))}")
    quick = [evolve, _kernels(), _cores(software["cpu"]), _engines(software["packages"])]
    return [*quick, _mpi(transport, check), *_gpu(check), *_extras()]


def _kernels() -> Finding:
    """Return the state of the native kernels. They must compute the same bits as `portable`."""
    x = np.linspace(-9, 9, 1000, dtype=np.float32)
    try:
        if not native.available():
            cure = f"Install a C compiler (gcc or clang). {how_to_build()}"
            return Finding("kernels", "missing", f"NumPy computes the same bits, and is slower. {cure}")
        equal = all(np.array_equal(native.apply(name, x), getattr(portable, name)(x)) for name in ("tanh", "exp"))
    except Exception as error:  # for example kernels that were built from other sources
        return Finding("kernels", "broken", f"{error}")
    if not equal:
        return Finding("kernels", "broken", f"their bits differ from NumPy's. {how_to_build()}")
    variant = kernel_variant() or "an unknown instruction set"
    compiler = native.build().partition(";")[0] or "an unknown compiler"
    return Finding("kernels", "works", f"native, {variant}, {native.lanes()} slots at a time, by {compiler}")


def _cores(cpu: str) -> Finding:
    cores, all_cores = number_of_cores(), os.cpu_count() or 1
    usable = f"{cores}" if cores == all_cores else f"{cores} of {all_cores}"
    return Finding("cores", "works", f"{usable} ({cpu}): exact tasks (evolve's own) play in as many threads")


def _engines(versions: Mapping[str, str]) -> Finding:
    families = ["classic control"]
    families += [name for name, module in (("Box2D", "Box2D"), ("MuJoCo", "mujoco")) if is_installed(module)]
    found = ["exact", f"gymnasium {versions.get('gymnasium', '')} ({', '.join(families)})"]
    if "envpool" in versions:
        found.append(f"envpool {versions['envpool']}")
    return Finding("engines", "works", ", ".join(found))


def _mpi(transport: Transport, check: Callable[[], object]) -> Finding:
    """Return the state of MPI: it works if two ranks of the launcher find each other by mpi4py."""
    if transport.size > 1:
        return Finding("MPI", "works", f"this is rank 0 of {transport.size}, by {transport.library}")
    if not is_installed("mpi4py"):
        return Finding("MPI", "missing", f"one process needs no MPI; for several processes: {install_command('mpi')}")
    try:
        launcher = Launcher.find()
    except InputError as error:
        state: State = "missing" if error.got == "none" else "broken"  # "none": there is no mpirun
        return Finding("MPI", state, f"mpi4py; expected {error.expected}, got {error.got}. {install_command('mpi')}")
    words = [launcher.path, *launcher.more_ranks_than_cores(), "-n", "2", *python_words(), "-c", MPI_PROBE, _MARK]
    found, why = run_probe(words, mpirun_environment(), check)
    started = f"mpirun of {launcher.version} ({launcher.path})"
    if found is None:
        return Finding("MPI", "broken", f"{started} starts no ranks with mpi4py: {why}")
    ranks, library, mpi4py = found
    library = re.split(r"[,\n]", library)[0].strip()
    # With the mpirun of another library, each process finds itself alone.
    if ranks != 2:
        cure = "Use its own mpirun, or set MPI4PY_LIBMPI to the library of this mpirun"
        return Finding("MPI", "broken", f"{started} is not the one of {library}, which mpi4py loads. {cure}")
    return Finding("MPI", "works", f"{started}; two ranks met by mpi4py {mpi4py} with {library}")


def _gpu(check: Callable[[], object]) -> list[Finding]:
    """Return the states of the GPU and of its compiler, NVRTC; of the GPU alone if the probe crashes or hangs."""
    driver = driver_version()
    extra = "gpu" if driver is None or driver >= _CUDA13 else "gpu-cuda12"
    found, why = run_probe([*python_words(), "-c", _GPU_PROBE], os.environ, check)
    # The probe has crashed or hung, for example in a driver.
    if found is None:
        return [Finding("GPU", "broken", why)]
    compiler = Finding("NVRTC", "missing", f"compiles the kernels of a GPU: {install_command(extra)}")
    if found["NVRTC"]:
        compiler = Finding("NVRTC", "works", f"{found['NVRTC']}, compiles the kernels of a GPU")
    if "error" not in found:
        about = f"{found['name']}, {found['architecture']}, {found['free_bytes'] / 1e9:.0f} GB free"
        versions = f"driver for CUDA {_cuda(found['driver'])}, CuPy for CUDA {_cuda(found['runtime'])}"
        return [Finding("GPU", "works", f"{about}; {versions}"), compiler]
    # No GPU was opened. If CuPy is installed, its error says why. Otherwise only a driver shows that there may be a
    # GPU.
    expected, got = found["error"]
    if is_installed("cupy"):
        # Without NVRTC no GPU can be opened, and CuPy may not load. Then no other part need be broken.
        state: State = "missing" if expected in _ABSENT or not found["NVRTC"] else "broken"
        return [Finding("GPU", state, f"expected {expected}, got {got}"), compiler]
    text = f"driver {driver}, but no CuPy: {install_command(extra)}"
    if driver is None:
        cure = f"Install a driver, then {install_command(extra)} (CUDA 12: the extra gpu-cuda12)"
        text = f"neither an NVIDIA driver nor CuPy. {cure}"
    return [Finding("GPU", "missing", text), compiler]


def try_gpu() -> dict[str, Any]:
    """Open a GPU; return the version of NVRTC, and the facts about the GPU or the error. It may crash this process."""
    found: dict[str, Any] = {"NVRTC": False}
    if cupy_device.load_nvrtc() is not None:
        found["NVRTC"] = ".".join(map(str, cupy_device.nvrtc_version()))
    try:
        device = cupy_device.open_device()
        return found | {"name": device.name} | device.facts()
    except InputError as error:
        return found | {"error": [error.expected, error.got]}


def driver_version() -> int | None:
    """Return the major version of NVIDIA's driver; None if the system has no driver."""
    with suppress(OSError):
        if found := re.search(r" (\d{3,})\.\d", DRIVER.read_text(errors="replace")):
            return int(found[1])
    return None


def _cuda(version: int) -> str:
    """Return CUDA's number of a version, such as 12040, as a text: "12.4"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _extras() -> list[Finding]:
    """Return the installed extras, and the missing extras with the command that installs them."""
    missing = {name: purpose for name, (purpose, modules) in EXTRAS.items() if not is_installed(*modules)}
    installed = [name for name in EXTRAS if name not in missing]
    found = []
    if installed:
        found.append(Finding("extras", "works", ", ".join(installed)))
    if missing:
        named = ", ".join(f"{name} ({purpose})" for name, purpose in missing.items())
        found.append(Finding("extras", "missing", f"{named}: {install_command(','.join(missing))}"))
    return found


def _parser() -> Parser:
    return Parser(
        "evolve.doctor",
        "Say what works in this installation and what is missing, with the commands that install it: MPI and its "
        "launcher, kernels, cores, engines, a GPU and its compiler, extras. It starts two ranks and opens a GPU, "
        "each for at most two minutes. The exit code is 1 if an installed part does not work.",
        "evolve doctor",
    )


def _body(app: App, argv: list[str]) -> int:
    _parser().parse_args(argv)
    found = examine(app.transport, app.stop.check)
    rows = [(each.part, each.state, sanitize(each.text, 2000)) for each in found]
    print(display.table(rows, progress.width(), left=(0, 1, 2)))
    return int(any(each.state == "broken" for each in found))
