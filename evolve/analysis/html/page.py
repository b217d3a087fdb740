"""The page: tables and figures put into the template, self-contained, to be sent to anybody."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.analysis import figures
from evolve.analysis.comparison import RunGroup, best_run, compare_groups, deduplicate_seeds, uneven_lengths
from evolve.analysis.formatting import short_names
from evolve.analysis.html import tables
from evolve.analysis.html.pictures import Picture, films_of, network_picture, picture_of, reported_champion, spreads_of
from evolve.analysis.html.summary import RunSummary
from evolve.analysis.html.tables import ReportTable, conclude, differing_settings, manifest_rows
from evolve.config import import_extra
from evolve.store.disk import atomic_write, naming_output

FORMATS = (".html", ".htm")
"""What the name of a page may end with."""


def check_libraries() -> None:
    """Raise InputError unless Jinja2 and matplotlib are installed."""
    _template()
    figures.check_library()


def render(groups: Sequence[RunGroup], summaries: Sequence[RunSummary], empty: Sequence[Path] = ()) -> str:
    """Return the page of groups and of their runs.

    Args:
        groups: Of runs that have completed a generation.
        summaries: One for each of their runs.
        empty: The files of runs that have not completed any.

    Raises:
        InputError: Jinja2 or matplotlib is not installed.
    """
    runs = [summary.run for summary in summaries]
    names = short_names([run.path for run in runs])
    named = list(zip(names, runs, strict=True))
    group_of = {run.path: group for group in groups for run in group.runs}
    champions = {run.path: reported_champion(run, group_of[run.path]) for run in runs}
    best = [champions[best_run(group).path] for group in groups]
    samples = {run.path: sample for name, run in named if (sample := tables.held_out_sample(name, run))}
    compared, left_out = deduplicate_seeds(groups)
    text: str = _template().render(
        title=", ".join(sorted({group.config.env.id for group in groups})),
        verdict=conclude(groups, summaries, [f"{champion.left} left" for champion in best]),
        groups=groups,
        runs=named,
        empty=[str(path) for path in empty],
        tables=[
            tables.experiments_table(groups),
            tables.training_table(names, runs),
            tables.champion_table(names, runs, [champions[run.path].left for run in runs]),
            tables.digest_table(names, runs),
        ],
        left_out=left_out,
        uneven=uneven_lengths(compared),
        costs_connections=figures.costs_connections(compared),
        comparison=_comparison(compared),
        curves=picture_of("curves", "Curves over generations", figures.draw_curves(compared, titled=False)),
        networks=[network_picture(*each) for each in zip(range(len(groups)), groups, best, strict=True)],
        films=films_of(groups, summaries),
        without_film=_without_film(names, summaries),
        held_out=tables.held_out_table(list(samples.values())) if samples else None,
        spreads=spreads_of(groups, samples),
        not_evaluated=[tables.file_argument(run) for run in runs if run.path not in samples],
        verification=tables.verification_table(names, summaries),
        load=picture_of("load", "Busy seconds of each rank", figures.draw_load(named)),
        differing_settings=differing_settings(groups),
        manifest=manifest_rows(names, runs),
    )
    return text


def save(text: str, path: Path) -> None:
    """Write a page. Raises InputError when that cannot be done."""
    with naming_output(path), atomic_write(path) as partial:
        partial.write_bytes(text.encode("utf-8", "backslashreplace"))


def _template() -> Any:
    """Return the template, which escapes all texts that it is given. Raises InputError without Jinja2."""
    jinja2 = import_extra("jinja2", "report", "report", "Jinja2")
    directory = importlib.resources.files(__package__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (directory / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")


def _comparison(groups: Sequence[RunGroup]) -> tuple[ReportTable, Picture, tuple[str, ...]] | None:
    """Return the comparison of groups, if there are several: a table, a figure, and what has to be said of them."""
    if len(groups) < 2:
        return None
    found = compare_groups(groups)
    picture = picture_of("comparison", found.score, figures.draw_comparison(found, titled=False))
    return tables.comparison_table(found), picture, found.notes


def _without_film(names: Sequence[str], summaries: Sequence[RunSummary]) -> dict[str, str]:
    """Return the names of the runs without a film, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for name, summary in zip(names, summaries, strict=True):
        if not summary.film and summary.why_no_film:
            by_reason.setdefault(summary.why_no_film, []).append(name)
    return {reason: ", ".join(who) for reason, who in by_reason.items()}
