"""Tables are aligned, wrapped into a width, and free of colours; a bar keeps its numbers on any terminal."""

import builtins
import io
import re

import pytest

from evolve.display import make_display, table

ROWS = [("name", "steps"), ("a long name", "1,000"), ("b [red]", "7")]


def test_columns_are_aligned():
    assert table(ROWS, indent="  ") == "  name         steps\n  a long name  1,000\n  b [red]          7"


def test_a_notebook_gets_the_same_text(monkeypatch):
    expected = table(ROWS)
    shell = type("ZMQInteractiveShell", (), {})  # by this name rich recognizes Jupyter
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    assert table(ROWS) == expected


def test_cells_are_wrapped_into_a_width():
    lines = table([*ROWS, ("x" * 200, "3" * 30)], 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert sum(line.count("x") for line in lines) == 200


def test_no_number_is_broken_if_there_is_room_for_all_words():
    rows = [("machine", "cost", "remarks"), ("a very long name", "$0.000112", "they do not agree"), ("", "", "")]
    lines = table(rows, 30, left=(0, 2)).splitlines()
    assert max(map(len, lines)) <= 30
    assert {"$0.000112", "machine", "remarks"} <= {word for line in lines for word in line.split()}
    assert len(lines) < 6


def test_long_lines_are_not_cut_without_a_width():
    assert table([("a", "x" * 500)], left=(0, 1)) == f"a  {'x' * 500}"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_bar_keeps_its_numbers_on_a_narrow_terminal(monkeypatch, width):
    """Brackets in the name of a file are no markup."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    bar = make_display("generations", io.StringIO(), on_terminal=True)
    now = "runs[/old]/seed-1.h5: 50%, 12 idle"
    bar.add_task("seed 12345", total=2000, completed=300, now=now, eta="ETA 1:02:03")
    with bar.console.capture() as shown:
        bar.console.print(bar.get_renderable())
    first, second, *_ = re.sub("\x1b\\[[^m]*m", "", shown.get()).splitlines()
    assert re.fullmatch(r"seed 12345 .* 300 of 2000 .*ETA 1:02:03", first)
    assert second == f"  {now}"


def test_a_terminal_that_cannot_move_its_cursor_gets_no_bar(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert make_display("generations", io.StringIO(), on_terminal=True) is None
