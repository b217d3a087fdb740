"""Evolution against its peers: CartPole-v1, the same size of network and number of steps, each library by itself.

    pip install -e '.[mpi]' -r benchmarks/requirements-peers.txt
    python benchmarks/peers.py -o runs/peers
    python benchmarks/peers.py --show -o runs/peers     # the table: medians of the seeds

Each peer is a file of benchmarks/peers/, as short as its library allows, with the strategy that the library suggests:
networks of 4, 8 and 2, 64 candidates (evolve: 65, 32 pairs and the centre), 4 episodes each. Each of three seeds
is run twice by one worker and twice by two, each time in a process of its own that may use as many cores as workers.
The run's champion, the centre or the best candidate, plays the held-out episodes of evolve after each generation, until
their mean return is 475. This evaluation, imports and the start of the process do not count as time. Compiling by JAX
counts: it happens in each run. The table also has the speed after the second generation, when all is compiled.
Finished runs are JSON files below the folder, and are not run again.
"""

import argparse
import hashlib
import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from pages import markdown
from ppo_parts.episodes import Actions, held_out_seeds, play
from ppo_parts.libraries import missing
from ppo_parts.records import is_there, machine, versions, write

from evolve.config import EnvOptions
from evolve.errors import install_command

_AIM = 475.0
SCRIPT = Path(__file__)
FOLDER = SCRIPT.parent / "peers"
_WORKERS = (1, 2)
_REPEATS = 2
_COMPILING = 2  # generations until JAX has compiled everything


@dataclass(frozen=True)
class Peer:
    """A peer: its title, its file in benchmarks/peers/, the packages it needs by their modules, and more arguments."""

    title: str
    module: str
    needs: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


PEERS = {
    "evolve": Peer("evolve, Gymnasium", "evolve_peer"),
    "evolve-exact": Peer("evolve, exact engine", "evolve_peer", settings={"engine": "exact"}),
    "evotorch": Peer("EvoTorch", "evotorch_peer", {"evotorch": "evotorch", "torch": "torch"}),
    "neat": Peer("neat-python", "neat_peer", {"neat": "neat-python"}),
    "evosax": Peer(
        "evosax, gymnax", "evosax_peer", {"evosax": "evosax", "jax": "jax", "gymnax": "gymnax", "six": "six"}
    ),
}
_PACKAGES = (*(package for peer in PEERS.values() for package in peer.needs.values()), "ray", "numpy", "gymnasium")


def train(name: str, workers: int, asked: argparse.Namespace) -> dict[str, Any] | None:
    """Let a peer train in this process; return its result, None on a worker rank."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:workers])
    peer = PEERS[name]
    sys.path.insert(0, str(FOLDER))
    (seed,) = asked.seeds
    made = importlib.import_module(peer.module).train(seed, workers, asked.steps, **peer.settings)
    leads = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) == "0"
    chain, aim, compiled, judging, mean = hashlib.sha256(), None, None, 0.0, 0.0
    begin = time.perf_counter()
    for generation, (steps, digest, champion) in enumerate(made, 1):
        seconds = time.perf_counter() - begin - judging
        if generation == _COMPILING:
            compiled = {"steps": steps, "seconds": seconds}
        chain.update(digest.encode())
        if leads and aim is None:
            mean = judge(champion(), seed, asked.episodes)
            aim = {"steps": steps, "seconds": seconds} if mean >= _AIM else None
        judging = time.perf_counter() - begin - seconds
    found = {"steps": steps, "seconds": seconds, "aim": aim, "compiled": compiled, "digest": chain.hexdigest()}
    return found if leads else None


def judge(act: Callable[[np.ndarray], Any], seed: int, episodes: int) -> float:
    """Return the mean return of a champion in held-out episodes."""
    outputs = Actions(choices=2, size=2).outputs
    seeds = held_out_seeds(seed, episodes)
    return float(play(EnvOptions(id="CartPole-v1"), seeds, lambda seen: outputs(np.asarray(act(seen)))).mean())


def start(name: str, workers: int, seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Let a peer train in a process of its own; return its result, or the reason for its failure."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = [sys.executable, str(SCRIPT), "--child", name, str(workers), str(result)]
        words += ["--seeds", str(seed), "--steps", str(asked.steps), "--episodes", str(asked.episodes)]
        # Exact episodes are played by threads on the cores of the process, others by ranks.
        if name == "evolve" and workers > 1:
            words = [_mpirun(), "--oversubscribe", "--bind-to", "none", "-n", str(workers + 1), *words]
        try:
            path = os.pathsep.join([str(FOLDER), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
            # Waiting threads use no processor; and the processes of a peer find its module.
            env = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": path.rstrip(os.pathsep)}
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=asked.limit)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {asked.limit:.0f} s"}
        if done.returncode or not result.exists():
            return {"failed": f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['?'])[-1]}"}
        return json.loads(result.read_text())


def run_all(asked: argparse.Namespace) -> None:
    """Run the peers that are asked for, installed, and not finished yet."""
    for name in asked.peers:
        lacking = missing(PEERS[name].needs)
        if lacking:
            print(
                f"{name} needs {', '.join(lacking)}. Run pip install -r benchmarks/requirements-peers.txt",
                file=sys.stderr,
            )
            continue
        for seed, workers, repeat in itertools.product(asked.seeds, asked.workers, range(_REPEATS)):
            wanted = {"steps": asked.steps, "episodes": asked.episodes, "seed": seed}
            path = asked.output / name / f"seed-{seed}-workers-{workers}-run-{repeat + 1}.json"
            if is_there(path, wanted):
                continue
            about = {"machine": machine(workers), "versions": versions(_PACKAGES), "date": time.strftime("%F")}
            found = start(name, workers, seed, asked)
            if "failed" not in found:
                write(path, {"asked": wanted} | about | found)
            print(f"{path}: {found}", flush=True)


def show(folder: Path) -> None:
    """Print the table of the runs below a folder."""
    found = {name: [json.loads(path.read_text()) for path in sorted((folder / name).glob("*.json"))] for name in PEERS}
    found = {name: runs for name, runs in found.items() if runs}
    if not found:
        raise SystemExit(f"{folder}: expected JSON files of finished runs, got none. Run benchmarks/peers.py first.")
    head = ["peer", "steps per second, 1 and 2 workers", "after the second generation"]
    head += ["seconds to the aim", "steps to the aim", "lines"]
    head += ["seeds", *(f"same again, {workers}" for workers in _WORKERS), "same with 1 and 2"]
    print(markdown(head, (row(name, runs) for name, runs in found.items())))
    every = [run for runs in found.values() for run in runs]
    loads = [run["machine"]["load"] for run in every]
    used = sorted({f"{name} {number}" for run in every for name, number in run["versions"].items()})
    load = f"load {min(loads)}" + (f" to {max(loads)}" if max(loads) > min(loads) else "")
    print(f"\n- {every[0]['machine']['cpu']}, {load}, {every[0]['date']}.")
    print(f"- Versions: {', '.join(used)}.")


def row(name: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the cells of a peer's row."""
    by_workers = {workers: [run for run in runs if run["machine"]["cores used"] == workers] for workers in _WORKERS}
    rates = [_median([run["steps"] / run["seconds"] for run in some]) for some in by_workers.values()]
    later = [_median([_later_rate(run) for run in some]) for some in by_workers.values()]
    seeds = sorted({run["asked"]["seed"] for run in runs})
    reached = [run for run in runs if run["aim"]]
    lucky = {run["asked"]["seed"] for run in reached}
    share = "" if len(lucky) == len(seeds) else f" ({len(lucky)} of {len(seeds)} seeds)"
    cells = [PEERS[name].title, *(", ".join(map(_rate_in_words, each)) for each in (rates, later))]
    for what, digits in (("seconds", 1), ("steps", 0)):
        aims = [run["aim"][what] for run in reached]
        cells.append(f"{_median(aims):,.{digits}f}{share}" if aims else "not reached")
    cells += [str(lines_of(PEERS[name].module)), ", ".join(map(str, seeds))]
    cells += [
        _same([[run["digest"] for run in some if run["asked"]["seed"] == s] for s in seeds])
        for some in by_workers.values()
    ]
    of_workers = {(run["asked"]["seed"], run["machine"]["cores used"]): run["digest"] for run in runs}
    return [*cells, _same([[digest for (seed, _), digest in of_workers.items() if seed == s] for s in seeds])]


def _rate_in_words(rate: float) -> str:
    return "not measured" if np.isnan(rate) else f"{rate:,.0f}"


def _later_rate(run: dict[str, Any]) -> float:
    """Return the steps per second of a run after the generations that compile; NaN without a later generation."""
    begin = run.get("compiled")
    if begin is None or run["steps"] == begin["steps"]:
        return float("nan")
    return (run["steps"] - begin["steps"]) / (run["seconds"] - begin["seconds"])


def lines_of(module: str) -> int:
    """Return how many lines a user has to write: the lines of a peer's files without empty lines and comments."""
    texts = [path.read_text().splitlines() for path in sorted(FOLDER.glob(f"{module}.*")) if path.suffix != ".pyc"]
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for text in texts for line in text)


def _same(by_seed: Sequence[Sequence[str]]) -> str:
    if any(len(digests) < 2 for digests in by_seed):
        return "not measured"
    return "yes" if all(len(set(digests)) == 1 for digests in by_seed) else "no"


def _median(numbers: Sequence[float]) -> float:
    return float(np.median(numbers)) if numbers else float("nan")


def _mpirun() -> str:
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise SystemExit(f"evolve needs mpirun for two workers. Run {install_command('mpi')}")
    return found


def main() -> None:
    """Run the peers, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="PEER", help=", ".join(PEERS)
    )
    parser.add_argument("--workers", type=int, nargs="+", choices=_WORKERS, default=_WORKERS, help="1 2")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="S", help="(1 2 3)")
    parser.add_argument("--steps", type=int, default=1_000_000, metavar="N", help="environment steps (1,000,000)")
    parser.add_argument("--episodes", type=int, default=50, metavar="N", help="held-out episodes (50)")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS", help="of a run (3600)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/peers"), metavar="DIR", help="(runs/peers)")
    parser.add_argument("--show", action="store_true", help="run nothing: print the table")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        name, workers, result = asked.child
        found = train(name, int(workers), asked)
        if found is not None:
            Path(result).write_text(json.dumps(found))
    elif asked.show:
        show(asked.output)
    else:
        run_all(asked)


if __name__ == "__main__":
    main()
