"""The examples run: the notebook's cells in order, in a new process, as a Jupyter kernel would run them."""

import json
import re
import sys

import pytest
from conftest import ROOT, finished

import evolve

NOTEBOOK = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
FEWER = {"episodes=2,\n": "episodes=2,\n    held_out_episodes=10,\n", "evaluate(episodes=100)": "evaluate(episodes=20)"}
"""Replacements in the cells: the champion plays fewer episodes than in the notebook."""

KERNEL = """
import ast, json, sys
namespace = {"__name__": "__main__"}
for number, code in enumerate(json.load(sys.stdin)):
    cell = ast.parse(code)
    value = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
    exec(compile(cell, f"cell {number}", "exec"), namespace)
    if value is not None:
        found = eval(compile(ast.Expression(value.value), f"cell {number}", "eval"), namespace)
        print("" if found is None else repr(found))
"""
"""A program that runs cells, and prints the value of each last expression."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return the output of the notebook."""
    cells = json.dumps(CODE)
    for words in FEWER.items():
        many, few = (json.dumps(word)[1:-1] for word in words)
        assert cells.count(many) == 1
        cells = cells.replace(many, few)
    words = [sys.executable, "-W", "error", "-W", "ignore:FigureCanvasAgg is non-interactive", "-c", KERNEL]
    done = finished(words, tmp_path_factory.mktemp("notebook"), cells, PYTHONPATH=str(ROOT), MPLBACKEND="Agg")
    assert done.code == 0, done.err
    return done.out


def test_the_notebook_runs_and_learns(shown):
    assert re.findall(r"^generation (\d+): best", shown, re.M) == [str(number) for number in range(8)]
    assert float(re.search(r"^mean ([\d.]+)", shown, re.M)[1]) > 200
    assert re.search(r"equal: .*\b8 generations", shown)
    assert float(re.search(r"generations ([\d.]+)$", shown, re.M)[1]) < 20


def test_a_study_chooses_settings_and_its_runs_are_whole(tmp_path):
    pytest.importorskip("optuna")
    words = [sys.executable, "-W", "error", ROOT / "examples" / "optuna_study.py"]
    done = finished([*words, "--trials", 2, "--seeds", 1, "--generations", 2], tmp_path, PYTHONPATH=str(ROOT))
    assert done.code == 0, done.err
    assert re.search(r"^best: trial [01] with .*weight_noise", done.out, re.M)
    runs = [evolve.load(path) for path in tmp_path.glob("runs/study/trial-*/seed-1.h5")]
    assert [run.complete for run in runs] == [True, True]
    assert len({run.config.to_toml() for run in runs}) == 2


def test_the_output_of_a_cell_has_short_lines(shown):
    assert max(map(len, shown.splitlines())) < 200


def test_the_notebook_has_no_outputs():
    assert NOTEBOOK["nbformat"] == 4
    for cell in NOTEBOOK["cells"]:
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
