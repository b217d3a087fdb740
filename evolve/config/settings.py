"""The settings of an experiment, each with its default and its limits; frozen, and written back in full."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, Field

from evolve.config.options import Options, Table

RUNTIME_KEYS = (
    *("seeds", "generations", "early_stop", "held_out_episodes", "evaluation_max_episode_steps"),
    *("compute", "output"),
)
"""Top-level keys that do not define what one generation computes."""

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
    kwargs: Kwargs = Field({})


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
    kwargs: Kwargs = Field({})
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

    slots: None for the engine's own choice. check: whether to try first that the same seed gives the same episode, and
    before a run is resumed that one in its log goes here as it went there.
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
    evaluation_max_episode_steps: the `env.max_episode_steps` of validation and held-out episodes, where it is another.
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
    evaluation_max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    early_stop: EarlyStopOptions = EarlyStopOptions()
    racing: RacingOptions = RacingOptions()
    env: EnvOptions = EnvOptions()
    network: Table = Field({"name": "hebbian-dag"})
    strategy: Table = Field({"name": "prune"})
    compute: ComputeOptions = ComputeOptions()
    output: OutputOptions = OutputOptions()

    def to_toml(self) -> str:
        """Return the whole experiment as TOML, every default spelled out."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def in_evaluation(self) -> "Config":
        """Return this experiment as its validation and held-out episodes are played, with their own limit of steps."""
        if self.evaluation_max_episode_steps is None:
            return self
        return self.with_env(self.env.model_copy(update={"max_episode_steps": self.evaluation_max_episode_steps}))

    def judges_like(self, other: "Config") -> bool:
        """Return whether two of these play the same held-out episodes, where all else is the same."""
        return self.in_evaluation().env == other.in_evaluation().env

    def with_env(self, env: EnvOptions) -> "Config":
        """Return this experiment with all its episodes in another environment."""
        return self.model_copy(update={"env": env, "evaluation_max_episode_steps": None})

    def directory(self) -> Path:
        """Return the directory of this experiment's run files."""
        default = f"runs/{self.env.id.replace('/', '-').replace(':', '-')}-{self.network['name']}"
        return Path(self.output.directory or default)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Table:
    flat: Table = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def differences(ours: Config, theirs: Config) -> list[tuple[str, object, object]]:
    """Return (key, ours, theirs) for every key that defines the experiment and differs, a name before its options."""
    a, b = (
        _flatten({k: v for k, v in c.model_dump(mode="json").items() if k not in RUNTIME_KEYS}) for c in (ours, theirs)
    )
    keys = sorted(a | b, key=lambda key: key.removesuffix("name"))
    return [(key, a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)]
