"""Kinds of networks and strategies that other Python packages add.

They do so by entry points of the groups `evolve.network` and `evolve.strategy`. Each entry point names a pair
(options, kind): a subclass of `evolve.config.Options`, and what is called with such options and the other arguments.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from evolve.config.options import Options
from evolve.errors import FAILURES, InputError, one_line

Kind = tuple[type[Options], Callable[..., Any]]

_all_entry_points = cache(entry_points)  # a file is read of each package that is installed


@cache
def entry_points_of(section: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Return by name the entry points by which other packages add kinds to a section of an experiment."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in _all_entry_points().select(group=f"evolve.{section}"):
        found.setdefault(point.name, {})[point.value] = point  # a package may be found twice
    return {name: tuple(points.values()) for name, points in found.items()}


def origin(point: EntryPoint) -> str:
    """Return an entry point in words: what it names, and whose it is, if that is known."""
    return point.value + (f" of the package {point.dist.name}" if point.dist is not None else "")


def load(points: Sequence[EntryPoint], argument: str) -> Kind:
    """Return the kind that the entry points of one name name.

    Raises InputError, for the setting `argument`, when it is none, or there are several.
    """
    point = points[0]
    if len(points) > 1:
        came = f"{point.name}, which is {' and '.join(map(origin, points))}"
        raise InputError(argument, "a name that one package adds", came, "Uninstall the others.")
    expected = f"{point.value} to be a pair (options, kind), options a subclass of evolve.config.Options"
    try:
        found = point.load()
    except FAILURES as error:  # an import runs whatever the module holds
        raise InputError(argument, expected, f"{point.name}, which cannot be loaded ({one_line(error)})") from error
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], type)
            and issubclass(found[0], Options) and callable(found[1])):  # fmt: skip
        raise InputError(argument, expected, repr(found))
    return found
