"""The encoders of films, MP4 and GIF, and their libraries."""

import io
import itertools
import math
from collections import deque
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from evolve.errors import import_extra
from evolve.shapes import Bool, UInt8
from evolve.store import disk

_GIF_FPS = 12.5
_STILL_TIME = 3.0  # seconds from the start of a film to the picture that represents it
_COLOURS = 63  # the number of colours of one picture of a GIF
_TRANSPARENT = _COLOURS  # the index of the transparent colour, which follows all others
RARE_COLOURS = 16  # palette entries for the colours of small parts, if the usual palette distorts such colours
_BACKGROUNDS = 4  # the most frequent colours, which stay exact in a palette with rare colours
_FAR = 32  # colours are far from each other if one channel differs by more (of 256)


def library(name: str) -> Any:
    """Return a module of PyAV or Pillow. Raises InputError if it is not installed."""
    return import_extra(name, "video", "films", "PyAV and Pillow")


class Mp4:
    """H.264 with the pixel format that every browser plays. Pictures are RGB images of Pillow, all of one size.

    fps: frames of the environment per second.
    """

    frames_per_picture = 1
    """The number of frames of the environment for each picture of the film."""

    def __init__(self, path: Path, fps: float) -> None:
        av = library("av")
        # With "faststart" the index is at the start of the file, so a browser can play the film while it loads.
        self._film = av.open(str(path), "w", format="mp4", options={"movflags": "faststart"})
        self._stream = self._film.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        self._stream.pix_fmt = "yuv420p"
        self._stream.thread_count = 1  # with several threads x264 may encode equal pictures to different bytes
        self._frame = av.VideoFrame.from_image
        # All pictures share a reformatter with one thread. By default it has a thread for each core, and a process that
        # forks could then hang.
        self._reformatter = av.video.reformatter.VideoReformatter()
        self._written = 0  # pictures

    def write(self, picture: Any, times: int) -> None:
        """Write a picture `times` times."""
        if not self._written:
            self._stream.width, self._stream.height = picture.size
        frame = self._reformatter.reformat(self._frame(picture), format=self._stream.pix_fmt, threads=1)
        for _ in range(times):
            frame.pts = self._written
            self._film.mux(self._stream.encode(frame))
            self._written += 1

    def close(self) -> None:
        """Write the pictures that the encoder still holds, and finish the file."""
        with self._film:
            self._film.mux(self._stream.encode())


class Gif:
    """A GIF in an endless loop. It has fewer than 19 pictures per second, with 63 colours each, so it is small.

    A picture is written when the next different picture comes, because only then is its duration known.
    Pillow's own writer would keep all pictures in memory until the end. Pictures and fps are as in `Mp4`.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._image = library("PIL.Image")
        self._chops = library("PIL.ImageChops")
        self._gif = library("PIL.GifImagePlugin")
        self.frames_per_picture = max(1, round(fps / _GIF_FPS))
        self._pictures_per_second = fps / self.frames_per_picture
        self._shown = 0  # the duration of the film, in pictures
        self._written_until = 0  # the end of the written pictures, in hundredths of a second
        self._newest: Any = None  # the picture that is shown now, as `write` got it
        self._pending: tuple[Any, tuple[int, int]] | None = None  # the changed part of `_newest`, and its place
        self._file = path.open("wb")

    def write(self, picture: Any, times: int) -> None:
        """Show a picture for the time of `times` pictures. Only the part that differs from the last one is written."""
        if self._newest is None:
            # The head has the size and the endless loop. Each picture has its own palette (`include_color_table`).
            head, _ = self._gif.getheader(self._quantize(picture), info={"loop": 0})
            self._file.write(b"".join(head))
            box: tuple[int, ...] | None = (0, 0, *picture.size)
            unchanged = None
        else:
            change = self._chops.difference(picture, self._newest)
            box = change.getbbox()
            unchanged = None if box is None else self._unchanged(change.crop(box))
        if box is not None:  # without a change, the picture before is shown for longer
            self._write_pending()
            part = self._quantize(picture.crop(box))
            if unchanged is not None:
                part.paste(_TRANSPARENT, mask=unchanged)
            self._pending = (part, (box[0], box[1]))
            self._newest = picture
        self._shown += times

    def _quantize(self, picture: Any) -> Any:
        """Return a picture with a palette of at most `_COLOURS` colours.

        Median cut chooses the colours of large areas, so a small green goal could turn into the blue of a sky. If a
        colour changes so much, the palette also gets the colours of small parts.
        """
        methods, undithered = self._image.Quantize, {"dither": self._image.Dither.NONE}
        usual = picture.quantize(_COLOURS, methods.MEDIANCUT, **undithered)
        # The usual palette suffices if no pixel gets a colour far from its own.
        if not self._far(picture, usual).any():
            return usual
        common = picture.quantize(_COLOURS - RARE_COLOURS, methods.MEDIANCUT, **undithered)
        far = self._far(picture, common)  # more pixels than above, because `common` has fewer colours
        palette = self._image.new("P", (1, 1))
        palette.putpalette(common.getpalette()[: 3 * (_COLOURS - RARE_COLOURS)] + _frequent(np.asarray(picture)[far]))
        return _with_exact_backgrounds(picture, picture.quantize(palette=palette, **undithered))

    def _far(self, picture: Any, quantized: Any) -> Bool:
        """Return whether the colour of each pixel is far from its colour in the quantized picture, [height, width]."""
        differences: UInt8 = np.asarray(self._chops.difference(picture, quantized.convert("RGB")))
        return differences.max(axis=-1) > _FAR

    def _unchanged(self, change: Any) -> Any:
        """Return a mask of the unchanged pixels. They become transparent, and long runs of one value compress well."""
        red, green, blue = change.split()
        largest = self._chops.lighter(self._chops.lighter(red, green), blue)
        return largest.point([255] + [0] * 255)  # a table: 255 for no change, 0 for any change

    def _write_pending(self) -> None:
        if self._pending is None:
            return
        # A GIF counts hundredths of a second. Round the ends and not the durations, so that errors do not add up.
        until = round(100 * self._shown / self._pictures_per_second)
        part, at = self._pending
        duration = 10 * (until - self._written_until)  # in milliseconds
        # With the disposal 1 a picture stays, and is seen through the transparent pixels of the next picture.
        how = {"duration": duration, "disposal": 1, "transparency": _TRANSPARENT, "include_color_table": True}
        self._file.write(b"".join(self._gif.getdata(part, at, **how)))
        self._written_until = until
        self._pending = None

    def close(self) -> None:
        """Write the last picture, and finish the file."""
        with self._file:
            self._write_pending()
            self._file.write(b";")  # ends a GIF


def _with_exact_backgrounds(picture: Any, quantized: Any) -> Any:
    """Return a quantized picture that shows the most frequent colours of the picture exactly.

    The reason: Pillow searches a palette in steps of four levels, so white may become almost white in some pictures.
    Unchanged pixels are not drawn again, so white that a moving body uncovers would differ from the white around it.
    If two of these colours share an entry of the palette, only the more frequent one is exact.
    """
    # Each pixel as one number. Its fourth byte is always 255.
    pixels = np.asarray(picture.convert("RGBX")).view(np.uint32)[..., 0]
    palette = quantized.getpalette()
    exact = set()
    for _, colour in sorted(picture.getcolors(pixels.size), reverse=True)[:_BACKGROUNDS]:
        sample = np.array([*colour, 255], np.uint8).view(np.uint32)
        first = int(np.argmax(pixels == sample))  # the first pixel of this colour
        entry = int(np.asarray(quantized).flat[first])
        if entry not in exact:
            palette[3 * entry : 3 * entry + 3] = colour
            exact.add(entry)
    quantized.putpalette(palette)
    return quantized


def _frequent(pixels: UInt8) -> list[int]:
    """Return red, green and blue of at most `RARE_COLOURS` frequent colours of pixels [n, 3], far from each other.

    Each is the exact colour of some pixels, not a mean. Similar shades, as of smoothed edges, do not fill the palette.
    """
    # One number for each colour: `np.unique` is many times slower for rows.
    codes, counts = np.unique(pixels.astype(np.int64) @ (65536, 256, 1), return_counts=True)
    codes = codes[np.argsort(-counts, kind="stable")]  # the most frequent first
    left = codes[:, None] // (65536, 256, 1) % 256  # the colours again, [n, 3]
    kept: list[Any] = []
    while len(left) and len(kept) < RARE_COLOURS:
        kept.append(left[0])
        left = left[np.abs(left - left[0]).max(axis=1) > _FAR]
    return [int(channel) for colour in kept for channel in colour]


FORMATS: dict[str, type[Mp4 | Gif]] = {".mp4": Mp4, ".gif": Gif}
"""The encoder for each ending of a film's file name."""


def check_film(path: Path) -> None:
    """Raise InputError if a film cannot have this path, or if a library is missing."""
    if path.suffix == ".mp4":
        check_library()
    elif path.suffix == ".gif":
        library("PIL.ImageFont")  # `picture` writes texts with it
    disk.check_writable(path, tuple(FORMATS))


def check_library() -> None:
    """Raise InputError unless the libraries of MP4 films are installed."""
    for name in ("PIL.ImageFont", "av"):
        library(name)


def still(path: Path) -> tuple[bytes, tuple[int, int]]:
    """Return the picture at `_STILL_TIME` of an MP4 film, or its last picture, as JPEG; and the width and height."""
    with open(path, "rb") as file, library("av").open(file) as film:
        (stream,) = film.streams.video
        frames = itertools.islice(film.decode(stream), math.ceil(_STILL_TIME * stream.average_rate) + 1)
        last = deque(frames, maxlen=1).pop()  # holds only one frame in memory
        picture = last.to_image()
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=85)
    return written.getvalue(), picture.size
