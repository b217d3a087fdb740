"""Torture evolve launch on several hosts: kills at any instant, hosts lost, links cut, disks filled.

    python benchmarks/torture_hosts.py --kills 20 --losses 5 --cuts 5 --fills 5 --seed 1 --verdicts hosts.jsonl

Seeded, with a table at the end. The hosts are network namespaces (tests/helpers/hosts.py), so this needs root on Linux.
Each fault has a run of its own. It has to end with exit code 0, or with a plain sentence and be resumed by hand, as on
a machine too busy to start ranks in time; and finally with the digests of a run without faults. Half of the faults come
within five seconds of the start of the run or of its ranks, from the first millisecond on, the others within ten
seconds of the first complete generation. Hosts other than the first are lost and cut off. A full disk, on the first
host, has to end the run with a plain sentence and exit code 1 (2 before the ranks have begun), with nothing lost; with
free space, it is resumed. Verdicts can be appended to a file, so that a campaign continues with another seed; the table
then covers the whole file (all numbers 0: only the table). Needs psutil.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers"), str(ROOT / "benchmarks")]
import launched  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402
from launched import DONE, PATIENCE, Launched, complete, spread, stored  # noqa: E402
from torture import can_mount, fill, small_disk  # noqa: E402

GENERATIONS = 8
RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.02", "-p", "12", "-r", "2", "-g", str(GENERATIONS),
       "-d", "2", "--set", "held_out_episodes=0", "--set", "compute.check=false")  # fmt: skip
BEGUN = " on node1"
"""A text that the log has for each start."""
LIMITS = {"EVOLVE_SILENCE_SECONDS": "5", "EVOLVE_CONNECT_SECONDS": "45"}
FAULTS = {"kill": "kills", "loss": "losses", "cut": "cuts", "fill": "fills"}
MOST_BY_HAND = 3
FULL = (1, 2)
"""The exit codes of a run whose disk is full."""


@dataclass(frozen=True)
class Verdict(launched.Verdict):
    """The outcome of a run.

    Attributes:
        fault: "kill", "loss", "cut" or "fill".
        what: The process or host that was hit, and the instant.
        seconds: From the fault (with a full disk: from the moment it has free space) until the next generation was
            complete; None if the run had ended before.
        by_hand: How often the run had to be started again by hand.
    """

    fault: str
    what: str
    seconds: float | None
    by_hand: int = 0


class Job(Launched):
    """A run on several hosts.

    Args:
        hosts: The hosts.
        folder: The folder of its log.
        env: Its environment variables.
        out: The directory of its run file, if not in the folder.
    """

    def __init__(self, hosts: Hosts, folder: Path, env: dict[str, str], out: Path | None = None) -> None:
        words = ("-m", "evolve", "launch", "--hostfile", hosts.folder / "hostfile", "--ssh", hosts.ssh, *RUN)
        super().__init__(folder, hosts.on(1, sys.executable, *words), env, out)

    def victims(self, hosts: Hosts) -> Iterator[psutil.Process]:
        """Yield the processes that may be killed: ranks, MPI's launcher and its daemons."""
        for root in (self.popen.pid, *map(int, hosts.first_processes())):
            with suppress(psutil.Error):
                for process in psutil.Process(root).children(recursive=True):
                    with suppress(psutil.Error):
                        words = process.cmdline()
                        if "evolve.run" in words or Path((words or ["?"])[0]).name.startswith(("prte", "hydra")):
                            yield process

    def see(self, hit: "Hit") -> tuple[str, float | None]:
        """Wait for the end; return the violated promise, and the seconds until the next generation was complete."""
        at, before, seconds = hit.at, hit.before, None
        while not self.over():
            if self.stuck(at):
                return f"nothing was said for {PATIENCE:.0f} s", seconds
            if seconds is None and self.count(DONE) > before:
                seconds = time.monotonic() - at
            time.sleep(0.05)
        if seconds is None and self.count(DONE) > before:
            seconds = time.monotonic() - at
        return self.misspoken(), seconds

    def ended_well(self, expected: list[bytes]) -> str:
        """Return what is wrong with a run that should have ended by itself."""
        if self.popen.returncode:
            return f"exit code {self.popen.returncode}"
        return "" if complete(self.out) and stored(self.out) == expected else "another digest"


def environment(mpi: str) -> dict[str, str]:
    """Return the environment of the runs."""
    env = {**os.environ, **LIMITS, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'helpers'}", "PYTHONUNBUFFERED": "1"}
    env["OMPI_MCA_btl"] = env["OMPI_MCA_mtl"] = "^ofi"
    if mpi == "mpich":  # its UCX takes hosts of one kernel for one host
        env |= {"MPI4PY_LIBMPI": str(ROOT / ".mpich" / "lib" / "libmpi.so.12"), "UCX_TLS": "tcp,self"}
    return env


@dataclass(frozen=True)
class Hit:
    """A fault: its kind, when it came, in words and by time.monotonic(), and after how many complete generations."""

    fault: str
    when: str
    at: float
    before: int


class Torturer:
    """Makes faults while runs are going on several hosts.

    Args:
        hosts: The hosts.
        folder: The folder of all files.
        disk: A small file system.
        env: The environment variables of the runs.
        seed: Of the draws; the timing still varies.
    """

    def __init__(self, hosts: Hosts, folder: Path, disk: Path, env: dict[str, str], seed: int) -> None:
        self._hosts, self._folder, self._disk, self._env = hosts, folder, disk, env
        self._draw = random.Random(seed)
        self._expected = launched.undisturbed(folder / "alone", RUN, env)
        self._runs = 0

    def verdict(self, fault: str) -> Verdict:
        """Return the verdict on a run that a fault has hit, or on one that has failed before the fault."""
        while True:
            self._runs += 1
            job = self.start(self._folder / str(self._runs), self._disk / "run" if fault == "fill" else None)
            hit = Hit(fault, self.wait(job), time.monotonic(), job.count(DONE))
            try:
                if not job.over():
                    return {"kill": self._kill, "fill": self._fill}.get(fault, self._take)(job, hit)
                found = self._verdict(job, hit, "no fault")
                if found.wrong:
                    return found
            finally:
                job.end()
                shutil.rmtree(self._disk / "run", ignore_errors=True)

    def start(self, folder: Path, out: Path | None) -> Job:
        """Start a run, or resume it."""
        return Job(self._hosts, folder, self._env, out)

    def wait(self, job: Job) -> str:
        """Wait for the instant of a fault; return the instant in words."""
        since, until, longest = self._draw.choice(
            [("the start", "", 5.0), ("the start of ranks", BEGUN, 5.0), *[("the first generation", DONE, 10.0)] * 2]
        )
        begin = time.monotonic()
        while until not in job.text() and not job.over() and not job.stuck(begin):
            time.sleep(0.02)
        seconds = self._draw.uniform(0, longest)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not job.over():
            time.sleep(0.02)
        return f"{seconds:.1f} s after {since}"

    def _verdict(self, job: Job, hit: Hit, what: str, wrong: str = "", seconds: float | None = None) -> Verdict:
        """Return the verdict after the end of a run; a run that ended early but correctly is first resumed by hand."""
        by_hand = 0
        while not wrong and not complete(job.out) and by_hand < MOST_BY_HAND:
            by_hand += 1
            job = self.start(job.folder, job.out)
            wrong, later = job.see(hit)
            seconds = later if seconds is None else seconds
        wrong = wrong or job.ended_well(self._expected)
        if wrong:
            print(job.text(), flush=True)
            job.end()
        return Verdict(hit.fault, f"{what}, {hit.when}", seconds, by_hand, wrong=wrong)

    def _kill(self, job: Job, hit: Hit) -> Verdict:
        """Kill a process of the run."""
        while not (found := sorted(job.victims(self._hosts), key=lambda process: process.pid)) and not job.over():
            time.sleep(0.01)
        name = "no process"
        with suppress(psutil.Error, IndexError):
            victim = self._draw.choice(found)
            variables = victim.environ()
            rank = variables.get("OMPI_COMM_WORLD_RANK", variables.get("PMI_RANK"))
            name = victim.name() if rank is None else f"rank {rank}"
            victim.kill()
        return self._verdict(job, hit, name, *job.see(hit))

    def _take(self, job: Job, hit: Hit) -> Verdict:
        """Take a host away until the run has ended; half of the link cuts are short."""
        number = self._draw.randrange(2, len(self._hosts.names) + 1)
        lost = hit.fault == "loss"
        short = not lost and self._draw.random() < 0.5
        take, give = (self._hosts.lose, self._hosts.boot) if lost else (self._hosts.cut, self._hosts.mend)
        take(number)
        if short:
            time.sleep(self._draw.uniform(0, 10))
            give(number)
        found = job.see(hit)
        if not short:
            give(number)
        return self._verdict(job, hit, f"node{number}{' for a while' * short}", *found)

    def _fill(self, job: Job, hit: Hit) -> Verdict:
        """Fill the disk of the run file; free space after the end of the run, and resume it."""
        what, kept = "the disk of the run file", stored(job.out)
        fill(self._disk / "filler")
        wrong, _ = job.see(hit)
        (self._disk / "filler").unlink()
        if not wrong and not complete(job.out) and job.popen.poll() not in FULL:
            wrong = f"exit code {job.popen.returncode} on a full disk"
        if not wrong and stored(job.out)[: len(kept)] != kept:
            wrong = "generations were lost"
        return self._verdict(job, replace(hit, at=time.monotonic(), before=job.count(DONE)), what, wrong)


def torture(args: argparse.Namespace, folder: Path) -> Iterator[Verdict]:
    """Yield a verdict for each fault."""
    faults = [fault for fault, option in FAULTS.items() for _ in range(getattr(args, option))]
    random.Random(args.seed).shuffle(faults)
    if not faults:
        return
    with ExitStack() as stack:
        disk = folder / "disk"
        if "fill" in faults:  # mounted before the hosts are made, so that all see it
            stack.enter_context(small_disk(disk))
        hosts = stack.enter_context(Hosts(folder / "hosts", args.hosts))
        (hosts.folder / "hostfile").write_text("".join(f"{name} slots={args.slots}\n" for name in hosts.names))
        torturer = Torturer(hosts, folder, disk, environment(args.mpi), args.seed)
        for fault in faults:
            yield torturer.verdict(fault)


def table(verdicts: list[Verdict]) -> str:
    """Return the verdicts as a table, a row for each kind of fault."""
    rows = ["| fault | times | resumed by hand | wrong | until the next generation: median, worst |", "|" + "---|" * 5]
    for fault in FAULTS:
        some = [verdict for verdict in verdicts if verdict.fault == fault]
        if some:
            times = spread([verdict.seconds for verdict in some])
            by_hand, wrong = (
                sum(map(bool, counts)) for counts in zip(*((v.by_hand, v.wrong) for v in some), strict=True)
            )
            rows.append(f"| {fault} | {len(some)} | {by_hand} | {wrong} | {times} |")
    return "\n".join([*rows, launched.load(verdicts)])


def main() -> int:
    """Torture; return 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"kills": 20, "losses": 5, "cuts": 5, "fills": 0, "seed": 0, "hosts": 3, "slots": 2}
    for name, usual in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--verdicts", type=Path, help="a file that verdicts are appended to, a line each")
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), default="openmpi")
    args = parser.parse_args()
    if args.hosts < 2:
        parser.error("--hosts: expected at least 2")
    if why_not():
        print(f"hosts cannot be made here: {why_not()}", file=sys.stderr)
        return 2
    if args.fills and not can_mount():
        print("a small disk cannot be mounted here: leave out --fills", file=sys.stderr)
        return 2
    verdicts = launched.read_verdicts(args.verdicts, Verdict)
    with tempfile.TemporaryDirectory(prefix="evolve-torture-") as folder:
        for verdict in torture(args, Path(folder)):
            verdicts.append(verdict)
            launched.append_verdict(args.verdicts, verdict)
            seconds = "—" if verdict.seconds is None else f"{verdict.seconds:.1f} s"
            print(f"{verdict.fault}: {verdict.what}: {verdict.wrong or 'right'}, {seconds}", flush=True)
    print(table(verdicts))
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
