"""The bare environment: what stepping costs when nothing else is done, for benchmarks to compare with."""

import time
from collections.abc import Callable

import numpy as np

from evolve.config import EnvOptions
from evolve.environments.envpool_engine import EnvPoolEngine
from evolve.environments.exact_engine import ExactEngine, exact_task
from evolve.environments.factory import maker, may_reuse
from evolve.environments.recorder import Recording
from evolve.environments.spaces import action_decoder, separate

_SLOTS = 1024
_WORLDS = 64
"""Slots in which exact tasks are stepped side by side; and worlds of rigid bodies, of which the last ones take long."""


def replay(
    options: EnvOptions, episodes: list[Recording], clock: Callable[[], float] = time.perf_counter
) -> tuple[int, float]:
    """Play recorded episodes; return (environment steps, seconds by a clock). The decoding of actions is not timed.

    Exact tasks are stepped side by side, and the next episode begins where one has ended. Gymnasium plays episodes one
    after another. EnvPool plays them side by side in one pool of one thread, which starts an episode anew when it ends,
    until as many steps are done as were recorded.
    """
    if options.engine == "envpool":
        return _replay_pool(options, episodes, clock)
    if options.engine == "exact":
        return _replay_exact(options, episodes, clock)
    return _replay_objects(options, episodes, clock)


def _replay_pool(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    engine = EnvPoolEngine(options, len(episodes))
    pool = engine.pool([episode.seed for episode in episodes])
    total = sum(len(episode.outputs) for episode in episodes)
    ticks = -(-total // len(episodes))
    outputs = (np.stack([episode.outputs[t % len(episode.outputs)] for episode in episodes]) for t in range(ticks))
    actions = [engine.decode(rows) for rows in outputs]
    pool.reset()
    begin = clock()
    for row in actions:
        pool.step(row)
    return ticks * len(episodes), clock() - begin


def _replay_exact(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    task = exact_task(options)
    count = min(len(episodes), _WORLDS if task.has_world else _SLOTS)
    engine = ExactEngine(options, count)
    observations = np.zeros((count, engine.observation_size), np.float32)
    outputs = np.concatenate([np.stack(episode.outputs) for episode in episodes])
    lengths = np.array([len(episode.outputs) for episode in episodes])
    first = lengths.cumsum() - lengths  # row of outputs, of each episode
    seeds = np.array([episode.seed for episode in episodes])
    rows, live = np.zeros(count, np.intp), np.zeros(count, np.bool_)
    begun, ended = 0, np.arange(count)
    begin = clock()
    while live.any() or begun < len(episodes):
        free = ended[: len(episodes) - begun]
        if len(free):
            beginning = np.arange(begun, begun + len(free))
            engine.reset(free, seeds[beginning], observations)
            rows[free], live[free] = first[beginning], True
            begun += len(free)
        slots = np.flatnonzero(live)
        _, over = engine.step(slots, outputs[rows[slots]], observations)
        rows[slots] += 1
        ended = slots[over]
        live[ended] = False
    return int(lengths.sum()), clock() - begin


def _replay_objects(options: EnvOptions, episodes: list[Recording], clock: Callable[[], float]) -> tuple[int, float]:
    make = maker(options)
    env = make()
    _, decode = action_decoder(env.action_space, options.action_scale)
    played = [(episode.seed, separate(env.action_space, decode(np.stack(episode.outputs)))) for episode in episodes]
    reuse = may_reuse(env, options)
    steps = 0
    begin = clock()
    for seed, actions in played:
        if not reuse:
            env = make()
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
        steps += len(actions)
    return steps, clock() - begin
