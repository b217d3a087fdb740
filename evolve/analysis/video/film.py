"""Make a film of episodes and write it as GIF, MP4 or PNG."""

import io
import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from evolve.analysis.figures import DrawnNetwork
from evolve.analysis.video.picture import Label, Painter, library
from evolve.errors import RunError
from evolve.networks import Activity
from evolve.shapes import UInt8
from evolve.store.disk import atomic_write, check_writable, naming_output

_GIF_FPS = 12.5
_CLEAR = 63  # the number of the colour that lets what was there be seen


_GIF_WIDTH = 640  # pixels, unless another is asked for: a GIF grows fast


class Encoder(Protocol):
    """A file that is written picture by picture."""

    every: int
    """Of so many frames one is wanted."""

    def write(self, picture: Any, times: int) -> None:
        """Show a picture for the time of so many."""

    def close(self) -> None:
        """End the file."""


class Mp4:
    """H.264 in the colours that every browser plays; fps: frames per second."""

    every = 1

    def __init__(self, path: Path, fps: float) -> None:
        library("av")
        imageio = library("imageio.v3")
        self._file = imageio.imopen(path, "w", plugin="pyav", container_options={"movflags": "faststart"})
        self._file.init_video_stream("libx264", fps=fps, pixel_format="yuv420p")

    def write(self, picture: Any, times: int) -> None:
        """Write a picture so many times."""
        for _ in range(times):
            self._file.write_frame(np.asarray(picture))

    def close(self) -> None:
        """Write what the encoder still holds."""
        try:
            self._file.close()
        except Exception:
            self._file.close = lambda: None  # it would try once more when it is collected, and complain
            raise


class Gif:
    """A GIF that repeats for ever, of some 12 frames per second with 63 colours each, so that it stays small.

    Each picture is written when the next one comes, since only then is it known how long it is shown.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._image = library("PIL.Image")
        self._chops = library("PIL.ImageChops")
        self._gif = library("PIL.GifImagePlugin")
        self.every = max(1, round(fps / _GIF_FPS))
        self._fps = fps / self.every
        self._shown = 0  # pictures
        self._due = 0  # hundredths of a second
        self._written: Any = None
        self._waiting: tuple[Any, tuple[int, int]] | None = None
        self._file = path.open("wb")

    def write(self, picture: Any, times: int) -> None:
        """Show a picture for the time of so many; only what differs from the last one is written."""
        if self._written is None:
            head, _ = self._gif.getheader(self._colours(picture), info={"loop": 0})
            self._file.write(b"".join(head))
            box: tuple[int, ...] | None = (0, 0, *picture.size)
            same = None
        else:
            change = self._chops.difference(picture, self._written)
            box = change.getbbox()
            same = None if box is None else self._unchanged(change.crop(box))
        if box is not None:
            self._write_waiting()
            part = self._colours(picture.crop(box))
            if same is not None:
                part.paste(_CLEAR, mask=same)
            self._waiting = (part, (box[0], box[1]))
            self._written = picture
        self._shown += times

    def _colours(self, picture: Any) -> Any:
        return picture.quantize(_CLEAR, self._image.Quantize.MEDIANCUT, dither=self._image.Dither.NONE)

    def _unchanged(self, change: Any) -> Any:
        """Return a mask of the pixels that are the same in both pictures: long rows of one value are short in a GIF."""
        most = self._chops.lighter(self._chops.lighter(*change.split()[:2]), change.split()[2])
        return most.point([255] + [0] * 255)

    def _write_waiting(self) -> None:
        if self._waiting is None:
            return
        until = round(100 * self._shown / self._fps)  # GIF counts hundredths of a second
        part, at = self._waiting
        how = {"duration": 10 * (until - self._due), "disposal": 1, "transparency": _CLEAR, "include_color_table": True}
        self._file.write(b"".join(self._gif.getdata(part, at, **how)))
        self._due = until
        self._waiting = None

    def close(self) -> None:
        """Write the last picture, and end the file."""
        with self._file:
            self._write_waiting()
            self._file.write(b";")


FORMATS: dict[str, Callable[[Path, float], Encoder]] = {".mp4": Mp4, ".gif": Gif}
"""What a film's name may end with."""


def check_film(path: Path) -> None:
    """Raise InputError when no film can be made at `path`: its name, its directory, or the libraries."""
    if path.suffix in FORMATS:
        for name in ("PIL.ImageFont", *(("av", "imageio.v3") if path.suffix == ".mp4" else ())):
            library(name)
    check_writable(path, tuple(FORMATS))


def still(path: Path, seconds: float = 3.0) -> bytes:
    """Return a picture of an mp4 film as JPEG: that after so many seconds, or the last one."""
    library("av")
    picture = None
    fps = float(library("imageio.v3").immeta(path, plugin="pyav")["fps"])
    for number, frame in enumerate(library("imageio.v3").imiter(path, plugin="pyav")):
        picture = frame
        if number >= seconds * fps:
            break
    written = io.BytesIO()
    library("PIL.Image").fromarray(picture).save(written, "JPEG", quality=85)
    return written.getvalue()


class Film:
    """A film that is written to `path` while it is made; a context manager that leaves a whole film or nothing.

    Args:
        path: Its name ends with one of `FORMATS`.
        fps: Frames per second.
        width: The widest it may be, in pixels; a GIF is 640 wide unless this says otherwise.
        beside: Whether it has a place for a network beside the body.

    Raises:
        InputError: The file cannot be written; from any method.
    """

    def __init__(self, path: Path, fps: float, width: int | None = None, beside: bool = False) -> None:
        self._path = path
        self._fps = fps
        self._width = _GIF_WIDTH if width is None and path.suffix == ".gif" else width
        self._beside = beside
        self._network: DrawnNetwork | None = None
        self._painter: Painter | None = None
        self._last: Any = None

    def __enter__(self) -> Self:
        with naming_output(self._path), ExitStack() as opened:
            partial = opened.enter_context(atomic_write(self._path))
            self._encoder = FORMATS[self._path.suffix](partial, self._fps)
            opened.push(self._finish)
            self._opened = opened.pop_all()
        return self

    @property
    def every(self) -> int:
        """How many frames one picture stands for; more of them would be too fast for the format."""
        return self._encoder.every

    def show_network(self, drawn: DrawnNetwork | None) -> None:
        """Have another network beside the body from now on, or none."""
        self._network = drawn
        if self._painter is not None:
            self._painter.show_network(drawn)

    def add(self, frame: UInt8, label: Label, activity: Activity | None = None) -> None:
        """Add a frame [H, W, 3], with its label above it, and what the network did at it."""
        self._last = self._painter_for(frame).paint(frame, label, activity)
        self._write(self._last, 1)

    def card(self, frame: UInt8, title: str, below: str, seconds: float) -> None:
        """Add a title card, of the size that the film of `frame` [H, W, 3] has."""
        self._last = self._painter_for(frame).card(title, below)
        self.hold(seconds)

    def hold(self, seconds: float) -> None:
        """Show the last picture so much longer."""
        if self._last is not None:
            self._write(self._last, math.ceil(seconds * self._fps / self.every))

    def _painter_for(self, frame: UInt8) -> Painter:
        if self._painter is None:
            self._painter = Painter(frame, self._width, self._beside)
            self._painter.show_network(self._network)
        return self._painter

    def _write(self, picture: Any, times: int) -> None:
        with naming_output(self._path):
            self._encoder.write(picture, times)

    def _finish(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            with suppress(Exception):  # the film is given up, and the first error is the one to report
                self._encoder.close()
            return
        self._encoder.close()
        if self._last is None:
            raise RunError(f"{self._path}: nothing has been filmed")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with naming_output(self._path):
            self._opened.__exit__(kind, error, at)
