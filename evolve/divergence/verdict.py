"""The verdict: what two runs came to beside one another, for people and for machines."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from evolve.divergence.layout import fitted, side_by_side

Cause = Literal["configuration", "random stream", "strategy", "environment", "network", "log"]


@dataclass(frozen=True)
class Side:
    """One of the two: its name, and what it has at the place where they part, as far as that is known.

    step_observation [O], step_action [A]: in the step at which they part.
    """

    name: str
    returned: float | None = None
    length: int | None = None
    step_observation: tuple[float, ...] | None = None
    step_action: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Verdict:
    """Equal or not; if not: the first place, the cause, and what parts first there.

    what: genome, observations, actions, end, return, traces, or what of the log. step: 0 is what reset gives.
    configuration: (key, of one, of the other) for what differs. manifests: of the two, flat.
    """

    equal: bool
    told: str
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

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can say; numbers that are none become null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def to_text(self, width: int | None = None) -> str:
        """Return it as lines for people; width: how many characters a line should have at most."""
        if self.equal:
            return "\n".join(fitted([f"equal: {self.told}"], width))
        lines = [f"different: {self.told}"]
        if self.cause:
            lines.append(f"{self.cause}: {self.why}")
        lines += [_values(side) for side in self.sides if side.step_observation is not None]
        if len(self.sides) == 2:
            one, other = self.sides
            lines += _positions("observations", one.step_observation, other.step_observation)
            lines += _positions("actions", one.step_action, other.step_action)
        if self.configuration:
            keys = ", ".join(f"{key} ({a!r} against {b!r})" for key, a, b in self.configuration)
            lines.append(f"configurations differ in {keys}")
        elif len(self.manifests) == 2:
            lines.append("configurations are the same")
        table = side_by_side([side.name for side in self.sides], self.manifests, width)
        return "\n".join(fitted([*lines, *table], width))


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


def flat(table: Mapping[str, Any], prefix: str = "", deepest: int = 8) -> dict[str, str]:
    """Return a manifest with nested tables laid out: dotted names, values as text."""
    rows: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and deepest:
            rows |= flat(value, f"{prefix}{key}.", deepest - 1)
        else:
            rows[prefix + str(key)] = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
