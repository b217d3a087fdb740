"""Encoders: pictures go in one by one, and only the newest is kept."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from evolve.analysis.video.libraries import library

_GIF_FPS = 12.5
_CLEAR = 63  # the number of the colour that lets what was there be seen


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
