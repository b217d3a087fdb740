"""Record episodes, and replay them without networks.

A `Recorder` takes the place of an engine, and records the episodes that this engine plays. `replay` plays recorded
episodes, to time their environments.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from evolve.config import EnvOptions
from evolve.environments.engine import Engine
from evolve.environments.envpool_engine import EnvPoolEngine
from evolve.environments.exact import exact_task
from evolve.environments.exact_engine import ExactEngine, is_left_to_gymnasium
from evolve.environments.randomization import draw_tables
from evolve.environments.spaces import action_decoder, separate_actions
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, ceil_div

# The numbers of slots that replay an exact task. Rigid bodies get few slots, because their steps take long: with more
# slots, most of them would be empty for a long time, while the last episodes run.
_SLOTS, _RIGID_BODY_SLOTS = 1024, 64


@dataclass
class Recording:
    """One episode.

    Attributes:
        seed: The seed of its environment.
        outputs: The outputs [A] of the network in each step.
        rewards: The reward of each step.
        observations: The observation [O] before each step, and the observation after the last step. Empty if the
            recorder was made without `observations`.
    """

    seed: int
    outputs: list[Float32] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    observations: list[Float32] = field(default_factory=list)


class Recorder:
    """An engine that records the episodes of another engine.

    Args:
        engine: The engine that plays the episodes.
        slots: The number of slots of that engine, B.
        observations: Whether to record observations, too, which takes more memory.

    Attributes:
        running: [B], the newest episode of each slot.
        finished: The episodes that ended.
    """

    def __init__(self, engine: Engine, slots: int, observations: bool) -> None:
        self._engine = engine
        self._with_observations = observations
        self.running = [Recording(seed=0) for _ in range(slots)]  # `reset` replaces them
        self.finished: list[Recording] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def engine(self) -> Engine:
        """This recorder, with the type of an engine: `__getattr__` provides all attributes that it does not define."""
        return cast("Engine", self)

    # `__getattr__` serves only reading. This property passes an assignment on to the engine.
    @property
    def on_fault(self) -> Callable[[], None]:
        """The function that the engine calls after each fault."""
        return self._engine.on_fault

    @on_fault.setter
    def on_fault(self, callback: Callable[[], None]) -> None:
        self._engine.on_fault = callback

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin episodes, and a recording of each."""
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            self.running[slot] = Recording(seed)
        self._engine.reset(slots, seeds, observations)
        self._record_observations(slots, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots, and record the step."""
        rewards, ended = self._engine.step(slots, outputs, observations)
        for slot, row, reward in zip(slots.tolist(), outputs, rewards.tolist(), strict=True):
            # Copy, because the caller writes into the same arrays in the next step.
            self.running[slot].outputs.append(row.copy())
            self.running[slot].rewards.append(reward)
        self._record_observations(slots, observations)
        self.finished += [self.running[slot] for slot in slots[ended].tolist()]
        return rewards, ended

    def _record_observations(self, slots: Slots, observations: Float32) -> None:
        if self._with_observations:
            for slot in slots.tolist():
                self.running[slot].observations.append(observations[slot].copy())

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources`, and their recordings, in slots `targets`."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.running[target] = self.running[source]
        self._engine.move(sources, targets)


def replay(
    options: EnvOptions, episodes: list[Recording], clock: Callable[[], float] = time.perf_counter
) -> tuple[int, float]:
    """Play recorded episodes, and return (environment steps, seconds); (0, ∞) without episodes.

    The exact engine plays episodes side by side; a free slot begins the next episode. Gymnasium plays episodes one
    after another. EnvPool plays all episodes side by side, in a pool with one thread. The pool restarts episodes that
    have ended, until it has made at least as many steps as were recorded. The time of the exact engine includes the
    decoding of actions. For the other engines, actions are decoded before the clock starts.

    clock: The function that returns the time in seconds.
    """
    if not episodes:  # this happens in a bench with more processes than candidates
        return 0, math.inf
    play = {"envpool": _replay_pool, "exact": _replay_exact, "gymnasium": _replay_gymnasium}[options.engine]
    return play(options, episodes, clock)


def _replay_pool(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    engine = EnvPoolEngine(options, len(episodes))
    pool = engine.make_pool([episode.seed for episode in episodes])
    # A tick steps all environments of the pool.
    ticks = ceil_div(sum(len(episode.outputs) for episode in episodes), len(episodes))
    actions = []
    for tick in range(ticks):
        # If an episode is shorter than `ticks`, its recorded outputs begin again.
        outputs = np.stack([episode.outputs[tick % len(episode.outputs)] for episode in episodes])
        actions.append(engine.decode(outputs))
    pool.reset()
    begin = clock()
    for actions_of_tick in actions:
        pool.step(actions_of_tick)
    return ticks * len(episodes), clock() - begin


def _replay_exact(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    task = exact_task(options)
    num_slots = min(len(episodes), _RIGID_BODY_SLOTS if task.has_world else _SLOTS)
    engine: Engine = ExactEngine(options, num_slots)
    if is_left_to_gymnasium(task):
        from evolve.environments.gymnasium_engine import GymnasiumFallback  # noqa: PLC0415 - needs Gymnasium

        engine = GymnasiumFallback(options, num_slots)
    observations = np.zeros((num_slots, engine.observation_size), np.float32)

    # The outputs of all episodes end to end: the rows of an episode begin at its entry of `first_rows`.
    outputs = np.concatenate([np.stack(episode.outputs) for episode in episodes])
    lengths = np.array([len(episode.outputs) for episode in episodes])
    first_rows = lengths.cumsum() - lengths
    seeds = np.array([episode.seed for episode in episodes])

    # For each slot: the row of `outputs` that it plays next, and whether an episode runs in it.
    next_rows, live = np.zeros(num_slots, np.intp), np.zeros(num_slots, np.bool_)
    free, num_begun = np.arange(num_slots), 0
    begin = clock()
    while live.any() or num_begun < len(episodes):
        # Begin the next episodes in the free slots. At the end, fewer episodes than free slots are left.
        free = free[: len(episodes) - num_begun]
        if len(free):
            new = slice(num_begun, num_begun + len(free))
            engine.reset(free, seeds[new], observations)
            next_rows[free], live[free] = first_rows[new], True
            num_begun += len(free)
        slots = np.flatnonzero(live)
        _, ended = engine.step(slots, outputs[next_rows[slots]], observations)
        next_rows[slots] += 1
        free = slots[ended]
        live[free] = False
    return int(lengths.sum()), clock() - begin


def _replay_gymnasium(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    from evolve.environments.gymnasium_making import maker, may_reuse  # noqa: PLC0415 - needs Gymnasium

    make = maker(options)
    env = make()
    _, decode = action_decoder(env.action_space, options.action_scale)
    seeds = [episode.seed for episode in episodes]
    all_actions = [separate_actions(env.action_space, decode(np.stack(episode.outputs))) for episode in episodes]
    all_drawn = draw_tables(options.randomize, np.array(seeds))
    # With randomized arguments each episode needs a new object, because its arguments may be different.
    reuse = may_reuse(env, options) and not options.randomize
    steps = 0
    begin = clock()
    for seed, actions, drawn in zip(seeds, all_actions, all_drawn, strict=True):
        if not reuse:
            env.close()
            env = make(drawn)
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
        steps += len(actions)
    seconds = clock() - begin
    env.close()
    return steps, seconds
