"""Whether a GPU pays, by a short trial of the experiment itself: its network and its environment.

With environments on the CPU the gain is at most (environment + network) / environment: where a step of the environment
takes most of the time, nothing is won. So "auto" takes a GPU only where the trial is faster by `LEAST_GAIN`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from evolve.cluster import Watchdog
from evolve.errors import InputError, RunError
from evolve.numerics import host_backend
from evolve.numerics.device import DeviceMemoryError, device, in_sight
from evolve.numerics.streams import Purpose
from evolve.rollouts import AnyRollout, EpisodeBatch, ExactRollout, Moments, generation_keys
from evolve.rollouts.device_inference import device_step
from evolve.strategies import initial_genomes
from evolve.training.experiment import Experiment
from evolve.training.making_rollouts import check_device_memory, rollout_of

LEAST_GAIN = 1.3
"""How many times as fast a GPU has to be."""
_SECONDS = 0.5  # of each trial
_WARM_UP = 4  # ticks
_MOST_GENOMES = 64


@dataclass(frozen=True)
class BackendTrial:
    """How fast an experiment was on the host and on a device, environment steps per second."""

    host: str
    device: str
    host_speed: float
    device_speed: float

    @property
    def pays(self) -> bool:
        """Whether the device is faster by `LEAST_GAIN`."""
        return self.device_speed >= LEAST_GAIN * self.host_speed

    def __str__(self) -> str:
        gain = self.device_speed / self.host_speed
        steps = f"{self.device_speed:,.0f} against {self.host_speed:,.0f} steps/s in a trial, network and environment"
        if self.pays:
            return f"backend cupy: the {self.device} is {gain:.2f} × as fast as {self.host} ({steps})"
        verdict = f"the {self.device} would be {gain:.2f} × as fast, less than the {LEAST_GAIN} that are worth it"
        return f"backend {self.host}: {verdict} ({steps})"


def choose_backend(experiment: Experiment) -> tuple[Experiment, BackendTrial | None]:
    """Return an experiment with the back end that "auto" stands for on this machine, and what the trial has shown.

    There is no trial, and None, where another back end is asked for, or no GPU can be used.

    Raises:
        InputError: A GPU is asked for, and has too little memory.
    """
    compute = experiment.config.compute
    if compute.backend == "cupy":
        check_device_memory(experiment)
    if compute.backend != "auto" or not in_sight():
        return experiment, None
    here = host_backend("auto")
    trial = BackendTrial(here, device().name, _speed(experiment, here), _device_speed(experiment))
    return replace(experiment, chosen_backend="cupy" if trial.pays else here), trial


def on_host(experiment: Experiment) -> str:
    """Return a sentence if a network is to run on a device and cannot, "" otherwise."""
    if experiment.backend != "cupy" or device_step(experiment.network.batch(1, "cupy")) is not None:
        return ""
    name = experiment.config.network.name
    return (
        f"the network {name} has no step for a GPU: the {host_backend('auto')} back end computes it, with the same bits"
    )


def _device_speed(experiment: Experiment) -> float:
    """Return the environment steps per second of the device; 0 when it fails, or its memory is too small."""
    try:
        check_device_memory(experiment)
        return _speed(experiment, "cupy")
    except (InputError, RunError, DeviceMemoryError):
        return 0.0


def _speed(experiment: Experiment, backend: str) -> float:
    """Return the environment steps per second of a back end."""
    return rollout_speed(experiment, backend, _SECONDS).steps_per_second


@dataclass(frozen=True)
class RolloutSpeed:
    """How long a rollout took per environment step, in seconds; and its environments alone."""

    step: float
    environment: float

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second."""
        return 1 / self.step


def rollout_speed(experiment: Experiment, backend: str, seconds: float) -> RolloutSpeed:
    """Return how fast initial networks play by a back end, in this process, with all slots busy.

    Raises:
        InputError: The rollout cannot be made here: there is too little memory for the slots, say.
    """
    compute = experiment.config.compute.model_copy(update={"backend": backend})
    config = experiment.config.model_copy(update={"compute": compute})
    rollout = rollout_of(config)
    at_once = min(config.compute.slots or 1, config.population * config.episodes)
    genomes = initial_genomes(experiment.network, 0, 0, range(min(at_once, _MOST_GENOMES)))
    normalizer = Moments.none(experiment.network.observation_size).normalizer()
    batch = EpisodeBatch.of(
        0,
        Purpose.CHECK,
        genomes,
        generation_keys(0, len(genomes)),
        range(-(-at_once // len(genomes))),
        normalizer if config.normalize_observations else None,
    )
    with Watchdog(config.env.max_episode_seconds, fatal=True) as watchdog:
        return _ticking(rollout, batch, seconds, watchdog.pat)


def _ticking(rollout: AnyRollout, batch: EpisodeBatch, seconds: float, alive: Callable[[], None]) -> RolloutSpeed:
    rollout.submit(batch)
    steps = 0
    begin = 0.0
    ticks = 0
    while ticks <= _WARM_UP or not steps or time.perf_counter() - begin < seconds:
        if ticks == _WARM_UP:
            begin = time.perf_counter()
            rollout.environment_seconds = 0.0
            steps = 0
        if rollout.pending < len(batch) / 2:
            rollout.submit(batch)
        at_least = rollout.ticking
        results = rollout.tick()
        if not isinstance(rollout, ExactRollout):
            steps += at_least
        elif results is not None:  # whole episodes, of many steps
            steps += int(results.lengths.sum())
        alive()
        ticks += 1
    took = time.perf_counter() - begin
    speed = RolloutSpeed(took / steps, rollout.environment_seconds / steps)
    rollout.clear()
    return speed
