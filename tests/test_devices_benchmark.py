"""`benchmarks/devices.py`: measurements are right, and the tables say what was not measured."""

import json
import math
import sys

import pytest
from conftest import ROOT, boxes, texts_of

from evolve.numerics import cupy_device, native

sys.path.insert(0, str(ROOT / "benchmarks"))
from device_parts import costs, measurement, rollout_gain, steps
from device_parts.figure import draw_device_speed
from device_parts.steps import Budget, break_even, rows
from device_parts.timing import Effort


@pytest.fixture
def small(monkeypatch):
    """A moment is enough."""
    monkeypatch.setattr(measurement, "WIDTHS", (8, 64))
    monkeypatch.setattr(measurement, "SLOTS", (1, 20))
    monkeypatch.setattr(measurement, "Effort", lambda seconds: Effort(0, 0.0))
    monkeypatch.setattr(measurement, "LONGEST_TRIAL", 0.02)
    monkeypatch.setattr(rollout_gain, "SLOTS", 32)
    monkeypatch.setattr(rollout_gain, "HIDDEN", ((8, 8),))


@pytest.fixture
def no_gpu(no_device, absent):
    absent("cupy")


@pytest.mark.usefixtures("small", "no_gpu")
def test_without_a_gpu_the_host_is_measured_and_the_rest_is_not(script, tmp_path):
    pytest.importorskip("matplotlib")
    done = script("devices", "--budget", 1000, "-e", "CartPole-v1", "-o", "speed.svg").ok()
    assert (tmp_path / "speed.svg").stat().st_size > 10_000
    for words in (
        "24-8-8-5, plain, 648 weights",
        "105-64-64-9, plastic",
        "CartPole-v1 (gymnasium)",
        "native, one core",
    ):
        assert words in done.out
    for line in done.out.splitlines():
        assert not line.startswith(("GPU ", "break-even")) or line.split()[1:] == ["not", "measured"]
    assert done.out.count("CuPy") == 1


@pytest.mark.usefixtures("small", "no_gpu")
def test_json_has_numbers_and_reasons(script):
    done = script("devices", "--budget", 1000, "-e", "CartPole-v1", "--json").ok()
    found = json.loads(done.out)
    assert found["device"] is None
    assert [(n["layers"], n["plastic"]) for n in found["networks"]][1:3] == [("24-8-8-5", True), ("105-64-64-9", False)]
    for row in (row for network in found["networks"] for row in network["rows"]):
        assert row["numpy"] > 0
        assert row["gpu"] is row["gpu_with_copies"] is None
        assert "CuPy" in row["why"]["gpu"]
    for row in found["rollouts"]:
        assert row["most"] == pytest.approx((row["environment_ns"] + row["network_ns"]) / row["environment_ns"])
        assert row["gain"] is None


@pytest.mark.usefixtures("small", "no_gpu")
def test_a_budget_of_nothing_measures_nothing(script):
    pytest.importorskip("matplotlib")
    done = script("devices", "--budget", 0, "-e", "CartPole-v1", "-o", "speed.png").ok()
    assert done.out.count("it would take too long") == 1
    assert not any(line.startswith("native") and line.split()[-1] != "measured" for line in done.out.splitlines())


def test_costs_have_no_figure(script):
    pytest.importorskip("matplotlib")
    script("devices", "--costs", "-o", "costs.svg").refused("no figure with --costs")


@pytest.mark.usefixtures("small", "no_gpu")
def test_exact_environments_bound_no_gain(script):
    done = script("devices", "--budget", 1000, "-e", "CartPole-v1", "--engine", "exact").ok()
    (row,) = (line.split() for line in done.out.splitlines() if line.startswith("CartPole-v1 (exact)"))
    assert row[-1] == "-"  # a device plays these environments, too


@pytest.mark.usefixtures("small")
def test_a_device_has_both_its_columns_and_rollouts(script, emulated_device, monkeypatch):
    monkeypatch.setattr(measurement, "WIDTHS", (8,))  # emulated, a step of 64-64 takes longer than all the rest
    done = script("devices", "--budget", 1000, "-e", "CartPole-v1", "--json").ok()
    found = json.loads(done.out)
    assert found["device"] == "an emulated device"
    first = found["networks"][0]
    assert [row["slots"] for row in first["rows"] if row["gpu"] and row["gpu_with_copies"]] == [1, 20]
    assert first["break_even_one_core"] is not None
    assert found["rollouts"][0]["gain"] == pytest.approx(found["rollouts"][0]["gpu"] / found["rollouts"][0]["host"])


def test_slots_that_do_not_fit_into_a_device_are_not_measured(emulated_device, monkeypatch):
    monkeypatch.setattr(steps, "on_host", lambda *_: dict.fromkeys(("numpy", "native"), "no"))
    monkeypatch.setattr(emulated_device, "capacity", 2**23)
    one, many = rows(64, False, (1, 1024), Effort(0, 0.0), Budget(1e9))
    assert one["gpu"] > 0
    assert many["gpu"] is many["gpu_with_copies"] is None
    assert "too little memory" in many["why"]["gpu"]


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.skipif(not native.available(), reason="no native kernels")
def test_native_is_the_best_of_all_slots_so_far(monkeypatch):
    times = {1: 700.0, 16: 90.0, 64: 50.0, 256: 80.0}
    monkeypatch.setattr(steps, "host_step", lambda network, genomes, slots, backend, effort: times[slots])
    measured = rows(8, False, tuple(times), Effort(), Budget(1e9))
    assert [row["native"] for row in measured] == [700, 90, 50, 50]
    assert [row["native_slots"] for row in measured] == [1, 16, 64, 64]
    assert [row["numpy"] for row in measured] == list(times.values())


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.skipif(not native.available(), reason="no native kernels")
def test_a_part_of_a_tile_says_nothing_about_more_slots(monkeypatch):
    def only_one(*arguments):
        return 700.0 if arguments[2] == 1 else "it would take too long"

    monkeypatch.setattr(steps, "host_step", only_one)
    one, more = rows(8, False, (1, 16), Effort(), Budget(1e9))
    assert (one["native"], more["native"]) == (700, None)


def row(slots, native, gpu):
    return {"slots": slots, "native": native, "gpu_with_copies": gpu}


def test_break_even():
    measured = [row(1, 100.0, 6400.0), row(16, 100.0, 400.0), row(64, 100.0, 100.0), row(256, 100.0, 25.0)]
    assert break_even(measured, 1) == pytest.approx(64)
    assert break_even(measured, 4) == pytest.approx(256)
    assert break_even(measured, 2) == pytest.approx(128)  # between two numbers of slots
    assert break_even(measured, 8) == math.inf
    assert break_even(measured[3:], 2) == 256
    assert break_even([row(1, 1.0, None), row(2, None, 1.0)], 1) is None
    assert break_even([row(1, 2.0, 1.0), row(2, 1.0, 2.0)], 1) == math.inf  # faster, but not from there on


@pytest.mark.parametrize("words", [("-o", "a.jpg"), ("--budget", -1), ("--budget", "nan"), ("-e", "Nowhere-v0")])
def test_bad_options_are_refused(script, words):
    script("devices", *words).refused()


@pytest.mark.skipif(cupy_device.load_nvrtc() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize(("network", "most"), [("layered", 72), ("hebbian_dag", 96)])
def test_threads_that_play_whole_episodes_take_few_registers_and_spill_none(network, most):
    used, _, stored, loaded = costs.registers(f"{network}, cart_pole")
    assert 32 < used <= most
    assert stored == loaded == 0


@pytest.mark.usefixtures("no_device")
def test_the_time_of_the_host_is_measured_beside_an_idle_device(monkeypatch):
    monkeypatch.setattr(costs, "RUNS", 2)
    assert 0 < costs.host_ns({"name": "mlp", "hidden": [3]}, 512, 8, 14.0) < 1e6


def device_rows(base, gpu=True, slots=(1, 16, 256, 4096)):
    """Rows of `device_parts.steps`; the reference is not measured with many slots."""
    made = []
    for n in slots:
        fast = {"gpu": base / n, "gpu_with_copies": 1.02 * base / n} if gpu else {"gpu": None, "gpu_with_copies": None}
        made.append({"slots": n, "native": base / min(n, 16), "numpy": 9 * base if n < 256 else None} | fast)
    return made


def test_times_of_devices_are_all_inside_and_their_labels_apart():
    networks = {f"24-{n}-{n}-5": (device_rows(100 * n), device_rows(3000 * n)) for n in (8, 16, 32, 64, 128)}
    drawn = draw_device_speed(networks, 16, "a GPU")
    labels, panels = boxes(drawn)
    assert len(panels) == 6  # of three networks
    assert len(labels) == 5 * 3
    assert not any(label.overlaps(panel) for label in labels for panel in panels)
    shrunk = [label.shrunk(1.0, 0.9) for label in labels]
    assert not any(one.overlaps(other) for n, one in enumerate(shrunk) for other in shrunk[:n])
    for panel in drawn.axes:
        bottom, top = panel.get_ylim()
        for line in panel.lines:
            assert bottom < min(line.get_ydata()) <= max(line.get_ydata()) < top


def test_a_figure_without_a_gpu_says_so():
    drawn = draw_device_speed({"24-8-8-5": (device_rows(100, gpu=False), device_rows(300, gpu=False))}, 1, "")
    assert texts_of(drawn).count("GPU: not measured") == 2
    assert "GPU" not in drawn.get_suptitle()
    assert not any("cores" in text for text in texts_of(drawn))
