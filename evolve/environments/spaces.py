"""Translate between environments and networks: encoders flatten observations, decoders turn outputs into actions.

The translation follows the spaces of Gymnasium, such as Box and Discrete. A run file stores the spaces of its
environment. So a policy works without Gymnasium, and only `without_advice` imports Gymnasium.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from evolve.config import EnvOptions
from evolve.environments.exact import AnyTask, exact_task
from evolve.errors import InputError
from evolve.shapes import Float32, Float64

Encode = Callable[[Any, Float32], None]
Decode = Callable[[Float32], Any]
Space = Any
"""A space of Gymnasium, or a `StoredSpace`."""

_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
_OBSERVATIONS = "non-empty observations of Box, Discrete, MultiDiscrete, MultiBinary, or of a Dict or Tuple of them"
_SILENCING = threading.Lock()
_levels: list[int] = []  # for each `without_advice` that has not ended: Gymnasium's level before the first one
# The largest number of elements of a stored space, and of values of an element of Discrete or MultiDiscrete.
_LARGEST_SHAPE = 2**31


@contextmanager
def without_advice() -> Iterator[None]:
    """Silence the warnings with which Gymnasium advises authors of environments, while an environment is made."""
    import gymnasium  # noqa: PLC0415 - a policy works without Gymnasium

    # Threads may make environments at the same time: the first one silences, and the last one restores.
    with _SILENCING:
        _levels.append(_levels[0] if _levels else gymnasium.logger.min_level)
        gymnasium.logger.min_level = gymnasium.logger.ERROR
    try:
        yield
    finally:
        with _SILENCING:
            level = _levels.pop()
            if not _levels:
                gymnasium.logger.min_level = level


class StoredSpace(SimpleNamespace):
    """A space of a file or an exact task, with the attributes of Gymnasium's space that this module reads."""

    kind: str


def kind_of(space: Space) -> str:
    """Return the kind of a space, such as "Box"; for a space without an encoder, the name of its class."""
    if isinstance(space, StoredSpace):
        return space.kind
    kind: Any = type(space)
    return _kind_of_class(kind)


@cache
def _kind_of_class(kind: type) -> str:
    # A user's class may extend a space of Gymnasium. A class of another library may merely have the same name.
    bases = (base.__name__ for base in kind.__mro__ if base.__module__.startswith("gymnasium."))
    return next((name for name in bases if name in _KINDS), kind.__name__)


def members_of(space: Space) -> list[tuple[Any, Space]]:
    """Return the members of a Dict or Tuple with their keys, in the order of the space."""
    return list(space.spaces.items() if kind_of(space) == "Dict" else enumerate(space.spaces))


def to_json(space: Space) -> dict[str, Any]:
    """Return a table for JSON that describes a space; `_KINDS` lists the possible kinds. An infinite bound is null."""
    kind = kind_of(space)
    if kind == "Discrete":
        return {"type": kind, "n": int(space.n), "start": int(space.start)}
    if kind in ("Dict", "Tuple"):
        return {"type": kind, "spaces": [{"key": key, "space": to_json(member)} for key, member in members_of(space)]}
    table = {"type": kind, "shape": list(space.shape), "dtype": np.dtype(space.dtype).name}
    if kind == "Box":
        no_low, no_high = _unbounded(space)
        table |= {"low": _bounds_to_json(space.low, no_low), "high": _bounds_to_json(space.high, no_high)}
    elif kind == "MultiDiscrete":
        table |= {"nvec": space.nvec.ravel().tolist(), "start": space.start.ravel().tolist()}
    return table


def _unbounded(space: Space) -> tuple[Any, Any]:
    """Return two masks: the numbers of a Box without a lower bound, and the numbers without an upper bound."""
    # For integers, Gymnasium replaces an infinite bound by the smallest or largest integer, and notes the replacement.
    bounded_below = np.asarray(getattr(space, "bounded_below", True))
    bounded_above = np.asarray(getattr(space, "bounded_above", True))
    return np.isinf(space.low) | ~bounded_below, np.isinf(space.high) | ~bounded_above


def _bounds_to_json(bounds: Any, infinite: Any) -> Any:
    """Return one number if all bounds are equal, else a flat list; None stands for infinity."""
    flat: list[float | None] = np.ravel(bounds).tolist()
    for place in np.flatnonzero(np.ravel(infinite)):
        flat[place] = None
    return flat[0] if flat and all(bound == flat[0] for bound in flat) else flat


def from_json(table: Any) -> StoredSpace:
    """Return the space that `to_json` described.

    Raises ValueError, TypeError, KeyError or OverflowError if the table is damaged.
    """
    kind = table["type"]
    if kind == "Discrete":
        return StoredSpace(kind=kind, n=_positive(table["n"]), start=int(table["start"]), shape=())
    if kind in ("Dict", "Tuple"):
        parts = {part["key"]: from_json(part["space"]) for part in table["spaces"]}
        return StoredSpace(kind=kind, shape=None, spaces=parts if kind == "Dict" else list(parts.values()))
    if kind not in _KINDS:
        raise ValueError(f"a space of the unknown kind {kind!r}")
    shape = tuple(_positive(size) for size in table["shape"])
    # In float64, because a product of integers could overflow and seem small.
    if np.prod(shape, dtype=np.float64) > _LARGEST_SHAPE:
        raise ValueError(f"a space of shape {shape}")
    space = StoredSpace(kind=kind, shape=shape, dtype=np.dtype(table["dtype"]))
    if space.dtype.kind not in "biuf":
        raise ValueError(f"a space of {table['dtype']}")
    if kind == "Box":
        space.low = _bounds_from_json(table["low"], shape, -np.inf)
        space.high = _bounds_from_json(table["high"], shape, np.inf)
    elif kind == "MultiDiscrete":
        space.nvec = np.array([_positive(n) for n in table["nvec"]], np.int64).reshape(shape)
        space.start = np.array(table["start"], np.int64).reshape(shape)
    return space


def _positive(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= _LARGEST_SHAPE:
        raise ValueError(f"{number!r}, not a whole number from 1 to {_LARGEST_SHAPE:,}")
    return number


def _bounds_from_json(bounds: Any, shape: tuple[int, ...], infinity: float) -> Float64:
    listed = bounds if isinstance(bounds, list) else [bounds]
    numbers = np.array([infinity if bound is None else bound for bound in listed], np.float64)
    if isinstance(bounds, list):
        return numbers.reshape(shape)
    # A broadcast number takes no memory, however large the shape of a damaged file is.
    return np.broadcast_to(numbers[0], shape)


@dataclass(frozen=True)
class Spaces:
    """The spaces of observations and of actions of an environment.

    Attributes:
        observation: The space of observations.
        action: The space of actions; None for an exact task whose actions are only -1, 0 or 1.
    """

    observation: Space
    action: Space | None

    def to_json(self) -> dict[str, Any]:
        """Return the spaces as a table for JSON."""
        action = None if self.action is None else to_json(self.action)
        return {"observation": to_json(self.observation), "action": action}

    @classmethod
    def from_json(cls, table: Any) -> "Spaces":
        """Return the spaces in a table of `to_json`. Raises ValueError, TypeError or KeyError for a damaged table."""
        try:
            action = table["action"]
            return cls(from_json(table["observation"]), None if action is None else from_json(action))
        except OverflowError as error:  # integers beyond 64 bits, or Infinity in place of an integer
            raise ValueError(str(error)) from None


def task_spaces(task: AnyTask) -> Spaces:
    """Return the spaces of an exact task."""
    inf = np.broadcast_to(np.inf, task.observation_size)
    observation = StoredSpace(kind="Box", shape=inf.shape, dtype=np.dtype(np.float32), low=-inf, high=inf)
    size = task.action_size
    if task.discrete:
        return Spaces(observation, StoredSpace(kind="Discrete", n=size, start=0, shape=()))
    if task.action_bound is None:
        return Spaces(observation, None)
    bound = np.broadcast_to(np.float64(task.action_bound), size)
    return Spaces(observation, StoredSpace(kind="Box", shape=(size,), dtype=observation.dtype, low=-bound, high=bound))


class Codec:
    """Encodes observations and decodes actions without the environment, in the same way as its engine.

    Args:
        options: The environment.
        spaces: The spaces of the environment.

    Attributes:
        observation_size: O.
        action_size: A.
    """

    def __init__(self, options: EnvOptions, spaces: Spaces) -> None:
        self._spaces = spaces
        self.observation_size, self._encode = observation_encoder(spaces.observation)
        if options.engine == "exact":
            task = exact_task(options)
            dtype = np.int64 if task.discrete else np.float32
            self.action_size = task.action_size
            self._decode: Decode = lambda outputs: task.actions(outputs).astype(dtype)
        else:
            self.action_size, self._decode = action_decoder(spaces.action, options.action_scale)

    def encode(self, observation: Any, row: Float32) -> None:
        """Flatten an observation into a row [O]. Raises ValueError if the observation does not fit the space."""
        check_observation(self._spaces.observation, observation)
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which the caller refuses
            self._encode(observation, row)

    def decode(self, outputs: Float32) -> Any:
        """Return the n actions of network outputs [n, A]: an array [n, …], or an array per member of Dict or Tuple."""
        return self._decode(outputs)

    def decode_one(self, outputs: Float32) -> Any:
        """Return the action of network outputs [A]; a discrete action is a Python integer."""
        actions = self._decode(outputs[None])
        return actions[0] if self._spaces.action is None else separate(self._spaces.action, actions)[0]


def member_of(space: Space, observation: Any, key: Any) -> Any:
    """Return a member of an observation of a Dict or Tuple. Raises ValueError if the member is missing."""
    try:
        return observation[key]
    except (KeyError, IndexError):
        raise ValueError(f"no member {key!r}") from None
    except TypeError:
        keys = ", ".join(map(repr, space.spaces))
        needed = f"dictionary with {keys}" if kind_of(space) == "Dict" else f"tuple of {len(space.spaces)}"
        raise ValueError(f"an object of {type(observation).__name__}, not a {needed}") from None


def observation_encoder(space: Space, is_member: bool = False) -> tuple[int, Encode]:
    """Return (O, encode): encode(observation, row) writes the flattened observation into row [O].

    is_member: Whether the space is a member of another one.

    - Box: the numbers; numbers of type uint8 are divided by their largest bound.
    - Discrete and MultiDiscrete: one-hot.
    - MultiBinary: 0 and 1.
    - Dict and Tuple: the members end to end, in the order of the space.

    Raises InputError for other spaces, and for empty spaces.
    """
    match kind_of(space):
        case "Box" | "MultiBinary":
            return _size(space), _box_encoder(space)
        case "Discrete":
            return int(space.n), _one_hot(space, np.array([space.n], np.int64), int(space.start))
        # The guard only serves to raise the error of `_size` for an empty space.
        case "MultiDiscrete" if _size(space):
            sizes = space.nvec.ravel().astype(np.int64)
            return int(sizes.sum()), _one_hot(space, sizes, space.start.ravel().astype(np.int64))
        case "Dict" | "Tuple" if members_of(space):
            return _encode_members(space, is_member)
    raise InputError("env.id", _OBSERVATIONS, repr(space), "A wrapper (env.wrappers) can turn others into these.")


def check_observation(space: Space, observation: Any) -> None:
    """Raise ValueError for an observation of another shape or type, and for a value that its space does not have.

    Such values are numbers beyond a discrete space, and fractions in an 8-bit image.

    Without this check, NumPy would broadcast an array of another shape. A value below the smallest one would be a
    negative index, which counts from the end.
    """
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        for key, member in members_of(space):
            check_observation(member, member_of(space, observation, key))
        return
    try:
        values = np.asarray(observation)
    except ValueError:  # as for [0.5, np.zeros(1)]; NumPy's message does not name the shape of the space
        raise ValueError(f"parts of different shapes, not {space.shape}") from None
    # An observation of Discrete may also be an array with one number.
    if values.shape != space.shape and not (kind == "Discrete" and values.size == 1):
        raise ValueError(f"the shape {values.shape}, not {space.shape}")
    if kind in ("Discrete", "MultiDiscrete"):
        first = np.asarray(space.start)
        last = first + (space.n if kind == "Discrete" else space.nvec) - 1
        if values.dtype.kind not in "biu":
            raise ValueError(f"{values.tolist()!r} of the type {values.dtype}, not an integer")
        if (values < first).any() or (values > last).any():
            raise ValueError(f"{values.tolist()!r}, which is outside the integers {first.tolist()} to {last.tolist()}")
    elif values.dtype.kind in "cSU":  # a conversion to real numbers drops an imaginary part, and reads texts
        raise ValueError(f"the type {values.dtype}, not real numbers")
    # An 8-bit image with fractions was probably divided already, and must not be divided again.
    elif divisor_of(space) != 1 and values.dtype.kind == "f" and (values != np.floor(values)).any():
        first = values[values != np.floor(values)].flat[0]
        raise ValueError(f"{first:g} in a space of {space.dtype}, whose values are divided by {divisor_of(space)}")


def action_decoder(space: Space, action_scale: float) -> tuple[int, Decode]:
    """Return (A, decode): decode(outputs [n, A] in [-1, 1]) gives the n actions.

    - Box: [-1, 1] is mapped onto [low, high]. An `action_scale` below 1 keeps only the middle of this range: 0.5 keeps
      the half of the range around its centre. If both bounds are infinite, ±`action_scale` replace them. If one bound
      is infinite, a number at the distance 2 · `action_scale` from the other bound replaces it. In a Box of integers
      or bools, actions are rounded, and an output NaN counts as 0.
    - Discrete and MultiDiscrete: the index of the largest output (of equal outputs the first), plus the space's
      `start`.
    - MultiBinary: whether the output is positive.
    - Dict and Tuple: each member has its own outputs, in the order of the space. The actions are a dictionary or a
      tuple with n actions in each member, as in Gymnasium's vector environments.

    Raises InputError for other spaces, and for empty spaces.
    """
    match kind_of(space):
        case "Box":
            return _size(space), _decode_box(space, action_scale)
        case "Discrete":
            start = int(space.start)
            return int(space.n), lambda outputs: start + np.argmax(outputs, axis=1)
        case "MultiDiscrete" if _size(space):
            return int(space.nvec.sum()), _decode_multi_discrete(space)
        case "MultiBinary":
            shape, dtype = space.shape, space.dtype
            return _size(space), lambda outputs: (outputs > 0).astype(dtype).reshape(-1, *shape)
        case "Dict" | "Tuple" if members_of(space):
            return _decode_members(space, action_scale)
    expected = "an action space of Box, Discrete, MultiDiscrete and MultiBinary, alone or in a Dict or Tuple"
    cure = "A gymnasium.ActionWrapper in the module of the environment can translate another one."
    raise InputError("env.id", expected, repr(space), cure)


def separate(space: Space, actions: Any) -> list[Any]:
    """Return n decoded actions as a list. Discrete actions are Python integers, with which Gymnasium is fastest."""
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        parts = {key: separate(member, actions[key]) for key, member in members_of(space)}
        rows = zip(*parts.values(), strict=True)
        return list(rows) if kind == "Tuple" else [dict(zip(parts, row, strict=True)) for row in rows]
    return list(actions.tolist() if kind == "Discrete" else actions)


def _size(space: Space) -> int:
    """Return the size of an observation or action of a space, in numbers. Raises InputError for an empty space."""
    size = int(np.prod(space.shape))
    if size == 0:
        raise InputError("env.id", "observations and actions that hold something", repr(space))
    return size


def divisor_of(space: Space) -> int:
    """Return the number by which observations of a space are divided: the largest bound of 8-bit images; else 1."""
    is_image = kind_of(space) == "Box" and space.dtype == np.uint8
    return max(1, int(np.max(space.high))) if is_image else 1  # the largest bound may be 0


def _box_encoder(space: Space) -> Encode:
    shape = space.shape
    is_flat = len(shape) == 1
    largest = np.float32(divisor_of(space))

    def encode(observation: Any, row: Float32) -> None:
        values = np.asarray(observation)
        # Engines encode each step without `check_observation`. NumPy would broadcast another shape.
        # An image that the environment has divided by 255 already must not be divided again.
        if values.shape != shape or (largest != 1 and values.dtype.kind == "f"):
            check_observation(space, observation)
        row[:] = values if is_flat else values.reshape(-1)
        if largest != 1:
            row /= largest

    return encode


def _one_hot(space: Space, sizes: Any, start: Any) -> Encode:
    offsets = np.cumsum(sizes) - sizes  # where the part of each number begins in the row
    # [offset, size, smallest number] of each part. For a few numbers, Python's integers are faster than arrays.
    parts = np.stack(np.broadcast_arrays(offsets, sizes, start), axis=1).tolist()

    def encode(observation: Any, row: Float32) -> None:
        row[:] = 0
        for (offset, size, first), number in zip(parts, np.asarray(observation).ravel().tolist(), strict=True):
            # A number outside its range could set a place in another part of the row, and a float is no index.
            if not (isinstance(number, int) and 0 <= number - first < size):
                check_observation(space, observation)
            row[offset + number - first] = 1

    return encode


def _is_known(space: Space) -> bool:
    """Return whether encoders know the kind of a space and the kinds of all its members, and no part is empty."""
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        return bool(members_of(space)) and all(_is_known(member) for _, member in members_of(space))
    return kind in _KINDS and 0 not in space.shape


def _encode_members(space: Space, is_member: bool) -> tuple[int, Encode]:
    """Return the size and the encoder of a Dict or Tuple. Raises InputError for a member without an encoder."""
    unknown = [(key, member) for key, member in members_of(space) if not _is_known(member)]
    known = [key for key, member in members_of(space) if _is_known(member) and isinstance(key, str)]
    # The wrapper knows the keys of the outermost Dict alone.
    if unknown and known and kind_of(space) == "Dict" and not is_member:
        unknown_key, unknown_member = unknown[0]
        got = f"{unknown_member!r}, the member {unknown_key!r} of a Dict"
        keys = json.dumps(known, ensure_ascii=False)
        cure = f'A wrapper leaves it out: env.wrappers=[{{name="FilterObservation", kwargs={{filter_keys={keys}}}}}].'
        raise InputError("env.id", _OBSERVATIONS, got, cure)
    size, parts = _members(space, partial(observation_encoder, is_member=True))

    def encode_all(observation: Any, row: Float32) -> None:
        for key, place, encode in parts:
            encode(observation[key], row[place])

    return size, encode_all


def _members(space: Space, coder: Callable[[Space], tuple[int, Any]]) -> tuple[int, list[tuple[Any, slice, Any]]]:
    """Return the size of a Dict or Tuple; and for each member its key, its place among all numbers, and its function.

    coder: Returns the size and the function, `Encode` or `Decode`, of a member.
    """
    parts, begin = [], 0
    for key, member in members_of(space):
        if not isinstance(key, str | int):  # run files hold the keys as JSON
            raise InputError("env.id", "a Dict whose keys are texts or integers", f"a Dict with the key {key!r}")
        size, code = coder(member)
        parts.append((key, slice(begin, begin + size), code))
        begin += size
    return begin, parts


class Stretch(NamedTuple):
    """The flat actions [A] of a Box: centre + half · output, limited to [floor, ceiling]."""

    centre: Float64
    half: Float64
    floor: Float64
    ceiling: Float64


def stretch(space: Space, scale: float) -> Stretch:
    """Return the map from outputs to the actions of a Box, see `action_decoder`."""
    no_low, no_high = _unbounded(space)
    low = np.where(no_low, -np.inf, space.low.astype(np.float64)).ravel()
    high = np.where(no_high, np.inf, space.high.astype(np.float64)).ravel()
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    # Finite numbers replace infinite bounds, see `action_decoder`.
    floor = np.where(has_low, low, np.where(has_high, high - 2 * scale, -scale))
    ceiling = np.where(has_high, high, np.where(has_low, low + 2 * scale, scale))
    if space.dtype.kind in "iu":  # a large scale must not exceed the range of the type
        limits = np.iinfo(space.dtype)
        floor, ceiling = np.maximum(floor, float(limits.min)), np.minimum(ceiling, float(limits.max))
    # Halve before adding, because the sum of the largest finite bounds would overflow.
    centre, half = floor / 2 + ceiling / 2, ceiling / 2 - floor / 2
    # A bound that replaces an infinite one depends on the scale already.
    half = half * np.where(has_low & has_high, min(scale, 1.0), 1.0)
    if space.dtype.kind in "iu":
        # As float64, the largest 64-bit integer is rounded up to a number that does not fit into 64 bits.
        ceiling = np.minimum(ceiling, np.nextafter(float(np.iinfo(space.dtype).max) + 1, 0))
    return Stretch(centre, half, floor, ceiling)


def is_rounded(space: Space) -> bool:
    """Return whether the actions of a Box are rounded, because they are integers or bools."""
    return np.dtype(space.dtype).kind in "biu"


def _decode_box(space: Space, scale: float) -> Decode:
    centre, half, floor, ceiling = stretch(space, scale)
    shape, dtype = space.shape, space.dtype
    whole = is_rounded(space)

    def decode(outputs: Float32) -> Any:
        if whole:  # casting NaN to an integer gives a result that depends on the CPU
            outputs = np.where(np.isnan(outputs), np.float32(0), outputs)
        actions = np.minimum(np.maximum(centre + half * outputs, floor), ceiling)
        return (np.rint(actions) if whole else actions).astype(dtype).reshape(-1, *shape)

    return decode


def _decode_multi_discrete(space: Space) -> Decode:
    # The first output of each choice, and the end of its outputs.
    edges = list(pairwise(np.cumsum([0, *space.nvec.ravel()]).tolist()))
    start, shape, dtype = space.start.ravel(), space.shape, space.dtype

    def decode(outputs: Float32) -> Any:
        choices = np.stack([np.argmax(outputs[:, a:b], axis=1) for a, b in edges], axis=1)
        return (choices + start).astype(dtype).reshape(-1, *shape)

    return decode


def _decode_members(space: Space, scale: float) -> tuple[int, Decode]:
    size, parts = _members(space, lambda member: action_decoder(member, scale))
    is_tuple = kind_of(space) == "Tuple"

    def decode_all(outputs: Float32) -> Any:
        actions = {key: decode(outputs[:, place]) for key, place, decode in parts}
        return tuple(actions.values()) if is_tuple else actions

    return size, decode_all
