"""Verdicts as text, for terminals of any width, and as JSON."""

import json
from xml.etree import ElementTree

from evolve.verification import Verdict
from evolve.verification.verdict import Side


def test_a_narrow_terminal_wraps_sentences_between_words_and_the_cells_of_the_manifests():
    manifests = (
        {"cpu": "AMD EPYC 7B13, 64 cores", "numpy": "2.1.0"},
        {"cpu": "Apple M3, 16 cores", "numpy": "2.1.0"},
    )
    sides = Side("runs/here/seed-1.h5"), Side("runs/there/seed-1.h5")
    why = "the actions differ " * 5
    found = Verdict(False, "they differ in step 3", "network", why, sides=sides, manifests=manifests)
    wide, narrow = (found.to_text(width).splitlines() for width in (None, 46))
    assert len(wide) == 6
    assert wide[3] == "manifests differ in"
    assert wide[5].split("  ")[-2:] == ["AMD EPYC 7B13, 64 cores", "Apple M3, 16 cores"]
    assert found.to_text(79).splitlines()[-3:] == wide[-3:]
    assert max(map(len, narrow)) <= 46
    assert " ".join(" ".join(narrow).split()).startswith(f"different: they differ in step 3 network: {found.why}")


def test_the_values_of_both_sides_are_shown_and_where_they_differ():
    sides = Side("a", 1.0, 3, (0.5, 1.0, 2.0), (0.1,)), Side("b", 2.0, 4, (0.5, 1.5, 3.0), (0.1,))
    found = Verdict(False, "they differ", "environment", "so", 0, 1, 2, 3, "observations", sides)
    text = found.to_text()
    assert "  a\n    observation  0.5 1 2\n    action       0.1\n" in text
    assert found.to_text(40) == text  # every line fits
    assert [line.split(" ")[2] for line in text.splitlines() if " differ at " in line] == ["observations"]
    assert "1, 2 of 0 to 2" in text


def test_positions_differ_as_the_hashes_of_a_log_do():
    nan = float("nan")
    sides = (
        Side("a", step_observation=(nan, 0.0, 1.0), step_action=(1.0,)),
        Side("b", step_observation=(-nan, -0.0, 1.0)),
    )
    text = Verdict(False, "they differ", sides=sides).to_text()
    assert [line for line in text.splitlines() if " differ at " in line] == ["  observations differ at 1 of 0 to 2"]


def test_equal_runs_name_what_made_them_differently():
    sides = Side("a"), Side("b")
    manifests = ({"ranks": "1", "numpy": "2.1.0", "command": "x"}, {"ranks": "3", "numpy": "2.1.0", "command": "y"})
    equal = Verdict(True, "3 generations", sides=sides, manifests=manifests)
    assert repr(equal) == "<Verdict: equal: 3 generations>"
    text = equal.to_text()
    assert text.splitlines() == ["equal: 3 generations", "manifests differ in", "         a  b", "  ranks  1  3"]
    same = Verdict(True, "3 generations", sides=sides, manifests=manifests[:1] * 2).to_text()
    assert same.splitlines()[1:] == ["manifests are the same: versions, machine and ranks"]


def test_a_notebook_shows_a_verdict_as_a_table():
    sides = Side("a", 1.0), Side("b", 2.0)
    found = Verdict(False, "they <differ>", "environment", "so", 0, 1, 2, 3, "observations", sides)
    rows = ["|".join(row.itertext()) for row in ElementTree.fromstring(found._repr_html_())]
    assert rows == [
        "\N{MULTIPLICATION X} different: they <differ>",
        "first difference|generation 0, candidate 1, episode 2, step 3",
        "differs|observations", "returns|1.0 against 2.0", "cause|environment", "reason|so",
    ]  # fmt: skip
    equal = ElementTree.fromstring(Verdict(True, "3 generations")._repr_html_())
    assert ["|".join(row.itertext()) for row in equal] == ["\N{CHECK MARK} equal: 3 generations"]


def test_a_verdict_comes_back_from_json():
    sides = Side("a", 1.0, 3, (0.5,), (0.1,)), Side("b")
    manifests = ({"cpu": "x"}, {"cpu": "y"})
    configuration = (("population", 3, 4),)
    for found in (
        Verdict(True, "3 generations"),
        Verdict(False, "no", "log", "why", 1, 2, 0, 5, "end", sides, configuration, manifests),
    ):
        assert Verdict.from_json(json.loads(json.dumps(found.to_json()))) == found
    nan = float("nan")
    lost = Verdict(False, "no", sides=(Side("a", nan, step_observation=(nan, 0.5), step_action=(float("inf"),)),))
    expected = Side("a", step_observation=(None, 0.5), step_action=(None,))
    assert Verdict.from_json(lost.to_json()).sides == (expected,)
    assert "    observation  not finite 0.5\n    action       not finite" in str(Verdict.from_json(lost.to_json()))


def test_a_path_that_is_no_utf_8_does_not_keep_a_verdict_from_json():
    found = Verdict(False, "a\udcff.h5 differs", sides=(Side("a\udcff.h5"), Side("b.h5")))
    again = Verdict.from_json(json.loads(json.dumps(found.to_json())))
    assert (again.summary, again.sides[0].name) == ("a\\udcff.h5 differs", "a\\udcff.h5")
