"""Registries: the kinds of networks and of strategies by name, each with the model of its options.

A `Choice` is the section of an experiment that names a kind. Other Python packages add kinds through entry points.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import Field, model_validator

from evolve.config.options import Options, Table, nearest, parse, writable
from evolve.errors import FAILURES, InputError, one_line


class UnknownOptions(Options):
    """Options of a kind that is not installed here: kept as they are, so that its experiment can be looked at."""

    model_config = Options.model_config | {"extra": "allow"}

    @model_validator(mode="before")
    @classmethod
    def _check(cls, table: Any) -> Any:
        return writable(table)


@dataclass(frozen=True)
class Choice:
    """A kind that a section of an experiment names, with all its options.

    Attributes:
        section: "network" or "strategy".
        name: The kind.
        options: An instance of the kind's model; `UnknownOptions` where the kind is not installed here.
    """

    section: str
    name: str
    options: Options

    def table(self) -> Table:
        """Return the section as TOML has it: the name and every option that has a value, defaults included."""
        return {"name": self.name} | self.options.model_dump(mode="json", exclude_none=True)


Section = Choice | Mapping[str, Any]
"""A choice, or the table of a section that has still to be validated."""


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


class _Named(Options):
    model_config = Options.model_config | {"extra": "ignore"}
    name: str = Field()


class Registry:
    """The kinds that a section of an experiment may name. It is registered itself, for `registry_of`.

    Args:
        section: The name of the section.
        kinds: The built-in kinds by name.
        contract: The protocol, or the base class, that what the kinds make has to implement.
        aliases: The kinds by other names, such as those of earlier versions. `Choice.name` is always the present one.
    """

    def __init__(
        self, section: str, kinds: Mapping[str, Kind], contract: type, aliases: Mapping[str, str] | None = None
    ) -> None:
        self._section = section
        self._kinds = kinds
        self._contract = contract
        self._aliases = aliases or {}
        REGISTRIES[section] = self

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def parse(self, section: Section, lenient: bool = False) -> Choice:
        """Return a section, validated and complete.

        Args:
            section: A table; or a choice, which is returned as it is unless its kind was unknown.
            lenient: Whether to keep a kind that is not installed here, or options that do not fit it, as they are.

        Raises:
            InputError: The name or an option is wrong.
        """
        if isinstance(section, Choice):
            if lenient or not isinstance(section.options, UnknownOptions):
                return section
            section = section.table()
        if not isinstance(section, Mapping):
            raise InputError(self._section, "a table", section)
        name = self._name(section)
        given = {key: value for key, value in section.items() if key != "name"}
        try:
            options_class, _ = self._entry(name)
            return Choice(self._section, name, parse(options_class, given, self._section))
        except InputError:
            if not lenient:
                raise
            return Choice(self._section, name, parse(UnknownOptions, given, self._section))

    def kind(self, section: Section) -> Any:
        """Return the class that a section names. Raises InputError for a wrong name or option."""
        return self._entry(self.parse(section).name)[1]

    def options_class(self, section: Section) -> type[Options]:
        """Return the class of the options of the kind that a section names. Raises InputError for a wrong name."""
        return self._entry(self._name(section))[0]

    def make(self, section: Section, *arguments: Any) -> Any:
        """Return what a section describes: its kind, called with the options and `arguments`.

        Raises InputError for a wrong name or option, and where an added kind makes what does not keep the contract.
        """
        choice = self.parse(section)
        made = self._entry(choice.name)[1](choice.options, *arguments)
        self.check(choice, made, self._contract)
        return made

    def validate(self, section: Section, *arguments: Any) -> None:
        """Raise InputError for options that make no sense in a new run.

        Asks the static method `validate(options, *arguments)` of the kind, if it has one. Runs that have begun are
        not asked: they go on as they are.
        """
        choice = self.parse(section)
        validate = getattr(self._entry(choice.name)[1], "validate", None)
        if validate is not None:
            validate(choice.options, *arguments)

    def check(self, section: Section, made: Any, contract: type) -> None:
        """Raise InputError where `made`, which an added kind has made, lacks a part of a contract.

        contract: A protocol, or a base class. `made` must be an instance of a base class and have no abstract methods.
        """
        name = self._name(section)
        if name in self._kinds:
            return
        kind = type(made).__name__
        if not _is_protocol(contract) and not isinstance(made, contract):
            came = f"{name}, whose {kind} is no subclass of {contract.__name__}"
            raise InputError(self._argument, self._expected(contract), came)
        missing = [part for part in _parts(contract) if not _has(made, part)]
        if missing:
            came = f"{name}, whose {kind} has no {' and no '.join(missing)}"
            raise InputError(self._argument, self._expected(contract), came)

    @contextmanager
    def as_input_error(self, section: Section, what: str) -> Iterator[None]:
        """Turn whatever is raised inside, by a kind or by a check of what it returned, into an InputError.

        Args:
            section: The section that named the kind.
            what: What is being tried: "init".
        """
        try:
            yield
        except InputError:
            raise
        except FAILURES as error:
            came = f"{self._name(section)}, whose {what} goes wrong ({one_line(error)})"
            raise InputError(self._argument, self._expected(self._contract), came) from error

    def shadowing(self, section: Section) -> str | None:
        """Return a warning where a section names a built-in kind, and another package adds one of the same name."""
        name = self._name(section)
        points = entry_points_of(self._section).get(name) if name in self._kinds else None
        if points is None:
            return None
        return f"{self._argument}: {name} is evolve's own, not {origin(points[0])}, which needs another name"

    @property
    def _argument(self) -> str:
        return f"{self._section}.name"

    def _expected(self, contract: type) -> str:
        return f"a {self._section} that keeps its contract ({contract.__module__})"

    def _name(self, section: Section) -> str:
        name = section.name if isinstance(section, Choice) else parse(_Named, section, self._section).name
        return self._aliases.get(name, name)

    def _entry(self, name: str) -> Kind:
        """Return a kind, built-in or added. Raises InputError for an unknown name, or an added kind that is no pair."""
        if name in self._kinds:
            return self._kinds[name]
        added = entry_points_of(self._section)
        if name not in added:
            cure = nearest(name, [*self._kinds, *added], listed=True)
            raise InputError(self._argument, f"a known {self._section}", name, cure)
        return load(added[name], self._argument)


REGISTRIES: dict[str, Registry] = {}
"""The registries of all sections, by section."""


def registry_of(section: str) -> Registry:
    """Return the registry of a section. Raises RuntimeError where the package that makes it has not been imported."""
    if section not in REGISTRIES:
        raise RuntimeError(
            f"there is no registry for the section [{section}] yet: import its package first, for example "
            "`import evolve.networks, evolve.strategies`"
        )
    return REGISTRIES[section]


def _is_protocol(contract: type) -> bool:
    return bool(getattr(contract, "_is_protocol", False))


def _has(made: object, part: str) -> bool:
    if getattr(getattr(type(made), part, None), "__isabstractmethod__", False):
        return False
    try:
        return hasattr(made, part)
    except FAILURES:  # a property that raises is there, and will say so where it is needed
        return True


def _parts(contract: type) -> list[str]:
    """Return the methods and properties of a protocol and of those it extends; other attributes may be left out."""
    members = {name: member for base in reversed(contract.__mro__) for name, member in vars(base).items()}
    return [
        name
        for name, member in members.items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    ]
