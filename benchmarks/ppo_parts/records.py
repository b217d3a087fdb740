"""The record of a finished run: a JSON file for each task, method and seed."""

import json
import os
import platform
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evolve import __version__

SCHEMA = 1
METHODS = ("evolution", "ppo", "tqc")


@dataclass(frozen=True)
class Point:
    """A champion on the way: environment steps and seconds of training until then, and its held-out mean return.

    cpu_seconds: of all processes. Evolution's include the start of its processes and the held-out episodes of all
    points; PPO's and TQC's do not.
    """

    steps: int
    seconds: float
    cpu_seconds: float
    mean: float


@dataclass(frozen=True)
class Outcome:
    """A finished run: its points, the held-out returns of the last champion, and how it was made.

    digest: of evolution's run; None for the others.
    """

    curve: list[Point]
    returns: list[float]
    environment: dict[str, Any]
    settings: dict[str, Any]
    digest: str | None = None


def place(folder: Path, task: str, method: str, seed: int) -> Path:
    """Return the file of a run."""
    return folder / task / f"{method}-seed-{seed}.json"


def places(folder: Path) -> list[Path]:
    """Return the files of all runs below a folder."""
    return sorted(folder.glob("*/*-seed-*.json"))


def machine(cores: int) -> dict[str, Any]:
    """Return the properties of this machine, and its load over the last minute."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "cores used": cores,
        "platform": platform.platform(),
        "load": round(os.getloadavg()[0], 1),
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, evolve, and the installed ones of the packages."""
    found = {"python": platform.python_version(), "evolve": __version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def is_there(path: Path, asked: dict[str, Any]) -> bool:
    """Return whether a run is finished, and print so. Ends the process if it was run with other options."""
    if not path.exists():
        return False
    kept = json.loads(path.read_text())["asked"]
    if kept != asked:
        raise SystemExit(f"{path} was run with {kept}, not with {asked}. Choose another folder with -o.")
    print(f"{path} is there already", flush=True)
    return True


def write(path: Path, record: Any) -> None:
    """Write a record atomically, so that an existing file is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.replace(path)


def record_of(outcome: Outcome, before: dict[str, Any], cores: int, packages: Iterable[str]) -> dict[str, Any]:
    """Return the record of a run. before: the machine when it began."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"date": now, "machine": before, "load after": machine(cores)["load"], "versions": versions(packages)}
    return {"schema": SCHEMA} | about | asdict(outcome)


def read(folder: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the records below a folder by (task, method), in the order of seeds; each has its seed, too."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in places(folder):
        method, _, seed = path.stem.partition("-seed-")
        record = json.loads(path.read_text()) | {"seed": int(seed)}
        if record["schema"] != SCHEMA:
            raise SystemExit(f"{path}: expected schema {SCHEMA}, got {record['schema']}. Remove it and run it again.")
        found.setdefault((path.parent.name, method), []).append(record)
    for records in found.values():
        records.sort(key=lambda record: record["seed"])
    return found


def check_alike(found: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    """End the process with a message if runs of a task and a method have different options or settings."""
    for (task, method), (first, *others) in found.items():
        for other in others:
            if _set(first) != _set(other):
                seeds = f"seeds {first['seed']} and {other['seed']}"
                raise SystemExit(f"{task}, {method}: {seeds} were run with different settings. Remove what is old.")


def _set(record: dict[str, Any]) -> list[Any]:
    """Return the options and settings of a run without its seed."""
    experiment = tomllib.loads(record["settings"].get("experiment", "")) | {"seeds": None}
    return [record["asked"], record["settings"] | {"experiment": experiment}]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
