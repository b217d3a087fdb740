"""`benchmarks/scale.py`: cells are real generations, tables name what was left out, and fits find known models."""

import json
import re
import sys

import numpy as np
import pytest
from conftest import ROOT

from evolve.errors import InputError, RunError, Stopped

sys.path.insert(0, str(ROOT / "benchmarks"))
from scale_parts import grid as grids
from scale_parts import measurement
from scale_parts.grid import Cell, default_ranks, plan
from scale_parts.growth import growth, sentence


def test_a_small_grid_is_measured_and_drawn(script, tmp_path):
    pytest.importorskip("matplotlib")
    words = ("--weights", 3000, "--candidates", 8, "--ranks", 1, 3, "--budget", 1000)
    done = script("scale", *words, "-o", "scale.svg", "--json").ok()
    found = json.loads(done.out)
    assert (tmp_path / "scale.svg").stat().st_size > 10_000
    sizes = [(row["ranks"], row["weights"], row["candidates"]) for row in found["rows"]]
    assert sizes == [(1, 3017, 8), (3, 3017, 8)]
    assert found["not_measured"] == []
    alone, two = found["rows"]
    assert alone["bytes"] == 0
    assert 2 * 8 * 3017 < two["bytes"] < 2 * 8 * 3017 + 30_000  # a sum of W numbers to each worker
    for row in found["rows"]:
        assert 0 < row["serial_seconds"] < row["seconds"]
        assert row["cpu_seconds"] > 0
        assert 0 < row["busy"] < 1
        assert row["generations"] >= 2


@pytest.fixture
def unmeasured(monkeypatch):
    """Replace measurements by a model that starts no process; returns the list of the cells it was asked for."""
    asked = []

    def measured(cell):
        asked.append(cell)
        P, W, R = cell.candidates, cell.weights, cell.ranks
        return {"weights": W, "candidates": P, "ranks": R, "seconds": 1.0 / R, "serial_seconds": 0.1, "busy": 0.5,
                "cpu_seconds": 1e-3 + 1e-5 * P + 1e-8 * W, "memory": 10**7 + 100 * P + 130 * W,
                "bytes": 1000 + 200 * P + 16 * W}  # fmt: skip

    monkeypatch.setattr(measurement, "measured", measured)
    return asked


def test_the_tables_show_measurements_and_their_growth(script, unmeasured):
    done = script("scale", "--weights", 100, 10_000, 100_000, "--candidates", 64, 1024, "--ranks", 3, 1).ok()
    assert [cell.ranks for cell in unmeasured] == [1] * 6 + [3] * 6
    assert done.out.index("12 of 12 cells") < done.out.index("1 rank: ")
    rows = [line.split() for line in done.out.splitlines() if line[:11].strip().replace(",", "").isdigit()]
    assert [row[:2] for row in rows[6:8]] == [["100", "64"], ["100", "1,024"]]
    assert rows[6][5:7] == ["0.015", "9.62"]  # MB, and centres of 800 bytes for each worker
    assert rows[6][9] == "150%"  # 1 s alone, a third of it for two workers
    for fit in ("1 kB + 200 B × P + 16 B × W", "1 ms + 10 µs × P + 10 ns × W"):
        assert re.search(rf"3 ranks: P \+ W .*{re.escape(fit)}", done.out)


def test_cells_that_do_not_fit_are_named(script, unmeasured, monkeypatch):
    monkeypatch.setattr(grids, "free_memory", lambda: 1.2e9)
    monkeypatch.setattr(measurement, "slowness", lambda: 1.0)
    words = ("--weights", 100, 10_000_000, "--candidates", 64, 1_000_000, "--ranks", 1, "--budget", 60)
    done = script("scale", *words).ok()
    assert unmeasured == [Cell(100, 64, 1)]
    small, large = sorted(line for line in done.out.splitlines() if line.startswith("not measured"))
    assert re.search(r"too long .*: 100 × 1,000,000 on 1 rank", small)
    assert re.search(r"memory .*: 10,000,000 × 64 on 1 rank .*1\.6 GB, of 1\.0 GB", large)


def test_a_cell_that_fails_is_left_out(monkeypatch, unmeasured, tmp_path):
    def fail(cell):
        raise RunError("the measurement under mpirun failed: a traceback\nand at last\nKilled")

    grid = [Cell(100, 64, 1), Cell(1000, 64, 1)]
    good = measurement.measured
    monkeypatch.setattr(measurement, "measured", lambda cell: (fail if cell.weights == 100 else good)(cell))
    found = measurement.measure_scale(grid, 60, lambda _: None, lambda: None)
    assert [row["weights"] for row in found["rows"]] == [1000]
    assert [cell["why"] for cell in found["not_measured"]] == ["it failed: Killed"]
    monkeypatch.setattr(measurement, "measured", fail)
    with pytest.raises(RunError, match="it failed"):
        measurement.measure_scale(grid, 60, lambda _: None, lambda: None)
    none = measurement.measure_scale(grid, 0, lambda _: None, lambda: None)
    with pytest.raises(InputError, match="--budget"):
        measurement.draw_scale(none, tmp_path / "scale.png")


def test_it_can_be_stopped(unmeasured):
    def check():
        if unmeasured:
            raise Stopped("stopped by SIGINT")

    with pytest.raises(Stopped):
        measurement.measure_scale([Cell(100, 64, 1), Cell(1000, 64, 1)], 60, lambda _: None, check)
    assert len(unmeasured) == 1


GRID = [(P, W) for P in (64, 1024, 16384) for W in (100, 1000, 10_000, 100_000)]


def costs(function):
    P, W = np.array(GRID, float).T
    return growth(P.tolist(), W.tolist(), function(P, W).tolist())


def test_a_fit_finds_the_model_that_costs_follow():
    found = costs(lambda P, W: 5000 + 120 * P + 16 * W)
    assert found.sum.coefficients == pytest.approx((5000, 120, 16))
    assert (found.sum.r2, found.sum.error) == pytest.approx((1, 0))
    assert found.product.r2 < 0.9
    found = costs(lambda P, W: 5000 + 5 * P * W)
    assert found.product.coefficients == pytest.approx((5000, 5))
    assert found.product.r2 == pytest.approx(1)
    assert found.sum.r2 < 0.9
    assert "P × W fits better" in sentence("bytes", found, str)


def test_no_coefficient_is_negative():
    found = costs(lambda P, W: 100 * P + W * 1e-6)
    assert found.sum.coefficients == pytest.approx((0, 100, 1e-6))
    found = costs(lambda P, W: 1e9 - P - W)
    assert min(found.sum.coefficients + found.product.coefficients) >= 0
    assert "neither fits better" in sentence("bytes", found, str)


def test_few_cells_are_not_fitted():
    assert growth([64, 64, 64, 64], [1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert growth([1, 2, 1], [1, 2, 3], [1, 2, 3]) is None
    assert "too few cells" in sentence("bytes", None, str)


def test_the_cheapest_cells_come_first_into_the_budget():
    cells = [Cell(W, P, R) for R in (1, 3) for W in (100, 10**6) for P in (64, 1024)]
    why, seconds = plan(cells, 16.0, 1.0, 2)
    assert {cell for cell in cells if not why[cell]} == {
        *(Cell(100, P, R) for R in (1, 3) for P in (64, 1024)),
        Cell(10**6, 64, 3),
    }
    assert 10 < seconds < 16
    assert plan(cells, 0.0, 1.0, 2)[1] == 0


def test_workers_double_up_to_one_for_each_core():
    assert default_ranks(1) == [1, 2]
    assert default_ranks(2) == [1, 2, 3]
    assert default_ranks(12) == [1, 2, 3, 5, 9, 13]


@pytest.mark.parametrize("weights", [8, 100, 1000, 12345, 10**6])
def test_networks_have_about_as_many_weights(weights):
    assert Cell(weights, 2, 1).experiment(1).network.num_weights == pytest.approx(weights, rel=0.1)


@pytest.mark.parametrize(
    "words",
    [
        ("--weights", 7),
        ("--candidates", 1),
        ("--ranks", 0),
        ("--budget", -1),
        ("--budget", "nan"),
        ("-o", "a.jpg"),
    ],
)
def test_bad_options_are_refused(script, words, unmeasured):
    script("scale", *words).refused()
    assert not unmeasured
