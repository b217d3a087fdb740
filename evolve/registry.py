"""Registries: the named kinds of networks and strategies, each with the model of its options.

Other packages add kinds by entry points of the groups `evolve.network` and `evolve.strategy`: each names a pair
(options, kind), a subclass of `evolve.config.Options` and what is called with such options and the other arguments.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import Field

from evolve.config import Options, Table, nearest, parse
from evolve.errors import FAILURES, InputError, one_line

Kind = tuple[type[Options], Callable[..., Any]]


class _Named(Options):
    model_config = Options.model_config | {"extra": "ignore"}
    name: str = Field()


class Registry:
    """The kinds that a table of the experiment may name; `flag` is the name's command-line option."""

    def __init__(self, section: str, flag: str, kinds: Mapping[str, Kind]) -> None:
        self._section, self._flag, self._kinds = section, flag, kinds

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def _parse(self, table: Table) -> tuple[str, Kind, Options]:
        name = parse(_Named, table, self._section).name
        kind = self._kinds[name] if name in self._kinds else self._added(name)
        given = {key: value for key, value in table.items() if key != "name"}
        return name, kind, parse(kind[0], given, self._section)

    def _added(self, name: str) -> Kind:
        """Return a kind that another package has added. Raises InputError when none has, or it is no such pair."""
        added = {point.name: point for point in entry_points(group=f"evolve.{self._section}")}
        argument = f"{self._section}.name ({self._flag})"
        if name not in added:
            raise InputError(argument, f"a known {self._section}", name, nearest(name, [*self._kinds, *added]))
        return _load(added[name], argument)

    def kind(self, table: Table) -> Any:
        """Return the class that a table names. Raises InputError for a bad name or option."""
        return self._parse(table)[1][1]

    def model(self, table: Table) -> type[Options]:
        """Return the model of the options of what a table names. Raises InputError for a bad name or option."""
        return self._parse(table)[1][0]

    def options(self, table: Table) -> Table:
        """Return the table with every default spelled out. Raises InputError for a bad name or option."""
        name, _, options = self._parse(table)
        return {"name": name} | options.model_dump(mode="json", exclude_none=True)

    def make(self, table: Table, *arguments: Any) -> Any:
        """Return what the table describes: its kind called with the options and `arguments`."""
        _, kind, options = self._parse(table)
        return kind[1](options, *arguments)


def _load(point: EntryPoint, argument: str) -> Kind:
    expected = f"{point.value} to be a pair (options, kind), options a subclass of evolve.config.Options"
    try:
        found = point.load()
    except FAILURES as wrong:  # an import runs whatever the module holds
        raise InputError(argument, expected, f"{point.name}, which cannot be loaded ({one_line(wrong)})") from wrong
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], type)
            and issubclass(found[0], Options) and callable(found[1])):  # fmt: skip
        raise InputError(argument, expected, repr(found))
    return found
