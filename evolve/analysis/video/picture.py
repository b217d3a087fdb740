"""One picture of a film: a strip that says what is seen, below it what the environment drew, and the network beside.

Players put their controls over the lower edge.
"""

from dataclasses import dataclass
from typing import Any

from evolve.analysis.figures import DrawnNetwork
from evolve.analysis.formatting import number
from evolve.analysis.video.libraries import font, library
from evolve.analysis.video.network_panel import NetworkPanel
from evolve.networks import Activity
from evolve.shapes import UInt8

_PAPER = "#fafafa"
_LINE = "#d8d8d8"
_INK = "#222222"
_FAINT = "#757575"
_NIGHT = "#12151a"
_NARROWEST = 320  # pixels: smaller pictures are enlarged
_WIDEST = (("step", "0000"), ("return", "-000.00"))  # values that most episodes have
_BESIDE = (0.5, 0.75)  # the least and the most width of a network, as a share of the body's


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
        beside: Whether a network is shown beside the body.
    """

    def __init__(self, frame: UInt8, width: int | None, beside: bool = False) -> None:
        high, wide = frame.shape[:2]
        share = min(max(high / wide, _BESIDE[0]), _BESIDE[1]) if beside else 0.0
        scale = max(1.0, -(-_NARROWEST // wide))
        if width is not None and wide * (1 + share) * scale > width:
            scale = width / (wide * (1 + share))
        self._within = round(wide * scale), round(high * scale)
        # Even sizes, as H.264 wants them: a line is added to the strip, and the last column is shown twice.
        both = round(self._within[0] * (1 + share))
        both += both % 2
        self._text = max(12, min(20, both // 38))
        self._rows = 1 if both >= 36 * self._text else 2
        self._strip = round(self._text * (0.8 + 1.3 * self._rows))
        self._strip += (self._within[1] + self._strip) % 2
        self.size = both, self._within[1] + self._strip
        self._beside = (both - self._within[0], self._within[1]) if beside else None
        self._panel: NetworkPanel | None = None

    def show_network(self, drawn: DrawnNetwork | None) -> None:
        """Show another network from now on, or none, where the film has a place for it."""
        self._panel = NetworkPanel(drawn, self._beside) if drawn is not None and self._beside else None

    def paint(self, frame: UInt8, label: Label, activity: Activity | None = None) -> Any:
        """Return the picture of a frame [H, W, 3], and of what the network did at it."""
        image = library("PIL.Image")
        seen = image.fromarray(frame)
        if seen.size != self._within:
            larger = self._within[0] > seen.size[0]
            seen = seen.resize(self._within, image.Resampling.NEAREST if larger else image.Resampling.LANCZOS)
        page = image.new("RGB", self.size, _PAPER)
        if self._beside:
            page.paste(_NIGHT, (self._within[0], self._strip, *self.size))
            if self._panel is not None and activity is not None:
                page.paste(self._panel.paint(activity), (self._within[0], self._strip))
        else:
            page.paste(seen, (self.size[0] - self._within[0], self._strip))
        page.paste(seen, (0, self._strip))
        self._write(library("PIL.ImageDraw").Draw(page), label)
        return page

    def _write(self, draw: Any, label: Label) -> None:
        wide = self.size[0]
        margin = self._text * 3 // 4
        letters = font(self._text)
        draw.line([(0, self._strip - 1), (wide, self._strip - 1)], _LINE)
        first = 1.05 * self._text
        last = first + 1.3 * self._text * (self._rows - 1)
        values = {"step": f"{label.step}", "return": number(label.returned)}
        # Each value has a place of its own, so that nothing moves when a value grows.
        gap = 0.4 * self._text
        places = [
            letters.getlength(name) + gap + max(letters.getlength(value) for value in (values[name], widest))
            for name, widest in _WIDEST
        ]
        begin = x = margin if self._rows == 2 else wide - 2 * margin - sum(places)
        for (name, value), place in zip(values.items(), places, strict=True):
            draw.text((x, last), name, _FAINT, letters, "lm")
            draw.text((x + letters.getlength(name) + gap, last), value, _INK, letters, "lm")
            x += place + margin
        room = (begin if self._rows == 1 else wide) - 3 * margin - letters.getlength(label.playing)
        name = _shortened(label.environment.rpartition(":")[2], letters, room)
        draw.text((margin, first), name, _INK, letters, "lm")
        draw.text((2 * margin + letters.getlength(name), first), label.playing, _FAINT, letters, "lm")

    def card(self, title: str, below: str) -> Any:
        """Return a page with a title, and a line below it."""
        page = library("PIL.Image").new("RGB", self.size, _PAPER)
        draw = library("PIL.ImageDraw").Draw(page)
        wide, high = self.size
        large = font(min(wide // 14, 3 * self._text))
        small = font(round(1.25 * self._text))
        draw.text((wide / 2, high / 2), _shortened(title, large, wide * 0.9), _INK, large, "ms")
        draw.text((wide / 2, high / 2 + self._text), _shortened(below, small, wide * 0.9), _FAINT, small, "mt")
        return page


def _shortened(text: str, letters: Any, room: float) -> str:
    """Return a text cut to so many pixels."""
    while len(text) > 1 and letters.getlength(text) > room:
        text = f"{text.rstrip('…')[:-1]}…"
    return text
