"""Learning within a life: the whole study of `docs/learning.md` by one command, python benchmarks/lifetime.py

    mpirun -n 9 python benchmarks/lifetime.py -o runs/lifetime      over any number of ranks, with the same digests

`tune` tries the same number of settings for each network with seeds of its own, and writes the best settings to
`lifetime_parts/chosen.json`; `judge` runs them with seeds 1 … N; `sweep` varies the number of cues and the length of a
life; `long` gives networks with memory ten times as long; `report` writes the tables and figures of the page. Each part
first prints an estimate of its time. Complete runs are not run again, so the command can be interrupted and repeated.
`--dry-run` only prints the number of missing runs and the estimate of their time; for that, two generations are played
of each kind of run of which none is complete.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from lifetime_parts.presets import NETWORKS, TASKS, Task, read_chosen, write_chosen
from lifetime_parts.report import report
from lifetime_parts.runs import (
    SWEEP_NETWORKS,
    Job,
    choose,
    judged,
    long_controls,
    sweep,
    tuning,
)
from resumable import Clock, announcer, in_words, run_all

from evolve.analysis.runs import script_ranks

PARTS = ("tune", "judge", "sweep", "long", "report")
say = announcer("lifetime")


def jobs_of(part: str, task: Task, networks: list[str], seeds: list[int]) -> list[Job]:
    """Return the runs of a part. The parts `sweep` and `long` exist for the cues only."""
    if part == "tune":
        return [job for network in networks for job in tuning(task, network)]
    if part == "judge":
        jobs: list[Job] = []
        for network in networks:
            try:
                jobs += judged(task, network, seeds)
            except KeyError:  # in the T-maze only two networks were tuned
                say(f"judge {task.name}: nothing is chosen for {network} yet, so it is left out: --parts tune")
        return jobs
    if task is not TASKS["cues"] or part == "report":
        return []
    if part == "sweep":
        return [job for network in SWEEP_NETWORKS if network in networks for job in sweep(network)]
    return [job for network, jobs in long_controls().items() if network in networks for job in jobs]


def describe(jobs: list[Job], title: str, out: Path) -> None:
    """Print how many of the runs are missing, and an estimate of their time."""
    clock = Clock(out, jobs)
    clock.try_kinds()
    say(f"{title}: {len(clock.left())} of {len(jobs)} runs are left, about {in_words(clock.seconds())}")


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description="Learning within a life: run the whole study, or what is left of it.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="judge by seeds 1 … N (10)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/lifetime"), metavar="DIR")
    parser.add_argument("--dry-run", action="store_true", help="print what is missing and how long it takes")
    options = parser.parse_args()
    out = options.output
    seeds = list(range(1, options.seeds + 1))
    for part in options.parts:
        for task in (TASKS[name] for name in options.tasks):
            try:
                jobs = jobs_of(part, task, options.networks, seeds)
            except KeyError as missing:
                say(f"{part} {task.name}: nothing is chosen for {missing} yet, so it is left out: --parts tune")
                continue
            if not jobs:
                continue
            if options.dry_run:
                describe(jobs, f"{part} {task.name}", out)
                continue
            for _ in run_all(jobs, out, say):
                pass
            if part == "tune":
                found = choose(task, options.networks, out)
                if script_ranks().is_rank_0:
                    known = read_chosen()
                    write_chosen(known | {task.name: known.get(task.name, {}) | found})
    if "report" in options.parts and script_ranks().is_rank_0 and not options.dry_run:
        report(out, seeds, say)


if __name__ == "__main__":
    main()
