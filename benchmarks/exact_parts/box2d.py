"""Whole episodes of the rigid-body tasks: the exact engine against fresh Gymnasium environments.

Every observation, every reward and the end of each episode are compared, to the bit. The work consists of parts: some
episodes of a task and a player. Finished parts are kept in a JSON file, and are not played again.
"""

import hashlib
import itertools
import json
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import gymnasium
import numpy as np
from pages import markdown

from evolve import environments
from evolve.environments import Engine, Recording
from evolve.numerics import native
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.shapes import ceil_div
from evolve.store.disk import atomic_write
from exact_parts.players import BOX2D_TASKS, PLAYERS, Box2DTask, play

_EPISODES = 50  # of a part


@dataclass(frozen=True)
class Part:
    """Some episodes of a task and a player: `count` of them from `first` on."""

    task: str
    player: str
    first: int
    count: int

    def seeds(self) -> list[int]:
        """Return the seeds of their environments: such as runs have."""
        kind = 10 * list(BOX2D_TASKS).index(self.task) + PLAYERS.index(self.player)
        numbers = np.arange(self.first, self.first + self.count)
        same = np.zeros_like(numbers)
        return environment_seeds(0, Purpose.EPISODE, same + kind, same, numbers).tolist()


@dataclass(frozen=True)
class Difference:
    """The first difference of an episode; step 0 is its beginning."""

    seed: int
    step: int
    what: str


@dataclass(frozen=True)
class Compared:
    """A finished part: the steps of all its episodes, the steps of the equal ones, and the first differences."""

    part: Part
    steps: int
    equal_steps: int
    differences: tuple[Difference, ...]


def first_difference(task: Box2DTask, engine: Engine, episode: Recording) -> Difference | None:
    """Play an episode in a fresh Gymnasium environment by the same actions; return where it first differs."""
    env = gymnasium.make(task.id, disable_env_checker=True, **task.kwargs)
    try:
        seen, _ = env.reset(seed=episode.seed)
        if seen.tobytes() != episode.observations[0].tobytes():
            return Difference(episode.seed, 0, _unlike(seen, episode.observations[0]))
        last = len(episode.rewards)
        for step, (outputs, ours) in enumerate(zip(episode.outputs, episode.rewards, strict=True), 1):
            seen, reward, terminated, truncated, _ = env.step(engine.decode(outputs[None])[0])
            if seen.tobytes() != episode.observations[step].tobytes():
                return Difference(episode.seed, step, _unlike(seen, episode.observations[step]))
            if np.float64(reward).tobytes() != np.float64(ours).tobytes():
                return Difference(episode.seed, step, f"reward {float(reward)!r}, not {ours!r}")
            if (terminated or truncated) != (step == last):
                return Difference(episode.seed, step, "the end" if step < last else "no end")
    finally:
        env.close()
    return None


def _unlike(theirs: np.ndarray, ours: np.ndarray) -> str:
    number = int(np.flatnonzero(theirs.view(np.int32) != ours.view(np.int32))[0])
    return f"observation {number}: {float(theirs[number])!r}, not {float(ours[number])!r}"


def compare(part: Part) -> Compared:
    """Play a part, and compare it."""
    task = BOX2D_TASKS[part.task]
    engine = environments.make(task.options, 1)
    steps, equal_steps, differences = 0, 0, []
    for episode in play(task, part.player, part.seeds()):
        found = first_difference(task, engine, episode)
        steps += len(episode.rewards)
        if found is None:
            equal_steps += len(episode.rewards)
        else:
            differences.append(found)
    return Compared(part, steps, equal_steps, tuple(differences))


def parts_of(episodes: int) -> list[Part]:
    """Return parts with about `episodes` episodes together, as many for each task and player."""
    each = ceil_div(episodes, len(BOX2D_TASKS) * len(PLAYERS))
    return [
        Part(task, player, first, min(_EPISODES, each - first))
        for first in range(0, each, _EPISODES)
        for task in BOX2D_TASKS
        for player in PLAYERS
    ]


def software() -> dict[str, str]:
    """Return the compared software: the versions of Gymnasium and Box2D, and the digest of the native kernels."""
    kernels = hashlib.sha256(native.library_path().read_bytes()).hexdigest()[:16]
    box2d = import_module("Box2D").__version__  # packages of several names have it
    return {"gymnasium": version("gymnasium"), "box2d": box2d, "kernels": kernels}


def read(path: Path | None) -> list[Compared]:
    """Return the parts in a file; no parts if there is no file. Ends the process if other software made them."""
    if path is None or not path.exists():
        return []
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored["software"] != software():
        raise SystemExit(f"{path}: expected {software()}, got {stored['software']}. Choose another file.")
    return [
        Compared(
            Part(**one["part"]), one["steps"], one["equal_steps"], tuple(Difference(**d) for d in one["differences"])
        )
        for one in stored["parts"]
    ]


def write(path: Path, done: Sequence[Compared]) -> None:
    """Write all finished parts."""
    with atomic_write(path) as partial:
        text = json.dumps({"software": software(), "parts": [asdict(one) for one in done]}, indent=1)
        partial.write_text(text, encoding="utf-8")


def compare_all(episodes: int, workers: int, path: Path | None, say: Callable[[Compared, int], None]) -> list[Compared]:
    """Play and compare the parts that are not in the file yet, and write each there; return all parts.

    say: called with each finished part, and the number of parts left.
    """
    wanted = parts_of(episodes)
    known = {found.part: found for found in read(path)}
    left = [part for part in wanted if part not in known]
    if left:
        with multiprocessing.get_context("spawn").Pool(min(workers, len(left)), maxtasksperchild=10) as pool:
            for number, found in enumerate(pool.imap_unordered(compare, left), 1):
                known[found.part] = found
                if path is not None:
                    write(path, [*known.values()])
                say(found, len(left) - number)
    return [known[part] for part in wanted]


def table(done: Sequence[Compared]) -> str:
    """Return episodes and steps by task and player, as Markdown, with a line for all together."""
    rows = []
    for task, player in [*itertools.product(BOX2D_TASKS, PLAYERS), ("all", "")]:
        found = [one for one in done if task == "all" or (one.part.task, one.part.player) == (task, player)]
        episodes = sum(one.part.count for one in found)
        equal = episodes - sum(len(one.differences) for one in found)
        steps, equal_steps = sum(one.steps for one in found), sum(one.equal_steps for one in found)
        rows.append([task, player, *(f"{number:,}" for number in (episodes, equal, steps, equal_steps))])
    return markdown(["task", "player", "episodes", "of these equal", "steps", "in equal episodes"], rows)
