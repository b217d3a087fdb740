import json
import math
import tomllib
from fractions import Fraction

import numpy as np
import pytest
from gymnasium import spaces

from evolve.environments.gymnasium_engine import reset_fault, step_fault
from evolve.environments.spaces import (
    Spaces,
    action_decoder,
    check_observation,
    from_json,
    observation_encoder,
    separate_actions,
    to_json,
)
from evolve.errors import InputError


def encode(space, observation):
    size, encoder = observation_encoder(space)
    row = np.full(size, 99, np.float32)
    encoder(observation, row)
    return row.tolist()


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (spaces.Box(-1, 1, (2, 2)), np.array([[1, 2], [3, 4]], np.float32), [1, 2, 3, 4]),
        (spaces.Box(-1, 1, ()), np.float32(0.5), [0.5]),
        (spaces.Box(0, 255, (1, 3), np.uint8), np.array([[0, 51, 255]], np.uint8), [0, float(np.float32(0.2)), 1]),
        (spaces.Box(0, 255, (1, 3), np.uint8), [[0, 51, 255]], [0, float(np.float32(0.2)), 1]),
        (spaces.Box(0, 1, (3,), np.uint8), np.array([0, 1, 1], np.uint8), [0, 1, 1]),
        (spaces.Box(0, np.array([0, 2, 4]), (3,), np.uint8), np.array([0, 1, 4], np.uint8), [0, 0.25, 1]),
        (spaces.Box(0, 0, (2,), np.uint8), np.array([0, 0], np.uint8), [0, 0]),
        (spaces.Discrete(4), 2, [0, 0, 1, 0]),
        (spaces.Discrete(3, start=-1), np.int64(-1), [1, 0, 0]),
        (spaces.Discrete(3, start=-1), np.uint8(1), [0, 0, 1]),
        (spaces.Discrete(3), np.uint64(1), [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2], np.uint64), [0, 1, 0, 0, 1]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (spaces.MultiDiscrete([2, 3], start=[0, 4]), np.array([0, 4]), [1, 0, 1, 0, 0]),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,)))), (1, np.array([0.25])), [0, 1, 0.25]),
        (spaces.Dict(b=spaces.Discrete(2), a=spaces.Box(-1, 1, (2,))), {"a": np.array([3, 4]), "b": 0}, None),
    ],
)
def test_observations_are_flattened(space, observation, expected):
    row = encode(space, observation)
    if expected is None:  # members in the space's own order
        parts = {"a": [3, 4], "b": [1, 0]}
        expected = [v for key in space.spaces for v in parts[key]]
    assert row == expected


def decode(space, outputs, scale=1.0):
    size, decoder = action_decoder(space, scale)
    outputs = np.array(outputs, np.float32)
    assert outputs.shape[1] == size
    return decoder(outputs)


def box(low, high, dtype=np.float32):
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


INF = np.inf


@pytest.mark.parametrize(
    ("space", "outputs", "expected"),
    [
        (box([-1, -1], [1, 1]), [0.3, -0.7], [0.3, -0.7]),
        (box([-2], [2]), [0.5], [1]),
        (box([0], [1]), [0.0], [0.5]),  # asymmetric: the middle of the interval
        (box([0, -3], [1, 1]), [-1, 1], [0, 1]),
        (box([-INF], [INF]), [0.5], [1.0]),  # unbounded: ± action_scale, here 2
        (box([1], [INF]), [-1], [1]),  # half bounded: starts at the bound
        (box([1], [INF]), [1], [5]),
        (box([-INF], [3]), [-1], [-1]),
        (box([0], [10], np.int32), [0.33], [7]),
        (box([0] * 3, [1] * 3, np.bool_), [-0.2, 0.0, 0.2], [False, False, True]),
        (box([0] * 3, [10] * 3, np.int32), [-1, np.nan, 1], [0, 5, 10]),
        (spaces.Box(-(2**63), 2**63 - 1, (3,), np.int64), [-1, 0, 1], [-(2**63), 0, 2**63 - 1]),
        (spaces.Box(-INF, INF, (3,), np.int64), [-1, 0, 1], [-2, 0, 2]),
        (spaces.Box(np.array([0, -INF]), np.array([INF, 5]), (2,), np.int32), [1, -1], [4, 1]),
        (spaces.Box(0, 2**64 - 1, (2,), np.uint64), [-1, 1], [0, 2**64 - 1]),
    ],
)
def test_box_actions_are_stretched_onto_the_interval(space, outputs, expected):
    (action,) = decode(space, [outputs], scale=2.0)
    assert action.dtype == space.dtype
    assert action == pytest.approx(np.array(expected), rel=1e-6)
    assert space.contains(action)


@pytest.mark.parametrize(
    ("space", "outputs", "expected"),
    [
        (box([-1, -1], [1, 1]), [1, -0.5], [0.5, -0.25]),
        (box([0], [4]), [1], [3]),
        (box([-INF, -2], [INF, 2]), [1, 1], [0.5, 1]),
        (box([1], [INF]), [1], [2]),
    ],
)
def test_actions_may_keep_to_the_middle_of_their_range(space, outputs, expected):
    (action,) = decode(space, [outputs], scale=0.5)
    assert action == pytest.approx(np.array(expected), rel=1e-6)


@pytest.mark.parametrize(("low", "high"), [(-INF, INF), (0, INF), (-INF, 5)])
def test_a_large_scale_does_not_exceed_an_integer_type(low, high):
    space = spaces.Box(low, high, (3,), np.int8)
    (action,) = decode(space, [[-1, 0.5, 1]], scale=1000.0)
    assert action[[0, 2]].tolist() == [space.low[0], space.high[0]]
    assert space.contains(action)


def test_symmetric_unit_box_passes_outputs_through_to_the_bit():
    outputs = np.random.Generator(np.random.Philox(0)).uniform(-1, 1, (50, 4)).astype(np.float32)
    assert np.array_equal(decode(box([-1] * 4, [1] * 4), outputs), outputs)


def test_largest_bounds_do_not_overflow():
    top = np.finfo(np.float32).max
    space = box([-top], [top])
    assert all(np.isfinite(a) for a in decode(space, [[-1], [0], [1]]).ravel())


def test_discrete_actions_are_integers():
    # In the 2020 script discrete actions received floats.
    space = spaces.Discrete(3, start=5)
    actions = separate_actions(space, decode(space, [[0, 1, 0], [2, 2, 1], [-1, -1, 0]]))
    assert actions == [6, 5, 7]
    assert all(type(a) is int for a in actions)


def test_multi_discrete_and_multi_binary():
    space = spaces.MultiDiscrete([2, 3], start=[1, 0])
    assert decode(space, [[0, 1, 5, 6, 7], [1, 0, 9, 9, 9]]).tolist() == [[2, 2], [1, 0]]
    grid = spaces.MultiDiscrete([[2, 2], [2, 2]])
    assert decode(grid, [[0, 1, 1, 0, 0, 1, 1, 0]]).tolist() == [[[1, 0], [1, 0]]]
    bits = spaces.MultiBinary((2, 2))
    (action,) = decode(bits, [[0.5, -0.5, 0.0, 1.0]])
    assert action.tolist() == [[1, 0], [0, 1]]
    assert bits.contains(action)


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (2, 0)), spaces.MultiDiscrete(np.zeros(0, np.int64))])
def test_empty_spaces_are_refused(space):
    for coder in (observation_encoder, lambda space: action_decoder(space, 1.0)):
        with pytest.raises(InputError, match="expected observations and actions that hold something"):
            coder(space)


@pytest.mark.parametrize("key", [(0, 1), np.int64(1)])
def test_keys_that_json_cannot_hold_are_refused(key):
    for coder in (observation_encoder, lambda space: action_decoder(space, 1.0)):
        with pytest.raises(InputError, match="keys are texts or integers, got a Dict with the key"):
            coder(spaces.Dict({key: spaces.Discrete(2)}))


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Dict(a=spaces.Text(3)), spaces.Dict({}), spaces.Tuple(())])
def test_other_observation_spaces_are_refused(space):
    with pytest.raises(InputError, match=r"expected non-empty observations of Box.*, got (Text|Dict\(\)|Tuple\(\))"):
        observation_encoder(space)


@pytest.mark.parametrize(
    "other",
    [
        spaces.Text(3),
        spaces.Dict(image=spaces.Discrete(2), words=spaces.Text(3)),
        spaces.Box(0, 1, (0,)),
        spaces.Dict(),
    ],
)
def test_a_wrapper_can_leave_out_a_member_that_is_refused(other):
    space = spaces.Dict(image=spaces.Box(0, 1, (2,)), mission=other, view=spaces.Discrete(4))
    with pytest.raises(
        InputError, match=r"got .*, the member 'mission' of a Dict\. A wrapper leaves it out: "
    ) as refused:
        observation_encoder(space)
    # The cure is a setting as TOML writes it, and it works.
    advised = tomllib.loads(str(refused.value).partition("out: env.")[2].rstrip("."))
    assert advised == {"wrappers": [{"name": "FilterObservation", "kwargs": {"filter_keys": ["image", "view"]}}]}
    assert observation_encoder(spaces.Dict({key: space[key] for key in ("image", "view")}))[0] == 6


@pytest.mark.parametrize("around", [lambda inner: spaces.Dict(x=inner), lambda inner: spaces.Tuple([inner])])
def test_no_wrapper_leaves_out_a_member_of_a_member(around):
    with pytest.raises(InputError, match=r"got Text\(.*env\.wrappers") as refused:
        observation_encoder(around(spaces.Dict(words=spaces.Text(3), view=spaces.Discrete(2))))
    assert "FilterObservation" not in str(refused.value)


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (spaces.Discrete(3, start=-1), -2),
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3), 1.0),
        (spaces.Discrete(3), "one"),
        (spaces.Discrete(3), np.array([1, 2])),
        (spaces.MultiDiscrete([3, 3]), np.array([-1, 1])),  # would be the last place of the second
        (spaces.MultiDiscrete([3, 3]), np.array([4, 1])),  # would be a place of the second
        (spaces.MultiDiscrete([3, 3], start=[1, 0]), [0, 2]),
        (spaces.MultiDiscrete([3, 3]), np.array([1.0, 2.0])),
        (spaces.Tuple((spaces.MultiDiscrete([2]),)), (np.array([2]),)),
    ],
)
def test_values_outside_a_discrete_space_are_refused(space, observation):
    with pytest.raises(ValueError, match=r"outside the integers|not an integer|the shape"):
        check_observation(space, observation)
    with pytest.raises(
        ValueError, match=r"outside the integers|not an integer|the shape|is longer|is shorter"
    ):  # in later steps, too
        encode(space, observation)


def test_an_observation_that_is_no_array_is_described_in_plain_words():
    with pytest.raises(ValueError, match=r"^parts of different shapes, not \(2,\)$"):
        check_observation(spaces.Box(-1, 1, (2,)), [0.5, np.zeros(1)])


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (spaces.Box(-1, 1, (4,)), np.float32(0.5)),  # would be broadcast
        (spaces.Box(-1, 1, (4,)), [0.5]),
        (spaces.Box(-1, 1, (2, 2)), np.zeros((1, 1))),
        (spaces.Box(-1, 1, (2, 3)), np.zeros((3, 2))),
        (spaces.Box(0, 255, (2, 2), np.uint8), np.zeros(4, np.uint8)),
        (spaces.MultiBinary(3), 1),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), {"a": np.zeros(1)}),
    ],
)
def test_an_observation_of_another_shape_is_refused_in_every_step(space, observation):
    with pytest.raises(ValueError, match="the shape"):
        encode(space, observation)


def test_an_image_that_was_divided_already_is_refused():
    space = spaces.Box(0, 255, (2,), np.uint8)
    with pytest.raises(ValueError, match=r"0\.5 in a space of uint8, whose values are divided by 255"):
        encode(space, np.array([1.0, 0.5]))
    assert encode(space, np.array([51.0, 255.0])) == [np.float32(0.2), 1.0]


MEMBERS = spaces.Dict(
    jump=spaces.Discrete(2, start=3),
    move=spaces.Tuple((spaces.Box(-2, 2, (2,), np.float32), spaces.MultiBinary(1))),
)


def test_each_member_of_a_dict_or_tuple_reads_its_own_outputs():
    outputs = [[0, 1, 0.5, -1, 0.1], [1, 0, 0, 0, -0.1]]
    batch = decode(MEMBERS, outputs, scale=1.0)
    assert batch["jump"].tolist() == [4, 3]
    moves, bits = batch["move"]
    assert moves.tolist() == [[1, -2], [0, 0]]
    assert bits.tolist() == [[1], [0]]
    actions = separate_actions(MEMBERS, batch)
    assert [action["jump"] for action in actions] == [4, 3]
    assert type(actions[0]["jump"]) is int
    assert all(MEMBERS.contains({**action, "jump": np.int64(action["jump"])}) for action in actions)
    stored = from_json(json.loads(json.dumps(to_json(MEMBERS))))
    again = separate_actions(stored, decode(stored, outputs))
    assert repr(again) == repr(actions)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ({"type": "Discrete", "n": 2, "start": 0}, {"start": math.inf}),
        ({"type": "MultiDiscrete", "shape": [1], "dtype": "int64", "nvec": [2], "start": [0]}, {"start": [2**70]}),
        ({"type": "Box", "shape": [1], "dtype": "float32", "low": -1, "high": 1}, {"low": -(10**400)}),
    ],
)
def test_numbers_beyond_64_bits_damage_a_space(kind, damage):
    whole = {"observation": kind, "action": kind}
    assert Spaces.from_json(whole).to_json()["action"]["type"] == kind["type"]
    for part in whole:
        with pytest.raises(ValueError, match=r"too large|infinity"):
            Spaces.from_json(whole | {part: kind | damage})


@pytest.mark.parametrize(
    "space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2)), spaces.Dict(a=spaces.Text(3)), spaces.Tuple(())]
)
def test_other_action_spaces_are_refused_with_the_cure(space):
    with pytest.raises(InputError, match=r"expected an action space of Box, Discrete.*ActionWrapper"):
        action_decoder(space, 1.0)


THREE = spaces.Box(-1, 1, (3,), np.float32)
SEEN = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ((SEEN, 1.0, False, False, {}), None),
        ((SEEN, np.float64(1), np.bool_(0), np.array([False]), {}), None),
        ((SEEN, 1.0, False, {}), "4 values"),
        (None, "None"),
        ((SEEN, np.ones(2), False, False, {}), "reward"),
        ((SEEN, np.ones(1), False, False, {}), "reward"),
        ((SEEN, None, False, False, {}), "reward"),
        ((SEEN, {"a": 1.0}, False, False, {}), "reward"),
        ((SEEN, 1 + 1j, False, False, {}), "reward"),
        ((SEEN, np.complex128(1), False, False, {}), "reward"),
        ((SEEN, Fraction(1, 2), {"a": False}, False, {}), "terminated"),
        ((SEEN, [[1], [1, 2]], False, False, {}), "reward"),
        ((SEEN, 1.0, np.array([True, False]), False, {}), "terminated"),
        ((SEEN, 1.0, False, [], {}), "truncated"),
        ((SEEN, 1.0, False, [[1], [1, 2]], {}), "truncated"),
        ((np.zeros(4), 1.0, False, False, {}), r"(4,), not (3,)"),
        ((np.zeros((3, 1)), 1.0, False, False, {}), r"(3, 1), not (3,)"),
        (({"a": 1}, 1.0, False, False, {}), "observation"),
        ((SEEN + 1j, 1.0, False, False, {}), "complex"),
        ((["0", "1", "2"], 1.0, False, False, {}), "<U1"),
    ],
)
def test_a_step_that_breaks_the_interface_is_described(said, named):
    fault = step_fault(THREE, said)
    assert fault is None if named is None else named in fault


@pytest.mark.parametrize(
    ("said", "named"), [((SEEN, {}), None), (SEEN, "shape (3,)"), ((SEEN,), "1 values"), ((np.zeros(2), {}), "(2,)")]
)
def test_a_reset_that_breaks_the_interface_is_described(said, named):
    fault = reset_fault(THREE, said)
    assert fault is None if named is None else named in fault


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3)),
        spaces.Box(np.array([-1.5, -INF], np.float32), np.array([0.1, INF], np.float32)),
        spaces.Box(0, 255, (2, 2, 1), np.uint8),
        spaces.Box(-(2**62), 2**62, (1,), np.int64),
        spaces.Box(-INF, INF, (2,), np.int32),
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -1]]),
        spaces.MultiBinary((2, 2)),
        spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple((spaces.Box(-1, 1, ()), spaces.MultiBinary(1)))),
    ],
)
def test_a_space_survives_json(space):
    stored = from_json(json.loads(json.dumps(to_json(space), allow_nan=False)))
    assert to_json(stored) == to_json(space)
    space.seed(1)
    for _ in range(5):
        observation = space.sample()
        check_observation(stored, observation)
        assert encode(stored, observation) == encode(space, observation)
    if not isinstance(space, spaces.Dict):
        size, decoder = action_decoder(space, 0.7)
        outputs = np.random.default_rng(0).uniform(-1, 1, (9, size)).astype(np.float32)
        theirs = action_decoder(stored, 0.7)[1](outputs)
        assert np.asarray(decoder(outputs)).dtype == np.asarray(theirs).dtype
        assert np.array_equal(decoder(outputs), theirs)
