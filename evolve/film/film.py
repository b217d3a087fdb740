"""A film: pictures that become a file when it is whole."""

import math
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evolve.errors import InputError, RunError
from evolve.film.encoders import Encoder, Gif, Mp4
from evolve.film.libraries import library
from evolve.film.picture import Label, Painter
from evolve.shapes import UInt8

FORMATS: dict[str, type[Mp4 | Gif]] = {".mp4": Mp4, ".gif": Gif}
"""What a film's name may end with."""
_ARGUMENT = "--video"


def check(path: Path) -> None:
    """Raise InputError when no film can be made at `path`: its name, its folder, or the libraries."""
    if path.suffix not in FORMATS:
        raise InputError(_ARGUMENT, f"a name that ends with {' or '.join(FORMATS)}", str(path))
    for name in ("PIL.ImageFont", *(("av", "imageio.v3") if path.suffix == ".mp4" else ())):
        library(name)
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        _partial(path).open("wb").close()
        _partial(path).unlink()
    except OSError as wrong:
        raise _unwritable(path, wrong) from None


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial{path.suffix}")  # a viewer never meets half a film


def _unwritable(path: Path, wrong: OSError) -> InputError:
    return InputError(_ARGUMENT, "a file that can be written", f"{path} ({wrong.strerror or wrong})")


class Film:
    """A film that is written to `path` while it is made; a context manager that leaves a whole film or nothing.

    fps: frames per second; width: the widest it may be, in pixels. Raises InputError where it cannot be written.
    """

    def __init__(self, path: Path, fps: float, width: int | None = None) -> None:
        self._path, self._fps, self._width = path, fps, width
        self._painter: Painter | None = None
        self._last: Any = None
        try:
            self._encoder: Encoder = FORMATS[path.suffix](_partial(path), fps)
        except OSError as wrong:
            raise _unwritable(path, wrong) from None
        self.every = self._encoder.every
        """Of so many frames one should be added: the format is too slow for more."""

    def __enter__(self) -> Self:
        return self

    def add(self, frame: UInt8, label: Label) -> None:
        """Add a frame [H, W, 3], with its label below it."""
        self._last = self._paint(frame).paint(frame, label)
        self._write(self._last, 1)

    def card(self, frame: UInt8, title: str, below: str, seconds: float) -> None:
        """Add a title card, of the size that the film of `frame` [H, W, 3] has."""
        self._last = self._paint(frame).card(title, below)
        self.hold(seconds)

    def hold(self, seconds: float) -> None:
        """Show the last picture so much longer."""
        if self._last is not None:
            self._write(self._last, math.ceil(seconds * self._fps / self.every))

    def _paint(self, frame: UInt8) -> Painter:
        if self._painter is None:
            self._painter = Painter(frame, self._width)
        return self._painter

    def _write(self, picture: Any, times: int) -> None:
        try:
            self._encoder.write(picture, times)
        except OSError as wrong:
            raise _unwritable(self._path, wrong) from None

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None, at: TracebackType | None) -> None:
        try:
            with suppress(*() if kind is None else (Exception,)):
                self._encoder.close()
            if kind is None:
                if self._last is None:
                    raise RunError(f"{self._path}: nothing has been filmed")
                _partial(self._path).replace(self._path)
        except OSError as failed:
            raise _unwritable(self._path, failed) from None
        finally:
            _partial(self._path).unlink(missing_ok=True)
