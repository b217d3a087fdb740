"""The pictures of a film: a frame of the environment, the network beside it, and a strip of text above."""

import math
import textwrap
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from evolve.analysis.figures import DrawnNetwork
from evolve.analysis.figures.network import Places, curves_of, places_of, points_on
from evolve.analysis.figures.style import matplotlib
from evolve.analysis.statistics import number
from evolve.analysis.video.encoders import library
from evolve.errors import InputError, pluralize
from evolve.networks import Activity
from evolve.shapes import Float32, Float64, UInt8

# Colours of the network panel, as RGB.
_NIGHT = (18, 21, 26)
_RESTING = (52, 58, 68)
_TEXT = (196, 202, 211)
_QUIET = (138, 146, 158)
POSITIVE = (86, 180, 233)
NEGATIVE = (255, 148, 54)
# Colours of the rest of the picture.
_PAPER = "#fafafa"
_LINE = "#d8d8d8"
_INK = "#222222"
_FAINT = "#6e6e6e"

_SCALE = 2  # a panel is drawn larger by this factor and then reduced, for smooth lines
_SMALLEST_TEXT = 9  # pixels
_MOST_LINES = 3  # of a title, or of the text below it
_WIDEST_NAME = 0.38  # of the panel's width
_MOST_CONNECTIONS = 300
_MOST_NEURONS = 300  # of a layer
_FEW = 60  # up to this number, connections are drawn with wide lines
# Light is relative to the strongest recent activity, which fades by these factors per picture. An observation may stay
# constant for a long time, so its strongest activity fades more slowly.
_FADING = 0.97
_FADING_OBSERVATION = 0.995
_FULL_LIGHT = 0.02  # weaker activity never gets the full light, even if no recent activity was stronger
_FAINTEST = 0.04  # the share of the strongest activity below which a connection stays dark
_NARROWEST = 320  # pixels: narrower frames are enlarged
_HIGHEST = 1080  # pixels of an enlarged frame
_WIDE = 2.0  # a frame that is wider than this, in heights, has the network below it
_RESERVED = (("step", "0000"), ("return", "-000.00"))  # a name, and a text as wide as the reserved space
_PANEL_WIDTH = (0.5, 0.75)  # the least and the greatest width of the network panel, as a share of the frame's width


def font(size: int, *texts: str) -> Any:
    """Return a font of a height in pixels for some texts.

    Pillow's built-in font has only ASCII. Texts with other letters get matplotlib's font, if matplotlib is installed.
    """
    return _font(size, all(text.isascii() for text in texts))


@cache
def _font(size: int, is_ascii: bool) -> Any:
    fonts = library("PIL.ImageFont")
    with suppress(InputError):
        if not is_ascii:
            return fonts.truetype(f"{matplotlib('').get_data_path()}/fonts/ttf/DejaVuSans.ttf", size)
    return fonts.load_default(size)


def fits(drawn: DrawnNetwork) -> bool:
    """Return whether a network has connections, and its layers are small enough to be readable beside a film."""
    return bool(len(drawn.shown)) and max(map(len, places_of(drawn.shown))) <= _MOST_NEURONS


class NetworkPanel:
    """Paints a network at work: neurons and connections light up with their activity.

    Args:
        drawn: The network.
        size: Width and height, in pixels.
    """

    def __init__(self, drawn: DrawnNetwork, size: tuple[int, int]) -> None:
        self._size = size
        self._shown = drawn.shown.strongest(_MOST_CONNECTIONS)
        places = places_of(self._shown)
        self._text_size = max(_SMALLEST_TEXT + 1, min(14, size[0] // 30))
        self._place(drawn, places)
        # `_at` needs the positions that `_place` has set.
        lines = points_on(curves_of(self._shown, places), np.linspace(0, 1, 25))
        self._lines = [[tuple(point) for point in line] for line in self._at(lines).tolist()]
        self._neurons = [
            (layer, neuron, tuple(self._at(np.array(place)).tolist()))
            for layer, row in enumerate(places)
            for neuron, place in row.items()
        ]
        self._radius = _SCALE * min(6.5, max(1.5, 0.36 * self._pitch))
        self._line_width = (2.3 if len(self._shown) > _FEW else 4.0) * size[0] / 400
        self._strongest_signal = 0.0
        # A number for each neuron of the first layer, and one number for each other layer.
        self._strongest_nodes = [
            np.full(len(row) if layer == 0 else 1, _FULL_LIGHT) for layer, row in enumerate(places)
        ]
        self._texts = self._layout_texts(drawn, places)
        self._base = self._draw_base()

    def _place(self, drawn: DrawnNetwork, places: list[Places]) -> None:
        """Set the positions of the layers, and choose the layers that have room for their names."""
        width, height = self._size
        self._top, self._bottom = 0.02 * height, height - 2.1 * self._text_size
        # The distance between two neurons of the largest layer, see `places_of`.
        self._pitch = (self._bottom - self._top) / (max(map(len, places)) + 1)
        # A minus sign is drawn as a hyphen, so it needs no other font.
        shown = [name.replace("−", "-") for name in (*drawn.inputs, *drawn.outputs)]
        name_size = min(self._text_size, max(_SMALLEST_TEXT, int(self._pitch)))
        self._name_font = font(name_size, *shown)
        self._named = []
        margins = []
        for row, names in ((places[0], drawn.inputs), (places[-1], drawn.outputs)):
            # A layer has names if the names are neither too high for its neurons nor too wide for the panel.
            has_room = (self._bottom - self._top) / (len(row) + 1) >= _SMALLEST_TEXT - 0.7
            longest = max(self._name_font.getlength(names[neuron]) for neuron in row)
            is_named = has_room and longest < _WIDEST_NAME * width
            self._named.append(is_named)
            margins.append(longest + 1.9 * self._text_size if is_named else 1.4 * self._text_size)
        self._left, self._right = margins[0], width - margins[1]
        self._last_layer = len(places) - 1

    def _at(self, points: Float64) -> Float64:
        """Convert points (layer, height between 0 and 1) to pixels of the enlarged drawing."""
        x = self._left + points[..., 0] / self._last_layer * (self._right - self._left)
        y = self._bottom - points[..., 1] * (self._bottom - self._top)
        return _SCALE * np.stack([x, y], axis=-1)

    def _layout_texts(self, drawn: DrawnNetwork, places: list[Places]) -> list[tuple[Any, ...]]:
        """Return the texts of the panel, as arguments of `ImageDraw.text`."""
        texts: list[tuple[Any, ...]] = []
        gap = 1.1 * self._text_size
        ends = ((places[0], drawn.inputs, -gap, "rm"), (places[-1], drawn.outputs, gap, "lm"))
        for named, (row, names, offset, anchor) in zip(self._named, ends, strict=True):
            if not named:
                continue
            for neuron, place in row.items():
                x, y = self._at(np.array(place)) / _SCALE
                # Pillow's built-in font has no minus sign.
                texts.append(((x + offset, y), names[neuron].replace("−", "-"), _TEXT, self._name_font, anchor))
        count = pluralize(len(drawn.acting), "connection")
        if len(self._shown) < len(drawn.acting):
            count = f"the strongest {len(self._shown):,} of {count}"
        below = self._size[1] - 0.95 * self._text_size
        texts.append(((self._size[0] / 2, below), count, _QUIET, font(self._text_size), "mm"))
        return texts

    def _draw_base(self) -> Any:
        """Return the network at rest."""
        width, height = self._size
        base = library("PIL.Image").new("RGB", (_SCALE * width, _SCALE * height), _NIGHT)
        draw = library("PIL.ImageDraw").Draw(base)
        for line in self._lines:
            draw.line(line, _mixed(_NIGHT, _RESTING, 0.55), _SCALE // 2)
        return base

    def paint(self, activity: Activity) -> Any:
        """Return the picture of the network with an activity."""
        page = self._base.copy()
        draw = library("PIL.ImageDraw").Draw(page)
        signals = self._signals(activity)
        self._update_strongest(signals, activity)
        shares = np.zeros_like(signals)
        if self._strongest_signal > 0:
            shares = np.minimum(np.abs(signals) / self._strongest_signal, 1)
        # The strongest connections are painted last, and thus on top.
        for n in np.argsort(shares).tolist():
            share = float(shares[n])
            if share > _FAINTEST:
                light = POSITIVE if signals[n] > 0 else NEGATIVE
                width = round(_SCALE * (0.7 + self._line_width * share))
                draw.line(self._lines[n], _mixed(_RESTING, light, share**0.6), width)
        self._draw_neurons(draw, activity)
        # Texts are written on the reduced picture, in their final size.
        picture = page.reduce(_SCALE)
        draw = library("PIL.ImageDraw").Draw(picture)
        for text in self._texts:
            draw.text(*text)
        return picture

    def _signals(self, activity: Activity) -> Float32:
        """Return the signal on each drawn connection, [n]."""
        shown = self._shown
        ends = zip(shown.source.tolist(), shown.tail.tolist(), strict=True)
        # The signal on a connection is the output of its first neuron times its weight. NaN and infinity count as 0.
        passed = np.array([activity.nodes[layer][neuron] for layer, neuron in ends], np.float32)
        return np.nan_to_num(passed * activity.weights[shown.activity_index], posinf=0, neginf=0)

    def _update_strongest(self, signals: Float32, activity: Activity) -> None:
        """Update the strongest recent signal, and the strongest recent activity of each observation and each layer."""
        # Not the maximum, because a few very strong signals would darken all others.
        strong = float(np.quantile(np.abs(signals), 0.97))
        self._strongest_signal = max(_FADING * self._strongest_signal, strong)
        for layer, (nodes, strongest) in enumerate(zip(activity.nodes, self._strongest_nodes, strict=True)):
            now = np.abs(np.nan_to_num(nodes, posinf=0, neginf=0))
            fading = _FADING if layer else _FADING_OBSERVATION
            # One number for the layer, or a number for each neuron of the first layer.
            present = now.max() if layer else now[: len(strongest)]
            np.maximum(fading * strongest, present, out=strongest)
            np.maximum(strongest, _FULL_LIGHT, out=strongest)

    def _draw_neurons(self, draw: Any, activity: Activity) -> None:
        for layer, neuron, (x, y) in self._neurons:
            value = float(np.nan_to_num(activity.nodes[layer][neuron]))
            # Each observation has its own strongest activity. The neurons of another layer share one.
            strongest = self._strongest_nodes[layer][neuron if layer == 0 else 0]
            share = min(abs(value) / float(strongest), 1.0)
            light = _mixed(_NIGHT, POSITIVE if value > 0 else NEGATIVE, share**0.8)
            ring = _mixed(_QUIET, light, share)
            r = self._radius
            draw.ellipse([x - r, y - r, x + r, y + r], light, ring, _SCALE)


def _mixed(dark: tuple[int, ...], light: tuple[int, ...], share: float) -> tuple[int, ...]:
    return tuple(round(a + (b - a) * share) for a, b in zip(dark, light, strict=True))


@dataclass(frozen=True)
class Label:
    """The content of the strip of text. `episode` is a title, such as "generation 10"; `returned` the return so far."""

    environment: str
    episode: str
    step: int
    returned: float


class Painter:
    """Paints all pictures of a film, in one size.

    Args:
        frame: [H, W, 3], the first frame.
        max_width: The largest width of the film, in pixels.
        with_network: Whether the film has a panel for a network, beside or below the frames.
    """

    def __init__(self, frame: UInt8, max_width: int | None, with_network: bool = False) -> None:
        height, width = frame.shape[:2]
        # Beside a wide frame, a panel would be too low for a network, so it is below the frame.
        is_below = with_network and width > _WIDE * height
        is_beside = with_network and not is_below
        # The width of the panel, as a share of the frame's width. The panel is square if the limits allow it.
        panel = min(max(height / width, _PANEL_WIDTH[0]), _PANEL_WIDTH[1]) if is_beside else 0.0
        # A narrow frame is enlarged by a whole number, to at most `_HIGHEST` pixels of height. If the film would be
        # wider than `max_width`, the factor is smaller, and need not be whole.
        scale = float(max(1, min(math.ceil(_NARROWEST / width), _HIGHEST // height)))
        if max_width is not None and width * (1 + panel) * scale > max_width:
            scale = max_width / (width * (1 + panel))
        self._frame_size = round(width * scale), round(height * scale)
        # H.264 requires even sizes, so the film may have one more column, and the strip one more line.
        film_width = round(self._frame_size[0] * (1 + panel))
        film_width += film_width % 2
        self._text_size = max(12, min(20, film_width // 38))
        self._rows = 1 if film_width >= 36 * self._text_size else 2
        self._strip = round(self._text_size * (0.8 + 1.3 * self._rows))
        # A panel below the frame is as wide as the frame, and half as high as wide.
        below = round(_PANEL_WIDTH[0] * self._frame_size[0]) if is_below else 0
        self._strip += (self._frame_size[1] + self._strip + below) % 2
        self.size = film_width, self._frame_size[1] + self._strip + below
        # The upper left corner of the panel, or None. The panel extends to the lower right corner of the picture.
        self._corner: tuple[int, int] | None = None
        if with_network:
            self._corner = (0, self._strip + self._frame_size[1]) if is_below else (self._frame_size[0], self._strip)
        self._panel: NetworkPanel | None = None

    def paint(self, frame: UInt8, label: Label, activity: Activity | None = None) -> Any:
        """Return the picture of a frame [H, W, 3] and of the network's activity."""
        image = library("PIL.Image")
        seen = image.fromarray(frame)
        if seen.size != self._frame_size:
            # NEAREST repeats the pixels of the frame, and LANCZOS averages them.
            larger = self._frame_size[0] > seen.size[0]
            seen = seen.resize(self._frame_size, image.Resampling.NEAREST if larger else image.Resampling.LANCZOS)
        page = image.new("RGB", self.size, _PAPER)
        # Paste the frame at the right, and then at the left. If the film is a column wider than the frame, the last
        # column of the frame is thus shown twice. A panel at the right covers the first copy.
        for x in (self.size[0] - self._frame_size[0], 0):
            page.paste(seen, (x, self._strip))
        if self._corner is not None:
            page.paste(_NIGHT, (*self._corner, *self.size))
            if self._panel is not None and activity is not None:
                page.paste(self._panel.paint(activity), self._corner)
        self._write(library("PIL.ImageDraw").Draw(page), label)
        return page

    def _write(self, draw: Any, label: Label) -> None:
        width = self.size[0]
        margin = self._text_size * 3 // 4
        letters = font(self._text_size, label.environment, label.episode)
        draw.line([(0, self._strip - 1), (width, self._strip - 1)], _LINE)
        first_y = 1.05 * self._text_size  # of the first row of text
        last_y = first_y + 1.3 * self._text_size * (self._rows - 1)
        values = {"step": f"{label.step}", "return": number(label.returned)}
        # Each value has a reserved place, so that nothing moves when a value grows.
        gap = 0.4 * self._text_size
        places = [
            letters.getlength(name) + gap + max(letters.getlength(values[name]), letters.getlength(widest))
            for name, widest in _RESERVED
        ]
        # The values have the second row to themselves. If there is one row, they are at its right end.
        begin = margin if self._rows == 2 else width - 2 * margin - sum(places)
        x = begin
        for (name, value), place in zip(values.items(), places, strict=True):
            draw.text((x, last_y), name, _FAINT, letters, "lm")
            draw.text((x + letters.getlength(name) + gap, last_y), value, _INK, letters, "lm")
            x += place + margin
        room = (width if self._rows == 2 else begin) - 3 * margin
        # Long texts get smaller letters before they are cut.
        texts = label.environment.rpartition(":")[2], label.episode
        letters = fitting_font(self._text_size, room, *texts)
        # The name of the environment may take half of the room, or all that the episode's text leaves.
        name_room = max(room / 2, room - letters.getlength(label.episode))
        name = shortened(texts[0], letters, name_room)
        episode = shortened(texts[1], letters, room - letters.getlength(name))
        draw.text((margin, first_y), name, _INK, letters, "lm")
        draw.text((2 * margin + letters.getlength(name), first_y), episode, _FAINT, letters, "lm")

    def card(self, title: str, below: str, network: DrawnNetwork | None) -> Any:
        """Return a title card with a line below the title. The next pictures show this network."""
        self._panel = None
        if network is not None and self._corner is not None:
            x, y = self._corner
            self._panel = NetworkPanel(network, (self.size[0] - x, self.size[1] - y))
        page = library("PIL.Image").new("RGB", self.size, _PAPER)
        draw = library("PIL.ImageDraw").Draw(page)
        width, height = self.size
        large = font(min(width // 14, 3 * self._text_size), title)
        small = font(round(1.25 * self._text_size), below)
        # Pillow's anchors: the title ends above the middle ("md"), and the line about the result begins below ("ma").
        title, below = (_in_lines(text, letters, width * 0.9) for text, letters in ((title, large), (below, small)))
        middle, gap = (width / 2, height / 2), self._text_size / 2
        draw.text((middle[0], middle[1] - gap / 2), title, _INK, large, "md", align="center")
        draw.text((middle[0], middle[1] + gap), below, _FAINT, small, "ma", align="center")
        return page


# The texts of a film hardly change, and measuring a long text takes milliseconds.
@lru_cache(maxsize=8)
def fitting_font(size: int, room: float, *texts: str) -> Any:
    """Return the font of the largest height, up to `size`, in which texts together fit into `room` pixels."""
    for height in range(size, _SMALLEST_TEXT, -1):
        letters = font(height, *texts)
        if sum(map(letters.getlength, texts)) <= room:
            return letters
    return font(_SMALLEST_TEXT, *texts)


def _in_lines(text: str, letters: Any, room: float) -> str:
    """Return a text in at most `_MOST_LINES` lines, which have about `room` pixels at most."""
    # The letters of a line may be wider than on average.
    average = 1.1 * max(1.0, letters.getlength(text) / max(1, len(text)))  # pixels of a letter
    lines = textwrap.wrap(text, max(1, int(room / average)), max_lines=_MOST_LINES, placeholder="…")
    return "\n".join(shortened(line, letters, room) for line in lines)


@lru_cache(maxsize=8)
def shortened(text: str, letters: Any, room: float) -> str:
    """Return a text, cut to fit into `room` pixels."""
    if letters.getlength(text) <= room:
        return text
    # Find by bisection the smallest number of letters to cut.
    cuts = range(1, len(text))
    place = bisect_left(cuts, True, key=lambda cut: letters.getlength(f"{text[:-cut]}…") <= room)
    return f"{text[: -(1 + place)]}…"
