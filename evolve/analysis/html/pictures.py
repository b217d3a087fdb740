"""The pictures of a page: networks, the spread of returns, films; and what has to be said in their place."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evolve.analysis import figures
from evolve.analysis.champion import champion_of
from evolve.analysis.comparison import RunGroup, best_run
from evolve.analysis.formatting import number as number_of
from evolve.analysis.html.summary import RunSummary
from evolve.analysis.html.tables import HeldOutSample
from evolve.errors import EvolveError
from evolve.store import StoredRun
from evolve.training import reload


@dataclass(frozen=True)
class Picture:
    """A figure as SVG; `description` is for those who do not see it."""

    svg: str
    description: str


def picture_of(name: str, description: str, figure: Any) -> Picture:
    """Return a figure as a picture of a page; `name` is one that no other picture has."""
    return Picture(figures.to_svg(figure, name), description)


@dataclass(frozen=True)
class ReportedChampion:
    """The champion of a run, and what is left of its network.

    Attributes:
        title: Which champion it is.
        left: What it has left: "31 of 32 acting connections".
        omission: What is not drawn of that.
        draw: Draws the figure of its network; None where that cannot be done.
        why_not: Said in its place.
    """

    title: str
    left: str
    draw: Callable[[], Any] | None = None
    omission: str = ""
    why_not: str = ""


def reported_champion(run: StoredRun, group: RunGroup) -> ReportedChampion:
    """Return the champion of a run of a group, as far as its environment can be made here."""
    champion = champion_of(run)
    left = f"{np.count_nonzero(champion.mask):,} of {len(champion.mask):,} {group.mask_unit}"
    try:
        experiment = reload(run)
    except EvolveError as error:
        return ReportedChampion(champion.title, left, why_not=str(error))
    network = figures.network_of(champion, experiment)
    left = network.counted if group.mask_unit == "connections" else left

    def draw() -> Any:
        return figures.draw_champion(champion, experiment, titled=False)

    return ReportedChampion(champion.title, left, draw, network.omission)


def network_picture(number: int, group: RunGroup, champion: ReportedChampion) -> tuple[str, str, Picture | str]:
    """Return a group's label, whose network is drawn, and the drawing, or why there is none."""
    omission = f", {champion.omission}" if champion.omission else ""
    whose = f"{_which(best_run(group), group)}, {champion.title}: {champion.left} left{omission}."
    if champion.draw is None:
        return group.label, whose, champion.why_not
    picture = picture_of(f"network{number}", f"Network of the champion of {group.label}", champion.draw())
    return group.label, whose, picture


def _which(run: StoredRun, group: RunGroup) -> str:
    """Return which of a group's runs one is, in words."""
    seed = f"Seed {run.header.seed}"
    return seed if len(group.runs) == 1 else f"{seed}, the best of {len(group.runs)}"


def spreads_of(
    groups: Sequence[RunGroup], samples: Mapping[Path, HeldOutSample]
) -> list[tuple[str, Picture | None, list[str]]]:
    """Return the label of each group with evaluated champions, how their returns are spread, and which are not."""
    spreads = []
    for number, group in enumerate(groups):
        own = [samples[run.path] for run in group.runs if run.path in samples]
        known = [sample for sample in own if len(sample.returns)]
        apart = [(sample.name, sample.returns) for sample in known if len(set(sample.returns.tolist())) > 1]
        figure = None
        if apart:
            figure = picture_of(f"spread{number}", "Histogram of held-out returns", figures.draw_returns(apart))
        if known:
            spreads.append((group.label, figure, _identical(known)))
    return spreads


def _identical(samples: Sequence[HeldOutSample]) -> list[str]:
    """Return which runs have one return only, in words: a histogram would show nothing."""
    by_return: dict[float, list[HeldOutSample]] = {}
    for sample in samples:
        if len(set(sample.returns.tolist())) == 1:
            by_return.setdefault(float(sample.returns[0]), []).append(sample)
    return [
        f"{', '.join(sample.name for sample in same)}: every held-out episode returned {number_of(value)}"
        for value, same in by_return.items()
    ]


def films_of(groups: Sequence[RunGroup], summaries: Sequence[RunSummary]) -> list[tuple[str, str, str]]:
    """Return what each film shows, the film, and a picture out of it."""
    films = []
    for group in groups:
        for summary in summaries:
            if summary.film and any(run.path == summary.run.path for run in group.runs):
                label = f"{group.label}: " if len(groups) > 1 else ""
                film = summary.film
                shows = f"{label}{_which(summary.run, group)}, {film.shows}"
                films.append((shows, _data("video/mp4", film.mp4), _data("image/jpeg", film.jpeg)))
    return films


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
