"""Metrics from the info of an episode's last step: their types, in every engine, and metrics that are missing."""

import math

import numpy as np
import pytest

from evolve.config import EnvOptions
from evolve.environments import check_metrics, decode_metrics, make
from evolve.environments.engine import encode_metrics
from evolve.environments.function_task import FunctionEnv
from evolve.errors import InputError

SLOTS = np.arange(2)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (True, np.bool_, True),
        (np.bool_(False), np.bool_, False),
        (-(2**63), np.int64, -(2**63)),
        (np.uint8(200), np.int64, 200),
        (np.array(7), np.int64, 7),
        (0.1, np.float64, 0.1),
        (np.float32(0.1), np.float64, float(np.float32(0.1))),
        (-math.inf, np.float64, -math.inf),
    ],
)
def test_a_metric_keeps_its_type_and_bits(value, dtype, expected):
    found = decode_metrics(encode_metrics({"x": value, "y": 0}, ["x"])[None], ["x"])["x"]
    assert (found.dtype, found.tolist()) == (dtype, [expected])


def test_every_nan_has_the_same_bits():
    one, other = (encode_metrics({"x": value}, ["x"]) for value in (np.nan, np.copysign(np.nan, -1.0)))
    assert (one == other).all()


@pytest.mark.parametrize("value", [None, "5", [1.0], np.zeros(1), 1j, 2**63, np.uint64(2**63), {"a": 1}])
def test_a_metric_is_one_number(value):
    with pytest.raises(InputError, match=r"^env.metrics: expected a number far in the info of the last step"):
        encode_metrics({"far": value}, ["far"])


def test_a_missing_metric_names_what_there_is():
    with pytest.raises(InputError, match=r"a number x_positon .* Did you mean x_position\?"):
        encode_metrics({"x_position": 1.0, "y": 1.0}, ["x_positon"])
    for info in ({}, None):
        with pytest.raises(InputError, match=r"got an empty info. To play without metrics: env.metrics=\[\]"):
            encode_metrics(info, ["far"])


class Unreadable:
    """Not an array yet, like a tensor of PyTorch that requires gradients."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array")


def test_a_value_that_is_no_array_does_not_hide_that_a_metric_is_missing():
    with pytest.raises(InputError, match=r"a number far .* Did you mean fare\?"):
        encode_metrics({"loss": Unreadable(), "fare": 1.0}, ["far"])


def test_a_column_has_the_widest_type_in_it():
    rows = [{"x": True}, {"x": 3}, {"x": 0.5}]
    encoded = [encode_metrics(row, ["x"]) for row in rows]
    nothing = np.zeros((2, 1), np.int64)  # an episode that failed or was not played
    for count, dtype, expected in ((1, np.bool_, [True]), (2, np.int64, [1, 3]), (3, np.float64, [1.0, 3.0, 0.5])):
        found = decode_metrics(np.stack([*encoded[:count], nothing]), ["x"])["x"]
        assert found.dtype == dtype
        assert found[:-1].tolist() == expected
        assert math.isnan(found[-1]) if dtype is np.float64 else found[-1] == 0


@pytest.mark.parametrize("wrong", [("a", "a"), ("a/b",), ("..",), ("",), ("a\n",)])
def test_names_are_those_of_datasets(wrong):
    with pytest.raises(ValueError, match=r"different names|at least 1"):
        EnvOptions(metrics=wrong)


def last_metrics(engine):
    """Play both slots until their episodes have ended; return the metrics of each."""
    observations = np.zeros((2, engine.observation_size), np.float32)
    engine.reset(SLOTS, np.array([3, 4]), observations)
    live, found = SLOTS, {}
    while len(live):
        _, ended = engine.step(live, np.full((len(live), engine.action_size), 0.1, np.float32), observations)
        for slot, row in zip(live[ended].tolist(), engine.metrics(live[ended]), strict=True):
            found[slot] = {name: value.item() for name, value in decode_metrics(row, engine.metric_names).items()}
        live = live[~ended]
    return found


def test_gymnasium_reports_each_slot():
    engine = make(EnvOptions(id="toys:Measured-v0", metrics=("reached", "distance", "steps")), slots=2)
    found = last_metrics(engine)
    assert [found[slot]["steps"] for slot in (0, 1)] == [found[slot]["steps"] for slot in found]
    assert {type(value) for value in found[0].values()} == {bool, float, int}
    assert found[0]["distance"] != found[1]["distance"]


def test_only_numbers_are_proposed_in_place_of_a_missing_metric():
    info = {"episode": {"r": 1.0}, "distance": np.float64(2.0), "label": "x", "path": [1, 2]}
    with pytest.raises(InputError, match=r"got an info without it\. Known: distance\. To play without"):
        encode_metrics(info, ["episode.r"])


def test_envpool_reports_each_slot():
    pytest.importorskip("envpool")
    engine = make(EnvOptions(id="CartPole-v1", engine="envpool", metrics=("elapsed_step",)), slots=2)
    check_metrics(engine)
    found = last_metrics(engine)
    assert len(found) == 2
    assert all(isinstance(each["elapsed_step"], int) and each["elapsed_step"] > 5 for each in found.values())
    with pytest.raises(InputError, match=r"env.metrics: expected a number angle"):
        check_metrics(make(EnvOptions(id="CartPole-v1", engine="envpool", metrics=("angle",)), slots=2))


def test_exact_tasks_have_none():
    with pytest.raises(
        InputError, match=r"env.metrics: expected only metrics mean_observation_N with exact.*env.engine=\"gymnasium\""
    ):
        make(EnvOptions(id="CartPole-v1", engine="exact", metrics=("far",)), slots=1)


def test_a_function_may_return_metrics():
    def episode(random):
        yield [0.0]
        return 2.0, {"errors": 3}

    env = FunctionEnv(episode, 1, 1, "Errors-v0")
    env.reset(seed=1)
    assert env.step(np.zeros(1, np.float32))[1:] == (2.0, True, False, {"errors": 3})


def test_the_metrics_of_one_seed_repeat():
    with pytest.raises(InputError, match=r"metrics that are equal in two episodes.* got seconds"):
        check_metrics(make(EnvOptions(id="toys:Measured-v0", metrics=("steps", "seconds")), slots=1))
    with pytest.raises(InputError, match=r"a number distant .* Did you mean distance\?"):
        check_metrics(make(EnvOptions(id="toys:Measured-v0", metrics=("distant",)), slots=1))
