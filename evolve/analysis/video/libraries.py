"""The libraries that films are made with."""

from functools import cache
from typing import Any

from evolve.config import import_extra


def library(name: str) -> Any:
    """Return a module of imageio, PyAV or Pillow. Raises InputError where it is not installed."""
    return import_extra(name, "video", "films", "imageio, PyAV and Pillow")


@cache
def font(size: int) -> Any:
    """Return Pillow's own font, so many pixels high."""
    return library("PIL.ImageFont").load_default(size)
