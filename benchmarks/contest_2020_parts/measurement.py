"""The measurement of a row: a share of a run in processes of its own; and the returns of whole runs."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import evolve
from contest_2020_parts.rows import EVOLUTION, PPO, SEED, Curve, Point, Row
from evolve.cluster.hosts import mpirun_environment, mpirun_words

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "ppo_mpi.py"
EXPERIMENT = ROOT / "experiments" / "script-2020.toml"
_POINTS = 24  # of evolution's curve


def measure_ppo(ranks: int, epochs: int) -> Row:
    """Time the first epochs of PPO."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ppo.json"
        words = [sys.executable, str(SCRIPT), "--epochs", str(epochs), "-o", str(path)]
        before = _load()
        _run([*mpirun_words(ranks), *words] if ranks > 1 else words)
        record = json.loads(path.read_text())
    spent = {part: float(np.mean([one[part] for one in record["parts"]])) for part in record["parts"][0]}
    return Row(
        contestant=PPO,
        ranks=ranks,
        threads=1,
        rounds=epochs,
        seconds=record["seconds"],
        steps=epochs * record["settings"]["steps"],
        cores=os.cpu_count() or 1,
        digest=record["digest"],
        split={part: seconds / sum(spent.values()) for part, seconds in spent.items()},
        loads=(before, _load()),
        date=_now(),
        real_time=_real_time(),
    )


def measure_evolution(workers: int, threads: int, generations: int) -> Row:
    """Time the first generations of evolution, without the very first one, in which processes make what they need."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "evolve.run", str(EXPERIMENT), "-s", str(SEED), "-o", folder]
        words += ["-g", str(generations + 1), "--threads", str(threads), "--set", "held_out_episodes=0"]
        before = _load()
        _run([*words, "--workers", str(workers)] if workers else words)
        run = evolve.load(Path(folder) / f"seed-{SEED}.h5")
        table, digest = run.table(), run.digest
    return Row(
        contestant=EVOLUTION,
        ranks=workers,
        threads=threads,
        rounds=generations,
        seconds=sum(table["seconds"][1:]),
        steps=int(sum(table["steps"][1:])),
        cores=os.cpu_count() or 1,
        digest=digest,
        loads=(before, _load()),
        date=_now(),
        real_time=_real_time(),
    )


def curve_of(path: Path, episodes: int) -> Curve:
    """Return the returns of a run: of evolution's run file, or of the record of benchmarks/ppo_mpi.py --evaluate."""
    if path.suffix == ".json":
        record = json.loads(path.read_text())
        points = tuple(Point(point["steps"], point["mean"]) for point in record["held out"])
        about = f"{len(record['epochs'])} epochs, seed {record['settings']['seed']}"
        return Curve(PPO, points, episodes, about)
    run = evolve.load(path)
    steps = np.cumsum(run.table()["steps"])
    last = len(steps) - 1
    chosen = np.unique(np.round(np.geomspace(1, last + 1, _POINTS)).astype(int) - 1)
    points = tuple(
        Point(int(steps[number]), float(run.evaluate(episodes, generation=int(number)).mean)) for number in chosen
    )
    return Curve(EVOLUTION, points, episodes, f"{last + 1} generations, seed {run.seed}")


def _run(words: Sequence[str]) -> None:
    """Run a command. Ends the process with its message if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=mpirun_environment(), cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with exit code {done.returncode}:\n{done.stderr.strip()}")


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _real_time() -> bool:
    policies = [getattr(os, name) for name in ("SCHED_FIFO", "SCHED_RR") if hasattr(os, name)]
    return bool(policies) and os.sched_getscheduler(0) in policies


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
