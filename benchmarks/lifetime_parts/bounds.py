"""What can be reached in the tasks of learning within a life: by no learning, by simple learners, and at best.

    python benchmarks/lifetime_parts/bounds.py

Cues, reversal and T-maze are computed exactly. For the bandit the best is not known: it lies between what an index
learner gets (simulated, with its standard error), which is known to be near it, and the mean of the best arm.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
WINDOW = 5
"""Of how many trials a switch takes one, each as likely as another."""
WORSE = 0.2
"""What the worse arm gives; the better gives 1."""


@dataclass(frozen=True)
class Value:
    """A mean return; error: its standard error, 0 where it is computed."""

    mean: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.mean:.4g}" + (f" ± {self.error:.2g}" if self.error else "")


def cues(presentations: int = 8) -> dict[str, Value]:
    """Return the values of Cues-v0: each cue has to be guessed once, and what follows can be known."""
    return {"static": Value(0.5), "optimum": Value(1 - 1 / (2 * presentations))}


def reversal(trials: int = 40, switches: int = 3) -> dict[str, Value]:
    """Return the values of Reversal-v0, and of TMaze-v0 with one turn.

    After each trial a learner knows which arm was the better, so what it does not know is whether the arms switch
    before the next one. In a window the chance of that grows with every trial without a switch: 1/5, 1/4, … 1. The
    optimum stays with the better arm while the chance is below one half; `win-stay, lose-shift` always does.
    """
    first = (1 - WORSE) / 2
    missed = sum(_chance_so_far(k) * min(_hazard(k), 1 - _hazard(k)) for k in range(WINDOW)) * (1 - WORSE)
    return {
        "static": Value((1 + WORSE) / 2),
        "win-stay, lose-shift": Value(1 - (first + switches * (1 - WORSE)) / trials),
        "optimum": Value(1 - (first + switches * missed) / trials),
    }


def _hazard(k: int) -> float:
    """Return the chance of a switch before trial k of its window, where there was none before."""
    return 1 / (WINDOW - k)


def _chance_so_far(k: int) -> float:
    """Return the chance that a window's switch is not among its first k trials."""
    return (WINDOW - k) / WINDOW


def reversal_by_trial(trials: int = 40, switches: int = 3) -> Array:
    """Return [trials]: what the optimal learner of `reversal` gets in each trial, on average."""
    curve = np.ones(trials)
    curve[0] = (1 + WORSE) / 2
    span = trials // (switches + 1)
    for n in range(1, switches + 1):
        for k in range(WINDOW):
            missed = _chance_so_far(k) * min(_hazard(k), 1 - _hazard(k))
            curve[span * n - 2 + k] -= missed * (1 - WORSE)
    return curve


def cues_by_presentation(presentations: int = 8) -> Array:
    """Return [presentations]: what the optimal learner of `cues` gets when a cue comes for the nth time."""
    return np.array([0.5, *[1.0] * (presentations - 1)])


Choose = Callable[[Array, Array, int], NDArray[np.int64]]
"""From hits and misses [lives, arms] and the pulls left: the arm that each life pulls."""


def greedy(hits: Array, misses: Array, left: int) -> NDArray[np.int64]:
    """Pull the arm of the largest posterior mean, any of equals."""
    any_of_equals = 1e-9 * np.random.default_rng(left).random(hits.shape)
    return np.argmax((hits + 1) / (hits + misses + 2) + any_of_equals, axis=1)


def play_bandit(choose: Choose, arms: int = 5, pulls: int = 100, lives: int = 20_000, seed: int = 0) -> Array:
    """Return [lives, pulls]: what a learner that counts hits and misses gets."""
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
    """Return [lives, pulls]: what a player gets that pulls an arm until it misses, and then the next one."""
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
    """Return [pulls + 1, n, n]: what an arm is worth if every pull of it costs a price and one may stop at any time.

    n = pulls + 1. At [left, hits, misses] it is max(0, p - price + p V(hit) + (1 - p) V(miss)) with p the posterior
    mean and V what the arm is worth with one pull less left, by dynamic programming. Counts that cannot be pulled any
    more are worth nothing.
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
    of so many steps; within one step the posterior mean decides.
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
        "who knows the chances": Value(pulls * arms / (arms + 1)),
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
