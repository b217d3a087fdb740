"""How close the exact tasks are to Gymnasium's.

    python benchmarks/exact_against_gymnasium.py
    python benchmarks/exact_against_gymnasium.py --box2d 10000 --json box2d.json

Classical tasks are compared from the same states, with the same random actions: the table counts equal episodes, and
shows the largest difference of the others. Tasks with rigid bodies have to be equal: `--box2d N` plays N whole episodes
in all (rounded up to a multiple of 20), of the walker, the walker over obstacles and three landers, by random players
and by champions, from the same seeds in fresh Gymnasium environments. It prints each difference, and ends with exit
code 1 if there is one. With `--json` it continues after an interruption.
"""

import argparse
import itertools
import os
import sys
from pathlib import Path

import gymnasium
import numpy as np
from exact_parts import box2d

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.rendering import GYMNASIUM_INDICES, is_drawable_task
from evolve.shapes import Bool, Float32, Float64

BATCH = 200


def outputs_of(seed: int, steps: int, actions: int) -> Float32:
    """Return actions [L, A], uniform on ±1; each is repeated for four steps, so that it has an effect."""
    random = np.random.Generator(np.random.Philox(seed))
    return np.repeat(random.uniform(-1, 1, (steps // 4 + 1, actions)).astype(np.float32), 4, axis=0)[:steps]


def play(options: EnvOptions, seeds: range) -> tuple[Bool, Bool, Float64]:
    """Play episodes in both engines, each until it ends in one of them.

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
        env.state = engine.slots.state(slot)[GYMNASIUM_INDICES[engine.id]]
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


def compare_classical(names: list[str], episodes: int) -> None:
    """Print a table, with a line for each task."""
    print(f"| task | episodes equal of {episodes:,} | lengths equal | largest difference in an observation |")
    print("|---|---|---|---|")
    for name in names:
        options = EnvOptions(id=name, engine="exact")
        batches = itertools.pairwise([*range(0, episodes, BATCH), episodes])
        played = [play(options, range(*batch)) for batch in batches]
        equal, lengths, largest = (np.concatenate(column) for column in zip(*played, strict=True))
        print(f"| {name} | {equal.sum():,} | {lengths.sum():,} | {largest.max():.1e} |", flush=True)


def compare_box2d(episodes: int, workers: int, path: Path | None) -> int:
    """Print the differences and a table; return the exit code."""

    def say(found: box2d.Compared, left: int) -> None:
        for one in found.differences:
            print(f"{found.part.task}, {found.part.player}, seed {one.seed}, step {one.step}: {one.what}", flush=True)
        print(f"{found.part.task}, {found.part.player}: done; {left} parts are left", file=sys.stderr, flush=True)

    done = box2d.compare_all(episodes, workers, path, say)
    print(box2d.table(done))
    return 1 if any(found.differences for found in done) else 0


def main() -> int:
    """Compare, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000, help="of each classical task")
    classical = [name for name, task in environments.TASKS.items() if is_drawable_task(name) and not task.has_world]
    parser.add_argument("--env", nargs="+", choices=classical, default=classical, metavar="ID", help="classical tasks")
    parser.add_argument("--box2d", type=int, metavar="N", help="compare N episodes of the tasks with rigid bodies")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="with --box2d: processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="with --box2d: the parts that are done")
    arguments = parser.parse_args()
    for name in ("episodes", "box2d", "workers"):
        if (number := getattr(arguments, name)) is not None and number < 1:
            parser.error(f"--{name}: expected at least 1, got {number}")
    if arguments.box2d is not None:
        return compare_box2d(arguments.box2d, arguments.workers, arguments.json)
    compare_classical(arguments.env, arguments.episodes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
