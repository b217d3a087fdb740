"""evolve info: what run files and champion files hold, in a few lines each."""

from collections.abc import Mapping

import numpy as np

from evolve import store
from evolve.analysis.champion import champion_of
from evolve.analysis.comparison import mask_unit
from evolve.analysis.formatting import duration, number, words
from evolve.analysis.statistics import summary
from evolve.cli.app import App, launch
from evolve.cli.display import table
from evolve.cli.parser import Parser, file_argument, run_files
from evolve.cli.progress import width
from evolve.config import Config, annotated_toml
from evolve.errors import InputError, pluralize, sanitize
from evolve.store import Stored, StoredChampion, StoredRun
from evolve.training import load_config


def describe_file(stored: Stored) -> dict[str, str]:
    """Return what a file holds, by what it is called: experiment, seed, generations, champion, digest …"""
    config = load_config(stored.header.config, str(stored.path))
    lines = {
        "experiment": f"{config.env.id}: {config.network.name} evolved by {config.strategy.name}",
        "population": f"{config.population:,}, {pluralize(config.episodes, 'episode')} each",
        "seed": f"{stored.header.seed}",
        "generations": _generations(stored, config),
    }
    if stored.num_generations:
        lines |= _results(stored, mask_unit(config))
    return lines | {"written by": _writer(stored.header.manifest)}


def _generations(stored: Stored, config: Config) -> str:
    """Return how many are complete, and of how many."""
    done = f"{stored.num_generations:,} of {config.generations:,}"
    if isinstance(stored, StoredChampion):
        return f"the champion after {done}"
    if not stored.complete:
        return f"{done}, not complete"
    return f"{done}, {'stopped early' if stored.num_generations < config.generations else 'complete'}"


def _results(stored: Stored, unit: str) -> dict[str, str]:
    """Return what came of the generations. unit: what masks count."""
    lines = {}
    if isinstance(stored, StoredRun):
        fitness = [float(record.champion_fitness) for record in stored.records]
        best = int(np.nanargmax(fitness)) if np.isfinite(fitness).any() else 0
        lines["best fitness"] = f"{number(fitness[best])} in generation {best:,}, {number(fitness[-1])} in the last one"
    champion = champion_of(stored)
    held_out = "not evaluated" if stored.held_out is None else summary(stored.held_out.returns)
    episodes = "" if stored.held_out is None else f", {pluralize(len(stored.held_out.returns), 'episode')}"
    return lines | {
        "work": f"{stored.steps:,} environment steps in {duration(stored.seconds)}",
        unit: f"{np.count_nonzero(champion.mask):,} of {len(champion.mask):,} in the {champion.title}",
        f"held out{episodes}": held_out,
        "digest": stored.digest,
    }


def _writer(manifest: Mapping[str, object]) -> str:
    """Return which code wrote a file, and where."""
    revision = manifest.get("revision")
    code = f"evolve {words(manifest.get('evolve'))}" + (f" ({sanitize(str(revision)[:12])})" if revision else "")
    ranks = manifest.get("ranks")
    number_of = pluralize(ranks, "rank") if isinstance(ranks, int) else "unknown ranks"
    return f"{code}, Python {words(manifest.get('python'))}, on {words(manifest.get('cpu'))}, {number_of}"


def _parser() -> Parser:
    parser = Parser(
        "evolve.info",
        "Say what run files and champion files hold: experiment, generations, results, digest. Nothing is played.",
        "evolve info runs/CartPole-v1-hebbian-dag/seed-0.h5",
        "evolve info zoo/walker-es.champion --settings > experiment.toml",
    )
    files = "run files, complete or not, directories of run files, or champion files"
    parser.add_argument("files", nargs="+", type=file_argument, metavar="FILE", help=files)
    settings = "print the experiment of one file with all its settings, ready to be run again"
    parser.add_argument("--settings", action="store_true", help=settings)
    return parser


def _body(_: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    files = run_files(options.files)
    if options.settings and len(files) > 1:
        raise InputError("FILE", "one file with --settings", f"{len(files)} of them")
    for count, file in enumerate(files):
        stored = store.read_any(file)
        if options.settings:
            print(annotated_toml(load_config(stored.header.config, str(file))), end="")
            continue
        print("\n" * (count > 0) + str(file))
        rows = [(name, sanitize(text)) for name, text in describe_file(stored).items()]
        print(table(rows, width(), left=(0, 1), indent="  "))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("info", _body, argv)
