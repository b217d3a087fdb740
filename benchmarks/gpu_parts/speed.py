"""Part 6: python benchmarks/devices.py, and the speeds that the kernels aim at."""

from contextlib import suppress
from typing import Any

from device_parts.measurement import draw, measure_devices
from device_parts.steps import SLOTS, network_of
from device_parts.timing import Effort, device_steps, host_step, some_genomes

from evolve.errors import InputError
from evolve.numerics import host_backend
from evolve.numerics.device_protocol import DeviceMemoryError
from gpu_parts.context import Context, Outcome

_LARGE, _SMALL = 16384, 65536  # slots of the large networks, of the small one
_HOST_SLOTS = (16, 64, 256, 1024)
_WIDTHS = (8, 64, 128, 256)
_FLOORS = {(64, False): 23.7, (64, True): 74.0}  # ns: bytes to move at 4.3 TB/s
_TIMES_FLOOR, _TIMES_CORE = 2.0, 50.0
_BUDGET = 0.7  # of the seconds, for the bench


def measure(context: Context) -> Outcome:
    """Print the tables of the bench, then a line for each aim."""
    context.device()
    wanted = list(targets(context))
    sizes = ((8,), (1, 40)) if context.emulated else (_WIDTHS, SLOTS)
    budget = 1.0 if context.emulated else _BUDGET * context.left
    found = measure_devices(budget, lambda text: print(text, flush=True), lambda: None, sizes=sizes)
    with suppress(InputError):  # without matplotlib
        draw(found, context.output.with_suffix(".png"))
    print(f"\n{'one step, all slots at once':46}{'wanted':>26}{'measured':>16}{'floor':>10}")
    for row in wanted:
        measured = "not measured" if row["measured"] is None else f"{row['measured']:.1f} {row['unit']}"
        print(f"{row['work']:46}{row['wanted']:>26}{measured:>16}{row['floor']:>10}")
    reached = sum(row["reached"] for row in wanted)
    return Outcome(f"{reached} of {len(wanted)} targets reached", True, {"targets": wanted, "bench": found})


def targets(context: Context):
    """Yield a row for each aim."""
    effort = Effort(0, 0.0) if context.emulated else Effort(6, 0.2)
    for (width, plastic), floor in _FLOORS.items():
        yield _large(width, plastic, floor, (8 if context.emulated else _LARGE), effort)
    yield _small(64 if context.emulated else _SMALL, effort)


def _large(width: int, plastic: bool, floor: float, slots: int, effort: Effort) -> dict[str, Any]:
    network = network_of(width, plastic)
    work = f"105-64-64-9{', plastic' * plastic}, {slots:,} slots, kernel alone"
    row = {"work": work, "unit": "ns", "measured": None, "reached": False}
    row |= {"wanted": f"<= {_TIMES_FLOOR:.0f} x floor", "floor": f"{floor:.1f} ns"}
    with suppress(DeviceMemoryError):
        row["measured"], row["with_copies"] = device_steps(network, some_genomes(network, slots), slots, effort, 1)
        row["reached"] = row["measured"] <= _TIMES_FLOOR * floor
    return row


def _small(slots: int, effort: Effort) -> dict[str, Any]:
    network = network_of(8, False)
    genomes = some_genomes(network, slots)
    core = min(host_step(network, genomes, n, host_backend("auto"), effort) for n in _HOST_SLOTS)
    row = {"work": f"24-8-8-5, {slots:,} slots, copies included", "unit": "x", "measured": None, "reached": False}
    row |= {"wanted": f">= {_TIMES_CORE:.0f} x one native core", "floor": "3.1 ns", "core_ns": core}
    with suppress(DeviceMemoryError):
        ways = {parts: device_steps(network, genomes, slots, effort, parts) for parts in (1, 2)}
        alone, with_copies = ways[1][0], min(copied for _, copied in ways.values())
        row |= {"kernel_ns": alone, "with_copies_ns": with_copies, "measured": core / with_copies}
        row["reached"] = row["measured"] >= _TIMES_CORE
        print(f"24-8-8-5: one core {core:.0f} ns; device {alone:.2f} ns alone, {with_copies:.2f} with copies")
    return row
