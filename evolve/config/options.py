"""`Options` is the base class of all tables of settings. `parse` validates a table.

The types of settings, such as `Duration`, have validators. An error of a validator becomes an `InputError`, see
`validate_or_explain`. `plain` and `flatten` change tables.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, Union, get_args, get_origin

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from evolve.errors import EvolveError, InputError, sanitize

_MEAN_OBSERVATION = re.compile(r"mean_observation_(0|[1-9][0-9]{0,8})")
OBJECT_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""The name of an object in a module, `module:object`."""
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")

_A_DURATION = "a duration such as 23h50m, 90s or 2d, or a number of seconds"

_EXPECTED = {
    "missing": "a value", "bool_type": "true or false", "int_type": "a whole number", "float_type": "a number",
    "finite_number": "a finite number", "string_type": "text", "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "text that matches {pattern}", "string_unicode": "text in UTF-8",
    "dict_type": "a table", "invalid_key": "a name that is a text", "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}", "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}", "less_than_equal": "at most {le}", "less_than": "less than {lt}",
}  # fmt: skip
"""The expected values in plain words, by the type of Pydantic's error. Other errors keep Pydantic's words."""


def seconds(duration: str) -> float:
    """Return the seconds of "23h50m", "90s", "1d" or "45". Raises ValueError otherwise."""
    # A number alone counts seconds. The last number of "1h30" could also count minutes, so it needs a unit.
    match = _DURATION.fullmatch(re.sub(r"^[\d.]+$", r"\g<0>s", duration.strip()))
    if match is None or not any(match.groups()):
        raise ValueError(_A_DURATION)
    days, hours, minutes, remainder = (float(part or 0) for part in match.groups())
    return 86400 * days + 3600 * hours + 60 * minutes + remainder


def with_commas(number: float) -> str:
    """Return a number with commas between thousands: "100,000", "0.5"."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.15g}"


def is_lenient(info: pydantic.ValidationInfo) -> bool:
    """Return whether `parse` was called with `lenient`. There is no context if a model is made without `parse`."""
    return bool((info.context or {}).get("lenient"))


# The validators. The text of a ValueError is the expected value of the setting.


def _duration(value: Any, info: pydantic.ValidationInfo) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = f"{value:.15g}s" if is_number else value
    if not isinstance(text, str):
        raise ValueError(_A_DURATION)
    if not is_lenient(info):  # a file of an earlier version may have "1h30"
        seconds(text)
    return text


def _distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) != len(values):
        raise ValueError("different seeds")
    return values


def _rising(values: tuple[int, ...]) -> tuple[int, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("increasing numbers of episodes")
    return values


def quantile_of(fitness: str) -> float | None:
    """Return the quantile that a setting `fitness` names, such as 0.2 for "quantile:0.2"; None if it names none."""
    if fitness in ("min", "median"):
        return 0.0 if fitness == "min" else 0.5
    name, _, share = fitness.partition(":")
    try:
        # NaN fails the comparison below. So "quantile:nan" names no quantile, either.
        quantile = float(share) if name == "quantile" else math.nan
    except ValueError:
        return None
    return quantile if 0 <= quantile <= 1 else None


def names_function(fitness: str) -> bool:
    """Return whether a setting `fitness` names a function of the user, `module:function`."""
    return fitness != "mean" and quantile_of(fitness) is None


def _fitness(value: Any) -> str:
    is_valid = isinstance(value, str)
    if is_valid and names_function(value):
        # A wrong quantile such as "quantile:x" must not count as the function x of a module quantile.
        is_valid = OBJECT_NAME.fullmatch(value) is not None and not value.startswith("quantile:")
    if not is_valid:
        raise ValueError('"mean", "min", "median", "quantile:0.25" (0 to 1), or a function, "module:function"')
    return str(value)


def _metrics(names: tuple[str, ...]) -> tuple[str, ...]:
    # Each name is also the name of a dataset in the run file. HDF5 gives "/" and "." a meaning.
    are_valid = all(name.isprintable() and "/" not in name and name.strip(".") for name in names)
    if len(set(names)) != len(names) or not are_valid:
        raise ValueError("different names of numbers in the info of the environment, without /")
    return names


def observation_index(metric: str) -> int | None:
    """Return N for the metric "mean_observation_N"; None for other metrics."""
    match = _MEAN_OBSERVATION.fullmatch(metric)
    return None if match is None else int(match[1])


def check_toml_value(value: Any) -> Any:
    """Return the value unchanged. Raises ValueError if TOML cannot represent it exactly."""
    if not _is_toml_value(value):
        raise ValueError("text, finite numbers of at most 64 bits, booleans, lists and tables")
    return value


def _is_toml_value(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_toml_value(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(_is_toml_value, value))
    # Python counts booleans as integers, so they are accepted here.
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, str)


_DISTRIBUTION = "one of uniform, log_uniform and integers = [low, high], or choice = [one, another, …]"
_LARGEST_BOUND = {"uniform": 1e300, "log_uniform": 1e300, "integers": 2**52}
"""The largest absolute bound of each distribution. Arithmetic then neither overflows nor rounds whole numbers."""


def _distributions(table: dict[str, Any], info: pydantic.ValidationInfo) -> dict[str, Any]:
    """Return a table of distributions with bounds as lists of one type. Raises InputError, which names the argument."""
    # `randomize` is a setting of the section `env`; `evaluation_randomize` is in no section.
    setting = "env.randomize" if info.field_name == "randomize" else str(info.field_name)
    return {name: _distribution(f"{setting}.{name}", distribution) for name, distribution in table.items()}


def _distribution(key: str, distribution: Any) -> dict[str, Any]:
    if not (isinstance(distribution, Mapping) and len(distribution) == 1):
        raise InputError(key, _DISTRIBUTION, distribution)
    ((kind, values),) = distribution.items()
    listed = list(values) if isinstance(values, list | tuple) else []
    if kind == "choice":
        if not listed or not _is_toml_value(listed):
            raise InputError(f"{key}.choice", "a list of texts, finite numbers, booleans or tables", values)
        return {kind: listed}
    if kind not in _LARGEST_BOUND:
        raise InputError(key, _DISTRIBUTION, distribution, suggest(str(kind), [*_LARGEST_BOUND, "choice"]))
    # Python counts booleans as integers, but a boolean is not a bound.
    number_type = int if kind == "integers" else int | float
    is_pair = len(listed) == 2 and all(isinstance(x, number_type) and not isinstance(x, bool) for x in listed)
    smallest = 1e-300 if kind == "log_uniform" else -_LARGEST_BOUND[kind]
    if not (is_pair and smallest <= listed[0] < listed[1] <= _LARGEST_BOUND[kind]):
        limits = {"integers": "whole numbers up to 2**52", "log_uniform": "numbers above 0"}.get(kind, "numbers")
        raise InputError(f"{key}.{kind}", f"two {limits}, [low, high], the lower one first", values)
    return {kind: listed if kind == "integers" else [float(x) for x in listed]}


Duration = Annotated[str, BeforeValidator(_duration)]
"""A duration in the notation of `seconds`. A number counts seconds."""

Fitness = Annotated[str, BeforeValidator(_fitness)]
"""The name of a statistic of returns, or of a function."""

Table = dict[str, Any]
"""Settings by name. As in a TOML table, the values are texts, numbers, booleans, lists and tables."""

Kwargs = Annotated[Table, AfterValidator(check_toml_value)]
"""Keyword arguments of an environment or a wrapper."""

Distributions = Annotated[Table, AfterValidator(_distributions)]
"""The distribution of each randomized argument of an environment, such as {"length": {"uniform": [0.4, 0.6]}}."""

Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63)], ...], Field(min_length=1, strict=False), AfterValidator(_distinct)
]
"""The seeds of the runs. Each seed is one run."""

Metrics = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=200)], ...],
    Field(strict=False, max_length=1000),
    AfterValidator(_metrics),
]
"""The names of metrics, all different."""

Rounds = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False), AfterValidator(_rising)]
"""Increasing numbers of episodes."""

Model = TypeVar("Model", bound="Options")


class Options(BaseModel):
    """Base class of all tables of settings. Instances are frozen, and unknown keys are refused.

    The docstring below a setting is its meaning. The generated pages and `evolve run --settings` show it.
    """

    # A command imports many tables, and validates few. So a validator is built when its table is first validated.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of settings, such as old ones: {"old name": "current name"}."""

    set_by_text: ClassVar[str | None] = None
    """The setting that a text in place of the table sets; None if a text is refused."""

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, table: Any) -> Any:
        """Return a table with the current names of its settings, and with tuples for settings that are tuples.

        A text in place of the table becomes a table with the setting `set_by_text`.
        """
        if cls.set_by_text is not None and isinstance(table, str):
            return {cls.set_by_text: table}
        if not isinstance(table, Mapping):
            return table
        # If a table has both names, keep the alias, which is then refused as unknown: no value may win silently.
        names = {old: new for old, new in cls.aliases.items() if new in cls.model_fields and new not in table}
        renamed = {names.get(key, key): value for key, value in table.items()}
        fields: Mapping[Any, FieldInfo] = cls.model_fields
        return {key: _with_tuples(value, fields.get(key)) for key, value in renamed.items()}

    @classmethod
    def advice(cls, key: str, table: Mapping[str, Any]) -> str:
        """Return advice about an unknown key, in place of the list of similar keys; "" without such advice.

        Args:
            key: The dotted path of the unknown key.
            table: The table that was validated. For example, it names the network and the strategy.
        """
        return ""


def _with_tuples(value: Any, field: FieldInfo | None) -> Any:
    """Return a value with tuples where its setting has tuples. With `strict=False`, Pydantic converts lists itself."""
    if field is None or any(getattr(each, "strict", None) is False for each in field.metadata):
        return value
    return _as_annotated(value, field.annotation)


def _as_annotated(value: Any, annotation: Any) -> Any:
    """Return a value with each list converted to a tuple if its annotation is a tuple, also inside the value."""
    # TOML has no tuples, and a strict model refuses a list for a tuple.
    if get_origin(annotation) in (Union, UnionType, Annotated):
        sequences = [each for each in get_args(annotation) if get_origin(each) in (tuple, list)]
        annotation = sequences[0] if sequences else None
    parts = get_args(annotation)
    if not isinstance(value, list) or get_origin(annotation) not in (tuple, list) or not parts:
        return value
    # All items of tuple[T, ...] and of list[T] have the type T. If a list has the wrong number of items for
    # tuple[T, U], also convert each item as T: the model refuses this list later.
    if len(parts) != len(value) or Ellipsis in parts:
        parts = (parts[0],) * len(value)
    items = [_as_annotated(item, part) for item, part in zip(value, parts, strict=True)]
    return tuple(items) if get_origin(annotation) is tuple else items


class UnknownKeyError(InputError):
    """A table has a key that does not exist.

    Args:
        key: The dotted path of the key.
        known: The allowed keys of its table.
        advice: Shown in place of the similar keys of the table.
    """

    def __init__(self, key: str, known: Iterable[str], advice: str = "") -> None:
        self.known = list(known)
        cure = advice or suggest(key.rpartition(".")[2], self.known)
        # Skip `InputError.__init__`, which would write "expected …, got …".
        EvolveError.__init__(self, sanitize(f"there is no setting {sanitize(key)}. {cure}".strip(), 4000))
        self.argument, self.expected, self.got, self.cure = key, "", "", ()


def plain(value: Any) -> Any:
    """Return a value with the types of TOML: tuples and arrays become lists, and paths become texts."""
    if hasattr(value, "tolist"):  # an array or a number of NumPy, PyTorch or pandas; this package imports none of them
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return str(value) if isinstance(value, Path) else value


def fold(name: str) -> str:
    """Return a name in lower case without punctuation: "CMA-ES" and "cma_es" become "cmaes"."""
    return re.sub(r"[\W_]", "", name).lower()


def suggest(name: str, known: Iterable[str], cutoff: float = 0.6, listed: bool = False) -> str:
    """Return "Did you mean …?" for an unknown name. If no name is similar, list all names if there are at most 20.

    Args:
        name: The unknown name.
        known: The known names.
        cutoff: The least similarity of a proposed name, from 0 to 1.
        listed: Whether to list the known names even if some are similar.
    """
    names = sorted(known)
    folded = {fold(known_name): known_name for known_name in names}
    # A name that differs only in case and punctuation is the only proposal.
    same = folded.get(fold(name))
    close = [same] if same else difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    meant = f"Did you mean {' or '.join(close)}?" if close else ""
    all_known = f"Known: {', '.join(names)}." if 0 < len(names) <= 20 and (listed or not close) else ""
    return f"{meant} {all_known}".strip()


def parse(model: type[Model], table: Mapping[str, Any], at: str = "", lenient: bool = False) -> Model:
    """Return a table as validated settings.

    Args:
        model: The model of the table.
        table: The table.
        at: The dotted path of the table in the experiment, for errors.
        lenient: Whether to accept a network or a strategy that is not installed here, or has invalid options. Such an
            experiment can be inspected, but not run.

    Raises:
        InputError: The table is invalid. The message describes the first invalid setting.
    """
    # A validator may raise InputError. The error is not a ValueError, so Pydantic passes it on unchanged.
    validate = partial(model.model_validate, context={"lenient": lenient})
    return validate_or_explain(model, validate, dict(table), at)


def validate_or_explain(model: type[Model], validate: Callable[[Any], Model], table: Any, at: str = "") -> Model:
    """Return `validate(table)`. Raises InputError as `parse` does; an unknown key gets the advice of the model."""
    try:
        return validate(table)
    except ValidationError as invalid:
        error = explain(model, invalid, at)
    except UnknownKeyError as unknown:  # from the registry that validates a section
        error = unknown
    # Add the advice here, because it may need other sections of the table, such as the name of the network.
    if isinstance(error, UnknownKeyError):
        error = UnknownKeyError(error.argument, error.known, model.advice(error.argument, table))
    raise error


def explain(model: type[BaseModel], invalid: ValidationError, at: str = "") -> InputError:
    """Return the first of Pydantic's errors as an InputError. at: The dotted path of the table."""
    first, *others = invalid.errors()
    path, known, _ = _locate(model, first["loc"])
    key = ".".join([at, *path] if at else path)
    if first["type"] == "extra_forbidden":
        return UnknownKeyError(key, known)
    # Pydantic reports one error for each type that a setting may have: "true or false or 'auto'".
    expected = [_expected(model, error) for error in (first, *others) if _locate(model, error["loc"]).path == path]
    # The text of a validator of another package need not be an expected value.
    if first["type"] in ("value_error", "assertion_error") and not model.__module__.startswith("evolve."):
        message = re.sub(r"^(Value error|Assertion failed), ", "", first["msg"])
        return InputError.plainly(key, f"{key}: {message}, got {first['input']!r}")
    # If the type is wrong, quotes distinguish the text "5" from the number 5.
    got = repr(first["input"]) if first["type"].endswith("_type") else first["input"]
    if first["type"] == "missing":
        got = "none"  # Pydantic's input is the whole table
    cure = ""
    if first["type"] == "float_type" and isinstance(first["input"], str):
        with suppress(ValueError):  # a text without a number
            cure = f"Write {float(first['input'])}."  # TOML has 0.2 but not .2
    if path[-1:] == ["kwargs"] and first["type"] == "value_error":
        cure = "Objects are made in a module of yours: by a function that env.id names, or by a wrapper class."
    return InputError(key, " or ".join(dict.fromkeys(expected)), got, cure)


def _expected(model: type[BaseModel], error: ErrorDetails) -> str:
    """Return the expected value that one of Pydantic's errors states."""
    if error["type"] in ("model_type", "tuple_type"):
        annotation = _locate(model, error["loc"]).annotation
        inner = _model_in(annotation)
        if error["type"] == "model_type":
            return _table_text(inner or model)
        if inner is not None:
            return f"a list, each {_table_text(inner)}"
        return 'a list of names, such as ["x"]' if _is_list_of_names(annotation) else "a list, such as [1, 4]"
    words = _EXPECTED.get(error["type"])
    if words is not None:
        limits = error.get("ctx", {}).items()
        texts = {name: with_commas(value) if isinstance(value, int | float) else value for name, value in limits}
        return words.format(**texts)
    return re.sub(r"^(Value error, |Input should be )", "", error["msg"])


def _table_text(model: type[BaseModel]) -> str:
    """Return the description of a table by its settings, and of the text in its place, see `set_by_text`."""
    text = f"the {model.set_by_text} alone, or " if issubclass(model, Options) and model.set_by_text else ""
    return f"{text}a table with {', '.join(model.model_fields)}"


def _is_list_of_names(annotation: Any) -> bool:
    parts = get_args(annotation)
    if get_origin(annotation) is tuple:
        element = parts[0]  # such as `str`, or `Annotated[str, …]`
        return str in (element, *get_args(element))
    return any(_is_list_of_names(part) for part in parts)


class _Location(NamedTuple):
    path: list[str]  # the names of the setting and of the tables around it
    known: list[str]  # the allowed keys of its table
    annotation: Any


def _locate(model: type[BaseModel], location: tuple[int | str, ...]) -> _Location:
    """Return the location of a setting in a model.

    location: Pydantic's path. The result leaves out Pydantic's names for the types of a union.
    """
    inner: type[BaseModel] | None = model
    path: list[str] = []
    known: list[str] = []
    annotation: Any = None
    for part in location:
        if isinstance(part, int):
            path.append(str(part))
        elif inner is not None:
            path.append(part)
            known = list(inner.model_fields)
            field = inner.model_fields.get(part)
            annotation = annotation if field is None else field.annotation
            inner = None if field is None else _model_in(annotation)
        # Otherwise the text is no setting. It may name a type of a union, such as "bool", so leave it out.
    return _Location(path, known, annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation such as `Model`, `Model | None` or `list[Model]`; None if there is no model."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        model = _model_in(part)
        if model is not None:
            return model
    return None


def flatten(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Return a table with dotted keys and without empty tables: {"env": {"id": 1}} becomes {"env.id": 1}."""
    flat: Table = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def assignments(table: Mapping[str, Any]) -> str:
    """Return the settings of a table in one line, such as "env.kwargs.gravity=12.0, network.plasticity=0.0"."""
    return ", ".join(f"{key}={sanitize(str(value))}" for key, value in flatten(table).items())
