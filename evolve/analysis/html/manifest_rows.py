"""What runs were set to and ran on: the settings in which groups differ, and the manifests of runs side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.analysis.formatting import words
from evolve.analysis.groups import RunGroup
from evolve.analysis.html.report_tables import ReportTable
from evolve.config import differences, flatten
from evolve.errors import sanitize
from evolve.store import StoredRun


@dataclass(frozen=True)
class ManifestRow:
    """An entry of the manifests: (who, value) for each value it has; `who` is empty where all runs have the same."""

    key: str
    values: tuple[tuple[str, str], ...]

    @property
    def differs(self) -> bool:
        """Whether not all runs have the same value."""
        return bool(self.values[0][0])


def differing_settings(groups: Sequence[RunGroup]) -> ReportTable | None:
    """Return the settings in which groups differ, the longer side downwards; None where there are none."""
    first, *others = groups
    apart = [differences(first.config, other.config) for other in others]
    base = {key: ours for found in apart for key, ours, _ in found}
    if not base:
        return None
    settings = [base, *(base | {key: theirs for key, _, theirs in found} for found in apart)]
    keys = sorted(base)
    labels = [group.label for group in groups]
    cells = [[words(table[key]) for key in keys] for table in settings]
    if len(keys) <= len(labels):
        return _table("experiment", labels, keys, cells)
    return _table("setting", keys, labels, [list(column) for column in zip(*cells, strict=True)])


def _table(corner: str, side: Sequence[str], head: Sequence[str], cells: Sequence[Sequence[str]]) -> ReportTable:
    columns = ((corner, ""), *((name, "key") for name in head))
    rows = tuple((name, *values) for name, values in zip(side, cells, strict=True))
    return ReportTable("Settings in which the experiments differ", columns, rows)


def manifest_rows(names: Sequence[str], runs: Sequence[StoredRun]) -> list[ManifestRow]:
    """Return the manifests of named runs side by side, nested tables laid out under dotted keys."""
    tables = [_flat(run.header.manifest) for run in runs]
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        owners: dict[str, list[str]] = {}
        for name, table in zip(names, tables, strict=True):
            owners.setdefault(table.get(key, "none"), []).append(name)
        same = len(owners) == 1
        rows.append(ManifestRow(key, tuple(("" if same else ", ".join(who), value) for value, who in owners.items())))
    return rows


def _flat(manifest: Mapping[str, object]) -> dict[str, str]:
    """Return a manifest as texts, sanitized since anybody may have written it."""
    return {sanitize(key): words(value, " " if key == "command" else ", ") for key, value in flatten(manifest).items()}
