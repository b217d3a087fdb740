"""When a GPU pays: a network step on the host and on a device, for widths and slots over their whole range.

Measurements that cost too much time or memory are left out, and the tables say so; a longer budget allows more.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from device_parts.timing import Effort, device_steps, host_step, some_genomes
from evolve import networks
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.networks import Network
from evolve.numerics import native
from evolve.numerics.device import device
from evolve.numerics.device_protocol import WIDTH as TILE
from evolve.numerics.device_protocol import DeviceMemoryError
from evolve.shapes import ceil_div

Row = dict[str, Any]

WIDTHS = (8, 32, 64, 128, 256, 512, 1024)
SLOTS = (1, 16, 64, 256, 1024, 4096, 16384, 65536)
PLASTICITY = 0.1
COLUMNS = ("numpy", "native", "gpu", "gpu_with_copies")
_MOST_HOST_BYTES = 2**28  # of a batch on the host: larger ones are bound by memory, and more slots change nothing


@dataclass
class Budget:
    """A number of seconds from now on."""

    seconds: float
    begin: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """The remaining seconds; below zero after an overrun."""
        return self.seconds - (time.monotonic() - self.begin)


@dataclass
class _Column:
    """Measures one back end with more and more slots, as long as the budget lasts."""

    budget: Budget
    tile: int
    """Slots of a tile, which cost as much as one slot."""
    last: tuple[int, float] | None = None  # tiles, and the seconds that measuring them took

    def measure(self, slots: int, measurement: Callable[[], float | tuple[float, float]]) -> Any:
        """Return the result of a measurement, or the reason why it was not made, a string."""
        tiles = ceil_div(slots, self.tile)
        expected = 0.0 if self.last is None else self.last[1] * tiles / self.last[0]
        if expected >= self.budget.left:
            return "it would take too long"
        begin = time.monotonic()
        try:
            return measurement()
        except DeviceMemoryError as error:
            return f"too little memory: {error}"
        finally:
            self.last = tiles, time.monotonic() - begin


def network_of(width: int, plastic: bool) -> Network:
    """Return a hebbian-dag with two hidden layers, for a BipedalWalker, or from width 64 on for an Ant."""
    table = {"name": "hebbian-dag", "hidden": [width, width], "plasticity": PLASTICITY if plastic else 0.0}
    return networks.make(table, *((24, 4) if width < 64 else (105, 8)))


def layer_sizes(width: int) -> str:
    """Return the sizes of its layers, "24-8-8-5"."""
    return "-".join(map(str, network_of(width, False).sizes))  # type: ignore[attr-defined]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def why_no_device() -> str:
    """Return the reason why no device can be used, "" if one can."""
    try:
        device()
    except InputError as error:
        return str(error)
    return ""


def rows(width: int, plastic: bool, slots: Sequence[int], effort: Effort, budget: Budget) -> list[Row]:
    """Return a row for each number of slots: nanoseconds per step by each of `COLUMNS`.

    A time that was not measured is None, and `why` has the reason.

    native: the best time of all numbers of slots up to that of the row; `native_slots` is that number. A large network
    is slower if its slots do not fit into a cache, and a rollout need not step so many at a time.
    """
    network = network_of(width, plastic)
    genomes = some_genomes(network, max(slots))
    missing = why_no_device()
    if not missing:
        device_steps(network, genomes, 1, Effort(0, 0.0))  # work that is done only once is no part of a prediction
    lanes = native.lanes() if native.available() else 1
    columns = {"numpy": _Column(budget, 1), "native": _Column(budget, lanes), "gpu": _Column(budget, TILE)}
    best: tuple[float, int] | None = None
    made = []
    for n in slots:
        found = on_host(network, genomes, n, columns, effort)
        if isinstance(found["native"], float):
            best = min(best or (math.inf, n), (found["native"], n))
        if best and (best[1] == n or best[1] >= lanes):  # less than a tile predicts nothing
            found |= {"native": best[0], "native_slots": best[1]}
        found |= (
            _on_device(network, genomes, n, columns, effort) if not missing else dict.fromkeys(COLUMNS[2:], missing)
        )
        made.append({"width": width, "plastic": plastic, "slots": n, "weights": network.num_weights} | parted(found))
    return made


def parted(found: Row) -> Row:
    """Return a row with its strings, the reasons for missing measurements, moved into a table of their own."""
    why = {name: value for name, value in found.items() if isinstance(value, str)}
    return found | dict.fromkeys(why) | {"why": why}


def on_host(network: Network, genomes: Genomes, n: int, columns: dict[str, _Column], effort: Effort) -> Row:
    if 4 * n * network.slot_size > _MOST_HOST_BYTES:
        return dict.fromkeys(("numpy", "native"), "beyond what a cache holds by far")
    found: Row = {"native": "the native kernels were not built"}
    if native.available():
        found["native"] = columns["native"].measure(n, lambda: host_step(network, genomes, n, "native", effort))
    return found | {"numpy": columns["numpy"].measure(n, lambda: host_step(network, genomes, n, "numpy", effort))}


def _on_device(network: Network, genomes: Genomes, n: int, columns: dict[str, _Column], effort: Effort) -> Row:
    measured = columns["gpu"].measure(n, lambda: device_steps(network, genomes, n, effort))
    alone, with_copies = (measured, measured) if isinstance(measured, str) else measured
    return {"gpu": alone, "gpu_with_copies": with_copies}


def break_even(measured: Sequence[Row], cores: int) -> float | None:
    """Return the smallest number of slots from which a GPU, with its copies, is faster than `cores` cores of the host.

    Cores count as if they did not slow one another down, and at most one for each slot. The result is interpolated
    between measured numbers of slots. None: not measured; infinity: not within the measured numbers of slots.
    """
    both = [row for row in measured if row["native"] is not None and row["gpu_with_copies"] is not None]
    if not both:
        return None
    gains = [(row["slots"], row["native"] / min(cores, row["slots"]) / row["gpu_with_copies"]) for row in both]
    first = next((n for n in range(len(gains)) if all(gain >= 1 for _, gain in gains[n:])), None)
    if first is None:
        return math.inf
    slots, gain = gains[first]
    if not first:
        return float(slots)
    before, loss = gains[first - 1]
    share = math.log(loss) / math.log(loss / gain)
    return float(before * (slots / before) ** share)
