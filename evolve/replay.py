"""python -m evolve.replay: play episodes of a run again, in this process alone, and compare them with the log.

They can be filmed, or watched in a window, while they are played; that does not change them.
"""

import argparse
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np

from evolve import environments, film, store
from evolve.cluster import World
from evolve.commands import Parser, launch
from evolve.environments import Mode
from evolve.errors import InputError, RunError, Stopped, counted
from evolve.evaluation import Outcomes
from evolve.experiment import Experiment, reload
from evolve.film import Film
from evolve.playback import (
    Camera,
    EachStep,
    Episode,
    choose,
    choose_champions,
    environment_seed,
    make_engine,
    play,
)
from evolve.rng import Purpose
from evolve.stopping import StopFlag
from evolve.store import Run


def _parser() -> Parser:
    parser = Parser(
        "evolve.replay",
        "Play episodes of a run again. Exit 0: the returns are those of the log, to the bit.",
        "python -m evolve.replay runs/CartPole-v1-hebbian-dag/seed-0.h5",
        "python -m evolve.replay seed-0.h5 --generation 3 --candidate 17 --episode 2",
        "python -m evolve.replay seed-0.h5 --generations 0,10,50,last --video learning.mp4",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a run file")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--generation", type=int, metavar="G", help="a told one, or the next (the last told one)")
    several = "the champions of several told ones, one after another: 0,10,50,last"
    which.add_argument("--generations", metavar="G,G,…", help=several)
    add(
        "--candidate",
        type=int,
        metavar="P",
        help="whose (the champion); needs stored genomes, or generation 0 or the next",
    )
    add("--episode", type=int, default=0, metavar="E", help="which of its episodes (0)")
    judged = parser.add_mutually_exclusive_group()
    for purpose in (Purpose.HELD_OUT, Purpose.VALIDATION):
        words = f"a {purpose.title} episode of the final champion"
        judged.add_argument(f"--{purpose.title}", dest="purpose", action="store_const", const=purpose, help=words)
    seen = parser.add_mutually_exclusive_group()
    seen.add_argument("--video", type=Path, metavar="OUT", help=f"film it: a file {' or '.join(film.FORMATS)}")
    seen.add_argument("--window", action="store_true", help="show it in a window, at its natural speed")
    return parser


def _check(options: argparse.Namespace) -> Mode | None:
    """Return how environments are to draw themselves. Raises InputError for what can be refused before all else."""
    if options.generations is not None and (options.purpose is not None or options.candidate is not None):
        raise InputError("--generations", "no --candidate, --held-out or --validation with it", options.generations)
    if options.purpose is not None and (options.generation is not None or options.candidate is not None):
        raise InputError(f"--{options.purpose.title}", "no --generation and no --candidate with it", "one of them")
    if options.window and not environments.has_display():
        cure = "Film it instead: --video OUT.mp4."
        raise InputError("--window", "a display (DISPLAY or WAYLAND_DISPLAY)", "none", cure)
    if options.video is not None:
        film.check(options.video)
        environments.without_display()
        return "rgb_array"
    return "human" if options.window else None


def _chosen(options: argparse.Namespace, run: Run, experiment: Experiment) -> list[Episode]:
    if options.generations is not None:
        return choose_champions(run, experiment, options.generations, options.episode)
    one = options.generation, options.candidate, options.episode, options.purpose or Purpose.EPISODE
    return [choose(run, experiment, *one)]


def _interruptible(stop: StopFlag, show: EachStep | None) -> EachStep:
    """Return what shows a step, unless the user has asked to stop. Raises Stopped then."""

    def each_step(step: int, returned: float) -> None:
        if (reason := stop.reason()) is not None:
            raise Stopped(f"stopped by {reason} in step {step}")
        if show is not None:
            show(step, returned)

    return each_step


def _unlogged(run: Run, chosen: Episode) -> str:
    """Return why the log has nothing that an episode could be compared with."""
    if chosen.purpose is not Purpose.EPISODE:
        return f"no such {chosen.purpose.title} episode is in the log"
    if chosen.generation < run.told:
        return "nothing in the log: the candidate had left the race before this episode"
    asked = f"candidate {chosen.candidate} as it would be asked for"
    return f"generation {chosen.generation} is not told yet: {asked}; nothing in the log"


def _compare(run: Run, experiment: Experiment, chosen: Episode, outcomes: Outcomes) -> str | None:
    """Print what an episode came to; return how it differs from the log, None for not."""
    returned, seed = float(outcomes.returns[0]), environment_seed(run, experiment, chosen)
    print(f"return {returned!r} in {counted(int(outcomes.lengths[0]), 'step')} (environment seed {seed})")
    if chosen.logged is None:
        print(_unlogged(run, chosen))
        return None
    if returned != chosen.logged and not (np.isnan(returned) and np.isnan(chosen.logged)):
        return f"{run.path} has a return of {chosen.logged!r} for this episode ({chosen.title})"
    print("equal to the log, to the bit")
    return None


def _play_all(
    run: Run, experiment: Experiment, episodes: list[Episode], output: Path | None, mode: Mode | None, stop: StopFlag
) -> list[str]:
    """Play episodes one after another, and show them as asked; return how they differ from the log."""
    found = []
    with (
        closing(make_engine(experiment, episodes[0], mode)) as engine,
        Film(output, engine.fps) if output else nullcontext() as film,
    ):
        for chosen in episodes:
            camera = Camera(film, engine, chosen, titled=len(episodes) > 1) if film is not None else None
            each_step = _interruptible(stop, camera) if mode is not None else None
            outcomes = play(run, experiment, chosen, engine, each_step)
            if camera is not None:
                camera.end(outcomes)
            if len(episodes) > 1:
                print(f"{chosen.title}: ", end="")
            found.append(_compare(run, experiment, chosen, outcomes))
    return [difference for difference in found if difference is not None]


def _body(_world: World, stop: StopFlag, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    mode = _check(options)
    run = store.read(options.file)
    experiment = reload(run)
    differences = _play_all(run, experiment, _chosen(options, run, experiment), options.video, mode, stop)
    if options.video is not None:
        print(options.video)
    if differences:
        raise RunError(differences[0])
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("replay", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
