"""Values as text: numbers, durations, settings and paths."""

from pathlib import Path

import numpy as np
import pytest

from evolve.analysis.formatting import duration, number, short_names, words


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,234.50"), (-0.125, "-0.12"), (np.nan, "none"), (1e308, "1e+308"), (-np.inf, "-inf")],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (75, "1 min 15 s"), (7500, "2 h 05 min"), (-1, "unknown"), (np.inf, "unknown")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_values_of_a_configuration_have_no_control_characters():
    assert words(None) == "none"
    assert words([8, "a\n"]) == "8, a\\n"
    assert words({"a": "\x1b"}) == "{'a': '\\x1b'}"


def test_names_are_paths_without_their_common_directories():
    paths = [Path("runs/a/seed-1.h5"), Path("runs/a/seed-2.h5"), Path("runs/b/seed-1.h5")]
    assert short_names(paths) == ["a/seed-1.h5", "a/seed-2.h5", "b/seed-1.h5"]
    assert short_names(paths[:1]) == ["seed-1.h5"]
