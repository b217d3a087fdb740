"""Bare environments of three engines play recorded actions: resets are timed, networks are not.

Each function returns environment steps and their CPU seconds, of all threads of this process. Gymnasium makes a new
environment for each episode, as its physics asks for. EnvPool has one thread. The exact engine steps whole groups of
worlds; only its native calls are timed.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from evolve import environments
from evolve.environments import CompiledSlots, EnvPoolEngine, Recording, exact_task
from evolve.shapes import Float32
from exact_parts.players import TOGETHER, Box2DTask, player_of

Timed = tuple[int, float]


class TimedSlots(CompiledSlots):
    """Slots that count the time of native calls."""

    def __init__(self, task: environments.AnyTask, slots: int) -> None:
        super().__init__(task, slots)
        self.seconds = 0.0
        self._begin, self._step = (self._timed(function) for function in (self._begin, self._step))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., None]:
        def call(*arguments: int) -> None:
            begin = time.process_time()
            function(*arguments)
            self.seconds += time.process_time() - begin

        return call


def play_exact(task: Box2DTask, episodes: Sequence[Recording], least: int) -> Timed:
    """Play at least `least` steps; a slot whose episode has ended begins the next one."""
    exact = exact_task(task.options)
    slots = TimedSlots(exact, TOGETHER)
    outputs = [np.stack(episode.outputs) for episode in episodes]
    every = np.arange(TOGETHER)
    playing, step = np.zeros(TOGETHER, np.intp), np.zeros(TOGETHER, np.intp)
    observations = np.zeros((TOGETHER, exact.observation_size), np.float32)
    waiting, steps, free = deque(range(len(episodes))), 0, every
    while steps < least:
        for slot in free.tolist():
            playing[slot], step[slot] = waiting[0], 0
            waiting.rotate(-1)
            slots.begin(np.array([slot]), np.array([episodes[playing[slot]].seed]), observations)
        rows = np.array([outputs[episode][n] for episode, n in zip(playing, step, strict=True)])
        _, ended = slots.step(every, rows, observations)
        step += 1
        steps += TOGETHER
        free = every[ended]
    return steps, slots.seconds


def play_gymnasium(task: Box2DTask, episodes: Sequence[Recording]) -> Timed:
    """Play each episode once, in an environment of its own."""
    engine = environments.make(task.options, 1)
    actions = [engine.decode(np.stack(episode.outputs)) for episode in episodes]
    begin = time.process_time()
    for episode, its_actions in zip(episodes, actions, strict=True):
        env = gymnasium.make(task.id, disable_env_checker=True, **task.kwargs)
        env.reset(seed=episode.seed)
        for action in its_actions:
            env.step(action)
    return sum(map(len, actions)), time.process_time() - begin


@dataclass(frozen=True)
class RecordedPool:
    """A recording of EnvPool environments side by side: their seeds, and the outputs [B, A] of each tick.

    EnvPool begins the next episode with the tick after an end, so that tick is no step. steps: of all episodes.
    """

    seeds: list[int]
    outputs: list[Float32]
    steps: int


def record_pool(task: Box2DTask, player: str, seeds: list[int], ticks: int) -> RecordedPool:
    """Record a player in EnvPool, whose environments it plays a little differently than the exact ones."""
    engine = EnvPoolEngine(_in_pool(task), len(seeds))
    acting = player_of(player, task, engine.action_size, len(seeds))
    for slot, seed in enumerate(seeds):
        acting.begin(slot, seed)
    pool = engine.make_pool(seeds)
    seen, _ = pool.reset()
    recorded, begun = [], 0
    for _ in range(ticks):
        outputs = np.array(acting.outputs(seen))
        seen, _, terminated, truncated, _ = pool.step(engine.decode(outputs))
        begun += int((terminated | truncated).sum())
        recorded.append(outputs)
    return RecordedPool(seeds, recorded, ticks * len(seeds) - begun)


def play_envpool(task: Box2DTask, recorded: RecordedPool) -> Timed:
    """Play a recording in a new pool, whose construction is not timed."""
    engine = EnvPoolEngine(_in_pool(task), len(recorded.seeds))
    actions = [engine.decode(outputs) for outputs in recorded.outputs]
    pool = engine.make_pool(recorded.seeds)
    begin = time.process_time()
    pool.reset()
    for row in actions:
        pool.step(row)
    return recorded.steps, time.process_time() - begin


def _in_pool(task: Box2DTask) -> Any:
    return task.options.model_copy(update={"engine": "envpool"})
