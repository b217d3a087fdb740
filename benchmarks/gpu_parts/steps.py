"""Part 5: every network, steps on the device against steps on the host, with special numbers."""

import itertools
import math
import time

import numpy as np

from evolve import networks
from evolve.networks import Network
from evolve.numerics import host_backend
from evolve.rollouts.inference import Inference, make_inference
from evolve.shapes import ceil_div
from evolve.strategies import initial_genomes
from gpu_parts.context import Context, Outcome

VARIANTS = (
    {"name": "hebbian-dag"},
    {"name": "hebbian-dag", "hidden": []},
    {"name": "hebbian-dag", "hidden": [64, 64]},
    {"name": "hebbian-dag", "hidden": [5, 3, 4], "plasticity": 0.3, "trace_limit": 1.0, "init_sparsity": 0.4},
    {"name": "hebbian-dag", "hidden": [33], "plasticity": -0.2, "neuromodulated": True},
    {"name": "dag"},
    {"name": "dag", "hidden": [5, 33, 4], "init_scale": 0.1, "init_sparsity": 0.4},
    {"name": "mlp"},
    {"name": "mlp", "hidden": []},
    {"name": "mlp", "hidden": [5, 33, 4], "init_scale": 3.0},
    {"name": "binary-mask-mlp"},
    {"name": "binary-mask-mlp", "hidden": [5, 33, 4], "init_sparsity": 0.6},
    {"name": "elman"},
    {"name": "elman", "hidden": [33], "init_sparsity": 0.4},
    {"name": "hebbian-lstm"},
    {"name": "hebbian-lstm", "hidden": [2], "update_limit": 1e-3},
    {"name": "hebbian-lstm", "hidden": [33], "update_limit": 2.0, "init_sparsity": 0.4},
    {"name": "plastic-mlp"},
    {"name": "plastic-mlp", "hidden": [5, 33], "max_norm": True, "update_every": 2, "init_sparsity": 0.6},
    {"name": "plastic-mlp", "hidden": [5, 3], "rules": "neuron", "init_scale": 1.0, "init_sparsity": 0.4},
    {"name": "plastic-mlp", "hidden": [4], "rules": "layer", "max_norm": True, "initial_scale": 2.0},
)
O, A = 9, 9  # more than threads add up side by side
_STEPS = 1_000_000  # of each network, shared by its variants
_SLOTS = 4096
_GENOMES = 64
_SPECIAL = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.1754942e-38, 3.4e38, -3.4e38],
                    np.float32)  # fmt: skip
_SHARE = 0.01  # of numbers that are special, in a quarter of the slots: a NaN spreads
_SPARE = 5.0  # seconds


def compare(context: Context) -> Outcome:
    """Compare all networks, each in its share of the time; a line for each."""
    context.device()
    figures: dict[str, dict[str, int]] = {}
    slots = 40 if context.emulated else _SLOTS
    groups = [(name, list(group)) for name, group in itertools.groupby(VARIANTS, lambda table: table["name"])]
    to_do = len(VARIANTS)
    for name, variants in groups:
        ticks = ceil_div(1_000 if context.emulated else _STEPS, len(variants) * slots)
        figures[name] = {"steps": 0, "differing": 0}
        for number, table in enumerate(variants):
            until = time.monotonic() + (context.left - _SPARE) / to_do
            wrong, done = differing(networks.make(table, O, A), slots, ticks, number, until)
            figures[name]["differing"] += wrong
            figures[name]["steps"] += slots * done
            to_do -= 1
        counts = figures[name]
        print(f"{name}: {counts['steps']:,} steps, {len(variants)} variants, {counts['differing']:,} numbers differ")
    missing = sorted({*networks.NETWORKS} - {*figures})
    wrong = sum(counts["differing"] for counts in figures.values())
    least = min(counts["steps"] for counts in figures.values())
    verdict = f"{len(figures)} networks, at least {least:,} steps each: {wrong:,} numbers differ"
    if missing:
        verdict += f"; {', '.join(missing)} not tried"
    return Outcome(verdict, not wrong, figures)


def differing(network: Network, slots: int, ticks: int, seed: int = 0, until: float = math.inf) -> tuple[int, int]:
    """Return how many actions, traces, moments, fingerprints and hashes differ, and after how many ticks.

    In the middle half of the slots begin new episodes, and some move. until: when to stop, by `time.monotonic`.
    """
    backends = "cupy", host_backend("auto")
    sides = [make_inference(network, slots, A, backend, normalize=True) for backend in backends]
    rng = np.random.Generator(np.random.Philox(seed))
    everybody = np.arange(slots)
    lengths = np.zeros(slots, np.int32)
    _load(sides, network, everybody, rng)
    wrong = tick = 0
    while tick < ticks and time.monotonic() < until:
        if tick == ticks // 2:
            some = everybody[: slots // 2]
            _load(sides, network, some, rng)
            lengths[some] = 0
            targets = rng.permutation(some)[: slots // 4]
            sources = rng.permutation(everybody[slots // 2 :])[: len(targets)]
            for side in sides:
                side.move(sources, targets)
            lengths[targets] = lengths[sources]
        seen = observations(slots, rng)
        for side in sides:
            side.observations[:] = seen
            side.begin(slots)
        lengths += 1
        wrong += unequal(*(side.finish() for side in sides))
        tick += 1
    ends = [(side.traces(everybody), side.moments(everybody), *side.hashes(everybody, lengths)) for side in sides]
    return wrong + sum(unequal(one, other) for one, other in zip(*ends, strict=True)), tick


def observations(slots: int, rng: np.random.Generator) -> np.ndarray:
    """Return observations [slots, O] of all magnitudes, with denormals, infinities and NaN."""
    with np.errstate(all="ignore"):
        numbers = rng.standard_normal((slots, O)) * 10.0 ** rng.integers(-44, 5, (slots, 1))
        return _spoilt(numbers.astype(np.float32), rng)


def _load(sides: list[Inference], network: Network, slots: np.ndarray, rng: np.random.Generator) -> None:
    genomes = initial_genomes(network, int(rng.integers(2**31)), 0, range(min(len(slots), _GENOMES)))
    which = rng.integers(0, len(genomes), len(slots))
    scales = 10.0 ** rng.integers(-3, 2, (len(slots), 1))
    weights = _spoilt((genomes.weights[which] * scales).astype(np.float32), rng)
    normalizers = rng.uniform(0.5, 2, (len(slots), 2, O)).astype(np.float32)
    for side in sides:
        side.load(slots, weights, genomes.mask[which], slots + 7, normalizers)


def _spoilt(numbers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return numbers [k, n], some of them special in the first quarter of the rows."""
    rows = numbers[: len(numbers) // 4]
    chosen = rng.random(rows.shape, np.float32) < _SHARE
    rows[chosen] = rng.choice(_SPECIAL, int(chosen.sum()))
    return numbers


def unequal(one: np.ndarray, other: np.ndarray) -> int:
    """Return how many numbers differ in their bits; all NaNs count as equal."""
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    different = one.view(f"u{one.itemsize}") != other.view(f"u{other.itemsize}")
    if one.dtype.kind == "f":
        different &= ~(np.isnan(one) & np.isnan(other))
    return int(different.sum())
