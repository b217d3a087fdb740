"""What an environment engine is to the rollout: B slots that run keyed episodes side by side. Slots are named by
their numbers [k] in ascending order.

The trajectory of an episode depends on its seed and its actions only: not on the slot, on what the slot ran
before, or on its neighbours.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from evolve.errors import FAILURES, InputError, one_line
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

Trace = Mapping[str, Any]
FPS = 50.0
"""Frames per second of an environment that does not say."""


class Engine(Protocol):
    """B slots of one environment."""

    id: str
    """The environment in full: with the version that an unversioned id stands for."""

    observation_size: int
    """O, after flattening."""

    action_size: int
    """A, the network outputs that make one action."""

    faults: dict[int, str]
    """What went wrong in a slot, in words, since whoever deals with it took it out. Its episode is over: `step` says so
    with a reward of NaN."""

    reuses: bool
    """Whether an environment may run a second episode."""

    refill: int
    """How many free slots are worth waiting for before episodes are begun in them."""

    fps: float
    """How many steps a second look natural."""

    def suggested_slots(self) -> int:
        """Return how many slots run this environment fastest, by a quick look; the choice cannot change a result."""

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of `seeds` [k] in slots [k]; write their first observations into these rows of [B, O]."""

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] with network outputs [k, A]; overwrite their rows of observations [B, O].

        Returns rewards [k] and whether each episode has ended (terminated or truncated) [k].
        """

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Trace]:
        """Play one episode of `seed` in an environment of its own, driven by outputs [L, A].

        used: it has run another episode before, where the engine lets environments do so. Yields what the environment
        itself says, by name: after reset, and after each step.
        """

    def frame(self, slot: int) -> UInt8:
        """Return what a slot's environment looks like, [H, W, 3], also when its episode has just ended.

        Only environments made to draw frames can (`drawn`). Raises InputError when this one cannot.
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Let slots `targets` [k] go on with the episodes of slots `sources` [k]; no slot is in both."""

    def close(self) -> None:
        """Release every environment."""


def as_frame(env_id: str, render: Callable[[], Any], cure: str = "") -> UInt8:
    """Return what an environment renders, [H, W, 3]. Raises InputError, with a cure, when that is no frame."""
    expected = "an environment that draws frames ([H, W, 3] of 8 bits)"
    try:
        seen = np.asarray(render())
    except FAILURES as wrong:  # libraries that are missing, mostly
        raise InputError("env.id", expected, f"{env_id} ({one_line(wrong)})", cure) from wrong
    if seen.dtype != np.uint8 or seen.ndim != 3 or seen.shape[2] != 3:
        raise InputError("env.id", expected, f"{env_id}, which draws {seen.dtype}{list(seen.shape)}")
    return seen
