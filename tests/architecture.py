"""The order of the packages, and what can be counted of it: `python tests/architecture.py` prints the counts.

Shared by `test_architecture.py`, which holds the rules.
"""

import ast
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

SOURCE = Path(__file__).parent.parent / "evolve"
FILES = sorted(SOURCE.rglob("*.py"))
ENTRY_POINTS = ("run", "verify", "replay", "plot", "evaluate", "report", "bench")
LADDER = [  # from the top down: each may import what is below it, and itself
    {*ENTRY_POINTS, "__main__"},
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
    {"shapes", "errors"},
]
LEVEL = {name: level for level, names in enumerate(LADDER) for name in names}


def place(path: Path) -> str:
    """Return the package, or the module at the top, that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def module(path: Path) -> str:
    """Return the dotted name of a file."""
    return ".".join(("evolve", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports, names inside modules too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages() -> list[str]:
    """Return the packages at the top."""
    return sorted({place(path) for path in FILES if len(path.relative_to(SOURCE).parts) > 1})


def top_modules() -> list[str]:
    """Return the modules at the top, without the entry points."""
    return sorted({path.stem for path in SOURCE.glob("*.py")} - set(ENTRY_POINTS))


def arrows() -> set[tuple[str, str]]:
    """Return which package imports which."""
    known = set(LEVEL)
    found = set()
    for path in FILES:
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "evolve" and len(parts) > 1 and parts[1] in known - {place(path)}:
                found.add((place(path), parts[1]))
    return found


def shared_names() -> list[str]:
    """Return the names that two modules, or two public classes, have in common; the entry points are those of `cli`."""
    modules = Counter(p.stem for p in FILES if p.stem not in ("__init__", "__main__") and p.parent != SOURCE)
    classes = Counter(
        node.name
        for path in FILES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for names in (modules, classes) for name, count in names.items() if count > 1)


def executed() -> list[str]:
    """Return the modules whose functions run in a generation of a serial run: ask, evaluate, tell, record, file.

    It is the second one; the first makes environments, which is no generation's work.
    """
    from evolve.cluster import Coordinator, Transport
    from evolve.config import Config, parse
    from evolve.store import Header, create
    from evolve.training import iterate, make_rollout, prepare

    known = {str(path): module(path) for path in FILES}
    found: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        name = known.get(frame.f_code.co_filename)
        if event == "call" and name is not None and frame.f_code.co_name != "<module>":
            found.add(name)

    experiment = prepare(parse(Config, {"population": 8, "episodes": 2, "generations": 3, "held_out_episodes": 0}))
    with tempfile.TemporaryDirectory() as folder:
        file = create(Path(folder) / "seed-0.h5", Header(experiment.config.to_toml(), {}, 0, "CartPole-v1"))
        generations = iterate(experiment, Coordinator(Transport(), make_rollout), file)
        next(generations)
        file._flushed_at = -float("inf")  # a flush is due
        sys.setprofile(profile)
        try:
            next(generations)
        finally:
            sys.setprofile(None)
        generations.close()
        file.close()
    return sorted(found)


def main() -> None:
    """Print the counts."""
    lines = [len(path.read_text().splitlines()) for path in FILES]
    print(f"packages at the top: {len(packages())} ({' '.join(packages())})")
    print(f"modules at the top, beside the entry points: {len(top_modules())} ({' '.join(top_modules())})")
    print(f"modules: {len(FILES)}, {sum(lines):,} lines, the longest {max(lines)}")
    up = sorted((a, b) for a, b in arrows() if a in LEVEL and LEVEL[b] <= LEVEL[a])
    print(f"arrows between them: {len(arrows())}; up: {up or 'none'}")
    modules = executed()
    print(f"modules that a serial generation executes: {len(modules)} ({' '.join(modules)})")
    print(f"names that two modules or two classes share: {', '.join(shared_names()) or 'none'}")


if __name__ == "__main__":
    main()
