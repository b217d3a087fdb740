"""The report: tables, figures and films of runs on one HTML page that needs no other file.

`make_page` makes the page, and `save` writes it. For each run, `summarize_run` plays episodes again for the
verification and for a film. Then `render` draws the figures and fills the template: `report.html` with `report.css`.
`tables` has the tables and sentences. Only this module imports Jinja2 (extra `report`).
"""

import base64
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
"""The largest number of experiments that have a film, a front or archive, a network and histograms: the best ones."""
_FRONT = (
    "The front: genomes for which no other genome is as good in all goals and better in one. The hypervolume is the "
    "area that the front dominates, as a share of the rectangle from the worst to the best values of all its fronts."
)
_ARCHIVE = "The archive: each cell has the fitness of its elite, the best candidate with these descriptors."
_FILM_SECONDS = 12.0
_Check = Callable[[], None]


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, with a description for screen readers."""

    svg: str
    description: str


_Draw = Callable[[str, str, Any], Picture]
"""Makes a picture from a name that no other picture of the page has, a description, and a figure."""


def check_libraries() -> None:
    """Raise InputError unless Jinja2 and matplotlib are installed."""
    _jinja2()
    figures.check_library()


def _jinja2() -> Any:
    return import_extra("jinja2", "report", "report", "Jinja2")


def summarize_run(run: StoredRun, filmed: bool, coordinator: Coordinator, transport: Transport) -> RunSummary:
    """Evaluate champions of a run again, and film the final champion.

    Errors of the run are not raised. The summary says instead why something is missing. Raises Stopped if a stop was
    requested.

    filmed: Whether to make a film.
    transport: The ranks, for the description of this machine.
    """
    try:
        experiment = reload(run)
        equal, verified = _verify(run, experiment, coordinator, transport)
    except Stopped:  # an EvolveError, too, but it ends the whole report
        raise
    except EvolveError as error:
        why = exception_line(str(error))
        why_no_film = f"No film: {why}" if filmed else ""
        return RunSummary(run, why_no_film=why_no_film, verification=f"It cannot be checked: {why}")
    film, why_no_film = None, ""
    if filmed:
        try:
            film = _film(run, experiment)
        except (InputError, RunError) as error:  # it cannot be drawn here, or the episode fails
            why_no_film = f"No film: {exception_line(str(error))}"
    return RunSummary(run, film, why_no_film, equal, verified)


def _verify(run: StoredRun, experiment: Experiment, coordinator: Coordinator, transport: Transport) -> tuple[bool, str]:
    """Evaluate the champions of some generations again, evenly spaced from the first to the last.

    Return whether all compared results are equal to the log, and the verdict in words.
    """
    spaced = np.linspace(0, run.num_generations - 1, tables.MOST_CHECKED).round()
    # In a short run, several of these places fall on one generation.
    generations = np.unique(spaced.astype(int)).tolist()
    repetition = verification.repetition(run, experiment, coordinator, transport)
    assert isinstance(repetition, verification.RunRepetition)  # because `run` is a run file, not a champion file
    verdict, here = repetition.reevaluate(generations), repetition.local_manifest
    if verdict.equal:
        return True, f"{verdict.summary}, on {here['cpu']}, {here['libc']}"
    cause = f" {verdict.cause.capitalize()}: {verdict.why}." if verdict.cause else ""
    return False, f"{verdict.summary}.{cause}"


def _film(run: StoredRun, experiment: Experiment) -> Clip:
    """Return a short film of the champion in a typical episode."""
    champion = champion_of(run)
    episode, description = typical_episode(run, experiment, champion)
    # If the environment cannot be drawn, Gymnasium's environment is shown instead, and the remark says so.
    shown, remark = video.drawable(experiment)
    title = f"{champion.title}, in Gymnasium" if remark else champion.title
    subject = video.Subject(run, shown, episode, title)
    mp4, jpeg, _, (results,) = video.film_in_memory([subject], _FILM_SECONDS)
    shows = f"{champion.title}: {remark or description}, return {statistics.number(float(results.returns[0]))}"
    return Clip(mp4, jpeg, shows)


def render(
    groups: Sequence[RunGroup],
    summaries: Sequence[RunSummary],
    empty: Sequence[Path] = (),
    check: _Check = lambda: None,
) -> str:
    """Return the HTML page of groups and the summaries of their runs.

    Raises InputError if Jinja2 or matplotlib is not installed.

    empty: The files of runs that have not completed a generation. They are in no group.
    check: Called before each champion, and after each figure is drawn. It may raise Stopped.
    """
    names = _run_names(groups)

    def draw(name: str, description: str, figure: Any) -> Picture:
        check()
        # The page has the titles and the notes as texts.
        figure.suptitle("")
        figure.supxlabel("")
        return Picture(figures.to_svg(figure, name), description)

    champions = {}
    for run in names:
        check()
        champions[run] = reported_champion(run)
    # What the page says about an experiment counts only the longest run of each seed. Tables of runs have all runs.
    compared, notes = run_groups.deduplicate_seeds(groups)
    notes += filter(None, [run_groups.uneven_lengths(compared)])
    shown = comparison.best_groups(compared, MOST_EXPERIMENTS)
    omission = ""
    if len(shown) < len(groups):
        omission = f"Only the best {len(shown)} of {len(groups)} experiments are shown here."
    unfilmed = [summary for summary in summaries if summary.why_no_film]
    fronts_and_archives = [_front_or_archive(draw, n, group) for n, group in enumerate(shown)]
    text: str = _template().render(
        title=", ".join(sorted({group.config.env.id for group in groups})),
        verdict=tables.conclude(
            compared, summaries, {group.label: champions[best_run(group)].connections for group in compared}
        ),
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

    groups: The groups of the runs that have completed a generation.
    summarize: Plays episodes of a run again. Its second argument says whether to film the champion: the best run of
        each group is filmed, or of the best groups if there are many. None to play no episodes.
    check: Called before each champion, and after each figure is drawn. It may raise Stopped.
    """
    begun = [run for group in groups for run in group.runs]
    if summarize is None:
        why_no_film = "No film was made, as no episode was played."
        summaries = [RunSummary(run, why_no_film=why_no_film) for run in begun]
    else:
        counted, _ = run_groups.deduplicate_seeds(groups)
        # One film for each experiment.
        best = {best_run(group) for group in comparison.best_groups(counted, MOST_EXPERIMENTS)}
        summaries = [summarize(run, run in best) for run in begun]
    empty = [run.path for run in runs if not run.num_generations]
    return render(groups, summaries, empty, check), any(summary.film for summary in summaries)


def _run_names(groups: Sequence[RunGroup]) -> dict[StoredRun, str]:
    """Return the name of each run: the label of its experiment (if there are several), its seed, perhaps its path."""
    names: dict[StoredRun, str] = {}
    for group in groups:
        label = f"{group.label}, " if len(groups) > 1 else ""
        names |= {run: f"{label}seed {run.header.seed}" for run in group.runs}
    # Copies of a run would have one name, so their paths follow.
    counts = Counter(names.values())
    for run, path in zip(names, statistics.short_names([run.path for run in names]), strict=True):
        if counts[names[run]] > 1:
            names[run] += f", {path}"
    return names


def save(text: str, path: Path) -> None:
    """Write a page. Raises InputError if that fails."""
    # File names may contain lone surrogates, which UTF-8 cannot encode.
    disk.write_output(path, text.encode("utf-8", "backslashreplace"))


def _template() -> Any:
    """Return the template, which escapes all texts. Raises InputError without Jinja2."""
    jinja2 = _jinja2()
    # With StrictUndefined, a wrong name in the template is an error and not an empty text.
    loader, undefined = jinja2.FileSystemLoader(Path(__file__).parent), jinja2.StrictUndefined
    blocks = {"trim_blocks": True, "lstrip_blocks": True}
    return jinja2.Environment(loader=loader, undefined=undefined, autoescape=True, **blocks).get_template("report.html")


def _front_or_archive(draw: _Draw, number: int, group: RunGroup) -> tuple[str, str, Picture | str] | None:
    """Return a group's label, a caption, and a picture of the front or the archive of its best run.

    If the picture cannot be drawn, the reason replaces it. None if the strategy has neither a front nor an archive.

    number: the number of the group on the page.
    """
    run = best_run(group)
    try:
        if run.records[-1].front is not None:
            what, figure = _FRONT, figures.draw_front([run])
        elif run.records[-1].archive is not None:
            what, figure = _ARCHIVE, figures.draw_archive(run)
        else:
            return None
    except EvolveError as error:
        return group.label, "", str(error)
    first_sentence, *_ = what.partition(".")
    # The name covers both pictures: a strategy keeps candidates in a front or in an archive.
    picture = draw(f"kept{number}", first_sentence, figure)
    return group.label, f"{_seed_in_words(run, group)}. {what}", picture


def _comparison(draw: _Draw, groups: Sequence[RunGroup]) -> tuple[ReportTable, Picture, tuple[str, ...]] | None:
    """Return the comparison of several groups: a table, a figure and notes. None for a single group."""
    if len(groups) < 2:
        return None
    found = comparison.compare_groups(groups)
    picture = draw("comparison", found.score, figures.draw_comparison(found))
    return tables.comparison_table(found, groups), picture, found.notes


def reported_champion(run: StoredRun) -> ReportedChampion:
    """Return the champion of a run. If the file cannot be read as a policy, the reason replaces the network."""
    champion, unit = champion_of(run), run_groups.mask_unit(config_of(run))
    genome = champion.genome
    connections = f"{genome.connections()[0]:,} of {genome.num_weights:,} {unit}"
    try:
        experiment = reload_policy(run)
    except EvolveError as error:
        return ReportedChampion(champion.title, connections, str(error))
    network = figures.network_of(genome, experiment)
    if unit == "connections":
        connections = network.connections_text
    return ReportedChampion(champion.title, connections, network)


def _network(draw: _Draw, number: int, group: RunGroup, champion: ReportedChampion) -> tuple[str, str, Picture | str]:
    """Return a group's label, a caption, and a picture of its best champion's network.

    If the network cannot be drawn, the reason replaces the picture.
    """
    caption = f"{_seed_in_words(best_run(group), group)}, {champion.title}: {champion.connections} left"
    network = champion.network
    if isinstance(network, str):
        return group.label, f"{caption}.", network
    omission = f", {network.omission_text}" if network.omission_text else ""
    what = f"Network of the champion of {group.label}"
    picture = draw(f"network{number}", what, figures.draw_network(network))
    return group.label, f"{caption}{omission}.", picture


def _seed_in_words(run: StoredRun, group: RunGroup) -> str:
    """Return the seed of a group's best run in words, and the number of runs if the group has several."""
    seed = f"Seed {run.header.seed}"
    return seed if len(group.runs) == 1 else f"{seed}, the best of {len(group.runs)}"


def _spreads(
    draw: _Draw, groups: Sequence[RunGroup], names: Mapping[StoredRun, str]
) -> list[tuple[str, Picture | None, str, list[str]]]:
    """Return for each group with held-out returns its label, histograms, the name of their values, and notes.

    The values are "returns", or "mean returns of N champions". Notes describe champions with equal returns in all
    episodes, because their histograms would show nothing.
    """
    spreads = []
    for number, group in enumerate(groups):
        known = []
        for run in group.runs:
            # If all held-out episodes of a champion failed, there is nothing to draw.
            if run.held_out is not None and len(values := statistics.finite(run.held_out.returns)):
                # The label stands above the histograms.
                known.append((names[run].removeprefix(f"{group.label}, "), values))
        if not known:
            continue
        # The histogram of many champions shows their means, so it needs no notes.
        many = len(known) > figures.MOST_PANELS
        what = f"mean returns of {len(known):,} champions" if many else "returns"
        varying = [(name, values) for name, values in known if many or values.min() < values.max()]
        picture = None
        if varying:
            picture = draw(f"spread{number}", "Histogram of held-out returns", figures.draw_returns(varying))
        # Names with an equal return share a note. `names_by` takes the return first, as the key.
        equal = [] if many else [(float(values[0]), name) for name, values in known if values.min() == values.max()]
        constant = tables.names_by(equal)
        returned = "every held-out episode returned"
        notes = [f"{names}: {returned} {statistics.number(value)}" for value, names in constant.items()]
        spreads.append((group.label, picture, what, notes))
    return spreads


def _films(groups: Sequence[RunGroup], summaries: Sequence[RunSummary]) -> list[tuple[str, str, str]]:
    """Return for each film its caption, and data URLs of the film and of a still."""
    clips = {summary.run: summary.film for summary in summaries}
    films = []
    for group in groups:
        label = f"{group.label}: " if len(groups) > 1 else ""
        for run in group.runs:
            film = clips[run]
            if film is not None:  # `make_page` films only the best run of a group
                urls = data_url("video/mp4", film.mp4), data_url("image/jpeg", film.jpeg)
                films.append((f"{label}{_seed_in_words(run, group)}, {film.caption}", *urls))
    return films


def data_url(media_type: str, content: bytes) -> str:
    """Return a URL that contains a file of a media type, such as "video/mp4"."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
