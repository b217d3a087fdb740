"""The benches that need long to be worth it, for a moment: they run, count, and find nothing."""

import json
import subprocess
import sys

import pytest
from conftest import LONG, OPENMPI, ROOT, environment


def bench(name, *words, limit=2 * LONG):
    words = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *map(str, words)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=limit, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
@pytest.mark.parametrize("kind", [pytest.param("job", marks=pytest.mark.slow), "workers"])
def test_torture(kind):
    code, out, err = bench("torture", "--kinds", kind, "--faults", 1, "--experiments", "sleep", "--json")
    assert code == 0, out + err
    tally = json.loads(out.splitlines()[-1])
    assert tally["faults"] >= 1
    assert tally["survived"] + tally["resumed"] == tally["faults"]
    assert tally["digests differed"] == tally["unreadable files"] == tally["generations lost"] == 0


def test_fuzz():
    code, out, err = bench("fuzz", "--files", 120, "--texts", 1600, "--flips", 40)
    assert code == 0, out + err
    figures = json.loads(out.splitlines()[-1])
    assert figures["files"]["refused"] > 60
    assert figures["files"]["read"] > 2
    assert figures["TOML"]["refused"] + figures["TOML"]["read"] == 800
    assert figures["peak MB"] < 500


@pytest.mark.slow
@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
def test_soak():
    code, out, err = bench("soak", "--for", "100s", "--ranks", 3)
    assert code == 0, out + err


def test_fingerprints():
    code, out, err = bench("fingerprints", "-e", "CartPole-v1", "-p", 8, "-r", 1, "--pairs", 2)
    assert code == 0, out + err
    assert "2 pairs: fingerprints cost" in out
