"""Markdown tables with their numbers, and their places on the pages of the site."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def figure(value: float) -> str:
    """Return a return as text with the digits that matter."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def clock(seconds: float) -> str:
    """Return a duration as text."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def fill(page: Path, section: str, content: str | Callable[[str], str]) -> None:
    """Put a text between the markers `<!-- section -->` and `<!-- end of section -->` of a page.

    content: The text, or a function from the present text to the new one. Raises ValueError if the page has no such
    markers.
    """
    begin, end = f"<!-- {section} -->", f"<!-- end of {section} -->"

    def new(found: re.Match[str]) -> str:
        return f"{begin}\n{content(found[1]) if callable(content) else content}\n{end}"

    text, places = re.subn(f"{begin}\n(.*?){end}", new, page.read_text(), flags=re.S)
    if not places:
        raise ValueError(f"{page} has no lines {begin} and {end}, between which a text could go")
    page.write_text(text)
