"""`Config`: one experiment, all its settings validated and frozen, and how two of them differ."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo

from evolve.config.choice import Choice
from evolve.config.options import Options, flatten, parse
from evolve.config.registry import registry_of
from evolve.config.sections import ComputeOptions, EarlyStopOptions, EnvOptions, OutputOptions, RacingOptions
from evolve.config.values import Seeds
from evolve.errors import InputError

RUNTIME_KEYS = (
    *("seeds", "generations", "early_stop", "held_out_episodes", "evaluation_max_episode_steps"),
    *("compute", "output"),
)
"""Top-level keys that do not define what one generation computes."""

_USUAL = {"network": "hebbian-dag", "strategy": "prune"}
"""The kinds of experiments that name none."""


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
