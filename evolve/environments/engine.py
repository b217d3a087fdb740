"""`Engine`, the interface of all engines; checks of an environment before a run; and the metrics of episodes.

An engine plays up to B episodes of one environment side by side, each in a slot.

`check_repeatable` plays one episode twice, to test whether the same seed gives the same episode.

Metrics are numbers that an environment reports in the `info` of the last step of an episode; `env.metrics` names them.
The environment chooses the type: bool, int64 or float64. A worker encodes each number as its type and its 64 bits.
Rank 0 decodes one column for each metric, in the widest type that occurs.
"""

import hashlib
import math
import os
import time
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
"""The result of a reset or a step, by name: "observation"; after a step also "reward", "terminated" and "truncated".
An exact task has no "truncated"."""

Mode = Literal["rgb_array", "human"]
"""How an environment draws: as frames, or in a window."""

DEFAULT_FPS = 50.0
"""Frames per second of an environment that declares no rate."""


# The extras (pip install "evolve[EXTRA]") that install a missing library, by a word in Gymnasium's error message.
_EXTRAS = {"box2d": "box2d", "pygame": "video", "mujoco": "mujoco"}
_SEED = 20  # the seed of the trial episodes, and of their random outputs
_COMPARED_STEPS = 40  # the most steps that `check_repeatable` compares
# `check_metrics` and `seems_endless` give up if an episode takes more than this number of steps or seconds.
_MOST_STEPS, _EPISODE_SECONDS = 4096, 1.0
# After it has compared two episodes, `check_repeatable` plays at most this number of further episodes. It begins no
# further episode when it has taken this processor time, or `PAIR_SECONDS` of wall time.
_MORE_EPISODES, _MORE_SECONDS = 100, 0.05
PAIR_SECONDS = 0.2
"""The approximate wall time for which `check_repeatable` compares two episodes; it always compares the first step. The
episode that it plays alone before that gets half of this time."""

OWN_GENERATOR = "an environment whose steps draw from a generator of their own"
"""The field `expected` of the InputError for a step that draws from a shared generator. `_other_episode` recognizes
the error by this field."""
REPEATABLE = (
    "Draw from self.np_random only (a task: from its argument), and set everything up again in reset. "
    "If the environment takes its seed as an argument, env.randomize.seed={integers=[0, 2147483647]} draws it. "
    "(To run it all the same, with digests that prove nothing: ",
    Setting("compute.check", False), ".)",
)  # fmt: skip
"""The cure in the error for an environment that does not repeat an episode."""
_SEPARATE = (
    "Keep all state in self, not in the class or the module. If the environment needs a library with one world in each "
    "process: ", Setting("compute.slots", 1), ", and more ranks.",
)  # fmt: skip
"""The cure in the error for an environment object that shares something with other objects."""

# The codes of the types of metrics, the widest type last. _NONE means that there is no number.
_NONE, _BOOL, _INT, _FLOAT = range(4)
_TYPE_CODES = {"b": _BOOL, "i": _INT, "u": _INT, "f": _FLOAT}
"""The code of the type of a metric, by NumPy's `dtype.kind`."""


@contextmanager
def keeping_directory() -> Iterator[None]:
    """Go back to the present directory at the end of the context, because an environment may change the directory."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # the directory was removed
        here = os.curdir
    try:
        yield
    finally:
        # The directory may have been removed in the meantime. An error here would replace an error of the context.
        with suppress(OSError):
            os.chdir(here)


def do_nothing() -> None:
    """Do nothing: the default `on_fault` of an engine."""


class Engine(Protocol):
    """B slots, in each of which an episode of one environment may run."""

    id: str
    """The id of the environment, with its version."""

    observation_size: int
    """O, the size of a flattened observation."""

    action_size: int
    """A, the number of network outputs that make one action."""

    spaces: Spaces
    """The spaces of the environment. With them a `Codec` encodes and decodes without the engine."""

    faults: dict[int, str]
    """The error message of each failed episode, by slot. `step` ends such an episode with a reward of NaN. The rollout
    removes a message from here when it handles the fault."""

    on_fault: Callable[[], None]
    """A function that `reset` and `step` call after each fault. Several episodes may hang one after another in one
    `step`, so a worker uses this function to show that it is alive."""

    reuses: bool
    """Whether an environment object may play several episodes, one after another."""

    min_free_slots: int
    """The rollout begins new episodes only when at least this number of slots is free, or when no episode runs."""

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
            Rewards [k], and whether each episode has ended [k]: terminated, truncated, at its step limit, or failed.
        """

    metric_names: tuple[str, ...]
    """The names of the M metrics (`env.metrics`)."""

    def metrics(self, slots: Slots) -> Int64:
        """Return the metrics of slots [k], encoded by `encode_metrics`: [k, 2, M].

        The latest `step` must have advanced all these slots. A missing metric becomes a fault. An episode with a fault
        has zeros.
        """

    def trial(self, seed: int, outputs: Float32, used: bool) -> Generator[Transition, None, None]:
        """Play one episode in a new environment.

        Args:
            seed: The seed of the environment.
            outputs: [L, A], the outputs of the network in each step.
            used: Whether the environment first plays another episode, so that it is no longer new. An engine that does
                not reuse environments ignores this argument.

        Yields:
            The transition of the reset, and of each step.
        """

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions of network outputs [n, A]."""

    def frame(self, slot: int) -> UInt8:
        """Return a picture [height, width, 3] of a slot's environment, also when its episode has just ended.

        Raises InputError unless the environment was made with options from `drawable_options`.
        """

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` [k] in the free slots `targets` [k]."""

    def close(self) -> None:
        """Release every environment."""


def as_frame(env_id: str, render: Callable[[], Any], cure: str = "") -> UInt8:
    """Return the frame that an environment renders, [H, W, 3]. The opacity of a frame [H, W, 4] is dropped.

    Args:
        env_id: The environment, for the error.
        render: The function that renders it.
        cure: The cure if rendering raises an exception; by default the result of `install_cure`.

    Raises:
        InputError: Rendering raises an exception, or returns no frame.
    """
    expected = "an environment that draws frames ([H, W, 3] of 8 bits)"
    try:
        frame = np.asarray(render())
    except FAILURES as error:  # mostly a missing library
        raise InputError("env.id", expected, f"{env_id} ({one_line(error)})", cure or install_cure(error)) from error
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] not in (3, 4):
        raise InputError("env.id", expected, f"{env_id}, which draws {frame.dtype}{list(frame.shape)}")
    return frame[:, :, :3]


def install_cure(error: BaseException) -> str:
    """Return a sentence on how to install the library that Gymnasium reports as missing; "" for any other error."""
    if type(error).__name__ != "DependencyNotInstalled":  # compare names, because this module does not import Gymnasium
        return ""
    extra = next((extra for word, extra in _EXTRAS.items() if word in str(error).lower()), None)
    return how_to_install(extra) if extra else ""


def check_repeatable(engine: Engine, reuse: bool | str = "auto", slots: int = 2) -> tuple[str, ...]:
    """Check that the environment repeats an episode, and that it keeps its contract.

    The contract is Gymnasium's interface or, for a task that is a function, the contract of `register_task`.

    First an episode is played alone. Then the same episode is played again, in turns with an episode of another seed,
    because a run steps the episodes of several slots in turns. Only the first steps are compared. If there is time,
    some episodes of other seeds are played, too.

    Args:
        engine: An engine with the environment.
        reuse: The setting `env.reuse`.
        slots: The number of slots of the run. With one slot no other episode is played in turns.

    Returns:
        Fingerprints of the reset and of each step of the episode, for `check_same_as_rank_0`; () if an episode failed.

    Raises:
        InputError: The two episodes differ; the message names the array, the step and both values. Or the environment
            breaks its contract.
    """
    begin, cpu_begin = time.perf_counter(), time.process_time()
    outputs = _random_outputs(_COMPARED_STEPS, engine)
    try:
        with closing(engine.trial(_SEED, outputs, used=False)) as episode:
            alone = list(_within(PAIR_SECONDS / 2, episode))
        # Compare with a new environment. If the run reuses environments, also compare with a used one.
        for used in [False, True] if engine.reuses else [False]:
            if difference := _first_difference(engine, outputs, alone, used, in_turns=slots > 1):
                expected, cure = "an environment that repeats an episode to the bit after reset(seed=…)", REPEATABLE
                what_differs = "a used and a new environment differ" if used else "two episodes differ"
                # If the episode repeats when it is not played in turns with another one, the other one is the cause.
                if slots > 1 and not _first_difference(engine, outputs, alone, used, in_turns=False):
                    expected, cure = "an environment with objects that share nothing that changes", _SEPARATE
                    what_differs = "an episode changes another one of the same process"
                raise InputError("env.id", expected, f"{engine.id}, where {what_differs}: {difference}", *cure)
        # A step may draw from a generator that the process shares, but so rarely that the steps above do not show this.
        # So play further episodes. Gymnasium's own environments need none, because they keep the contract for certain:
        # an engine reuses only these, unless the user sets `env.reuse`.
        if not engine.reuses or reuse is True:
            for seed in range(_SEED + 1, _SEED + _MORE_EPISODES):
                if time.process_time() - cpu_begin > _MORE_SECONDS or time.perf_counter() - begin > PAIR_SECONDS:
                    break
                for _ in _other_episode(engine, outputs, seed):
                    pass
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException:  # the evaluation will meet the same error, and report where it happened
        return ()
    return tuple(map(_fingerprint, alone))


def check_same_as_rank_0(engine: Engine, fingerprints: Sequence[str]) -> None:
    """Raise RunError if the episode that `check_repeatable` played on rank 0 differs when this process plays it.

    fingerprints: The result of `check_repeatable` on rank 0. If it is empty, nothing is compared.
    """
    if not fingerprints:
        return
    try:
        with closing(engine.trial(_SEED, _random_outputs(_COMPARED_STEPS, engine), used=False)) as episode:
            here = list(map(_fingerprint, _within(PAIR_SECONDS / 2, episode)))
    except FAILURES:  # the evaluation will meet the same error, and report where it happened
        return
    # Not strict: a slower process compares fewer steps, see `_within`.
    for step, (fingerprint, on_rank_0) in enumerate(zip(here, fingerprints, strict=False)):
        if fingerprint != on_rank_0:
            when = f"in step {step}" if step else "at reset"
            why = "It may draw random numbers when its module is imported, or iterate over a set of texts."
            cure = f"{why} (Without this trial: {Setting('compute.check', False)}.)"
            raise RunError(f"the environment {engine.id} plays another episode here than on rank 0, {when}. {cure}")


def check_metrics(engine: Engine) -> None:
    """Raise InputError if an episode lacks a metric, or if two episodes of one seed differ in a metric.

    The networks' outputs are random. If an episode fails or does not end in time, the metrics are not compared.
    """
    if not engine.metric_names:
        return
    first, second = _episode_metrics(engine), _episode_metrics(engine)
    if first is not None and second is not None:
        for name, differs in zip(engine.metric_names, (first != second).any(axis=0), strict=True):
            if differs:
                expected = "metrics that are equal in two episodes of one seed"
                raise InputError("env.metrics", expected, f"{name}, which differs (a time, for example)")


def seems_endless(engine: Engine) -> bool:
    """Return whether an episode with random outputs still runs after `_MOST_STEPS` or `_EPISODE_SECONDS`.

    An episode that fails does not count as endless.
    """
    return _ends_in_time(engine) is False


def _episode_metrics(engine: Engine) -> Int64 | None:
    """Play an episode in slot 0, and return its encoded metrics [2, M]; None if it fails or takes too long.

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
    deadline = time.perf_counter() + _EPISODE_SECONDS
    for row in _random_outputs(_MOST_STEPS, engine):
        if engine.faults or time.perf_counter() > deadline:
            break
        _, ended = engine.step(slot, row[None], observations)
        if ended[0] and not engine.faults:
            return True
    failed = bool(engine.faults)
    engine.faults.clear()  # the evaluation will meet the same error, and report where it happened
    return None if failed else False


def _random_outputs(steps: int, engine: Engine) -> Float32:
    """Return network outputs [steps, A], uniform on [-1, 1], and the same in every call."""
    uniform = Stream(_SEED, Purpose.CHECK).uniform(steps, engine.action_size)
    return (2 * uniform - 1).astype(np.float32)


def _other_episode(engine: Engine, outputs: Float32, seed: int) -> Generator[Transition, None, None]:
    """Play an episode of another seed, with other actions. Yields its transitions.

    If the episode fails, it ends without an error. The reason: episodes of the run may also fail, and the setting
    `env.on_failure` decides what happens then. But a draw from a shared generator raises InputError.
    """
    try:
        # Roll the rows, so that this episode has the outputs in another order.
        yield from engine.trial(seed, np.roll(outputs, seed, axis=0), used=False)
    except (Exception, SystemExit) as error:
        if isinstance(error, InputError) and error.expected == OWN_GENERATOR:
            raise


def _within(seconds: float, transitions: Iterable[Transition]) -> Iterator[Transition]:
    """Yield the transitions of an episode: the reset, the first step, and later steps until the time is over."""
    deadline = math.inf
    for step, transition in enumerate(transitions):
        yield transition
        if step == 0:  # the clock starts after the reset, because making and resetting environments may take long
            deadline = time.perf_counter() + seconds
        elif time.perf_counter() > deadline:
            break


def _first_difference(
    engine: Engine, outputs: Float32, alone: Sequence[Transition], used: bool, in_turns: bool
) -> str | None:
    """Play an episode again, and describe its first difference; None if no difference is found in time.

    Args:
        engine: The engine that plays the episode.
        outputs: The outputs of the network in each step.
        alone: The transitions of the episode that was played alone, to compare with.
        used: Whether the environment first plays another episode, see `Engine.trial`.
        in_turns: Whether an episode of another seed is played in turns with this one.
    """
    # Close both episodes here, because the watchdog of the caller interrupts a `close` that hangs.
    with (
        closing(engine.trial(_SEED, outputs, used=used)) as again,
        closing(_other_episode(engine, outputs, _SEED + 1)) as other,
    ):
        for step, before in enumerate(_within(PAIR_SECONDS, alone)):
            # If the new episode has ended already, {} takes the place of its transition, and differs from any.
            if difference := _difference(before, next(again, {})):
                return f"{difference} of step {step}" if step else f"{difference} of reset"
            if in_turns:
                next(other, None)
    return None


def _fingerprint(transition: Transition) -> str:
    """Return a fingerprint of the bits of a transition. Like `_difference`, it ignores the values of objects."""
    digest = hashlib.blake2b(digest_size=8)
    # Sort by name, because two ranks may order the keys of a dictionary differently.
    for name, array in sorted(_arrays("", transition), key=itemgetter(0)):
        if array.dtype != object:
            digest.update(f"{name} {array.dtype}{list(array.shape)}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def _difference(a: Transition, b: Transition) -> str | None:
    """Describe the first difference in bits of two transitions, see `_array_difference`; None if there is none."""
    arrays_a, arrays_b = dict(_arrays("", a)), dict(_arrays("", b))
    for name in arrays_a | arrays_b:
        # If a transition lacks the array, np.asarray(None) takes its place.
        if found := _array_difference(name, np.asarray(arrays_a.get(name)), np.asarray(arrays_b.get(name))):
            return found
    return None


def _arrays(name: str, value: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield all arrays in a nested structure, each with its name, such as "observation['left'][0]".

    name: The name of the structure; "" for a transition.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _arrays(f"{name}[{key!r}]" if name else str(key), part)
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from _arrays(f"{name}[{index}]", part)
    else:
        yield name, np.asarray(value)


def _array_difference(name: str, a: Any, b: Any) -> str | None:
    """Describe the first element with different bits in two arrays: its name and both values. None if there is none.

    If the types or the shapes differ, describe these instead.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{name} ({a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)})"
    # Compare bytes: NaN equals NaN, and 0.0 differs from -0.0. The bytes of objects are addresses, which mean nothing.
    if a.dtype == object or a.tobytes() == b.tobytes():
        return None
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    first = next(i for i in range(a.size) if flat_a[i].tobytes() != flat_b[i].tobytes())
    if a.shape:
        index = ", ".join(map(str, np.unravel_index(first, a.shape)))
        name = f"{name}[{index}]"
    return f"{name} ({sanitize(flat_a[first].item())} against {sanitize(flat_b[first].item())})"


def encode_metrics(info: Any, names: Sequence[str]) -> Int64:
    """Return the metrics of an episode as int64 [2, M]: row 0 has the codes of their types, row 1 their 64 bits.

    Args:
        info: The `info` of the last step of an episode.
        names: The names of the M metrics.

    Raises:
        InputError: A metric is missing, or is not one number.
    """
    encoded = np.zeros((2, len(names)), np.int64)
    reported = info if isinstance(info, Mapping) else {}
    for column, name in enumerate(names):
        expected = f"a number {name} in the info of the last step of an episode"
        if name not in reported:
            numbers = [key for key, value in reported.items() if isinstance(key, str) and _encoded(value)[0] != _NONE]
            got = "an info without it" if reported else "an empty info"
            similar = f"{suggest(name, numbers)} " if numbers else ""
            cure = f"{similar}To play without metrics: ", Setting("env.metrics", ()), "."
            raise InputError("env.metrics", expected, got, *cure)
        encoded[:, column] = _encoded(reported[name])
        if encoded[0, column] == _NONE:
            raise InputError("env.metrics", expected, repr(reported[name]))
    return encoded


def _encoded(value: Any) -> tuple[int, int]:
    """Return the code of the type of a number, and its 64 bits; (_NONE, 0) if the value is not one number."""
    try:
        number = np.asarray(value)
        if number.shape != ():
            return _NONE, 0
        type_code = _TYPE_CODES[number.dtype.kind]
        if type_code == _FLOAT:
            # Every NaN becomes one quiet NaN, because CPUs differ in its sign.
            return _FLOAT, int(np.float64(np.nan if np.isnan(number) else number).view(np.int64))
        return type_code, int(np.int64(number.item()))
    except Exception:  # text, objects, numbers of more than 64 bits; a class of the user may raise anything
        return _NONE, 0


def decode_metrics(encoded: Int64, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return each metric by name: an array […], with one number for each episode. encoded: […, 2, M].

    The type of an array is the widest type in it: bool, int64 or float64; float64 if no episode has metrics. An episode
    that failed or was not played gets False, 0 or NaN.
    """
    type_codes, bits = encoded[..., 0, :], encoded[..., 1, :]
    return {name: _decoded(type_codes[..., m], np.ascontiguousarray(bits[..., m])) for m, name in enumerate(names)}


def _decoded(type_codes: Int64, bits: Int64) -> NDArray[Any]:
    """Return one metric of all episodes, from the code of its type and its bits in each episode."""
    widest = int(type_codes.max(initial=_NONE))
    if widest == _BOOL:
        return bits.astype(np.bool_)
    if widest == _INT:
        return bits
    # Among the floats there may be bools and integers, which are stored as int64.
    integers = np.where(type_codes == _NONE, np.nan, bits.astype(np.float64))
    return np.where(type_codes == _FLOAT, bits.view(np.float64), integers)
