"""The encoder of films, their conversion to GIF, and still pictures of films.

PyAV is the Python interface of FFmpeg. It encodes and decodes films, and its graphs of filters convert pictures.
"""

import io
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

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
        file: The path of an MP4 that every browser plays, or an open binary file for a film with exact colours, which
            `convert_to_gif` reads.
        fps: Pictures per second.
    """

    def __init__(self, file: Path | BinaryIO, fps: float) -> None:
        av = library("av")
        lossless = not isinstance(file, Path)
        if lossless:
            self._film = av.open(file, "w", format="matroska")
            codec, options = "libx264rgb", {"qp": "0", "preset": "ultrafast"}
        else:
            # With "faststart" the index is at the start of the file, so a browser can play the film while it loads.
            self._film = av.open(str(file), "w", format="mp4", options={"movflags": "faststart"})
            codec, options = "libx264", {}
        self._stream = self._film.add_stream(codec, rate=_rate(fps), options=options)
        self._stream.pix_fmt = "rgb24" if lossless else "yuv420p"
        self._stream.thread_count = 1  # with several threads x264 may encode equal pictures to different bytes
        self._to_frame = av.VideoFrame.from_image
        # All pictures share a reformatter with one thread. By default it has a thread for each core, and a process that
        # forks could then hang.
        self._reformatter = av.video.reformatter.VideoReformatter()
        self._written = 0  # pictures

    def write(self, picture: Any, times: int) -> None:
        """Write a picture `times` times."""
        if not self._written:
            self._stream.width, self._stream.height = picture.size
        frame = self._reformatter.reformat(self._to_frame(picture), format=self._stream.pix_fmt, threads=1)
        for _ in range(times):
            frame.pts = self._written
            self._film.mux(self._stream.encode(frame))
            self._written += 1

    def close(self) -> None:
        """Write the pictures that the encoder still holds, and finish the file."""
        with self._film:
            self._film.mux(self._stream.encode())


def convert_to_gif(film: BinaryIO, path: Path, fps: float, check: Callable[[str], None] | None) -> None:
    """Convert a film to a GIF that plays in an endless loop.

    The film is read twice. The first time gives the colours of the whole GIF, so equal areas stay equal from picture to
    picture. The GIF has only the pixels that change, and is thus small.

    film: A file that an `Encoder` has written.
    check: Called at each picture with a few words about the current work; may raise an error to give up the GIF.
    """
    palette = _palette(_read(film, check))
    pictures = _read(film, check)
    first = next(pictures)
    graph = _filter_graph("paletteuse", [first, palette], dither="none")
    graph.push(palette, at=1)
    graph.push(None, at=1)  # the palette has no second picture
    with library("av").open(str(path), "w", format="gif") as gif:
        stream = gif.add_stream("gif", rate=_rate(fps))
        stream.pix_fmt, stream.width, stream.height, stream.thread_count = "pal8", first.width, first.height, 1
        for picture in itertools.chain([first], pictures, [None]):  # None ends the film
            graph.push(picture, at=0)
            with suppress(BlockingIOError, EOFError):  # the filter needs the next picture, or has had the last one
                while True:
                    gif.mux(stream.encode(graph.pull()))
        gif.mux(stream.encode())


def _palette(pictures: Iterator[Any]) -> Any:
    """Return a picture of 16 × 16 pixels with the colours that suit all pictures best."""
    first = next(pictures)
    graph = _filter_graph("palettegen", [first], max_colors=str(_COLOURS))
    for picture in itertools.chain([first], pictures, [None]):
        graph.push(picture)
    return graph.pull()


def _filter_graph(name: str, inputs: list[Any], **options: str) -> Any:
    """Return a graph with one filter of FFmpeg, and its options.

    inputs: For each input of the filter a picture, of the size and the format of all pictures for this input.
    """
    graph = library("av").filter.Graph()
    graph.threads = 1  # as in `Encoder`
    filter_ = graph.add(name, **options)
    for number, picture in enumerate(inputs):
        size = {"width": picture.width, "height": picture.height}
        source = graph.add_buffer(**size, format=picture.format, time_base=picture.time_base)
        source.link_to(filter_, 0, number)
    filter_.link_to(graph.add("buffersink"))
    graph.configure()
    return graph


def _read(film: BinaryIO, check: Callable[[str], None] | None) -> Iterator[Any]:
    """Yield the pictures of a film from its start. check: See `convert_to_gif`."""
    film.seek(0)
    with library("av").open(film) as source:
        (stream,) = source.streams.video
        stream.thread_count = 1  # as in `Encoder`
        for picture in source.decode(stream):
            if check is not None:
                check(" while the GIF was written")
            yield picture


def _rate(fps: float) -> Fraction:
    """Return pictures per second as a fraction, which PyAV requires."""
    return Fraction(fps).limit_denominator(1000)


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
