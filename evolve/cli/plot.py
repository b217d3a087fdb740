"""evolve plot: draw curves, a comparison of experiments, fronts, an archive, or the network of a champion."""

import argparse
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from evolve import store, training
from evolve.analysis import comparison, figures, run_groups
from evolve.analysis.champion import champion_to_draw, mean_traces
from evolve.analysis.progress import width
from evolve.cli.app import App, StopFlag, path_for_stdout, say
from evolve.cli.parser import Parser, file_argument, genome_choice_of
from evolve.display import table
from evolve.errors import InputError, RunError, sanitize
from evolve.store import disk
from evolve.store.disk import check_writable

_LOOK_EVERY = 1.0  # seconds
_say = partial(say, "plot")


def _parser() -> Parser:
    parser = Parser(
        "evolve.plot",
        "Draw fitness and connections of run files over generations. Files of one experiment are summarized.",
        "evolve plot runs/CartPole-v1-hebbian-dag/seed-*.h5 -o curves.svg",
        "evolve plot runs/CartPole-v1-hebbian-dag/seed-0.h5 --live",
        "evolve plot runs/CartPole-v1-hebbian-dag/seed-0.h5 --network -o network.svg",
    )
    add = parser.add_argument
    add("files", nargs="+", type=file_argument, metavar="FILE", help="run files, complete or not, or directories")
    names = "the picture, a .png, .svg or .pdf file (curves.png, final.png, front.png, archive.png or network.png)"
    add("-o", "--output", type=Path, metavar="OUT", help=names)
    add("-x", "--over", choices=tuple(figures.AXES), help="the axis of the curves (generation)")
    add("--load", action="store_true", help="draw throughput and idle workers, too")
    kinds = parser.add_mutually_exclusive_group()
    live = "wait for the files, and draw again whenever one changes, until all are complete"
    kinds.add_argument("--live", action="store_true", help=live)
    final = "compare the experiments instead, by means, intervals, and a rank test against the best"
    kinds.add_argument("--final", action="store_true", help=final)
    add("--metric", metavar="NAME", help="with --final: compare means of this metric (env.metrics) instead of returns")
    control = "with --final: test against the experiment of this name in the table, instead of the best"
    add("--control", metavar="NAME", help=control)
    kinds.add_argument("--network", action="store_true", help="draw the network of a champion instead")
    kinds.add_argument("--front", action="store_true", help="draw the fronts of runs of nsga2 instead")
    kinds.add_argument("--archive", action="store_true", help="draw the archive of a run of map-elites instead")
    chosen = "with --network: the best candidate of this generation (the final champion)"
    add("--generation", type=int, metavar="G", help=chosen)
    parser.add_front_and_archive()
    traces = "with --network: draw mean Hebbian traces over episodes, instead of weights"
    add("--traces", action="store_true", help=traces)
    return parser


def _draw_curves(files: list[Path], output: Path, over: str, load: bool, prints_notes: bool = True) -> bool:
    """Draw the curves of run files; return whether all are complete.

    Raises InputError, and RunError if no file has a complete generation.
    """
    runs, groups = _read(files, prints_notes)
    if over == "time" or load:  # equal runs of several machines differ in their time
        groups = run_groups.by_machine(groups)
    shown = _deduplicated(groups, prints_notes)
    if prints_notes and over == "generation" and (uneven := run_groups.uneven_lengths(shown)):
        _say(uneven)
    figures.save(figures.draw_curves(shown, over, load=load), output)
    return all(run.complete for run in runs)


def _draw_comparison(files: list[Path], output: Path, metric: str | None, control: str | None) -> None:
    """Draw and print a comparison of experiments. Raises InputError and RunError as `_draw_curves` does."""
    found = comparison.compare_groups(_deduplicated(_read(files)[1]), metric, control)
    figures.save(figures.draw_comparison(found), output)
    print(f"{found.score}:\n\n{_table(found)}\n")
    if any(row.interval for row in found.rows):
        print("95 % interval: of the mean over seeds (Student's t), cut at an extreme that several seeds reach")
    if any(row.p is not None for row in found.rows):
        test = f"two-sided Mann-Whitney test against {found.reference} of the environment, with Holm's correction"
        chosen = ";\n   it is a little too small, because the same scores choose the best" if control is None else ""
        print(f"p: {test}{chosen}")
        more = f"how often a seed scores higher than a seed of {found.reference}"
        print(f"A: {more} (Vargha and Delaney); 0.5 if they are equal")
    for note in found.notes:
        print(note)


def _table(ranking: comparison.Ranking) -> str:
    """Return a comparison as the text of a table with a header."""
    rows = ranking.rows
    tested = any(row.against_reference for row in rows)
    lines = [("experiment", "seeds", "mean", "95 % interval", f"against {ranking.reference}" if tested else "")]
    # If there are several environments, the name of each stands above its experiments, which are indented.
    for env in dict.fromkeys(row.env for row in rows):
        own = [row for row in rows if row.env == env]
        if len(own) < len(rows):
            lines.append((env, "", "", "", ""))
        for row in own:
            label = f"  {row.name}" if len(own) < len(rows) else row.name
            lines.append((label, *row.cells))
    return table(lines, width())


def _read(files: list[Path], prints_notes: bool = True) -> tuple[list[store.StoredRun], list[run_groups.RunGroup]]:
    """Return all runs, and the groups of the runs that can be drawn. A note names the others."""
    runs, groups = run_groups.read_groups(files)
    empty = ", ".join(str(run.path) for run in runs if not run.num_generations)
    if empty and prints_notes:
        _say(f"no generation is complete yet, so these are left out: {sanitize(empty)}")
    return runs, groups


def _deduplicated(groups: list[run_groups.RunGroup], prints_notes: bool = True) -> list[run_groups.RunGroup]:
    """Return groups with one run for each seed. A note names omitted runs."""
    deduplicated, notes = run_groups.deduplicate_seeds(groups)
    if prints_notes:
        for note in notes:
            _say(note)
    return deduplicated


def _draw_network(app: App, file: Path, which: training.GenomeChoice, traces: bool, output: Path) -> None:
    """Draw the network of a genome. The width of a line shows a weight, or a mean trace if `traces`."""
    run = store.read_any(file)
    champion, experiment = champion_to_draw(run, which, traces)
    shown = mean_traces(run, experiment, champion, app.coordinator()) if traces else None
    figures.save(figures.draw_champion(champion, experiment, shown), output)


def _follow(paths: list[Path], output: Path, over: str, load: bool, stop: StopFlag) -> None:
    """Draw run files whenever one of them changes, until all are complete. `paths` may be directories."""
    drawn: list[int | None] = []
    waiting = False
    while stop.reason() is None:
        files: list[Path] = []
        with suppress(InputError):  # there is no run file yet
            files = store.run_files(paths)
        # The times are read before the files, so a change during the drawing leads to another drawing.
        times = list(map(_time_of_change, files))
        if None not in times and times != drawn:
            with suppress(RunError):  # no generation is complete yet
                all_complete = _draw_curves(files, output, over, load, prints_notes=False)
                drawn = times
                print(f"{time.strftime('%H:%M:%S')}  {output}", flush=True)
                if all_complete:
                    return
        if not (drawn or waiting):
            waiting = True
            _say(f"waiting for a complete generation in {', '.join(map(str, paths))}")
        time.sleep(_LOOK_EVERY)


def _time_of_change(path: Path) -> int | None:
    """Return the time of a file's last change; None if there is no file yet. Raises InputError without access to it."""
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise InputError(str(path), "a run file", disk.why_missing(path)) from None


def _arguments(argv: list[str]) -> argparse.Namespace:
    """Return the arguments, completed with defaults. Raises InputError for invalid or incompatible arguments."""
    found = _parser().parse_with_files(argv)
    of_network = [*genome_choice_of(found).criteria, *(["traces"] if found.traces else [])]
    if of_network and not found.network:
        raise InputError(f"--{of_network[0]}", "--network with it, to draw a network", "no --network", "Add --network.")
    for name in ("metric", "control"):
        if getattr(found, name) is not None and not found.final:
            raise InputError(f"--{name}", "--final with it, to compare experiments", "no --final", "Add --final.")
    for name, given in (("-x/--over", found.over is not None), ("--load", found.load)):
        if given and (other := _kind_of_picture(found)):
            raise InputError(name, "a picture of curves with it", f"--{other}")
    one_file = found.network or found.archive
    if one_file and len(found.files) > 1:
        raise InputError("FILE", f"one run file with --{_kind_of_picture(found)}", f"{len(found.files)} files")
    if found.output is None:
        found.output = Path(f"{_kind_of_picture(found) or 'curves'}.png")
    check_writable(found.output, figures.FORMATS)
    figures.check_library()
    # With --live the files need not exist yet.
    if not found.live:
        found.files = [store.one_run_file(found.files[0])] if one_file else store.run_files(found.files)
    found.over = found.over or "generation"
    return found


def _kind_of_picture(options: argparse.Namespace) -> str:
    """Return the kind of picture that is drawn instead of curves; empty for curves."""
    return next((kind for kind in ("network", "final", "front", "archive") if getattr(options, kind)), "")


def _body(app: App, argv: list[str]) -> int:
    arguments = _arguments(argv)
    if arguments.live:
        _follow(arguments.files, arguments.output, arguments.over, arguments.load, app.stop)
        return 0
    if not arguments.traces:  # only traces need episodes
        app.stop.command_without_episodes = "plot"
    if arguments.network:
        _draw_network(app, arguments.files[0], genome_choice_of(arguments), arguments.traces, arguments.output)
    elif arguments.front or arguments.archive:
        runs = [run for run in _read(arguments.files)[0] if run.num_generations]
        figures.save(figures.draw_front(runs) if arguments.front else figures.draw_archive(runs[0]), arguments.output)
    elif arguments.final:
        _draw_comparison(arguments.files, arguments.output, arguments.metric, arguments.control)
    else:
        _draw_curves(arguments.files, arguments.output, arguments.over, arguments.load)
    print(path_for_stdout(arguments.output))
    return 0
