"""What threads of one process gain, in whole generations from `ask` to the record.

    python benchmarks/threads.py --threads 1 2
    python benchmarks/threads.py --tasks walker --threads 1 8 16 --repeats 5
    python benchmarks/threads.py --tasks few --seen                       # by a script that sees each generation
    mpirun -n 3 python benchmarks/threads.py --tasks few --threads 1      # two workers

Each repeat trains by every number of threads in turn, so that all of them meet the same noise. All runs of a task must
have one digest. The first generation is left out. The seconds are the medians of all other generations of all repeats,
and rates are compared with the rate of the first number of threads.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pages import markdown

import evolve
from evolve.analysis.runs import script_ranks
from evolve.numerics import host_backend

TASKS = {
    "cartpole": {"env": "CartPole-v1", "population": 4096, "episodes": 4, "generations": 16},
    "few": {"env": "CartPole-v1", "population": 64, "episodes": 4, "generations": 200},
    "walker": {"env": "BipedalWalker-v3", "population": 138, "episodes": 8, "generations": 4},
}
HEADER = ["task", "candidates × episodes", "threads", "seconds of a generation", "× the rate of the first", "digest"]


def train(task: dict, threads: int, seen: bool) -> tuple[str, list[float]]:
    """Return the digest of a run, and the seconds of its generations but the first.

    seen: whether a callback sees each generation, so that each is flushed; the seconds then include the flush.
    """
    env = {"id": task["env"], "engine": "exact"}
    more = {"network": "mlp", "strategy": {"name": "openai-es", "sigma": 0.1, "learning_rate": 0.05}, "seed": 1}
    sizes = {name: task[name] for name in ("population", "episodes", "generations")}
    with tempfile.TemporaryDirectory() as folder:
        compute = {"threads": threads, "backend": host_backend("auto")}  # never a GPU
        times = []
        callbacks = [lambda _: times.append(time.perf_counter())] if seen else []
        run = evolve.train(
            env=env, **sizes, **more, compute=compute, held_out_episodes=0, output=folder, callbacks=callbacks
        )
        between = [after - before for before, after in itertools.pairwise(times)]
        return run.digest, between if seen else run.table()["seconds"][1:]


def main() -> int:
    """Train; print a table. The exit code is 1 if digests differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--generations", type=int, help="of each run")
    parser.add_argument("--seen", action="store_true", help="let a callback see each generation")
    args = parser.parse_args()
    if min(args.threads) < 1:
        parser.error("--threads: expected at least 1")
    if args.repeats < 1:
        parser.error("--repeats: expected at least 1")
    if args.generations is not None and args.generations < 2:
        parser.error("--generations: expected at least 2, as the first is left out")
    rows, same = [], True
    for name in args.tasks:
        task = TASKS[name] | ({"generations": args.generations} if args.generations else {})
        digests, seconds = set(), {threads: [] for threads in args.threads}
        for _ in range(args.repeats):
            for threads in args.threads:
                digest, took = train(task, threads, args.seen)
                digests.add(digest)
                seconds[threads] += took
        if not script_ranks().is_rank_0:  # only rank 0 sees generations
            continue
        same = same and len(digests) == 1
        first = statistics.median(seconds[args.threads[0]])
        for threads in args.threads:
            median = statistics.median(seconds[threads])
            size = f"{task['population']:,} × {task['episodes']}"
            said = digests.copy().pop()[:12] if len(digests) == 1 else "differ"
            rows.append([name, size, str(threads), f"{median:.4f}", f"{first / median:.2f}", said])
    if script_ranks().is_rank_0:
        print(markdown(HEADER, rows))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
