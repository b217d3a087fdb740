"""The bare environment: what stepping costs when nothing else is done, for benchmarks to compare with."""

import time
from dataclasses import dataclass

from evolve.config import EnvOptions
from evolve.environments.gymnasium_engine import maker, may_reuse
from evolve.environments.spaces import action_decoder
from evolve.shapes import Float32


@dataclass(frozen=True)
class Recording:
    """One episode: its environment seed and the network outputs [L, A] that drove it."""

    seed: int
    outputs: Float32


def replay(options: EnvOptions, episodes: list[Recording]) -> tuple[int, float]:
    """Play recorded episodes one after another; return (environment steps, seconds), the decoding not timed."""
    make = maker(options)
    env = make()
    _, decode = action_decoder(env.action_space, options.action_scale)
    played = [(episode.seed, list(decode(episode.outputs))) for episode in episodes]
    reuse, steps, begin = may_reuse(env, options), 0, time.perf_counter()
    for seed, actions in played:
        if not reuse:
            env = make()
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
        steps += len(actions)
    return steps, time.perf_counter() - begin
