"""The report: tables, figures and films of runs on one HTML page that needs no other file.

`make_page` makes the page, and `save` writes it. For each run, `summarize_run` plays episodes again for the
verification and for a film. Then `render` draws the figures and fills the template, `report.html` with `report.css`.
`tables` makes the tables and sentences. Only this module imports Jinja2 (extra `report`).
"""

import base64
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evolve import verification
from evolve.analysis import comparison, figures, run_groups, statistics, video
from evolve.analysis.champion import champion_of, typical_episode
from evolve.analysis.comparison import best_run
from evolve.analysis.html import tables
from evolve.analysis.html.tables import Clip, ReportedChampion, ReportTable, RunSummary
from evolve.analysis.run_groups import RunGroup
from evolve.cluster import Coordinator, Transport
from evolve.errors import EvolveError, InputError, RunError, Stopped, exception_line, import_extra
from evolve.store import StoredRun, disk
from evolve.training import Experiment, config_of, reload, reload_policy

FORMATS = (".html", ".htm")
"""The allowed endings of a page's file name."""
MOST_EXPERIMENTS = 12
"""Only this number of experiments, the best ones, have a film, a front or archive, a network and histograms."""
_FRONT = (
    "The front: genomes for which no other genome is as good in all goals and better in one. The hypervolume is the "
    "area that the front dominates, as a share of the rectangle from the worst to the best values of all its fronts."
)
_ARCHIVE = "The archive: each cell has the fitness of its elite, the best candidate with these descriptors."
_FILM_SECONDS = 12.0  # the longest film; of a longer episode only every k-th step is shown
_Check = Callable[[], None]
_FilmCheck = Callable[[str], None] | None


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, with a description for screen readers."""

    svg: str
    description: str


_Draw = Callable[[str, str, Any], Picture]
"""A function that makes a picture from a name, a description and a figure. The names of a page's pictures differ."""


class Drawing(NamedTuple):
    """A picture of one experiment, with the experiment's label and a caption. Or the reason why it cannot be drawn."""

    label: str
    caption: str
    picture: Picture | str


def check_libraries() -> None:
    """Raise InputError unless Jinja2 and matplotlib are installed."""
    _jinja2()
    figures.check_library()


def _jinja2() -> Any:
    """Return the module jinja2. Raises InputError if it is not installed."""
    return import_extra("jinja2", "report", "report", "Jinja2")


def summarize_run(
    run: StoredRun, with_film: bool, coordinator: Coordinator, transport: Transport, check: _FilmCheck = None
) -> RunSummary:
    """Evaluate champions of a run again, and film the final champion.

    If the run cannot be evaluated or filmed, the summary has the reason. Raises Stopped if a stop was requested.

    with_film: Whether to make a film.
    transport: The ranks, for the description of this machine.
    check: Called with a few words at each step and picture of the film. It may raise Stopped.
    """
    try:
        experiment = reload(run)
        equal, verification_text = _verify(run, experiment, coordinator, transport)
    except Stopped:  # an EvolveError, too, but it ends the whole report
        raise
    except EvolveError as error:
        why = exception_line(str(error))
        why_no_film = f"No film: {why}" if with_film else ""
        return RunSummary(run, why_no_film=why_no_film, verification=f"It cannot be checked: {why}")
    film, why_no_film = None, ""
    if with_film:
        try:
            film = _film(run, experiment, check)
        except (InputError, RunError) as error:  # the environment cannot be drawn here, or the episode fails
            why_no_film = f"No film: {exception_line(str(error))}"
    return RunSummary(run, film, why_no_film, equal, verification_text)


def _verify(run: StoredRun, experiment: Experiment, coordinator: Coordinator, transport: Transport) -> tuple[bool, str]:
    """Evaluate the champions of some generations again, evenly spaced from the first to the last.

    Return whether all compared results are equal to the log, and the verdict in words.
    """
    spaced = np.linspace(0, run.num_generations - 1, tables.MOST_CHECKED).round()
    # In a short run, some of these numbers are equal.
    generations = np.unique(spaced.astype(int)).tolist()
    repetition = verification.repetition(run, experiment, coordinator, transport)
    assert isinstance(repetition, verification.RunRepetition)  # because `run` is a run file, not a champion file
    verdict = repetition.reevaluate(generations)
    if verdict.equal:
        machine = repetition.local_manifest
        return True, f"{verdict.summary}, on {machine['cpu']}, {machine['libc']}"
    cause = f" {verdict.cause.capitalize()}: {verdict.why}." if verdict.cause else ""
    return False, f"{verdict.summary}.{cause}"


def _film(run: StoredRun, experiment: Experiment, check: _FilmCheck) -> Clip:
    """Return a short film of the champion in a typical episode."""
    champion = champion_of(run)
    episode, description = typical_episode(run, experiment, champion)
    # If the environment cannot be drawn, Gymnasium's environment is filmed instead, and the remark says so.
    filmed_experiment, remark = video.drawable(experiment)
    title = f"{champion.title}, in Gymnasium" if remark else champion.title
    subject = video.Subject(run, filmed_experiment, episode, title)
    mp4, jpeg, _, (results,) = video.film_in_memory([subject], _FILM_SECONDS, check)
    caption = f"{champion.title}: {remark or description}, return {statistics.number(float(results.returns[0]))}"
    return Clip(mp4, jpeg, caption)


def render(
    groups: Sequence[RunGroup],
    summaries: Sequence[RunSummary],
    empty: Sequence[Path] = (),
    check: _Check = lambda: None,
) -> str:
    """Return the HTML page of groups and the summaries of their runs.

    Raises InputError if Jinja2 or matplotlib is not installed.

    summaries: The summary of each run of the groups.
    empty: The files of runs that have not completed a generation. They are in no group.
    check: Called before each champion, and after each figure is drawn. It may raise Stopped.
    """
    names = _run_names(groups)

    def draw(name: str, description: str, figure: Any) -> Picture:
        check()
        # The page has its own titles and notes, as texts.
        figure.suptitle("")
        figure.supxlabel("")
        return Picture(figures.to_svg(figure, name), description)

    champions = {}
    for run in names:
        check()
        champions[run] = reported_champion(run)
    # Comparisons and curves have only the longest run of each seed. Tables of runs have all runs.
    compared, notes = run_groups.deduplicate_seeds(groups)
    notes += filter(None, [run_groups.uneven_lengths(compared)])
    shown = comparison.best_groups(compared, MOST_EXPERIMENTS)
    omission = ""
    if len(shown) < len(groups):
        omission = f"Only the best {len(shown)} of {len(groups)} experiments are shown here."
    unfilmed = [summary for summary in summaries if summary.why_no_film]
    fronts_and_archives = [_front_or_archive(draw, n, group) for n, group in enumerate(shown)]
    connections = {group.label: champions[best_run(group)].connections for group in compared}
    # The names of the arguments are the names in the template.
    text: str = _template().render(
        title=", ".join(sorted({group.config.env.id for group in groups})),
        verdict=tables.conclude(compared, summaries, connections),
        groups=groups,
        runs=names,
        incomplete=statistics.listed([name for run, name in names.items() if not run.complete]),
        empty=statistics.listed([str(path) for path in empty]),
        tables=[
            tables.experiments_table(compared),
            tables.training_table(names),
            tables.champion_table(names, champions),
            tables.file_table(names),
        ],
        notes=notes,
        costs_connections=run_groups.costs_connections(compared),
        # Whether the curves have marks of held-out means at their right edge.
        has_marks=any(run_groups.selects_by_return(each) and comparison.held_out_score(each) for each in compared),
        connections_vary=run_groups.connections_vary(compared),
        fitness=run_groups.fitness_in_words(compared),
        comparison=_comparison(draw, compared),
        curves=draw("curves", "Curves over generations", figures.draw_curves(compared)),
        failed_candidates=run_groups.failed_candidates(compared),
        fronts_and_archives=[drawn for drawn in fronts_and_archives if drawn is not None],
        networks=[_network(draw, n, group, champions[best_run(group)]) for n, group in enumerate(shown)],
        omission=omission,
        films=_films(compared, summaries),
        without_film=tables.names_by((summary.why_no_film, names[summary.run]) for summary in unfilmed),
        held_out=tables.held_out_table(names),
        spreads=_spreads(draw, shown, names),
        not_evaluated=[tables.file_argument(run) for run in names if run.held_out is None],
        verification=tables.verification_table(names, summaries),
        load=draw("load", "Busy seconds of each rank", figures.draw_load([(name, run) for run, name in names.items()])),
        differing_settings=tables.differing_settings(groups),
        manifest=tables.manifest_values(names),
    )
    return text


def make_page(
    runs: Sequence[StoredRun],
    groups: Sequence[RunGroup],
    summarize: Callable[[StoredRun, bool], RunSummary] | None,
    check: _Check = lambda: None,
) -> tuple[str, bool]:
    """Return the HTML page of runs, and whether it has a film.

    runs: All runs, also those that have not completed a generation.
    groups: The groups of the runs that have completed a generation.
    summarize: Plays episodes of a run again. Its second argument says whether to film the champion. None to play no
        episodes.
    check: Called before each champion, and after each figure is drawn. It may raise Stopped.
    """
    compared, _ = run_groups.deduplicate_seeds(groups)
    # One film for each experiment, of its best run.
    filmed = {best_run(group) for group in comparison.best_groups(compared, MOST_EXPERIMENTS)}
    summaries = []
    for group in groups:
        for run in group.runs:
            if summarize is None:
                summaries.append(RunSummary(run, why_no_film="No film was made, as no episode was played."))
            else:
                summaries.append(summarize(run, run in filmed))
    empty = [run.path for run in runs if not run.num_generations]
    return render(groups, summaries, empty, check), any(summary.film for summary in summaries)


def _run_names(groups: Sequence[RunGroup]) -> dict[StoredRun, str]:
    """Return the name of each run: its seed, after the label of its experiment if there are several experiments."""
    names: dict[StoredRun, str] = {}
    for group in groups:
        label = f"{group.label}, " if len(groups) > 1 else ""
        names |= {run: f"{label}seed {run.header.seed}" for run in group.runs}
    # Copies of a run would have the same name, so their paths follow.
    counts = Counter(names.values())
    for run, path in zip(names, statistics.short_names([run.path for run in names]), strict=True):
        if counts[names[run]] > 1:
            names[run] += f", {path}"
    return names


def save(page: str, path: Path) -> None:
    """Write a page. Raises InputError if that fails."""
    # The page has names of files, which may contain lone surrogates, and UTF-8 cannot encode these.
    disk.write_output(path, page.encode("utf-8", "backslashreplace"))


def _template() -> Any:
    """Return the template, which escapes all texts. Raises InputError without Jinja2."""
    jinja2 = _jinja2()
    # With StrictUndefined, a wrong name in the template is an error and not an empty text.
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html")


def _front_or_archive(draw: _Draw, number: int, group: RunGroup) -> Drawing | None:
    """Return the front or the archive of a group's best run; None if the strategy has neither.

    number: The number of the group on the page, for the name of the picture.
    """
    run = best_run(group)
    try:
        if run.records[-1].front is not None:
            explanation, figure = _FRONT, figures.draw_front([run])
        elif run.records[-1].archive is not None:
            explanation, figure = _ARCHIVE, figures.draw_archive(run)
        else:
            return None
    except EvolveError as error:
        return Drawing(group.label, "", str(error))
    description, *_ = explanation.partition(".")  # the first sentence
    picture = draw(f"front-or-archive{number}", description, figure)
    return Drawing(group.label, f"{_seed_in_words(run, group)}. {explanation}", picture)


def _comparison(draw: _Draw, groups: Sequence[RunGroup]) -> tuple[ReportTable, Picture, tuple[str, ...], bool] | None:
    """Return the comparison of several groups: a table, a figure, notes, and whether p and A are in the figure.

    Return None for a single group.
    """
    if len(groups) < 2:
        return None
    ranking = comparison.compare_groups(groups)
    picture = draw("comparison", ranking.score, figures.draw_comparison(ranking))
    has_tests = any(row.p is not None for row in ranking.rows)
    return tables.comparison_table(ranking, groups), picture, ranking.notes, has_tests


def reported_champion(run: StoredRun) -> ReportedChampion:
    """Return the champion of a run. If the network of the run cannot be made, the reason replaces the network."""
    champion, unit = champion_of(run), run_groups.mask_unit(config_of(run))
    genome = champion.genome
    connections = f"{genome.connections()[0]:,} of {genome.num_weights:,} {unit}"
    try:
        experiment = reload_policy(run)
    except EvolveError as error:
        return ReportedChampion(champion.title, connections, str(error))
    network = figures.network_of(genome, experiment)
    if unit == "connections":  # count only those that can act
        connections = network.connections_text
    return ReportedChampion(champion.title, connections, network)


def _network(draw: _Draw, number: int, group: RunGroup, champion: ReportedChampion) -> Drawing:
    """Return the network of a group's best champion. number: The number of the group on the page."""
    caption = f"{_seed_in_words(best_run(group), group)}, {champion.title}: {champion.connections} left"
    network = champion.network
    if isinstance(network, str):
        return Drawing(group.label, f"{caption}.", network)
    omission = f", {network.omission_text}" if network.omission_text else ""
    description = f"Network of the champion of {group.label}"
    picture = draw(f"network{number}", description, figures.draw_network(network))
    return Drawing(group.label, f"{caption}{omission}.", picture)


def _seed_in_words(run: StoredRun, group: RunGroup) -> str:
    """Return the seed of a group's best run in words, and the number of runs if the group has several."""
    seed = f"Seed {run.header.seed}"
    return seed if len(group.runs) == 1 else f"{seed}, the best of {len(group.runs)}"


class Spread(NamedTuple):
    """The spread of the held-out returns of one experiment.

    label: The label of the experiment.
    histograms: A histogram for each champion; None if no champion has different returns.
    values: The name of the values in histograms: "returns", or "mean returns of N champions".
    notes: Sentences about champions with equal returns in all episodes, because their histograms would show nothing.
    """

    label: str
    histograms: Picture | None
    values: str
    notes: list[str]


def _spreads(draw: _Draw, groups: Sequence[RunGroup], names: Mapping[StoredRun, str]) -> list[Spread]:
    """Return the spread of each group with held-out returns. names: The names of runs."""
    spreads = []
    for number, group in enumerate(groups):
        samples = []
        for run in group.runs:
            # If all held-out episodes of a champion failed, there is nothing to draw.
            if run.held_out is not None and len(returns := statistics.finite(run.held_out.returns)):
                # The label stands above the histograms.
                samples.append((names[run].removeprefix(f"{group.label}, "), returns))
        if not samples:
            continue
        values, varying, notes = "returns", samples, []
        if len(samples) > figures.MOST_PANELS:
            values = f"mean returns of {len(samples):,} champions"
        else:
            varying = [(name, returns) for name, returns in samples if returns.min() < returns.max()]
            constant = [(float(returns[0]), name) for name, returns in samples if returns.min() == returns.max()]
            # Champions with an equal return share a note.
            for value, sharing in tables.names_by(constant).items():
                notes.append(f"{sharing}: every held-out episode returned {statistics.number(value)}")
        histograms = None
        if varying:
            histograms = draw(f"spread{number}", "Histogram of held-out returns", figures.draw_returns(varying))
        spreads.append(Spread(group.label, histograms, values, notes))
    return spreads


def _films(groups: Sequence[RunGroup], summaries: Sequence[RunSummary]) -> list[tuple[str, str, str]]:
    """Return for each film its caption, and data URLs of the film and of a still."""
    clips = {summary.run: summary.film for summary in summaries}
    films = []
    for group in groups:
        label = f"{group.label}: " if len(groups) > 1 else ""
        for run in group.runs:
            clip = clips[run]
            if clip is not None:  # `make_page` films only the best run of a group
                film, still = data_url("video/mp4", clip.mp4), data_url("image/jpeg", clip.jpeg)
                films.append((f"{label}{_seed_in_words(run, group)}, {clip.caption}", film, still))
    return films


def data_url(media_type: str, content: bytes) -> str:
    """Return a URL that contains a file of a media type, such as "video/mp4"."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
