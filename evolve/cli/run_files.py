"""Run files as arguments of a command: by name, or by a directory that holds them."""

from collections.abc import Sequence
from pathlib import Path

from evolve.errors import InputError

_SHOWN = 3
"""How many names an error lists."""


def file_argument(text: str) -> Path:
    """Return the path that an argument names. Raises InputError for an empty one, which a shell makes of nothing."""
    if not text:
        cure = "This directory is named by a dot."
        raise InputError("FILE", "the name of a file or a directory", "an empty text", cure)
    return Path(text)


def run_files(paths: Sequence[Path]) -> list[Path]:
    """Return the run files that arguments name; a directory stands for those in it and below it, in order of seeds.

    Raises InputError for a directory without any.
    """
    found: list[Path] = []
    for path in paths:
        inside = run_files_in(path)
        found += [path] if inside is None else [file for file in inside if file not in found]
    return found


def one_run_file(path: Path) -> Path:
    """Return the run file that an argument names, which may be the only one in a directory. Raises InputError."""
    inside = run_files_in(path) or [path]
    if len(inside) > 1:
        shown = ", ".join(map(str, inside[:_SHOWN])) + (", …" if len(inside) > _SHOWN else "")
        cure = f"Name one of them: {shown}."
        raise InputError(str(path), "one run file, or a directory that holds one", f"{len(inside)} of them", cure)
    return inside[0]


def run_files_in(path: Path) -> list[Path] | None:
    """Return the run files in a directory and below it; None where `path` is none. Raises InputError without any."""
    if not path.is_dir():
        return None
    found = sorted((file for file in path.rglob("seed-*.h5") if file.is_file()), key=_order)
    if not found:
        raise InputError(str(path), "a directory that holds run files (seed-S.h5)", "none in it or below it")
    return found


def _order(path: Path) -> tuple[Path, int, str]:
    seed = path.stem.removeprefix("seed-")
    return path.parent, int(seed) if seed.isdecimal() else -1, seed
