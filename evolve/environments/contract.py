"""What an environment engine is to the rollout: B slots that run keyed episodes side by side.

The trajectory of an episode depends on its seed and its actions only: not on the slot, on what the slot ran
before, or on its neighbours.
"""

from typing import Protocol

from evolve.shapes import Bool, Float32, Float64


class Engine(Protocol):
    """B slots of one environment; live slots are always the first n."""

    id: str
    """The environment in full: with the version that an unversioned id stands for."""

    observation_size: int
    """O, after flattening."""

    action_size: int
    """A, the network outputs that make one action."""

    refill: int
    """How many free slots are worth waiting for before episodes are begun in them."""

    def reset(self, first: int, seeds: list[int], observations: Float32) -> None:
        """Begin one episode per seed in the slots from `first` on; write their first observations [k, O]."""

    def step(self, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step the first n slots with network outputs [n, A]; overwrite observations [n, O].

        Returns rewards [n] and whether each episode has ended (terminated or truncated) [n].
        """

    def move(self, source: int, target: int) -> None:
        """Let slot `target` go on with the episode of slot `source`."""

    def close(self) -> None:
        """Release every environment."""
