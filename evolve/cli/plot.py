"""evolve plot: draw curves, a comparison of experiments, fronts, an archive, or the network of a champion.

This module reads options and run files, and prints notes and tables. `evolve.analysis.figures` draws. Without an option
for another kind of picture, the command draws curves: see `_draw_curves`, and `_follow` for `--live`.
"""

import argparse
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from evolve import store, training
from evolve.analysis import comparison, figures, run_groups
from evolve.analysis.champion import champion_to_draw, mean_traces
from evolve.analysis.progress import width
from evolve.analysis.run_groups import RunGroup
from evolve.cli.app import App, StopFlag, path_for_stdout, say
from evolve.cli.parser import Parser, file_argument, genome_choice_of
from evolve.display import table
from evolve.errors import InputError, RunError, sanitize
from evolve.store import StoredRun, disk
from evolve.store.disk import check_writable

_POLL_SECONDS = 1.0  # between two looks at the files, with --live
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
    add("-x", "--over", choices=tuple(figures.AXES), help="the x axis of the curves (generation)")
    add("--load", action="store_true", help="draw throughput and idle workers, too")
    kinds = parser.add_mutually_exclusive_group()
    live = "wait for the files, and draw again whenever one changes, until all are complete"
    kinds.add_argument("--live", action="store_true", help=live)
    final = "instead of curves, compare the experiments by means, intervals, and a rank test against the best"
    kinds.add_argument("--final", action="store_true", help=final)
    add("--metric", metavar="NAME", help="with --final: compare means of this metric (env.metrics) instead of returns")
    control = "with --final: test against the experiment with this name in the table, instead of the best"
    add("--control", metavar="NAME", help=control)
    kinds.add_argument("--network", action="store_true", help="instead of curves, draw the network of a champion")
    kinds.add_argument("--front", action="store_true", help="instead of curves, draw the fronts of runs of nsga2")
    kinds.add_argument(
        "--archive", action="store_true", help="instead of curves, draw the archive of a run of map-elites"
    )
    chosen = "with --network: the best candidate of this generation (the final champion)"
    add("--generation", type=int, metavar="G", help=chosen)
    parser.add_front_and_archive()
    traces = "with --network: draw mean Hebbian traces over episodes, instead of weights"
    add("--traces", action="store_true", help=traces)
    return parser


def _draw_curves(files: list[Path], output: Path, over: str, load: bool, prints_notes: bool = True) -> bool:
    """Draw the curves of run files; return whether all runs are complete.

    over: The x axis, a key of `figures.AXES`.
    load: Whether to draw throughput and idle workers, too.
    prints_notes: Whether to print notes on runs that are left out, and on runs of different lengths.

    Raises InputError if a file cannot be read or written, and RunError if no file has a complete generation.
    """
    runs, groups = _read_groups(files, prints_notes)
    if over == "time" or load:  # runs of one experiment on several machines take different times
        groups = run_groups.by_machine(groups)
    drawn = _deduplicated(groups, prints_notes)
    if prints_notes and over == "generation" and (note := run_groups.uneven_lengths(drawn)):
        _say(note)
    figures.save(figures.draw_curves(drawn, over, load=load), output)
    return all(run.complete for run in runs)


def _draw_comparison(files: list[Path], output: Path, metric: str | None, control: str | None) -> None:
    """Draw and print a comparison of experiments. Raises InputError and RunError as `_draw_curves` does.

    metric: The name of a metric of `env.metrics` to compare; None to compare returns.
    control: The name of the experiment against which the others are tested; None for the best.
    """
    _, groups = _read_groups(files)
    ranking = comparison.compare_groups(_deduplicated(groups), metric, control)
    figures.save(figures.draw_comparison(ranking), output)
    print(f"{ranking.score}:\n\n{_table(ranking)}\n")
    # Explain the columns of the table.
    if any(row.interval for row in ranking.rows):
        bounds = "not beyond a best or worst episode that several seeds have"
        print(f"95 % interval: of the mean over seeds (Student's t), {bounds}")
    if any(row.p is not None for row in ranking.rows):
        test = f"two-sided Mann-Whitney test against {ranking.reference} of the environment, with Holm's correction"
        bias = ";\n   it is a little too small, because the same scores choose the best" if control is None else ""
        print(f"p: {test}{bias}")
        share = f"the share of pairs of seeds in which this experiment scores higher than {ranking.reference}"
        print(f"A: {share} (Vargha and Delaney); 0.5 if they are equal")
    for note in ranking.notes:
        print(note)


def _table(ranking: comparison.Ranking) -> str:
    """Return a comparison as the text of a table with a header."""
    rows = ranking.rows
    tested = any(row.against_reference for row in rows)
    lines = [("experiment", "seeds", "mean", "95 % interval", f"against {ranking.reference}" if tested else "")]
    # If there are several environments, the name of each stands above its experiments, which are indented.
    envs = list(dict.fromkeys(row.env for row in rows))
    indent = "  " if len(envs) > 1 else ""
    for env in envs:
        if len(envs) > 1:
            lines.append((env, "", "", "", ""))
        lines += [(f"{indent}{row.name}", *row.cells) for row in rows if row.env == env]
    return table(lines, width())


def _read_groups(files: list[Path], prints_notes: bool = True) -> tuple[list[StoredRun], list[RunGroup]]:
    """Return all runs, and the groups of the runs that have a complete generation. A note names all other runs."""
    runs, groups = run_groups.read_groups(files)
    empty = ", ".join(str(run.path) for run in runs if not run.num_generations)
    if empty and prints_notes:
        _say(f"no generation is complete yet, so these are left out: {sanitize(empty)}")
    return runs, groups


def _deduplicated(groups: list[RunGroup], prints_notes: bool = True) -> list[RunGroup]:
    """Return groups with one run for each seed. Notes name the runs that are left out."""
    deduplicated, notes = run_groups.deduplicate_seeds(groups)
    if prints_notes:
        for note in notes:
            _say(note)
    return deduplicated


def _draw_network(app: App, file: Path, which: training.GenomeChoice, traces: bool, output: Path) -> None:
    """Draw the network of a genome. traces: Whether lines show mean traces over episodes, instead of weights."""
    run = store.read_any(file)
    champion, experiment = champion_to_draw(run, which, traces)
    strengths = mean_traces(run, experiment, champion, app.coordinator()) if traces else None
    figures.save(figures.draw_champion(champion, experiment, strengths), output)


def _follow(paths: list[Path], output: Path, over: str, load: bool, stop: StopFlag) -> None:
    """Draw run files whenever one of them changes, until all are complete. `paths` may be directories."""
    drawn_times: list[int | None] = []  # of the files in the last drawing; empty before the first drawing
    has_said_waiting = False
    while stop.reason() is None:
        files: list[Path] = []
        with suppress(InputError):  # there is no run file yet
            files = store.run_files(paths)
        # The times are read before the files, so a change during the drawing leads to another drawing.
        times = list(map(_time_of_change, files))
        if None not in times and times != drawn_times:
            with suppress(RunError):  # no generation is complete yet
                all_complete = _draw_curves(files, output, over, load, prints_notes=False)
                drawn_times = times
                print(f"{time.strftime('%H:%M:%S')}  {output}", flush=True)
                if all_complete:
                    return
        if not drawn_times and not has_said_waiting:
            has_said_waiting = True
            _say(f"waiting for a complete generation in {', '.join(map(str, paths))}")
        time.sleep(_POLL_SECONDS)


def _time_of_change(path: Path) -> int | None:
    """Return the time of a file's last change; None if there is no file yet. Raises InputError if access is denied."""
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise InputError(str(path), "a run file", disk.why_missing(path)) from None


def _arguments(argv: list[str]) -> argparse.Namespace:
    """Return the arguments, completed with defaults. Raises InputError for invalid or incompatible arguments."""
    arguments = _parser().parse_with_files(argv)
    # Refuse options that have no effect on the kind of picture.
    network_options = [*genome_choice_of(arguments).criteria, *(["traces"] if arguments.traces else [])]
    if network_options and not arguments.network:
        expected = "--network with it, to draw a network"
        raise InputError(f"--{network_options[0]}", expected, "no --network", "Add --network.")
    for name in ("metric", "control"):
        if getattr(arguments, name) is not None and not arguments.final:
            raise InputError(f"--{name}", "--final with it, to compare experiments", "no --final", "Add --final.")
    kind = _kind_of_picture(arguments)
    for name, is_given in (("-x/--over", arguments.over is not None), ("--load", arguments.load)):
        if is_given and kind:
            raise InputError(name, "a picture of curves with it", f"--{kind}")
    takes_one_file = arguments.network or arguments.archive
    if takes_one_file and len(arguments.files) > 1:
        raise InputError("FILE", f"one run file with --{kind}", f"{len(arguments.files)} files")
    # Choose the output, and refuse a picture that cannot be drawn or written.
    if arguments.output is None:
        arguments.output = Path(f"{kind or 'curves'}.png")
    check_writable(arguments.output, figures.FORMATS)
    figures.check_library()
    # With --live the files need not exist yet.
    if not arguments.live:
        arguments.files = (
            [store.one_run_file(arguments.files[0])] if takes_one_file else store.run_files(arguments.files)
        )
    arguments.over = arguments.over or "generation"
    return arguments


def _kind_of_picture(arguments: argparse.Namespace) -> str:
    """Return the option that names the kind of picture; empty for curves."""
    return next((kind for kind in ("network", "final", "front", "archive") if getattr(arguments, kind)), "")


def _body(app: App, argv: list[str]) -> int:
    arguments = _arguments(argv)
    if arguments.live:
        _follow(arguments.files, arguments.output, arguments.over, arguments.load, app.stop)
        return 0
    if not arguments.traces:  # without traces no episode is played, so a signal may end the command anywhere
        app.stop.command_without_episodes = "plot"
    if arguments.network:
        _draw_network(app, arguments.files[0], genome_choice_of(arguments), arguments.traces, arguments.output)
    elif arguments.front or arguments.archive:
        runs, _ = _read_groups(arguments.files)
        begun = [run for run in runs if run.num_generations]
        figure = figures.draw_front(begun) if arguments.front else figures.draw_archive(begun[0])
        figures.save(figure, arguments.output)
    elif arguments.final:
        _draw_comparison(arguments.files, arguments.output, arguments.metric, arguments.control)
    else:
        _draw_curves(arguments.files, arguments.output, arguments.over, arguments.load)
    print(path_for_stdout(arguments.output))
    return 0
