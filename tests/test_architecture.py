"""Imports only go down the list of rooms, and each heavy library has one door."""

import ast
import re
import tomllib

import pytest
from architecture import FILES, LEVEL, SOURCE, executed, imports, packages, place, shared_names, top_modules

DOORS = {
    "mpi4py": {"cluster/transport.py"},
    "h5py": {"store/"},
    "matplotlib": {"analysis/figures/style.py"},
    "gymnasium": {
        "environments/spaces.py",
        "environments/gymnasium_engine.py",
        "environments/factory.py",
        "environments/sleeping.py",
        "environments/function_task.py",
        "environments/pictures.py",
    },
    "envpool": {"environments/envpool_engine.py"},
    "imageio": {"analysis/video/"},
    "av": {"analysis/video/"},
    "PIL": {"analysis/video/"},
    "scipy": {"analysis/statistics.py"},
    "cmaes": {"strategies/cma.py"},
    "threadpoolctl": {"strategies/cma.py"},
    "jinja2": {"analysis/html/page.py"},
    "rich": {"cli/display.py"},
    "shtab": {"cli/completion.py"},
    "cupy": {"numerics/cupy_device.py"},
}


def test_every_package_is_on_the_ladder():
    assert {place(path) for path in FILES} - {"__init__"} == set(LEVEL)
    assert len(packages()) <= 12
    assert len(top_modules()) <= 6


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down(path):
    here = LEVEL.get(place(path))
    if here is None:  # the package itself, which offers the Python interface
        offered = {name.split(".")[1] for name in imports(path) if name.startswith("evolve.")}
        assert offered == {"api", "environments", "errors", "networks", "strategies"}
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "evolve" and len(parts) > 1 and parts[1] in LEVEL:
            there = LEVEL[parts[1]]
            assert there > here or parts[1] == place(path), f"{place(path)} imports {name}"


def test_a_serial_generation_executes_few_modules():
    assert len(executed()) <= 28


def test_no_two_modules_and_no_two_classes_share_a_name():
    assert not shared_names()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_libraries_enter_through_their_door(path):
    where = str(path.relative_to(SOURCE))
    for name in imports(path):
        library = name.split(".")[0]
        if library in DOORS:
            assert any(where.startswith(door) for door in DOORS[library]), f"{where} imports {library}"


def test_no_hidden_randomness_and_no_pickle():
    for path in FILES:
        for name in imports(path):
            assert name.split(".")[0] not in ("random", "pickle", "secrets"), f"{path} imports {name}"
        text = path.read_text()
        assert "default_rng" not in text
        assert "RandomState" not in text


KERNELS = ("environments", "networks", "numerics", "rollouts")


def test_the_native_kernels_call_no_libm_and_contract_nothing():
    headers = sorted(path for place in KERNELS for path in (SOURCE / place / "kernels").iterdir())
    unit = SOURCE / "rollouts/kernels.c"
    written = "".join(path.read_text() for path in [unit, *headers])
    code = re.sub(r"/\*.*?\*/", "", written, flags=re.S)
    code = re.sub(r"\w+->\w+\(", "(", code)  # functions that are given
    called = set(re.findall(r"\b([a-z]\w*)\s*\(", code))
    written_here = set(re.findall(r"(?:void|int|INLINE \w+|ONE_WORLD \w+) \*?(\w+)\(", code))
    written_here |= set(re.findall(r"(?:int64_t|uint32_t|uint64_t|float|double) \*?(\w+)\(", code))
    written_here |= {f"{name}_lanes" for name in re.findall(r"^LANES_OF\((\w+)\)", code, flags=re.M)}
    syntax = {
        "if",
        "for",
        "while",
        "float",
        "defined",
        "sizeof",
        "target_clones",
        "name",
        "f",
        "k",
        "return",
        "aligned",
        "optimize",
    }
    assert called - written_here - syntax == {
        "fabsf",
        "fabs",
        "copysignf",
        "copysign",
        "sqrt",
        "sqrtf",
        "floorf",
        "memcpy",
        "memset",
    }  # exact, all of them
    assert "fma" not in code
    flags = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"][0]
    assert [SOURCE.parent / path for path in flags["sources"]] == [unit]
    assert [SOURCE.parent / path for path in flags["depends"]] == headers  # else they would not travel in an sdist
    included = re.findall(r'#include "(.*)"', unit.read_text())
    assert sorted((unit.parent / path).resolve() for path in included) == headers
    assert "-ffp-contract=off" in flags["extra-compile-args"]
    assert not {"-ffast-math", "-Ofast", "-march=native"} & set(flags["extra-compile-args"])


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrays_outlive_the_kernels_that_get_their_addresses(path):
    """An array without a name is freed as soon as its address was taken, and a generator's as soon as that is spent."""
    assert not re.search(r"\)\.ctypes\.data|address\(np\.|= \(\w+\.ctypes\.data for \w+ in \(", path.read_text())


PORTABLE = ("networks", "strategies", "numerics", "environments", "rollouts", "genome", "training")
LIBRARY_ORDER = {"dot", "inner", "matmul", "einsum", "tensordot", "vdot", "trace", "sum", "mean", "std", "var",
                 "average", "prod", "cumsum", "nansum", "nanmean"}  # fmt: skip
TRANSCENDENTAL = {"tanh", "exp", "expm1", "exp2", "log", "log1p", "log2", "sin", "cos", "power", "arctanh", "cbrt"}
WHOLE_NUMBERS = {("cumsum", "prune.py"), ("cumsum", "results.py"), ("prod", "spaces.py"), ("cumsum", "spaces.py"),
                 ("cumsum", "hebbian_dag.py")}  # fmt: skip

SQUARES = {"(mean - connections) ** 2"}  # of arrays: NumPy multiplies


@pytest.mark.parametrize("path", [p for p in FILES if place(p) in PORTABLE], ids=lambda p: p.name)
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
