"""Exhibits: pictures, films, pages and comparisons of runs. A notebook shows these objects, and a script saves them.

The objects belong to the Python interface. The packages `figures`, `video` and `html` make their content, and import
matplotlib, PyAV and Jinja2 when an exhibit is made.
"""

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np

from evolve import environments, verification
from evolve.analysis import figures, html, video
from evolve.analysis.champion import champion_to_draw, chosen_champion, mean_traces, typical_episode
from evolve.analysis.comparison import compare_groups
from evolve.analysis.generations import pack, unpack
from evolve.analysis.run_groups import begun_groups, by_machine, deduplicate_seeds
from evolve.analysis.script_runs import script_ranks
from evolve.analysis.statistics import number
from evolve.cluster import Coordinator
from evolve.cluster.script import Collective, all_ranks
from evolve.errors import InputError, check_flag, check_path, check_whole, pluralize
from evolve.numerics.streams import Purpose
from evolve.store import Stored, StoredRun, check_begun
from evolve.store.disk import check_writable, write_output
from evolve.training import Experiment, GenomeChoice

_PIXELS_PER_INCH = 96  # of a screen, by the definition of CSS
_PAGE_HEIGHT = 640  # pixels


class Exhibit:
    """The base of the objects that a notebook shows. In a script of several ranks, only rank 0 saves them."""

    formats: Sequence[str]
    """The endings that a file name may have."""

    def __init__(self, title: str) -> None:
        self.title = title
        """One line about the content."""

    def save(self, path: str | Path) -> Path:
        """Write a file in the format that its ending names; return its path.

        Raises InputError if the file cannot be written. To save a film as GIF, this method plays the film's episodes
        again, and raises EpisodeError if an episode fails.
        """
        path = check_path("path", path)
        if all_ranks().rank == 0:
            check_writable(path, tuple(self.formats))
            self._write(path)
        return path

    def _write(self, path: Path) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"


class Picture(Exhibit):
    """A figure of matplotlib, as PNG, SVG or PDF.

    Args:
        figure: The figure. A script may change it before it is shown or saved.
        title: One line about the figure.
    """

    formats = figures.FORMATS

    def __init__(self, figure: Any, title: str) -> None:
        super().__init__(title)
        self.figure = figure
        """The figure of matplotlib."""

    def _repr_mimebundle_(self, **_types: Any) -> tuple[dict[str, bytes], dict[str, dict[str, int | str]]]:
        """Return the picture and its size on the page for a notebook of Jupyter or marimo.

        The picture has more pixels than the page shows, and is sharp on a screen of high resolution.
        """
        width, height = (round(inches * _PIXELS_PER_INCH) for inches in self.figure.get_size_inches())
        png = figures.to_bytes(self.figure, "png")
        return {"image/png": png}, {"image/png": {"width": width, "height": height, "alt": self.title}}

    def _write(self, path: Path) -> None:
        figures.save(self.figure, path)


class Film(Exhibit):
    """A film, as MP4 or GIF.

    Args:
        title: One line about the film.
        mp4: The film as the bytes of an MP4 file.
        jpeg: A still of the film as the bytes of a JPEG file.
        size: The width and the height in pixels.
        film_again: Films the same episodes again, into a file of another format. None on all ranks but rank 0.
    """

    formats = video.FORMATS

    def __init__(
        self, title: str, mp4: bytes, jpeg: bytes, size: Sequence[int], film_again: Callable[[Path], Any] | None = None
    ) -> None:
        super().__init__(title)
        self._mp4, self._jpeg, self._size, self._film_again = mp4, jpeg, size, film_again

    def to_bytes(self) -> bytes:
        """Return the film as bytes, for other ranks."""
        return pack(title=self.title, mp4=self._mp4, jpeg=self._jpeg, size=self._size)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the film from the bytes that `to_bytes` returned."""
        return cls(**unpack(content))

    def _repr_html_(self) -> str:
        width, height = self._size
        style = f"width:{width}px;max-width:100%;height:auto;aspect-ratio:{width}/{height}"
        film, still = html.data_url("video/mp4", self._mp4), html.data_url("image/jpeg", self._jpeg)
        return (
            f'<video controls loop muted playsinline width="{width}" height="{height}" style="{style}" '
            f'poster="{still}" src="{film}"></video>'
            f'<div style="font-size:13px;opacity:.75">{escape(self.title)}</div>'
        )

    def _write(self, path: Path) -> None:
        if path.suffix == ".mp4":
            write_output(path, self._mp4)
        else:
            assert self._film_again is not None  # only rank 0 writes, and it has the function
            self._film_again(path)


class Page(Exhibit):
    """A page of HTML that needs no other file."""

    formats = html.FORMATS

    def __init__(self, text: str, title: str) -> None:
        super().__init__(title)
        self.text = text
        """The page."""

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{_PAGE_HEIGHT}px;border:1px solid rgba(128,128,128,.4)"
        title, text = escape(self.title), escape(self.text)
        return f'<iframe title="{title}" srcdoc="{text}" style="{style}"></iframe>'

    def _write(self, path: Path) -> None:
        html.save(self.text, path)


def plot(runs: Sequence[StoredRun], over: str, load: bool) -> Picture:
    """Return the curves of runs. Of several runs with one seed, only the longest is drawn.

    over: The x axis, a key of `figures.AXES`.
    load: Whether to draw the load of workers.

    Raises InputError for an unknown axis or without matplotlib, and RunError if no run has a complete generation.
    """
    if not (isinstance(over, str) and over in figures.AXES):
        raise InputError("over", " or ".join(map(repr, figures.AXES)), over)
    groups = begun_groups(runs)
    # Time and load depend on the machine, so each machine then has a group of its own.
    divided = by_machine(groups) if over == "time" or load else groups
    groups, _ = deduplicate_seeds(divided)
    return Picture(figures.draw_curves(groups, over, load=load), f"fitness over {figures.AXES[over]}")


def plot_network(run: Stored, ranks: Collective, choice: GenomeChoice, traces: bool) -> Picture:
    """Return the picture of a champion's network. The ranks play the champion's episodes if traces are drawn.

    traces: Whether to draw the mean Hebbian traces of the connections instead of their weights.

    Raises InputError if the champion or its traces do not exist or matplotlib is missing, and RunError if the run has
    no complete generation.
    """
    champion, experiment = champion_to_draw(run, choice, traces)

    # Rank 0 calls `work`, which may use all ranks. All ranks receive the bytes.
    def work(coordinator: Coordinator) -> bytes:
        return mean_traces(run, experiment, champion, coordinator).tobytes()

    mean = np.frombuffer(ranks.call(work), np.float32) if traces else None
    return Picture(figures.draw_champion(champion, experiment, mean), f"network of the {champion.title}")


def film(
    run: Stored,
    experiment: Experiment,
    choices: Sequence[GenomeChoice],
    episode: int | None,
    seconds: float,
    changes: str,
) -> Film:
    """Return a film of the chosen genomes, one after another. Only rank 0 calls this function.

    experiment: The experiment of the run, or the same with changes.
    episode: The number of the episode. If it is None, a final champion plays the held-out episode of median return, and
        other genomes play episode 0.
    seconds: The longest duration of an episode. A longer episode is shown at a higher speed.
    changes: The changed settings of the environment and the network, in words.

    Raises InputError if an argument is wrong, the environment cannot be drawn, or a library is missing. Raises RunError
    without a complete generation, and EpisodeError if an episode fails.
    """
    if not choices:
        raise InputError("generation", "one or several generations", "an empty list")
    if not (isinstance(seconds, Real) and seconds > 0):
        raise InputError("seconds", "a time above 0", repr(seconds))
    if episode is not None:
        episode = check_whole("episode", episode, 0)
    # Check that everything that a film needs is there, before an episode is played.
    environments.draw_without_display()
    video.check_library()
    drawn_experiment, remark = video.drawable(experiment)  # a remark if the film shows Gymnasium in place of EnvPool
    check_begun("there is no champion", run)
    # The title of the `Film` has the whole remark. The pictures have no space for it, and only say "in Gymnasium".
    title_changes = f", {changes}" if changes else ""
    picture_changes = f", in Gymnasium{title_changes}" if remark else title_changes
    # Choose the episode of each genome.
    subjects, titles = [], []
    for choice in choices:
        champion = chosen_champion(run, experiment, choice)
        if champion.name:  # a genome of a front or an archive
            episode_number = 0 if episode is None else episode
            chosen = verification.choose_episode(run, experiment, episode=episode_number, which=choice)
            held_out = "held-out " if chosen.purpose is Purpose.HELD_OUT else ""
            description = f"{held_out}episode {episode_number}"
        elif episode is None:
            chosen, description = typical_episode(run, experiment, champion)
        else:
            # The final champion plays held-out episodes, and the best of a generation plays training episodes.
            purpose = Purpose.HELD_OUT if champion.generation is None else Purpose.EPISODE
            chosen = verification.choose_episode(run, experiment, champion.generation, episode=episode, purpose=purpose)
            description = f"episode {episode}"
        subjects.append(video.Subject(run, drawn_experiment, chosen, champion.title, picture_changes))
        # With a remark, the film shows an episode of Gymnasium, not the chosen episode of EnvPool.
        about = f", {remark or description}"
        # Several titles share one line, so leave out the episodes if the caller did not choose them.
        if len(choices) > 1 and episode is None and not remark:
            about = ""
        titles.append(f"{champion.title}{about}{title_changes}")
    # The titles get the returns, which are known only after the episodes have been played again.
    mp4, jpeg, size, results = video.film_in_memory(subjects, seconds)
    returns = [number(float(played.returns[0])) for played in results]
    title = "; ".join(f"{title}: return {value}" for title, value in zip(titles, returns, strict=True))
    return Film(title, mp4, jpeg, size, partial(video.film_episodes, subjects, condense_to=seconds))


def report(runs: Sequence[StoredRun], ranks: Collective, quick: bool) -> Page:
    """Return the report of runs. The ranks play episodes unless `quick` is True.

    Raises InputError if `quick` is not a boolean or a library is missing, and RunError without a complete generation.
    """
    check_flag("quick", quick)
    html.check_libraries()
    groups = begun_groups(runs)

    def work(coordinator: Coordinator) -> bytes:
        environments.draw_without_display()
        summarize = partial(html.summarize_run, coordinator=coordinator, transport=ranks.transport)
        text, _ = html.make_page(runs, groups, None if quick else summarize)
        return text.encode("utf-8", "backslashreplace")  # an error may quote bytes that are not UTF-8

    title = ", ".join(dict.fromkeys(group.label for group in groups))
    return Page(ranks.call(work).decode(), f"report on {title}")


class RunComparison(Picture):
    """Experiments side by side: the scores of their seeds, means with intervals, and tests against a reference.

    The reference is the experiment with the highest mean, or the control.

    Args:
        runs: The runs. Runs that differ only in their seeds are one experiment.
        metric: The metric that gives the scores of seeds, see `evolve.compare`.
        control: The name of the experiment that is the reference, see `evolve.compare`.
    """

    def __init__(self, runs: Sequence[StoredRun], metric: str | None, control: str | None) -> None:
        self._runs = runs
        groups, notes = deduplicate_seeds(begun_groups(runs))
        self._ranking = compare_groups(groups, metric, control)
        self.notes = (*self._ranking.notes, *notes)
        """Sentences about runs that were left out or not evaluated, and about tests that cannot be made."""
        title = f"{pluralize(len(groups), 'experiment')}, {self._ranking.score}"
        super().__init__(figures.draw_comparison(self._ranking), title)

    def table(self) -> dict[str, list[Any]]:
        """Return columns with an entry for each experiment, best first (`pandas.DataFrame(comparison.table())`).

        `low` and `high` are the 95 % interval of the mean over seeds. `p` is from the two-sided rank test against the
        reference, with Holm's correction. `effect` is the probability that a seed has a higher score than a seed of the
        reference (A of Vargha and Delaney). All four are NaN with too few seeds. `p` and `effect` are also NaN for the
        reference, and without a test (`notes` has the reason). Without a control, `p` is a little too small, because
        the same scores choose the best experiment and test it. `failed` is the number of held-out episodes that failed.
        """
        rows = self._ranking.rows
        intervals = [row.interval or (np.nan, np.nan) for row in rows]
        return {
            "experiment": [row.name for row in rows],
            "environment": [row.env for row in rows],
            "seeds": [len(row.scores) for row in rows],
            "mean": [row.mean for row in rows],
            "low": [low for low, _ in intervals],
            "high": [high for _, high in intervals],
            "p": [np.nan if row.p is None else row.p for row in rows],
            "effect": [np.nan if row.effect is None else row.effect for row in rows],
            "best": [row.best for row in rows],
            "failed": [row.failed for row in rows],
        }

    def curves(self, over: str = "generation", load: bool = False) -> Picture:
        """Return the curves of the experiments in one picture. For the arguments see `Run.plot`."""
        return plot(self._runs, over, load)

    def report(self, quick: bool = False) -> Page:
        """Return a page about all runs, see `Run.report`."""
        return report(self._runs, script_ranks(), quick)
