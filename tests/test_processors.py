"""Exact tasks have the same bits everywhere: natively, by arrays, on several ranks, and on other processors."""

import json

import exact_runs
import pytest
from conftest import as_a_process
from processors import MASKED, x86

from evolve.numerics import native


def only(golden, *sets):
    """Return the golden digests of some sets of runs."""
    return {run: digest for run, digest in golden["exact_digests"].items() if run.split()[0] in sets}


def said(done):
    """Return the digests that a process of `exact_runs` has printed."""
    assert done.code == 0, done.err
    return json.loads(done.out.splitlines()[-1])


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_golden_digests_of_exact_tasks(golden, backend):
    if backend == "native" and not native.available():
        pytest.skip("the native kernels were not built")
    with as_a_process():
        assert exact_runs.all_digests(backend) == golden["exact_digests"]


def test_ranks_do_not_matter(command, golden, tmp_path):
    done = command("run", *exact_runs.words("hebbian-lstm"), "-o", "run", ranks=3)
    assert done.code == 0, done.err
    assert exact_runs.digests(tmp_path / "run", "hebbian-lstm") == only(golden, "hebbian-lstm")


@x86
def test_an_older_processor_agrees(command, golden):
    done = command("run", "numpy", "dag", module="exact_runs", **MASKED)
    assert said(done) == only(golden, "dag")
