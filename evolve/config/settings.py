"""`Config`: one experiment with all its sections, validated and frozen, and how two of them differ."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo

from evolve.config.options import Duration, Kwargs, Options, Rounds, Seeds, flatten, parse
from evolve.config.registry import Choice, registry_of
from evolve.errors import InputError

RUNTIME_KEYS = (
    *("seeds", "generations", "early_stop", "held_out_episodes", "evaluation_max_episode_steps"),
    *("compute", "output"),
)
"""Top-level keys that do not define what one generation computes."""
_USUAL = {"network": "hebbian-dag", "strategy": "prune"}
"""The kinds of experiments that name none."""


class WrapperOptions(Options):
    """One Gymnasium wrapper around the environment: `name` is `module:Class`, `kwargs` are its arguments.

    The module must be one of gymnasium.wrappers, or the one that `env.id` names. No other module is imported.
    """

    name: str = Field(pattern=r"^[\w.]+:\w+$")
    kwargs: Kwargs = Field({})


class EnvOptions(Options):
    """The environment.

    id: a Gymnasium environment, or `module:Id`, where importing the module registers it.
    engine: who makes and steps the environments; a part of the experiment, since another engine is another environment.
    kwargs: arguments of its constructor.
    wrappers: Gymnasium wrappers around it, from the inside out; each has a `name`, `module:Class`, and `kwargs`.
    max_episode_steps: the limit of steps of an episode; by default the environment's own.
    reuse: whether an environment object may run a second episode. "auto" allows it only where reset is known to restore
    every bit; Box2D's world, for example, remembers earlier episodes.
    action_scale: the largest action in a dimension without bounds. Below 1, it is also the share of the range that is
    used in a dimension with bounds.
    on_failure: what to do when an episode raises, gives a reward or an observation that is not finite, or does not end
    in time. "stop" ends the run; "worst" counts the episode as the worst there is (its return is NaN).
    max_episode_seconds: wall time of an episode, including that of the environments stepped beside it. What it ends
    depends on the machine: limit a task by `max_episode_steps`, and use this against environments that hang.
    """

    id: str = Field("CartPole-v1", min_length=1)
    engine: Literal["gymnasium", "envpool", "exact"] = "gymnasium"
    kwargs: Kwargs = Field({})
    wrappers: Annotated[tuple[WrapperOptions, ...], Field(strict=False)] = ()
    max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    reuse: bool | Literal["auto"] = "auto"
    action_scale: float = Field(1.0, gt=0)
    on_failure: Literal["stop", "worst"] = "stop"
    max_episode_seconds: float = Field(3600.0, gt=0, le=1e7)


class RacingOptions(Options):
    """Racing: only the best candidates play all their episodes.

    rounds: after so many episodes of each candidate it is decided who plays on; without any, all do.
    keep: the share that plays on.
    """

    rounds: Rounds = ()
    keep: float = Field(0.5, gt=0, lt=1)


class EarlyStopOptions(Options):
    """When a run ends before its last generation: when its champion is good enough, or after so many steps.

    mean_return: after every `every` generations the champion plays `episodes` validation episodes, which are used for
    nothing else; the run ends when their mean return is at least this.
    episodes: the validation episodes of a champion.
    every: how many generations lie between two validations.
    steps: environment steps of all generations, without the validation episodes.
    """

    mean_return: float | None = None
    episodes: int = Field(100, ge=1, lt=2**31)
    every: int = Field(10, ge=1)
    steps: Annotated[int, Field(ge=1)] | None = None


class ComputeOptions(Options):
    """How the work is done; nothing here can change a fitness.

    backend: who does the arithmetic of networks, with the same bits: "numpy", "native" (compiled kernels), or "cupy" (a
    GPU); "auto" takes a GPU where a trial shows that it pays, else native kernels where there are any.
    slots: how many episodes one process steps together; by default the engine chooses.
    time_limit: a run stops resumably, with exit code 75, after a time such as 23h50m, 90s or 2d.
    check: whether to try before a run that the same seed gives the same episode, and before a run is resumed that one
    episode of its log still goes as it went.
    """

    backend: Literal["auto", "numpy", "native", "cupy"] = "auto"
    slots: Annotated[int, Field(ge=1, le=65536)] | None = None
    time_limit: Duration | None = None
    check: bool = True


class OutputOptions(Options):
    """Where run files go, and what they keep.

    directory: the directory of the run files, by default `runs/<environment>-<network>`.
    genomes: the "champions" of the generations (5 bytes per weight), or "all" candidates (P times as much), so that any
    of them can be replayed.
    """

    directory: str | None = None
    genomes: Literal["champions", "all"] = "champions"


def _choose(given: Any, info: ValidationInfo) -> Choice:
    """Return the kind that a section names, validated by its registry; the field is called like the section."""
    section = str(info.field_name)
    lenient = bool((info.context or {}).get("lenient"))
    return registry_of(section).parse(_named(section, given), lenient)


def _named(section: str, given: Any) -> Any:
    return {"name": _USUAL[section], **given} if isinstance(given, Mapping) else given


def _usual(section: str) -> Any:
    return Field(default_factory=lambda: registry_of(section).parse(_named(section, {})))


_Chosen = Annotated[Choice, PlainValidator(_choose), PlainSerializer(Choice.table)]


class Config(Options):
    """One experiment, complete: with a seed from `seeds` it determines every bit of a run.

    seeds: one run for each, one after another.
    generations: how many generations a run has.
    population: P, the candidates of a generation.
    least_population: if set, so many candidates play at a time, until `num_interactions` steps were made in the
    generation, or all P have played.
    num_interactions: the environment steps that a generation is to have, where its population grows.
    episodes: E, the episodes that each candidate plays in a generation.
    common_random_numbers: whether all candidates of a generation meet the same episodes.
    normalize_observations: whether networks see observations with mean 0 and deviation 1, by the moments of all earlier
    generations.
    connection_cost: what is subtracted from the mean return of a candidate with all connections; one with fewer loses
    its share of that.
    episode_cap: if set, no episode lasts longer than this times the mean length of those of the last generation.
    early_max_episode_steps: if set, no episode of the first `early_generations` generations lasts longer.
    early_generations: how many generations these are.
    held_out_episodes: how many episodes that training never met the champion plays at the end.
    evaluation_max_episode_steps: the limit of steps of validation and held-out episodes, where it is not that of `env`.
    """

    seeds: Seeds = (0,)
    generations: int = Field(20, ge=1, lt=2**32)
    population: int = Field(64, ge=2, lt=2**31)
    least_population: Annotated[int, Field(ge=2)] | None = None
    num_interactions: Annotated[int, Field(ge=1)] | None = None
    episodes: int = Field(4, ge=1, lt=2**31)
    common_random_numbers: bool = False
    normalize_observations: bool = False
    connection_cost: float = Field(0.0, ge=0, le=1e9)
    episode_cap: Annotated[float, Field(gt=1, le=1e6)] | None = None
    early_max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    early_generations: int = Field(100, ge=1)
    held_out_episodes: int = Field(100, ge=0, lt=2**31)
    evaluation_max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    early_stop: EarlyStopOptions = EarlyStopOptions()
    racing: RacingOptions = RacingOptions()
    env: EnvOptions = EnvOptions()
    network: _Chosen = _usual("network")
    strategy: _Chosen = _usual("strategy")
    compute: ComputeOptions = ComputeOptions()
    output: OutputOptions = OutputOptions()

    @classmethod
    def keys_called(cls, name: str, table: Mapping[str, Any]) -> list[str]:
        """Return the settings called `name` in all sections, those of the chosen network and strategy included."""
        keys = [name] if name in cls.model_fields else []
        for section, field in cls.model_fields.items():
            if name in _names_in(section, field.annotation, table.get(section, {})):
                keys.append(f"{section}.{name}")
        return keys

    def to_toml(self) -> str:
        """Return the whole experiment as TOML, every default spelled out."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def in_evaluation(self) -> "Config":
        """Return this experiment with the limit of steps of its validation and held-out episodes."""
        if self.evaluation_max_episode_steps is None:
            return self
        return self.with_env(self.env.model_copy(update={"max_episode_steps": self.evaluation_max_episode_steps}))

    def evaluates_like(self, other: "Config") -> bool:
        """Return whether two experiments that are equal otherwise play the same held-out episodes."""
        return self.in_evaluation().env == other.in_evaluation().env

    def with_env(self, env: EnvOptions) -> "Config":
        """Return this experiment with all its episodes in another environment."""
        return self.model_copy(update={"env": env, "evaluation_max_episode_steps": None})

    def with_engine(self, engine: str) -> "Config":
        """Return this experiment with its environment played by another engine. Raises InputError if there is none."""
        table = self.env.model_dump(mode="json", exclude_none=True)
        return self.model_copy(update={"env": parse(EnvOptions, table | {"engine": engine}, "env")})

    def directory(self) -> Path:
        """Return the directory of this experiment's run files."""
        default = f"runs/{self.env.id.replace('/', '-').replace(':', '-')}-{self.network.name}"
        return Path(self.output.directory or default)


def _names_in(section: str, kind: Any, given: Any) -> list[str]:
    """Return the settings of a section, if it is one whose settings are known."""
    if isinstance(kind, type) and issubclass(kind, Options):
        return list(kind.model_fields)
    if section in _USUAL:
        with suppress(InputError):
            return ["name", *registry_of(section).options_class(_named(section, given)).model_fields]
    return []


def differences(ours: Config, theirs: Config) -> list[tuple[str, object, object]]:
    """Return (key, ours, theirs) for every key that defines the experiment and differs, a name before its options."""
    a, b = (
        flatten({k: v for k, v in c.model_dump(mode="json").items() if k not in RUNTIME_KEYS}) for c in (ours, theirs)
    )
    keys = sorted(a | b, key=lambda key: key.removesuffix("name"))
    return [(key, a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)]
