"""What a report shows while it is made."""

from pathlib import Path

from evolve.analysis import progress
from evolve.analysis.progress import ReportProgress
from evolve.numerics.streams import Purpose


def test_lines_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: False)
    here = Path().resolve().name
    for runs, lines in ((1, 0), (3, 2)):
        with ReportProgress(runs) as shown:
            for name in ("a.h5", "b.h5")[: min(runs, 2)]:
                shown.start(Path(name))
                shown.update(Purpose.EPISODE, 1, 10, 0)
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", lines)
    assert said.err == f"evolve.report: run 1 of 3: {here}/a.h5\nevolve.report: run 2 of 3: {here}/b.h5\n"


def test_a_display_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: True)
    monkeypatch.setattr(progress, "MIN_REFRESH", 0.0)
    with ReportProgress(2) as shown:
        bar = shown.display.tasks[0]
        shown.start(Path("runs/a.h5"))
        shown.update(Purpose.EPISODE, 5, 10, 2)
        assert (bar.completed, bar.fields["now"]) == (0.25, "runs/a.h5: champions' episodes 50%")
        shown.start(Path("runs/b.h5"))
        assert bar.completed == 1
        shown.update(Purpose.HELD_OUT, 10, 10, 2)
        assert bar.fields["now"] == "runs/b.h5: held-out episodes 100%"
    said = capsys.readouterr().out
    assert "2 of 2" in said
    assert "runs" in said


def test_an_error_leaves_the_bar_where_it_is(monkeypatch):
    monkeypatch.setattr(progress, "on_terminal", lambda *_: True)
    try:
        with ReportProgress(2) as shown:
            shown.start(Path("a.h5"))
            raise KeyError
    except KeyError:
        assert shown.display.tasks[0].completed == 0
