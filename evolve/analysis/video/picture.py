"""One picture of a film: a strip that says what is seen, and below it what the environment drew.

Players put their controls over the lower edge.
"""

from dataclasses import dataclass
from typing import Any

from evolve.analysis.formatting import number
from evolve.analysis.video.libraries import library
from evolve.shapes import UInt8

_PAPER = "#fafafa"
_LINE = "#d8d8d8"
_INK = "#222222"
_FAINT = "#757575"
_NARROWEST = 320  # pixels: smaller pictures are enlarged
_WIDEST = (("step", "0000"), ("return", "-000.00"))  # values that most episodes have


@dataclass(frozen=True)
class Label:
    """What the strip says: the environment, what is played ("generation 10"), the step, and the return so far."""

    environment: str
    playing: str
    step: int
    returned: float


class Painter:
    """Paints all pictures of a film, which have one size.

    Args:
        frame: [H, W, 3], the first of the film.
        width: The widest that the film may be, in pixels.
    """

    def __init__(self, frame: UInt8, width: int | None) -> None:
        high, wide = frame.shape[:2]
        scale = max(1.0, -(-_NARROWEST // wide))
        if width is not None and wide * scale > width:
            scale = width / wide
        self._within = round(wide * scale), round(high * scale)
        self._text = max(12, min(20, self._within[0] // 38))
        self._rows = 1 if self._within[0] >= 36 * self._text else 2
        # Even sizes, as H.264 wants them: a line is added to the strip, and the last column is shown twice.
        self._strip = round(self._text * (0.8 + 1.3 * self._rows))
        self._strip += (self._within[1] + self._strip) % 2
        self.size = self._within[0] + self._within[0] % 2, self._within[1] + self._strip

    def paint(self, frame: UInt8, label: Label) -> Any:
        """Return the picture of a frame [H, W, 3]."""
        image = library("PIL.Image")
        seen = image.fromarray(frame)
        if seen.size != self._within:
            larger = self._within[0] > seen.size[0]
            seen = seen.resize(self._within, image.Resampling.NEAREST if larger else image.Resampling.LANCZOS)
        page = image.new("RGB", self.size, _PAPER)
        page.paste(seen, (self.size[0] - self._within[0], self._strip))
        page.paste(seen, (0, self._strip))
        self._write(library("PIL.ImageDraw").Draw(page), label)
        return page

    def _write(self, draw: Any, label: Label) -> None:
        wide = self.size[0]
        margin = self._text * 3 // 4
        font = _font(self._text)
        draw.line([(0, self._strip - 1), (wide, self._strip - 1)], _LINE)
        first = 1.05 * self._text
        last = first + 1.3 * self._text * (self._rows - 1)
        values = {"step": f"{label.step}", "return": number(label.returned)}
        # Each value has a place of its own, so that nothing moves when a value grows.
        gap = 0.4 * self._text
        places = [
            font.getlength(name) + gap + max(font.getlength(value) for value in (values[name], widest))
            for name, widest in _WIDEST
        ]
        begin = x = margin if self._rows == 2 else wide - 2 * margin - sum(places)
        for (name, value), place in zip(values.items(), places, strict=True):
            draw.text((x, last), name, _FAINT, font, "lm")
            draw.text((x + font.getlength(name) + gap, last), value, _INK, font, "lm")
            x += place + margin
        room = (begin if self._rows == 1 else wide) - 3 * margin - font.getlength(label.playing)
        name = _shortened(label.environment.rpartition(":")[2], font, room)
        draw.text((margin, first), name, _INK, font, "lm")
        draw.text((2 * margin + font.getlength(name), first), label.playing, _FAINT, font, "lm")

    def card(self, title: str, below: str) -> Any:
        """Return a page with a title."""
        page = library("PIL.Image").new("RGB", self.size, _PAPER)
        draw = library("PIL.ImageDraw").Draw(page)
        wide, high = self.size
        large = _font(wide // 14)
        small = _font(self._text)
        draw.text((wide / 2, high / 2), _shortened(title, large, wide * 0.9), _INK, large, "ms")
        under = _shortened(below.rpartition(":")[2], small, wide * 0.9)
        draw.text((wide / 2, high / 2 + 1.5 * self._text), under, _FAINT, small, "mt")
        return page


def _font(size: int) -> Any:
    return library("PIL.ImageFont").load_default(size)


def _shortened(text: str, font: Any, room: float) -> str:
    """Return a text cut to so many pixels."""
    while len(text) > 1 and font.getlength(text) > room:
        text = f"{text.rstrip('…')[:-1]}…"
    return text
