"""The returns that can be reached in the tasks of lifetime learning: without learning, by simple learners, at best.

    python benchmarks/lifetime_parts/bounds.py

Cues, reversal and T-maze are computed exactly. The bandit's optimum is not known: it lies between the return of an
index learner (simulated, with its standard error), which is known to be close, and the mean of the best arm.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
WINDOW = 5
"""The trials of a window, in one of which, uniformly drawn, a switch happens."""
WORSE = 0.2
"""The reward of the worse arm; the better arm gives 1."""


@dataclass(frozen=True)
class Value:
    """A mean return; error: its standard error, 0 where it is computed."""

    mean: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.mean:.4g}" + (f" ± {self.error:.2g}" if self.error else "")


def cues(presentations: int = 8) -> dict[str, Value]:
    """Return the values of Cues-v0: each cue has to be guessed once; afterwards its answer can be known."""
    return {"static": Value(0.5), "optimum": Value(1 - 1 / (2 * presentations))}


def reversal(trials: int = 40, switches: int = 3) -> dict[str, Value]:
    """Return the values of Reversal-v0, and of TMaze-v0 with one turn.

    After each trial a learner knows the better arm; it does not know whether the arms switch before the next trial. In
    a window the probability of a switch grows with every trial without one: 1/5, 1/4, … 1. The optimum stays with the
    better arm while that probability is below one half; `win-stay, lose-shift` always stays.
    """
    first = (1 - WORSE) / 2
    missed = sum(_chance_so_far(k) * min(_hazard(k), 1 - _hazard(k)) for k in range(WINDOW)) * (1 - WORSE)
    return {
        "static": Value((1 + WORSE) / 2),
        "win-stay, lose-shift": Value(1 - (first + switches * (1 - WORSE)) / trials),
        "optimum": Value(1 - (first + switches * missed) / trials),
    }


def _hazard(k: int) -> float:
    """Return the probability of a switch before trial k of its window, if there was none before."""
    return 1 / (WINDOW - k)


def _chance_so_far(k: int) -> float:
    """Return the probability that a window's switch is not among its first k trials."""
    return (WINDOW - k) / WINDOW


def reversal_by_trial(trials: int = 40, switches: int = 3) -> Array:
    """Return [trials]: the mean reward of the optimal learner of `reversal` in each trial."""
    curve = np.ones(trials)
    curve[0] = (1 + WORSE) / 2
    span = trials // (switches + 1)
    for n in range(1, switches + 1):
        for k in range(WINDOW):
            missed = _chance_so_far(k) * min(_hazard(k), 1 - _hazard(k))
            curve[span * n - 2 + k] -= missed * (1 - WORSE)
    return curve


def cues_by_presentation(presentations: int = 8) -> Array:
    """Return [presentations]: the mean reward of the optimal learner of `cues` at the nth presentation of a cue."""
    return np.array([0.5, *[1.0] * (presentations - 1)])


Choose = Callable[[Array, Array, int], NDArray[np.int64]]
"""A function from hits and misses [lives, arms] and the pulls left to the arm that each life pulls."""


def greedy(hits: Array, misses: Array, left: int) -> NDArray[np.int64]:
    """Pull an arm with the largest posterior mean."""
    any_of_equals = 1e-9 * np.random.default_rng(left).random(hits.shape)
    return np.argmax((hits + 1) / (hits + misses + 2) + any_of_equals, axis=1)


def play_bandit(choose: Choose, arms: int = 5, pulls: int = 100, lives: int = 20_000, seed: int = 0) -> Array:
    """Return [lives, pulls]: the rewards of a learner that counts hits and misses."""
    random = np.random.default_rng(seed)
    chances = random.random((lives, arms))
    hits, misses = np.zeros((2, lives, arms))
    each = np.arange(lives)
    given = np.zeros((lives, pulls))
    for pull in range(pulls):
        arm = choose(hits, misses, pulls - pull)
        hit = random.random(lives) < chances[each, arm]
        hits[each, arm] += hit
        misses[each, arm] += ~hit
        given[:, pull] = hit
    return given


def win_stay_lose_shift(arms: int = 5, pulls: int = 100, lives: int = 20_000, seed: int = 0) -> Array:
    """Return [lives, pulls]: the rewards of a player that pulls an arm until it misses, and then the next arm."""
    random = np.random.default_rng(seed)
    chances = random.random((lives, arms))
    arm = np.zeros(lives, np.int64)
    given = np.zeros((lives, pulls))
    for pull in range(pulls):
        hit = random.random(lives) < chances[np.arange(lives), arm]
        given[:, pull] = hit
        arm = np.where(hit, arm, (arm + 1) % arms)
    return given


def stopping_values(price: float, pulls: int) -> Array:
    """Return [pulls + 1, n, n]: the value of an arm if every pull costs a price and the player may stop at any time.

    n = pulls + 1. At [left, hits, misses] it is max(0, p - price + p V(hit) + (1 - p) V(miss)) with p the posterior
    mean and V the value with one pull less, by dynamic programming. Counts that cannot be reached have the value 0.
    """
    n = pulls + 1
    counts = np.arange(n)
    p = (counts[:, None] + 1) / (counts[:, None] + counts + 2)
    values = np.zeros((n, n, n))
    for left in range(1, n):
        after = np.pad(values[left - 1], (0, 1))
        values[left] = np.maximum(0, p - price + p * after[1:, :-1] + (1 - p) * after[:-1, 1:])
    return values


def index_learner(pulls: int = 100, steps: int = 64) -> Choose:
    """Return the learner that pulls the arm of the largest index: the price at which the arm would be given up.

    This is the index of Whittle (1988) for a finite horizon, or Gittins' (1979) without discount. Prices are on a grid
    of `steps` steps; within one step the posterior mean decides.
    """
    indices = np.zeros((pulls + 1,) * 3)
    for price in np.linspace(0, 1, steps + 1):
        indices[stopping_values(price, pulls) > 0] = price

    def choose(hits: Array, misses: Array, left: int) -> NDArray[np.int64]:
        found = indices[left, hits.astype(np.int64), misses.astype(np.int64)]
        return np.argmax(found + 1e-3 * (hits + 1) / (hits + misses + 2), axis=1)

    return choose


def bandit(arms: int = 5, pulls: int = 100, lives: int = 20_000) -> dict[str, Value]:
    """Return the values of Bandit-v0."""
    return {
        "static": Value(pulls / 2),
        "win-stay, lose-shift": _value(win_stay_lose_shift(arms, pulls, lives)),
        "greedy": _value(play_bandit(greedy, arms, pulls, lives)),
        "index": _value(play_bandit(index_learner(pulls), arms, pulls, lives)),
        "all chances known": Value(pulls * arms / (arms + 1)),
    }


def _value(given: Array) -> Value:
    returns = given.sum(axis=1)
    return Value(float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(len(returns))))


def main() -> None:
    """Print the values of every task."""
    for title, values in (
        ("Cues-v0", cues()),
        ("Reversal-v0, TMaze-v0", reversal()),
        ("Bandit-v0", bandit(lives=100_000)),
    ):
        print(title)
        for name, value in values.items():
            print(f"  {name:22} {value}")


if __name__ == "__main__":
    main()
