"""Imports only go down the list of rooms, and each heavy library has one door."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "evolve"
ROOMS = [  # design: from the top down; a room may import rooms below it, and its own
    {"run", "verify", "replay", "plot", "evaluate", "report", "bench"},
    {"pages", "resuming"},
    {"divergence"},
    {"commands", "console", "drawings", "manifest", "playback", "standings"},
    {"display", "statistics"},
    {"stopping"},
    {"evolution"},
    {"experiment"},
    {"cluster"},
    {"racing", "rollout"},
    {"figures", "film"},
    {"strategies", "store"},
    {"networks", "environments"},
    {"normalization"},
    {"numerics"},
    {"registry"},
    {"sweep"},
    {"evaluation", "genome", "rng", "config"},
    {"fingerprint"},
    {"shapes", "errors"},
]
DOORS = {
    "mpi4py": {"cluster/world.py"},
    "h5py": {"store/"},
    "matplotlib": {"figures/style.py"},
    "gymnasium": {
        "environments/spaces.py",
        "environments/gymnasium_engine.py",
        "environments/making.py",
        "environments/sleeping.py",
        "environments/function.py",
    },
    "envpool": {"environments/envpool_engine.py"},
    "imageio": {"film/"},
    "av": {"film/"},
    "PIL": {"film/"},
    "scipy": {"statistics.py"},
    "cmaes": {"strategies/cma.py"},
    "threadpoolctl": {"strategies/cma.py"},
    "jinja2": {"pages/page.py"},
    "rich": {"display.py"},
    "cupy": {"numerics/"},
}
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(SOURCE.rglob("*.py"))


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_room_is_on_the_list():
    assert {room(path) for path in FILES} - {"__init__", "__main__"} == set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down(path):
    here = LEVEL.get(room(path))
    if here is None:  # the package itself
        assert not [name for name in imports(path) if name.startswith("evolve")]
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "evolve" and len(parts) > 1 and parts[1] in LEVEL:
            there = LEVEL[parts[1]]
            assert there > here or parts[1] == room(path), f"{room(path)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_libraries_enter_through_their_door(path):
    place = str(path.relative_to(SOURCE))
    for name in imports(path):
        library = name.split(".")[0]
        if library in DOORS:
            assert any(place.startswith(door) for door in DOORS[library]), f"{place} imports {library}"


def test_no_hidden_randomness_and_no_pickle():
    for path in FILES:
        for name in imports(path):
            assert name.split(".")[0] not in ("random", "pickle", "secrets"), f"{path} imports {name}"
        text = path.read_text()
        assert "default_rng" not in text
        assert "RandomState" not in text


def test_the_native_kernels_call_no_libm_and_contract_nothing():
    headers = sorted((SOURCE / "numerics/kernels").iterdir())
    written = "".join(path.read_text() for path in [SOURCE / "numerics/kernels.c", *headers])
    code = re.sub(r"/\*.*?\*/", "", written, flags=re.S)
    called = set(re.findall(r"\b([a-z]\w*)\s*\(", code))
    written_here = set(re.findall(r"(?:void|int|uint64_t) (\w+)\(", code))
    syntax = {"if", "for", "float", "defined", "sizeof", "target_clones", "name"}
    assert called - written_here - syntax == {"fabsf", "copysignf", "memcpy"}  # exact, all of them
    assert "fma" not in code
    flags = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"][0]
    assert [SOURCE.parent / path for path in flags["depends"]] == headers  # else they would not travel in an sdist
    assert "-ffp-contract=off" in flags["extra-compile-args"]
    assert not {"-ffast-math", "-Ofast", "-march=native"} & set(flags["extra-compile-args"])


PORTABLE = ("networks", "strategies", "numerics", "environments", "rollout.py", "evaluation.py", "rng.py", "genome.py",
            "fingerprint.py", "racing.py", "normalization.py", "evolution.py")  # fmt: skip
LIBRARY_ORDER = {"dot", "inner", "matmul", "einsum", "tensordot", "vdot", "trace", "sum", "mean", "std", "var",
                 "average", "prod", "cumsum", "nansum", "nanmean"}  # fmt: skip
TRANSCENDENTAL = {"tanh", "exp", "expm1", "exp2", "log", "log1p", "log2", "sin", "cos", "power", "arctanh", "cbrt"}
WHOLE_NUMBERS = {("cumsum", "prune.py"), ("prod", "spaces.py"), ("cumsum", "spaces.py"), ("cumsum", "hebbian_dag.py")}

SQUARES = {"(mean - connections) ** 2"}  # of arrays: NumPy multiplies


@pytest.mark.parametrize(
    "path", [p for p in FILES if room(p) in {n.removesuffix(".py") for n in PORTABLE}], ids=lambda p: p.name
)
def test_what_reaches_a_fitness_is_portable(path):
    """No BLAS, no libm, no reduction in the library's order: the array reference has the same bits on every CPU."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)), f"line {node.lineno} uses @"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            whole = re.fullmatch(r"[\d.]+ ?\*\* ?(\(?-?\d+\)?)", ast.unparse(node)) or ast.unparse(node) in SQUARES
            assert whole, f"line {node.lineno} uses {ast.unparse(node)}: that may be libm's pow"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
            bad = node.attr in LIBRARY_ORDER | TRANSCENDENTAL and (node.attr, path.name) not in WHOLE_NUMBERS
            assert not bad, f"line {node.lineno} uses np.{node.attr}"
