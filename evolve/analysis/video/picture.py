"""The pictures of a film: a frame of the environment, the network beside it, and a strip of text above.

A `Painter` paints all pictures of a film as images of Pillow. It paints the network by a `NetworkPanel`, from the
activity of the neurons.
"""

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
_NIGHT = (18, 21, 26)  # the background
_RESTING = (52, 58, 68)  # of connections without activity
_TEXT = (196, 202, 211)
_QUIET = (138, 146, 158)  # of neurons without activity, and of less important texts
POSITIVE = (86, 180, 233)
NEGATIVE = (255, 148, 54)
# Colours of the strip of text and of title cards.
_PAPER = "#fafafa"
_LINE = "#d8d8d8"
_INK = "#222222"
_FAINT = "#6e6e6e"

_SCALE = 2  # a panel is drawn larger by this factor and then reduced, for smooth lines
_SMALLEST_TEXT = 9  # pixels
_MOST_LINES = 3  # of a title, or of the text below it
_WIDEST_NAME = 0.38  # of the panel's width; a layer with a longer name has no names
_MOST_CONNECTIONS = 300  # that are drawn, the strongest
_MOST_NEURONS = 300  # of a layer
_MOST_WIDE = 60  # connections that have wide lines; more connections have narrow lines
# Brightness is relative to the strongest recent activity, which fades by these factors per picture. An observation may
# stay constant for a long time, so its strongest activity fades more slowly.
_FADING = 0.97
_FADING_OBSERVATION = 0.995
_FULL_LIGHT = 0.02  # weaker activity never has the full brightness, even if no recent activity was stronger
_FAINTEST = 0.04  # the share of the strongest activity below which a connection stays dark
_NARROWEST = 320  # pixels: narrower frames are enlarged
_HIGHEST = 1080  # pixels of an enlarged frame
_WIDE = 2.0  # a frame that is wider than this, in heights, has the network below it
_RESERVED = {"step": "0000", "return": "-000.00"}  # for each value in the strip, a text as wide as its reserved space
_PANEL_WIDTH = (0.5, 0.75)  # the least and the greatest width of the network panel, as a share of the frame's width


def font(size: int, *texts: str) -> Any:
    """Return a font of a height in pixels for some texts.

    Pillow's built-in font has only ASCII. Texts with other letters get matplotlib's font, if matplotlib is installed.
    """
    return _font(size, all(text.isascii() for text in texts))


@cache
def _font(size: int, is_ascii: bool) -> Any:
    """Return a font as `font` does. Fonts are cached, because loading a font reads a file."""
    fonts = library("PIL.ImageFont")
    with suppress(InputError):
        if not is_ascii:
            return fonts.truetype(f"{matplotlib('').get_data_path()}/fonts/ttf/DejaVuSans.ttf", size)
    return fonts.load_default(size)


def fits(drawn: DrawnNetwork) -> bool:
    """Return whether a network has connections, and its layers are small enough to be drawn in a film."""
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
        self._layout_layers(drawn, places)
        # The curve of each connection, and the layer, number and position of each neuron, in pixels.
        curves = points_on(curves_of(self._shown, places), np.linspace(0, 1, 25))
        self._curves = [[tuple(point) for point in curve] for curve in self._to_pixels(curves).tolist()]
        self._neurons: list[tuple[int, int, list[float]]] = []
        for layer, neurons in enumerate(places):
            for neuron, place in neurons.items():
                self._neurons.append((layer, neuron, self._to_pixels(np.array(place)).tolist()))
        self._radius = _SCALE * min(6.5, max(1.5, 0.36 * self._pitch))
        self._line_width = (2.3 if len(self._shown) > _MOST_WIDE else 4.0) * size[0] / 400
        # The strongest recent activity of connections, of each neuron of the first layer, and of each other layer.
        self._strongest_signal = 0.0
        self._strongest_nodes = [np.full(len(places[0]), _FULL_LIGHT), *(np.full(1, _FULL_LIGHT) for _ in places[1:])]
        self._texts = self._layout_texts(drawn, places)
        self._base = self._draw_base()

    def _layout_layers(self, drawn: DrawnNetwork, places: list[Places]) -> None:
        """Choose which outer layers have names of their neurons, and set the area of the neurons, in pixels."""
        width, height = self._size
        self._top, self._bottom = 0.02 * height, height - 2.1 * self._text_size
        # The distance between two neurons of the largest layer, see `places_of`.
        self._pitch = (self._bottom - self._top) / (max(map(len, places)) + 1)
        # A minus sign is drawn as a hyphen, so it needs no other font.
        shown = [name.replace("−", "-") for name in (*drawn.inputs, *drawn.outputs)]
        name_size = min(self._text_size, max(_SMALLEST_TEXT, int(self._pitch)))
        self._name_font = font(name_size, *shown)
        self._named = []  # of the first and the last layer, whether it has names
        margins = []  # the widths beside the first and the last layer
        for neurons, names in ((places[0], drawn.inputs), (places[-1], drawn.outputs)):
            # A layer has names if they fit between its neurons, and if none is too wide for the panel.
            fits_between = (self._bottom - self._top) / (len(neurons) + 1) >= _SMALLEST_TEXT - 0.7
            longest = max(self._name_font.getlength(names[neuron]) for neuron in neurons)
            is_named = fits_between and longest < _WIDEST_NAME * width
            self._named.append(is_named)
            margins.append(longest + 1.9 * self._text_size if is_named else 1.4 * self._text_size)
        self._left, self._right = margins[0], width - margins[1]
        self._last_layer = len(places) - 1

    def _to_pixels(self, points: Float64) -> Float64:
        """Convert points […, 2] (layer, height between 0 and 1) to pixels of the enlarged drawing."""
        x = self._left + points[..., 0] / self._last_layer * (self._right - self._left)
        y = self._bottom - points[..., 1] * (self._bottom - self._top)
        return _SCALE * np.stack([x, y], axis=-1)

    def _layout_texts(self, drawn: DrawnNetwork, places: list[Places]) -> list[tuple[Any, ...]]:
        """Return the texts of the panel, as arguments of `ImageDraw.text`."""
        texts: list[tuple[Any, ...]] = []
        gap = 1.1 * self._text_size
        # The anchors of Pillow: "rm" writes to the left of a point, and "lm" to its right.
        outer_layers = ((places[0], drawn.inputs, -gap, "rm"), (places[-1], drawn.outputs, gap, "lm"))
        for is_named, (neurons, names, offset, anchor) in zip(self._named, outer_layers, strict=True):
            if not is_named:
                continue
            for neuron, place in neurons.items():
                x, y = self._to_pixels(np.array(place)) / _SCALE
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
        for curve in self._curves:
            draw.line(curve, _mixed(_NIGHT, _RESTING, 0.55), _SCALE // 2)
        return base

    def paint(self, activity: Activity) -> Any:
        """Return the picture of the network with an activity."""
        enlarged = self._base.copy()
        draw = library("PIL.ImageDraw").Draw(enlarged)
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
                draw.line(self._curves[n], _mixed(_RESTING, light, share**0.6), width)
        self._draw_neurons(draw, activity)
        # Texts are written on the reduced picture, in their final size.
        picture = enlarged.reduce(_SCALE)
        draw = library("PIL.ImageDraw").Draw(picture)
        for text in self._texts:
            draw.text(*text)
        return picture

    def _signals(self, activity: Activity) -> Float32:
        """Return the signal on each drawn connection, [n]."""
        shown = self._shown
        sources = zip(shown.source_layer.tolist(), shown.source_neuron.tolist(), strict=True)
        # The signal on a connection is the output of its source neuron times its weight. NaN and infinity count as 0.
        outputs = np.array([activity.nodes[layer][neuron] for layer, neuron in sources], np.float32)
        return np.nan_to_num(outputs * activity.weights[shown.activity_index], posinf=0, neginf=0)

    def _update_strongest(self, signals: Float32, activity: Activity) -> None:
        """Update the strongest recent signal, and the strongest recent activity of each observation and each layer."""
        # A quantile is taken, because a few very strong signals would darken all others.
        strong = float(np.quantile(np.abs(signals), 0.97))
        self._strongest_signal = max(_FADING * self._strongest_signal, strong)
        for layer, (nodes, strongest) in enumerate(zip(activity.nodes, self._strongest_nodes, strict=True)):
            now = np.abs(np.nan_to_num(nodes, posinf=0, neginf=0))
            if layer == 0:  # without context units and their bias, which are not drawn
                faded, now = _FADING_OBSERVATION * strongest, now[: len(strongest)]
            else:
                faded, now = _FADING * strongest, now.max()
            strongest[:] = np.maximum(np.maximum(faded, now), _FULL_LIGHT)

    def _draw_neurons(self, draw: Any, activity: Activity) -> None:
        """Draw the neurons as circles, filled with the colour of their activity."""
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
    """Return a colour between two colours. share: The share of the light colour."""
    return tuple(round(a + (b - a) * share) for a, b in zip(dark, light, strict=True))


@dataclass(frozen=True)
class Label:
    """The content of the strip of text.

    Attributes:
        environment: The id of the environment.
        episode: The title of the episode, such as "generation 10".
        step: The number of the step.
        returned: The return so far.
    """

    environment: str
    episode: str
    step: int
    returned: float


class Painter:
    """Paints all pictures of a film, in one size.

    Args:
        frame: [H, W, 3], the first frame.
        max_width: The largest width of the film, in pixels; None for any width.
        with_network: Whether the film has a panel for a network, beside or below the frames.
    """

    def __init__(self, frame: UInt8, max_width: int | None, with_network: bool = False) -> None:
        height, width = frame.shape[:2]
        # Choose the place and the width of the panel for the network. Beside a wide frame, the panel would be too low.
        is_below = with_network and width > _WIDE * height
        is_beside = with_network and not is_below
        # The width of the panel, as a share of the frame's width. The panel is square if the limits allow it.
        panel_share = min(max(height / width, _PANEL_WIDTH[0]), _PANEL_WIDTH[1]) if is_beside else 0.0
        # Choose the size of the frame. A narrow frame is enlarged by a whole number, to at most `_HIGHEST` pixels of
        # height. If the film would be wider than `max_width`, the factor is smaller, and need not be whole.
        scale = float(max(1, min(math.ceil(_NARROWEST / width), _HIGHEST // height)))
        if max_width is not None and width * (1 + panel_share) * scale > max_width:
            scale = max_width / (width * (1 + panel_share))
        self._frame_size = round(width * scale), round(height * scale)
        # Choose the sizes of the film and the strip. H.264 requires even sizes, so the film may have one more column of
        # pixels, and the strip one more row.
        film_width = round(self._frame_size[0] * (1 + panel_share))
        film_width += film_width % 2
        self._text_size = max(12, min(20, film_width // 38))
        self._num_lines = 1 if film_width >= 36 * self._text_size else 2  # of text, in the strip
        self._strip_height = round(self._text_size * (0.8 + 1.3 * self._num_lines))
        # A panel below the frame is as wide as the frame, and half as high as wide.
        panel_height = round(_PANEL_WIDTH[0] * self._frame_size[0]) if is_below else 0
        self._strip_height += (self._frame_size[1] + self._strip_height + panel_height) % 2
        self.size = film_width, self._frame_size[1] + self._strip_height + panel_height
        # The upper left corner of the panel, or None. The panel extends to the lower right corner of the picture.
        self._corner: tuple[int, int] | None = None
        if with_network:
            x, y = (0, self._frame_size[1]) if is_below else (self._frame_size[0], 0)
            self._corner = x, self._strip_height + y
        self._panel: NetworkPanel | None = None  # set by `card`

    def paint(self, frame: UInt8, label: Label, activity: Activity | None = None) -> Any:
        """Return the picture of a frame [H, W, 3] and of the network's activity."""
        images = library("PIL.Image")
        scene = images.fromarray(frame)
        if scene.size != self._frame_size:
            # NEAREST repeats the pixels of the frame, and LANCZOS averages them.
            is_enlarged = self._frame_size[0] > scene.size[0]
            method = images.Resampling.NEAREST if is_enlarged else images.Resampling.LANCZOS
            scene = scene.resize(self._frame_size, method)
        page = images.new("RGB", self.size, _PAPER)
        # Paste the frame at the right, and then at the left. If the film is a column wider than the frame, the last
        # column of the frame is thus shown twice. A panel at the right covers the first copy.
        for x in (self.size[0] - self._frame_size[0], 0):
            page.paste(scene, (x, self._strip_height))
        if self._corner is not None:
            page.paste(_NIGHT, (*self._corner, *self.size))
            if self._panel is not None and activity is not None:
                page.paste(self._panel.paint(activity), self._corner)
        self._write(library("PIL.ImageDraw").Draw(page), label)
        return page

    def _write(self, draw: Any, label: Label) -> None:
        """Write the environment and the episode at the left, and the step and the return at the right or below."""
        width = self.size[0]
        margin = self._text_size * 3 // 4
        letters = font(self._text_size, label.environment, label.episode)
        draw.line([(0, self._strip_height - 1), (width, self._strip_height - 1)], _LINE)
        first_y = 1.05 * self._text_size  # of the first line of text
        last_y = first_y + 1.3 * self._text_size * (self._num_lines - 1)
        # Write the step and the return. Each value has a reserved space, so that nothing moves when a value grows.
        values = {"step": f"{label.step}", "return": number(label.returned)}
        gap = 0.4 * self._text_size
        widths = {
            name: letters.getlength(name) + gap + max(map(letters.getlength, (value, _RESERVED[name])))
            for name, value in values.items()
        }
        # The values are alone in the second line. If there is one line, they are at its right end.
        begin = margin if self._num_lines == 2 else width - 2 * margin - sum(widths.values())
        x = begin
        for name, value in values.items():
            draw.text((x, last_y), name, _FAINT, letters, "lm")
            draw.text((x + letters.getlength(name) + gap, last_y), value, _INK, letters, "lm")
            x += widths[name] + margin
        # Write the environment, without the module in its id, and the episode. Long texts get smaller letters before
        # they are cut. The environment may take half of the space, or all that the episode leaves.
        space = (width if self._num_lines == 2 else begin) - 3 * margin
        env = label.environment.rpartition(":")[2]
        letters = fitting_font(self._text_size, space, env, label.episode)
        env = shortened(env, letters, max(space / 2, space - letters.getlength(label.episode)))
        episode = shortened(label.episode, letters, space - letters.getlength(env))
        draw.text((margin, first_y), env, _INK, letters, "lm")
        draw.text((2 * margin + letters.getlength(env), first_y), episode, _FAINT, letters, "lm")

    def card(self, title: str, below: str, network: DrawnNetwork | None) -> Any:
        """Return a title card with a text below the title. The next pictures show this network."""
        self._panel = None
        if network is not None and self._corner is not None:
            x, y = self._corner
            self._panel = NetworkPanel(network, (self.size[0] - x, self.size[1] - y))
        page = library("PIL.Image").new("RGB", self.size, _PAPER)
        draw = library("PIL.ImageDraw").Draw(page)
        width, height = self.size
        large = font(min(width // 14, 3 * self._text_size), title)
        small = font(round(1.25 * self._text_size), below)
        title, below = _in_lines(title, large, width * 0.9), _in_lines(below, small, width * 0.9)
        gap = self._text_size / 2
        # Pillow's anchors: the title ends above the middle ("md"), and the other text begins below the middle ("ma").
        draw.text((width / 2, height / 2 - gap / 2), title, _INK, large, "md", align="center")
        draw.text((width / 2, height / 2 + gap), below, _FAINT, small, "ma", align="center")
        return page


# The texts of a film hardly change, and measuring a long text takes milliseconds.
@lru_cache(maxsize=8)
def fitting_font(size: int, width: float, *texts: str) -> Any:
    """Return the font of the largest height, up to `size`, in which texts together fit into `width` pixels."""
    for height in range(size, _SMALLEST_TEXT, -1):
        letters = font(height, *texts)
        if sum(map(letters.getlength, texts)) <= width:
            return letters
    return font(_SMALLEST_TEXT, *texts)


def _in_lines(text: str, letters: Any, width: float) -> str:
    """Return a text in at most `_MOST_LINES` lines of at most `width` pixels. letters: The font."""
    # The pixels of a letter, a little more than the mean, because the letters of a line may be wider.
    letter_width = 1.1 * max(1.0, letters.getlength(text) / max(1, len(text)))
    lines = textwrap.wrap(text, max(1, int(width / letter_width)), max_lines=_MOST_LINES, placeholder="…")
    return "\n".join(shortened(line, letters, width) for line in lines)


@lru_cache(maxsize=8)
def shortened(text: str, letters: Any, width: float) -> str:
    """Return a text, cut to fit into `width` pixels. letters: The font."""
    if letters.getlength(text) <= width:
        return text
    # Find by bisection the smallest number of letters to cut, from 1 up.
    cuts = range(1, len(text))
    cut = 1 + bisect_left(cuts, True, key=lambda cut: letters.getlength(f"{text[:-cut]}…") <= width)
    return f"{text[:-cut]}…"
