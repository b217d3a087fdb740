"""python -m evolve.evaluate: how good is a run's champion on episodes that training never met?

Episodes come from keyed streams of their own, so asking for more of them later adds to the same ones. The returns are
kept in the run file, in the place of fewer.
"""

import sys
from pathlib import Path

from evolve import store
from evolve.cluster import World
from evolve.commands import Parser, coordinator, launch
from evolve.errors import InputError, RunError
from evolve.evolution import held_out, normalizer_of, reload, restore
from evolve.statistics import summary
from evolve.stopping import StopFlag


def _parser() -> Parser:
    parser = Parser(
        "evolve.evaluate",
        "Evaluate the champion of a run on held-out episodes, and keep the returns in the run file.",
        "mpirun -n 8 python -m evolve.evaluate runs/CartPole-v1-hebbian-dag/seed-0.h5 --episodes 1000",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a run file that no run is writing")
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="how many (100)")
    return parser


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    if not 1 <= arguments.episodes < 2**31:
        raise InputError("--episodes", "at least 1", arguments.episodes)
    run = store.read(arguments.file)
    if not run.told:
        raise RunError(f"{run.path}: no generation has been told yet, so there is no champion")
    file = store.reopen(arguments.file)
    try:
        experiment = reload(run)
        strategy, state = restore(experiment, run)
        farm = coordinator(world, experiment.config, stop)
        seed, champion = run.header.seed, strategy.champion(state)
        normalizer = normalizer_of(experiment, run, run.told)
        judged = held_out(experiment, farm, champion, seed, arguments.episodes, normalizer)
        if run.held_out is None or len(run.held_out.returns) <= len(judged.returns):
            file.held_out = judged
            file.flush()
    finally:
        file.close()
    print(f"{run.path}: champion after generation {run.told - 1}, {arguments.episodes} held-out episodes")
    print(summary(judged.returns))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("evaluate", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
