"""How near exact tasks are to Gymnasium's: from the same states, by the same random actions.

python benchmarks/exact_against_gymnasium.py --episodes 10000
"""

import argparse
from dataclasses import dataclass

import gymnasium
import numpy as np

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.pictures import drawn_numbers, has_picture
from evolve.shapes import Float32


@dataclass
class Nearness:
    """Of all episodes: how many have equal bits, how many equal lengths, the largest difference in what was seen."""

    equal: int = 0
    equal_lengths: int = 0
    largest: float = 0.0


def outputs_of(seed: int, steps: int, actions: int) -> Float32:
    """Return [L, A], uniform on ±1; each row stays for four steps, so that something happens."""
    random = np.random.Generator(np.random.Philox(seed))
    return np.repeat(random.uniform(-1, 1, (steps // 4 + 1, actions)).astype(np.float32), 4, axis=0)[:steps]


def play(engine: environments.ExactEngine, env: gymnasium.Env, seed: int, steps: int, found: Nearness) -> None:
    """Play an episode in both, until one ends."""
    slot = np.zeros(1, np.intp)
    seen = np.zeros((1, engine.observation_size), np.float32)
    engine.reset(slot, np.array([seed]), seen)
    env.reset(seed=0)
    env.unwrapped.state = engine.slots.state(0)[drawn_numbers(engine.id)]
    outputs = outputs_of(seed, steps, engine.action_size)
    equal = True
    for row, action in zip(outputs, engine.decode(outputs), strict=True):
        (reward,), (ended,) = engine.step(slot, row[None], seen)
        observation, their_reward, terminated, truncated, _ = env.step(action)
        equal &= seen[0].tobytes() == np.asarray(observation, np.float32).tobytes() and reward == their_reward
        found.largest = max(found.largest, float(np.abs(seen[0] - observation).max()))
        if ended or terminated or truncated:
            found.equal_lengths += bool(ended) == (terminated or truncated)
            break
    found.equal += equal


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--env", nargs="*", default=[name for name in environments.TASKS if has_picture(name)])
    arguments = parser.parse_args()
    print(f"| task | episodes equal of {arguments.episodes:,} | lengths equal | largest difference in an observation |")
    print("|---|---|---|---|")
    for name in arguments.env:
        options = EnvOptions(id=name, engine="exact")
        engine, env, found = environments.ExactEngine(options, 1), gymnasium.make(name), Nearness()
        steps = environments.max_episode_steps(options) or 1
        for seed in range(arguments.episodes):
            play(engine, env, seed, steps, found)
        print(f"| {name} | {found.equal:,} | {found.equal_lengths:,} | {found.largest:.1e} |", flush=True)


if __name__ == "__main__":
    main()
