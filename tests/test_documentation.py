"""The pages: their Python runs, their commands parse, their links lead to files, their tables are complete.

A test over all pages collects the offenders and fails once, with one line for each of them.

A block of code with a title, ```` ```python title="NAME" ````, or with an HTML comment right above it, `<!-- file: NAME
-->`, is written to that file in the folder in which the page is run. `<!-- not run: reason -->` skips a block.
"""

import ast
import contextlib
import importlib.util
import itertools
import json
import re
import shlex
import sys
import tomllib

import h5py
import pytest
from architecture import FILES, LADDER, nodes, relative
from conftest import ROOT, finished, launcher

import evolve
from evolve import store
from evolve.cli import COMMANDS
from evolve.cli.parser import Answered, parser_of
from evolve.cli.run import load
from evolve.config import Config, descriptions, read_table
from evolve.config.documents import experiments
from evolve.environments import TASKS
from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.store import schema
from evolve.strategies import STRATEGIES, portable
from evolve.training import prepare

_SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
generate = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(generate)

LOOSE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES = {path.name: path for path in LOOSE}
PAGES |= {path.relative_to(ROOT / "docs").as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))}
TEXTS = {name: path.read_text() for name, path in PAGES.items()}
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>.+?) -->\n)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>.+?)\")?\n(?P<code>.*?)^```$",
    re.M | re.S,
)


def blocks(page, *languages):
    """Return (mark, first line, code) of the blocks of a page that are in some languages, in their order."""
    text = TEXTS[page]
    found = [m for m in BLOCK.finditer(text) if m["language"] in languages]
    marks = [f"file: {m['title']}" if m["title"] else m["mark"] or "" for m in found]
    return [(mark, text.count("\n", 0, m.start("code")), m["code"]) for mark, m in zip(marks, found, strict=True)]


def prose(page):
    """Return a page without code."""
    return re.sub(r"`[^`\n]+`", "", BLOCK.sub("", TEXTS[page]))


def rows(page, heading):
    """Return the cells of the rows below a table's heading, "one | two"."""
    lines = TEXTS[page].splitlines()
    begin = lines.index(f"| {heading} |") + 2
    below = itertools.takewhile(lambda line: line.startswith("|"), lines[begin:])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in below]


def names(cell):
    """Return what is in backticks."""
    return re.findall(r"`([^`]+)`", cell)


SHORTER = {
    "fronts.md": {"generations=12": "generations=6"},
    "python.md": {"generation.best < 200": "generation.best < 10", "episodes=500": "episodes=50"},
    "tutorial-curriculum.md": {"generations = 40": "generations = 3", "generations=80": "generations=4"},
    "tutorial-environment.md": {"generations=8": "generations=3"},
    "tutorial-study.md": {"generations = 8": "generations = 2", "population = 24": "population = 8"},
    "tutorial-task.md": {"range(100)": "range(20)", "generations=10": "generations=3"},
}
"""Replacements in the code of a page, so that it takes less time."""


def shorter(page, code):
    """Return the code of a page as it is run."""
    for words, fewer in SHORTER.get(page, {}).items():
        assert TEXTS[page].count(words) == 1, f"{page}: {words}"
        code = code.replace(words, fewer)
    return code


def write_files(page, folder):
    """Put the files of a page into a folder, beside what a clone has."""
    for name in ("experiments", "hostfiles", "examples"):
        (folder / name).symlink_to(ROOT / name)
    for mark, _, code in blocks(page, "python", "toml"):
        if mark.startswith("file: "):
            (folder / mark.removeprefix("file: ")).write_text(shorter(page, code))


SHORT = """
import gymnasium  # episodes end early, and films are small: it is the pages that are tested
from evolve.analysis import video
from evolve.environments import TASKS
gymnasium.spec("CartPole-v1").max_episode_steps = 10
TASKS["CartPole-v1"].default_limit = TASKS["Acrobot-v1"].default_limit = 10
video.PAGE_WIDTH = 320
"""
RUNNER = f"""{SHORT}
import gc, json, os, sys
import matplotlib.figure, pandas, scipy.stats  # once for all pages, as they take seconds
gc.freeze()  # the end of a process would search all these modules for garbage
for page, folder, blocks in json.load(sys.stdin):
    if child := os.fork():
        print(page, os.waitpid(child, 0)[1], flush=True)
        continue
    os.chdir(folder)
    os.dup2(os.open("stdout", os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
    namespace = {{"__name__": "__main__"}}
    for line, code in blocks:
        exec(compile("\\n" * line + code, page, "exec"), namespace)
    break
"""


def test_python_runs(tmp_path):
    """In a process for each page, its blocks one after another in one namespace."""
    pages = [name for name in PAGES if blocks(name, "python")]
    for page in pages:
        (tmp_path / page).mkdir()
        write_files(page, tmp_path / page)
        marked = [mark for mark, _, _ in blocks(page, "python") if mark]
        assert all(re.match("(file|not run): .+", mark) for mark in marked), marked
    run = {page: [(n, shorter(page, code)) for mark, n, code in blocks(page, "python") if not mark] for page in pages}
    given = json.dumps([(page, str(tmp_path / page), code) for page, code in run.items()])
    done = finished([sys.executable, "-W", "error", "-c", RUNNER], tmp_path, given, PYTHONPATH=str(ROOT))
    errors = "".join((tmp_path / page / "stderr").read_text() for page in pages)
    assert (done.code, done.err + errors) == (0, "")
    assert done.out.splitlines() == [f"{page} 0" for page in pages]


def test_the_script_gives_every_rank_the_same(tmp_path):
    """tests/test_api.py compares it with a single process."""
    write_files("python.md", tmp_path)
    script = f"{SHORT}import runpy; runpy.run_path('script.py', run_name='__main__')"
    done = finished([*launcher(2), sys.executable, "-c", script], tmp_path)
    assert done.code == 0, done.err
    first, second = done.out.splitlines()
    assert first == second


def test_the_script_that_starts_workers(tmp_path):
    write_files("python.md", tmp_path)
    done = finished([sys.executable, "workers.py"], tmp_path)
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["3", "4", "5"]


def test_weights_and_biases_gets_every_generation(tmp_path):
    pytest.importorskip("wandb")
    write_files("other-tools.md", tmp_path)
    done = finished([sys.executable, "live_wandb.py"], tmp_path, PYTHONPATH=str(ROOT))
    assert done.code == 0, done.err
    assert "held_out_mean" in done.err
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def calls(page):
    """Yield (command, arguments) for each call of a command in the shell blocks of a page."""
    for _, _, code in blocks(page, "sh"):
        for line in code.splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                for n, word in enumerate(words):
                    if word == "evolve" and words[n + 1] in COMMANDS:
                        yield words[n + 1], words[n + 2 :]
                    elif word == "-m" and words[n + 1].startswith("evolve."):
                        yield words[n + 1].removeprefix("evolve."), words[n + 2 :]
                    elif word in ("hostfiles/slurm.sh", "hostfiles/until-complete.sh"):
                        yield "run" if "slurm" in word else "launch", words[n + 1 :]


CALLS = [(page, command, arguments) for page in PAGES for command, arguments in calls(page)]


def test_all_commands_are_called_and_in_the_table():
    assert {command for _, command, _ in CALLS} == set(COMMANDS)
    rows = re.findall(r"^\| `([a-z]+)` \|", (ROOT / "docs" / "command-line.md").read_text(), re.M)
    assert set(rows) >= set(COMMANDS)


def parse_command(command, arguments):
    """Parse a command line as the command would; of `run`, read and validate the experiment too."""
    if command == "launch":
        command, arguments = "run", parser_of("launch").parse_known_args(arguments)[1]
    # Run files are not there to be read: their command lines are parsed only.
    if command == "run" and not any(word.endswith(".h5") for word in arguments):
        with contextlib.suppress(Answered):  # --settings prints instead of running
            load(arguments)
    else:
        parser_of(command).parse_with_files(arguments)


def test_commands_parse(tmp_path, monkeypatch):
    wrong = []
    for number, page in enumerate(PAGES):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_files(page, folder)
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        for command, arguments in (call[1:] for call in CALLS if call[0] == page):
            try:
                parse_command(command, arguments)
            except (InputError, SystemExit) as error:
                wrong.append(f"{page}: {command} {shlex.join(arguments)}: {error}")
    assert not wrong, "\n".join(wrong)


def test_experiments_are_valid_and_ask_a_question():
    """The TOML blocks of the pages, and the files in experiments/; each environment is tried out once."""
    wrong, checked = [], []
    for page in PAGES:
        for code in (code for _, _, code in blocks(page, "toml") if "[project" not in code):
            try:
                experiments(read_table(code, page), "page")
            except InputError as error:
                wrong.append(f"{page}: {error}")
    for path in sorted((ROOT / "experiments").glob("*.toml")):
        if not re.match(r"# [A-Z].*\?$", path.read_text().splitlines()[0]):
            wrong.append(f"{path.name}: the first line is no question in a comment")
        try:
            for config in load([str(path)])[0]:
                compute = config.compute.model_copy(update={"check": config.env not in checked})
                prepare(config.model_copy(update={"compute": compute}))
                checked.append(config.env)
        except InputError as error:
            wrong.append(f"{path.name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_the_readme_is_short_and_has_the_two_commands():
    assert len(TEXTS["README.md"].splitlines()) <= 120
    for mark, end in (("run", "walker-quick.toml -s 1 --workers auto --report"), ("test", "&& pytest")):
        (code,) = (code for found, _, code in blocks("README.md", "sh") if found == mark)
        assert code.count("\n") == 1
        assert code.startswith("python3 -m venv .venv && . .venv/bin/activate && pip install -e ")
        assert code.endswith(f"{end}\n")


def test_ci_runs_the_test_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    (line,) = (line for line in script.splitlines() if line.startswith("command="))
    done = finished(["bash", "-c", f'{line}; echo "$command"'], ROOT)
    (code,) = (code for mark, _, code in blocks("README.md", "sh") if mark == "test")
    assert done.out == code


def test_the_workflow_runs_ci_on_every_python():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    (pythons,) = re.findall(r"^ +python: (\[.+\])$", workflow, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [kind.rpartition(" ")[2] for kind in project["classifiers"] if re.search(r":: 3\.\d+$", kind)]
    assert json.loads(pythons) == named
    assert project["requires-python"] == f">={named[0]}"
    assert "- run: .ci/run\n" in workflow


def test_the_version_is_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "evolve.__version__"}
    assert re.findall(r"^## (\S+)$", TEXTS["CHANGELOG.md"], re.M)[0] == evolve.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert not re.search("^version:", citation, re.M)
    assert f"license: {project['project']['license']}\n" in citation


def slug(heading):
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def whole_text(path):
    """Return the text of a page, with the files that it includes."""
    text = path.read_text()
    return "\n".join([text, *((ROOT / name).read_text() for name in re.findall(r'^--8<-- "(.+)"$', text, re.M))])


def broken_link(page, target, anchor):
    """Return whether a page has a link to a file, or to a heading of one, that is not there."""
    if target.startswith("https://"):
        return False
    path = (PAGES[page].parent / target).resolve() if target else PAGES[page]
    if not (path.exists() and path.is_relative_to(ROOT)):
        return True
    return bool(anchor) and anchor not in {slug(line) for line in re.findall(r"^#+ (.+)$", whole_text(path), re.M)}


def test_links_and_named_files_exist():
    link = r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)"
    name = r"(?<![\w/.-])(?:evolve|tests|experiments|hostfiles|benchmarks|examples|docs)/[\w./-]*\w/?"
    missing = []
    for page, text in TEXTS.items():
        missing += [f"{page}: {at}#{part}" for at, part in re.findall(link, text) if broken_link(page, at, part)]
        missing += [f"{page}: {path}" for path in re.findall(name, text) if not (ROOT / path).exists()]
    assert not missing, "\n".join(missing)


def navigation(part):
    """Yield the pages of a part of the site's navigation."""
    if isinstance(part, str):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from navigation(inner)


SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def test_every_page_has_its_place_in_the_navigation():
    expected = sorted(set(PAGES) - {path.name for path in LOOSE})
    assert sorted(navigation(SITE["nav"])) == expected, "every page of docs/ stands in nav of zensical.toml, once"
    assert [name for section in SITE["nav"] for name in section] == [
        *("Start", "Tutorials", "How-to", "Reference", "Results", "Understand", "Notebook")
    ]


def test_every_page_is_linked_from_the_first():
    """Except for the notebook: pages link to the notebook that explains their results."""
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", TEXTS["index.md"]))
    assert linked == {page for page in navigation(SITE["nav"]) if "/" not in page} - {"index.md"}
    for notebook in (page for page in navigation(SITE["nav"]) if "/" in page):
        assert any(f"]({notebook}" in text for text in TEXTS.values()), notebook


OLD_DIALECT = r"told|retold|judge[sd]?|newborns?|births?|floor plan|rooms?|ancestors?|farm|mk1|mk2|trails?|parting"


def test_pages_and_code_use_the_words_of_the_field():
    """The code may name `mk2`, a network's alias that still works, and the room that a label needs."""
    old = re.compile(rf"\b({OLD_DIALECT})\b", re.I)
    offenders = [f"{page}: {word}" for page in PAGES for word in old.findall(prose(page))]
    offenders += [
        f"{relative(path)}: {word}"
        for path in FILES
        for word in old.findall(path.read_text())
        if word.lower() not in ("mk2", "room")
    ]
    assert not offenders, "\n".join(offenders)


def test_no_number_at_the_beginning_of_a_line_becomes_an_item_of_a_list():
    """Within an item, a wrapped line such as "295. All" begins a list, whose first number the site hides."""
    offenders = [f"{page}: {line}" for page in PAGES for line in re.findall(r"^ +\d+\. .*", prose(page), re.M)]
    assert not offenders, "\n".join(offenders)


def test_every_public_name_has_its_docstring_on_the_site():
    shown = [name.split(".") for name in re.findall("^::: (.+)$", TEXTS["api.md"], re.M)]
    assert all(parts[0] == "evolve" for parts in shown)
    assert set(evolve.__all__) - {"__version__", "networks", "strategies"} <= {parts[-1] for parts in shown}


def test_every_public_name_is_described():
    described = {name for row in rows("python.md", "name | what it is") for name in names(row[0])}
    assert set(evolve.__all__) == described
    for kind in (evolve.Run, evolve.Generation, evolve.Policy, evolve.Evaluation):
        for name in dir(kind):
            if not name.startswith("_"):
                assert re.search(rf"\b{name}\b", TEXTS["python.md"]), f"{kind.__name__}.{name}"


def test_every_setting_is_described():
    kinds = [registry.options_class({"name": name}) for registry in (NETWORKS, STRATEGIES) for name in registry]
    sections = [type(getattr(Config(), name)) for name in ("env", "racing", "early_stop", "compute", "output")]
    tasks = [task.options_class for task in TASKS.values()]
    for model in (Config, *sections, *kinds, *tasks):
        for setting in descriptions(model):
            assert setting.meaning, f"{model.__name__}.{setting.name}: say in a docstring below it what it means"


def test_every_network_and_strategy_is_described():
    table = rows("networks.md", "network | what it is | source | evolves | learns in an episode | traces | hidden")
    assert [names(row[0])[0] for row in table] == list(NETWORKS)
    for row in table:
        (name,) = names(row[0])
        assert row[6] == " ".join(map(str, NETWORKS.parse({"name": name}).options.hidden))
        made = evolve.networks.make({"name": name}, 3, 2)
        assert (row[3] == "mask") == (not getattr(made, "evolves_weights", True))
        assert (row[5] == "yes") == (made.num_traces > 0)
    table = rows("strategies.md", "strategy | what it does | source | its champion")
    assert sorted(names(row[0])[0] for row in table) == sorted(STRATEGIES)
    assert all(portable({"name": name}) for name in STRATEGIES)  # as the page says


def test_every_exact_task_is_described():
    table = rows("exact.md", "id | sees | does | an episode | settings, as `--set env.kwargs.NAME=…`")
    assert sorted(names(row[0])[0] for row in table) == sorted(TASKS)


def test_old_spellings_are_accepted():
    table = rows("command-line.md", "old | now")
    assert len(table) == 5
    for old, now in ((names(old)[0], names(now)[0]) for old, now in table):
        if old.startswith("-"):
            assert [load([*shlex.split(old)])[0][0]] == load([old.split()[0], now])[0]
        else:
            section, option = old.split(".")
            chosen = ["--strategy", "umda"] if section == "strategy" else []
            assert load([*chosen, "--set", f"{old}=0.25"])[0] == load([*chosen, "--set", f"{now}=0.25"])[0]
            assert option not in now


def test_generated_parts_of_pages_are_up_to_date():
    for path, text in generate.pages():
        assert path.read_text() == text, f"{path.name}: run `python docs/generate.py`"
    assert f"Schema {schema.SCHEMA}." in TEXTS["run-file.md"]


def test_a_page_without_its_place_is_refused():
    with pytest.raises(ValueError, match="columns"):
        generate.filled("nothing", "columns", "")


def test_the_attributes_of_the_run_file_are_described(tmp_path):
    store.create(tmp_path / "seed-0.h5", store.Header("", {}, 0, "CartPole-v1", spaces={})).close()
    with h5py.File(tmp_path / "seed-0.h5") as file:
        assert {names(row[0])[0] for row in rows("run-file.md", "attribute | type | meaning")} == set(file.attrs)
        assert set(file["checkpoint"].attrs) == {"num_generations"}


def test_the_attributes_of_a_champion_file_are_described():
    with h5py.File(ROOT / "zoo" / "walker-farther.champion") as file:
        assert set(names(TEXTS["champions.md"].rpartition("\nAttributes: ")[2])) == set(file.attrs)


def definitions():
    """Return the functions and classes of each file."""
    return {
        str(path.relative_to(ROOT)): {
            node.name for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        for path in FILES
    }


WAY = """
import json, sys
import evolve
from evolve.cluster.script import all_ranks

steps = json.loads(sys.argv[1])
rank = all_ranks().rank
called = []

def profile(frame, event, _):
    if event == "call":
        full = frame.f_code.co_qualname.removeprefix("_Run.")
        owner, _, name = full.rpartition(".")
        if frame.f_globals.get("__name__", "").startswith("evolve.strategies.") and name != "take":
            full = f"Strategy.{name}"
        for step in {full, owner} & set(steps) - set(called):
            called.append(step)

def watch(generation):  # the second generation: the first makes environments
    sys.setprofile(profile if generation.number == 0 else None)

if rank:
    sys.setprofile(profile)
settings = dict(strategy="openai-es", generations=2, population=8, episodes=2, held_out_episodes=0)
evolve.train(env="CartPole-v1", callbacks=[watch], **settings)
sys.setprofile(None)
print(json.dumps([rank, called]) + "\\n", end="", flush=True)
"""
MADE = ["AskedGenomes.take", "Strategy.ask", "describe"]
"""The calls that make genomes on a rank; rank 0 with workers makes them only for the record."""
WORKERS = ["Transport.probe", "decode", "Worker.handle", "Rollout.submit", *MADE, "Rollout.tick"]
"""The calls of a worker for its first chunk, before it sends results."""


@pytest.mark.parametrize("ranks", [None, 2])
def test_the_code_calls_the_steps_of_a_candidate_in_order(ranks, tmp_path):
    steps = [name for row in rows("architecture.md", "step | what happens | where") for name in names(row[0])]
    done = finished([*launcher(ranks), sys.executable, "-c", WAY, json.dumps(steps)], tmp_path)
    assert done.code == 0, done.err
    called = dict(json.loads(line) for line in done.out.splitlines())
    if ranks is None:
        between = ["WorkQueue", "encode", "Transport.send", *WORKERS[:3]]
        assert called == {0: [step for step in steps if step not in between]}
    else:
        assert [step for step in called[0] if step not in MADE] == [step for step in steps if step not in WORKERS[2:]]
        assert [step for step in called[1] if step in WORKERS] == WORKERS


def test_names_on_the_architecture_page_exist():
    known = definitions()
    for step, _, where in rows("architecture.md", "step | what happens | where"):
        (path,) = names(where)
        assert {name.rpartition(".")[2] for name in names(step)} <= known[path], path
    (drawing,) = (code for _, _, code in blocks("architecture.md", "text"))
    named = set(re.findall(r"\.(?!py)([a-z_]+)|\b([a-z]+_\w+|[A-Z][a-z]+[A-Z]\w+)\b", drawing))
    assert {name for pair in named for name in pair if name} <= set.union(*known.values())


def test_the_packages_on_the_page_are_in_the_order_of_imports():
    table = rows("architecture.md", "package | contents")
    assert [set(names(row[0])) for row in table] == LADDER


def test_every_door_is_described():
    doors = importlib.import_module("test_architecture").DOORS
    described = {
        library: names(where)
        for libraries, where in rows("architecture.md", "library | imported by")
        for library in libraries.split(", ")
    }
    for library, paths in doors.items():
        assert {path.partition("/")[0].removesuffix(".py") for path in paths} == {described[library][0]}


def test_the_2020_experiment_is_the_command_in_the_pages():
    (arguments,) = (words for page, _, words in CALLS if page == "command-line.md" and "41337" in words)
    preset = [str(ROOT / "experiments/script-2020.toml")]
    one, other = (prepare(load(words)[0][0]).config for words in (arguments, preset))
    same_slots = other.model_copy(update={"compute": one.compute})  # they follow how fast a step was just now
    assert one == same_slots
