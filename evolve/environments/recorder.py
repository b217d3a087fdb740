"""Record the episodes that an engine plays. To time environments, `replay` plays recorded episodes without networks."""

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
from evolve.environments.spaces import action_decoder, separate
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, ceil_div

# The numbers of slots that replay an exact task. Rigid bodies get few slots: their steps take long, and most of many
# slots would be empty while the last episodes run.
_SLOTS, _RIGID_BODY_SLOTS = 1024, 64


@dataclass
class Recording:
    """One episode.

    Attributes:
        seed: The seed of its environment.
        outputs: The outputs [A] of the network in each step.
        rewards: The reward of each step.
        observations: The observation [O] before each step, and the observation after the last step. Empty if the
            recorder does not record observations.
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
        self.running = [Recording(0) for _ in range(slots)]
        self.finished: list[Recording] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def engine(self) -> Engine:
        """This recorder, which has all attributes of an engine."""
        return cast("Engine", self)

    # `__getattr__` only serves reading. Without this property, an assignment would not reach the engine.
    @property
    def on_fault(self) -> Callable[[], None]:
        """The function that the engine calls for each fault."""
        return self._engine.on_fault

    @on_fault.setter
    def on_fault(self, callback: Callable[[], None]) -> None:
        self._engine.on_fault = callback

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin episodes, and a recording for each."""
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            self.running[slot] = Recording(seed)
        self._engine.reset(slots, seeds, observations)
        self._record_observations(slots, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots, and record the step."""
        rewards, ended = self._engine.step(slots, outputs, observations)
        for slot, row, reward in zip(slots.tolist(), outputs, rewards.tolist(), strict=True):
            # Copies, because the caller uses its arrays again in the next step.
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
    """Play recorded episodes; return (environment steps, seconds by a clock), or (0, ∞) without episodes.

    The exact engine steps episodes side by side; a free slot begins the next episode. Gymnasium plays episodes one
    after another. EnvPool plays all episodes side by side in a pool with one thread. The pool restarts episodes that
    have ended, until it has made at least as many steps as were recorded. The time of the exact engine includes the
    decoding of actions; for the other engines, actions are decoded before the clock starts.
    """
    if not episodes:  # in a bench with more processes than candidates
        return 0, math.inf
    play = {"envpool": _replay_pool, "exact": _replay_exact, "gymnasium": _replay_gymnasium}[options.engine]
    return play(options, episodes, clock)


def _replay_pool(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    engine = EnvPoolEngine(options, len(episodes))
    pool = engine.make_pool([episode.seed for episode in episodes])
    total = sum(len(episode.outputs) for episode in episodes)
    ticks = ceil_div(total, len(episodes))
    actions = []
    for tick in range(ticks):
        # An episode that is shorter than `ticks` begins its recorded outputs again.
        outputs = np.stack([episode.outputs[tick % len(episode.outputs)] for episode in episodes])
        actions.append(engine.decode(outputs))
    pool.reset()
    begin = clock()
    for row in actions:
        pool.step(row)
    return ticks * len(episodes), clock() - begin


def _replay_exact(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    task = exact_task(options)
    count = min(len(episodes), _RIGID_BODY_SLOTS if task.has_world else _SLOTS)
    engine: Engine = ExactEngine(options, count)
    if is_left_to_gymnasium(task):
        from evolve.environments.gymnasium_engine import GymnasiumFallback  # noqa: PLC0415 - needs Gymnasium

        engine = GymnasiumFallback(options, count)
    observations = np.zeros((count, engine.observation_size), np.float32)
    outputs = np.concatenate([np.stack(episode.outputs) for episode in episodes])
    lengths = np.array([len(episode.outputs) for episode in episodes])
    first = lengths.cumsum() - lengths  # each episode's first row in `outputs`
    seeds = np.array([episode.seed for episode in episodes])
    # `rows`: the row of `outputs` that each slot plays next.
    rows, live = np.zeros(count, np.intp), np.zeros(count, np.bool_)
    begun, free = 0, np.arange(count)
    begin = clock()
    while live.any() or begun < len(episodes):
        # At the end, fewer episodes than free slots are left.
        free = free[: len(episodes) - begun]
        if len(free):
            beginning = np.arange(begun, begun + len(free))
            engine.reset(free, seeds[beginning], observations)
            rows[free], live[free] = first[beginning], True
            begun += len(free)
        slots = np.flatnonzero(live)
        _, ended = engine.step(slots, outputs[rows[slots]], observations)
        rows[slots] += 1
        free = slots[ended]
        live[free] = False
    return int(lengths.sum()), clock() - begin


def _replay_gymnasium(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    from evolve.environments.gymnasium_making import maker, may_reuse  # noqa: PLC0415 - needs Gymnasium

    make = maker(options)
    env = make()
    _, decode = action_decoder(env.action_space, options.action_scale)
    played = [(episode.seed, separate(env.action_space, decode(np.stack(episode.outputs)))) for episode in episodes]
    # Episodes may have different randomized arguments, and then each episode needs a new object.
    reuse = may_reuse(env, options) and not options.randomize
    tables = draw_tables(options.randomize, np.array([episode.seed for episode in episodes]))
    steps = 0
    begin = clock()
    for (seed, actions), drawn in zip(played, tables, strict=True):
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
