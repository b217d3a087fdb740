"""The encoder of films, and their conversion to GIF."""

import io
import itertools
import math
from collections import deque
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from evolve.errors import import_extra

FORMATS = (".mp4", ".gif")
"""The endings that a film's file name may have."""
_STILL_TIME = 3.0  # seconds from the start of a film to the picture that represents it
_COLOURS = 255  # of a GIF; all of its pictures share them. With fewer, small parts lose their colour beside a gradient


def library(name: str) -> Any:
    """Return a module of PyAV or Pillow. Raises InputError if it is not installed."""
    return import_extra(name, "video", "films", "PyAV and Pillow")


class Encoder:
    """Writes a film as H.264. Pictures are RGB images of Pillow, all of one size.

    Args:
        path: The file, an MP4.
        fps: Pictures per second.
        lossless: Whether to keep the exact colours, for `convert_to_gif`. By default the film has the pixel format that
            every browser plays.
    """

    def __init__(self, path: Path, fps: float, lossless: bool) -> None:
        av = library("av")
        # With "faststart" the index is at the start of the file, so a browser can play the film while it loads.
        self._film = av.open(str(path), "w", format="mp4", options={"movflags": "faststart"})
        codec, options = ("libx264rgb", {"qp": "0", "preset": "ultrafast"}) if lossless else ("libx264", {})
        self._stream = self._film.add_stream(codec, rate=Fraction(fps).limit_denominator(1000), options=options)
        self._stream.pix_fmt = "rgb24" if lossless else "yuv420p"
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


def convert_to_gif(film: Path, path: Path) -> None:
    """Convert a film to a GIF in an endless loop.

    The film is read twice. The first time gives the colours of the whole GIF, so equal areas stay equal from picture to
    picture. The GIF has only the pixels that change, and is thus small.
    """
    av = library("av")
    graph = av.filter.Graph()
    first, second = (graph.add("movie", filename=str(film)) for _ in range(2))
    colours = graph.add("palettegen", max_colors=str(_COLOURS))
    coloured = graph.add("paletteuse", dither="none")
    first.link_to(colours)
    second.link_to(coloured, 0, 0)
    colours.link_to(coloured, 0, 1)
    coloured.link_to(graph.add("buffersink"))
    graph.configure()
    with av.open(str(film)) as source, av.open(str(path), "w", format="gif") as gif:
        (size,) = source.streams.video
        stream = gif.add_stream("gif", rate=size.average_rate)
        stream.pix_fmt, stream.width, stream.height = "pal8", size.width, size.height
        with suppress(EOFError):  # the filters raise it after the last picture
            while True:
                gif.mux(stream.encode(graph.pull()))
        gif.mux(stream.encode())


def check_library() -> None:
    """Raise InputError unless the libraries of films are installed."""
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
