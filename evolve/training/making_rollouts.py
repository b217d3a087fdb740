"""The rollout of an experiment, on the host or on a device."""

import math
from functools import partial

from evolve import environments, networks
from evolve.config import Config
from evolve.errors import InputError
from evolve.networks.slot_arrays import SlotArrays
from evolve.numerics import Backend, backend
from evolve.numerics.device import WIDTH, DeviceMemoryError, device
from evolve.numerics.device_arrays import MOST_STAGING
from evolve.rollouts import AnyRollout, EpisodeQueue, ExactRollout, Rollout, RolloutInHalves
from evolve.rollouts.device_play import DevicePlay
from evolve.rollouts.feeds import Play
from evolve.rollouts.inference import make_inference
from evolve.rollouts.play import NativePlay
from evolve.training.experiment import Experiment, load_config

_FEED = 4
"""Episodes for each slot of a device that are played in one go, so that few slots wait for the longest."""


def make_rollout(text: str) -> AnyRollout:
    """Return the rollout of an experiment (TOML text)."""
    return rollout_of(load_config(text))


def rollout_of(config: Config) -> AnyRollout:
    """Return the rollout of a configuration. Raises InputError when it cannot be made here."""
    slots = config.compute.slots or 1
    chosen = backend(config.compute.backend)
    try:
        whole = _exact_rollout(config, slots, chosen)
        if whole is not None:
            return whole
        if chosen != "cupy" or slots == 1:
            return _rollout(config, slots)
        return RolloutInHalves(partial(_rollout, config, -(-slots // 2)))
    except DeviceMemoryError:
        came = device().free_memory()
    raise InputError("compute.slots", f"what {came:,} bytes of {device().name} are enough for", f"{slots:,}")


def check_device_memory(experiment: Experiment) -> None:
    """Raise InputError when this process's device has too little memory for the slots: what few need is tried."""
    slots = experiment.config.compute.slots or 1
    free = device().free_memory() // (1 if _plays_alike(experiment) else 2)
    fitting = _slots_that_fit(experiment, free)
    if slots > fitting:
        expected = f"at most {fitting:,} slots, which fit into the {free:,} free bytes of {device().name}"
        raise InputError("compute.slots", expected, f"{slots:,}")


def _plays_alike(experiment: Experiment) -> bool:
    """Return whether training and evaluation have one rollout, or two at a time."""
    return (
        not experiment.limits_change
        and experiment.rollout_spec.experiment == experiment.in_evaluation().rollout_spec.experiment
    )


def _slots_that_fit(experiment: Experiment, free: int) -> float:
    """Return for how many slots, in two halves unless they play whole episodes, so many bytes are enough."""
    try:
        one, two = (_needed(experiment, WIDTH * tiles) for tiles in (1, 2))
    except DeviceMemoryError:
        return 0
    if one == two:  # the network runs on the host
        return math.inf
    parts = 2
    if experiment.config.env.engine == "exact":
        parts, free = 1, free - 2 * MOST_STAGING  # which few slots do not show
    tiles = (free // parts - (2 * one - two)) // (two - one)  # of each
    return max(0, parts * WIDTH * tiles)


def _needed(experiment: Experiment, slots: int) -> int:
    """Return the bytes that so many slots take on the device."""
    before = device().allocated
    config = experiment.config
    made = _exact_rollout(config, slots, "cupy") or make_inference(
        experiment.network, slots, experiment.action_size, "cupy", config.normalize_observations, check=False
    )
    needed = device().allocated - before
    del made
    return needed


def _exact_rollout(config: Config, slots: int, chosen: Backend) -> ExactRollout | None:
    """Return the rollout that plays whole episodes of an exact task; None where array operations or others play."""
    if config.env.engine != "exact" or chosen == "numpy":
        return None
    task = environments.exact_task(config.env)
    network = networks.make(config.network, task.observation_size, task.action_size)
    batch = network.batch(environments.lanes_of(task) if chosen == "native" else slots, chosen)
    if not isinstance(batch, SlotArrays):
        return None
    normalize = config.normalize_observations
    play: Play
    if chosen == "native":
        waiting, play = slots, NativePlay(task, batch, slots, normalize)
    else:
        waiting = _FEED * slots
        play = DevicePlay(task, batch, network.num_weights, waiting, normalize)
    return ExactRollout(play, batch, waiting, config.env.max_episode_seconds)


def _rollout(config: Config, slots: int, queue: EpisodeQueue | None = None) -> Rollout:
    chosen = backend(config.compute.backend)
    engine = environments.make(config.env, slots, compiled=chosen != "numpy")
    network = networks.make(config.network, engine.observation_size, engine.action_size)
    return Rollout(
        engine,
        network,
        slots,
        chosen,
        config.env.max_episode_seconds,
        config.normalize_observations,
        config.compute.check,
        queue,
    )
