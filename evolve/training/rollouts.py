"""Makes the rollout that plays the episodes of an experiment, on the host or on a device (a GPU).

`make_rollout` makes the rollout of a rank from the TOML text of the experiment. With `backend = "auto"`,
`choose_backend` decides before the run whether to use the device: in a short trial both back ends play initial genomes.
The classes of rollouts are in `evolve.rollouts`.
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

# A feed holds the episodes that one call of a kernel plays from beginning to end.
_FEED_EPISODES_PER_SLOT = 4
"""The episodes of each slot in a feed of a device. With only one, most slots would wait for the longest episode."""
FEED_BYTES = 2**26
"""The memory of the largest feed on the host."""
_LEAST_WORLDS = 4
"""The smallest feed of rigid-body worlds. Four worlds take half of the time of sixteen."""
_CROWD_BYTES = 2**22
"""The largest memory for the networks of the slots that a kernel steps together (a crowd): a second-level cache."""
LEAST_GAIN = 1.3
"""A GPU is used if it has at least this multiple of the host's speed."""
TRIAL_SECONDS = 0.5
"""Seconds of each trial."""
WARM_UP = 4
"""The number of ticks (calls of `Rollout.tick`) before a trial measures."""
_MOST_GENOMES = 64  # the most genomes of a trial; with more slots, each genome plays several episodes


def make_rollout(text: str) -> AnyRollout:
    """Return the rollout of an experiment. text: the TOML text of the experiment."""
    return rollout_of(load_config(text))


def rollout_of(config: Config) -> AnyRollout:
    """Return the rollout of a configuration, with fewer slots if not all fit into the device of this rank.

    Raises InputError if the rollout cannot be made here.
    """
    slots = config.compute.slots or 1
    chosen = backend(config.compute.backend)
    while True:
        try:
            if chosen == "cupy" and _num_halves(config, slots) == 2:
                half_of_slots = ceil_div(slots, 2)
                return RolloutInHalves(partial(_half_rollout, config, half_of_slots))
            return _exact_rollout(config, slots, chosen) or _stepwise_rollout(config, slots)
        except DeviceMemoryError:
            if slots <= WIDTH:  # one tile, the least that a device plays
                expected = f"slots that fit into {device().free_memory():,} bytes of {device().name}"
                raise InputError("compute.slots", expected, f"{slots:,}") from None
        # Rank 0 has checked the slots (`with_fitting_slots`), but its device may have more free memory. Try fewer
        # slots, because their number cannot change results.
        slots = max(WIDTH, slots * 3 // 4)


def _num_halves(config: Config, slots: int) -> int:
    """Return the number of rollouts, 1 or 2, that share the slots of a device.

    While the device plays one half, the host works on the other. Rigid bodies share one rollout, because the host has
    little work, and because large blocks of slots are fastest (`in_whole_blocks`).
    """
    has_world = config.env.engine == "exact" and environments.exact_task(config.env).has_world
    return 1 if slots == 1 or has_world else 2


def with_fitting_slots(experiment: Experiment) -> Experiment:
    """Return an experiment with no more slots than fit into the memory of the device, estimated from a few slots.

    If `Experiment.device_slots` is not None, it takes the place of `compute.slots` on the device, and is reduced here.
    The number in `compute.slots` stays, because the user may have chosen it.

    Raises:
        InputError: `device_slots` is None and `compute.slots` does not fit, or not even a few slots fit.
    """
    # If the rollouts of training and of evaluation differ, a rank keeps both on its device.
    free = device().free_memory() // (1 if _evaluates_in_same_rollout(experiment) else 2)
    fitting, wanted = _slots_that_fit(experiment, free), experiment.device_slots
    # All slots of `compute.slots` must fit. Of `device_slots`, one tile is enough.
    least = (experiment.config.compute.slots or 1) if wanted is None else min(wanted, WIDTH)
    if fitting < least:
        expected = f"at most {fitting:,} slots, which fit into the {free:,} free bytes of {device().name}"
        raise InputError("compute.slots", expected, f"{least:,}")
    if wanted is None:
        return experiment
    # If the network runs on the host (infinity), the rollout has `compute.slots` slots.
    return replace(experiment, device_slots=None if fitting == math.inf else min(wanted, int(fitting)))


def _evaluates_in_same_rollout(experiment: Experiment) -> bool:
    """Return whether training and evaluation share one rollout, because they have the same environment."""
    config = experiment.config
    # Evaluation does not have these step limits.
    if config.episode_cap is not None or config.early_max_episode_steps is not None:
        return False
    # The TOML texts of the two specifications are equal if their rollouts are.
    return experiment.rollout_spec.experiment == experiment.in_evaluation().rollout_spec.experiment


def _slots_that_fit(experiment: Experiment, free: int) -> float:
    """Return the number of slots of all halves that fit into `free` bytes; infinity if the network runs on the host.

    The bytes grow linearly with the tiles (`WIDTH` slots), so the bytes of one and of two tiles are enough to know.
    """
    try:
        one, two = (_device_bytes(experiment, WIDTH * tiles) for tiles in (1, 2))
    except DeviceMemoryError:
        return 0
    if one == two:  # the network runs on the host
        return math.inf
    if experiment.config.env.engine == "exact":
        # Each half stages large copies, which the few tiles above do not need. Rigid bodies have one half, so this is
        # more than they need.
        free -= 2 * MOST_STAGING
    halves = _num_halves(experiment.config, WIDTH)
    # Two points of a line: bytes = fixed + per_tile · tiles.
    fixed, per_tile = 2 * one - two, two - one
    tiles_of_half = (free // halves - fixed) // per_tile
    slots = fitting = max(0, halves * WIDTH * tiles_of_half)
    if experiment.config.env.engine == "exact":
        task = environments.exact_task(experiment.config.env)
        # The rollout will round its slots up to whole blocks, which must fit, too.
        while in_whole_blocks(task, slots) > fitting:
            slots -= WIDTH
    return slots


def _device_bytes(experiment: Experiment, slots: int) -> int:
    """Return the bytes that a number of slots takes on the device."""
    before = device().allocated
    config = experiment.config
    # Without a rollout of whole episodes, only the networks are on the device.
    owner_of_memory = _device_rollout(config, slots) or make_inference(
        experiment.network, slots, experiment.action_size, "cupy", config.normalize_observations
    )
    allocated = device().allocated - before
    # Free the memory before the next measurement.
    del owner_of_memory
    return allocated


def _half_rollout(config: Config, slots: int, queue: EpisodeQueue) -> Rollout | DeviceRollout:
    """Return one of the two rollouts that share a device."""
    return _device_rollout(config, slots, queue) or _stepwise_rollout(config, slots, queue)


def _device_rollout(config: Config, slots: int, queue: EpisodeQueue | None = None) -> DeviceRollout | None:
    """Return the rollout that plays whole episodes on the device.

    None if the environment is no exact task, or if the network cannot run in kernels of whole episodes.
    """
    if config.env.engine != "exact":
        return None
    task, network = exact_parts(config)
    slots = in_whole_blocks(task, slots)
    batch = network.batch(slots, "cupy")
    # The kernels of whole episodes call networks that keep their state in arrays of slots.
    if not isinstance(batch, SlotArrays):
        return None
    feed_size = _FEED_EPISODES_PER_SLOT * slots
    queue = EpisodeQueue() if queue is None else queue
    queue.fill_feeds(feed_size)
    play = DevicePlay(task, batch, network.num_weights, feed_size, config.normalize_observations)
    return DeviceRollout(play, config.env.max_episode_seconds, queue)


def _exact_rollout(config: Config, slots: int, chosen: Backend) -> ExactRollout | ThreadedRollout | None:
    """Return the rollout that plays whole episodes of an exact task; None if `_stepwise_rollout` plays instead."""
    if chosen == "cupy":
        return _device_rollout(config, slots)
    if config.env.engine != "exact" or chosen == "numpy":
        return None
    task, network = exact_parts(config)
    # The crowd is the number of slots that the kernel steps in one call: a multiple of the least number.
    smallest_crowd = environments.slots_per_call(task)
    crowd = min(environments.largest_crowd(task), slots, _CROWD_BYTES // (4 * network.slot_size))
    crowd = max(smallest_crowd, crowd - crowd % smallest_crowd)
    if not isinstance(network.batch(smallest_crowd, chosen), SlotArrays):
        return None
    normalize = config.normalize_observations
    # Each thread has a feed, so limit its memory. In a feed, a weight takes 5 bytes with its mask, a trace takes 8, and
    # the hashes of a step take 2.
    episode_bytes = 5 * network.num_weights + 8 * network.num_traces + 2 * min(task.step_limit, MAX_HASHED_STEPS)
    feed_size = max(crowd, min(slots, FEED_BYTES // episode_bytes))

    def rollout_of_thread(queue: EpisodeQueue) -> ExactRollout:
        slot_arrays = network.batch(crowd, chosen)
        assert isinstance(slot_arrays, SlotArrays)
        play = NativePlay(task, crowd, slot_arrays, feed_size, normalize)
        return ExactRollout(play, config.env.max_episode_seconds, queue)

    threads = num_threads(config)
    # A call with fewer episodes than `smallest_crowd` takes the same time, except for rigid-body worlds.
    least_feed = _LEAST_WORLDS if task.has_world else smallest_crowd
    return (
        rollout_of_thread(EpisodeQueue()) if threads == 1 else ThreadedRollout(rollout_of_thread, threads, least_feed)
    )


def _stepwise_rollout(config: Config, slots: int, queue: EpisodeQueue | None = None) -> Rollout:
    """Return the rollout that calls the networks and the environments in turns, for each step."""
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
    def prefers_device(self) -> bool:
        """Whether the device is at least `LEAST_GAIN` times as fast as the host."""
        return self.device_speed >= LEAST_GAIN * self.host_speed

    def __str__(self) -> str:
        gain = self.device_speed / self.host_speed
        steps = f"{self.device_speed:,.0f} against {self.host_speed:,.0f} steps/s of network and environment in a trial"
        if self.prefers_device:
            return f"backend cupy: the {self.device} is {gain:.2f} × as fast as {self.host} ({steps})"
        verdict = f"the {self.device} would be {gain:.2f} × as fast, but is used only from {LEAST_GAIN} × on"
        return f"backend {self.host}: {verdict} ({steps})"


def choose_backend(experiment: Experiment) -> tuple[Experiment, BackendTrial | None]:
    """Return an experiment with the back end that "auto" means on this machine, and the trial that has chosen it.

    The trial is None if the setting `compute.backend` is not "auto", or if no GPU can be used.

    Raises:
        InputError: The user asks for a GPU, but it has too little memory. Or the rollout cannot be made here.
    """
    compute = experiment.config.compute
    if compute.backend == "cupy":
        return with_fitting_slots(experiment), None
    if compute.backend != "auto" or not has_device():
        return experiment, None
    # Compare the best back end of the host with the device.
    host = host_backend("auto")
    host_speed = rollout_speed(experiment, host, TRIAL_SECONDS).steps_per_second
    try:
        on_device = with_fitting_slots(experiment)
        device_speed = rollout_speed(on_device, "cupy", TRIAL_SECONDS).steps_per_second
    except (InputError, RunError, DeviceMemoryError):  # the device fails, or its memory is too small
        on_device, device_speed = experiment, 0.0
    trial = BackendTrial(host, device().name, host_speed, device_speed)
    return replace(on_device, chosen_backend="cupy" if trial.prefers_device else host), trial


def host_fallback(experiment: Experiment) -> str:
    """Return a remark for the user if the network cannot run on the device that shall be used; otherwise ""."""
    if experiment.backend != "cupy" or device_step(experiment.network.batch(1, "cupy")) is not None:
        return ""
    name, host = experiment.config.network.name, host_backend("auto")
    return f"the network {name} has no step for a GPU: the {host} back end computes it, with the same bits"


@dataclass(frozen=True)
class RolloutSpeed:
    """The speed of a rollout.

    step_seconds: The seconds per environment step, with the network.
    environment_seconds: The part of them that was spent in the environment.
    """

    step_seconds: float
    environment_seconds: float

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second."""
        return 1 / self.step_seconds


@environments.keeping_directory()
def rollout_speed(experiment: Experiment, backend: str, seconds: float) -> RolloutSpeed:
    """Return the speed at which initial networks play on a back end in this process, in as many slots as in training.

    seconds: The time of the measurement, without the warm-up.

    Raises:
        InputError: The rollout cannot be made here, for example because the slots do not fit into memory.
    """
    config = experiment.on(backend)
    rollout = rollout_of(config)
    # Make a batch of at least one episode for each slot.
    running = min(config.compute.slots or 1, config.population * config.episodes)
    genomes = initial_genomes(experiment.network, 0, 0, range(min(running, _MOST_GENOMES)))
    keys = generation_keys(0, len(genomes))
    episodes = range(ceil_div(running, len(genomes)))
    no_moments = Moments.none(experiment.network.observation_size)
    normalizer = no_moments.normalizer() if config.normalize_observations else None
    batch = EpisodeBatch.of(0, Purpose.CHECK, genomes, keys, episodes, normalizer)
    # Play the batch again and again. A tick is a step of all slots, or plays whole episodes.
    with closing(rollout), Watchdog(config.env.max_episode_seconds, fatal=True) as watchdog:
        rollout.call_on_fault(watchdog.pat)  # within a tick, several episodes may hang one after another
        rollout.submit(batch)
        steps = ticks = 0
        # Before the end of the warm-up `begin` is infinite, and the elapsed time is -∞. At least one step is measured,
        # because the times are divided by the number of steps.
        begin = math.inf
        while not steps or time.perf_counter() - begin < seconds:
            if ticks == WARM_UP:
                begin, steps = time.perf_counter(), 0
                rollout.environment_seconds = 0.0
            # Submit more before the queue is empty, so that no slot waits.
            if rollout.pending < len(batch) / 2:
                rollout.submit(batch)
            # Count the steps of the next tick, one for each running slot. With two halves, a tick steps only the first.
            # The steps of whole episodes are known after the tick.
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
