"""The verdict: whether two runs are equal, and if not, where they differ first; for people and for machines."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from evolve.verification.manifest_table import fitted, side_by_side

Cause = Literal["configuration", "random stream", "strategy", "environment", "network", "log"]

ENGINE = "env.engine"
"""The setting in which two runs may differ and be equal: where two engines play the same episodes."""


@dataclass(frozen=True)
class Side:
    """One of the two: its name, and what it has where they differ first, as far as that is known.

    step_observation [O], step_action [A]: in the first step that differs.
    """

    name: str
    returned: float | None = None
    length: int | None = None
    step_observation: tuple[float, ...] | None = None
    step_action: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Verdict:
    """Equal or not; if not: where they differ first, the cause, and what differs there.

    what: genome, observations, actions, end, return, traces, or what of the log. step: 0 is what reset gives.
    configuration: (key, of one, of the other) for what differs; of equal ones that can be the engine alone. manifests:
    of the two, nested tables laid out.
    """

    equal: bool
    summary: str
    cause: Cause | None = None
    why: str = ""
    generation: int | None = None
    candidate: int | None = None
    episode: int | None = None
    step: int | None = None
    what: str | None = None
    sides: tuple[Side, ...] = ()
    configuration: tuple[tuple[str, Any, Any], ...] = ()
    manifests: tuple[dict[str, str], ...] = field(default=())

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "Verdict":
        """Return the verdict that `to_json` has laid out; numbers that were none stay None."""
        values = dict(table)
        values["sides"] = tuple(Side(**_with_tuples(side)) for side in table["sides"])
        values["configuration"] = tuple(tuple(part) for part in table["configuration"])
        values["manifests"] = tuple(table["manifests"])
        return cls(**values)

    def __str__(self) -> str:
        return self.to_text()

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can say; numbers that are none become null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def to_text(self, width: int | None = None) -> str:
        """Return it as lines for people; width: how many characters a line should have at most."""
        if self.equal:
            return "\n".join(fitted([f"equal: {self.summary}", *self._engines()], width))
        lines = [f"different: {self.summary}"]
        if self.cause:
            lines.append(f"{self.cause}: {self.why}")
        lines += [_values(side) for side in self.sides if side.step_observation is not None]
        if len(self.sides) == 2:
            one, other = self.sides
            lines += _positions("observations", one.step_observation, other.step_observation)
            lines += _positions("actions", one.step_action, other.step_action)
        lines += self._engines()
        others = [f"{key} ({a!r} against {b!r})" for key, a, b in self.configuration if key != ENGINE]
        if others:
            lines.append(f"configurations differ in {', '.join(others)}")
        elif not self.configuration and len(self.manifests) == 2:
            lines.append("configurations are the same")
        table = side_by_side([side.name for side in self.sides], self.manifests, width)
        return "\n".join(fitted([*lines, *table], width))

    def _engines(self) -> list[str]:
        """Return the line that names the engines, if these are two."""
        return [f"engines: {one} against {other}" for key, one, other in self.configuration if key == ENGINE]


def _positions(name: str, a: tuple[float, ...] | None, b: tuple[float, ...] | None) -> list[str]:
    if a is None or b is None or a == b:
        return []
    apart = [n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
    return [f"  {name} differ at {', '.join(map(str, apart[:12]))}{', …' * (len(apart) > 12)} of 0 to {len(a) - 1}"]


def _values(side: Side) -> str:
    observation, action = (
        " ".join(f"{value:.9g}" for value in values or ()) or "not known"
        for values in (side.step_observation, side.step_action)
    )
    return f"  {side.name}\n    observation  {observation}\n    action       {action}"


def as_texts(table: Mapping[str, Any]) -> dict[str, str]:
    """Return a table with its values as texts."""
    return {key: " ".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in table.items()}


def _with_tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
