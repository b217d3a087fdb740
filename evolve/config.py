"""The experiment: read from TOML and flags, validated once, frozen, and written back in full.

Options of a network or a strategy are validated by its own model (see their rooms); here they are a name and
a table. Keys that cannot change a fitness (`RUNTIME_KEYS`) may differ when a run is resumed or verified.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from evolve.errors import InputError

RUNTIME_KEYS = ("seeds", "generations", "early_stop", "held_out_episodes", "compute", "output")
"""Top-level keys that do not define what one generation computes."""

FLAGS = {
    "env.id": "-e/--env", "network.name": "-a/--agent", "strategy.name": "--strategy", "population": "-p/--population",
    "generations": "-g/--generations", "episodes": "-r/--episodes", "network.hidden": "-d/--hidden",
    "seeds": "-s/--seed", "env.engine": "--engine", "compute.backend": "--backend", "output.directory": "-o/--output",
    "compute.time_limit": "--time-limit",
}  # fmt: skip
"""The command line's name of a key."""

Table = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


class Options(BaseModel):
    """Base of every table of settings: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


def seconds(duration: str) -> float:
    """Return the seconds of "23h50m", "90s", "1d" or "45". Raises ValueError otherwise."""
    match = _DURATION.fullmatch(duration.strip())
    if match is None or not any(match.groups()):
        raise ValueError("a duration such as 23h50m, 90s or 2d")
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))


def _duration(value: str) -> str:
    seconds(value)
    return value


def _distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) != len(values):
        raise ValueError("every seed once")
    return values


def _plain(value: Any) -> Any:
    """Refuse what does not survive being written down: only text, finite numbers, truth, lists and tables do."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _plain(part)
    finite = not isinstance(value, float) or math.isfinite(value)
    if not (isinstance(value, str | int | float | list | dict) and finite):
        raise ValueError("text, finite numbers, booleans, lists and tables")
    return value


Kwargs = Annotated[Table, AfterValidator(_plain)]


class WrapperOptions(Options):
    """One Gymnasium wrapper around the environment: `name` is `module:Class`.

    The module is one of gymnasium.wrappers, or the one that `env.id` names: no other is imported.
    """

    name: str = Field(pattern=r"^[\w.]+:\w+$")
    kwargs: Kwargs = {}


class EnvOptions(Options):
    """The environment.

    reuse: whether an environment object may run a second episode. "auto" allows it only where reset is known
    to restore every bit: Box2D's world, for one, remembers earlier episodes.
    action_scale: how far actions reach that have no bounds; below 1, also what share of its range one with bounds has.
    on_failure: what an episode does that raises, gives a reward or an observation that is no finite number, or does
    not end in time: "stop" the run, or count as the "worst" there is (its return is NaN) and let the run go on.
    max_episode_seconds: wall time, that of the environments stepped beside it included. What it decides depends on the
    machine: `max_episode_steps` is the limit for tasks, this one is for what hangs.
    """

    id: str = Field("CartPole-v1", min_length=1)
    engine: Literal["gymnasium", "envpool"] = "gymnasium"
    kwargs: Kwargs = {}
    wrappers: Annotated[tuple[WrapperOptions, ...], Field(strict=False)] = ()
    max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    reuse: bool | Literal["auto"] = "auto"
    action_scale: float = Field(1.0, gt=0)
    on_failure: Literal["stop", "worst"] = "stop"
    max_episode_seconds: float = Field(3600.0, gt=0, le=1e7)


def _rising(values: tuple[int, ...]) -> tuple[int, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("rising numbers of episodes")
    return values


class RacingOptions(Options):
    """Racing: after so many episodes (`rounds`, of each candidate) only the best share (`keep`) plays on."""

    rounds: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=64, strict=False), AfterValidator(_rising)
    ] = ()
    keep: float = Field(0.5, gt=0, lt=1)


class EarlyStopOptions(Options):
    """When a run ends before its last generation: a champion that is good enough, or so many environment steps.

    After each `every` generations the champion plays `episodes` new ones, neither selected on nor held out; a mean
    return of at least `mean_return` is enough. steps: of the generations, without those.
    """

    mean_return: float | None = None
    episodes: int = Field(100, ge=1, lt=2**31)
    every: int = Field(10, ge=1)
    steps: Annotated[int, Field(ge=1)] | None = None


class ComputeOptions(Options):
    """How the work is done; nothing here can reach a fitness.

    slots: None for the engine's own choice. check: whether to try first that the same seed gives the same episode.
    """

    backend: Literal["auto", "numpy", "native"] = "auto"
    slots: Annotated[int, Field(ge=1, le=65536)] | None = None
    chunks: Literal["guided", "fixed"] = "guided"
    chunk_size: int = Field(8, ge=1)
    time_limit: Annotated[str, AfterValidator(_duration)] | None = None
    check: bool = True


class OutputOptions(Options):
    """Where run files go, by default `runs/<environment>-<network>`, and what is kept in them.

    genomes: the "champions" of each generation (5 bytes per weight), or "all" of it (P times as much), so that any
    candidate can be replayed.
    """

    directory: str | None = None
    genomes: Literal["champions", "all"] = "champions"


class Config(Options):
    """One experiment, complete: with a seed from `seeds` it determines every bit of a run.

    connection_cost: what having all connections takes from a candidate's mean return; fewer take their share.
    """

    seeds: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
        Field(min_length=1, max_length=10_000, strict=False),
        AfterValidator(_distinct),
    ] = (0,)
    generations: int = Field(20, ge=1, lt=2**32)
    population: int = Field(64, ge=2, lt=2**31)
    episodes: int = Field(4, ge=1, lt=2**31)
    common_random_numbers: bool = False
    normalize_observations: bool = False
    connection_cost: float = Field(0.0, ge=0, le=1e9)
    held_out_episodes: int = Field(100, ge=0, lt=2**31)
    early_stop: EarlyStopOptions = EarlyStopOptions()
    racing: RacingOptions = RacingOptions()
    env: EnvOptions = EnvOptions()
    network: Table = {"name": "hebbian-dag"}
    strategy: Table = {"name": "prune"}
    compute: ComputeOptions = ComputeOptions()
    output: OutputOptions = OutputOptions()

    def to_toml(self) -> str:
        """Return the whole experiment as TOML, every default spelled out."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def directory(self) -> Path:
        """Return the directory of this experiment's run files."""
        default = f"runs/{self.env.id.replace('/', '-').replace(':', '-')}-{self.network['name']}"
        return Path(self.output.directory or default)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return "Did you mean …?" for the known names nearest to `name`, or the list of all when few."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(names)}." if 0 < len(names) <= 20 else ""


def parse(model: type[Model], table: Mapping[str, Any], at: str = "") -> Model:
    """Validate `table` against `model`; `at` is the dotted path of the table in the experiment.

    Raises InputError for the first thing that is wrong.
    """
    try:
        return model.model_validate(dict(table))
    except ValidationError as wrong:
        raise _explain(model, wrong, at) from None


def _explain(model: type[BaseModel], wrong: ValidationError, at: str) -> InputError:
    first = wrong.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join([at, *path] if at else path)
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, path[:-1])
        return InputError(f"key {key}", "a key that exists", "an unknown one", nearest(path[-1], known))
    flag = FLAGS.get(re.sub(r"\.\d+$", "", key))
    argument = f"{key} ({flag})" if flag else key
    expected = re.sub(r"^(Value error, |Input should be )", "", first["msg"]).replace("valid dictionary", "table")
    return InputError(argument, expected, first["input"])


def _known_keys(model: type[BaseModel], path: list[str]) -> list[str]:
    for name in path:
        inner = model.model_fields[name].annotation if name in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


LONGEST = 1_000_000
"""The most characters of an experiment."""
_DEEPEST = 32  # tables in tables, or arrays in arrays
# A key of more parts than that; found before tomllib, whose time and memory grow with the square of their number.
_DEEP_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_DEEPEST}}}""")


def read_table(text: str, source: str) -> Table:
    """Return the table of a TOML document. Raises InputError when it is malformed, or of an absurd size."""
    if len(text) > LONGEST:
        raise InputError(source, f"TOML of at most {LONGEST:,} characters", f"{len(text):,}")
    if _DEEP_KEY.search(text):
        raise InputError(source, f"keys of at most {_DEEPEST} parts", "a longer one")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise InputError(source, f"values nested at most {_DEEPEST} deep", "deeper ones") from None
    except ValueError as wrong:  # a TOMLDecodeError, or a number that no Python int may have
        raise InputError(source, "well-formed TOML", f"{wrong}", "") from None
    _check_values(table, source)
    return table


def _check_values(table: Table, source: str) -> None:
    """Raise InputError for values nested too deep, and for integers that TOML does not have."""
    level: list[object] = [table]
    for _ in range(_DEEPEST + 1):
        level = [
            part for v in level if isinstance(v, dict | list) for part in (v.values() if isinstance(v, dict) else v)
        ]
        for value in level:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise InputError(source, "integers of at most 64 bits, as TOML has them", value)
    if level:
        raise InputError(source, f"values nested at most {_DEEPEST} deep", "deeper ones")


def set_key(table: Table, key: str, value: object) -> None:
    """Set a dotted key, making the tables on the way. Raises InputError when a value stands in the way."""
    *sections, last = key.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InputError(f"key {key}", f"{section} to be a table", inner)
        table = inner
    table[last] = value


def read_assignment(text: str) -> tuple[str, object]:
    """Split `section.key=value`; the value is TOML, or a plain string where it is not."""
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key.strip()):
        raise InputError("--set", "section.key=value", text)
    if key.count(".") >= _DEEPEST:
        raise InputError("--set", f"a key of at most {_DEEPEST} parts", text)
    try:
        table = read_table(f"value = {value}", "--set")
    except InputError as wrong:
        if "well-formed" not in str(wrong):
            raise
        return key.strip(), value.strip()
    return key.strip(), table["value"]


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Table:
    flat: Table = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def differences(ours: Config, theirs: Config) -> list[tuple[str, object, object]]:
    """Return (key, ours, theirs) for every key that defines the experiment and differs."""
    a, b = (
        _flatten({k: v for k, v in c.model_dump(mode="json").items() if k not in RUNTIME_KEYS}) for c in (ours, theirs)
    )
    return [(key, a.get(key), b.get(key)) for key in sorted(a | b) if a.get(key) != b.get(key)]
