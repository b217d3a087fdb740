"""The bare environment: what stepping costs when nothing else is done, for benchmarks to compare with."""

import time

import numpy as np

from evolve.config import EnvOptions
from evolve.environments.envpool_engine import EnvPoolEngine
from evolve.environments.exact_engine import ExactEngine
from evolve.environments.factory import maker, may_reuse
from evolve.environments.recorder import Recording
from evolve.environments.spaces import action_decoder, separate


def replay(options: EnvOptions, episodes: list[Recording]) -> tuple[int, float]:
    """Play recorded episodes; return (environment steps, seconds). The decoding of actions is not timed.

    Exact tasks are stepped side by side, all of them until the last has ended. Gymnasium plays them one after another.
    EnvPool plays them side by side in one pool of one thread, which starts an episode anew when it ends, until as many
    steps are done as were recorded.
    """
    if options.engine == "envpool":
        return _replay_pool(options, episodes)
    if options.engine == "exact":
        return _replay_exact(options, episodes)
    return _replay_objects(options, episodes)


def _replay_pool(options: EnvOptions, episodes: list[Recording]) -> tuple[int, float]:
    engine = EnvPoolEngine(options, len(episodes))
    pool = engine.pool([episode.seed for episode in episodes])
    total = sum(len(episode.outputs) for episode in episodes)
    ticks = -(-total // len(episodes))
    outputs = (np.stack([episode.outputs[t % len(episode.outputs)] for episode in episodes]) for t in range(ticks))
    actions = [engine.decode(rows) for rows in outputs]
    pool.reset()
    begin = time.perf_counter()
    for row in actions:
        pool.step(row)
    return ticks * len(episodes), time.perf_counter() - begin


def _replay_exact(options: EnvOptions, episodes: list[Recording]) -> tuple[int, float]:
    engine = ExactEngine(options, len(episodes))
    slots = np.arange(len(episodes))
    observations = np.zeros((len(episodes), engine.observation_size), np.float32)
    longest = max(len(episode.outputs) for episode in episodes)
    rows = [[episode.outputs[t % len(episode.outputs)] for episode in episodes] for t in range(longest)]
    outputs = np.array(rows, np.float32)
    begin = time.perf_counter()
    engine.reset(slots, np.array([episode.seed for episode in episodes]), observations)
    for row in outputs:
        engine.step(slots, row, observations)
    return longest * len(episodes), time.perf_counter() - begin


def _replay_objects(options: EnvOptions, episodes: list[Recording]) -> tuple[int, float]:
    make = maker(options)
    env = make()
    _, decode = action_decoder(env.action_space, options.action_scale)
    played = [(episode.seed, separate(env.action_space, decode(np.stack(episode.outputs)))) for episode in episodes]
    reuse = may_reuse(env, options)
    steps = 0
    begin = time.perf_counter()
    for seed, actions in played:
        if not reuse:
            env = make()
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
        steps += len(actions)
    return steps, time.perf_counter() - begin
