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

from evolve import display
from evolve.analysis import progress
from evolve.analysis.contest import SIZES, session
from evolve.cli.app import App
from evolve.cli.parser import Parser
from evolve.cluster import Coordinator, Transport
from evolve.cluster.cores import number_of_cores
from evolve.cluster.hosts import MPI_PROBE, Launcher, mpirun_environment, python_words
from evolve.cluster.supervision import SESSION_FOLDER, kill_launcher
from evolve.errors import SOURCE, InputError, Stopped, how_to_build, install_command, is_installed, sanitize
from evolve.numerics import cupy_device, native
from evolve.training import make_rollout
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
PROBE_SECONDS = 120.0
"""The time limit of a probe. Opening a GPU may include the compilation of its kernels."""
_CHECK_EVERY = 0.1  # seconds between two calls of `check` in `run_probe`
_MARK = "evolve.doctor: "  # precedes the JSON value in the output of a probe
_GPU_PROBE = f"""
import json
from evolve.cli.doctor import try_gpu
print({_MARK!r} + json.dumps(try_gpu()), flush=True)
"""
DRIVER_FILE = Path("/proc/driver/nvidia/version")
"""The file in which NVIDIA's driver states its version."""
_CUDA13_DRIVER = 580
"""The first major version of NVIDIA's driver for CUDA 13."""

_NO_GPU = ("a GPU", "a driver that finds a GPU")
"""The texts `InputError.expected` of `cupy_device.open_device` if it finds no GPU, perhaps because of an old driver."""

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
    words: Sequence[str], environment: Mapping[str, str], check: Callable[[], object], seconds: float = PROBE_SECONDS
) -> tuple[Any, str]:
    """Run a process. Return the JSON value that it printed after `_MARK` and "", or None and the reason.

    The process is killed after a number of seconds, or if `check` raises an error. `check` is called often.
    """
    # The process has to import this copy of the package. An empty part of PYTHONPATH would be the working directory.
    path = os.pathsep.join(filter(None, [str(SOURCE), environment.get("PYTHONPATH", "")]))
    deadline = time.monotonic() + seconds
    output: tuple[str, str] | None = None
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
                while output is None:
                    check()
                    if time.monotonic() > deadline:
                        return None, f"no answer within {seconds:g} s"
                    # After a timeout, `communicate` may be called again, and loses no output.
                    with suppress(subprocess.TimeoutExpired):
                        output = process.communicate(timeout=_CHECK_EVERY)
            finally:
                # Kill the process here, because `Popen.__exit__` waits for the end of the process.
                if process.poll() is None:
                    kill_launcher(process)
    except OSError as error:  # there is no such program, or no space for temporary files
        return None, f"{error}"
    out, err = output
    # Libraries may print lines, too, so only the line with the mark counts.
    values = [line.partition(_MARK)[2] for line in out.splitlines() if _MARK in line]
    if values:
        return json.loads(values[0]), ""
    # Without a value, the last line that names an exception is the reason, because launchers print more lines after
    # it. If there is no such line, the last line is the reason. Rulers such as "-----" do not count.
    lines = [line.strip() for line in (err or out).splitlines() if line.strip(" -=*")]
    reasons = [line for line in lines if re.match(r"[\w.]*Error: ", line)] or lines or ["it printed nothing"]
    return None, f"exit code {process.returncode}: {reasons[-1]}"


def examine(transport: Transport, check: Callable[[], object] = lambda: None) -> list[Finding]:
    """Return the state of every part.

    The probes start a process that opens a GPU. Unless this process is a rank already, they also start two ranks.

    check: Called often while the probes run. If it raises an error, the examination ends.
    """
    software = machine_manifest(transport)
    revision = f" ({short_revision(software['revision'])})" if software["revision"] else ""
    libc = f", {software['libc'].strip()}" if software["libc"].strip() else ""
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}{libc}"
    evolve = Finding("evolve", "works", f"{software['evolve']}{revision}, {system}")
    without_probes = [evolve, _kernels(check), _cores(software["cpu"]), _engines(software["packages"])]
    return [*without_probes, _mpi(transport, check), *_gpu(check), *_extras()]


def _kernels(check: Callable[[], object]) -> Finding:
    """Return the state of the native kernels. In the contest's known runs they must compute the known bits."""

    def stop_reason() -> None:
        check()

    try:
        if not native.available():
            cure = f"Install a C compiler (gcc or clang). {how_to_build()}"
            return Finding("kernels", "missing", f"NumPy computes the same bits, and is slower. {cure}")
        runs = session.validate(Coordinator(Transport(), make_rollout, stop_reason), SIZES["trial"], "native")
    except Stopped:
        raise
    except session.DifferentWorkError as error:
        return Finding("kernels", "broken", f"{error} {how_to_build()}")
    except Exception as error:  # for example kernels that were built from other sources
        return Finding("kernels", "broken", f"{error}")
    variant = kernel_variant() or "an unknown instruction set"
    compiler = native.build().partition(";")[0] or "an unknown compiler"
    about = f"native, {variant}, {native.lanes()} slots at a time, by {compiler}"
    return Finding("kernels", "works", f"{about}; {len(runs)} known runs have their digests")


def _cores(cpu: str) -> Finding:
    cores, all_cores = number_of_cores(), os.cpu_count() or 1
    usable = f"{cores}" if cores == all_cores else f"{cores} of {all_cores}"
    return Finding("cores", "works", f"{usable} ({cpu}): exact tasks (evolve's own) play in as many threads")


def _engines(versions: Mapping[str, str]) -> Finding:
    families = ["classic control"]
    families += [name for name, module in (("Box2D", "Box2D"), ("MuJoCo", "mujoco")) if is_installed(module)]
    engines = ["exact", f"gymnasium {versions.get('gymnasium', '')} ({', '.join(families)})"]
    if "envpool" in versions:
        engines.append(f"envpool {versions['envpool']}")
    return Finding("engines", "works", ", ".join(engines))


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
    versions, why = run_probe(words, mpirun_environment(), check)
    mpirun = f"mpirun of {launcher.version} ({launcher.path})"
    if versions is None:
        return Finding("MPI", "broken", f"{mpirun} starts no ranks with mpi4py: {why}")
    ranks, library, mpi4py = versions
    library = re.split(r"[,\n]", library)[0].strip()
    # With the mpirun of another library, each process finds itself alone.
    if ranks != 2:
        cure = "Use its own mpirun, or set MPI4PY_LIBMPI to the library of this mpirun"
        return Finding("MPI", "broken", f"{mpirun} is not the one of {library}, which mpi4py loads. {cure}")
    return Finding("MPI", "works", f"{mpirun}; two ranks met by mpi4py {mpi4py} with {library}")


def _gpu(check: Callable[[], object]) -> list[Finding]:
    """Return the states of the GPU and of its compiler, NVRTC; of the GPU alone if the probe crashes or hangs."""
    driver = driver_version()
    extra = "gpu" if driver is None or driver >= _CUDA13_DRIVER else "gpu-cuda12"
    facts, why = run_probe([*python_words(), "-c", _GPU_PROBE], os.environ, check)
    # The probe has crashed or hung, for example in a driver.
    if facts is None:
        return [Finding("GPU", "broken", why)]
    compiler = Finding("NVRTC", "missing", f"compiles the kernels of a GPU: {install_command(extra)}")
    if facts["NVRTC"]:
        compiler = Finding("NVRTC", "works", f"{facts['NVRTC']}, compiles the kernels of a GPU")
    if "error" not in facts:
        about = f"{facts['name']}, {facts['architecture']}, {facts['free_bytes'] / 1e9:.0f} GB free"
        versions = f"driver for CUDA {_cuda_version(facts['driver'])}, CuPy for CUDA {_cuda_version(facts['runtime'])}"
        return [Finding("GPU", "works", f"{about}; {versions}"), compiler]
    # No GPU was opened. If CuPy is installed, its error says why. Otherwise a driver shows that there may be a GPU.
    expected, got = facts["error"]
    if is_installed("cupy"):
        # Without NVRTC no GPU can be opened, and CuPy may not load. So the GPU itself need not be broken.
        state: State = "missing" if expected in _NO_GPU or not facts["NVRTC"] else "broken"
        return [Finding("GPU", state, f"expected {expected}, got {got}"), compiler]
    text = f"driver {driver}, but no CuPy: {install_command(extra)}"
    if driver is None:
        cure = f"Install a driver, then {install_command(extra)} (CUDA 12: the extra gpu-cuda12)"
        text = f"neither an NVIDIA driver nor CuPy. {cure}"
    return [Finding("GPU", "missing", text), compiler]


def try_gpu() -> dict[str, Any]:
    """Open a GPU; return the version of NVRTC, and facts about the GPU or its error. This process may crash."""
    facts: dict[str, Any] = {"NVRTC": False}
    if cupy_device.load_nvrtc() is not None:
        facts["NVRTC"] = ".".join(map(str, cupy_device.nvrtc_version()))
    try:
        device = cupy_device.open_device()
        return facts | {"name": device.name} | device.facts()
    except InputError as error:
        return facts | {"error": [error.expected, error.got]}


def driver_version() -> int | None:
    """Return the major version of NVIDIA's driver; None if the system has no driver."""
    with suppress(OSError):
        if match := re.search(r" (\d{3,})\.\d", DRIVER_FILE.read_text(errors="replace")):
            return int(match[1])
    return None


def _cuda_version(version: int) -> str:
    """Return the text of a version, such as "12.4", from CUDA's number, such as 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _extras() -> list[Finding]:
    """Return the installed extras, and the missing extras with the command that installs them."""
    missing = {name: purpose for name, (purpose, modules) in EXTRAS.items() if not is_installed(*modules)}
    installed = [name for name in EXTRAS if name not in missing]
    findings = []
    if installed:
        findings.append(Finding("extras", "works", ", ".join(installed)))
    if missing:
        purposes = ", ".join(f"{name} ({purpose})" for name, purpose in missing.items())
        findings.append(Finding("extras", "missing", f"{purposes}: {install_command(','.join(missing))}"))
    return findings


def _parser() -> Parser:
    return Parser(
        "evolve.doctor",
        "Say what works in this installation and what is missing, with the commands that install it: MPI and its "
        "launcher, kernels, cores, engines, a GPU and its compiler, extras. It starts two ranks and opens a GPU, "
        "each for at most two minutes, and plays short runs whose digests are known. The exit code is 1 if an "
        "installed part does not work.",
        "evolve doctor",
    )


def _body(app: App, argv: list[str]) -> int:
    _parser().parse_args(argv)
    findings = examine(app.transport, app.stop.check)
    rows = [(finding.part, finding.state, sanitize(finding.text, 2000)) for finding in findings]
    print(display.table(rows, progress.width(), left=(0, 1, 2)))  # the columns 0, 1 and 2 are aligned on the left
    return 1 if any(finding.state == "broken" for finding in findings) else 0
