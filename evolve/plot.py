"""python -m evolve.plot: what runs have come to, as a picture."""

import sys
import time
from pathlib import Path

import numpy as np

from evolve import figures, store
from evolve.cluster import Task, World, keys_of
from evolve.commands import Parser, coordinator, launch
from evolve.drawings import draw_champion, gather
from evolve.errors import InputError, RunError
from evolve.experiment import for_each, normalizer_of, reload
from evolve.genome import Genomes
from evolve.rng import Purpose
from evolve.standings import standings
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
    add("-o", "--output", type=Path, default=Path("curves.png"), metavar="OUT", help="curves.png, or .svg, or .pdf")
    add("-x", "--over", choices=("generation", "steps", "time"), default="generation", help="the axis (generation)")
    live = "wait for the files, and draw again whenever one changes, until all are complete"
    add("--live", action="store_true", help=live)
    final = "draw instead where experiments stand: seeds, mean, interval, and a rank test against the best"
    add("--final", action="store_true", help=final)
    add("--network", action="store_true", help="draw the network of a champion instead")
    add("--generation", type=int, metavar="G", help="whose champion (the last told one)")
    add("--traces", action="store_true", help="its mean Hebbian traces over its episodes, instead of the weights")
    return parser


def draw(files: list[Path], output: Path, over: str) -> bool:
    """Draw run files; return whether all of them are complete. Raises InputError, and RunError when all are empty."""
    runs, experiments = gather(files)
    figures.save(figures.plot(experiments, over), output)
    return all(run.complete for run in runs)


def draw_final(files: list[Path], output: Path) -> None:
    """Draw where the experiments of run files stand, and print it. Raises InputError, and RunError when all are empty.

    Without SciPy interval and test are left out.
    """
    _, experiments = gather(files)
    axis, found = standings(experiments)
    figures.save(figures.stand([(s.label, s.scores, s.interval, s.p) for s in found], axis, figures.FILE), output)
    for s in found:
        between = "" if s.interval is None else f" (95 % interval {s.interval[0]:.2f} to {s.interval[1]:.2f})"
        against = "" if s.p is None else f", p = {s.p:.2g} against the best"
        print(f"{s.label}: {axis} {s.mean:.2f}{between} over {len(s.scores)} seeds{against}")


def draw_network(run: Run, generation: int | None, traces: bool, output: Path, world: World, stop: StopFlag) -> None:
    """Draw the network of a generation's champion, its connections as strong as its weights, or as its traces."""
    if not run.told:
        raise RunError(f"{run.path}: no generation has been told yet, so there is nothing to draw")
    generation = run.told - 1 if generation is None else generation
    if not 0 <= generation < run.told:
        raise InputError("--generation", f"one of 0 to {run.told - 1}", generation)
    experiment, record, traced = reload(run), run.records[generation], None
    config, network = experiment.config, experiment.network
    if traces:
        if not network.traces:
            raise InputError("--traces", "a network that leaves Hebbian traces", config.network["name"])
        keys = keys_of(generation, record.champion_candidate + 1, config.common_random_numbers)[-1:]
        given = for_each(normalizer_of(experiment, run, generation), 1)
        task = Task(run.header.seed, Purpose.EPISODE, keys, np.array([record.champion_candidate]), given)
        genome = Genomes(record.champion_weights[None], record.champion_mask[None])
        traced = coordinator(world, config, stop).evaluate(task, genome, config.episodes, network.traces).traces[0]
    figures.save(draw_champion(run, experiment, generation, traced), output)


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


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.output.suffix not in figures.FORMATS:
        raise InputError("-o/--output", f"a name that ends with {' or '.join(figures.FORMATS)}", str(arguments.output))
    if arguments.network:
        if len(arguments.files) > 1:
            raise InputError("FILE", "one run file with --network", f"{len(arguments.files)} of them")
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
