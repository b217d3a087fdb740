"""How near exact tasks are to Gymnasium's: from the same states, by the same random actions.

python benchmarks/exact_against_gymnasium.py
"""

import argparse
import itertools

import gymnasium
import numpy as np

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.pictures import drawn_numbers, has_picture
from evolve.shapes import Bool, Float32, Float64

BATCH = 200


def outputs_of(seed: int, steps: int, actions: int) -> Float32:
    """Return [L, A], uniform on ±1; each row stays for four steps, so that something happens."""
    random = np.random.Generator(np.random.Philox(seed))
    return np.repeat(random.uniform(-1, 1, (steps // 4 + 1, actions)).astype(np.float32), 4, axis=0)[:steps]


def play(options: EnvOptions, seeds: range) -> tuple[Bool, Bool, Float64]:
    """Play some episodes in both, each until it ends in one of them.

    Returns, [n] each: whether all bits were equal, whether the lengths were, and the largest difference in an
    observation.
    """
    engine = environments.ExactEngine(options, len(seeds))
    envs = [gymnasium.make(options.id, max_episode_steps=-1).unwrapped for _ in seeds]
    slots = np.arange(len(seeds))
    seen = np.zeros((len(seeds), engine.observation_size), np.float32)
    engine.reset(slots, np.array(seeds), seen)
    for slot, env in enumerate(envs):
        env.reset(seed=0)
        env.state = engine.slots.state(slot)[drawn_numbers(engine.id)]
    steps = environments.max_episode_steps(options)
    outputs = np.array([outputs_of(seed, steps, engine.action_size) for seed in seeds])
    equal, lengths, largest = np.ones(len(seeds), bool), np.ones(len(seeds), bool), np.zeros(len(seeds))
    for step in range(steps):
        rewards, ended = engine.step(slots, outputs[slots, step], seen)
        actions = engine.decode(outputs[slots, step])
        theirs = [envs[slot].step(action) for slot, action in zip(slots, actions, strict=True)]
        observations = np.array([one[0] for one in theirs], np.float32)
        same = np.array([one[1] for one in theirs]) == rewards
        equal[slots] &= same & (observations.view(np.int32) == seen[slots].view(np.int32)).all(axis=1)
        largest[slots] = np.maximum(largest[slots], np.abs(observations - seen[slots]).max(axis=1))
        terminated = np.array([one[2] for one in theirs]) | (step == steps - 1)
        lengths[slots] = ended == terminated
        slots = slots[~(ended | terminated)]
        if not len(slots):
            break
    return equal, lengths, largest


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    classical = [name for name, task in environments.TASKS.items() if has_picture(name) and not task.has_world]
    parser.add_argument("--env", nargs="*", default=classical)
    arguments = parser.parse_args()
    print(f"| task | episodes equal of {arguments.episodes:,} | lengths equal | largest difference in an observation |")
    print("|---|---|---|---|")
    for name in arguments.env:
        options = EnvOptions(id=name, engine="exact")
        batches = itertools.pairwise([*range(0, arguments.episodes, BATCH), arguments.episodes])
        played = [play(options, range(*batch)) for batch in batches]
        equal, lengths, largest = (np.concatenate(column) for column in zip(*played, strict=True))
        print(f"| {name} | {equal.sum():,} | {lengths.sum():,} | {largest.max():.1e} |", flush=True)


if __name__ == "__main__":
    main()
