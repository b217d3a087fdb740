"""`Engine`: what runs the episodes of one environment, B of them side by side.

Each episode runs in a slot. The methods name slots by their numbers [k], in ascending order. The trajectory of an
episode depends on its seed and its actions only: not on the slot, on what the slot ran before, or on its neighbours.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from evolve.environments.factory import extra_cure
from evolve.errors import FAILURES, InputError, one_line
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

Transition = Mapping[str, Any]
"""What an environment itself says, by name: observation, and after a step reward, terminated and truncated."""

FPS = 50.0
"""Frames per second of an environment that does not say."""


def do_nothing() -> None:
    """Do nothing: an engine's `on_fault`, unless somebody sets another."""


class Engine(Protocol):
    """B slots of one environment."""

    id: str
    """The environment in full: with the version that an unversioned id stands for."""

    observation_size: int
    """O, after flattening."""

    action_size: int
    """A, the network outputs that make one action."""

    faults: dict[int, str]
    """By slot, the message of what went wrong there; whoever deals with it removes it. The episode is over: `step` ends
    it with a reward of NaN."""

    on_fault: Callable[[], None]
    """Called each time a fault has been noted in `reset` or `step`: several episodes may hang one after another in the
    same call, and a worker can thus show that it is alive."""

    reuses: bool
    """Whether an environment may run a second episode."""

    refill: int
    """How many free slots are worth waiting for before episodes are begun in them."""

    fps: float
    """How many steps a second look natural."""

    def suggested_slots(self) -> int:
        """Return how many slots run this environment fastest, by a quick look; the choice cannot change a result."""

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin episodes.

        Args:
            slots: [k], where they run.
            seeds: [k], of their environments.
            observations: [B, O]; their first observations are written into rows `slots`.
        """

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Advance episodes by one step.

        Args:
            slots: [k], which.
            outputs: [k, A], of their networks.
            observations: [B, O]; their next observations are written into rows `slots`.

        Returns:
            Rewards [k], and whether each episode has ended (terminated or truncated) [k].
        """

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Transition]:
        """Play one episode in an environment of its own.

        Args:
            seed: Of the environment.
            outputs: [L, A], those of the network in each step.
            used: Whether that environment has begun another episode before, where the engine lets environments do so.

        Yields:
            The transition of the reset, and of each step.
        """

    def encode(self, observation: Any) -> Float32:
        """Return [O]: one observation of the environment, as networks see it."""

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions of the environment that network outputs [n, A] stand for."""

    def frame(self, slot: int) -> UInt8:
        """Return what a slot's environment looks like, [H, W, 3], also when its episode has just ended.

        Only environments that were made to draw frames can (see `drawn`). Raises InputError when this one cannot.
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Let slots `targets` [k] go on with the episodes of slots `sources` [k]; no slot is in both."""

    def close(self) -> None:
        """Release every environment."""


def as_frame(env_id: str, render: Callable[[], Any], cure: str = "") -> UInt8:
    """Return what an environment renders, [H, W, 3].

    Args:
        env_id: The environment, for the error.
        render: Renders it.
        cure: What may help where rendering raises; by default how to install what is missing.

    Raises:
        InputError: It raises, or returns what is no frame.
    """
    expected = "an environment that draws frames ([H, W, 3] of 8 bits)"
    try:
        seen = np.asarray(render())
    except FAILURES as error:  # libraries that are missing, mostly
        raise InputError("env.id", expected, f"{env_id} ({one_line(error)})", cure or extra_cure(error)) from error
    if seen.dtype != np.uint8 or seen.ndim != 3 or seen.shape[2] != 3:
        raise InputError("env.id", expected, f"{env_id}, which draws {seen.dtype}{list(seen.shape)}")
    return seen
