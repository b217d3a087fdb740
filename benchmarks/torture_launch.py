"""Torture evolve launch on this machine: SIGKILLs at random instants, from the first millisecond of a start on.

    python benchmarks/torture_launch.py --kills 100 --seed 1 --verdicts kills.jsonl

Each run is hit again and again until it is complete, at most twelve times. A kill hits `evolve launch` itself, mpirun,
or a rank, if it is alive: more than half of the kills in the first five seconds of a start, the others while episodes
are played, while generations are written, and at the end. After a kill the run has to go on, or be started again, or
end with a plain sentence and be resumed; within the deadline, without a traceback, a leftover process, or a lost
generation; and finally with the digests of an undisturbed run. A run that fails before any kill ends the campaign.
Verdicts can be appended to a file, so that a campaign continues with another seed; the table then covers the whole file
(`--kills 0` prints only the table). Needs psutil.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))

import launched
from launched import DONE, PATIENCE, Launched, complete, spread, stored

SLEEP = ["-e", "evolve.environments.function_task:Sleep-v0", "-p", "12", "-r", "4", "--set", "compute.check=false"]
EXPERIMENTS = {
    "long": [*SLEEP, "--set", "env.kwargs.seconds=0.05", "-g", "12", "-d", "2"],
    "short": [*SLEEP, "--set", "env.kwargs.seconds=0.01", "-g", "6", "-d", "2"],
    "exact": ["-e", "CartPole-v1", "--engine", "exact", "-p", "16", "-r", "4", "-g", "30", "-d", "4"],
}
COMMON = ["--set", "held_out_episodes=2"]
MOST_KILLS = 12
"""Kills of one run, which is then left alone: a run that is hit at every start never completes."""
EARLY, LATE = 5.0, 12.0
"""Seconds of a start: more than half of the kills come before the first value, most others before the second."""
BEGUN, LOST = " on localhost", "other ranks take over"
"""Texts that the log has for a start, and for a lost worker that the run can do without."""


@dataclass(frozen=True)
class Verdict(launched.Verdict):
    """The outcome of a kill.

    Attributes:
        victim: The kind of process that was killed; "nobody" for the end of a run.
        experiment: The experiment of its run.
        ranks: The number of its ranks.
        at: Seconds from the start to the kill.
        begun: Whether the run had completed a generation by then.
        then: The reaction.
        noticed: Seconds from the kill to the reaction.
        resumed: Seconds from the kill to the next complete generation; None if another kill came first.
    """

    victim: str
    experiment: str
    ranks: int
    at: float
    begun: bool
    then: str
    noticed: float
    resumed: float | None = None


class Job(Launched):
    """An `evolve launch` with all its processes, which are found by a variable of their environment."""

    def __init__(self, folder: Path, experiment: str, ranks: int) -> None:
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.tag = f"{folder}:{time.monotonic_ns()}"
        words = [sys.executable, "-m", "evolve", "launch", "-n", str(ranks), *EXPERIMENTS[experiment], *COMMON]
        env = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(folder / "tmp"),
            "TORTURED": self.tag,
            "OMPI_MCA_btl": "^ofi",
            "OMPI_MCA_mtl": "^ofi",
            "OMPI_MCA_btl_sm_backing_directory": str(folder / "tmp"),
        }
        super().__init__(folder, words, env)

    def processes(self) -> dict[str, psutil.Process]:
        """Return the live processes by kind."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TORTURED") == self.tag and process.status() != psutil.STATUS_ZOMBIE:
                    rank = process.environ().get("OMPI_COMM_WORLD_RANK")
                    name = "launch" if process.pid == self.popen.pid else process.name()
                    found[name if rank is None else f"rank {rank}"] = process
        return found


class Campaign:
    """Kills until there were enough.

    Args:
        seed: The seed of the draws; the timing still varies.
        folder: The folder of all files.
        tell: Called with each verdict.
    """

    def __init__(self, seed: int, folder: Path, tell: Callable[[Verdict], None]) -> None:
        self.draw, self.folder, self.tell = random.Random(seed), folder, tell
        self.kills = self.runs = 0
        self.expected: dict[str, list[bytes]] = {}

    def digests(self, experiment: str) -> list[bytes]:
        """Return the digests of an undisturbed run."""
        if experiment not in self.expected:
            words = [*EXPERIMENTS[experiment], *COMMON]
            out = self.folder / f"undisturbed-{experiment}"
            self.expected[experiment] = launched.undisturbed(out, words, {**os.environ})
        return self.expected[experiment]

    def torture(self, most: int) -> None:
        """Kill processes of one run until it is complete, at most `most` times."""
        self.runs += 1
        experiment, ranks = self.draw.choice([*EXPERIMENTS]), self.draw.choice([2, 3, 3, 4])
        expected = self.digests(experiment)
        folder = self.folder / str(self.runs)
        job, verdict, most, start = Job(folder, experiment, ranks), None, min(most, MOST_KILLS), 0.0
        generations = 0
        for _ in range(most):  # kills that come too late do not count
            if verdict is None or verdict.then == "ended":
                start = self._launched(job)
            when = self.draw.uniform(0, EARLY) if self.draw.random() < 0.6 else self.draw.uniform(EARLY, LATE)
            if verdict is not None and verdict.then in ("done without", "went on"):
                when = time.monotonic() - start + self.draw.uniform(0, 2)
            verdict = self._tell(verdict, job, start + when)
            if job.over():
                break
            verdict = self._kill(job, experiment, ranks, start)
            if verdict is None or verdict.wrong:
                break
            self.kills += 1
            generations, before = len(stored(job.out)), generations
            if generations < before:
                verdict = replace(verdict, wrong="generations were lost")
                break
            if verdict.then == "started again":
                start = time.monotonic()
            if verdict.then == "ended":
                if complete(job.out):
                    break
                job = Job(folder, experiment, ranks)
        self._finish(job, experiment, ranks, verdict, expected)

    def _launched(self, job: Job) -> float:
        """Return the instant at which a start begins: now, or when the ranks are started."""
        before, seen = job.count(BEGUN), self.draw.random() < 0.3
        while not seen and job.count(BEGUN) == before and not job.over():
            time.sleep(0.02)
        return time.monotonic()

    def _tell(self, verdict: Verdict | None, job: Job, until: float) -> Verdict | None:
        """Wait; report the last verdict, with the time to the next complete generation if there was one."""
        begin, before = time.monotonic(), job.count(DONE)
        while time.monotonic() < until and not job.over():
            if verdict is not None and verdict.resumed is None and job.count(DONE) > before:
                verdict = replace(verdict, resumed=verdict.noticed + time.monotonic() - begin)
            time.sleep(0.02)
        if verdict is not None:
            self.tell(verdict)
        return None

    def _kill(self, job: Job, experiment: str, ranks: int, start: float) -> Verdict | None:
        """Kill a process, and return the verdict; None if no such process lived."""
        found = job.processes()
        if not found:
            return None
        victim = self.draw.choice(sorted(found))
        before = [job.count(words) for words in (BEGUN, LOST, DONE)]
        begun = before[2] > 0
        at = time.monotonic()
        with suppress(psutil.Error):
            found[victim].send_signal(signal.SIGKILL)
        then, wrong = "", ""
        while not then:
            now = [job.count(words) for words in (BEGUN, LOST, DONE)]
            if job.over():
                then = "ended"
            elif victim != "launch" and now[0] > before[0]:
                then = "started again"
            elif victim != "launch" and now[1] > before[1]:
                then = "done without"
            elif victim != "launch" and now[2] > before[2] + 1:
                then = "went on"
            elif job.stuck(at):
                then, wrong = "nothing", f"nothing followed for {PATIENCE:.0f} s"
            else:
                time.sleep(0.02)
        noticed = time.monotonic() - at
        if then == "ended":
            wrong = self._left_behind(job) or ("" if victim == "launch" else job.misspoken())
        return Verdict(victim, experiment, ranks, at - start, begun, then, noticed, wrong=wrong)

    def _left_behind(self, job: Job) -> str:
        """Wait for the end of all processes of a job; return the names of those left."""
        deadline = time.monotonic() + 60
        while (left := job.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in left.values():
            with suppress(psutil.Error):
                process.kill()
        return f"left behind: {', '.join(left)}" if left else ""

    def _finish(self, job: Job, experiment: str, ranks: int, verdict: Verdict | None, expected: list[bytes]) -> None:
        """Wait for the end of a run, resume it if necessary, and check its result."""
        self._tell(verdict, job, time.monotonic() + PATIENCE)
        wrong = ""
        for more in (True, True, False):
            if not job.wait():
                wrong = "did not end by itself"
            if wrong or complete(job.out) or not more:
                break
            job = Job(job.folder, experiment, ranks)
        wrong = wrong or self._left_behind(job) or job.misspoken()
        if not wrong and (not complete(job.out) or stored(job.out) != expected):
            wrong = "another digest, or not complete"
        if wrong:
            print(f"{job.folder}: {wrong}\n{job.text()}", flush=True)
            job.end()
        self.tell(Verdict("nobody", experiment, ranks, 0.0, True, "the end of a run", 0.0, wrong=wrong))


def table(verdicts: list[Verdict]) -> str:
    """Return the verdicts in a table: a row for each victim, early and late."""
    rows = ["| killed | in the first 5 s | later | went on in place | started again | ended, resumed by hand | wrong "
            "| noticed: median, worst | next generation: median, worst |", "|" + "---|" * 9]  # fmt: skip
    kills = [verdict for verdict in verdicts if verdict.victim != "nobody"]
    kinds = {"evolve launch": "launch", "mpirun": "prterun", "rank 0": "rank 0", "another rank": "rank ", "all": ""}
    for name, begin in kinds.items():
        some = [v for v in kills if v.victim.startswith(begin) and (name != "another rank" or v.victim != "rank 0")]
        if some:
            then = [
                sum(v.then in what for v in some)
                for what in (("done without", "went on"), ("started again",), ("ended",))
            ]
            cells = [
                sum(v.at <= EARLY for v in some),
                sum(v.at > EARLY for v in some),
                *then,
                sum(bool(v.wrong) for v in some),
            ]
            cells += [spread([v.noticed for v in some]), spread([v.resumed for v in some])]
            rows.append(f"| {name} | {' | '.join(map(str, cells))} |")
    runs = [verdict for verdict in verdicts if verdict.victim == "nobody"]
    return (
        "\n".join(rows)
        + f"\n{len(runs)} runs, of which {sum(bool(v.wrong) for v in runs)} ended wrongly\n{launched.load(kills)}"
    )


def main() -> int:
    """Torture; return 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verdicts", type=Path, help="a file that verdicts are appended to, a line each")
    args = parser.parse_args()
    verdicts = launched.read_verdicts(args.verdicts, Verdict)

    def tell(verdict: Verdict) -> None:
        verdicts.append(verdict)
        launched.append_verdict(args.verdicts, verdict)
        print(f"{verdict.victim} after {verdict.at:.2f} s: {verdict.then} in {verdict.noticed:.1f} s"
              f"{', WRONG: ' * bool(verdict.wrong)}{verdict.wrong}", flush=True)  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="evolve-torture-") as folder:
        campaign = Campaign(args.seed, Path(folder), tell)
        while campaign.kills < args.kills:
            before = campaign.kills
            campaign.torture(args.kills - campaign.kills)
            if campaign.kills == before and verdicts[-1].wrong:
                break
    print(table(verdicts))
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
