"""`Config` is one experiment with all its sections, validated and frozen. `differences` compares two experiments.

Each section is a class below, except `[network]` and `[strategy]`, which are a `Choice`. The docstring below a setting
is its meaning on the generated pages.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo, field_validator, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler  # before 2.10.4 `pydantic` does not export it

from evolve.config import options
from evolve.config.options import Distributions, Duration, Fitness, Kwargs, Metrics, Options, Rounds, Seeds, Table
from evolve.config.registry import Choice, advice, registry_of
from evolve.errors import InputError, pluralize

RUNTIME_KEYS = ("seeds", "generations", "early_stop", "held_out_episodes", "evaluation_max_episode_steps",
                "evaluation_randomize", "compute", "output")  # fmt: skip
"""Top-level keys that cannot change the result of a generation with a given seed."""
NAMED_SECTIONS = {"env": "id", "network": "name", "strategy": "name", "output": "directory"}
"""By section: the key that a text in place of the table sets. `network = "mlp"` means `network.name = "mlp"`."""
MOST_SLOTS = 2**16
"""The largest number of episodes that one process may step together."""
_DEFAULT_NAMES = {"network": "hebbian-dag", "strategy": "prune"}
"""The network and the strategy of an experiment that does not name them."""


class WrapperOptions(Options):
    """One Gymnasium wrapper around the environment: `name` is `module:Class`, `kwargs` are its arguments.

    The module must be a part of gymnasium.wrappers, or of the environment's module. No other module is imported.
    A text in place of the table is the `name`. A wrapper of Gymnasium needs no module.
    """

    set_by_text = "name"
    name: str = Field()
    kwargs: Kwargs = Field({})

    @field_validator("name")
    @classmethod
    def _full_name(cls, name: str) -> str:
        if re.fullmatch(r"\w+", name):
            return f"gymnasium.wrappers:{name}"
        if not re.fullmatch(r"[\w.]+[:.]\w+", name):
            raise ValueError("the name of a wrapper, such as FrameStackObservation, or module:Class")
        # The last dot of module.Class becomes a colon, as in other names of objects.
        return name if ":" in name else ":".join(name.rsplit(".", 1))


class EnvOptions(Options):
    """The environment."""

    set_by_text = "id"
    id: str = Field("CartPole-v1", min_length=1)
    """A Gymnasium environment, an exact task, or `module:Name`: an environment that an import of the module registers,
    or a class or a function of the module that makes an environment."""
    engine: Literal["gymnasium", "envpool", "exact"] = "gymnasium"
    """The library that makes and steps the environments. Another engine is another environment, so another
    experiment."""
    kwargs: Kwargs = Field({})
    """Arguments of the environment's constructor."""
    randomize: Distributions = Field({})
    """Arguments that are drawn for each episode, each from its distribution, such as
    `length = { uniform = [0.4, 0.6] }`. Other distributions are `log_uniform`, `integers` and `choice`."""
    wrappers: Annotated[tuple[WrapperOptions, ...], Field(strict=False)] = ()
    """Gymnasium wrappers around the environment, innermost first; each has a `name`, `module:Class`, and `kwargs`."""
    metrics: Metrics = ()
    """Names of numbers in the `info` of an episode's last step, such as ["x_position"]. The run file stores them for
    every episode. If observations are normalized, there is also "mean_observation_N": the mean of number N of the
    observations in the episode, before they are normalized."""
    max_episode_steps: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """The largest number of steps of an episode; by default the environment's own limit."""
    reuse: bool | Literal["auto"] = "auto"
    """Whether an environment object may run a second episode. "auto" allows it only if `reset` is known to restore
    every bit; Box2D's world, for example, remembers earlier episodes."""
    action_scale: float = Field(1.0, gt=0)
    """The largest action in an unbounded dimension. If below 1, also the share of the range that is used in a bounded
    dimension."""
    on_failure: Literal["stop", "worst"] = "stop"
    """The reaction to an episode that raises, returns a non-finite reward or observation, or does not end in time:
    "stop" ends the run; "worst" ranks the episode below all others (its return is NaN)."""
    max_episode_seconds: float = Field(3600.0, gt=0, le=1e7)
    """The longest wall time of an episode, including the time in which the other slots are stepped. It is for
    environments that hang. The episodes that it ends depend on the machine, so limit a task by `max_episode_steps`."""

    @model_validator(mode="after")
    def _check_randomize(self) -> "EnvOptions":
        check_set_once(self.kwargs, self.randomize, "env.randomize")
        return self

    @property
    def reported_metrics(self) -> tuple[str, ...]:
        """The metrics that the environment reports; the others are means of observations."""
        return tuple(name for name in self.metrics if options.observation_index(name) is None)

    def changed(self, changes: Mapping[str, Any]) -> "EnvOptions":
        """Return this environment with other settings. Tables of arguments are merged; an empty table removes all.

        An argument that `changes` sets is no longer randomized, and vice versa. With another `id`, the arguments and
        wrappers of this environment are dropped. Raises InputError for an invalid setting.
        """
        table = self.model_dump(mode="json", exclude_none=True)
        if changes.get("id", self.id) != self.id:
            table |= {"kwargs": {}, "randomize": {}, "wrappers": []}
        new = {name: changes.get(name, {}) for name in ("kwargs", "randomize")}
        merged = {}
        if all(isinstance(arguments, Mapping) for arguments in new.values()):  # otherwise `parse` refuses them
            for name, other in (("kwargs", "randomize"), ("randomize", "kwargs")):
                # An argument stays unless `changes` empties its table, or has the argument in the other table.
                is_emptied = name in changes and not new[name]  # to randomize nothing, for example
                old = {} if is_emptied else table[name]
                merged[name] = {key: value for key, value in old.items() if key not in new[other]} | dict(new[name])
        return options.parse(EnvOptions, table | dict(changes) | merged, "env")


def check_set_once(kwargs: Table, randomize: Table, key: str) -> None:
    """Raise InputError if an argument is both set and randomized. key: the setting that randomizes arguments."""
    for name in randomize.keys() & kwargs.keys():
        raise InputError(f"{key}.{name}", "an argument that env.kwargs does not set", f"{name}, which it sets")


class RacingOptions(Options):
    """Racing: only the best candidates play all their episodes."""

    rounds: Rounds = ()
    """The numbers of episodes per candidate after which the worse candidates drop out; empty: all candidates play
    on."""
    keep: float = Field(0.5, gt=0, lt=1)
    """The share of the candidates that plays on after each round."""


class EarlyStopOptions(Options):
    """Conditions that end a run before its last generation: a good champion, or a number of steps."""

    mean_return: float | None = None
    """The run ends when the champion's mean return in validation episodes is at least this. Validation episodes are
    used for nothing else."""
    episodes: int = Field(100, ge=1, lt=2**31)
    """The number of validation episodes of a champion."""
    every: int = Field(10, ge=1)
    """The number of generations between two validations."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """The run ends after this number of environment steps; steps of validation episodes do not count."""


class ComputeOptions(Options):
    """How the work is done. No setting here can change a fitness."""

    backend: Literal["auto", "numpy", "native", "cupy"] = "auto"
    """The arithmetic of networks: "numpy", "native" (compiled kernels), or "cupy" (a GPU), all with the same bits.
    "auto" takes a GPU if a trial shows that it pays, else native kernels if they are installed."""
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)] | None = None
    """The number of episodes that one process steps together; by default the engine chooses. A GPU that plays whole
    episodes then has a slot for each episode of a generation, as far as memory allows. 1 is for environments that
    cannot play two episodes in turns in one process."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """The number of threads in which one process plays exact tasks, or EnvPool's environments. "auto" means one thread
    for EnvPool. For exact tasks it means all cores that the process may use, shared with other workers of its host."""
    time_limit: Duration | None = None
    """The run stops after this time, such as 23h50m, 90s or 2d; it can be resumed, and the exit code is 75."""
    check: bool = True
    """Whether a run first checks that it can be repeated. A new run checks that one seed gives the same episode twice.
    A resumed run checks that an episode of its log, and a fitness function of yours, still give the logged result."""


class StartFromOptions(Options):
    """The genome with which the search begins. A text in place of the table is the `file`."""

    set_by_text = "file"
    file: Annotated[str, Field(min_length=1)] | None = None
    """A run file, a champion file, or a directory of run files. In a directory each seed takes its own `seed-S.h5`."""
    generation: Annotated[int, Field(ge=0)] | None = None
    """The start is the best candidate of this generation of the run file; by default it is the final champion."""
    connections: Annotated[int, Field(ge=0)] | None = None
    """The start is the best genome of the front with at most this number of acting connections: only these can change
    an action."""
    member: Annotated[int, Field(ge=0)] | None = None
    """The start is this genome of the front, counted from 0 as by `evolve info --genomes`."""
    cell: Annotated[tuple[int, ...], Field(strict=False)] | None = None
    """The start is the elite of this cell of the archive: [3, 5]."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The digest of the start, which evolve records. If you set it, the file must hold a start with this digest."""

    def describe(self) -> str:
        """Return the start in words."""
        genome = "final champion"
        if self.generation is not None:
            genome = f"best candidate of generation {self.generation:,}"
        elif self.connections is not None:
            genome = f"best with at most {pluralize(self.connections, 'acting connection')}"
        elif self.member is not None:
            genome = f"genome {self.member} of the front"
        elif self.cell is not None:
            genome = f"elite of cell {','.join(map(str, self.cell))}"
        start = "a given genome" if self.file is None else f"the {genome} of {self.file}"
        return start if self.digest is None else f"{start} ({self.digest[:12]})"

    def is_same(self, other: "StartFromOptions | None") -> bool:
        """Return whether two settings name the same start: by their digests if both have one, otherwise by the rest."""
        if other is None:
            return False
        if self.digest and other.digest:
            return self.digest == other.digest
        # A start in memory has no file. Without digests two such starts cannot be compared, and count as different.
        ours, theirs = (start.model_dump(exclude={"digest"}) for start in (self, other))
        return ours == theirs and self.file is not None


class OutputOptions(Options):
    """The place and the content of run files."""

    set_by_text = "directory"
    directory: str | None = None
    """The directory of the run files, by default `runs/<environment>-<network>`. It may begin with `~`, and have
    environment variables such as `$SCRATCH`."""
    genomes: Literal["champions", "all"] = "champions"
    """The genomes to store: the "champions" of the generations (5 bytes per weight), or "all" candidates (P times as
    much), so that each of them can be replayed."""


def _choose(value: Any, info: ValidationInfo) -> Choice:
    """Return the choice of a section. The registry of the section validates it."""
    section = str(info.field_name)
    return registry_of(section).parse(_with_name(section, value), lenient=options.is_lenient(info))


def _with_name(section: str, value: Any) -> Any:
    """Return a section as a table with a name: a text is a name, and a table without a name gets the default."""
    if isinstance(value, str):
        return {"name": value}
    return {"name": _DEFAULT_NAMES[section], **value} if isinstance(value, Mapping) else value


def _default_choice(section: str) -> Any:
    """Return a field with the default network or strategy as its default."""
    # A factory, because the registries are still empty when this module is imported.
    return Field(default_factory=lambda: registry_of(section).parse(_with_name(section, {})))


_Chosen = Annotated[Choice, PlainValidator(_choose), PlainSerializer(Choice.table)]


class Config(Options):
    """One complete experiment. Together with a seed from `seeds` it determines every bit of a run.

    Exceptions are environments and functions of yours that are not deterministic, and episodes that end at
    `env.max_episode_seconds`.
    """

    seeds: Seeds = (0,)
    """The seeds of the runs; the runs follow one another."""
    generations: int = Field(20, ge=1, lt=2**32)
    """The number of generations of a run."""
    population: int = Field(64, ge=2, lt=2**31)
    """P, the number of candidates of a generation."""
    least_population: Annotated[int, Field(ge=2)] | None = None
    """If set, candidates play in groups of this size until the generation has `num_interactions` steps, or all P
    candidates have played."""
    num_interactions: Annotated[int, Field(ge=1)] | None = None
    """The number of environment steps after which a generation with `least_population` grows no more."""
    episodes: int = Field(4, ge=1, lt=2**31)
    """E, the number of episodes of each candidate in a generation."""
    common_random_numbers: bool | Literal["pairs"] = False
    """Whether all candidates of a generation play the same episodes. With "pairs" the two candidates of an antithetic
    pair share their episodes, and different pairs play different ones."""
    normalize_observations: bool = False
    """Whether observations are scaled to mean 0 and standard deviation 1, by the moments of all earlier generations."""
    normalizer_generations: Annotated[int, Field(ge=0)] | None = None
    """If set, the scaling learns from this number of generations, and then never changes; 0 keeps the scaling with
    which the genome of `start_from` was evolved."""
    fitness: Fitness = "mean"
    """The value of a candidate for selection, computed from its returns: "mean", "min", "median", "quantile:0.25" (any
    number from 0 to 1), or "module:function", a Python function of returns, metrics and connections."""
    connection_cost: float = Field(0.0, ge=0, le=1e9)
    """The cost of a fully connected candidate, subtracted from its `fitness`; a pruned candidate pays in proportion
    to its connections."""
    episode_cap: Annotated[float, Field(gt=1, le=1e6)] | None = None
    """If set, no episode lasts longer than this factor times the mean length of the last generation's episodes."""
    early_max_episode_steps: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """If set, no episode of the first `early_generations` generations lasts longer."""
    early_generations: int = Field(100, ge=1)
    """The number of generations that `early_max_episode_steps` limits."""
    held_out_episodes: int = Field(100, ge=0, lt=2**31)
    """The number of held-out episodes, from a random stream of their own, that the final champion plays."""
    evaluation_max_episode_steps: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """The largest number of steps of a validation or held-out episode; by default the limit of `env`."""
    evaluation_randomize: Distributions | None = None
    """The distributions of arguments in validation and held-out episodes; by default `env.randomize`."""
    start_from: StartFromOptions | None = None
    """The genome with which the search begins: a run file, a champion file, or the table `[start_from]`. By default the
    search begins with random genomes."""
    early_stop: EarlyStopOptions = EarlyStopOptions()
    racing: RacingOptions = RacingOptions()
    env: EnvOptions = EnvOptions()
    network: _Chosen = _default_choice("network")
    strategy: _Chosen = _default_choice("strategy")
    compute: ComputeOptions = ComputeOptions()
    output: OutputOptions = OutputOptions()

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, table: Any, validate: ModelWrapValidatorHandler["Config"]) -> "Config":
        # `parse` explains errors, too, but a script may call `Config(…)` without `parse`.
        return options.validate_or_explain(cls, validate, table)

    @model_validator(mode="after")
    def _check_randomize(self) -> "Config":
        check_set_once(self.env.kwargs, self.evaluation_randomize or {}, "evaluation_randomize")
        return self

    @classmethod
    def advice(cls, key: str, table: Mapping[str, Any]) -> str:
        """Return advice about an unknown key: settings of its name or meaning in all sections."""
        sections = {section: _with_name(section, table.get(section, {})) for section in _DEFAULT_NAMES}
        return advice(key, sections, cls.model_fields)

    def to_toml(self) -> str:
        """Return the whole experiment as TOML, including all defaults."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def in_evaluation(self) -> "Config":
        """Return this experiment with all episodes under the conditions of its validation and held-out episodes."""
        evaluation = {"max_episode_steps": self.evaluation_max_episode_steps, "randomize": self.evaluation_randomize}
        changes = {key: value for key, value in evaluation.items() if value is not None}
        return self.with_env(self.env.model_copy(update=changes))

    def evaluates_like(self, other: "Config") -> bool:
        """Return whether two otherwise equal experiments play the same held-out episodes."""
        return self.in_evaluation().env == other.in_evaluation().env

    def with_section(self, section: str, **changes: Any) -> "Config":
        """Return this experiment with other settings in a section, which are not validated."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=changes)})

    def with_env(self, env: EnvOptions) -> "Config":
        """Return this experiment with another environment for all episodes, including held-out episodes."""
        return self.model_copy(update={"env": env, "evaluation_max_episode_steps": None, "evaluation_randomize": None})

    def with_env_changes(self, changes: Mapping[str, Any]) -> "Config":
        """Return this experiment with other settings of its environment, in training and in evaluation.

        changes: A table of settings, see `EnvOptions.changed`. Raises InputError if a setting is invalid.
        """
        evaluated = self.in_evaluation().env.changed(changes)
        # None stands for the setting of `env`, which is changed below.
        steps = None if "max_episode_steps" in changes else self.evaluation_max_episode_steps
        randomize = None if self.evaluation_randomize is None else evaluated.randomize
        evaluation = {"evaluation_max_episode_steps": steps, "evaluation_randomize": randomize}
        return self.model_copy(update={"env": self.env.changed(changes)} | evaluation)

    def directory(self) -> Path:
        """Return the directory of this experiment's run files. Raises InputError if it names an unset variable."""
        directory = self.output.directory
        if not directory:
            return Path(f"runs/{self.env.id.replace('/', '-').replace(':', '-')}-{self.network.name}")
        # Expand "~" and "$NAME" here, because no shell does so in a TOML file or in Python.
        expanded = os.path.expandvars(directory)
        if re.search(r"\$(\w|\{)", expanded):
            expected = "a directory whose environment variables are set"
            raise InputError("output.directory", expected, directory, "Set the variable, or write the directory.")
        return Path(os.path.expanduser(expanded))


def differences(ours: Config, theirs: Config) -> list[tuple[str, object, object]]:
    """Return triples (key, ours, theirs) of the different settings, without `RUNTIME_KEYS`.

    The name of a network or strategy comes before its options. A recorded start is compared by its digest, because its
    file may have been moved.
    """
    skipped = {*RUNTIME_KEYS, "start_from"}
    a, b = (options.flatten(config.model_dump(mode="json", exclude=skipped)) for config in (ours, theirs))
    start, other = ours.start_from, theirs.start_from
    is_same_start = start.is_same(other) if start is not None else other is None
    if not is_same_start:
        a["start_from"] = None if start is None else start.describe()
        b["start_from"] = None if other is None else other.describe()
    # Without its suffix, "network.name" is "network.", which comes before all options of the network.
    keys = sorted(a | b, key=lambda key: key.removesuffix("name"))
    return [(key, a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)]


def without_implied(different: Sequence[tuple[str, object, object]]) -> list[tuple[str, object, object]]:
    """Return differences without the options that only one side has because the networks or strategies differ."""
    # The beginnings of keys, "network." or "strategy.", of which the names differ.
    sections = tuple(key.removesuffix("name") for key, _, _ in different if key in ("network.name", "strategy.name"))
    # `differences` gives None for a key that one side does not have.
    implied = {key for key, a, b in different if key.startswith(sections) and None in (a, b)}
    return [(key, a, b) for key, a, b in different if key not in implied]
