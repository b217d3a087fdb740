"""Missing libraries."""

from collections.abc import Mapping
from importlib.util import find_spec


def missing(needed: Mapping[str, str]) -> list[str]:
    """Return the needed packages that are not installed. needed: packages by module."""
    return [package for module, package in needed.items() if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # the import is blocked
        return False
