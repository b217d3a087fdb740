"""What a run shows while it goes on."""

import builtins
import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from evolve.analysis import progress
from evolve.analysis.progress import ProgressReporter, RunsClock, load_of_workers
from evolve.numerics.streams import Purpose


def record(busy, environments, seconds=2.0):
    return SimpleNamespace(
        busy_seconds=np.array(busy), environment_seconds=np.array(environments), seconds=seconds, steps=1000,
        fitness=np.array([1.0, np.nan, 3.0]), champion_fitness=3.0, connections=np.array([7, 8, 9]),
        lengths=np.array([[5, 5], [4, 0]]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("busy", "environments", "expected"),
    [
        ([0.0, 2.0, 1.0], [0.0, 1.5, 0.75], (0.75, 0.5)),
        ([0.0, 2.0, 0.0], [0.0, 1.0, 0.0], (0.5, 0.0)),  # rank 2 was lost
        ([0.0, 2.0, np.nan], [0.0, 1.0, np.nan], (0.5, 0.0)),  # or never there
        ([1.5], [1.2], (0.8, 0.25)),
        ([0.0, 0.0], [0.0, 0.0], (0.0, 0.0)),
    ],
)
def test_load_of_workers(busy, environments, expected):
    assert load_of_workers(record(busy, environments)) == pytest.approx(expected)


def test_lines_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: False)
    with ProgressReporter(4, 1, 3) as reporter:
        reporter(record([0.0, 2.0, 1.0], [0.0, 1.5, 0.75]))
        reporter.update(Purpose.EPISODE, 1, 10, 1)
    said = capsys.readouterr().out
    assert said.startswith(
        "seed 4  generation 1 (2 of 3)  best fitness 3.00  mean 2.00  median connections 8  "
        "500 steps/s, 75% in environments"
    )
    assert ", 0.5 of 2 workers idle, 75% of the episodes played  ETA 0:00:0" in said
    assert said.count("\n") == 1
    with ProgressReporter(4, 1, 3, plays_whole_episodes=True) as reporter:
        reporter(record([0.0, 2.0, 1.0], [0.0, 1.5, 0.75]))
    assert ", 75% in episodes, " in capsys.readouterr().out
    with ProgressReporter(4, 1, 3, quiet=True) as reporter:
        reporter(record([1.5], [1.2]))
    assert capsys.readouterr().out == ""


def test_held_out_episodes_have_lines_where_they_take_long(capsys, monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: False)
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with ProgressReporter(4, 0, 1, line_interval=60.0) as reporter:
        reporter(record([1.5], [1.2]))
        for done in range(10):
            now[0] += 2.0
            reporter.update(Purpose.HELD_OUT, done, 10, 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["seed 4  held-out: 20%", "seed 4  held-out: 50%", "seed 4  held-out: 80%"]


def test_a_long_generation_has_lines_where_there_is_no_display(capsys, monkeypatch):
    """The log of a slow game would look as if the run hung."""
    monkeypatch.setattr(progress, "on_terminal", lambda *_: False)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with ProgressReporter(4, 0, 2) as reporter:
        for done in range(10):
            reporter.update(Purpose.EPISODE, done, 10, 0)
            now[0] += 9.0
    assert capsys.readouterr().out.splitlines() == ["seed 4  generation 0: 40%", "seed 4  generation 0: 80%"]


def test_a_stream_that_only_writes_gets_lines():
    said = []
    stream = SimpleNamespace(write=said.append, flush=lambda: None)  # a script may replace sys.stderr by such an object
    with ProgressReporter(4, 0, 1, stream=stream) as reporter:
        reporter(record([1.5], [1.2]))
    assert "".join(said).startswith("seed 4  generation 0 (1 of 1)")


def test_a_limit_of_steps_is_foreseen(capsys, monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: False)
    for left, foreseen in ((2500, "about 4"), (1000, "about 2"), (10**9, "50"), (np.inf, "50")):
        with ProgressReporter(4, 1, 50, steps_left=left) as reporter:
            reporter(record([1.5], [1.2]))
        assert f"generation 1 (2 of {foreseen})  " in capsys.readouterr().out


def test_the_end_of_all_runs_is_foreseen_too(capsys, monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: False)
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    clock = RunsClock([0, 20, 20, 60])  # episodes: the first run was complete already
    clock.start(1)
    with ProgressReporter(1, 0, 10, clock=clock) as reporter:
        for _ in range(10):
            now += 6.0
            reporter(record([1.5], [1.2]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("ETA 0:00:54, all 4 runs 0:04:54")  # 3 seconds for an episode
    assert lines[9].endswith("ETA 0:00:00, all 4 runs 0:04:00")
    clock.start(2)
    with ProgressReporter(2, 5, 10, clock=clock) as reporter:  # resumed
        now += 4.0
        reporter(record([1.5], [1.2]))
    seconds = 16 + 60 * 64 / (20 + 20 / 5)
    assert capsys.readouterr().out.endswith(f"ETA 0:00:16, all 4 runs 0:0{seconds // 60:.0f}:{seconds % 60:02.0f}\n")


def test_a_display_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: True)
    monkeypatch.setattr(progress, "MIN_REFRESH", 0.0)
    with ProgressReporter(4, 0, 2, clock=RunsClock([1, 1])) as reporter:
        shown = reporter.display.tasks[0]
        reporter.update(Purpose.EPISODE, 5, 10, 2)
        assert (shown.completed, shown.fields["now"]) == (0.5, "generation 0: 50%, 2 idle")
        reporter(record([1.5], [1.2]))
        assert shown.fields["fitness"].startswith("generation 0: best fitness 3.00")
        assert shown.fields["eta_of_runs"].startswith("all 2 runs 0:00:0")
        assert shown.fields["work"] == "500 steps/s, 80% in environments, 75% of the episodes played"
        reporter(record([1.5], [1.2]))
        reporter.update(Purpose.VALIDATION, 1, 4, 0)
        assert shown.fields["now"] == "validation: 25%"
        reporter.update(Purpose.HELD_OUT, 30, 100, 0)
        assert (shown.completed, shown.fields["now"], shown.fields["eta"]) == (2, "held-out: 30%", "")
    said = capsys.readouterr().out
    assert "seed 4" in said
    assert "2 of 2" in said
    assert "best fitness 3.00" in said


def test_a_display_in_a_notebook(monkeypatch):
    """IPython is not among the libraries of the tests, so a substitute takes its place."""
    shown = []
    cell = SimpleNamespace(update=lambda bar: shown.append(bar._repr_mimebundle_([], [])["text/plain"]))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=lambda _, display_id: cell))
    monkeypatch.setattr(builtins, "get_ipython", type("ZMQInteractiveShell", (), {}), raising=False)
    with ProgressReporter(4, 0, 2, stream=io.StringIO()) as reporter:
        reporter(record([1.5], [1.2]))
    assert "1 of 2" in shown[-1]
    assert "generation 0: best fitness 3.00" in shown[-1]


def test_lines_at_intervals_include_the_last(monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = io.StringIO()
    with ProgressReporter(4, 0, 8, line_interval=5.0, stream=stream) as reporter:
        for _ in range(8):
            reporter(record([1.5], [1.2]))
            now += 2.0
    assert [line.split()[3] for line in stream.getvalue().splitlines()] == ["0", "3", "6", "7"]
