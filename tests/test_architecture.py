"""Imports only go down the ladder of packages, and each heavy library is imported in one place."""

import ast
import re
import runpy
from pathlib import Path

from architecture import FILES, LEVEL, SOURCE, cycles, imports, nodes, packages, place, relative, top_modules

DOORS = {
    "mpi4py": {"cluster/transport.py"},
    "h5py": {"store/"},
    "matplotlib": {"analysis/figures/style.py"},
    "gymnasium": {
        "environments/spaces.py",
        "environments/gymnasium_engine.py",
        "environments/gymnasium_making.py",
        "environments/engine.py",
        "environments/function_task.py",
    },
    "envpool": {"environments/envpool_engine.py"},
    "av": {"analysis/video/"},
    "PIL": {"analysis/video/"},
    "scipy": {"analysis/statistics.py"},
    "tensorboardX": {"analysis/tensorboard.py"},
    "jinja2": {"analysis/html/__init__.py"},
    "rich": {"display.py"},
    "shtab": {"cli/completion.py"},
    "onnx": {"analysis/exports.py"},
    "torch": {"analysis/exports.py"},
    "cupy": {"numerics/cupy_device.py"},
}


def test_every_package_is_on_the_ladder():
    assert {place(path) for path in FILES} - {"__init__"} == set(LEVEL)
    assert len(packages()) <= 12
    assert len(top_modules()) <= 6


def test_imports_go_down():
    offenders = []
    for path in FILES:
        here = LEVEL.get(place(path))
        if here is None:  # the package itself, which offers the Python interface
            offered = {name.split(".")[1] for name in imports(path) if name.startswith("evolve.")}
            types = {"analysis", "config", "training", "verification"}  # of results, for type checkers
            assert offered == {"api", "environments", "errors", "networks", "strategies"} | types
            continue
        for name in imports(path):
            parts = name.split(".")
            there = LEVEL.get(parts[1]) if parts[0] == "evolve" and len(parts) > 1 else None
            if there is not None and parts[1] != place(path) and there <= here:
                offenders.append(f"{relative(path)} imports {name}")
    assert not offenders


def test_there_are_no_import_cycles():
    assert cycles() == []


def test_heavy_libraries_are_imported_in_one_place():
    offenders = []
    for path in FILES:
        for name in imports(path):
            doors = DOORS.get(name.split(".")[0])
            if doors and not relative(path).startswith(tuple(doors)):
                offenders.append(f"{relative(path)} imports {name}")
    assert not offenders


def test_no_hidden_randomness_and_no_pickle():
    offenders = []
    for path in FILES:
        used = {name.split(".")[0] for name in imports(path)} & {"random", "pickle", "secrets"}
        used |= set(re.findall("default_rng|RandomState", path.read_text()))
        offenders += [f"{relative(path)}: {name}" for name in sorted(used)]
    assert not offenders


KERNELS = ("environments", "networks", "numerics", "rollouts")


def test_the_native_kernels_call_no_libm_and_contract_nothing():
    headers = sorted(path for place in KERNELS for path in (SOURCE / place / "kernels").iterdir())
    unit = SOURCE / "rollouts/kernels.c"
    written = "".join(path.read_text() for path in [unit, *headers])
    code = re.sub(r"/\*.*?\*/", "", written, flags=re.S)
    code = re.sub(r"\w+->\w+\(", "(", code)  # function pointers
    called = set(re.findall(r"\b([a-z]\w*)\s*\(", code))
    written_here = set(re.findall(r"(?:void|int|INLINE \w+|ONE_WORLD \w+) \*?(\w+)\(", code))
    written_here |= set(re.findall(r"(?:int64_t|uint8_t|uint32_t|uint64_t|float|double) \*?(\w+)\(", code))
    written_here |= {f"{name}_lanes" for name in re.findall(r"^LANES_OF\((\w+)\)", code, flags=re.M)}
    syntax = {"if", "for", "while", "float", "defined", "sizeof", "target", "target_clones", "name", "f", "k", "return",
              "aligned", "optimize"}  # fmt: skip
    exact = {"fabsf", "fabs", "copysignf", "copysign", "sqrt", "sqrtf", "floorf", "memcpy", "memset"}
    assert called - written_here - syntax == exact
    assert "fma" not in code
    flags = runpy.run_path(str(SOURCE.parent / "setup.py"))["KERNELS"]
    assert [SOURCE.parent / path for path in flags["sources"]] == [unit]
    assert [SOURCE.parent / path for path in flags["depends"]] == headers  # else they would not travel in an sdist
    assert "-ffp-contract=off" in flags["extra_compile_args"]
    assert not {"-ffast-math", "-Ofast", "-march=native"} & set(flags["extra_compile_args"])


def test_every_header_is_built():
    """gcc includes the headers of networks and tasks by setup.py, and from there on each header what it needs."""
    headers = {path.name: path for place in KERNELS for path in (SOURCE / place / "kernels").iterdir()}
    flags = runpy.run_path(str(SOURCE.parent / "setup.py"))["KERNELS"]["extra_compile_args"]
    waiting = [SOURCE / "rollouts/kernels.c", *(SOURCE.parent / path for path in flags if path.endswith(".h"))]
    reached = set()
    while waiting:
        path = waiting.pop()
        reached.add(path)
        included = {headers[name] for name in re.findall(r'#include "(.*)"', path.read_text())}
        waiting += included - reached
    assert reached - set(headers.values()) == {SOURCE / "rollouts/kernels.c"}
    assert reached >= set(headers.values())


def test_arrays_outlive_the_kernels_that_get_their_addresses():
    """Python frees an unnamed array right after its address was taken, and a generator's arrays when it ends."""
    freed = r"\)\.ctypes\.data|address\(np\.|= \(\w+\.ctypes\.data for \w+ in \("
    assert not [relative(path) for path in FILES if re.search(freed, path.read_text())]


PORTABLE = ("networks", "strategies", "numerics", "environments", "rollouts", "genome", "training")
LIBRARY_ORDER = {"dot", "inner", "matmul", "einsum", "tensordot", "vdot", "trace", "sum", "mean", "std", "var",
                 "average", "prod", "cumsum", "nansum", "nanmean"}  # fmt: skip
TRANSCENDENTAL = {"tanh", "exp", "expm1", "exp2", "log", "log1p", "log2", "sin", "cos", "power", "arctanh", "cbrt"}
WHOLE_NUMBERS = {("cumsum", "prune.py"), ("cumsum", "results.py"), ("prod", "spaces.py"), ("cumsum", "spaces.py"),
                 ("cumsum", "hebbian.py"), ("cumsum", "episodes.py"), ("cumsum", "device_play.py"),
                 ("cumsum", "native_play.py")}  # fmt: skip

SQUARES = {"(mean - connections) ** 2"}


def test_arithmetic_that_reaches_a_fitness_is_portable():
    """No BLAS, no libm, no reduction in the library's order: the array reference has the same bits on every CPU."""
    offenders = []
    for path in FILES:
        if place(path) not in PORTABLE:
            continue
        for node in nodes(path):
            used = None
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                used = "@"
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                # NumPy multiplies for a square; any other power of an array may be libm's pow.
                text = ast.unparse(node)
                if not re.fullmatch(r"[\d.]+ ?\*\* ?(\(?-?\d+\)?)", text) and text not in SQUARES:
                    used = text
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
                forbidden = node.attr in LIBRARY_ORDER | TRANSCENDENTAL
                used = f"np.{node.attr}" if forbidden and (node.attr, path.name) not in WHOLE_NUMBERS else None
            if used:
                offenders.append(f"{relative(path)}, line {node.lineno}: {used}")
    assert not offenders, "write x * x for a square, and use `ordered_sum` or the functions of evolve.numerics.portable"


def is_private(name):
    """Return whether a name is private to the package.

    `os._exit`, a method of Gymnasium's worlds, and methods that notebooks call, such as `_repr_html_`, are not.
    """
    if name.endswith("_") or name in ("_exit", "_clean_particles"):
        return False
    return name.startswith("_")


def private_names(tree):
    """Yield the private names that a test reads or replaces, and `__init__` if it is replaced; `self._x` is its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "self" and is_private(node.attr):
            yield f"line {node.lineno}: {node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            names = [str(part.value).rpartition(".")[2] for part in node.args[:2] if isinstance(part, ast.Constant)]
            yield from (f"line {node.lineno}: {name}" for name in names if is_private(name) or name == "__init__")


def test_tests_use_public_names():
    """So that a module can be rewritten inside without its tests."""
    tests = [path for path in Path(__file__).parent.rglob("test_*.py") if path.parent.name != "emulation"]
    offenders = [f"{path.name}, {name}" for path in tests for name in private_names(ast.parse(path.read_text()))]
    assert not offenders, "\n".join(offenders)
