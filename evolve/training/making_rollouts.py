"""The rollout of an experiment, on the host or on a device."""

from functools import partial

from evolve import environments, networks
from evolve.config import Config
from evolve.errors import InputError
from evolve.numerics import backend
from evolve.numerics.device import WIDTH, DeviceMemoryError, device
from evolve.rollouts import AnyRollout, EpisodeQueue, Rollout, RolloutInHalves
from evolve.training.experiment import load_config


def make_rollout(text: str) -> AnyRollout:
    """Return the rollout of an experiment (TOML text)."""
    return rollout_of(load_config(text))


def rollout_of(config: Config) -> AnyRollout:
    """Return the rollout of a configuration. Raises InputError when it cannot be made here."""
    slots = config.compute.slots or 1
    if backend(config.compute.backend) != "cupy":
        return _rollout(config, slots)
    try:
        return _on_device(config, slots)
    except DeviceMemoryError as error:
        came = f"{slots:,}, for which {error.needed:,} bytes more were needed, and {error.free:,} free"
    fitting = _slots_that_fit(config)  # not before the error has let go of what there was memory for
    expected = f"at most {fitting:,} slots, which fit into the memory of {device().name}"
    raise InputError("compute.slots", expected, came)


def _on_device(config: Config, slots: int) -> AnyRollout:
    if slots == 1:
        return _rollout(config, 1)
    return RolloutInHalves(partial(_rollout, config, -(-slots // 2)))


def _rollout(config: Config, slots: int, queue: EpisodeQueue | None = None) -> Rollout:
    engine = environments.make(config.env, slots)
    network = networks.make(config.network, engine.observation_size, engine.action_size)
    return Rollout(
        engine,
        network,
        slots,
        backend(config.compute.backend),
        config.env.max_episode_seconds,
        config.normalize_observations,
        config.compute.check,
        queue,
    )


def _needed(config: Config, slots: int) -> int:
    """Return the bytes that a rollout takes on the device."""
    before = device().allocated
    rollout = _on_device(config, slots)
    needed = device().allocated - before
    del rollout
    return needed


def _slots_that_fit(config: Config) -> int:
    """Return how many slots the device of this process has memory for: what a tile needs is tried."""
    free = device().free_memory()
    try:
        needed = [_needed(config, 2 * WIDTH * tiles) for tiles in (1, 2)]
    except DeviceMemoryError:
        return 0
    per_slot = (needed[1] - needed[0]) / (2 * WIDTH)
    fixed = 2 * needed[0] - needed[1]
    return max(0, int((free - fixed) / per_slot) // (2 * WIDTH) * (2 * WIDTH))
