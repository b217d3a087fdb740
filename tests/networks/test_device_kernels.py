"""The kernels as a device executes them: every bit, and the reason for each barrier."""

import re

import pytest
from emulation import EmulatedDevice, KernelError, emulation_available
from emulation.comparison import differences
from emulation.sources import only, with_named_barriers

pytestmark = pytest.mark.skipif(not emulation_available(), reason="no gcc or no NVRTC")

NETWORKS = {
    "hebbian_dag": [
        {"name": "hebbian-dag", "hidden": [5, 6]},
        {"name": "hebbian-dag", "hidden": [5, 6], "plasticity": -0.7, "neuromodulated": True, "trace_limit": 0.5},
    ],
    "hebbian_lstm": [{"name": "hebbian-lstm", "hidden": [9]}],
    "layered": [{"name": "elman"}, {"name": "dag", "hidden": [5, 6]}],
    "plastic_mlp": [
        {"name": "plastic-mlp", "hidden": [9], "max_norm": True},
        {"name": "plastic-mlp", "hidden": [9], "rules": "neuron", "update_every": 3},
    ],
}
SPARE = {
    "hebbian_dag": {"STEP 1"},  # each thread reads the observations that it has normalized itself
    "hebbian_lstm": {"STEP 1", "lstm_gates 2"},  # … the gates that it has squashed itself
    "layered": {"STEP 1"},
    "plastic_mlp": {"STEP 1"},
}
"""Barriers that a kernel could do without."""


def goes_wrong(device, table):
    try:
        return bool(differences(device, table, slots=6, steps=8))
    except KernelError as error:
        return "a race with another thread at" in str(error)


def spare_barriers(device, places, tables):
    """Return the places of barriers that can be removed without an error."""
    spare = set()
    for name, place in places.items():
        device.lost_barriers = {name}
        if not any(goes_wrong(device, table) for table in tables):
            spare.add(place)
    device.lost_barriers = set()
    return spare


@pytest.mark.parametrize("kernel", NETWORKS)
def test_every_bit_needs_every_barrier(kernel):
    files, places = with_named_barriers(only(kernel, "16", "32", "64"))
    device = EmulatedDevice("sm_120", files=files, check_races=True)
    used = {int(name) for name in re.findall(r"\bbar\.\S+ (?:%\w+, )?(\d+)[,;]", device.ptx)}
    places = {name: place for name, place in places.items() if name in used}
    for table in NETWORKS[kernel]:
        assert not differences(device, table)
    assert spare_barriers(device, places, NETWORKS[kernel]) == SPARE[kernel], "remove other barriers that are spare"
    device.check_races = False  # what they do to bits is noticed, too
    assert spare_barriers(device, places, NETWORKS[kernel]) == SPARE[kernel]
