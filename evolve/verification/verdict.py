"""A `Verdict` says whether two runs are equal and, if not, their first difference and its cause: as text, JSON or HTML.

`explain` returns the cause of a kind of difference. `comparison.py` and `repetition.py` make verdicts.
"""

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from evolve.config import flatten
from evolve.errors import sanitize
from evolve.training.manifest import PORTABLE, USER_FUNCTION

_MAX_VALUE = 48  # characters of a value in the table of manifests
_MIN_WIDTH = 20  # the smallest width to break lines for, in characters; a narrower terminal breaks them itself

HERE = "this machine"
"""The name of a `Side` that is not read from a file, but is the run repeated on this machine."""
ENGINE = "env.engine"
"""The only setting in which equal runs may differ, because two engines can play the same episodes."""
_ALGEBRA_ENTRIES = ("packages.numpy", "blas", "cpu", "cpu features")
"""The entries of a manifest that decide the bits of a library's linear algebra."""


def _manifest_lines(names: list[str], manifests: tuple[dict[str, str], ...], width: int | None) -> list[str]:
    """Return a table with the different entries of two manifests, or a line that says that no entries differ.

    Return no lines unless there are two manifests, and at least one has entries.

    names: The names of the two runs. width: The characters of the longest line; None if there is no limit.
    """
    if len(manifests) != 2 or not any(manifests):
        return []
    one, other = manifests
    # Different commands may describe the same run.
    keys = [key for key in one | other if key != "command" and one.get(key) != other.get(key)]
    if not keys:
        return ["manifests are the same: versions, machine and ranks"]
    # Imported here, because the import takes a tenth of a second and most verdicts show no table.
    from evolve.display import table  # noqa: PLC0415

    rows = [(key, one.get(key, ""), other.get(key, "")) for key in keys]
    cells = [[_short(text) for text in row] for row in [("", *names), *rows]]
    lines = table(cells, width, left=range(3), indent="  ").splitlines()
    return ["manifests differ in", *lines]


def _broken_line(line: str, width: int | None) -> str:
    """Return a line, broken between words if it has more than `width` characters. All lines but the first are indented.

    None means that there is no limit.
    """
    if width is None or len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _short(text: str) -> str:
    """Return a short text without control characters, because a manifest may come from an untrusted file."""
    text = sanitize(text)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def html_table(title: str, rows: Mapping[str, str | None]) -> str:
    """Return names and texts as an HTML table of two columns for a notebook. Rows without a text are left out."""
    return html_rows(title, (), [(name, text) for name, text in rows.items() if text])


def html_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of texts as an HTML table that suits light and dark notebooks.

    columns: The headings of the columns. Without them, the first cell of each row is the heading of the row.
    """
    style = "text-align:left;padding:1px 16px 1px 0;vertical-align:top"

    def heading(scope: str, text: str) -> str:
        return f'<th scope="{scope}" style="{style};font-weight:normal;opacity:.7">{html.escape(text)}</th>'

    def cell(text: str) -> str:
        return f'<td style="{style};overflow-wrap:anywhere">{html.escape(text)}</td>'

    lines = [[f'<td colspan="{len(columns) or 2}" style="{style};font-weight:600">{html.escape(title)}</td>']]
    if columns:
        lines.append([heading("col", text) for text in columns])
        lines += [[cell(text) for text in row] for row in rows]
    else:
        lines += [[heading("row", row[0]), *map(cell, row[1:])] for row in rows]
    body = "".join(f'<tr style="background:none">{"".join(line)}</tr>' for line in lines)
    return f'<table style="border-collapse:collapse;font-size:13px;margin:0">{body}</table>'


Cause = Literal["configuration", "random stream", "strategy", "environment", "network", "log"]
_Numbers = tuple[float | None, ...]


@dataclass(frozen=True)
class Side:
    """One of the two runs, and its values at the first difference. Unknown values are None.

    Attributes:
        name: The path of the run's file, or another name.
        returned: The return of the first different episode.
        length: The number of steps of this episode.
        step_observation: [O], the observation in the first different step. If the verdict comes from JSON, numbers that
            were not finite are None.
        step_action: [A], the action in this step.
    """

    name: str
    returned: float | None = None
    length: int | None = None
    step_observation: _Numbers | None = None
    step_action: _Numbers | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether two runs are equal. If they are not, the place, the cause and the kind of the first difference.

    Attributes:
        equal: Whether they are equal.
        summary: The result in one sentence.
        cause: The part of evolve or of the experiment that caused the difference; None if the runs are equal, or differ
            only in their lengths.
        why: The reason to assume that cause.
        generation: The generation that differs first.
        candidate: The candidate in this generation.
        episode: The episode of this candidate.
        step: The step of this episode. Step 0 is the observation of reset.
        what: The kind of difference, such as "genome" or "actions". `_REASONS` has all kinds. None if the runs are
            equal, or differ only in their lengths or settings.
        sides: The two runs; empty if a run and its repetition are equal.
        configuration: Triples (key, one value, other value) of the different settings, and of different seeds. Equal
            runs may differ in `ENGINE` only.
        manifests: The known manifests of the two runs, see `manifest_texts`.
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
    manifests: tuple[dict[str, str], ...] = ()

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "Verdict":
        """Return the verdict from the table that `to_json` returned. Numbers that were not finite are None."""
        return TypeAdapter(cls).validate_python(table)

    def __bool__(self) -> bool:
        """Whether the runs are equal, so that `assert run.verify()` fails for a difference."""
        return self.equal

    def __repr__(self) -> str:
        return f"<Verdict: {'equal' if self.equal else 'different'}: {self.summary}>"

    def __str__(self) -> str:
        return self.to_text()

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as a table for JSON. Numbers that are not finite become None."""
        return _for_json(asdict(self))

    def to_text(self, width: int | None = None) -> str:
        """Return the verdict as lines of text. width: Characters of the longest line, at least 20; None: no limit."""
        width = None if width is None else max(width, _MIN_WIDTH)
        table = _manifest_lines([side.name for side in self.sides], self.manifests, width)
        lines = [f"equal: {self.summary}", *self._engine_lines()] if self.equal else self._difference_lines()
        return "\n".join(_broken_line(line, width) for line in [*lines, *table])

    def _difference_lines(self) -> list[str]:
        """Return the lines about the first difference, and about the different settings."""
        lines = [f"different: {self.summary}"]
        if self.cause:
            lines.append(f"{self.cause}: {self.why}")
        for side in self.sides:
            if side.step_observation is not None:
                observation, action = _numbers(side.step_observation), _numbers(side.step_action)
                lines += [f"  {side.name}", f"    observation  {observation}", f"    action       {action}"]
        if len(self.sides) == 2:
            one, other = self.sides
            lines += _position_lines("observations", one.step_observation, other.step_observation)
            lines += _position_lines("actions", one.step_action, other.step_action)
        lines += self._engine_lines()
        settings = [f"{key} ({a!r} against {b!r})" for key, a, b in self.configuration if key != ENGINE]
        if settings:
            lines.append(f"configurations differ in {', '.join(settings)}")
        # Say this only if two files were compared. A comparison with a published digest has one manifest. In a
        # repetition, the second side has the name `HERE`, and the configuration of the file.
        elif not self.configuration and len(self.manifests) == 2 and not (self.sides and self.sides[-1].name == HERE):
            lines.append("configurations are the same")
        return lines

    def _repr_html_(self) -> str:
        parts = ((name, getattr(self, name)) for name in ("generation", "candidate", "episode", "step"))
        place = ", ".join(f"{name} {number}" for name, number in parts if number is not None)
        returns = " against ".join(repr(side.returned) for side in self.sides if side.returned is not None)
        engines = "; ".join(self._engine_lines()).removeprefix("engines: ")
        rows = {"first difference": place, "differs": self.what, "returns": returns, "cause": self.cause,
                "reason": self.why, "engines": engines}  # fmt: skip
        sign = "\N{CHECK MARK} equal" if self.equal else "\N{MULTIPLICATION X} different"
        return html_table(f"{sign}: {self.summary}", rows)

    def _engine_lines(self) -> list[str]:
        """Return a line that names the engines if they differ; otherwise no line."""
        return [f"engines: {one} against {other}" for key, one, other in self.configuration if key == ENGINE]


def _for_json(value: Any) -> Any:
    """Return a value for JSON: lists in place of tuples, and None in place of numbers that are not finite."""
    if isinstance(value, Mapping):
        return {key: _for_json(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_for_json(part) for part in value]
    if isinstance(value, str):  # a path may have bytes that are not UTF-8
        return value.encode("utf-8", "backslashreplace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _position_lines(name: str, a: _Numbers | None, b: _Numbers | None) -> list[str]:
    """Return a line with the first 12 positions at which two vectors differ; no line if they are equal or unknown."""
    if a is None or b is None:
        return []
    # Compare the numbers as the step hashes do: `repr` distinguishes -0.0 from 0.0, and NaN equals NaN.
    positions = [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if repr(x) != repr(y)]
    if not positions:
        return []
    shown = ", ".join(map(str, positions[:12])) + (", …" if len(positions) > 12 else "")
    return [f"  {name} differ at {shown} of 0 to {len(a) - 1}"]


def _numbers(values: _Numbers | None) -> str:
    """Return a vector as a text."""
    words = ["not finite" if value is None else f"{value:.9g}" for value in values or ()]
    return " ".join(words) or "not known"


def manifest_texts(*manifests: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
    """Return manifests with dotted keys in place of nested tables, and with texts as values."""
    return tuple({key: _as_text(value) for key, value in flatten(table).items()} for table in manifests)


def _as_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


_REASONS: dict[Cause, dict[str, str]] = {
    "configuration": {"shape": "the numbers of candidates or episodes differ"},
    "random stream": {
        "genome": "the strategy asked for other genomes",
        "init": "these are not the initial genomes of seed {seed}",
    },
    "strategy": {
        "algebra": "the strategy's linear algebra is not portable, so its genomes depend on the machine as well",
        "function": "the fitness is a function of the user, and its code or arithmetic may differ here",
        "added": "the strategy of another package asks for other genomes here: its code or its version may differ, "
        "or it keeps something outside of its state",
        "hidden": "the strategy of another package may keep something outside of its state, or draw random numbers "
        "elsewhere; otherwise the file was changed",
    },
    "environment": {
        "reset": "the observations of reset differ already: the environment differs, or its seed",
        "observations": "the observations differ in step {step}; all earlier observations and actions are equal",
        "end": "only one side has a step {step}; everything before is equal",
        "late": "the episodes differ in step {step} or later; no hashes of these steps are kept",
        "return": "observations and actions are equal, but not the return: the rewards differ, or the log does",
        "metrics": "observations, actions and return are equal, but a metric differs: info differs, or the log does",
        "somewhere": "observations and actions differ in an unknown step: this candidate has no step hashes",
        "held-out": "held-out episodes have different returns, or their log was changed",
        "validation": "validation episodes have different returns, or their log or their settings were changed",
        "digest": "the repeated run differs; to see the first difference, verify the original run file, if it was kept",
        "spaces": "the environment has other spaces here, or the file was changed",
    },
    "network": {
        "actions": "the actions differ in step {step}, though all observations so far are equal",
        "last action": "the observations are equal, but not the actions",
        "traces": "observations and actions are equal, but not the Hebbian traces after them",
        "weights": "the stored genome is not the one that was evaluated: a weight or a connection was changed",
    },
    "log": {
        "log": "the evaluations are equal, so their log was changed afterwards",
        "changed": "equal digests prove equal genomes and episodes, so a log was changed afterwards",
        "fitness": "the fitness follows from the returns, so the log was changed afterwards",
        "portable": "this experiment has one digest everywhere, so the file was changed, or evolve works differently",
    },
}
"""The kinds of differences that each cause explains, and for each kind the reason to assume this cause."""


def explain(kind: str, step: int | None, seed: int = 0) -> tuple[Cause, str]:
    """Return the cause of a kind of difference, and the reason to assume that cause. step, seed: for the reason."""
    # Step 0 is the observation of reset, before the first action.
    if kind == "observations" and step == 0:
        kind = "reset"
    cause = next(cause for cause, kinds in _REASONS.items() if kind in kinds)
    return cause, _REASONS[cause][kind].format(step=step, seed=seed)


def refined_kind(kind: str, generation: int | None, manifests: tuple[dict[str, str], ...]) -> str:
    """Return a kind of difference, replaced by another kind if the manifests of both sides explain more.

    - "function" replaces "log" if the fitness is a function of the user, by the entry "strategy" of a manifest. Such a
      function does not explain different genomes, because the fitness in all earlier generations is equal.
    - "algebra" replaces "genome" after generation 0, if two different machines ran a strategy with linear algebra that
      is not portable.
    """
    if any(USER_FUNCTION in side.get("strategy", "") for side in manifests):
        return "function" if kind == "log" else kind
    one, other = manifests
    is_later_genome = kind == "genome" and bool(generation)
    is_portable = one.get("strategy", PORTABLE) == other.get("strategy", PORTABLE) == PORTABLE
    same_machine = all(one.get(key) == other.get(key) for key in _ALGEBRA_ENTRIES)
    return "algebra" if is_later_genome and not is_portable and not same_machine else kind
