"""The report command: a complete, safe and self-contained page for all kinds of files."""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from conftest import LONG, ROOT, make_runs, wait_for

from evolve import store
from evolve.analysis import html, run_groups
from evolve.analysis.figures.network import connections_of
from evolve.analysis.figures.style import COLOURS
from evolve.analysis.generations import evaluation_of
from evolve.analysis.html import reported_champion
from evolve.analysis.html.tables import Clip, RunSummary, champion_table, conclude, training_table
from evolve.analysis.run_groups import read_groups
from evolve.cli.app import launch
from evolve.cli.report import path_for
from evolve.cluster import Coordinator, Transport
from evolve.errors import EpisodeError, InputError, RunError, Stopped
from evolve.training import make_rollout, reload

QUICK = ("-p", 6, "-r", 2, "-d", 2, "--set", "held_out_episodes=6", "--set", "env.max_episode_steps=12")
SECTIONS = ["film", "curves", "summary", "network", "held-out", "verification", "load", "configuration", "manifest"]
VOID = {"meta", "link", "img", "br", "wbr"}

# Machado, Oliveira and Fernandes (2009): what linear RGB looks like to readers with each full deficiency.
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deutan": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritan": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


class Page(HTMLParser):
    """A page as read: its sections, its visible texts, the addresses that it would load, and its errors."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text()
        self.sections, self.ids, self.addresses, self.tags, self.texts, self.wrong = [], [], [], [], [], []
        self.feed(self.source)
        self.close()
        self.text = " ".join(" ".join(self.texts).split())
        assert not self.tags, self.tags
        assert not self.wrong, self.wrong
        assert len(self.ids) == len(set(self.ids))
        for address in self.addresses:
            assert address.startswith("data:") or address.removeprefix("#") in self.ids, address
        for target in re.findall(r"url\(\s*([^)]*)\)", self.source):
            assert target.removeprefix("#") in self.ids, target
        assert "@import" not in self.source

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.addresses += [given[name] for name in ("src", "href", "xlink:href", "poster", "action") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag == "section":
            self.sections.append(given["id"])
        if any(name.startswith("on") for name in given):
            self.wrong.append(attributes)
        if tag not in VOID:
            self.tags.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.tags or self.tags.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        if "style" not in self.tags:
            self.texts.append(data)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of one experiment, and one of another that was not evaluated."""
    folder = tmp_path_factory.mktemp("runs")
    make_runs(folder, *QUICK, "-g", 3, "-s", 1, 2, "-o", "a")
    other = ("--set", "strategy.survivors=6", "--set", "held_out_episodes=0")
    make_runs(folder, *QUICK, "-g", 3, *other, "-s", 1, "-o", "b")
    return folder


@pytest.fixture(scope="module")
def made(runs):
    """The page of all of them."""
    assert launch("report", [*map(str, sorted(runs.glob("*/*.h5"))), "-o", str(runs / "all.html")]) == 0
    return runs / "all.html"


def test_one_run(call, runs, tmp_path):
    shutil.copy(runs / "a" / "seed-1.h5", tmp_path / "seed-1.h5")
    done = call("report", "seed-1.h5")
    assert (done.code, done.out, done.err) == (0, "report.html\n", "")
    page, run = Page(tmp_path / "report.html"), store.read(tmp_path / "seed-1.h5")
    assert page.sections == SECTIONS
    acting = connections_of(reload(run).network, run.held_out.mask, run.held_out.weights)
    left = f"{len(acting)} of 20 acting connections"
    middle = sorted(run.held_out.returns)[2]
    low, high = evaluation_of(run).interval
    mean = f"{run.held_out.returns.mean():.2f} ({low:.2f} to {high:.2f})"
    best = f"{max(record.champion_fitness for record in run.records):.2f}"
    steps = f"{sum(record.steps for record in run.records):,}"
    for text in ("CartPole-v1", "hebbian-dag, hidden 2", "prune", "3 of 3, complete", left, best, steps,
                 mean, "its mean held-out return, 95 % interval", "held-out champion", run.records[-1].digest.decode(),
                 "equal", "3 generations, 6 episodes evaluated again, and 6 held-out ones", "pole angle",
                 "CartPole-v1: hebbian-dag evolved by prune reaches a mean return of ",
                 f"with {left} left. The champions of the run repeat their episodes on this machine, to the bit.",
                 f"Seed 1, held-out champion: {left} left.",
                 "Seed 1, held-out champion: the episode of median return, number ",
                 f", return {middle:.2f}", "positive weight", "rank 0", "max_episode_steps = 12", "packages.numpy",
                 run.header.manifest["host"]):  # fmt: skip
        assert text in page.text, text
    for text in ("differs", "The front: ", "The archive: "):
        assert text not in page.text
    assert len([a for a in page.addresses if a.startswith("data:video/mp4;base64,")]) == 1
    assert [p.name for p in tmp_path.glob("*report*")] == ["report.html"]


def test_quickly_no_episode_is_played_and_a_seed_counts_once(call, runs, tmp_path):
    shutil.copy(runs / "a" / "seed-1.h5", tmp_path / "noise=0.05,copy.h5")
    shutil.copytree(runs / "a", tmp_path / "copy")
    first, second = sorted((runs / "a").glob("*.h5"))
    done = call("report", first, second, "--quick", "noise=0.05,copy.h5", *sorted((tmp_path / "copy").glob("*.h5")))
    left_out = (
        f"a seed counts once, so these are left out: noise=0.05,copy.h5 (equal to {first}); "
        f"{tmp_path}/copy/seed-1.h5 (equal to {first}); {tmp_path}/copy/seed-2.h5 (equal to {second})"
    )
    assert (done.code, done.err) == (0, f"evolve.report: {left_out}\n")
    text = Page(tmp_path / "report.html").text
    assert re.search(r"seed 2, \S.*/ copy/ seed-2\.h5 not checked", text)
    for part in ("not checked", f"python -m evolve.verify {first}",
                 "No film was made, as no episode was played.",
                 "noise=0.05, copy.h5",  # a table may break the name of a sweep's directory after a comma
                 f"In comparisons and curves {left_out}", "over 2 seeds"):  # fmt: skip
        assert part in text, part
    for part in ("over 4 seeds", "over 5 seeds", "1, 2, 1, 2", "1, 1, 1, 2, 2"):
        assert part not in text


def test_fronts_and_archives_are_drawn(call, absent, tmp_path):
    absent("scipy")  # which only experiments of several seeds need
    settings = ("held_out_episodes=0", "normalize_observations=true", 'env.metrics=["mean_observation_0"]')
    quick = ["-e", "CartPole-v1", "--engine", "exact", "-p", 4, "-g", 2, "-r", 1, "-d", 2]
    quick += [word for setting in settings for word in ("--set", setting)]
    cells = "cells = [5], bounds = [[-2.4, 2.4]]"
    elites = f'{{name = "map-elites", descriptors = ["mean_observation_0"], {cells}}}'
    for words in (("front", "--strategy", "nsga2"), ("archive", "--set", f"strategy={elites}")):
        call("run", *quick, "-o", *words).ok()
    call("report", "front", "archive", "--quick").ok()
    page = Page(tmp_path / "report.html")
    assert [page.text.count(what) for what in ("Seed 0. The front: ", "Seed 0. The archive: ")] == [1, 1]


def test_runs_that_differ_are_told_by_two_ranks_too_and_spoil_no_other(call, command, runs, tmp_path):
    """One was tampered with, one fails here: workers that were interrupted in its episodes begin anew with the next."""
    shutil.copy(runs / "a" / "seed-1.h5", tmp_path / "seed-1.h5")
    with h5py.File(tmp_path / "seed-1.h5", "r+") as file:
        file.attrs["seed"] = 4
    elsewhere = ("-e", "toys:Elsewhere-v0", "--set", "env.max_episode_steps=40", "--set", "network.plasticity=0.1")
    made = ("-p", 4, "-g", 2, "-r", 3, "-d", 2, "--set", "held_out_episodes=2", "-o", "e")
    call("run", *elsewhere, *made).ok()
    files = ("seed-1.h5", "e/seed-0.h5", runs / "a" / "seed-2.h5")
    command("report", *files, ranks=2, TOY_GRAVITY="nan").ok()
    text = Page(tmp_path / "report.html").text
    assert "generation 0: candidate" in text
    assert "Random stream: " in text
    verdicts = dict(re.findall(r"(seed \d) (equal|different) ", text[text.index("Verification") :]))
    assert verdicts == {"seed 4": "different", "seed 0": "different", "seed 2": "equal"}


@pytest.mark.parametrize(
    "error",
    [
        InputError("env.id", "a window", "none"),
        EpisodeError("it", "fell", (0, 0, 0, 0)),
        RunError("no picture"),
    ],
)
def test_only_a_film_that_cannot_be_made_is_left_out(runs, monkeypatch, error):
    monkeypatch.setattr(html.video, "film_episodes", Mock(side_effect=error))
    transport = Transport()
    coordinator = Coordinator(transport, make_rollout)
    found = html.summarize_run(store.read(runs / "a" / "seed-1.h5"), True, coordinator, transport)
    assert (found.why_no_film, found.film, found.equal) == (f"No film: {error}", None, True)


def test_a_signal_ends_a_film_and_its_page(call, runs, monkeypatch, tmp_path):
    # The signal comes when the first picture of the film is drawn, so a later picture notices it.
    card = html.video.Subject.title_card

    def title_card(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return card(*arguments)

    monkeypatch.setattr(html.video.Subject, "title_card", title_card)
    done = call("report", runs / "a" / "seed-1.h5")
    assert done.code == 75
    assert done.err.startswith("evolve.report: stopped by SIGTERM in step ")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_page_between_figures(call, runs, monkeypatch, tmp_path, number):
    draw_load = Mock()
    monkeypatch.setattr(html.figures, "draw_load", draw_load)
    monkeypatch.setattr(html.figures, "draw_curves", lambda *_, **__: os.kill(os.getpid(), number))
    done = call("report", runs / "a", "--quick")
    assert (done.code, done.err) == (75, f"evolve.report: stopped by {number.name}\n")
    assert not draw_load.called
    assert not list(tmp_path.iterdir())


def test_a_signal_ends_the_reading_of_files(runs):
    check = Mock(side_effect=[None, Stopped("stopped by SIGTERM")])
    with pytest.raises(Stopped):
        read_groups(sorted((runs / "a").glob("*.h5")), check)


def test_only_a_run_that_was_to_be_filmed_has_no_film(runs, monkeypatch):
    monkeypatch.setattr(html, "reload", Mock(side_effect=InputError("env.id", "an environment", "none")))
    found = [html.summarize_run(store.read(runs / "a" / "seed-1.h5"), filmed, None, None) for filmed in (True, False)]
    assert [each.verification[:24] for each in found] == ["It cannot be checked: en"] * 2
    assert [each.why_no_film[:9] for each in found] == ["No film: ", ""]


def test_a_page_with_tests_explains_them(runs, monkeypatch, tmp_path):
    compare = html.comparison.compare_groups

    def with_test(groups):
        ranking = compare(groups)
        return replace(ranking, rows=[ranking.rows[0], replace(ranking.rows[1], p=0.04, effect=0.1)])

    monkeypatch.setattr(html.comparison, "compare_groups", with_test)
    page, _ = html.make_page(*read_groups(sorted(runs.glob("*/*.h5")), lambda: None), None)
    assert "Mann-Whitney test against the best" in page
    assert "p = 0.040, A = 0.10" in page


def test_experiments_and_seeds_are_told_apart(made, runs):
    page = Page(made)
    for path in sorted(runs.glob("*/*.h5")):
        assert store.read(path).records[-1].digest.decode() in page.text
        assert f"{path.parent.name}/ {path.name}" in page.text
    # The comparison comes first. Rows have the label of the experiment and the seed, and one table has the files.
    assert page.sections == ["comparison", *SECTIONS]
    assert page.text.count("survivors 4, seed 2") >= 5
    assert page.text.count("a/ seed-2.h5") == 1
    for text in ("survivors 4 (2 seeds)", "survivors 6 (1 seed)", "of 2 experiments survivors ",
                 "Settings in which the experiments differ",
                 "experiment strategy.survivors survivors 4 4 survivors 6 6",
                 f"Not evaluated: python -m evolve.evaluate {runs / 'b' / 'seed-1.h5'}"):  # fmt: skip
        assert text in page.text, text
    assert "Mann-Whitney" not in page.text  # too few seeds for a test
    assert page.source.count('aria-label="Network of the champion of ') == 2  # of two experiments
    assert page.source.count("<video") == 2  # of two experiments, with three runs
    assert "Seed 1, the best of 2, held-out champion: " in page.text or "Seed 2, the best of 2, held" in page.text
    assert "Comparison: held-out champion's mean return" in page.text
    left_out = f"Left out, since not evaluated on held-out episodes: {runs / 'b' / 'seed-1.h5'}."
    assert left_out in page.text


def test_each_run_is_as_far_as_its_own_generations_say(runs):
    """Runs that differ in their number of generations are seeds of one experiment."""
    run = store.read(runs / "a" / "seed-1.h5")
    longer = replace(run, header=replace(run.header, config=run.header.config.replace(
        f"\ngenerations = {run.num_generations}\n", "\ngenerations = 9\n")))  # fmt: skip
    rows = training_table({run: "x", longer: "y"}).rows
    n = run.num_generations
    assert [row[1] for row in rows] == [f"{n} of {n}, complete", f"{n} of 9, stopped early"]


def test_the_connections_counted_are_those_of_the_held_out_champion(runs):
    read = store.read(runs / "a" / "seed-1.h5")
    run = replace(read, held_out=replace(read.held_out, mask=np.zeros_like(read.held_out.mask)))
    found = reported_champion(run)
    assert (found.title, found.connections) == ("held-out champion", "0 of 20 acting connections")
    (row,) = champion_table({run: "x"}, {run: found}).rows
    assert row[1:2] + row[3:] == ("held-out champion", "0 of 20 acting connections")
    unfinished = replace(run, complete=False)
    other = reported_champion(unfinished)
    (row,) = champion_table({unfinished: "x"}, {unfinished: other}).rows
    assert row[1:3] == ("best of generation 2", "not complete; evaluated 12.00 (12.00 to 12.00)")
    assert other.connections != found.connections


def test_a_run_whose_episodes_failed_is_not_called_unevaluated(runs):
    (read,), (group,) = read_groups([runs / "a" / "seed-1.h5"])
    failed = [replace(record, champion_fitness=np.nan) for record in read.records]
    nothing = replace(read.held_out, returns=np.full_like(read.held_out.returns, np.nan))
    for held_out, said in ((nothing, "every held-out episode failed"), (None, "held-out episodes were not played yet")):
        run = replace(read, records=tuple(failed), held_out=held_out)
        (sentence,) = conclude([replace(group, runs=(run,))], [RunSummary(run)], {group.label: ""})
        assert f" has no fitness after 3 of 3 generations; {said}." in sentence


def test_a_page_is_light_or_dark_as_its_reader_is(made):
    source = made.read_text()
    assert "prefers-color-scheme: dark" in source
    assert "var(--ink, #222222)" in source
    assert not re.search(r"(fill|stroke): #(222222|0072b2|ffffff)", source)


@pytest.mark.parametrize("special", [False, True])
def test_a_page_explains_only_what_it_shows(runs, monkeypatch, special):
    """Special: returns that vary, a fitness from which connections take some, their constant number, and a failure."""
    (read,), (group,) = read_groups([runs / "a" / "seed-1.h5"])
    returns = np.array([1.0, 2.0, 3.0] if special else [500.0] * 3)
    run = replace(read, held_out=replace(read.held_out, returns=returns, seeds=read.held_out.seeds[:3]))
    if special:
        first, *others = run.records
        fitness = np.array([np.nan, *first.fitness[1:]])
        run = replace(run, records=(replace(first, fitness=fitness), *others))
    config = group.config.model_copy(update={"connection_cost": 0.5 * special})
    monkeypatch.setattr(run_groups, "constant_connections", Mock(return_value=9 if special else None))
    page = html.render([replace(group, runs=(run,), config=config)], [RunSummary(run)])
    for text, shown in (
        ('aria-label="Histogram', special),
        ("1 of 18 candidates failed", special),
        ("every held-out episode returned 500.00.", not special),
        ("the cost of connections</text>", special),
        ("episodes, less what its connections cost (connection_cost).", special),
        ("Connections include those of the genome that cannot act.", not special),
    ):
        assert (text in page) == shown, text


def test_many_runs_are_summarized(runs, tmp_path):
    """A figure has no panel for each run, a long table is folded, and a note does not name each run."""
    (read,), (group,) = read_groups([runs / "a" / "seed-1.h5"])
    header = read.header
    many = tuple(
        replace(read, path=Path(f"seed-{n}.h5"), header=replace(header, seed=n), complete=False) for n in range(21)
    )
    html.save(html.render([replace(group, runs=many)], list(map(RunSummary, many)), []), tmp_path / "x.html")
    page = Page(tmp_path / "x.html")
    for text in ("Training 21 rows", "The distribution of the mean returns of 21 champions.", "sum of 21 runs",
                 "seed 6, seed 7 and 13 more. Such a run is still being written", "6 2 21 seeds"):  # fmt: skip
        assert text in page.text, text
    assert page.source.count('aria-label="Histogram') == 1
    assert "every held-out episode returned" not in page.text


def test_of_many_experiments_only_the_best_are_drawn_and_filmed(runs, monkeypatch):
    monkeypatch.setattr(html, "MOST_EXPERIMENTS", 1)
    read, groups = read_groups([runs / name / "seed-1.h5" for name in "ab"])
    filmed = []
    page, _ = html.make_page(read, groups, lambda run, film: filmed.append(film) or RunSummary(run))
    assert filmed == [True, False]  # only the first has held-out returns
    assert page.count('aria-label="Network of the champion of survivors 4"') == 1
    assert 'aria-label="Network of the champion of survivors 6"' not in page
    assert "Only the best 1 of 2 experiments are shown here." in page


def test_films_and_verification(runs, tmp_path):
    read = [store.read(path) for path in sorted((runs / "a").glob("*.h5"))]
    same = read[0].header.manifest
    other = {**same, "packages": {**same["packages"], "numpy": "0.1"}}
    read[1] = replace(read[1], header=replace(read[1].header, manifest=other))
    film = bytes(range(256))
    summaries = [
        RunSummary(read[0], Clip(film, b"\xff\xd8", "it walks"), equal=True, verification="3 champions & 6 episodes"),
        RunSummary(read[1], why_no_film="It was <dark>.", equal=False, verification="generation 2"),
    ]
    html.save(html.render(run_groups.begun_groups(read), summaries, [Path("none.h5")]), tmp_path / "x.htm")
    page = Page(tmp_path / "x.htm")
    poster = 'poster="data:image/jpeg;base64,/9g="'
    film = 'src="data:video/mp4;base64,AAECAwQF'
    named = 'aria-label="Seed 1, the best of 2, it walks"'
    assert page.source.count(f"<video controls muted loop playsinline {named} {poster} {film}") == 1
    assert page.source.count(f'<img class="on-paper" {poster.replace("poster", "src")} alt="">') == 1
    for text in ("seed 2: It was <dark>.", "equal 3 champions & 6 episodes", "different generation 2",
                 "No generation is complete yet, so the page leaves out: none.h5.",
                 "packages.numpy differs", "1 entry differs"):  # fmt: skip
        assert text in page.text, text


def lab(colour, deficiency):
    """Return the CIELAB coordinates of a colour such as "#0072b2", as a reader with a deficiency sees it."""
    rgb = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(TO_XYZ @ np.clip(deficiency @ linear, 0, 1) / TO_XYZ.sum(axis=1))
    return np.array([116 * y, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colour_blind_readers_distinguish_the_colours_of_both_themes(made, deficiency):
    dark = re.findall(r"--colour-\d: (#\w{6})", made.read_text())
    assert len(dark) == len(COLOURS)
    for colours in (COLOURS, dark):
        seen = [lab(colour, np.array(DEFICIENCIES[deficiency])) for colour in colours]
        assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > 15


def test_each_film_that_is_missing_has_its_reason(runs):
    read = [store.read(runs / name / "seed-1.h5") for name in "ab"]
    reasons = [RunSummary(run, why_no_film=why) for run, why in zip(read, ("Too dark.", "Too cold."), strict=True)]
    page = html.render(run_groups.begun_groups(read), reasons)
    assert "survivors 4, seed 1: Too dark." in page
    assert "survivors 6, seed 1: Too cold." in page


def test_two_runs_of_one_path_are_told_apart(runs):
    """A script may hold a run and the run that has replaced its file."""
    old, new = (store.read(runs / name / "seed-1.h5") for name in "ab")
    new = replace(new, path=old.path)
    films = [RunSummary(run, Clip(b"", b"", said)) for run, said in ((old, "it walks"), (new, "it falls"))]
    page = html.render(run_groups.begun_groups([old, new]), films)
    assert tuple(page.count(f"{said}</figcaption>") for said in ("it walks", "it falls")) == (1, 1)


def test_everything_from_a_file_is_escaped(runs, call, tmp_path):
    """Markup, a formula, a lone surrogate: in names, settings and the manifest; and the environment is not here."""
    evil = '<script>alert(1)</script> $\\\\frac{ " onload=x \\u0007'
    for name, more in (("a", ""), ("b", "&lt;")):
        path = tmp_path / f"{name}-<script>.h5"
        shutil.copy(runs / name / "seed-1.h5", path)
        with h5py.File(path, "r+") as file:
            config = file.attrs["config"].replace(
                'id = "CartPole-v1"', f'id = "{evil.replace(chr(34), chr(39))}{more}"'
            )
            file.attrs["config"] = config + "# </pre><script>\n"
            file.attrs["manifest"] = '{"<script>": {"</td>": ["<script>", "\\ud800"]}, "host": {"<b>": "<script>"}}'
    call("report", *sorted(tmp_path.glob("*.h5"))).ok()
    page = Page(tmp_path / "report.html")
    assert "<script" not in page.source
    assert "onload=x" in page.text
    for text in ("<script>alert(1)</script> $\\frac{", "No film:", "# </pre><script>", "<script>.</td>", "\\ud800"):
        assert text in page.text, text
    assert "No drawing:" not in page.text  # a network is drawn without its environment


def test_a_running_and_a_killed_file(start, call, tmp_path):
    slow = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.003", *QUICK[:-4])
    process = start("run", *slow, "-g", 9999, "-o", "out")
    path = store.path_of(tmp_path / "out", 0)
    wait_for(lambda: path.exists() and store.read_progress(path)[0], process.output)
    call("report", path, "-o", "running.html").ok()
    process.kill()
    process.popen.wait()
    empty = store.path_of(tmp_path, 9)
    store.create(empty, store.Header("", {}, 0, "x")).close()
    call("report", path, empty, "-o", "killed.html").ok()
    for name in ("running", "killed"):
        page = Page(tmp_path / f"{name}.html")
        assert re.search(r"\d+ of 9,999, not complete", page.text)
        assert "can be continued with --resume" in page.text
        assert "Not evaluated: python -m evolve.evaluate" in page.text
    assert f"No generation is complete yet, so the page leaves out: {empty}." in page.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "x.png"), "x.png cannot be written: the name has to end with .html or .htm."),
        (("-o", "/proc/x.html"), "/proc/x.html cannot be written: '/proc' takes no files."),
        (("-o", "nodir/x.html"), "nodir/x.html cannot be written: no such directory 'nodir'."),
        (("missing.h5",), "no such file"),
        (("--quick", "--workers", "auto"), "--quick: expected no --workers with it, because it plays no episode"),
    ],
)
def test_wrong_input_is_refused_before_an_episode_is_played(call, runs, monkeypatch, arguments, message):
    monkeypatch.setattr(html, "summarize_run", lambda *_: pytest.fail("an episode was played"))
    call("report", runs / "a" / "seed-1.h5", *arguments).refused(message)


def test_an_empty_run_has_nothing_to_report(call, tmp_path):
    store.create(store.path_of(tmp_path, 0), store.Header("", {}, 0, "x")).close()
    done = call("report", "seed-0.h5")
    assert (done.code, "no generation is complete yet" in done.err) == (1, True)
    assert not (tmp_path / "report.html").exists()


def test_without_libraries(call, runs, tmp_path, absent):
    for library, extra in (("matplotlib", "plot"), ("jinja2", "report")):
        absent(library)
        call("report", runs / "a" / "seed-1.h5").refused(f"pip install -e '{ROOT}[{extra}]'")
        assert not (tmp_path / "report.html").exists()


CHROMIUM = shutil.which("chromium")


def browse(page, width, *options):
    """Open a page in Chromium; return its output. Fails if the console prints a message."""
    words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--v=0", "--enable-logging=stderr", f"--user-data-dir={page.parent / 'profile'}",
             f"--window-size={width},900", *options, page.as_uri()]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONG, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_shows_it_without_complaint(made, tmp_path, width):
    page = shutil.copy(made, tmp_path / "page.html")
    browse(page, width, f"--screenshot={tmp_path / 'page.png'}")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    inside = escape(page.read_text().replace("<details>", "<details open>"))  # a window may be no narrower than 500
    measure = "document.body.dataset.width = this.contentDocument.documentElement.scrollWidth"
    page.write_text(f'<iframe style="border: 0" width="{width}" onload="{measure}" srcdoc="{inside}"></iframe>')
    assert re.search(r'data-width="(\d+)"', browse(page, 1400, "--dump-dom"))[1] == str(width)


def test_the_page_of_a_job_of_an_array_does_not_replace_the_page_of_another(tmp_path):
    def planned(*seeds):
        return [SimpleNamespace(path=tmp_path / f"seed-{seed}.h5", seed=seed) for seed in seeds]

    assert path_for(planned(1, 2)) == tmp_path / "report.html"
    for seed in (1, 2):
        (tmp_path / f"seed-{seed}.h5").touch()
    assert path_for(planned(1, 2)) == tmp_path / "report.html"
    assert path_for(planned(2)) == tmp_path / "report-seed-2.html"
    assert path_for(planned(3, 1)) == tmp_path / "report-seed-1-3.html"
    assert path_for(planned(*range(3, 20))) == tmp_path / "report-seed-3-to-19.html"
    # A sweep: the page is in the directory above.
    sweep = [SimpleNamespace(path=tmp_path / name / "seed-1.h5", seed=1) for name in "ab"]
    for each in sweep:
        each.path.parent.mkdir()
        each.path.touch()
    assert path_for(sweep) == tmp_path / "report.html"
    (tmp_path / "b" / "seed-2.h5").touch()
    assert path_for(sweep) == tmp_path / "report-seed-1.html"
