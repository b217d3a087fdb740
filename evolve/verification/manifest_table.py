"""Lines for people: two manifests side by side, or below one another where a terminal is too narrow for that."""

import textwrap

from evolve.errors import sanitize

_WIDEST = 48
_NARROWEST = 20


def side_by_side(names: list[str], manifests: tuple[dict[str, str], ...], width: int | None) -> list[str]:
    """Return the manifests side by side, rows that differ marked; those alone where this is wider than `width`."""
    if len(manifests) != 2 or not any(manifests):
        return []
    one, other = manifests
    keys = [key for key in (one | other) if key != "command"]
    rows = [(_short(k), _short(one.get(k, "")), _short(other.get(k, "")), one.get(k) != other.get(k)) for k in keys]
    broad = max(len(row[0]) for row in rows)
    wide = max(len(_short(names[0])), *(len(row[1]) for row in rows))
    lines = [f"  {'':{broad}}  {_short(names[0]):{wide}}    {_short(names[1])}"]
    lines += [f"  {key:{broad}}  {a:{wide}}  {'≠' if apart else ' '} {b}" for key, a, b, apart in rows]
    return lines if width is None or max(map(len, lines)) <= width else _stacked(names, rows)


def _stacked(names: list[str], rows: list[tuple[str, str, str, bool]]) -> list[str]:
    """Return the rows that differ, the values below one another."""
    one, other = (_short(name) for name in names)
    apart = [(key, a, b) for key, a, b, differs in rows if differs]
    lines = [line for key, a, b in apart for line in (f"  {key}", f"    {one}: {a}", f"    {other}: {b}")]
    return lines or ["manifests are the same"]


def fitted(lines: list[str], width: int | None) -> list[str]:
    """Return lines that are too long broken between words, and what follows indented."""
    if width is None:
        return lines
    return [part for line in lines for part in _broken(line, max(width, _NARROWEST))]


def _broken(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    whole = textwrap.TextWrapper(width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line] if len(line) <= width else whole.wrap(line)


def _short(text: str) -> str:
    """Return a text without control characters, and not too long: manifests may come from anybody."""
    text = sanitize(text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
