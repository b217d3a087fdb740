"""Part 1: versions, the speed of memory and of the bus, and the time of an empty tick."""

import importlib.metadata
import platform
import subprocess
import time

import numpy as np
from device_parts.steps import cores
from device_parts.timing import Effort, some_genomes
from ppo_parts.records import machine

from evolve import __version__, networks
from evolve.numerics import native
from evolve.numerics.cupy_device import CupyDevice
from evolve.numerics.device_protocol import Device
from evolve.rollouts.inference import device_step
from gpu_parts.context import ROOT, Context, NotMeasuredError, Outcome

_BETWEEN = 3  # cudaMemcpyDeviceToDevice
_DEFAULT_STREAM = 0
_PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "gymnasium",
             "envpool", "mpi4py")  # fmt: skip


def measure(context: Context) -> Outcome:
    """Print and return all values."""
    figures = {"versions": versions()}
    print(", ".join(f"{name} {version}" for name, version in figures["versions"].items()))
    device = context.device()
    figures |= about(device)
    print(", ".join(f"{name}: {value}" for name, value in figures.items() if name != "versions"))
    size = 2**20 if context.emulated else 2**32
    effort = Effort(0, 0.0) if context.emulated else Effort(5, 0.1)
    memory = memory_bandwidth(device, size, effort)
    figures["memory_TB_per_s"] = None if memory is None else memory / 1e12
    figures |= {f"bus_{way}_GB_per_s": rate / 1e9 for way, rate in bus_bandwidth(device, size // 16, effort).items()}
    figures |= empty_ticks(50 if context.emulated else 3000)
    said = "not measured" if memory is None else f"{memory / 1e12:.2f} TB/s"
    print(f"memory, read and written: {said}")
    print("bus: " + ", ".join(f"{way} {figures[f'bus_{way}_GB_per_s']:.1f} GB/s" for way in ("up", "down", "both")))
    print(f"an empty tick: {figures['tick_least_us']:.1f} µs at least, {figures['tick_median_us']:.1f} in the middle; "
          f"its launch alone {figures['launch_median_us']:.1f}")  # fmt: skip
    verdict = f"{device.name}: memory {said}, a tick {figures['tick_median_us']:.1f} µs"
    return Outcome(verdict, True, figures)


def versions() -> dict[str, str]:
    """Return the versions of the relevant software."""
    found = {"evolve": __version__, "Python": platform.python_version(), "native kernels": str(native.available())}
    found |= {"CPU": machine(1)["cpu"], "cores": str(cores())}
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        found["commit"] = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        found["commit"] = "unknown"
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def about(device: Device) -> dict[str, object]:
    """Return the properties of a device."""
    return {"device": device.name} | (device.facts() if isinstance(device, CupyDevice) else {})


def memory_bandwidth(device: Device, nbytes: int, effort: Effort) -> float | None:
    """Return the bytes per second that a large copy reads and writes; None if the device is emulated."""
    if not isinstance(device, CupyDevice):
        return None
    nbytes = min(nbytes, device.free_memory() // 4)
    source, target = device.allocate(nbytes), device.allocate(nbytes)

    def repeat(times: int) -> None:
        for _ in range(times):
            device.runtime.memcpyAsync(target.address, source.address, nbytes, _BETWEEN, _DEFAULT_STREAM)
        device.runtime.streamSynchronize(_DEFAULT_STREAM)

    return 2 * nbytes / effort.least(repeat)


def bus_bandwidth(device: Device, nbytes: int, effort: Effort) -> dict[str, float]:
    """Return bytes per second to the device, from it, and in both directions at once."""
    ways = [(device.queue(), device.allocate(nbytes), device.host_array((nbytes,), np.uint8)) for _ in range(2)]
    (up, up_memory, up_array), (down, down_memory, down_array) = ways

    def upload() -> None:
        up.upload(up_memory.address, up_array)

    def download() -> None:
        down.download(down_memory.address, down_array)

    rates = {}
    for name, doings in {"up": (upload,), "down": (download,), "both": (upload, download)}.items():

        def repeat(times: int, doings=doings) -> None:
            for _ in range(times):
                for do in doings:
                    do()
            up.wait()
            down.wait()

        rates[name] = len(doings) * nbytes / effort.least(repeat)
    return rates


def empty_ticks(count: int) -> dict[str, float]:
    """Return the µs of a tick of the smallest network with one slot, and of a launch with its wait."""
    network = networks.make({"name": "mlp", "hidden": []}, 1, 1)
    batch, genomes = network.batch(1, "cupy"), some_genomes(network, 1)
    batch.load(np.arange(1), genomes.weights, genomes.mask, np.arange(1))
    step = device_step(batch)
    if step is None:
        raise NotMeasuredError("the smallest network has no device step")

    def tick() -> None:
        step.begin(1)
        step.finish(1)

    def launch() -> None:
        step.launch(1)
        step.arrays.wait()

    ticks, launches = (1e6 * _each(do, count) for do in (tick, launch))
    return {
        "tick_least_us": float(ticks.min()),
        "tick_median_us": float(np.median(ticks)),
        "launch_median_us": float(np.median(launches)),
    }


def _each(do, count: int) -> np.ndarray:
    took = np.zeros(count)
    for n in range(-10, count):
        begin = time.perf_counter()
        do()
        took[max(n, 0)] = time.perf_counter() - begin
    return took
