"""Run every experiment of this project again, or the missing runs: python benchmarks/study.py

    mpirun -n 9 python benchmarks/study.py -o runs/study      over any number of ranks, with the same digests

First it prints the longest time that it may take: an experiment that ends when its champion is good enough takes less.
Complete runs are not run again, so the command can be interrupted and repeated. At the end it compares the runs with
the published results. With `--publish` it replaces the published results, and writes the tables of `docs/results.md`.
`benchmarks/lifetime.py` adds the controls of learning within a life, and `benchmarks/tickets.py` pruning in rounds.
Experiments for a GPU, *-gpu*, run only if they are named, because they would take days without a GPU.
"""

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from resumable import Clock, Job, announcer, in_words, run_all

from evolve.analysis.runs import script_ranks
from evolve.config import Config, parse, read_file
from evolve.config.documents import experiment_tables

FOLDER = Path(__file__).parent.parent / "experiments"
EXPERIMENTS = sorted(path.stem for path in FOLDER.glob("*.toml"))
FOR_CORES = [name for name in EXPERIMENTS if "-gpu" not in name]
say = announcer("study")


def jobs_of(name: str, folder: Path = FOLDER) -> list[Job]:
    """Return the runs of an experiment: every point of its sweep, with every seed."""
    return [
        Job(table, seed, f"{name}/{point}" if point else name)
        for point, table in experiment_tables(read_file(folder / f"{name}.toml"))
        for seed in parse(Config, table).seeds
    ]


def missing_start(names: list[str], out: Path) -> str:
    """Return in words which runs are missing with which an experiment begins, "" if none are.

    They have to be there, or to be made in the same folder by an earlier experiment.
    """
    made: list[Path] = []
    for name in names:
        for job in jobs_of(name):
            start = Path(job.settings.get("start_from", {}).get("file", "."))
            if not start.exists() and start not in made:
                cure = f"expected them there, or {start.name} before, with -o {start.parent}"
                return f"{name} begins with runs in {start}: {cure}"
        made.append(out / name)
    return ""


def describe(names: list[str], out: Path) -> None:
    """Print how many runs of each experiment are missing, and an estimate of their time."""
    clock = Clock(out, [job for name in names for job in jobs_of(name)])
    clock.try_kinds()
    for name in names:
        left = clock.left(name)
        say(f"{name}: {len(left)} of {len(jobs_of(name))} runs are left, at most {in_words(clock.seconds(left))}")
    say(f"all: at most {in_words(clock.seconds())}")


def main() -> None:
    """Run the missing runs; compare all with the published results, or publish them."""
    parser = argparse.ArgumentParser(description="Run every experiment again, or the missing runs.")
    # With nargs="*" Python 3.11 refuses a list, even an empty one, that is not itself one of `choices`.
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/study"), metavar="DIR")
    parser.add_argument("--dry-run", action="store_true", help="print what is missing and how long it takes")
    parser.add_argument("--publish", action="store_true", help="replace the published results, and write the tables")
    options = parser.parse_args()
    names = options.names or FOR_CORES
    if unknown := [name for name in names if name not in EXPERIMENTS]:
        parser.error(f"expected experiments ({', '.join(EXPERIMENTS)}), got {unknown[0]}")
    if missing := missing_start(names, options.output):
        parser.error(missing)
    if options.dry_run:
        describe(names, options.output)
        return
    for _ in run_all([job for name in names for job in jobs_of(name)], options.output, say):
        pass
    if script_ranks().is_rank_0:
        publish = ["--publish"] if options.publish else []
        sys.exit(
            subprocess.run([sys.executable, FOLDER / "results.py", options.output, *publish], check=False).returncode
        )


if __name__ == "__main__":
    main()
