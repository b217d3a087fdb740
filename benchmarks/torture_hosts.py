"""Torture evolve launch on several hosts: kills at any instant, hosts lost, links cut; seeded, with a table at the end.

    python benchmarks/torture_hosts.py --kills 20 --losses 5 --cuts 5 --seed 1 --verdicts hosts.jsonl

The hosts are network namespaces (tests/hosts.py), so this needs root on Linux. Each fault has a run of its own, which
has to end with exit code 0 and the digests of a run without faults. Half of the faults come in the first five seconds.
Verdicts can be appended to a file, so that another seed goes on; the table is then of all that are in it.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from hosts import Hosts, why_not  # noqa: E402

from evolve import store  # noqa: E402

GENERATIONS = 8
RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.02", "-p", "12", "-r", "2", "-g", str(GENERATIONS),
       "-d", "2", "--set", "held_out_episodes=0", "--set", "compute.check=false")  # fmt: skip
EARLY, LATE = 5.0, 18.0
"""Seconds: half of the faults come before the first, all before the second."""
DEADLINE = 240.0
LIMITS = {"EVOLVE_SILENCE_SECONDS": "5", "EVOLVE_CONNECT_SECONDS": "30"}
LINE = "best fitness"
"""What a generation that is complete is known by, in the log."""


@dataclass(frozen=True)
class Verdict:
    """What became of a run.

    Attributes:
        fault: "kill", "loss" or "cut".
        what: What was hit, and when.
        wrong: What was not as it should be, "" for nothing.
        seconds: From the fault until the next generation was complete; None where the run had ended before.
    """

    fault: str
    what: str
    wrong: str
    seconds: float | None


class Job:
    """A run on some hosts."""

    def __init__(self, hosts: Hosts, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.log = folder / "log"
        folder.mkdir()
        words = ("-m", "evolve", "launch", "--hostfile", hosts.folder / "hostfile", "--ssh", hosts.ssh)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                hosts.on(1, sys.executable, *words, *RUN, "-o", folder / "out"), env=env, stdout=log, stderr=log
            )

    def lines(self) -> int:
        """Return how many generations were completed, repeated ones included."""
        return self.log.read_text().count(LINE)

    def victims(self, hosts: Hosts) -> Iterator[psutil.Process]:
        """Yield the processes that may be killed: ranks, MPI's launcher and its daemons."""
        for root in (self.process.pid, *map(int, hosts.first_processes())):
            with suppress(psutil.Error):
                for process in psutil.Process(root).children(recursive=True):
                    with suppress(psutil.Error):
                        words = process.cmdline()
                        if "evolve.run" in words or Path((words or ["?"])[0]).name.startswith(("prte", "hydra")):
                            yield process

    def verdict(self, fault: str, what: str, at: float, expected: list[bytes]) -> Verdict:
        """Wait for the end; say how it was."""
        before, seconds = self.lines(), None
        while self.process.poll() is None and time.monotonic() - at < DEADLINE:
            if seconds is None and self.lines() > before:
                seconds = time.monotonic() - at
            time.sleep(0.05)
        if self.process.poll() is None:
            return Verdict(fault, what, f"still running after {DEADLINE:.0f} s", seconds)
        if self.process.returncode:
            return Verdict(fault, what, f"exit code {self.process.returncode}", seconds)
        if seconds is None and self.lines() > before:
            seconds = time.monotonic() - at
        run = store.read(store.path_of(self.folder / "out", 0))
        same = run.complete and [record.digest for record in run.records] == expected
        return Verdict(fault, what, "" if same else "another digest", seconds)


def environment(mpi: str) -> dict[str, str]:
    """Return the environment of the runs."""
    env = {**os.environ, **LIMITS, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONUNBUFFERED": "1"}
    env["OMPI_MCA_btl"] = env["OMPI_MCA_mtl"] = "^ofi"
    if mpi == "mpich":  # its UCX takes hosts of one kernel for one host
        env |= {"MPI4PY_LIBMPI": str(ROOT / ".mpich" / "lib" / "libmpi.so.12"), "UCX_TLS": "tcp,self"}
    return env


def strike(fault: str, job: Job, hosts: Hosts, draw: random.Random) -> str:
    """Let something happen; return what."""
    if fault == "kill":
        while not (found := sorted(job.victims(hosts), key=lambda process: process.pid)):
            if job.process.poll() is not None:
                return "nobody, all was over"
            time.sleep(0.01)
        victim = draw.choice(found)
        with suppress(psutil.Error):
            name = victim.name()
            rank = victim.environ().get("OMPI_COMM_WORLD_RANK", victim.environ().get("PMI_RANK"))
            victim.kill()
            return name if rank is None else f"rank {rank}"
        return "somebody who had just ended"
    number = draw.randrange(2, len(hosts.names) + 1)
    (hosts.lose if fault == "loss" else hosts.cut)(number)
    return f"node{number}"


def recover(fault: str, what: str, hosts: Hosts) -> None:
    """Make everything whole again."""
    if what.startswith("node"):
        number = int(what.removeprefix("node").split()[0])
        (hosts.boot if fault == "loss" else hosts.mend)(number)


def torture(args: argparse.Namespace, folder: Path) -> Iterator[Verdict]:
    """Yield a verdict for each fault."""
    draw = random.Random(args.seed)
    env = environment(args.mpi)
    alone = [sys.executable, "-m", "evolve.run", *RUN, "-o", str(folder / "alone")]
    subprocess.run(alone, env=env, check=True, capture_output=True)
    expected = [record.digest for record in store.read(store.path_of(folder / "alone", 0)).records]
    faults = ["kill"] * args.kills + ["loss"] * args.losses + ["cut"] * args.cuts
    draw.shuffle(faults)
    with Hosts(folder / "hosts", args.hosts) as hosts:
        (hosts.folder / "hostfile").write_text("".join(f"{name} slots={args.slots}\n" for name in hosts.names))
        for number, fault in enumerate(faults):
            when = draw.uniform(0, EARLY) if draw.random() < 0.5 else draw.uniform(EARLY, LATE)
            job = Job(hosts, folder / str(number), env)
            time.sleep(when)
            what = strike(fault, job, hosts, draw)
            at = time.monotonic()
            if fault == "cut" and draw.random() < 0.5:  # a short one
                time.sleep(draw.uniform(0, 10))
                recover(fault, what, hosts)
                verdict = job.verdict(fault, f"{what} for a while", at, expected)
            else:
                verdict = job.verdict(fault, what, at, expected)
                recover(fault, what, hosts)
            if verdict.wrong:
                print(job.log.read_text(), flush=True)
                job.process.kill()
            yield Verdict(fault, f"{verdict.what} after {when:.1f} s", verdict.wrong, verdict.seconds)
            job.process.wait()


def earlier(path: Path | None) -> list[Verdict]:
    """Return the verdicts of a file, none where there is none."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return [Verdict(**json.loads(line)) for line in lines]


def table(verdicts: list[Verdict]) -> str:
    """Return the verdicts as a table, a row for each kind of fault."""
    rows = ["| fault | times | wrong | until the next generation: median, worst |", "|---|---|---|---|"]
    for fault in ("kill", "loss", "cut"):
        some = [verdict for verdict in verdicts if verdict.fault == fault]
        if some:
            seconds = [verdict.seconds for verdict in some if verdict.seconds is not None]
            times = f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s" if seconds else "none"
            rows.append(f"| {fault} | {len(some)} | {sum(bool(v.wrong) for v in some)} | {times} |")
    return "\n".join(rows)


def main() -> int:
    """Torture; return 1 where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("kills", 20), ("losses", 5), ("cuts", 5), ("seed", 0), ("hosts", 3), ("slots", 2)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--verdicts", type=Path, help="a file that verdicts are appended to, a line each")
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), default="openmpi")
    args = parser.parse_args()
    if why_not():
        print(f"hosts cannot be made here: {why_not()}", file=sys.stderr)
        return 2
    verdicts = earlier(args.verdicts)
    with tempfile.TemporaryDirectory(prefix="evolve-torture-") as folder:
        for verdict in torture(args, Path(folder)):
            verdicts.append(verdict)
            if args.verdicts is not None:
                with open(args.verdicts, "a") as file:
                    print(json.dumps(asdict(verdict)), file=file)
            seconds = "—" if verdict.seconds is None else f"{verdict.seconds:.1f} s"
            print(f"{verdict.fault}: {verdict.what}: {verdict.wrong or 'right'}, {seconds}", flush=True)
    print(table(verdicts))
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
