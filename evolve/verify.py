"""python -m evolve.verify: are two runs equal, or, with one file, does this machine get the same returns?

Two files are compared by their digests and, where these part, value by value. One file is checked by evaluating the
champion of each of its generations again, on the very episodes it was scored on, over however many ranks there are; or,
with --full, by running all of it again.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from evolve import store
from evolve.cluster import Task, World, keys_of
from evolve.commands import Parser, coordinator, launch
from evolve.config import differences
from evolve.console import Watch
from evolve.errors import RunError
from evolve.evolution import evolve, load_config, reload
from evolve.genome import Genomes
from evolve.rng import Purpose
from evolve.shapes import Float64, Int32
from evolve.stopping import StopFlag
from evolve.store import Run


def _parser() -> Parser:
    parser = Parser(
        "evolve.verify",
        "Compare two run files; or evaluate one run's champions again on this machine. Exit 0: equal.",
        "python -m evolve.verify runs/here/seed-13.h5 runs/there/seed-13.h5",
    )
    parser.add_argument("file", type=Path, metavar="A.h5", help="a run file")
    parser.add_argument("other", type=Path, nargs="?", metavar="B.h5", help="another; without it A is evaluated again")
    parser.add_argument(
        "--full", action="store_true", help="with one file: run all of it again and compare the digests"
    )
    return parser


def first_difference(a: Run, b: Run) -> str | None:
    """Return where two runs part, in words, or None when they are equal in every stored value."""
    for generation, (ours, theirs) in enumerate(zip(a.records, b.records, strict=False)):
        apart = _parting(ours, theirs)
        if apart is not None:
            return f"generation {generation}: {apart}"
    if len(a.records) != len(b.records):
        fewer = min(len(a.records), len(b.records))
        return f"equal for {fewer} generations, but {a.path} has {len(a.records)} and {b.path} {len(b.records)}"
    return None


def _parting(ours: store.Record, theirs: store.Record) -> str | None:
    if ours.returns.shape != theirs.returns.shape:
        return f"population × episodes {ours.returns.shape} against {theirs.returns.shape}"
    found = _first_unequal(ours.returns, ours.lengths, theirs.returns, theirs.lengths)
    if found is not None:
        return found
    for name in ("champion_candidate", "champion_weights", "champion_mask", "connections", "fitness"):
        if not np.array_equal(getattr(ours, name), getattr(theirs, name), equal_nan=name == "fitness"):
            return f"{name.replace('_', ' ')} differ, though every return and length is equal"
    if ours.digest != theirs.digest:
        return "the digests differ, though all that is stored is equal: so do the genomes, or a digest was changed"
    return None


def _first_unequal(
    returns: Float64, lengths: Int32, other_returns: Float64, other_lengths: Int32, first_candidate: int = 0
) -> str | None:
    """Name the first candidate and episode whose return or length differ by a bit, with both values."""
    same = (returns.view(np.int64) == other_returns.view(np.int64)) | (np.isnan(returns) & np.isnan(other_returns))
    unequal = np.argwhere(~same | (lengths != other_lengths))
    if not len(unequal):
        return None
    c, e = unequal[0]
    return (
        f"candidate {first_candidate + c}, episode {e}: return {float(returns[c, e])!r} in {lengths[c, e]} steps "
        f"against {float(other_returns[c, e])!r} in {other_lengths[c, e]} steps"
    )


def _compare(a: Run, b: Run) -> int:
    apart = first_difference(a, b)
    if apart is None and not a.records:
        raise RunError(f"{a.path} and {b.path}: no generation has been told yet, so there is nothing to compare")
    if apart is None:
        print(f"equal: {len(a.records)} generations, digest {a.records[-1].digest.decode()}")
        return 0
    keys = [
        f"{key} ({x!r} against {y!r})"
        for key, x, y in differences(*(load_config(run.header.config, str(run.path)) for run in (a, b)))
    ]
    if a.header.seed != b.header.seed:
        keys.insert(0, f"seed ({a.header.seed} against {b.header.seed})")
    print(f"different: {apart}")
    print(f"configurations differ in {', '.join(keys)}" if keys else "configurations are the same")
    return 1


def _run_again(run: Run, world: World, stop: StopFlag) -> int:
    """Run the whole experiment again, as far as it was told, and compare everything."""
    once = reload(run)
    config = once.config.model_copy(update={"generations": len(run.records), "held_out_episodes": 0})
    experiment = replace(once, config=config)
    with tempfile.TemporaryDirectory() as directory:
        file = store.create(store.path_of(Path(directory), run.header.seed), run.header)
        with Watch(run.header.seed, 0, config.generations) as watch:
            evolve(experiment, coordinator(world, experiment.config, stop), file, watch)
        return _compare(run, store.read(file.path))


def _evaluate_again(run: Run, world: World, stop: StopFlag) -> int:
    """Evaluate every generation's champion again and compare to the bit."""
    experiment = reload(run)
    config, records = experiment.config, run.records
    champions = Genomes(np.stack([r.champion_weights for r in records]), np.stack([r.champion_mask for r in records]))
    chosen = [r.champion_candidate for r in records]
    keys = np.concatenate([keys_of(g, c + 1, config.common_random_numbers)[-1:] for g, c in enumerate(chosen)])
    farm = coordinator(world, config, stop)
    task = Task(run.header.seed, Purpose.EPISODE, keys, np.array(chosen))
    again = farm.evaluate(task, champions, config.episodes, experiment.network.traces)
    for generation, (record, c) in enumerate(zip(records, chosen, strict=True)):
        row = slice(generation, generation + 1)
        kept, now = (record.returns[c : c + 1], record.lengths[c : c + 1]), (again.returns[row], again.lengths[row])
        found = _first_unequal(*kept, *now, first_candidate=c)
        if found is not None:
            print(f"different: generation {generation}: {found} on this machine")
            return 1
    print(f"equal: the champions of {len(records)} generations, {again.returns.size} episodes evaluated again")
    return 0


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    run = store.read(arguments.file)
    if arguments.other is not None:
        return _compare(run, store.read(arguments.other))
    if not run.records:
        raise RunError(f"{run.path}: no generation has been told yet, so there is nothing to verify")
    return (_run_again if arguments.full else _evaluate_again)(run, world, stop)


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("verify", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
