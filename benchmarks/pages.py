"""Tables in Markdown, and their places on the pages of the site."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def fill(page: Path, section: str, content: str | Callable[[str], str]) -> None:
    """Put a text in its place on a page, `<!-- section -->` … `<!-- end of section -->`, if the page has it.

    content: The text, or what makes it of that which stands there.
    """
    begin, end = f"<!-- {section} -->", f"<!-- end of {section} -->"

    def new(found: re.Match[str]) -> str:
        return f"{begin}\n{content(found[1]) if callable(content) else content}\n{end}"

    page.write_text(re.sub(f"{begin}\n(.*?){end}", new, page.read_text(), flags=re.S))
