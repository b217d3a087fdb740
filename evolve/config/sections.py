"""The sections of an experiment whose settings are always the same: everything but `[network]` and `[strategy]`."""

from typing import Annotated, Literal

from pydantic import Field

from evolve.config.options import Options
from evolve.config.values import Duration, Kwargs, Rounds


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
