"""Registries: the named kinds of networks and strategies, each with the model of its options.

Other packages add kinds by entry points of the groups `evolve.network` and `evolve.strategy`: each names a pair
(options, kind), a subclass of `evolve.config.Options` and what is called with such options and the other arguments.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
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
    """The kinds that a table of the experiment may name.

    flag: the name's command-line option; contract: the protocol that what they make keeps.
    """

    def __init__(self, section: str, flag: str, kinds: Mapping[str, Kind], contract: type) -> None:
        self._section, self._flag, self._kinds, self._contract = section, flag, kinds, contract

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def _parse(self, table: Table) -> tuple[str, Kind, Options]:
        name = parse(_Named, table, self._section).name
        kind = self._kinds[name] if name in self._kinds else self._added(name)
        given = {key: value for key, value in table.items() if key != "name"}
        return name, kind, parse(kind[0], given, self._section)

    def _argument(self) -> str:
        return f"{self._section}.name ({self._flag})"

    def _added(self, name: str) -> Kind:
        """Return a kind that another package has added. Raises InputError when none has, or it is no such pair."""
        added = _points(f"evolve.{self._section}")
        if name not in added:
            cure = nearest(name, [*self._kinds, *added], listed=True)
            raise InputError(self._argument(), f"a known {self._section}", name, cure)
        return _load(added[name], self._argument())

    def ignored(self, table: Table) -> str | None:
        """Return a warning where another package has a kind of the name of the built-in one that a table names."""
        name = table.get("name")
        point = _points(f"evolve.{self._section}").get(name) if isinstance(name, str) and name in self._kinds else None
        if point is None:
            return None
        whose = f" of the package {point.dist.name}" if point.dist is not None else ""
        return f"{self._argument()}: {name} is evolve's own, not {point.value}{whose}, which needs another name"

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
        """Return what the table describes: its kind called with the options and `arguments`.

        Raises InputError for a bad name or option, and for what was added and does not keep the contract.
        """
        _, kind, options = self._parse(table)
        made = kind[1](options, *arguments)
        self.check(table, made, self._contract)
        return made

    def refuse(self, table: Table, *arguments: Any) -> None:
        """Raise InputError where the kind that a table names has something against its options in a new run."""
        _, kind, options = self._parse(table)
        objections = getattr(kind[1], "refuse", None)
        if objections is not None:
            objections(options, *arguments)

    def check(self, table: Table, made: Any, contract: type) -> None:
        """Raise InputError when what another package has made for a table lacks a part of a contract, a protocol."""
        name, parts = table["name"], [part for part, kind in vars(contract).items() if _is_needed(part, kind)]
        missing = [] if name in self._kinds else [part for part in parts if not _has(made, part)]
        if missing:
            expected = f"a {self._section} that keeps its contract ({contract.__module__})"
            came = f"{name}, whose {type(made).__name__} has no {' and no '.join(missing)}"
            raise InputError(self._argument(), expected, came)


def _has(made: object, part: str) -> bool:
    try:
        return hasattr(made, part)
    except FAILURES:  # a property of somebody else's, which is there, and will say so where it is needed
        return True


def _is_needed(part: str, kind: object) -> bool:
    """Return whether a part of a protocol is a method or a property; what else has a value may be left out."""
    return not part.startswith("_") and (callable(kind) or isinstance(kind, property))


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of other packages."""
    return {point.name: point for point in entry_points(group=group)}


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
