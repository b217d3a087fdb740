"""The examples run: the cells of each notebook in order, in a process, as a Jupyter kernel would run them."""

import json
import re
import runpy
import sys
from types import SimpleNamespace

import pytest
from conftest import ROOT, finished

import evolve

PATHS = sorted((ROOT / "examples").glob("*.ipynb"))
NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in PATHS}
FEWER = {
    "notebook": {
        '"generations": 25': '"generations": 12',
        "seeds=range(5)": "seeds=range(2)",
        "seconds=5": "seconds=0.2",
    },
    "memory": {"population=128": "population=48"},
    "own-task": {"generations=12": "generations=5", "episodes=4": "episodes=2"},
}
"""Replacements in the cells of each notebook, so that it takes less time."""

KERNEL = """
import ast, gc, json, os, re, sys
import matplotlib.figure, scipy.stats  # once for all notebooks, as they take seconds
from evolve.analysis import video
video.PAGE_WIDTH = 320
gc.freeze()  # the end of a process would search all these modules for garbage
for name, cells in json.load(sys.stdin).items():
    print(end="\\f", flush=True)
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
        continue
    os.mkdir(name)
    os.chdir(name)
    namespace = {"__name__": "__main__"}
    for number, code in enumerate(cells):
        cell = ast.parse(code)
        value = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
        exec(compile(cell, f"cell {number}", "exec"), namespace)
        if value is not None:
            found = eval(compile(ast.Expression(value.value), f"cell {number}", "eval"), namespace)
            if hasattr(found, "_repr_html_"):
                print("html:", *re.sub("<[^>]*>", " ", found._repr_html_()).split())
            elif hasattr(found, "_repr_mimebundle_"):
                print("png:", found.title, len(found._repr_mimebundle_()[0]["image/png"]))
            elif found is not None:
                print(repr(found))
    break
"""
"""A program that runs the cells of notebooks, each in a process and a folder of its own.

It prints the value of each last expression: the text of its HTML, or of its picture. A form feed begins a notebook.
"""


def code_of(name):
    """Return the code of the cells of a notebook."""
    return ["".join(cell["source"]) for cell in NOTEBOOKS[name]["cells"] if cell["cell_type"] == "code"]


def cells(name):
    """Return the cells of a notebook as they are run."""
    code = code_of(name)
    for many, few in FEWER[name].items():
        assert "".join(code).count(many) == 1
        code = [cell.replace(many, few) for cell in code]
    return code


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The output of each notebook."""
    given = json.dumps({name: cells(name) for name in NOTEBOOKS})
    words = [sys.executable, "-W", "error", "-c", KERNEL]
    done = finished(words, tmp_path_factory.mktemp("notebooks"), given, PYTHONPATH=str(ROOT))
    assert done.code == 0, done.err
    return dict(zip(NOTEBOOKS, done.out.split("\f")[1:], strict=True))


def test_the_notebook_tells_the_whole_story_in_ten_cells(shown):
    assert len(code_of("notebook")) == 10
    out = shown["notebook"]
    mean = float(re.search(r"^mean (-[\d.]+), 95 % interval", out, re.M)[1])
    assert -100 < mean < -70
    assert re.search(r"^html: held-out champion, the episode of median return, number \d+: return -\d+", out, re.M)
    assert re.search(r"^html: 4 runs, 2 seeds strategy\.name held-out mean", out, re.M)
    assert re.search(r"^html: . equal: the champions of 12 generations", out, re.M)
    assert re.search(r"<Evaluation: 50 episodes, mean -\d", out)
    assert re.search(r"is up after \d\d+ steps", out)
    assert [line.split()[1] for line in out.splitlines() if line.startswith("png:")] == ["fitness", "network", "2"]


def test_memory_needs_plasticity(shown):
    learns, frozen = re.search(r"with plasticity ([\d.]+), without ([\d.]+)", shown["memory"]).groups()
    assert float(learns) > 0.9
    assert float(frozen) < 0.6


def test_a_function_is_a_task_and_ask_and_tell_minimize_one(shown):
    out = shown["own-task"]
    left, _, right = (float(thrust) for thrust in re.findall(r"thrust +(-?[\d.]+)", out))
    assert left > 0 > right
    first, *_, last = (float(value) for value in re.findall(r"generations ([\d.]+)$", out, re.M))
    assert last < 20 < first


def test_a_study_chooses_settings_and_its_runs_are_whole(tmp_path):
    pytest.importorskip("optuna")
    words = [sys.executable, "-W", "error", ROOT / "examples" / "optuna_study.py"]
    done = finished([*words, "--trials", 2, "--seeds", 1, "--generations", 2], tmp_path, PYTHONPATH=str(ROOT))
    assert done.code == 0, done.err
    assert re.search(r"^best: trial [01] with .*weight_noise", done.out, re.M)
    runs = [evolve.load(path) for path in tmp_path.glob("runs/study/trial-*/seed-1.h5")]
    assert [run.complete for run in runs] == [True, True]
    assert len({run.config.to_toml() for run in runs}) == 2


def test_a_study_that_is_run_again_sees_every_generation(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", SimpleNamespace(Trial=None))
    study = runpy.run_path(str(ROOT / "examples" / "optuna_study.py"))
    file = tmp_path / "trial-0" / "seed-1.h5"
    settings = study["EXPERIMENT"] | {"population": 4, "generations": 2}
    first, again = ([each.best for each in study["all_generations"](file, settings, 1)] for _ in range(2))
    assert len(first) == 2
    assert first == again


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_short_lines_and_no_outputs(name, shown):
    assert max(len(line) for line in shown[name].splitlines() if not line.startswith("html:")) < 200
    assert max(len(line) for code in code_of(name) for line in code.splitlines()) <= 120
    assert NOTEBOOKS[name]["nbformat"] == 4
    for cell in NOTEBOOKS[name]["cells"]:
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
