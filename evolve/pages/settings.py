"""What runs were set to and ran on: in which settings experiments differ, and their manifests side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.config import differences
from evolve.errors import plain
from evolve.figures import Experiment
from evolve.pages.facts import Table
from evolve.pages.words import words
from evolve.store import Run

_DEEPEST = 8  # dictionaries in dictionaries


@dataclass(frozen=True)
class Row:
    """An entry: (who, value) for each value it has; `who` is empty where all have the same."""

    key: str
    values: tuple[tuple[str, str], ...]

    @property
    def differs(self) -> bool:
        """Whether not all have the same value."""
        return bool(self.values[0][0])


def settings_apart(experiments: Sequence[Experiment]) -> Table | None:
    """Return the settings in which experiments differ, the longer side downwards; None where there are none."""
    first, *others = experiments
    apart = [differences(first.config, other.config) for other in others]
    base = {key: ours for found in apart for key, ours, _ in found}
    tables = [base, *(base | {key: theirs for key, _, theirs in found} for found in apart)]
    keys, labels = sorted(base), [experiment.label for experiment in experiments]
    across = [[words(table[key]) for key in keys] for table in tables]
    if not keys:
        return None
    if len(keys) <= len(labels):
        head, side, body = keys, labels, across
    else:
        head, side, body = labels, keys, [list(column) for column in zip(*across, strict=True)]
    columns = ("experiment" if side is labels else "setting", ""), *((name, "key") for name in head)
    rows = tuple((name, *values) for name, values in zip(side, body, strict=True))
    return Table("Where the experiments differ", tuple(columns), rows)


def manifests(names: Sequence[str], runs: Sequence[Run]) -> list[Row]:
    """Return the manifests of runs side by side, nested dictionaries laid out."""
    return _side_by_side(names, [_flat(run.header.manifest) for run in runs])


def _side_by_side(names: Sequence[str], tables: Sequence[Mapping[str, str]]) -> list[Row]:
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        owners: dict[str, list[str]] = {}
        for name, table in zip(names, tables, strict=True):
            owners.setdefault(table.get(key, "none"), []).append(name)
        same = len(owners) == 1
        rows.append(Row(key, tuple(("" if same else ", ".join(who), value) for value, who in owners.items())))
    return rows


def _flat(table: Mapping[str, object], prefix: str = "", depth: int = 0) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.items():
        name = f"{prefix}{plain(key)}"
        if isinstance(value, Mapping) and value and depth < _DEEPEST:
            found |= _flat(value, f"{name}.", depth + 1)
        else:
            found[name] = words(value, " " if key == "command" else ", ")
    return found
