"""Whole episodes on a device against the array reference: actions, traces, moments and fingerprints, to the bit."""

import functools
import json

import numpy as np

from emulation.device import EmulatedDevice
from evolve.genome import concatenate
from evolve.networks import Network, make
from evolve.numerics.streams import Purpose, Stream
from evolve.rollouts.inference import make_inference


def played(network: Network, action_size: int, backend: str, slots: int, steps: int):
    """Return what slots of different genomes answer to observations of all magnitudes, and what is kept of them.

    After half of the steps slot 0 begins anew, and the last two slots move to where two others have ended.
    """
    O, everybody = network.observation_size, np.arange(slots)
    rng = np.random.Generator(np.random.Philox(slots))
    genomes = concatenate(*(network.init(Stream(slot, Purpose.INIT)) for slot in range(slots)))
    inference = make_inference(network, slots, action_size, backend, normalize=True)

    def load(who, seed: int) -> None:
        normalizers = rng.uniform(0.5, 2, (len(who), 2, O)).astype(np.float32)
        inference.load(who, genomes.weights[who], genomes.mask[who], who + seed, normalizers)

    def step(n: int):
        inference.observations[:] = rng.standard_normal((slots, O)) * 10.0 ** rng.integers(-30, 4, (slots, 1))
        inference.begin(n)
        return inference.finish().copy()

    load(everybody, 7)
    before = [step(slots) for _ in range(steps // 2)]
    load(everybody[:1], 9)
    inference.move(everybody[-2:], everybody[1:3])
    after = [step(slots - 2) for _ in range(steps - steps // 2)]
    rest = everybody[:-2]
    fingerprints, hashes = inference.hashes(rest, np.where(rest, steps, len(after)).astype(np.int32))
    kept = {"traces": inference.traces(rest), "moments": inference.moments(rest)}
    return {"actions": np.concatenate(before + after), "fingerprints": fingerprints, "hashes": hashes, **kept}


def differences(emulated: EmulatedDevice, table: dict, slots: int = 40, steps: int = 12) -> list[str]:
    """Return what differs when a network plays on a device.

    table: `[network]`; it has 9 inputs and 9 outputs, more than threads add up side by side.
    """
    network = make(table, 9, 9)
    with emulated.in_use():
        ours = played(network, 9, "cupy", slots, steps)
    wanted = _wanted(json.dumps(table), slots, steps)
    return sorted(name for name in wanted if not same(ours[name], wanted[name]))


@functools.cache
def _wanted(table: str, slots: int, steps: int):
    return played(make(json.loads(table), 9, 9), 9, "numpy", slots, steps)


def same(a, b) -> bool:
    """Return whether two arrays have the same bits, where any NaN is as good as another."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    either = np.ascontiguousarray(a), np.ascontiguousarray(b)
    equal = np.equal(*(x.view(f"u{x.itemsize}") for x in either))
    return bool((equal | np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else equal).all())
