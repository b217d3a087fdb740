"""The page: facts and figures put into the template, self-contained, to be sent to anybody."""

import base64
import importlib
import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evolve import figures
from evolve.drawings import champion_of, draw_champion
from evolve.errors import EvolveError, InputError, one_line
from evolve.experiment import reload
from evolve.figures import NARROW, WIDE, Experiment, Sheet
from evolve.pages import facts
from evolve.pages.facts import Judged, Story, Table
from evolve.pages.settings import manifests, settings_apart
from evolve.standings import draw_standings, once, standings
from evolve.store import Run

FORMATS = (".html", ".htm")


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, for wide screens and for narrow ones; `words` is for those who do not see it."""

    wide: str
    narrow: str
    words: str


def render(experiments: Sequence[Experiment], stories: Sequence[Story], empty: Sequence[Path] = ()) -> str:
    """Return the page of experiments, and of their runs that have told a generation; `empty` have told none.

    Raises InputError without Jinja2 or matplotlib.
    """
    template, (counted, left_out) = _template(), once(experiments)
    runs = [story.run for story in stories]
    names = facts.labels([run.path for run in runs])
    named = list(zip(names, runs, strict=True))
    judged = {run.path: found for name, run in named if (found := facts.judge(name, run))}
    text: str = template.render(
        title=", ".join(sorted({experiment.config.env.id for experiment in experiments})),
        experiments=experiments,
        runs=named,
        empty=[str(path) for path in empty],
        summary=_summary(experiments, names, runs, list(judged.values())),
        left_out=left_out,
        costly=figures.costly(experiments),
        standing=_standing(counted),
        curves=_picture("curves", "Curves over generations", lambda on: figures.plot(counted, sheet=on)),
        networks=[_network(number, experiment) for number, experiment in enumerate(experiments)],
        films=[(name, s.filmed, _data(s.film)) for name, s in zip(names, stories, strict=True) if s.film],
        unfilmed=_unfilmed(names, stories),
        judged=facts.held_out(list(judged.values())) if judged else None,
        without_interval=any(each.interval is None for each in judged.values() if len(each.returns)),
        spreads=_spreads(experiments, judged),
        not_judged=[facts.file_of(run) for run in runs if run.path not in judged],
        verdicts=facts.verdicts(names, stories),
        load=_picture("load", "Busy seconds of each rank", lambda on: figures.load(named, on)),
        apart=settings_apart(experiments),
        manifests=manifests(names, runs),
    )
    return text


def save(text: str, path: Path) -> None:
    """Write a page. Raises InputError when that cannot be done."""
    partial = path.with_name(f".{path.name}.partial")  # a browser never meets half a page
    try:
        partial.write_bytes(text.encode("utf-8", "backslashreplace"))
        partial.replace(path)
    except OSError as wrong:
        partial.unlink(missing_ok=True)
        raise InputError("-o/--output", "a file that can be written", f"{path} ({wrong})") from None


def _template() -> Any:
    """Return the template; all that it is given is escaped. Raises InputError without Jinja2."""
    try:
        jinja2 = importlib.import_module("jinja2")
    except ImportError as wrong:
        cure = "Install it: pip install 'evolve[report]' (in a clone: pip install -e '.[report]')."
        raise InputError("report", "a working Jinja2", one_line(wrong), cure) from None
    place = importlib.resources.files(__package__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (place / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")


def _summary(
    experiments: Sequence[Experiment], names: Sequence[str], runs: Sequence[Run], judged: Sequence[Judged]
) -> list[Table]:
    configs = {run.path: experiment.config for experiment in experiments for run in experiment.runs}
    results = facts.came_to(names, runs, [configs[run.path] for run in runs], judged)
    return [facts.evolved(experiments), results, facts.digests(names, runs)]


def _standing(experiments: Sequence[Experiment]) -> tuple[Table, Picture] | None:
    """Return where experiments stand, if there are several."""
    if len(experiments) < 2:
        return None
    axis, found = standings(experiments)
    return facts.stands(axis, found), _picture("standing", axis, lambda on: draw_standings(axis, found, on))


def _picture(name: str, words: str, draw: Callable[[Sheet], Any]) -> Picture:
    wide, narrow = (figures.svg(draw(sheet), f"{name}-{sheet.width:.0f}") for sheet in (WIDE, NARROW))
    return Picture(wide, narrow, words)


def _network(number: int, experiment: Experiment) -> tuple[str, str, Picture | str]:
    """Return an experiment's name, whose network it is, and the drawing of it, or why there is none."""
    run, champion = experiment.runs[0], champion_of(experiment.runs[0])
    whose = f"Seed {run.header.seed}, {champion.title}"
    try:
        made = reload(run)  # its environment, too, which may not be installed here
    except EvolveError as wrong:
        return experiment.label, whose, str(wrong)
    words = f"Network of the champion of {experiment.label}"
    drawing = _picture(f"network{number}", words, lambda on: draw_champion(champion, made, sheet=on))
    return experiment.label, whose, drawing


def _spreads(experiments: Sequence[Experiment], judged: Mapping[Path, Judged]) -> list[tuple[str, Picture]]:
    """Return the name of each experiment whose champions were evaluated, and how their returns are spread."""
    found = []
    for number, experiment in enumerate(experiments):
        those = [judged[run.path] for run in experiment.runs if run.path in judged]
        samples = [(each.name, each.returns, each.interval) for each in those if len(each.returns)]
        if samples:
            draw = partial(figures.judged, samples)
            found.append((experiment.label, _picture(f"spread{number}", "Histogram of held-out returns", draw)))
    return found


def _data(film: bytes) -> str:
    return f"data:video/mp4;base64,{base64.b64encode(film).decode()}"


def _unfilmed(names: Sequence[str], stories: Sequence[Story]) -> dict[str, str]:
    """Return the names of the runs without a film, by what is said of it."""
    found: dict[str, list[str]] = {}
    for name, story in zip(names, stories, strict=True):
        if not story.film:
            found.setdefault(story.no_film, []).append(name)
    return {why: ", ".join(who) for why, who in found.items()}
