"""Randomized arguments: their distributions, the environments that get them, and those that cannot."""

import math

import gymnasium
import numpy as np
import pytest
import toys
from gymnasium.envs.classic_control import PendulumEnv

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.exact import Draws, exact_task
from evolve.environments.function_task import register_task
from evolve.environments.randomization import draw, draw_tables
from evolve.environments.rendering import GYMNASIUM_INDICES
from evolve.errors import InputError
from evolve.numerics import native
from evolve.numerics.portable import exp_float64
from evolve.numerics.streams import Stream

SEEDS = np.arange(4000)
EACH = {
    "a": {"uniform": [0.4, 0.6]},
    "b": {"log_uniform": [0.5, 50.0]},
    "c": {"integers": [-1, 2]},
    "d": {"choice": ["x", 1.5, True]},
}
RANDOMIZED = {
    "CartPole-v1": {
        "length": {"uniform": [0.2, 1.0]},
        "masspole": {"log_uniform": [0.05, 2.0]},
        "masscart": {"uniform": [0.5, 2.0]},
        "gravity": {"integers": [5, 20]},
        "force_mag": {"choice": [5, 10.0]},
    },
    "MountainCar-v0": {"force": {"uniform": [0.0005, 0.002]}, "goal_velocity": {"uniform": [0.0, 0.02]}},
    "MountainCarContinuous-v0": {"power": {"uniform": [0.001, 0.003]}, "goal_velocity": {"uniform": [0.0, 0.02]}},
    "Pendulum-v1": {"g": {"uniform": [5.0, 15.0]}, "m": {"uniform": [0.5, 2.0]}, "l": {"uniform": [0.5, 2.0]}},
}
"""Arguments of exact tasks; the continuous car of Gymnasium has no gravity to set."""


def test_values_have_their_distributions():
    drawn = {name: np.array(values) for name, values in draw(EACH, SEEDS).items()}
    assert drawn["a"].min() >= 0.4
    assert drawn["a"].max() <= 0.6
    assert drawn["a"].mean() == pytest.approx(0.5, abs=0.005)
    assert (drawn["b"].min() >= 0.5, drawn["b"].max() <= 50.0) == (True, True)
    assert np.median(drawn["b"]) == pytest.approx(5.0, rel=0.1)
    assert np.bincount(drawn["c"] + 1) == pytest.approx([1000] * 4, abs=120)
    values = draw(EACH, SEEDS)["d"]
    assert [values.count(value) for value in ("x", 1.5, True)] == pytest.approx([1333] * 3, abs=130)
    assert {type(value) for value in draw(EACH, SEEDS)["c"]} == {int}


def test_a_value_is_the_first_number_of_a_stream():
    for seed in (0, 1, 2**31 - 1):
        (u,) = Stream(seed, "env.randomize.a").uniform(1)
        assert draw_tables(EACH, np.array([seed]))[0]["a"] == 0.4 + (0.6 - 0.4) * u
    together = draw(EACH, SEEDS)
    for name in EACH:  # neither the other arguments nor the other episodes matter
        assert draw({name: EACH[name]}, SEEDS[7:9])[name] == together[name][7:9]


def test_values_have_the_same_bits_everywhere():
    """Uses no function of the C library; these numbers were drawn once."""
    drawn = draw(EACH, np.array([1, 2]))
    assert [value.hex() for value in drawn["a"]] == ["0x1.216c9685ffc34p-1", "0x1.ca820f8d6364dp-2"]
    assert [value.hex() for value in drawn["b"]] == ["0x1.524aae0f6d78cp+4", "0x1.0ced405ceb82cp+2"]


def test_the_exponential_function_is_accurate():
    x = np.linspace(-690, 690, 10_001)
    expected = np.array([math.exp(value) for value in x])
    assert np.abs(exp_float64(x) / expected - 1).max() < 1e-11


def play(options, seeds, slots, compiled=True, steps=25):
    """Play episodes, as many at once as there are slots; return the observations and rewards of each."""
    engine = environments.make(options, slots, compiled)
    observations = np.zeros((slots, engine.observation_size), np.float32)
    found = {}
    for begin in range(0, len(seeds), slots):
        now = np.array(seeds[begin : begin + slots])
        rows = np.arange(len(now))
        engine.reset(rows, now, observations)
        seen = [observations[rows].copy()]
        for step in range(steps):
            outputs = np.cos(np.arange(step, step + engine.action_size) + now[:, None]).astype(np.float32)
            rewards, _ = engine.step(rows, outputs, observations)
            assert np.isfinite(rewards).all()
            seen.append(np.concatenate([observations[rows], rewards[:, None]], axis=1))
        found |= {int(seed): b"".join(part[row].tobytes() for part in seen) for row, seed in enumerate(now)}
    engine.close()
    return found


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
@pytest.mark.parametrize("name", RANDOMIZED)
def test_each_slot_of_an_exact_task_has_its_own_values(name):
    options = EnvOptions(id=name, engine="exact", randomize=RANDOMIZED[name], max_episode_steps=500)
    seeds = list(range(21))
    compiled = play(options, seeds, 21)
    assert compiled == play(options, seeds, 21, compiled=False) == play(options, seeds, 5)
    for seed in seeds[:3]:  # the same as an environment that has these values in all episodes
        alone = play(environments.with_drawn_arguments(options, seed), [seed], 1)
        assert alone[seed] == compiled[seed]
    assert compiled != play(EnvOptions(id=name, engine="exact", max_episode_steps=500), seeds, 21)


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
@pytest.mark.parametrize(
    ("name", "randomize"),
    [
        ("LunarLander-v3", {"gravity": {"uniform": [-11, -2]}, "wind_power": {"uniform": [0, 30]}}),
        ("LunarLanderContinuous-v3", {"turbulence_power": {"log_uniform": [0.5, 5]}}),
        ("BipedalWalker-v3", {"gravity": {"uniform": [-15, -5]}, "friction": {"uniform": [0, 4]}}),
        ("BipedalWalker-v3", {"leg_1": {"choice": [-1, 1.0]}, "leg_2": {"uniform": [0, 1]}}),
        ("BipedalWalkerHardcore-v3", {"changes_at": {"integers": [1, 7]}, "leg_2_later": {"uniform": [-1, 1]}}),
        ("BipedalWalkerHardcore-v3", {"obstacles": {"uniform": [0.05, 1]}}),
    ],
    ids=str,
)
def test_each_world_has_its_own_values(name, randomize):
    """The kernels step many worlds side by side, or few."""
    kwargs = {"enable_wind": True} if name.startswith("LunarLander") else {}
    options = EnvOptions(id=name, engine="exact", kwargs=kwargs, randomize=randomize)
    seeds = list(range(40))
    found = play(options, seeds, 40)
    assert found == play(options, seeds, 7)
    for seed, begun in play(options, [0, 2], 2, compiled=False, steps=4).items():  # arrays take long for a step
        assert found[seed].startswith(begun)
    for seed in seeds[:3]:
        assert play(environments.with_drawn_arguments(options, seed), [seed], 1)[seed] == found[seed]
    for without in randomize:  # each of them makes a difference
        others = {other: values for other, values in randomize.items() if other != without}
        assert found != play(options.model_copy(update={"randomize": others}), seeds, 40)


@pytest.mark.parametrize("name", RANDOMIZED)
def test_an_exact_task_follows_gymnasium_at_other_values(name):
    options = EnvOptions(id=name, engine="exact", randomize=RANDOMIZED[name])
    random = np.random.Generator(np.random.Philox(2))
    for seed in range(6):
        one = environments.with_drawn_arguments(options, seed)
        task = exact_task(one)
        theirs = gymnasium.make(name).unwrapped
        for setting, value in one.kwargs.items():
            setattr(theirs, setting, value)
        if name == "CartPole-v1":  # what its constructor computes
            theirs.total_mass = theirs.masspole + theirs.masscart
            theirs.polemass_length = theirs.masspole * theirs.length
        draws = Draws(np.array([seed]), np.zeros(1, np.int64))
        states = task.begin(draws)
        theirs.reset(seed=seed)
        theirs.state = states[GYMNASIUM_INDICES[name], 0]
        for _ in range(20):
            outputs = random.uniform(-1, 1, (1, task.action_size)).astype(np.float32)
            states, (reward,), (over,) = task.step(states, outputs, draws)
            action = task.actions(outputs)
            seen, expected, terminated, _, _ = theirs.step(action[0] if task.discrete else np.float32(action[0]))
            np.testing.assert_allclose(task.observe(states)[:, 0], seen, rtol=2e-5, atol=1e-5)
            assert reward == pytest.approx(expected, rel=1e-5)
            assert bool(over) == terminated
            if over:
                break


def count(random, upto=3, by=1.0):
    for _ in range(upto):
        yield [by]
    return upto * by + float(random.random())


register_task("Count-v0", count, observation_size=1, action_size=1)


def limited(limit):
    return gymnasium.wrappers.TimeLimit(PendulumEnv(), limit)


def heavy(mass):
    raise ValueError("too much")


gymnasium.register("Limited-v0", entry_point=limited)
gymnasium.register("Heavy-v0", entry_point=heavy)


@pytest.mark.parametrize(
    ("name", "randomize"),
    [
        ("Pendulum-v1", {"g": {"uniform": [5, 15]}}),
        ("Pendulum-v1", {"g": {"choice": [5.0, 10.0]}}),  # few values, so that environments are used again
        ("LunarLander-v3", {"gravity": {"uniform": [-11, -2]}, "enable_wind": {"choice": [True, False]}}),
        ("toys:Switches-v0", {"length": {"integers": [40, 60]}}),
        ("Count-v0", {"upto": {"integers": [30, 40]}, "by": {"log_uniform": [0.1, 10]}}),
    ],
    ids=str,
)
def test_an_episode_of_gymnasium_depends_on_its_seed_alone(name, randomize):
    options = EnvOptions(id=name, randomize=randomize)
    seeds = [3, 1, 4, 15, 9, 2, 6]
    found = play(options, seeds, 7)
    assert found == play(options, seeds[::-1], 2)
    assert found[4] == play(environments.with_drawn_arguments(options, 4), [4], 1)[4]


def test_each_environment_keeps_its_own_limit_of_steps():
    options = EnvOptions(id="Limited-v0", randomize={"limit": {"integers": [3, 30]}})
    engine, live = environments.make(options, 4), np.arange(4)
    observations, lengths = np.zeros((4, 3), np.float32), np.zeros(4, int)
    engine.reset(live, live, observations)
    while len(live):
        lengths[live] += 1
        _, ended = engine.step(live, np.zeros((len(live), 1), np.float32), observations)
        live = live[~ended]
    engine.close()
    assert lengths.tolist() == [environments.with_drawn_arguments(options, seed).kwargs["limit"] for seed in range(4)]


def test_environments_are_used_again_if_their_values_come_again():
    toys.Values.made = toys.Values.closed = 0
    options = EnvOptions(id="toys:Values-v0", reuse=True, randomize={"x": {"choice": [1.0, 2.0]}})
    engine = environments.make(options, 2)
    observations, outputs = np.zeros((2, 1), np.float32), np.zeros((1, 2), np.float32)
    for seed in range(30):
        slot = np.array([seed % 2])
        engine.reset(slot, np.array([seed]), observations)
        assert (
            engine.step(slot, outputs, observations)[0] == environments.with_drawn_arguments(options, seed).kwargs["x"]
        )
    assert toys.Values.made <= 4  # of each value one for each slot
    engine.close()
    assert toys.Values.closed == toys.Values.made


def test_environments_whose_values_never_come_again_are_closed():
    toys.Values.made = toys.Values.closed = 0
    engine = environments.make(EnvOptions(id="toys:Values-v0", reuse=True, randomize={"x": {"uniform": [1.0, 2.0]}}), 2)
    for seed in range(6):
        engine.reset(np.array([seed % 2]), np.array([seed]), np.zeros((2, 1), np.float32))
    assert toys.Values.made - toys.Values.closed == 2
    engine.close()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"randomize": {"g": [1, 2]}}, "env.randomize.g: expected one of uniform, log_uniform and integers"),
        ({"randomize": {"g": {"unifrom": [1, 2]}}}, "Did you mean uniform"),
        ({"randomize": {"g": {"uniform": [2, 1]}}}, "env.randomize.g.uniform: expected two numbers, .*got \\[2, 1\\]"),
        ({"randomize": {"g": {"uniform": [0, math.inf]}}}, "env.randomize.g.uniform"),
        ({"randomize": {"g": {"uniform": [0, True]}}}, "env.randomize.g.uniform"),
        ({"randomize": {"g": {"log_uniform": [0, 1]}}}, "env.randomize.g.log_uniform: expected two numbers above 0"),
        ({"randomize": {"g": {"integers": [0.5, 2]}}}, "env.randomize.g.integers: expected two whole numbers"),
        ({"randomize": {"g": {"integers": [0, 2**53]}}}, "two whole numbers up to 2\\*\\*52, .low, high., .* 9007199"),
        ({"randomize": {"g": {"choice": []}}}, "env.randomize.g.choice: expected a list"),
        ({"kwargs": {"g": 1.0}, "randomize": {"g": {"uniform": [1, 2]}}}, "an argument that env.kwargs does not set"),
        ({"randomize": {"gravitation": {"uniform": [1, 2]}}}, "env.randomize.gravitation: expected arguments that"),
        ({"kwargs": {"gg": 1}, "randomize": {"g": {"uniform": [1, 2]}}}, "^env.kwargs: .* got {'gg': 1} .*'gg'"),
        ({"kwargs": {"g": 1}, "randomize": {"gg": {"uniform": [1, 2]}}}, "^env.randomize.gg: expected"),
        ({"randomize": {"g": {"choice": ["a", 1.0]}}}, "env.randomize.g: expected values that Pendulum-v1 takes"),
        ({"engine": "exact", "randomize": {"h": {"uniform": [1, 2]}}}, "can be drawn for each episode: g, m, l, got h"),
        ({"engine": "exact", "randomize": {"m": {"uniform": [0, 2]}}}, "env.randomize.m: expected at least 0.01"),
        ({"engine": "exact", "randomize": {"m": {"choice": ["a"]}}}, "env.randomize.m: expected a number"),
        ({"engine": "exact", "id": "Bandit-v0", "randomize": {"arms": {"integers": [2, 4]}}}, "env.randomize.arms"),
        ({"id": "LunarLander-v3", "randomize": {"gravity": {"uniform": [-20, -5]}}}, "env.randomize.gravity"),
        ({"id": "LunarLander-v3", "randomize": {"continuous": {"choice": [True, False]}}}, "the space of actions"),
        ({"id": "Count-v0", "randomize": {"beyond": {"choice": [1]}}}, "env.randomize.beyond"),
        ({"randomize": {"a(b": {"choice": [1]}}}, r"^env\.randomize\.a\(b: expected arguments that Pendulum-v1 takes"),
        ({"id": "Heavy-v0", "randomize": {"mass": {"choice": [1]}}}, "^env.randomize: expected arguments .*too much"),
    ],
    ids=str,
)
def test_what_cannot_be_randomized_is_refused(env, message):
    with pytest.raises(InputError, match=message):
        environments.check_randomized(EnvOptions(**{"id": "Pendulum-v1"} | env))


def test_envpool_cannot_randomize():
    pytest.importorskip("envpool")
    with pytest.raises(InputError, match=r"env.engine gymnasium|env\.engine"):
        environments.make(EnvOptions(id="Pendulum-v1", engine="envpool", randomize={"g": {"choice": [1.0]}}), 1)
