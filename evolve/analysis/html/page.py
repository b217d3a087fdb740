"""The page: tables and figures put into the template, self-contained, to be sent to anybody."""

import base64
import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.analysis import figures
from evolve.analysis.champion import champion_of
from evolve.analysis.comparison import compare_groups
from evolve.analysis.formatting import short_names
from evolve.analysis.groups import RunGroup, deduplicate_seeds
from evolve.analysis.html import report_tables
from evolve.analysis.html.manifest_rows import differing_settings, manifest_rows
from evolve.analysis.html.report_tables import HeldOutSample, ReportTable
from evolve.analysis.run_summary import RunSummary
from evolve.config import import_extra
from evolve.errors import EvolveError
from evolve.store import StoredRun
from evolve.store.disk import atomic_write, naming_output
from evolve.training import reload

FORMATS = (".html", ".htm")
"""What the name of a page may end with."""


@dataclass(frozen=True)
class Picture:
    """A figure as SVG; `description` is for those who do not see it."""

    svg: str
    description: str


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
    samples = {run.path: sample for name, run in named if (sample := report_tables.held_out_sample(name, run))}
    compared, left_out = deduplicate_seeds(groups)
    text: str = _template().render(
        title=", ".join(sorted({group.config.env.id for group in groups})),
        groups=groups,
        runs=named,
        empty=[str(path) for path in empty],
        tables=_summary_tables(groups, names, runs),
        left_out=left_out,
        costs_connections=figures.costs_connections(compared),
        comparison=_comparison(compared),
        curves=_picture("curves", "Curves over generations", figures.draw_curves(compared, titled=False)),
        networks=[_network(number, group) for number, group in enumerate(groups)],
        films=[(name, s.film_shows, _data(s.film)) for name, s in zip(names, summaries, strict=True) if s.film],
        without_film=_without_film(names, summaries),
        held_out=report_tables.held_out_table(list(samples.values())) if samples else None,
        spreads=_spreads(groups, samples),
        not_evaluated=[report_tables.file_argument(run) for run in runs if run.path not in samples],
        verification=report_tables.verification_table(names, summaries),
        load=_picture("load", "Busy seconds of each rank", figures.draw_load(named)),
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


def _summary_tables(groups: Sequence[RunGroup], names: Sequence[str], runs: Sequence[StoredRun]) -> list[ReportTable]:
    group_of = {run.path: group for group in groups for run in group.runs}
    generations = [group_of[run.path].config.generations for run in runs]
    units = [group_of[run.path].mask_unit for run in runs]
    return [
        report_tables.experiments_table(groups),
        report_tables.training_table(names, runs, generations),
        report_tables.champion_table(names, runs, units),
        report_tables.digest_table(names, runs),
    ]


def _comparison(groups: Sequence[RunGroup]) -> tuple[ReportTable, Picture] | None:
    """Return the comparison of groups, if there are several."""
    if len(groups) < 2:
        return None
    found = compare_groups(groups)
    figure = figures.draw_comparison(found, titled=False)
    return report_tables.comparison_table(found.score, found.rows), _picture("comparison", found.score, figure)


def _picture(name: str, description: str, figure: Any) -> Picture:
    return Picture(figures.to_svg(figure, name), description)


def _network(number: int, group: RunGroup) -> tuple[str, str, Picture | str]:
    """Return a group's label, whose network is drawn, and the drawing, or why there is none."""
    run = group.runs[0]
    champion = champion_of(run)
    whose = f"Seed {run.header.seed}, {champion.title}"
    try:
        experiment = reload(run)  # makes its environment, which may not be installed here
    except EvolveError as error:
        return group.label, whose, str(error)
    figure = figures.draw_champion(champion, experiment, titled=False)
    return group.label, whose, _picture(f"network{number}", f"Network of the champion of {group.label}", figure)


def _spreads(groups: Sequence[RunGroup], samples: Mapping[Path, HeldOutSample]) -> list[tuple[str, Picture]]:
    """Return the label of each group with evaluated champions, and how their returns are spread."""
    spreads = []
    for number, group in enumerate(groups):
        own = [samples[run.path] for run in group.runs if run.path in samples]
        returns = [(sample.name, sample.returns) for sample in own if len(sample.returns)]
        if returns:
            figure = figures.draw_returns(returns)
            spreads.append((group.label, _picture(f"spread{number}", "Histogram of held-out returns", figure)))
    return spreads


def _data(film: bytes) -> str:
    return f"data:video/mp4;base64,{base64.b64encode(film).decode()}"


def _without_film(names: Sequence[str], summaries: Sequence[RunSummary]) -> dict[str, str]:
    """Return the names of the runs without a film, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for name, summary in zip(names, summaries, strict=True):
        if not summary.film:
            by_reason.setdefault(summary.why_no_film, []).append(name)
    return {reason: ", ".join(who) for reason, who in by_reason.items()}
