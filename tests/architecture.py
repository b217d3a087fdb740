"""The order of the packages, and counts of modules and lines: `python tests/architecture.py` prints them.

`test_architecture.py` enforces the rules.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "evolve"
FILES = sorted(SOURCE.rglob("*.py"))
ENTRY_POINTS = ("__main__", "run", "verify", "replay", "plot", "evaluate", "report", "bench")
LADDER = [  # from the top down: each may import what is below it, and itself
    set(ENTRY_POINTS),
    {"cli"},
    {"api"},
    {"analysis"},
    {"verification"},
    {"training"},
    {"cluster"},
    {"rollouts"},
    {"strategies", "networks", "environments", "store"},
    {"genome"},
    {"numerics"},
    {"config"},
    {"shapes", "errors", "display"},
]
LEVEL = {name: level for level, names in enumerate(LADDER) for name in names}


def place(path: Path) -> str:
    """Return the package, or the module at the top, that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def relative(path: Path) -> str:
    """Return a file's path inside `evolve/`, with forward slashes."""
    return path.relative_to(SOURCE).as_posix()


def module(path: Path) -> str:
    """Return the dotted name of a file."""
    return ".".join(("evolve", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file's syntax tree, parsed once."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> Iterator[str]:
    """Yield the names that a file imports: modules, and names inside modules."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages() -> list[str]:
    """Return the names of the packages at the top."""
    return sorted({place(path) for path in FILES if len(path.relative_to(SOURCE).parts) > 1})


def top_modules() -> list[str]:
    """Return the modules at the top, without the entry points."""
    return sorted({path.stem for path in SOURCE.glob("*.py")} - set(ENTRY_POINTS))


def arrows() -> set[tuple[str, str]]:
    """Return the pairs of packages of which the first imports the second."""
    known = set(LEVEL)
    found = set()
    for path in FILES:
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "evolve" and len(parts) > 1 and parts[1] in known - {place(path)}:
                found.add((place(path), parts[1]))
    return found


def module_imports(path: Path) -> Iterator[str]:
    """Yield the modules of evolve that a file imports, inside functions too."""
    known = {module(file) for file in FILES}
    # Imports for the type checker alone cannot make a cycle.
    skipped = {
        inner
        for node in nodes(path)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in nodes(path):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in names if node.module in known)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def cycles() -> list[str]:
    """Return the modules that are part of an import cycle; a package's `__init__` is a module of its own."""
    imported = {module(path): set(module_imports(path)) - {module(path)} for path in FILES}
    found = []
    for start in imported:
        reached: set[str] = set()
        todo = [start]
        while todo:
            for name in imported[todo.pop()] - reached:
                reached.add(name)
                todo.append(name)
        if start in reached:
            found.append(start)
    return found


@dataclass(frozen=True)
class Lines:
    """The lines of a file, by kind; the kinds add up to all of its lines."""

    code: int
    imports: int
    docstrings: int
    comments: int
    blank: int


def count_lines(path: Path) -> Lines:
    """Count the lines of a file; a comment counts if it has a line of its own."""
    text = path.read_text()
    kinds = ["blank" if not line.strip() else "code" for line in text.splitlines()]
    for number, line in enumerate(text.splitlines()):
        if line.lstrip().startswith("#"):
            kinds[number] = "comments"
    for node in nodes(path):
        kind = None
        if isinstance(node, ast.Import | ast.ImportFrom):
            kind = "imports"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            kind = "docstrings"
        if kind:
            assert isinstance(node, ast.stmt)
            assert node.end_lineno is not None
            kinds[node.lineno - 1 : node.end_lineno] = [kind] * (node.end_lineno - node.lineno + 1)
    count = Counter(kinds)
    return Lines(*(count[field] for field in Lines.__dataclass_fields__))


EXACT_PHYSICS = {"environments/physics/", "environments/exact/bipedal_walker.py", "environments/exact/lunar_lander.py"}


def is_exact_physics(path: Path) -> bool:
    """Return whether a file belongs to the physics of walkers and landers."""
    return relative(path).startswith(tuple(EXACT_PHYSICS))


def main() -> None:
    """Print the counts."""
    lengths = sorted(len(path.read_text().splitlines()) for path in FILES)
    print(f"packages at the top: {len(packages())} ({' '.join(packages())})")
    print(f"modules at the top, beside the entry points: {len(top_modules())} ({' '.join(top_modules())})")
    print(f"modules: {len(FILES)}, median {lengths[len(lengths) // 2]} lines, longest {lengths[-1]}")
    print(f"{'':14}modules  " + "  ".join(f"{field:>10}" for field in Lines.__dataclass_fields__) + "       total")
    groups = {name: [path for path in FILES if place(path) == name] for name in packages()}
    groups["top"] = [path for path in FILES if path.parent == SOURCE]
    groups["all"] = FILES
    groups["exact physics"] = [path for path in FILES if is_exact_physics(path)]
    for name, files in groups.items():
        counts = [astuple(count_lines(path)) for path in files]
        sums = [sum(column) for column in zip(*counts, strict=True)]
        print(f"{name:14}{len(files):7}  " + "  ".join(f"{n:10,}" for n in [*sums, sum(sums)]))
    up = sorted((a, b) for a, b in arrows() if a in LEVEL and LEVEL[b] <= LEVEL[a])
    print(f"arrows between packages: {len(arrows())}; up: {up or 'none'}")
    print(f"import cycles between modules: {' '.join(cycles()) or 'none'}")


if __name__ == "__main__":
    main()
