"""Translate between environments and networks: encoders flatten observations, decoders turn outputs into actions.

The translation follows the spaces of Gymnasium, such as Box and Discrete. `observation_encoder` and `action_decoder`
define it; a `Codec` has both. A run file stores the spaces of its environment (`to_json`), so that a policy works
without Gymnasium. Only `without_advice` imports Gymnasium.
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
"""encode(observation, row) writes a flattened observation into row [O]."""
Decode = Callable[[Float32], Any]
"""decode(outputs [n, A]) returns n actions."""
Space = Any
"""A space of Gymnasium, or a `StoredSpace`."""

_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
_OBSERVATIONS = "non-empty observations of Box, Discrete, MultiDiscrete, MultiBinary, or of a Dict or Tuple of them"
_LEVEL_LOCK = threading.Lock()
# One entry for each `without_advice` that has not ended: Gymnasium's log level before the first of them.
_original_levels: list[int] = []
# The largest number of elements of a stored space, and of values of one Discrete or of one element of MultiDiscrete.
_LARGEST_COUNT = 2**31


@contextmanager
def without_advice() -> Iterator[None]:
    """Silence Gymnasium's warnings, which advise authors of environments, while an environment is made."""
    import gymnasium  # noqa: PLC0415 - a policy works without Gymnasium

    # Threads may make environments at the same time. The last thread restores the level that the first one found.
    with _LEVEL_LOCK:
        _original_levels.append(_original_levels[0] if _original_levels else gymnasium.logger.min_level)
        gymnasium.logger.min_level = gymnasium.logger.ERROR
    try:
        yield
    finally:
        with _LEVEL_LOCK:
            original_level = _original_levels.pop()
            if not _original_levels:
                gymnasium.logger.min_level = original_level


class StoredSpace(SimpleNamespace):
    """A space of a run file or an exact task. It has those attributes of Gymnasium's space that this module reads."""

    kind: str


def kind_of(space: Space) -> str:
    """Return the kind of a space, such as "Box"; for a space without an encoder, the name of its class."""
    if isinstance(space, StoredSpace):
        return space.kind
    space_class: Any = type(space)
    return _kind_of_class(space_class)


@cache
def _kind_of_class(space_class: type) -> str:
    # Search the base classes, because a user's class may extend a space of Gymnasium. Compare the module, too, because
    # a class of another library may merely have the same name.
    bases = (base.__name__ for base in space_class.__mro__ if base.__module__.startswith("gymnasium."))
    return next((name for name in bases if name in _KINDS), space_class.__name__)


def members_of(space: Space) -> list[tuple[Any, Space]]:
    """Return the (key, member) pairs of a Dict, or the (index, member) pairs of a Tuple, in the order of the space."""
    return list(space.spaces.items() if kind_of(space) == "Dict" else enumerate(space.spaces))


def to_json(space: Space) -> dict[str, Any]:
    """Return a table for JSON that describes a space of one of the `_KINDS`. An infinite bound becomes None."""
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
    """Return two masks of a Box's shape: whether each number has no lower bound, and whether it has no upper bound."""
    # In a Box of integers, Gymnasium replaces an infinite bound by the smallest or largest integer. Its attributes
    # `bounded_below` and `bounded_above` still tell the difference.
    bounded_below = np.asarray(getattr(space, "bounded_below", True))
    bounded_above = np.asarray(getattr(space, "bounded_above", True))
    return np.isinf(space.low) | ~bounded_below, np.isinf(space.high) | ~bounded_above


def _bounds_to_json(bounds: Any, infinite: Any) -> Any:
    """Return one number if all bounds are equal, else a flat list. None replaces the bounds in the mask `infinite`."""
    flat: list[float | None] = np.ravel(bounds).tolist()
    for index in np.flatnonzero(np.ravel(infinite)):
        flat[index] = None
    return flat[0] if flat and all(bound == flat[0] for bound in flat) else flat


def from_json(table: Any) -> StoredSpace:
    """Return the space that `to_json` described.

    Raises ValueError, TypeError, KeyError or OverflowError if the table is damaged.
    """
    kind = table["type"]
    if kind == "Discrete":
        return StoredSpace(kind=kind, n=_positive(table["n"]), start=int(table["start"]), shape=())
    if kind in ("Dict", "Tuple"):
        members = {entry["key"]: from_json(entry["space"]) for entry in table["spaces"]}
        return StoredSpace(kind=kind, shape=None, spaces=members if kind == "Dict" else list(members.values()))
    if kind not in _KINDS:
        raise ValueError(f"a space of the unknown kind {kind!r}")
    shape = tuple(_positive(size) for size in table["shape"])
    # Multiply in float64, because a product of integers could overflow and seem small.
    if np.prod(shape, dtype=np.float64) > _LARGEST_COUNT:
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
    """Return a number of a table. Raises ValueError unless it is an integer from 1 to `_LARGEST_COUNT`."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= _LARGEST_COUNT:
        raise ValueError(f"{number!r}, not a whole number from 1 to {_LARGEST_COUNT:,}")
    return number


def _bounds_from_json(bounds: Any, shape: tuple[int, ...], infinity: float) -> Float64:
    """Return the bounds that `_bounds_to_json` described. infinity: -inf for lower bounds, inf for upper bounds."""
    flat = bounds if isinstance(bounds, list) else [bounds]
    numbers = np.array([infinity if bound is None else bound for bound in flat], np.float64)
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
        """Return the spaces that `to_json` described. Raises ValueError, TypeError or KeyError for a damaged table."""
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
        """Flatten an observation into `row` [O]. Raises ValueError if the observation does not fit the space."""
        check_observation(self._spaces.observation, observation)
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, and the caller refuses that
            self._encode(observation, row)

    def decode(self, outputs: Float32) -> Any:
        """Return n actions from network outputs [n, A]: an array [n, …]; for a Dict or Tuple, one array per member."""
        return self._decode(outputs)

    def decode_one(self, outputs: Float32) -> Any:
        """Return one action from network outputs [A]; a discrete action is a Python integer."""
        actions = self._decode(outputs[None])
        return actions[0] if self._spaces.action is None else separate_actions(self._spaces.action, actions)[0]


def member_of(space: Space, observation: Any, key: Any) -> Any:
    """Return the member `key` of an observation of a Dict or Tuple. Raises ValueError if the member is missing."""
    try:
        return observation[key]
    except (KeyError, IndexError):
        raise ValueError(f"no member {key!r}") from None
    except TypeError:
        keys = ", ".join(map(repr, space.spaces))
        expected = f"dictionary with {keys}" if kind_of(space) == "Dict" else f"tuple of {len(space.spaces)}"
        raise ValueError(f"an object of {type(observation).__name__}, not a {expected}") from None


def observation_encoder(space: Space, is_member: bool = False) -> tuple[int, Encode]:
    """Return (O, encode), see `Encode`. Each space has its own encoding:

    - Box: the numbers; numbers of type uint8 are divided by their largest bound.
    - Discrete and MultiDiscrete: one-hot.
    - MultiBinary: 0 and 1.
    - Dict and Tuple: the members end to end, in the order of the space.

    is_member: Whether the space is a member of a Dict or Tuple.

    Raises InputError for other spaces, and for empty spaces.
    """
    match kind_of(space):
        case "Box" | "MultiBinary":
            return _size(space), _box_encoder(space)
        case "Discrete":
            return int(space.n), _one_hot_encoder(space, np.array([space.n], np.int64), int(space.start))
        # This condition only serves to raise the error of `_size` for an empty space; otherwise it is true.
        case "MultiDiscrete" if _size(space):
            sizes = space.nvec.ravel().astype(np.int64)
            return int(sizes.sum()), _one_hot_encoder(space, sizes, space.start.ravel().astype(np.int64))
        case "Dict" | "Tuple" if members_of(space):
            return _members_encoder(space, is_member)
    raise InputError("env.id", _OBSERVATIONS, repr(space), "A wrapper (env.wrappers) can turn others into these.")


def check_observation(space: Space, observation: Any) -> None:
    """Raise ValueError if an observation has another shape or type than its space, or a value outside the space.

    The values are checked in discrete spaces, and in 8-bit images, which have no fractions.

    Without this check, NumPy would broadcast an array of another shape. And a discrete value below the first one would
    become a negative index of the one-hot encoding, which counts from the end.
    """
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        for key, member in members_of(space):
            check_observation(member, member_of(space, observation, key))
        return
    try:
        values = np.asarray(observation)
    except ValueError:  # for example [0.5, np.zeros(1)]; NumPy's message does not name the shape of the space
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
    # If an 8-bit image has fractions, the environment has probably divided it by 255. The encoder would divide again.
    elif divisor_of(space) != 1 and values.dtype.kind == "f" and (values != np.floor(values)).any():
        fraction = values[values != np.floor(values)].flat[0]
        raise ValueError(f"{fraction:g} in a space of {space.dtype}, whose values are divided by {divisor_of(space)}")


def action_decoder(space: Space, action_scale: float) -> tuple[int, Decode]:
    """Return (A, decode), see `Decode`. Outputs should be in [-1, 1]. Each space has its own decoding:

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
            return _size(space), _box_decoder(space, action_scale)
        case "Discrete":
            start = int(space.start)
            return int(space.n), lambda outputs: start + np.argmax(outputs, axis=1)
        case "MultiDiscrete" if _size(space):  # as in `observation_encoder`, `_size` raises an error for an empty space
            return int(space.nvec.sum()), _multi_discrete_decoder(space)
        case "MultiBinary":
            shape, dtype = space.shape, space.dtype
            return _size(space), lambda outputs: (outputs > 0).astype(dtype).reshape(-1, *shape)
        case "Dict" | "Tuple" if members_of(space):
            return _members_decoder(space, action_scale)
    expected = "an action space of Box, Discrete, MultiDiscrete or MultiBinary, alone or in a Dict or Tuple"
    cure = "A gymnasium.ActionWrapper in the module of the environment can translate another one."
    raise InputError("env.id", expected, repr(space), cure)


def separate_actions(space: Space, actions: Any) -> list[Any]:
    """Return the decoded actions of n episodes as a list of n actions.

    actions: The result of `Decode`, in which a Dict or Tuple has an array [n, …] for each member.

    Discrete actions become Python integers, with which Gymnasium is fastest.
    """
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        lists = {key: separate_actions(member, actions[key]) for key, member in members_of(space)}
        rows = zip(*lists.values(), strict=True)  # the members of one action in each row
        return list(rows) if kind == "Tuple" else [dict(zip(lists, row, strict=True)) for row in rows]
    return list(actions.tolist() if kind == "Discrete" else actions)


def _size(space: Space) -> int:
    """Return the size of an observation or action of a space, in numbers. Raises InputError for an empty space."""
    size = int(np.prod(space.shape))
    if size == 0:
        raise InputError("env.id", "observations and actions that hold something", repr(space))
    return size


def divisor_of(space: Space) -> int:
    """Return the number by which the encoder divides observations: the largest bound of 8-bit images, otherwise 1."""
    is_image = kind_of(space) == "Box" and space.dtype == np.uint8
    return max(1, int(np.max(space.high))) if is_image else 1  # `max`, because the largest bound may be 0


def _box_encoder(space: Space) -> Encode:
    shape = space.shape
    is_flat = len(shape) == 1
    divisor = np.float32(divisor_of(space))

    def encode(observation: Any, row: Float32) -> None:
        values = np.asarray(observation)
        # A full check of each step would take long. So check only what quick tests suspect: another shape, which NumPy
        # would broadcast, and an image that the environment may have divided already.
        if values.shape != shape or (divisor != 1 and values.dtype.kind == "f"):
            check_observation(space, observation)
        row[:] = values if is_flat else values.reshape(-1)
        if divisor != 1:
            row /= divisor

    return encode


def _one_hot_encoder(space: Space, sizes: Any, start: Any) -> Encode:
    """Return the one-hot encoder of n discrete numbers.

    sizes: [n], the number of values of each number.
    start: The smallest value of each number, [n] or one for all.
    """
    offsets = np.cumsum(sizes) - sizes  # the first place of each number in the row
    # One (offset, size, first) for each number. For a few numbers, Python's integers are faster than arrays.
    layout = np.stack(np.broadcast_arrays(offsets, sizes, start), axis=1).tolist()

    def encode(observation: Any, row: Float32) -> None:
        row[:] = 0
        for (offset, size, first), number in zip(layout, np.asarray(observation).ravel().tolist(), strict=True):
            # A number outside its range could set a place of another number, and a float is no index.
            if not isinstance(number, int) or not 0 <= number - first < size:
                check_observation(space, observation)
            row[offset + number - first] = 1

    return encode


def _is_known(space: Space) -> bool:
    """Return whether `observation_encoder` takes a space: its kind and all its members are known, and none is empty."""
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        return bool(members_of(space)) and all(_is_known(member) for _, member in members_of(space))
    return kind in _KINDS and 0 not in space.shape


def _members_encoder(space: Space, is_member: bool) -> tuple[int, Encode]:
    """Return the size and the encoder of a Dict or Tuple. Raises InputError for a member without an encoder."""
    unknown = [(key, member) for key, member in members_of(space) if not _is_known(member)]
    known = [key for key, member in members_of(space) if _is_known(member) and isinstance(key, str)]
    # Suggest the wrapper only for the outermost Dict, because it does not look into members.
    if unknown and known and kind_of(space) == "Dict" and not is_member:
        unknown_key, unknown_member = unknown[0]
        got = f"{unknown_member!r}, the member {unknown_key!r} of a Dict"
        keys = json.dumps(known, ensure_ascii=False)
        cure = f'A wrapper leaves it out: env.wrappers=[{{name="FilterObservation", kwargs={{filter_keys={keys}}}}}].'
        raise InputError("env.id", _OBSERVATIONS, got, cure)
    size, members = _members(space, partial(observation_encoder, is_member=True))

    def encode_all(observation: Any, row: Float32) -> None:
        for key, columns, encode in members:
            encode(observation[key], row[columns])

    return size, encode_all


def _members(space: Space, coder: Callable[[Space], tuple[int, Any]]) -> tuple[int, list[tuple[Any, slice, Any]]]:
    """Return the size of a Dict or Tuple, in numbers; and for each member: its key, its columns, and its function.

    coder: `observation_encoder` or `action_decoder`, which returns the size and the function of a member.
    """
    members, size = [], 0
    for key, member in members_of(space):
        if not isinstance(key, str | int):  # run files hold the keys as JSON
            raise InputError("env.id", "a Dict whose keys are texts or integers", f"a Dict with the key {key!r}")
        member_size, code = coder(member)
        members.append((key, slice(size, size + member_size), code))
        size += member_size
    return size, members


class BoxMap(NamedTuple):
    """The map from network outputs [A] to the flat actions [A] of a Box.

    An action is centre + half · output, limited to [floor, ceiling]; each field is [A].
    """

    centre: Float64
    half: Float64
    floor: Float64
    ceiling: Float64


def box_map(space: Space, scale: float) -> BoxMap:
    """Return the map from network outputs to the actions of a Box. scale: the `action_scale` of `action_decoder`."""
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
    # Scale only ranges with two finite bounds: a bound that replaces an infinite one depends on the scale already.
    half = half * np.where(has_low & has_high, min(scale, 1.0), 1.0)
    if space.dtype.kind in "iu":
        # As float64, the largest 64-bit integer is rounded up to a number that does not fit into 64 bits.
        ceiling = np.minimum(ceiling, np.nextafter(float(np.iinfo(space.dtype).max) + 1, 0))
    return BoxMap(centre, half, floor, ceiling)


def is_rounded(space: Space) -> bool:
    """Return whether the actions of a Box are rounded, because they are integers or bools."""
    return np.dtype(space.dtype).kind in "biu"


def _box_decoder(space: Space, scale: float) -> Decode:
    centre, half, floor, ceiling = box_map(space, scale)
    shape, dtype = space.shape, space.dtype
    rounded = is_rounded(space)

    def decode(outputs: Float32) -> Any:
        if rounded:  # the result of casting NaN to an integer depends on the CPU
            outputs = np.where(np.isnan(outputs), np.float32(0), outputs)
        actions = np.minimum(np.maximum(centre + half * outputs, floor), ceiling)
        return (np.rint(actions) if rounded else actions).astype(dtype).reshape(-1, *shape)

    return decode


def _multi_discrete_decoder(space: Space) -> Decode:
    # One (begin, end) for each discrete number: the slice of its outputs.
    edges = list(pairwise(np.cumsum([0, *space.nvec.ravel()]).tolist()))
    start, shape, dtype = space.start.ravel(), space.shape, space.dtype

    def decode(outputs: Float32) -> Any:
        choices = np.stack([np.argmax(outputs[:, begin:end], axis=1) for begin, end in edges], axis=1)
        return (choices + start).astype(dtype).reshape(-1, *shape)

    return decode


def _members_decoder(space: Space, scale: float) -> tuple[int, Decode]:
    size, members = _members(space, partial(action_decoder, action_scale=scale))
    is_tuple = kind_of(space) == "Tuple"

    def decode_all(outputs: Float32) -> Any:
        actions = {key: decode(outputs[:, columns]) for key, columns, decode in members}
        return tuple(actions.values()) if is_tuple else actions

    return size, decode_all
