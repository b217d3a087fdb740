"""python -m evolve.report: all that is known of runs, on one page that needs nothing else to be read.

Their champions are filmed for it, and evaluated again, over however many ranks there are.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from evolve import divergence, environments, pages, strategies
from evolve.cluster import World
from evolve.commands import Parser, coordinator, launch
from evolve.drawings import champion_of, gather
from evolve.errors import EvolveError, InputError, Stopped
from evolve.experiment import Experiment, reload
from evolve.manifest import manifest
from evolve.numerics import backend
from evolve.playback import choose, clip
from evolve.rng import Purpose
from evolve.standings import once
from evolve.stopping import StopFlag
from evolve.store import Run

_CHECKED = 10
"""Generations whose champions are evaluated again."""
_QUICK = "No film was made (--quick)."


def _parser() -> Parser:
    parser = Parser(
        "evolve.report",
        "Make a page of run files, complete or not: curves, network, film, held-out evaluation, verification, load, "
        "configuration. It needs no network to be read.",
        "python -m evolve.report runs/CartPole-v1-hebbian-dag/seed-*.h5 -o report.html",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="run files, complete or not")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="OUT", help="report.html")
    quick = "say what the files hold, and play no episode: no film, no verification"
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def _story(run: Run, world: World, stop: StopFlag) -> pages.Story:
    """Return what can be found out about a run by playing its episodes again."""
    try:
        experiment = reload(run)
        verdict = _verify(run, divergence.tolerant(experiment), world, stop)
    except Stopped:
        raise
    except EvolveError as wrong:
        why = str(wrong).splitlines()[-1]
        return pages.Story(run, no_film=f"No film: {why}", verdict=pages.Verdict(None, f"It cannot be: {why}"))
    try:
        film, filmed = _film(run, experiment)
        return pages.Story(run, film, verdict=verdict, filmed=filmed)
    except EvolveError as wrong:
        return pages.Story(run, no_film=f"No film: {str(wrong).splitlines()[-1]}", verdict=verdict)


def _verify(run: Run, experiment: Experiment, world: World, stop: StopFlag) -> pages.Verdict:
    config = experiment.config
    some = np.unique(np.linspace(0, run.told - 1, _CHECKED).round().astype(int)).tolist()
    here = manifest(world, backend(config.compute.backend), strategies.portable(config.strategy))
    found = divergence.again(run, experiment, coordinator(world, config, stop), here, some)
    machine = f"on {here['cpu']}, {here['libc']}"
    return pages.Verdict(found.equal, f"{found.told}, {machine}" if found.equal else _apart(found))


def _apart(found: divergence.Verdict) -> str:
    why = f" {found.cause.capitalize()}: {found.why}." if found.cause else ""
    return f"{found.told}.{why}"


def _film(run: Run, experiment: Experiment) -> tuple[bytes, str]:
    """Return a short film of the champion (`champion_of`), and what it shows."""
    champion = champion_of(run)
    if champion.generation is None and run.held_out is not None:
        middle = int(np.argsort(run.held_out.returns, kind="stable")[(len(run.held_out.returns) - 1) // 2])
        chosen = choose(run, experiment, None, None, middle, Purpose.HELD_OUT)
        which = f"the median of them, episode {middle}"
    else:
        chosen, which = choose(run, experiment, champion.generation, None, 0), "its first episode"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        returned = clip(run, experiment, chosen, path).returns[0]
        return path.read_bytes(), f"{champion.title}: {which}, return {returned:,.2f}"


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    output: Path = arguments.output
    if output.suffix not in pages.FORMATS:
        raise InputError("-o/--output", f"a name that ends with {' or '.join(pages.FORMATS)}", str(output))
    environments.without_display()
    runs, experiments = gather(arguments.files)
    if left_out := once(experiments)[1]:
        print(f"evolve.report: {left_out}", file=sys.stderr)
    told = [run for experiment in experiments for run in experiment.runs]
    stories = [pages.Story(run, no_film=_QUICK) if arguments.quick else _story(run, world, stop) for run in told]
    pages.save(pages.render(experiments, stories, [run.path for run in runs if not run.told]), output)
    print(output)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("report", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
