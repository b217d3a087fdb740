"""A `Registry` knows the kinds of networks or strategies by name, each with the model of its options.

A `Choice` is the section of an experiment that names a kind. Other Python packages add kinds by entry points. A module
without a package adds a kind by the name `module:object`.

`advice` is the answer to an unknown setting. It proposes a setting of the same name in another section, or the setting
of the same meaning if the name is of another tool.
"""

import difflib
import inspect
import os
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar, cast

import pydantic
import tomli_w
from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from evolve.config.options import OBJECT_NAME, Options, Table, check_toml_value, fold, parse, suggest
from evolve.errors import FAILURES, SOURCE, InputError, one_line

_HERE = str(SOURCE / "evolve") + os.sep  # with a separator, because another package may be called evolve_…


class UnknownOptions(Options):
    """Options that cannot be validated here: the kind is not installed, or does not accept them.

    They stay unchanged, so that the experiment can be inspected.
    """

    model_config = Options.model_config | {"extra": "allow"}

    @model_validator(mode="before")
    @classmethod
    def _check(cls, table: Any) -> Any:
        return check_toml_value(table)


@dataclass(frozen=True)
class Choice:
    """The kind that a section of an experiment names, with all its options.

    Attributes:
        name: The kind.
        options: An instance of the kind's model, a subclass of `Options`; `UnknownOptions` if they cannot be validated
            here. The type is Any, because type checkers do not know the fields of this model.
    """

    name: str
    options: Any

    def table(self) -> Table:
        """Return the section as a TOML table: the name and all options that have a value, including defaults."""
        return {"name": self.name} | self.options.model_dump(mode="json", exclude_none=True)


Section = Choice | Mapping[str, Any]
"""A choice, or the table of a section before validation."""

Kind = tuple[type[Options], Callable[..., Any]]
"""A kind of network or strategy: the model of its options, and the class or function that makes it."""


# Cached, because the search reads a file of each installed package.
@cache
def entry_points_of(section: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of other packages that add kinds to a section, by name."""
    # By name and value: a package may be found twice, and equal entry points count once.
    by_name: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=f"evolve.{section}"):
        by_name.setdefault(point.name, {})[point.value] = point
    return {name: tuple(points.values()) for name, points in by_name.items()}


def points_of(section: str, name: str) -> tuple[EntryPoint, ...]:
    """Return the entry points that add a kind of this name to a section.

    The name `module:object` names the object of an entry point itself, so this kind needs no package.
    """
    if OBJECT_NAME.fullmatch(name):
        return (EntryPoint(name, name, f"evolve.{section}"),)
    return entry_points_of(section).get(name, ())


def origin_text(point: EntryPoint) -> str:
    """Return the origin of an entry point in words: its object, and its package if the package is known."""
    return point.value + (f" of the package {point.dist.name}" if point.dist is not None else "")


def load_kind(points: Sequence[EntryPoint], argument: str) -> Kind:
    """Return the kind to which the entry points of a name refer. argument: the setting, for errors.

    Raises InputError if several packages add the name, or if the object is not a kind.
    """
    point = points[0]
    if len(points) > 1:
        got = f"{point.name}, which is {' and '.join(map(origin_text, points))}"
        raise InputError(argument, "a name that one package adds", got, "Uninstall all but one.")
    expected = f"{point.value} to be a pair (options, kind), options a subclass of evolve.config.Options"
    try:
        loaded = point.load()
    except FAILURES as error:  # the imported module runs arbitrary code
        got = f"{point.name}, which cannot be loaded ({one_line(error)})"
        # Whether the module itself or a package around it is missing. Otherwise one of its own imports has failed.
        is_absent = isinstance(error, ModuleNotFoundError) and f"{point.module}.".startswith(f"{error.name}.")
        cure = "Modules are looked for in the working directory and on PYTHONPATH." if is_absent else ""
        raise InputError(argument, expected, got, cure) from error
    if isinstance(loaded, tuple) and len(loaded) == 2:
        options, kind = loaded
        if isinstance(options, type) and issubclass(options, Options) and callable(kind):
            _check_defaults(options, point.value, argument)
            return options, kind
    raise InputError(argument, expected, repr(loaded))


def _check_defaults(options: type[Options], name: str, argument: str) -> None:
    """Raise InputError if the defaults of options cannot be written as TOML and read back, as a run file needs it."""
    expected = f"options of {name} whose defaults can be read back from TOML, without an option called name"
    if "name" in options.model_fields:
        raise InputError(argument, expected, "the option name")
    try:
        defaults = options()
    except ValidationError:  # an option without a default
        return
    try:
        text = tomli_w.dumps(defaults.model_dump(mode="json", exclude_none=True))
        parse(options, tomllib.loads(text), lenient=True)
    except (TypeError, ValueError, InputError) as error:
        raise InputError(argument, expected, error if isinstance(error, InputError) else one_line(error)) from error


Value = TypeVar("Value")


class ImportedOnDemand(Mapping[str, Value]):
    """Objects of a package by name. The module of an object is imported when the object is first asked for.

    A run needs one strategy, one network and at most one exact task. No rank has to import the others.

    Args:
        package: The package of the modules.
        locations: By name: the module and the object in it. If several objects follow, the value is their tuple.
    """

    def __init__(self, package: str, locations: Mapping[str, tuple[str, ...]]) -> None:
        self._package = package
        self._locations = locations

    def __getitem__(self, name: str) -> Value:
        module, *objects = self._locations[name]
        values = tuple(getattr(import_module(f"{self._package}.{module}"), each) for each in objects)
        return cast("Value", values if len(values) > 1 else values[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self._locations)

    def __len__(self) -> int:
        return len(self._locations)

    def __contains__(self, name: object) -> bool:
        return name in self._locations  # the inherited method would import the module


class _Named(Options):
    # Only the name is read here. The model of the kind validates the other options later.
    model_config = Options.model_config | {"extra": "ignore"}
    name: str = Field()


@dataclass(frozen=True, eq=False)
class Registry:
    """The kinds that a section of an experiment may name. A new registry adds itself to `REGISTRIES`.

    Attributes:
        section: The name of the section.
        kinds: The built-in kinds by name.
        contract: The protocol or base class of the networks or strategies that the kinds make.
        aliases: Other names of kinds, such as old ones. `Choice.name` is always the current name.
        proposals: By the name of a network or strategy in another tool, as `fold` writes it: the kind to propose.
    """

    section: str
    kinds: Mapping[str, Kind]
    contract: type
    aliases: Mapping[str, str] = field(default_factory=dict)
    proposals: Mapping[str, str] = field(default_factory=dict)
    _names: dict[type, str] = field(default_factory=dict, init=False)  # of kinds, by the class of what they made

    def __post_init__(self) -> None:
        REGISTRIES[self.section] = self

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def parse(self, section: Section, lenient: bool = False) -> Choice:
        """Validate a section and add its defaults.

        Args:
            section: A table, or a choice. A choice is returned unchanged unless it has `UnknownOptions` to validate.
            lenient: Whether the section comes from a file or a message. Then invalid options, and the options of an
                unknown kind, become `UnknownOptions`, and models may add defaults of earlier versions.

        Raises:
            InputError: The name or an option is invalid.
        """
        if isinstance(section, Choice):
            if lenient or not isinstance(section.options, UnknownOptions):
                return section
            section = section.table()
        name = self._name(section)
        table = {key: value for key, value in section.items() if key != "name"}
        try:
            options_class, _ = self._entry(name)
            options = parse(options_class, table, self.section, lenient)
            for key, value in options:
                # TOML has no None, so workers and run files would get the default instead.
                if value is None and options_class.model_fields[key].default is not None:
                    raise InputError(f"{self.section}.{key}", "a value, because TOML has no None", value)
            return Choice(name, options)
        except InputError:
            if not lenient:
                raise
            return Choice(name, parse(UnknownOptions, table, self.section))

    def kind(self, section: Section) -> Any:
        """Return the class or function of a section's kind. Raises InputError for an invalid name or option."""
        _, kind = self._entry(self.parse(section).name)
        return kind

    def options_class(self, section: Section) -> type[Options]:
        """Return the model of the options of a section's kind. Raises InputError for an unknown name."""
        options_class, _ = self._entry(self._name(section))
        return options_class

    def make(self, section: Section, *arguments: Any) -> Any:
        """Make the network or strategy that a section describes: call its kind with the options and `arguments`.

        Raises InputError for an invalid name or option, or if an added kind violates the contract.
        """
        choice = self.parse(section)
        # An exception of a built-in kind keeps its traceback. An exception of an added kind becomes an InputError.
        with nullcontext() if choice.name in self.kinds else self.as_input_error(choice, "constructor"):
            made = self.kind(choice)(choice.options, *arguments)
        self.check(choice, made, self.contract)
        self._names[type(made)] = choice.name
        return made

    def name_of(self, made: object) -> str:
        """Return the name under which `make` made an object, or the name of its class if another function made it."""
        return self._names.get(type(made), type(made).__name__)

    def validate(self, section: Section, *arguments: Any) -> None:
        """Raise InputError for options that a new run must not have.

        Calls the static method `validate(options, *arguments)` of the kind, if it has one. Resumed runs keep their
        options, and are not validated in this way.
        """
        choice = self.parse(section)
        validate = getattr(self.kind(choice), "validate", None)
        if validate is None:
            return
        with nullcontext() if choice.name in self.kinds else self.as_input_error(choice, "validate"):
            validate(choice.options, *arguments)

    def check(self, section: Section, made: Any, contract: type) -> None:
        """Raise InputError if an added kind made an object that violates a contract.

        Args:
            section: The section that names the kind. Built-in kinds are not checked.
            made: The object.
            contract: A protocol or a base class. `made` must have all methods and properties of a protocol. Or `made`
                must be an instance of the base class, and define the abstract methods.
        """
        name = self._name(section)
        if name in self.kinds:
            return
        if not getattr(contract, "_is_protocol", False) and not isinstance(made, contract):
            fault = f"is not a subclass of {contract.__name__}"
        elif missing := [part for part in _members(contract) if not _has(made, part)]:
            fault = f"has no {' and no '.join(missing)}"
        else:
            return
        raise InputError(self._argument, self._expected(contract), f"{name}, whose {type(made).__name__} {fault}")

    @contextmanager
    def as_input_error(self, section: Section, method: str) -> Iterator[None]:
        """Turn any exception of a kind, or of a check of its results, into an InputError.

        Args:
            section: The section that names the kind.
            method: The name of the called method, for the error.
        """
        try:
            yield
        except InputError:
            raise
        except FAILURES as error:
            got = f"{self._name(section)}, whose {method} fails ({one_line(error)}{_line_of(error)})"
            raise InputError(self._argument, self._expected(self.contract), got) from error

    def warning_of_shadowed(self, section: Section) -> str | None:
        """Return a warning if a section names a built-in kind, and another package adds a kind of this name."""
        name = self._name(section)
        points = points_of(self.section, name) if name in self.kinds else ()
        if not points:
            return None
        return f"{self._argument}: {name} is evolve's own, not {origin_text(points[0])}, which needs another name"

    @property
    def _argument(self) -> str:
        return f"{self.section}.name"

    def _expected(self, contract: type) -> str:
        return f"a {self.section} that keeps its contract ({contract.__module__})"

    def _name(self, section: Section) -> str:
        if isinstance(section, Choice):
            name = section.name
        elif isinstance(section, Mapping):
            name = parse(_Named, section, self.section).name
        else:
            expected = f"the name of a {self.section}, or a table with its name and settings"
            added = f"or the name of an entry point that a package adds to the group evolve.{self.section}"
            cure = f'Write "module:object" for a pair (options, kind) at the top level of your module, {added}.'
            raise InputError(self.section, expected, repr(section), cure)
        return self.aliases.get(name, name)

    def _entry(self, name: str) -> Kind:
        """Return a built-in or added kind. Raises InputError for an unknown name or an invalid kind."""
        if name in self.kinds:
            return self.kinds[name]
        points = points_of(self.section, name)
        if not points:
            known = [*self.kinds, *entry_points_of(self.section)]
            cure = suggest(self.proposals.get(fold(name), name), known, listed=True)
            if not cure.startswith("Did you mean"):  # probably a kind of another package
                cure = f"{cure} Or install the package that adds it, or name your own module:object.".lstrip()
            raise InputError(self._argument, f"a known {self.section}", name, cure)
        return load_kind(points, self._argument)


REGISTRIES: dict[str, Registry] = {}
"""All registries, by the names of their sections."""


def registry_of(section: str) -> Registry:
    """Return the registry of a section. Raises RuntimeError if its package has not been imported."""
    if section not in REGISTRIES:
        raise RuntimeError(
            f"there is no registry for the section [{section}] yet: import its package first, for example "
            "`import evolve.networks, evolve.strategies`"
        )
    return REGISTRIES[section]


def _line_of(error: BaseException) -> str:
    """Return the last line of the user's code in the traceback of an exception, in words; "" without such a line."""
    # Leave out evolve, pydantic (the base of options), and the methods that data classes generate in a file "<string>".
    not_theirs = (_HERE, os.path.dirname(pydantic.__file__), "<")
    lines = [line for line in traceback.extract_tb(error.__traceback__) if not line.filename.startswith(not_theirs)]
    return f", line {lines[-1].lineno} of {os.path.basename(lines[-1].filename)}" if lines else ""


def _has(made: object, part: str) -> bool:
    # `Strategy` has abstract methods without ABCMeta, so Python makes instances of subclasses that lack these methods.
    if getattr(getattr(type(made), part, None), "__isabstractmethod__", False):
        return False
    try:
        return hasattr(made, part)
    except FAILURES:  # a property that raises an error exists
        return True


def _members(contract: type) -> list[str]:
    """Return the methods and properties of a contract and of its bases. Other attributes are optional."""
    members = inspect.getmembers(contract, lambda member: callable(member) or isinstance(member, property))
    return [name for name, _ in members if not name.startswith("_")]


_ARGUMENTS = ("callbacks", "overwrite", "progress", "resume", "tensorboard", "workers")
"""Arguments of `evolve.train` that are not settings."""


@cache
def foreign_names() -> dict[str, str]:
    """Return our settings, or sentences of advice, by the names of settings in other tools, as `fold` writes them."""
    text = Path(__file__).with_name("foreign_names.toml").read_text(encoding="utf-8")
    return {fold(foreign): ours for ours, names in tomllib.loads(text).items() for foreign in names}


def advice(key: str, table: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    """Return one or two sentences of advice about an unknown setting; "" without advice.

    Args:
        key: The dotted path of the unknown setting.
        table: The sections that name the network and the strategy.
        fields: The settings and sections of an experiment.
    """
    # Networks and strategies have a name, but an environment has an id.
    name = "id" if key == "env.name" else key.rpartition(".")[2]
    # First look for the name, correct or misspelt, among the names in other tools.
    similar = difflib.get_close_matches(fold(name), foreign_names(), n=1, cutoff=0.92)
    meant = foreign_names()[similar[0]] if similar else name
    if " " in meant:  # a sentence of advice
        return meant
    # A key without a section may be a misspelt argument.
    if key == name and (close := difflib.get_close_matches(name, _ARGUMENTS, n=1, cutoff=0.75)):
        return f"Did you mean the argument {close[0]} of evolve.train?"
    # Then look for settings of this name, or with the name that is meant, in all sections, networks and strategies.
    sections = {section: _names_in(section, field.annotation, table) for section, field in fields.items()}
    for each in (name, meant):
        if answer := _did_you_mean(_keys_named(each, sections)) or _kinds_with(each, sections, table):
            return answer
    if key != name:  # the caller proposes similar settings of the section
        return ""
    # At last look for similar names of sections and settings.
    keys: list[str] = []
    for similar_name in difflib.get_close_matches(name, set(sections).union(*sections.values()), n=3):
        keys += _keys_named(similar_name, sections)
    return _did_you_mean(keys)


def _did_you_mean(keys: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(keys)}?" if keys else ""


def _keys_named(setting: str, sections: Mapping[str, list[str]]) -> list[str]:
    """Return the keys of all settings and sections called `setting`. A dotted `setting` is the key of one setting."""
    section, _, name = setting.rpartition(".")
    if section:
        return [setting] if name in sections.get(section, ()) else []
    keys = [setting] if setting in sections else []
    return keys + [f"{section}.{setting}" for section, names in sections.items() if setting in names]


def _kinds_with(setting: str, sections: Mapping[str, list[str]], table: Mapping[str, Any]) -> str:
    """Return advice that names the built-in networks or strategies with a setting; "" if there are none."""
    for section, registry in REGISTRIES.items():
        kinds = [kind for kind in registry if setting in registry.options_class({"name": kind}).model_fields]
        if kinds:
            known = ", ".join(name for name in sections[section] if name != "name") or "none"
            chosen = registry._name(table[section])
            return f"{section}.{setting} is a setting of {', '.join(kinds)}. Settings of {chosen}: {known}."
    return ""


def _names_in(section: str, annotation: Any, table: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings of a section; empty for an unknown kind, or if `annotation` is not a section."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return list(annotation.model_fields)
    if section in REGISTRIES:
        with suppress(InputError):
            return ["name", *registry_of(section).options_class(table[section]).model_fields]
    return []
