"""Tasks that are plain functions: the documented example runs, and mistakes of functions are reported plainly."""

import re
import warnings

import gymnasium
import numpy as np
import pytest
from conftest import ROOT

from evolve import store
from evolve.config import Config, parse
from evolve.environments.function_task import FunctionEnv, register_task
from evolve.errors import InputError
from evolve.training.experiment import prepare


def test_the_documented_task_is_learned_and_verified(call, command, monkeypatch, tmp_path):
    page = (ROOT / "docs/tutorial-task.md").read_text()
    code = re.search(r"^```python title=\"hill.py\"\n(.*?)```", page, re.S | re.M)[1]
    (tmp_path / "hill.py").write_text(code)
    words = re.search(r"evolve run (-e hill:Hill-v0 .*)", page)[1].split()
    monkeypatch.syspath_prepend(tmp_path)
    call("run", *words, "-p", 20, "--set", "held_out_episodes=5", "-o", "runs").ok()
    best = [record.champion_fitness for record in store.read(tmp_path / "runs" / "seed-0.h5").records]
    assert best[-1] > best[0] / 3  # returns are negative, so a third of the distance
    command("verify", "runs/seed-0.h5", ranks=2, PYTHONPATH=f"{ROOT}:{tmp_path}").ok()


def echo(random):
    target = random.uniform(-1, 1)
    action = yield [target]
    action = yield action[:1]
    return 1 - abs(float(action[0]) - target)


def test_an_episode_is_a_call():
    env = FunctionEnv(echo, 1, 2, "Echo-v0")
    target = env.reset(seed=3)[0]
    assert target.shape == (1,)
    seen, reward, terminated, _, _ = env.step(np.array([0.25, 0.0], np.float32))
    assert (seen.tolist(), reward, terminated) == ([0.25], 0.0, False)
    _, reward, terminated, _, _ = env.step(np.array([0.5, 0.0], np.float32))
    assert (reward, terminated) == (pytest.approx(1 - abs(0.5 - target[0])), True)
    assert env.reset(seed=3)[0].tobytes() == target.tobytes()  # the same chance again
    assert env.reset(seed=4)[0].tobytes() != target.tobytes()


def nothing(random):
    yield [0.0]


def test_what_goes_wrong_is_raised():
    env = FunctionEnv(nothing, 1, 1, "Nothing-v0")
    env.reset(seed=0)
    with pytest.raises(InputError, match="one number to be returned"):
        env.step(np.zeros(1, np.float32))
    env = FunctionEnv(lambda random: (x for x in [[1.0, 2.0]]), 1, 1, "Two-v0")
    with pytest.raises(InputError, match=r"each yield to give 1 number, as registered .*got 2: "):
        env.reset(seed=0)


def named(random, name, episode=1, observation_size=1):
    yield [episode]
    return float(observation_size)


def test_a_function_may_have_arguments_of_any_name():
    env = FunctionEnv(named, 1, 1, "Named-v0", name="a", episode=2, observation_size=3)
    assert env.reset(seed=0)[0].tolist() == [2.0]
    assert env.step(np.zeros(1, np.float32))[1] == 3.0


def test_a_notebook_registers_its_task_again_without_a_warning():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            register_task("Again-v0", echo, 1, 2)
            register_task("Again-v0", named, 1, 1)
        assert gymnasium.make("Again-v0", name="a").unwrapped.action_space.shape == (1,)
    finally:
        gymnasium.registry.pop("Again-v0")


def two(random):
    yield [1.0, 2.0]
    return 0.0


def nothing_returned(random):
    yield [1, 2, 3]


def no_yield(random):
    return 1.5


def hasty(random):
    if random is None:
        yield [1, 2, 3]
    return 1.5


def an_array(random):
    yield [1, 2, 3]
    return np.zeros(2)


def a_pair(random):
    yield [1, 2, 3]
    return 0.5, 7


def a_huge_observation(random):
    yield [10**400, 2, 3]
    return 0.0


def a_huge_return(random):
    yield [1, 2, 3]
    return 10**400


def words(random):
    yield "left"
    return 0.0


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (two, "expected each yield to give 3 numbers, as registered (observation_size), got 2: [1.0, 2.0]."),
        (
            nothing_returned,
            "expected one number to be returned, the episode's return, got None. End the function with: ret",
        ),
        (no_yield, "expected a function that yields observations, got one without a yield, which returned 1.5."),
        (hasty, "expected an observation to be yielded before it returns, got no observation."),
        (an_array, "expected one number to be returned, the episode's return, got array([0., 0.])."),
        (a_pair, "expected one number to be returned, the episode's return, got (0.5, 7)."),
        (a_huge_observation, "expected each yield to give 3 numbers, as registered (observation_size), got [1000"),
        (a_huge_return, "expected one number to be returned, the episode's return, got 10000"),
        (words, "expected each yield to give 3 numbers, as registered (observation_size), got left."),
    ],
)
def test_a_mistake_in_a_task_is_said_plainly_before_a_run(episode, message):
    register_task("Mistaken-v0", episode, observation_size=3, action_size=1)
    try:
        with pytest.raises(InputError) as wrong:
            prepare(parse(Config, {"env": {"id": "Mistaken-v0"}}))
    finally:
        gymnasium.registry.pop("Mistaken-v0")
    assert str(wrong.value).startswith(f"{episode.__module__}.{episode.__name__} (Mistaken-v0): {message}")


def test_a_mistake_that_shows_late_is_said_without_a_traceback(command, tmp_path):
    (tmp_path / "late.py").write_text(
        "from evolve.environments import register_task\n"
        "def late(random):\n    for _ in range(60):\n        yield [0.0]\n"
        "register_task('Late-v0', late, observation_size=1, action_size=1)\n"
    )
    done = command("run", "-e", "late:Late-v0", "-p", 2, "-r", 1, "-g", 1, "-d", 2)
    assert done.code == 1
    assert "\nlate.late (Late-v0): expected one number to be returned, the episode's return, got None. " in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("F-v0", 5, 1, 1), "episode: expected a generator function, got 5"),
        (("F-v0", two, "2", 1), "observation_size: expected a whole number, at least 1, got '2'"),
        (("F-v0", two, 0, 1), "observation_size: expected a whole number, at least 1, got 0"),
        (("F-v0", two, 1, 1.5), "action_size: expected a whole number, at least 1, got 1.5"),
        (("no name!", two, 1, 1), "name: expected a name that Gymnasium can register, as \"Xor-v0\", got 'no name!'"),
        (
            ("it:F-v0", two, 1, 1),
            "name: expected a name without a colon, got 'it:F-v0'. The module belongs to env.id",
        ),
        (("CartPole-v1", two, 1, 1), "name: expected a name that Gymnasium does not know, got CartPole-v1, another"),
        (
            ("CartPole", two, 1, 1),
            "name: expected a name that Gymnasium can register, as \"Xor-v0\", got 'CartPole' (RegistrationError: ",
        ),
        (([7], two, 1, 1), 'name: expected a name that Gymnasium can register, as "Xor-v0", got [7]'),
        ((7, two, 1, 1), 'name: expected a name that Gymnasium can register, as "Xor-v0", got 7'),
    ],
)
def test_what_cannot_be_registered_is_refused_at_once(arguments, message):
    with pytest.raises(InputError) as wrong:
        register_task(*arguments)
    assert str(wrong.value).startswith(message)
