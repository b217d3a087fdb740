"""Makes the rollout that plays the episodes of an experiment, on the host or on a device.

With `backend = "auto"` a short trial decides which is faster: both back ends play initial genomes.
"""

import math
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from evolve import environments, networks
from evolve.cluster import Watchdog
from evolve.config import Config
from evolve.errors import InputError, RunError
from evolve.networks.network import SlotArrays
from evolve.numerics import Backend, backend, host_backend
from evolve.numerics.device import MOST_STAGING, device, has_device
from evolve.numerics.device_protocol import WIDTH, DeviceMemoryError
from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.numerics.streams import Purpose
from evolve.rollouts import (
    AnyRollout,
    EpisodeBatch,
    EpisodeQueue,
    ExactRollout,
    Moments,
    Rollout,
    RolloutInHalves,
    generation_keys,
)
from evolve.rollouts.device_play import DevicePlay, DeviceRollout, in_whole_blocks
from evolve.rollouts.exact_rollout import ThreadedRollout
from evolve.rollouts.inference import device_step, make_inference
from evolve.rollouts.native_play import NativePlay
from evolve.shapes import ceil_div
from evolve.strategies import initial_genomes
from evolve.training.experiment import Experiment, exact_parts, load_config, num_threads

_FEED = 4
"""Episodes of each slot in a feed of a device. With only one, most slots would wait for the longest episode."""
FEED_BYTES = 2**26
"""The memory of the largest feed on the host. A feed holds the episodes that one call of a kernel plays."""
_FEW_WORLDS = 4
"""The smallest number of rigid-body worlds in a feed. Four worlds take half of the time of sixteen."""
_CROWD_BYTES = 2**22
"""The memory of the networks of a crowd, slots that a kernel steps together. They fit into a second-level cache."""
LEAST_GAIN = 1.3
"""A GPU is used if it has at least this multiple of the host's speed."""
TRIAL_SECONDS = 0.5
"""Seconds of each trial."""
WARM_UP = 4
"""Ticks before a trial measures."""
_MOST_GENOMES = 64  # of a trial; with more slots, each genome plays several episodes


def make_rollout(text: str) -> AnyRollout:
    """Return the rollout of an experiment (TOML text)."""
    return rollout_of(load_config(text))


def rollout_of(config: Config) -> AnyRollout:
    """Return the rollout of a configuration. If its slots do not fit into the device of this rank, it has fewer.

    Raises InputError if the rollout cannot be made here.
    """
    slots = config.compute.slots or 1
    chosen = backend(config.compute.backend)
    while True:
        try:
            if chosen == "cupy" and _halves(config, slots) == 2:
                half_of_slots = ceil_div(slots, 2)
                return RolloutInHalves(partial(_half, config, half_of_slots))
            return _exact_rollout(config, slots, chosen) or _rollout(config, slots)
        except DeviceMemoryError:
            if slots <= WIDTH:  # one tile, the least that a device plays
                expected = f"slots that fit into {device().free_memory():,} bytes of {device().name}"
                raise InputError("compute.slots", expected, f"{slots:,}") from None
        # Rank 0 has checked the slots (`fitted`), but its device may have more free memory. The number of slots cannot
        # change results.
        slots = max(WIDTH, slots * 3 // 4)


def _halves(config: Config, slots: int) -> int:
    """Return the number of rollouts, 1 or 2, that share the slots of a device.

    While the device plays one half, the host works on the other. Rigid bodies share one rollout, because the host has
    little work, and because large blocks of slots are fastest (`in_whole_blocks`).
    """
    has_world = config.env.engine == "exact" and environments.exact_task(config.env).has_world
    return 1 if slots == 1 or has_world else 2


def fitted(experiment: Experiment) -> Experiment:
    """Return an experiment with no more slots than fit into the memory of the device, estimated from a few slots.

    Only `device_slots` is reduced, and never `compute.slots`.

    Raises:
        InputError: The number in `compute.slots` applies and does not fit, or not even a few slots fit.
    """
    # If the rollouts of training and of evaluation differ, a rank keeps both on its device.
    free = device().free_memory() // (1 if _plays_alike(experiment) else 2)
    fitting, wanted = _slots_that_fit(experiment, free), experiment.device_slots
    # If `compute.slots` applies, all its slots must fit. Of the default number on a device, one tile is enough.
    least = (experiment.config.compute.slots or 1) if wanted is None else min(wanted, WIDTH)
    if fitting < least:
        expected = f"at most {fitting:,} slots, which fit into the {free:,} free bytes of {device().name}"
        raise InputError("compute.slots", expected, f"{least:,}")
    if wanted is None:
        return experiment
    # If the network runs on the host, the number of slots for the host applies.
    return replace(experiment, device_slots=None if fitting == math.inf else min(wanted, int(fitting)))


def _plays_alike(experiment: Experiment) -> bool:
    """Return whether training and evaluation share one rollout."""
    config = experiment.config
    if config.episode_cap is not None or config.early_max_episode_steps is not None:  # step limits of training only
        return False
    return experiment.rollout_spec.experiment == experiment.in_evaluation().rollout_spec.experiment


def _slots_that_fit(experiment: Experiment, free: int) -> float:
    """Return the number of slots of both halves that fit into `free` bytes; infinity if the network runs on the host.

    The bytes grow linearly with the tiles. The bytes of one and of two tiles are measured.
    """
    try:
        one, two = (_needed(experiment, WIDTH * tiles) for tiles in (1, 2))
    except DeviceMemoryError:
        return 0
    if one == two:  # the network runs on the host
        return math.inf
    if experiment.config.env.engine == "exact":
        free -= 2 * MOST_STAGING  # for the staging of large copies in both halves; one or two tiles do not need it
    halves = _halves(experiment.config, 2)
    # Two points of a line: bytes = fixed + per_tile · tiles.
    fixed, per_tile = 2 * one - two, two - one
    tiles = (free // halves - fixed) // per_tile  # of each half
    slots = fitting = max(0, halves * WIDTH * tiles)
    if experiment.config.env.engine == "exact":
        task = environments.exact_task(experiment.config.env)
        # The rollout rounds its slots up to whole blocks, and the whole blocks must fit.
        while in_whole_blocks(task, slots) > fitting:
            slots -= WIDTH
    return slots


def _needed(experiment: Experiment, slots: int) -> int:
    """Return the bytes that a number of slots takes on the device."""
    before = device().allocated
    config = experiment.config
    made = _device_rollout(config, slots) or make_inference(
        experiment.network, slots, experiment.action_size, "cupy", config.normalize_observations
    )
    needed = device().allocated - before
    # Free the memory before the next measurement.
    del made
    return needed


def _half(config: Config, slots: int, queue: EpisodeQueue) -> Rollout | DeviceRollout:
    return _device_rollout(config, slots, queue) or _rollout(config, slots, queue)


def _device_rollout(config: Config, slots: int, queue: EpisodeQueue | None = None) -> DeviceRollout | None:
    """Return the rollout that plays whole episodes of an exact task on the device; None if there is none."""
    if config.env.engine != "exact":
        return None
    task, network = exact_parts(config)
    slots = in_whole_blocks(task, slots)
    batch = network.batch(slots, "cupy")
    # The kernels of whole episodes call networks that keep their state in arrays of slots.
    if not isinstance(batch, SlotArrays):
        return None
    feed_size = _FEED * slots
    queue = EpisodeQueue() if queue is None else queue
    queue.fill_feeds(feed_size)
    play = DevicePlay(task, batch, network.num_weights, feed_size, config.normalize_observations)
    return DeviceRollout(play, config.env.max_episode_seconds, queue)


def _exact_rollout(config: Config, slots: int, chosen: Backend) -> ExactRollout | ThreadedRollout | None:
    """Return the rollout that plays whole episodes of an exact task; None if a step-by-step rollout plays instead."""
    if chosen == "cupy":
        return _device_rollout(config, slots)
    if config.env.engine != "exact" or chosen == "numpy":
        return None
    task, network = exact_parts(config)
    # The smallest number of slots that a call of the kernel steps. A crowd is a multiple of it.
    per_call = environments.slots_per_call(task)
    crowd = min(environments.largest_crowd(task), slots, _CROWD_BYTES // (4 * network.slot_size))
    crowd = max(per_call, crowd - crowd % per_call)
    if not isinstance(network.batch(per_call, chosen), SlotArrays):
        return None
    normalize = config.normalize_observations
    # The approximate bytes of an episode in a feed. Each thread has a feed, so large feeds are limited.
    # A weight takes 5 bytes with its mask, a trace takes 8, and the hashes of a step take 2.
    episode_bytes = 5 * network.num_weights + 8 * network.num_traces + 2 * min(task.step_limit, MAX_HASHED_STEPS)
    feed_size = max(crowd, min(slots, FEED_BYTES // episode_bytes))

    def part(queue: EpisodeQueue) -> ExactRollout:
        """Return the rollout of one thread."""
        slot_arrays = network.batch(crowd, chosen)
        assert isinstance(slot_arrays, SlotArrays)
        play = NativePlay(task, crowd, slot_arrays, feed_size, normalize)
        return ExactRollout(play, config.env.max_episode_seconds, queue)

    threads = num_threads(config)
    # A smaller feed would not fill a call. But a few worlds take less time than many, so their feeds may be smaller.
    least_feed = _FEW_WORLDS if task.has_world else per_call
    return part(EpisodeQueue()) if threads == 1 else ThreadedRollout(part, threads, least_feed)


def _rollout(config: Config, slots: int, queue: EpisodeQueue | None = None) -> Rollout:
    chosen = backend(config.compute.backend)
    engine = environments.make(config.env, slots, compiled=chosen != "numpy", threads=num_threads(config))
    network = networks.make(config.network, engine.observation_size, engine.action_size)
    seconds, normalize = config.env.max_episode_seconds, config.normalize_observations
    return Rollout(engine, network, slots, chosen, seconds, normalize, queue)


@dataclass(frozen=True)
class BackendTrial:
    """The speeds of an experiment on the host and on a device, in environment steps per second.

    host, device: The name of the host's back end, and the name of the device.
    """

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
        steps = f"{self.device_speed:,.0f} against {self.host_speed:,.0f} steps/s of network and environment in a trial"
        if self.pays:
            return f"backend cupy: the {self.device} is {gain:.2f} × as fast as {self.host} ({steps})"
        verdict = f"the {self.device} would be {gain:.2f} × as fast, less than the {LEAST_GAIN} that pay"
        return f"backend {self.host}: {verdict} ({steps})"


def choose_backend(experiment: Experiment) -> tuple[Experiment, BackendTrial | None]:
    """Return an experiment with the back end that "auto" means on this machine, and the trial that has chosen it.

    The trial is None if the user asks for another back end, or if no GPU can be used.

    Raises:
        InputError: A GPU is asked for, but has too little memory. Or the rollout cannot be made here.
    """
    compute = experiment.config.compute
    if compute.backend == "cupy":
        return fitted(experiment), None
    if compute.backend != "auto" or not has_device():
        return experiment, None
    # Compare the best back end of the host with the device.
    here = host_backend("auto")
    speed = rollout_speed(experiment, here, TRIAL_SECONDS).steps_per_second
    try:
        there = fitted(experiment)
        device_speed = rollout_speed(there, "cupy", TRIAL_SECONDS).steps_per_second
    except (InputError, RunError, DeviceMemoryError):  # the device fails, or its memory is too small
        there, device_speed = experiment, 0.0
    trial = BackendTrial(here, device().name, speed, device_speed)
    return replace(there, chosen_backend="cupy" if trial.pays else here), trial


def host_fallback(experiment: Experiment) -> str:
    """Return a sentence if the network cannot run on the requested device; otherwise ""."""
    if experiment.backend != "cupy" or device_step(experiment.network.batch(1, "cupy")) is not None:
        return ""
    name = experiment.config.network.name
    return (
        f"the network {name} has no step for a GPU: the {host_backend('auto')} back end computes it, with the same bits"
    )


@dataclass(frozen=True)
class RolloutSpeed:
    """The speed of a rollout: seconds per environment step (`step`), and the part of them in the environment."""

    step: float
    environment: float

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second."""
        return 1 / self.step


@environments.keeping_directory()
def rollout_speed(experiment: Experiment, backend: str, seconds: float) -> RolloutSpeed:
    """Return the speed at which initial networks play on a back end in this process, in as many slots as in training.

    Raises:
        InputError: The rollout cannot be made here, for example because the slots do not fit into memory.
    """
    config = experiment.on(backend)
    rollout = rollout_of(config)
    at_once = min(config.compute.slots or 1, config.population * config.episodes)
    genomes = initial_genomes(experiment.network, 0, 0, range(min(at_once, _MOST_GENOMES)))
    keys = generation_keys(0, len(genomes))
    episodes = range(ceil_div(at_once, len(genomes)))
    no_moments = Moments.none(experiment.network.observation_size)
    normalizer = no_moments.normalizer() if config.normalize_observations else None
    batch = EpisodeBatch.of(0, Purpose.CHECK, genomes, keys, episodes, normalizer)
    with closing(rollout), Watchdog(config.env.max_episode_seconds, fatal=True) as watchdog:
        rollout.call_on_fault(watchdog.pat)  # within a tick, several episodes may hang one after another
        rollout.submit(batch)
        steps = ticks = 0
        # While `begin` is infinite, the elapsed time is -∞, so the loop goes on until the warm-up has ended. The loop
        # also waits for a first step, because the speed is per step.
        begin = math.inf
        while not steps or time.perf_counter() - begin < seconds:
            if ticks == WARM_UP:
                begin, steps = time.perf_counter(), 0
                rollout.environment_seconds = 0.0
            # Submit more before the queue is empty, so that no slot waits.
            if rollout.pending < len(batch) / 2:
                rollout.submit(batch)
            # The next tick advances only the first of two halves. Whole episodes are counted when they have ended.
            ticking = rollout.halves[0] if isinstance(rollout, RolloutInHalves) else rollout
            steps += ticking.running if isinstance(ticking, Rollout) else 0
            results = rollout.tick()
            if results is not None and rollout.whole_episodes:
                steps += int(results.lengths.sum())
            watchdog.pat()
            ticks += 1
        took = time.perf_counter() - begin
        rollout.clear()
        return RolloutSpeed(took / steps, rollout.environment_seconds / steps)
