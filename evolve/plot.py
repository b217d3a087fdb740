"""python -m evolve.plot: what runs have come to, as a picture."""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from evolve import figures, store
from evolve.cluster import Task, World, keys_of
from evolve.commands import Parser, coordinator, launch
from evolve.drawings import Champion, champion_of, draw_champion, gather
from evolve.errors import InputError, RunError, counted
from evolve.experiment import Experiment, for_each, normalizer_of, reload
from evolve.genome import Genomes
from evolve.rng import Purpose
from evolve.shapes import Float32
from evolve.standings import FEW, draw_standings, once, standings
from evolve.stopping import StopFlag
from evolve.store import Run

_LOOK_EVERY = 1.0  # seconds


def _parser() -> Parser:
    parser = Parser(
        "evolve.plot",
        "Draw fitness, connections, throughput and idle workers of run files. Files of one experiment are summed up.",
        "python -m evolve.plot runs/CartPole-v1-hebbian-dag/seed-*.h5 -o curves.svg",
        "python -m evolve.plot runs/CartPole-v1-hebbian-dag/seed-0.h5 --live",
        "python -m evolve.plot runs/CartPole-v1-hebbian-dag/seed-0.h5 --network -o network.svg",
    )
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="run files, complete or not")
    names = "curves.png, final.png or network.png; or .svg, or .pdf"
    add("-o", "--output", type=Path, metavar="OUT", help=names)
    add("-x", "--over", choices=("generation", "steps", "time"), help="the axis of the curves (generation)")
    kinds = parser.add_mutually_exclusive_group()
    live = "wait for the files, and draw again whenever one changes, until all are complete"
    kinds.add_argument("--live", action="store_true", help=live)
    final = "draw instead where experiments stand: seeds, mean, interval, and a rank test against the best"
    kinds.add_argument("--final", action="store_true", help=final)
    kinds.add_argument("--network", action="store_true", help="draw the network of a champion instead")
    best = "with --network: whose best (the champion that was judged)"
    add("--generation", type=int, metavar="G", help=best)
    add(
        "--traces",
        action="store_true",
        help="with --network: its mean Hebbian traces over its episodes, instead of the weights",
    )
    return parser


def draw(files: list[Path], output: Path, over: str) -> bool:
    """Draw run files; return whether all of them are complete. Raises InputError, and RunError when all are empty."""
    runs, experiments = gather(files)
    figures.save(figures.plot(_once(experiments), over), output)
    return all(run.complete for run in runs)


def draw_final(files: list[Path], output: Path) -> None:
    """Draw where the experiments of run files stand, and print it. Raises InputError, and RunError when all are empty.

    Without SciPy interval and test are left out.
    """
    axis, found = standings(_once(gather(files)[1]))
    figures.save(draw_standings(axis, found), output)
    for s in found:
        between = "" if s.interval is None else f" (95 % interval {s.interval[0]:,.2f} to {s.interval[1]:,.2f})"
        seeds = counted(len(s.scores), "seed")
        print(f"{s.label}: {axis} {s.mean:,.2f}{between} over {seeds}{f', {s.against}' if s.against else ''}")
    if any(s.p is not None for s in found):
        print("p: two-sided Mann-Whitney test against the best of the environment, with Holm's correction")
    if any(s.against.endswith(FEW) for s in found):
        print(f"{FEW}: so few that p cannot be below 0.05, whatever they score")


def _once(experiments: list[figures.Experiment]) -> list[figures.Experiment]:
    found, left_out = once(experiments)
    if left_out:
        print(f"evolve.plot: {left_out}", file=sys.stderr)
    return found


def draw_network(run: Run, generation: int | None, traces: bool, output: Path, world: World, stop: StopFlag) -> None:
    """Draw a champion's network (`champion_of`), its connections as strong as its weights, or as its traces."""
    if not run.told:
        raise RunError(f"{run.path}: no generation has been told yet, so there is nothing to draw")
    if generation is not None and not 0 <= generation < run.told:
        raise InputError("--generation", f"one of 0 to {run.told - 1}", generation)
    experiment, champion = reload(run), champion_of(run, generation)
    if traces and not experiment.network.traces:
        raise InputError("--traces", "a network that leaves Hebbian traces", experiment.config.network["name"])
    traced = _traces(run, experiment, champion, world, stop) if traces else None
    figures.save(draw_champion(champion, experiment, traced), output)


def _traces(run: Run, experiment: Experiment, champion: Champion, world: World, stop: StopFlag) -> Float32:
    """Return [W]: a champion's mean traces over the episodes of its generation, or those that it was judged by."""
    config, generation = experiment.config, run.told if champion.generation is None else champion.generation
    if champion.generation is None and run.held_out is not None:
        config, purpose, episodes = config.in_evaluation(), Purpose.HELD_OUT, len(run.held_out.returns)
        candidate, keys = 0, keys_of(0, population=1)
    else:
        purpose, episodes, candidate = Purpose.EPISODE, config.episodes, run.records[generation].champion_candidate
        keys = keys_of(generation, candidate + 1, config.common_random_numbers)[-1:]
    given = for_each(normalizer_of(experiment, run, generation), 1)
    task = Task(run.header.seed, purpose, keys, np.array([candidate]), given)
    genome = Genomes(champion.weights[None], champion.mask[None])
    evaluation = coordinator(world, config, stop).evaluate(task, genome, episodes, experiment.network.traces)
    traces: Float32 = evaluation.traces[0]
    return traces


def _follow(files: list[Path], output: Path, over: str, stop: StopFlag) -> None:
    seen: list[int] = []
    while stop.reason() is None:
        now = [path.stat().st_mtime_ns if path.exists() else 0 for path in files]
        if all(now) and now != seen and any(store.read(path).told for path in files):
            seen = now
            print(f"{time.strftime('%H:%M:%S')}  {output}", flush=True)
            if draw(files, output, over):
                return
        time.sleep(_LOOK_EVERY)


def _arguments(argv: list[str]) -> argparse.Namespace:
    """Return the arguments in full. Raises InputError for those that do not go together."""
    found = _parser().parse_args(argv)
    for name, given in (("--generation", found.generation is not None), ("--traces", found.traces)):
        if given and not found.network:
            raise InputError(name, "--network with it, to draw a network", "no --network", "Add --network.")
    if found.over is not None and (found.network or found.final):
        raise InputError("-x/--over", "curves to be drawn over it", "--network" if found.network else "--final")
    if found.network and len(found.files) > 1:
        raise InputError("FILE", "one run file with --network", f"{len(found.files)} of them")
    if found.output is None:
        found.output = Path("network.png" if found.network else "final.png" if found.final else "curves.png")
    if found.output.suffix not in figures.FORMATS:
        raise InputError("-o/--output", f"a name that ends with {' or '.join(figures.FORMATS)}", str(found.output))
    found.over = found.over or "generation"
    return found


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = _arguments(argv)
    if arguments.network:
        run = store.read(arguments.files[0])
        draw_network(run, arguments.generation, arguments.traces, arguments.output, world, stop)
        print(arguments.output)
    elif arguments.final:
        draw_final(arguments.files, arguments.output)
        print(arguments.output)
    elif arguments.live:
        _follow(arguments.files, arguments.output, arguments.over, stop)
    else:
        draw(arguments.files, arguments.output, arguments.over)
        print(arguments.output)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("plot", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
