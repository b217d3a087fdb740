"""Between the spaces of Gymnasium and the flat float32 vectors of a network: encoders, decoders and checks."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from evolve.errors import FAILURES, InputError
from evolve.shapes import Float32

Encode = Callable[[Any, Float32], None]
Decode = Callable[[Float32], Any]


def quiet() -> None:
    """Silence Gymnasium's advice to authors of environments."""
    gymnasium.logger.min_level = gymnasium.logger.ERROR


def observation_encoder(space: gymnasium.Space[Any]) -> tuple[int, Encode]:
    """Return (O, encode): encode(observation, row) writes the flattened observation into row [O].

    Box is flattened (8-bit images are scaled to [0, 1]). Discrete and MultiDiscrete become one-hot, MultiBinary becomes
    0 and 1. Dict and Tuple become their members end to end, in the order of the space. Raises InputError for any other.
    """
    match space:
        case spaces.Box():
            return _size(space), _box_encoder(space)
        case spaces.MultiBinary():
            return _size(space), _encode_box
        case spaces.Discrete():
            return int(space.n), _one_hot(np.zeros(1, np.int64), int(space.start))
        case spaces.MultiDiscrete():
            sizes = space.nvec.ravel().astype(np.int64)
            return int(sizes.sum()), _one_hot(_offsets(sizes), space.start.ravel().astype(np.int64))
        case spaces.Dict():
            return _encode_members(dict(space.spaces))
        case spaces.Tuple():
            return _encode_members(dict(enumerate(space.spaces)))
    raise InputError("env.id", "an observation space that can be flattened", repr(space))


def check_observation(space: gymnasium.Space[Any], observation: Any) -> None:
    """Raise ValueError for an observation of another shape, or beyond the values of a discrete space.

    Without this check, NumPy would broadcast the first, and index the second from the end.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        members = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, member in members:
            check_observation(member, observation[key])
    elif isinstance(space, spaces.Discrete):
        if np.size(observation) != 1 or not 0 <= np.asarray(observation).item() - space.start < space.n:
            raise ValueError(f"{observation!r}, not one of {space.start} to {space.start + space.n - 1}")
    elif np.shape(observation) != space.shape:
        raise ValueError(f"{np.shape(observation)}, not {space.shape}")


def reset_fault(space: gymnasium.Space[Any], said: Any) -> str | None:
    """Return the way in which the result of `reset` breaks Gymnasium's interface, in words; None if it does not."""
    if not isinstance(said, tuple) or len(said) != 2:
        return f"reset must return (observation, info), but returned {_in_words(said)}"
    return _observation_fault(space, said[0], "reset")


def step_fault(space: gymnasium.Space[Any], said: Any) -> str | None:
    """Return the way in which the result of `step` breaks Gymnasium's interface, in words; None if it does not."""
    if not isinstance(said, tuple) or len(said) != 5:
        old = " (the interface of Gym before 0.26)" if isinstance(said, tuple) and len(said) == 4 else ""
        expected = "(observation, reward, terminated, truncated, info)"
        return f"step must return {expected}, but returned {_in_words(said)}{old}"
    observation, reward, *ends, _ = said
    if reward is None or np.shape(reward) != ():
        return f"the reward of step must be one number, not {_in_words(reward)}"
    for name, value in zip(("terminated", "truncated"), ends, strict=True):
        if np.size(value) != 1:
            return f"{name} of step must be one bool, not {_in_words(value)}"
    return _observation_fault(space, observation, "step")


def _observation_fault(space: gymnasium.Space[Any], observation: Any, method: str) -> str | None:
    try:
        check_observation(space, observation)
    except FAILURES as error:
        return f"the observation of {method} must fit {space}, but has {error}"
    return None


def _in_words(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def action_decoder(space: gymnasium.Space[Any], action_scale: float) -> tuple[int, Decode]:
    """Return (A, decode): decode(outputs [n, A] in [-1, 1]) gives the n actions.

    Box: [-1, 1] is stretched onto [low, high]; if `action_scale` is below 1, onto that share of it, in the middle. A
    side without a bound reaches `action_scale` from zero, or 2 · `action_scale` from the other bound. Discrete and
    MultiDiscrete: the index of the largest output, the first of equals. MultiBinary: whether the output is positive.
    Raises InputError for other spaces.
    """
    match space:
        case spaces.Box():
            return _size(space), _decode_box(space, action_scale)
        case spaces.Discrete():
            start = int(space.start)
            return int(space.n), lambda outputs: start + np.argmax(outputs, axis=1)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum()), _decode_multi_discrete(space)
        case spaces.MultiBinary():
            shape = space.shape
            dtype = space.dtype
            return _size(space), lambda outputs: (outputs > 0).astype(dtype).reshape(-1, *shape)
    raise InputError("env.id", "a Box, Discrete, MultiDiscrete or MultiBinary action space", repr(space))


def separate(space: gymnasium.Space[Any], actions: Any) -> list[Any]:
    """Return n decoded actions as a list; Discrete actions as plain integers, with which Gymnasium is fastest."""
    return list(actions.tolist() if isinstance(space, spaces.Discrete) else actions)


def _size(space: gymnasium.Space[Any]) -> int:
    """Return the number of numbers in an element of a space. Raises InputError for 0."""
    size = int(np.prod(space.shape if space.shape is not None else (1,)))
    if size == 0:
        raise InputError("env.id", "observations and actions that hold something", repr(space))
    return size


def _offsets(sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([[0], np.cumsum(sizes)[:-1]])


def _box_encoder(space: spaces.Box) -> Encode:
    if space.dtype == np.uint8:
        return _encode_image
    return _encode_vector if len(space.shape) == 1 else _encode_box


def _encode_vector(observation: Any, row: Float32) -> None:
    row[:] = observation


def _encode_box(observation: Any, row: Float32) -> None:
    row[:] = np.asarray(observation).reshape(-1)


def _encode_image(observation: Any, row: Float32) -> None:
    row[:] = observation.reshape(-1)
    row /= np.float32(255)


def _one_hot(offsets: np.ndarray[Any, Any], start: Any) -> Encode:
    def encode(observation: Any, row: Float32) -> None:
        row[:] = 0
        row[offsets + (np.asarray(observation).reshape(-1) - start)] = 1

    return encode


def _encode_members(members: dict[Any, gymnasium.Space[Any]]) -> tuple[int, Encode]:
    """Return the size and the encoder of a space that consists of other spaces."""
    parts = []
    begin = 0
    for key, space in members.items():
        size, encode = observation_encoder(space)
        parts.append((key, slice(begin, begin + size), encode))
        begin += size

    def encode_all(observation: Any, row: Float32) -> None:
        for key, place, encode in parts:
            encode(observation[key], row[place])

    return begin, encode_all


def _decode_box(space: spaces.Box, scale: float) -> Decode:
    """Return the decoder of a Box, see `action_decoder`."""
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    floor = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 2 * scale, -scale))
    ceiling = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 2 * scale, scale))
    # Halved before adding, so that the largest finite bounds do not overflow.
    centre, half = floor / 2 + ceiling / 2, ceiling / 2 - floor / 2
    half = half * np.where(np.isfinite(low) & np.isfinite(high), min(scale, 1.0), 1.0)
    if space.dtype == np.float32 and not centre.any() and (half == 1).all():
        shape = space.shape
        # Adding 0 turns -0 into 0, as `decode` does below.
        zero = np.float32(0)
        if len(shape) == 1:
            return lambda outputs: outputs + zero
        return lambda outputs: (outputs + zero).reshape(-1, *shape)
    whole = np.issubdtype(space.dtype, np.integer)
    shape = space.shape
    dtype = space.dtype

    def decode(outputs: Float32) -> Any:
        actions = np.minimum(np.maximum(centre + half * outputs, floor), ceiling)
        return (np.rint(actions) if whole else actions).astype(dtype).reshape(-1, *shape)

    return decode


def _decode_multi_discrete(space: spaces.MultiDiscrete) -> Decode:
    sizes = space.nvec.ravel()
    start = space.start.ravel()
    edges = [(int(a), int(a + n)) for a, n in zip(_offsets(sizes), sizes, strict=True)]
    shape = space.shape
    dtype = space.dtype

    def decode(outputs: Float32) -> Any:
        choices = np.stack([np.argmax(outputs[:, a:b], axis=1) for a, b in edges], axis=1)
        return (choices + start).astype(dtype).reshape(-1, *shape)

    return decode
