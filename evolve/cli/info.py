"""evolve info: print the contents of run files and champion files in a few lines each."""

import sys
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from evolve import environments, store, strategies
from evolve.analysis import progress, statistics
from evolve.analysis.champion import Elite, Member, champion_of, elites_of, members_of_front
from evolve.analysis.run_groups import mask_unit
from evolve.cli.app import App
from evolve.cli.parser import Parser, file_argument
from evolve.config import Config, annotated_toml, assignments
from evolve.display import table
from evolve.errors import InputError, pluralize, sanitize
from evolve.shapes import Float64
from evolve.strategies.strategy import best_candidate
from evolve.training import config_of
from evolve.training.manifest import short_revision


def describe_file(stored: store.Stored) -> dict[str, str]:
    """Return the description of a file: texts by names such as "experiment", "seed" or "digest"."""
    config = config_of(stored)
    texts = {"experiment": f"{config.env.id}: {config.network.name} evolved by {config.strategy.name}"}
    if config.start_from is not None:
        texts["started from"] = config.start_from.describe()
    texts |= {
        "population": f"{config.population:,}, {pluralize(config.episodes, 'episode')} each",
        "seed": f"{stored.header.seed}",
        "generations": _generations(stored, config),
    }
    if stored.num_generations:
        texts |= _results(stored, mask_unit(config))
    manifest = stored.header.manifest
    return texts | {"written by": _writer(manifest), **_libraries(manifest), **_resumes(manifest)}


def _generations(stored: store.Stored, config: Config) -> str:
    """Return the number of complete generations, and of planned ones, in words."""
    done = f"{stored.num_generations:,} of {config.generations:,}"
    if isinstance(stored, store.StoredChampion):
        return f"the champion after {done}"
    if not stored.complete:
        return f"{done}, not complete"
    if stored.num_generations == config.generations:
        return f"{done}, complete"
    why = progress.why_early(config.early_stop, stored.steps, stored.validations)
    return f"{done}, stopped early" + (f": {why}" if why else "")


def _results(stored: store.Stored, unit: str) -> dict[str, str]:
    """Return the results of the complete generations. unit: "connections" or "coefficients", see `mask_unit`."""
    texts = {}
    if isinstance(stored, store.StoredRun):
        fitness = np.array([record.champion_fitness for record in stored.records], np.float64)
        best = best_candidate(fitness)
        highest, last = statistics.number(fitness[best]), statistics.number(fitness[-1])
        texts["best fitness"] = f"{highest} in generation {best:,}, {last} in the last one"
        if stored.validations:
            highest = statistics.number(max(map(statistics.mean, stored.validations.values())))
            last = statistics.number(progress.newest_validation(stored.validations))
            texts["validation"] = f"best mean {highest}, {last} in the last of {len(stored.validations):,}"
        for name, values in _front_or_archive(stored).items():
            count = int(np.count_nonzero(~np.isnan(values)))
            # `--genomes` can list only the genomes of built-in strategies.
            listed = "" if strategies.is_added(config_of(stored).strategy) else ", listed by --genomes"
            texts[name] = f"{pluralize(count, 'genome')}{listed}"
    champion, held_out = champion_of(stored), stored.held_out
    texts["work"] = f"{stored.steps:,} environment steps in {statistics.duration(stored.seconds)}"
    genome = champion.genome
    texts[unit] = f"{genome.connections()[0]:,} of {genome.num_weights:,} in the {champion.title}"
    if held_out is None:
        texts["held out"] = "not evaluated"
    else:
        texts[f"held out, {pluralize(len(held_out.returns), 'episode')}"] = statistics.summary(held_out.returns)
        if held_out.metrics:
            texts["metrics, held-out mean"] = statistics.metrics_summary(held_out.metrics, held_out.returns)
    return texts | {"digest": stored.digest}


def _front_or_archive(run: store.Stored) -> dict[str, Float64]:
    """Return {"front": …} or {"archive": …} with the fitness values after the last generation; {} if a run has neither.

    NaN marks a place without a genome.
    """
    last = run.records[-1] if isinstance(run, store.StoredRun) and run.records else None
    values = {} if last is None else {"front": last.front, "archive": last.archive}
    return {name: fitness for name, fitness in values.items() if fitness is not None}


def rows_of_genomes(run: store.Stored) -> list[list[str]]:
    """Return a row of texts for each genome of a run's front or archive, below a row of names.

    The first column is the option that chooses the genome: "--member 2" or "--cell 3,8". Raises InputError if the run
    has neither a front nor an archive.
    """
    kinds = _front_or_archive(run)
    if not isinstance(run, store.StoredRun) or not kinds:
        expected = "a run with a front or an archive (strategy nsga2 or map-elites)"
        raise InputError("--genomes", expected, f"{run.path} without either")
    genomes: Sequence[Elite | Member] = elites_of(run) if "archive" in kinds else members_of_front(run, None)
    names = [*genomes[0].measures] if genomes else []
    rows = [["", "fitness", *names, "generation" if "archive" in kinds else "evaluations"]]
    for index, genome in enumerate(genomes):
        if isinstance(genome, Elite):
            option, count = "--cell " + ",".join(map(str, genome.cell)), f"{genome.generation}"
        else:
            option, count = f"--member {index}", f"{genome.evaluations}"
        measures = (f"{value:.4g}" for value in genome.measures.values())
        rows.append([option, statistics.number(genome.fitness), *measures, count])
    return rows


def _writer(manifest: Mapping[str, object]) -> str:
    """Return the code, the machine and the number of ranks that wrote a file, in words."""
    revision = short_revision(manifest.get("revision"))
    commit = f" ({revision})" if revision else ""
    version, python, cpu = (statistics.words(manifest.get(name)) for name in ("evolve", "python", "cpu"))
    ranks = manifest.get("ranks")
    number_of_ranks = pluralize(ranks, "rank") if isinstance(ranks, int) else "unknown ranks"
    return f"evolve {version}{commit}, Python {python}, on {cpu}, {number_of_ranks}"


def _libraries(manifest: Mapping[str, object]) -> dict[str, str]:
    """Return the text "libraries": their versions when the run began. Return no text if the manifest has none."""
    packages = manifest.get("packages")
    if not isinstance(packages, Mapping):  # any program may have written the file
        return {}
    return {"libraries": ", ".join(f"{name} {version}" for name, version in packages.items())}


def _resumes(manifest: Mapping[str, object]) -> dict[str, str]:
    """Return the text "resumed": the generations at which the run was resumed, and the values that were different then.

    Return no text if the run was not resumed.
    """
    resumed = manifest.get("resumed")
    if not isinstance(resumed, Mapping):
        return {}
    changes = {generation: table for generation, table in resumed.items() if isinstance(table, Mapping)}
    texts = (f"from generation {generation} on ({assignments(table)})" for generation, table in changes.items())
    return {"resumed": "; ".join(texts)}


def layout(description: Mapping[str, str], width: int | None) -> str:
    """Return the lines of a description: names on the left, and texts beside them.

    width: The characters of a line; None for no limit. Lines break between words. A longer word, such as a digest, is
        not divided, so that it can be copied and found.
    """
    name_width = max(map(len, description))
    # textwrap counts the indentation as a part of the line. A text gets 20 columns even on a narrow terminal.
    indentation = name_width + 4
    columns = max(sys.maxsize if width is None else width, indentation + 20)
    wrap = textwrap.TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
    wrap.subsequent_indent = " " * indentation
    lines = []
    for name, text in description.items():
        wrap.initial_indent = f"  {name:{name_width}}  "
        lines += wrap.wrap(text)
    return "\n".join(lines)


def _parser() -> Parser:
    parser = Parser(
        "evolve.info",
        "Describe run files and champion files: experiment, generations, results, digest. No episode is played.",
        "evolve info runs/CartPole-v1-hebbian-dag/seed-0.h5",
        "evolve info zoo/walker-es.champion --settings > experiment.toml",
        "evolve info runs/front/seed-1.h5 --genomes",
    )
    files = "run files, complete or not, directories of run files, or champion files"
    parser.add_argument("files", nargs="+", type=file_argument, metavar="FILE", help=files)
    settings = "print the experiment of one file with all its settings, as a TOML file that evolve run accepts"
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--settings", action="store_true", help=settings)
    genomes = "list the genomes of the front (nsga2) or the archive (map-elites) of each run"
    kinds.add_argument("--genomes", action="store_true", help=genomes)
    return parser


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_with_files(argv)
    app.stop.command_without_episodes = "info"  # a signal ends it at once
    files = store.run_files(options.files)
    if options.settings and len(files) > 1:
        raise InputError("FILE", "one file with --settings", f"{len(files)} of them")
    for index, file in enumerate(files):
        stored: store.Stored | None = None  # free the last file before the next one is read
        stored = store.read_any(file)
        if options.settings:
            config = config_of(stored)
            print(annotated_toml(config, environments.kwargs_model(config.env)), end="")
            continue
        if options.genomes:
            text = table(rows_of_genomes(stored), progress.width(), indent="  ")
        else:
            description = {name: sanitize(words) for name, words in describe_file(stored).items()}
            text = layout(description, progress.width())
        if index > 0:
            print()
        print(sanitize(str(file), 4000), text, sep="\n")
    return 0
