"""The libraries that films are made with."""

from typing import Any

from evolve.config import import_extra


def library(name: str) -> Any:
    """Return a module of imageio, PyAV or Pillow. Raises InputError where it is not installed."""
    return import_extra(name, "video", "films", "imageio, PyAV and Pillow")
