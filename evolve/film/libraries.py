"""The libraries that films are made with."""

import importlib
from typing import Any

from evolve.errors import InputError, one_line


def library(name: str) -> Any:
    """Return a module of imageio, PyAV or Pillow. Raises InputError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as wrong:
        cure = "Install them: pip install 'evolve[video]' (in a clone: pip install -e '.[video]')."
        raise InputError("films", "a working imageio, PyAV and Pillow", one_line(wrong), cure) from None
