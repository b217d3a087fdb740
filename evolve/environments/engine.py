"""`Engine`, the interface that plays B episodes of an environment side by side, and the metrics of episodes.

Before a run, `check` plays one episode twice to test whether the same seed gives the same episode.

Metrics are numbers that an environment reports in the `info` of the last step of an episode; `env.metrics` names them.
The environment chooses the type: bool, int64 or float64. The worker encodes each number as its type and its 64 bits.
Rank 0 decodes one column for each metric, in the widest type that occurs.
"""

import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from operator import itemgetter
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve.config import suggest
from evolve.environments.spaces import Spaces
from evolve.errors import FAILURES, InputError, RunError, Setting, how_to_install, one_line, sanitize
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8

Transition = Mapping[str, Any]
"""The answer of an environment, by name: an observation and, after a step, also reward, terminated and truncated.
An exact task gives no truncated."""

Mode = Literal["rgb_array", "human"]
"""How an environment draws: as frames, or in a window."""

FPS = 50.0
"""Frames per second of an environment that declares no rate."""


# The extras of evolve that install a missing library, by a word in Gymnasium's error message.
_EXTRAS = {"box2d": "box2d", "pygame": "video", "mujoco": "mujoco"}
_SEED = 20  # of trial episodes and their outputs
_COMPARED_STEPS = 40  # the most steps that `check` compares
# `check_metrics` and `seems_endless` give up if an episode takes more than this number of steps or seconds.
_MOST_STEPS, _EPISODE_SECONDS = 4096, 1.0
# After the pairs of episodes, `check` plays at most this number of episodes. It begins no further episode once it has
# taken this processor time, or `PAIR_SECONDS` of time.
_MORE_EPISODES, _MORE_SECONDS = 100, 0.05
PAIR_SECONDS = 0.2
"""The approximate time for which `check` compares the steps of two episodes; it always compares the first step. Before
that, it plays the first episode alone for half of this time."""

OWN_GENERATOR = "an environment whose steps draw from a generator of their own"
"""The expectation in the error of a step that draws from a shared generator. `check` recognizes the error by it."""
REPEATABLE = (
    "Draw from self.np_random only (a task: from its argument), and set everything up again in reset. "
    "If the environment takes its seed as an argument, env.randomize.seed={integers=[0, 2147483647]} draws it. "
    "(To run it all the same, with digests that prove nothing: ",
    Setting("compute.check", False), ".)",
)  # fmt: skip
"""The cure for an environment that does not repeat an episode."""
_SEPARATE = (
    "Keep all state in self, not in the class or the module. If the environment needs a library with one world in each "
    "process: ", Setting("compute.slots", 1), ", and more ranks.",
)  # fmt: skip
"""The cure for an environment that shares something with other objects."""

# The codes of the types of metrics, the widest type last. An episode that failed has _NONE.
_NONE, _BOOL, _INT, _FLOAT = range(4)
_KINDS = {"b": _BOOL, "i": _INT, "u": _INT, "f": _FLOAT}
"""The code of the type of a metric, by NumPy's letter of the kind."""


@contextmanager
def keeping_directory() -> Iterator[None]:
    """Go back to the present directory afterwards, because an environment may change it."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed
        here = os.curdir
    try:
        yield
    finally:
        # The directory may have been removed in the meantime. An error here would replace an error of the block.
        with suppress(OSError):
            os.chdir(here)


def do_nothing() -> None:
    """Do nothing: the default `on_fault` of an engine."""


class Engine(Protocol):
    """B slots of one environment."""

    id: str
    """The id of the environment, with its version."""

    observation_size: int
    """O, after flattening."""

    action_size: int
    """A, the number of network outputs that make one action."""

    spaces: Spaces
    """The spaces of the environment, with which a `Codec` encodes and decodes without the engine."""

    faults: dict[int, str]
    """The error message of each slot with a failed episode. `step` ends such an episode with a reward of NaN. The
    rollout that handles a fault removes it from here."""

    on_fault: Callable[[], None]
    """Called after each fault in `reset` or `step`. Several episodes may hang one after another in one `step`, so a
    worker uses `on_fault` to show that it is alive."""

    reuses: bool
    """Whether an environment may run a second episode."""

    refill: int
    """The number of free slots to wait for before episodes begin in them."""

    fps: float
    """The number of steps per second that look natural in a film."""

    def suggested_slots(self) -> int:
        """Return the number of slots with which the environment probably runs fastest. No result depends on it."""

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin episodes.

        Args:
            slots: [k], the slots in which the episodes run.
            seeds: [k], the seeds of their environments.
            observations: [B, O]; the first observations are written into rows `slots`.
        """

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Advance episodes by one step.

        Args:
            slots: [k], the slots of these episodes.
            outputs: [k, A], the outputs of their networks.
            observations: [B, O]; the next observations are written into rows `slots`.

        Returns:
            Rewards [k], and whether each episode has ended (terminated or truncated) [k].
        """

    metric_names: tuple[str, ...]
    """The names of the M metrics (`env.metrics`)."""

    def metrics(self, slots: Slots) -> Int64:
        """Return the types and bits [k, 2, M] of the metrics of slots [k]. The latest `step` must have advanced them.

        A missing metric becomes a fault, see `encode_metrics`. An episode with a fault has zeros.
        """

    def trial(self, seed: int, outputs: Float32, used: bool) -> Generator[Transition, None, None]:
        """Play one episode in a new environment.

        Args:
            seed: The seed of the environment.
            outputs: [L, A], the outputs of the network in each step.
            used: Whether the environment has played another episode before this one. An engine that does not reuse
                environments ignores it.

        Yields:
            The transition of the reset, and of each step.
        """

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions of network outputs [n, A]."""

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, [H, W, 3], even when its episode has just ended.

        Raises InputError unless the environment was made to draw frames (see `drawable_options`).
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` [k] in the free slots `targets` [k]."""

    def close(self) -> None:
        """Release every environment."""


def as_frame(env_id: str, render: Callable[[], Any], cure: str = "") -> UInt8:
    """Return the frame that an environment renders, [H, W, 3].

    Args:
        env_id: The environment, for the error.
        render: The function that renders it.
        cure: The cure if rendering raises an exception; by default how to install a missing library.

    Raises:
        InputError: Rendering raises an exception, or returns no frame.
    """
    expected = "an environment that draws frames ([H, W, 3] of 8 bits)"
    try:
        seen = np.asarray(render())
    except FAILURES as error:  # mostly a missing library
        raise InputError("env.id", expected, f"{env_id} ({one_line(error)})", cure or extra_cure(error)) from error
    if seen.dtype != np.uint8 or seen.ndim != 3 or seen.shape[2] != 3:
        raise InputError("env.id", expected, f"{env_id}, which draws {seen.dtype}{list(seen.shape)}")
    return seen


def extra_cure(error: BaseException) -> str:
    """Return how to install the library whose absence Gymnasium reports; "" for any other error."""
    if type(error).__name__ != "DependencyNotInstalled":  # by name: this module does not import Gymnasium
        return ""
    extra = next((extra for word, extra in _EXTRAS.items() if word in str(error).lower()), None)
    return how_to_install(extra) if extra else ""


def check(engine: Engine, reuse: bool | str = "auto", slots: int = 2) -> tuple[str, ...]:
    """Raise InputError if an episode cannot be repeated, or if the environment breaks its contract.

    Return fingerprints of the steps of an episode, with which `check_trial` compares the same episode on other ranks.

    An episode is played alone. It is then played again, in turns with an episode of another seed, because a run steps
    the episodes of several slots in turns. Only the first steps are compared. The message names the array, the step and
    both values. The contract is Gymnasium's interface or, for a task that is a function, the contract of
    `register_task`. If the episodes are quick, and the environment may not keep the contract, some episodes of other
    seeds are played, too.

    Args:
        engine: An engine with the environment.
        reuse: The setting `env.reuse`.
        slots: The number of slots of the run. With one slot no other episode is played in turns.
    """
    begin, cpu = time.perf_counter(), time.process_time()
    outputs = _random_outputs(_COMPARED_STEPS, engine)
    try:
        with closing(engine.trial(_SEED, outputs, False)) as episode:
            alone = list(_within(PAIR_SECONDS / 2, episode))
        # Compare with a new environment. If the run reuses environments, also compare with a used one.
        for used in [False, True] if engine.reuses else [False]:
            if found := _first_difference(engine, outputs, alone, used, beside=slots > 1):
                expected, cure = "an environment that repeats an episode to the bit after reset(seed=…)", REPEATABLE
                which = "a used and a new environment differ" if used else "two episodes differ"
                # The other episode is the cause if the episode does not differ without it.
                if slots > 1 and not _first_difference(engine, outputs, alone, used, beside=False):
                    expected, cure = "an environment with objects that share nothing that changes", _SEPARATE
                    which = "an episode changes another one of the same process"
                raise InputError("env.id", expected, f"{engine.id}, where {which}: {found}", *cure)
        # A step may draw from a generator of the whole process, but so rarely that the episodes above do not show this.
        # Unless the user sets `env.reuse`, only Gymnasium's own environments are reused, and they keep the contract.
        keeps_contract = engine.reuses and reuse is not True
        for seed in range(_SEED + 1, _SEED if keeps_contract else _SEED + _MORE_EPISODES):
            if time.process_time() - cpu > _MORE_SECONDS or time.perf_counter() - begin > PAIR_SECONDS:
                break
            deque(_other_episode(engine, outputs, seed), maxlen=0)  # plays the episode, and keeps nothing
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException:  # the evaluation will meet the same error, and report where it happened
        return ()
    return tuple(map(_fingerprint, alone))


def check_trial(engine: Engine, fingerprints: Sequence[str]) -> None:
    """Raise RunError if the episode that `check` has played on rank 0 has other steps in this process.

    fingerprints: The result of `check` on rank 0.
    """
    if not fingerprints:
        return
    try:
        with closing(engine.trial(_SEED, _random_outputs(_COMPARED_STEPS, engine), False)) as episode:
            here = list(map(_fingerprint, _within(PAIR_SECONDS / 2, episode)))
    except FAILURES:  # the evaluation will meet the same error, and report where it happened
        return
    for step, (ours, theirs) in enumerate(zip(here, fingerprints, strict=False)):
        if ours != theirs:
            when = f"in step {step}" if step else "at reset"
            why = "It may draw random numbers when its module is imported, or iterate over a set of texts."
            cure = f"{why} (Without this trial: {Setting('compute.check', False)}.)"
            raise RunError(f"the environment {engine.id} plays another episode here than on rank 0, {when}. {cure}")


def check_metrics(engine: Engine) -> None:
    """Raise InputError if the metrics of an episode are missing, or if two episodes of one seed differ in a metric.

    The episodes have random outputs. If one of them fails or does not end in time, nothing is checked.
    """
    if not engine.metric_names:
        return
    one, two = _episode_metrics(engine), _episode_metrics(engine)
    if one is not None and two is not None and (one != two).any():
        first_different = int((one != two).any(axis=0).argmax())
        name = engine.metric_names[first_different]
        expected = "metrics that are equal in two episodes of one seed"
        raise InputError("env.metrics", expected, f"{name}, which differs (a time, for example)")


def seems_endless(engine: Engine) -> bool:
    """Return whether an episode with random outputs still runs after `_MOST_STEPS` or `_EPISODE_SECONDS`.

    An episode that fails does not count as endless.
    """
    return _ends_in_time(engine) is False


def _episode_metrics(engine: Engine) -> Int64 | None:
    """Return the types and bits [2, M] of the metrics of an episode in slot 0; None if it fails or takes too long.

    Raises InputError if a metric is missing.
    """
    if not _ends_in_time(engine):
        return None
    metrics = engine.metrics(np.zeros(1, np.intp))[0]
    if engine.faults:
        raise InputError.plainly("env.metrics", engine.faults.pop(0))
    return metrics


def _ends_in_time(engine: Engine) -> bool | None:
    """Play an episode with random outputs in slot 0. Return whether the episode ends in time; None if it fails."""
    slot = np.zeros(1, np.intp)
    observations = np.zeros((1, engine.observation_size), np.float32)
    engine.reset(slot, np.array([_SEED]), observations)
    end = time.perf_counter() + _EPISODE_SECONDS
    for row in _random_outputs(_MOST_STEPS, engine):
        if engine.faults or time.perf_counter() > end:
            break
        _, ended = engine.step(slot, row[None], observations)
        if ended[0] and not engine.faults:
            return True
    failed = bool(engine.faults)
    engine.faults.clear()  # the evaluation will meet the same error, and report where it happened
    return None if failed else False


def _random_outputs(steps: int, engine: Engine) -> Float32:
    """Return network outputs [steps, A], random in [-1, 1], but the same in every call."""
    uniform = Stream(_SEED, Purpose.CHECK).uniform(steps, engine.action_size)
    return (2 * uniform - 1).astype(np.float32)


def _other_episode(engine: Engine, outputs: Float32, seed: int) -> Generator[Transition, None, None]:
    """Play an episode of another seed, with other actions. It ends where it fails.

    An episode of the run may fail in the same way, and then `env.on_failure` decides.
    """
    try:
        yield from engine.trial(seed, np.roll(outputs, seed, axis=0), False)
    except (Exception, SystemExit) as error:
        if isinstance(error, InputError) and error.expected == OWN_GENERATOR:
            raise


def _within(seconds: float, transitions: Iterable[Transition]) -> Iterator[Transition]:
    """Yield the reset and the first step of an episode, and later steps only within some seconds."""
    end = math.inf
    for step, transition in enumerate(transitions):
        yield transition
        if step == 0:  # the clock starts after the reset, because making and resetting environments may take long
            end = time.perf_counter() + seconds
        elif time.perf_counter() > end:
            break


def _first_difference(
    engine: Engine, outputs: Float32, alone: Sequence[Transition], used: bool, beside: bool
) -> str | None:
    """Play an episode again, and return the first difference in words; None if there is none in time.

    Args:
        engine: The engine that plays the episode.
        outputs: The outputs of the network in each step.
        alone: The transitions to compare with.
        used: Whether the environment plays another episode before this one, see `Engine.trial`.
        beside: Whether an episode of another seed is played in turns with this one.
    """
    # Close both episodes here, because the watchdog of the caller interrupts a `close` that hangs.
    with (
        closing(engine.trial(_SEED, outputs, used)) as again,
        closing(_other_episode(engine, outputs, _SEED + 1)) as other,
    ):
        for step, before in enumerate(_within(PAIR_SECONDS, alone)):
            # If the new episode ends earlier, compare with nothing, which gives a difference, too.
            if found := _difference(before, next(again, {})):
                return f"{found} of {f'step {step}' if step else 'reset'}"
            if beside:
                next(other, None)
    return None


def _fingerprint(transition: Transition) -> str:
    """Return a fingerprint of the bits of a transition. Like `_difference`, it ignores objects."""
    digest = hashlib.blake2b(digest_size=8)
    for name, array in sorted(_arrays("", transition), key=itemgetter(0)):  # two ranks may order the keys differently
        if array.dtype != object:
            digest.update(f"{name} {array.dtype}{list(array.shape)}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def _difference(one: Transition, other: Transition) -> str | None:
    """Return the first difference in bits of two transitions, as `_unequal`; None if there is none."""
    ones, others = dict(_arrays("", one)), dict(_arrays("", other))
    for name in ones | others:
        # A transition that lacks an array has None in its place.
        if found := _unequal(name, np.asarray(ones.get(name)), np.asarray(others.get(name))):
            return found
    return None


def _arrays(name: str, value: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays of a nested structure with their names. name: the name of the structure; "" for a transition."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _arrays(f"{name}[{key!r}]" if name else str(key), part)
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from _arrays(f"{name}[{index}]", part)
    else:
        yield name, np.asarray(value)


def _unequal(name: str, a: Any, b: Any) -> str | None:
    """Return the first element with different bits in two arrays: its name and both values. None if there is none.

    If the types or the shapes differ, the text has these instead.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{name} ({a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)})"
    # Compare bytes: NaN equals NaN, and 0.0 differs from -0.0. The bytes of objects are addresses, which mean nothing.
    if a.dtype == object or a.tobytes() == b.tobytes():
        return None
    x, y = a.reshape(-1), b.reshape(-1)
    at = next(i for i in range(x.size) if x[i].tobytes() != y[i].tobytes())
    if a.shape:
        index = ", ".join(map(str, np.unravel_index(at, a.shape)))
        name = f"{name}[{index}]"
    return f"{name} ({sanitize(x[at].item())} against {sanitize(y[at].item())})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or getattr(value, "shape", None) == ()


def encode_metrics(info: Any, names: Sequence[str]) -> Int64:
    """Return the types and the bits [2, M] of the metrics of an episode.

    Args:
        info: The `info` of the last step of an episode.
        names: The names of the M metrics.

    Raises:
        InputError: A metric is missing, or is not one number.
    """
    encoded = np.zeros((2, len(names)), np.int64)
    reported = info if isinstance(info, Mapping) else {}
    for place, name in enumerate(names):
        expected = f"a number {name} in the info of the last step of an episode"
        if name not in reported:
            known = [key for key, value in reported.items() if isinstance(key, str) and _is_number(value)]
            got = "an info without it" if reported else "an empty info"
            similar = f"{suggest(name, known)} " if known else ""
            cure = f"{similar}To play without metrics: ", Setting("env.metrics", ()), "."
            raise InputError("env.metrics", expected, got, *cure)
        try:
            value = np.asarray(reported[name])
            kind = _KINDS[value.dtype.kind] if value.shape == () else _NONE
            if kind == _FLOAT:
                # Every NaN becomes one quiet NaN, because CPUs differ in its sign.
                bits = np.float64(np.nan if np.isnan(value) else value).view(np.int64)
            else:
                bits = np.int64(value.item())
        except (KeyError, ValueError, TypeError, OverflowError):  # text, objects, numbers of more than 64 bits
            kind = _NONE
        if kind == _NONE:
            raise InputError("env.metrics", expected, repr(reported[name]))
        encoded[:, place] = kind, bits
    return encoded


def decode_metrics(encoded: Int64, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the metrics by name, in arrays of shape […], from their types and bits […, 2, M].

    The type of an array is the widest type in it: bool, int64 or float64; float64 if no episode has metrics. An episode
    that failed or was not played gets False, 0 or NaN.
    """
    kinds, bits = encoded[..., 0, :], encoded[..., 1, :]
    return {name: _column(kinds[..., m], np.ascontiguousarray(bits[..., m])) for m, name in enumerate(names)}


def _column(kinds: Int64, bits: Int64) -> NDArray[Any]:
    widest = int(kinds.max(initial=_NONE))
    if widest == _BOOL:
        return bits.astype(np.bool_)
    if widest == _INT:
        return bits
    # A column of floats may also have bools and integers, which are stored as int64.
    numbers = np.where(kinds == _NONE, np.nan, bits.astype(np.float64))
    return np.where(kinds == _FLOAT, bits.view(np.float64), numbers)
