"""`Engine`: what runs the episodes of one environment, B of them side by side.

Before a run, one episode is played in two environments to find out whether the same seed gives the same episode.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from evolve.environments.factory import extra_cure
from evolve.errors import FAILURES, InputError, one_line, sanitize
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

Transition = Mapping[str, Any]
"""What an environment itself says, by name: observation, and after a step reward, terminated and truncated."""

FPS = 50.0
"""Frames per second of an environment that does not say."""


_SEED = 20
_STEPS = 40
_PAIR_SECONDS = 0.2  # about, for the steps of each pair of episodes; the first is compared in any case


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


def check(engine: Engine) -> None:
    """Raise InputError when two episodes of one seed differ; names the array, the step and both values.

    Raises it too for a task that is a function (see `register_task`) and does not do what it should.
    """
    outputs = (2 * Stream(_SEED, Purpose.CHECK).uniform(_STEPS, engine.action_size) - 1).astype(np.float32)
    for used in (False, True) if engine.reuses else (False,):
        try:
            found = _first_difference(engine.trial(_SEED, outputs, False), engine.trial(_SEED, outputs, used))
        except InputError:
            raise
        except FAILURES:  # the evaluation will meet it, and say where
            return
        if found is not None:
            which = "a used and a new environment differ" if used else "two episodes differ"
            expected = "an environment whose reset(seed=…) repeats an episode to the bit"
            cure = (
                "Draw from self.np_random only, and set everything up again in reset. (To run it all the same, with "
                "digests that prove nothing: compute.check=false.)"
            )
            raise InputError("env.id", expected, f"{engine.id}, where {which}: {found}", cure)


def _first_difference(one: Iterator[Transition], other: Iterator[Transition]) -> str | None:
    """Return where two episodes differ first, and how; None where they do not, or not within the time for it."""
    begin = math.inf  # environments may take long to make and to reset
    nothing: Transition = {}
    for step, (a, b) in enumerate(zip_longest(one, other, fillvalue=nothing)):
        found = _difference("", a, b)
        if found is not None:
            return f"{found} {f'of step {step}' if step else 'of reset'}"
        now = time.perf_counter()
        if now - begin > _PAIR_SECONDS:
            break
        begin = min(begin, now)
    return None


def _difference(name: str, a: Any, b: Any) -> str | None:
    """Return the name of the first part of a nest of arrays that is not the same bits, with both values."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        parts = ((f"{name}[{key!r}]" if name else str(key), a.get(key), b.get(key)) for key in {**a, **b})
    elif isinstance(a, tuple | list) and isinstance(b, tuple | list):
        parts = ((f"{name}[{index}]", x, y) for index, (x, y) in enumerate(zip_longest(a, b)))
    else:
        return _unequal(name, np.asarray(a), np.asarray(b))
    return next((found for part in parts if (found := _difference(*part)) is not None), None)


def _unequal(name: str, a: Any, b: Any) -> str | None:
    """Return the name of the first element of two arrays that is not the same bits, with both values."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{name} ({a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)})"
    if a.dtype == object or a.tobytes() == b.tobytes():
        return None
    x = a.reshape(-1)
    y = b.reshape(-1)
    at = next(i for i in range(x.size) if x[i].tobytes() != y[i].tobytes())
    place = f"{name}[{', '.join(map(str, np.unravel_index(at, a.shape)))}]" if a.shape else name
    return f"{place} ({sanitize(x[at].item())} against {sanitize(y[at].item())})"
