"""Whether an environment repeats itself is tried in a short time, but never without a step."""

import re
import time
import tomllib
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import toys
from conftest import ROOT

from evolve.config import EnvOptions
from evolve.environments import engine as engines
from evolve.environments import make
from evolve.errors import InputError


class SlowToBegin:
    """An engine whose environments take longer to begin than the trial may take; they differ from the first step on."""

    id = "Slow-v0"
    action_size = 1
    reuses = False

    def __init__(self):
        self.begun = []
        self.ended = 0

    def trial(self, _seed, outputs, **_):
        number = len(self.begun)
        self.begun.append(number)
        time.sleep(0.02)
        try:
            yield {"observation": 0.0}
            for _ in outputs:
                yield {"observation": float(number)}
        finally:
            self.ended += 1


def test_time_to_begin_does_not_count(monkeypatch):
    monkeypatch.setattr(engines, "PAIR_SECONDS", 0.01)
    engine = SlowToBegin()
    with pytest.raises(InputError, match=r"observation \(0.0 against 1.0\) of step 1"):
        engines.check_repeatable(engine)


@pytest.mark.parametrize(
    ("env", "difference"),
    [("Shares", r"observation\[0\] \(2.0 against 3.0\) of step 2"), ("SharedGoal", r"reward \(.*\) of step 1")],
)
def test_environments_that_share_something_play_only_alone(env, difference):
    engine = make(EnvOptions(id=f"toys:{env}"), 1)
    with pytest.raises(
        InputError, match=f"an episode changes another one of the same process: {difference}"
    ) as refused:
        engines.check_repeatable(engine, slots=2)
    assert "compute.slots=1" in str(refused.value)
    assert engines.check_repeatable(engine, slots=1)


def test_an_object_that_keeps_something_at_the_end_of_its_episode_is_not_used_again():
    with pytest.raises(InputError, match=r"a used and a new environment differ: reward \(0 against 1\) of step 1"):
        engines.check_repeatable(make(EnvOptions(id="toys:Hoards", reuse=True), 1), reuse=True)
    assert engines.check_repeatable(make(EnvOptions(id="toys:Hoards"), 1))


@pytest.mark.parametrize("fails", [False, True])
def test_only_the_compared_episode_has_to_keep_the_contract(monkeypatch, fails):
    """The run may play an episode that fails or breaks the contract. Then `env.on_failure` decides."""
    reset, begun = toys.Values.reset, []

    def break_most(env, *, seed=None, options=None):
        begun.append(seed)
        if seed != begun[0]:
            return int("no number") if fails else None
        return reset(env, seed=seed, options=options)

    monkeypatch.setattr(toys.Values, "reset", break_most)
    engine = make(EnvOptions(id="toys:Values-v0", kwargs={"x": 1.0}), 1)
    assert engines.check_repeatable(engine)
    assert len(set(begun)) > 2
    monkeypatch.setattr(toys.Values, "step", lambda *_: (np.zeros(1, np.float32), len(begun), True, False, {}))
    with pytest.raises(InputError, match="two episodes differ: reward"):
        engines.check_repeatable(engine)


def test_environments_are_closed_where_time_is_over(monkeypatch):
    monkeypatch.setattr(engines, "PAIR_SECONDS", -1.0)
    engine = make(EnvOptions(id="CartPole-v1"), 1)
    made = []

    def counted(*words, gymnasium_make=gymnasium.make, **options):
        env = gymnasium_make(*words, **options)
        made.append(SimpleNamespace(closed=False))
        close, mark = env.close, made[-1]
        env.close = lambda: (setattr(mark, "closed", True), close())
        return env

    monkeypatch.setattr(gymnasium, "make", counted)
    engines.check_repeatable(engine)
    assert made
    assert all(each.closed for each in made)


@pytest.mark.parametrize("python", [False, True])
def test_steps_that_draw_from_a_generator_of_the_whole_process_are_refused(python):
    """Also if the pair of episodes draws nothing in its steps."""
    kwargs = {"python": python}
    with pytest.raises(InputError, match="whose steps draw from a generator of their own, got toys:Shared") as refused:
        engines.check_repeatable(make(EnvOptions(id="toys:Shared", kwargs=kwargs), 1))
    assert "self.np_random" in str(refused.value)
    engines.check_repeatable(
        make(EnvOptions(id="toys:Shared", kwargs=kwargs | {"steps": False}), 1)
    )  # `reset` is not interrupted
    reused = make(EnvOptions(id="toys:Shared", kwargs=kwargs, reuse=True), 1)
    with pytest.raises(InputError, match="whose steps draw from a generator of their own, got toys:Shared"):
        engines.check_repeatable(reused, reuse=True)


def test_an_environment_may_take_its_seed_as_an_argument():
    with pytest.raises(InputError, match="two episodes differ: reward") as refused:
        engines.check_repeatable(make(EnvOptions(id="toys:SeededOnce"), 1))
    advised = tomllib.loads(re.search(r"env\.(randomize\.seed=\{.*?\})", str(refused.value))[1])
    options = EnvOptions.model_validate({"id": "toys:SeededOnce"} | advised)
    engines.check_repeatable(engine := make(options, 2))
    engine.reset(np.arange(2), np.array([5, 6]), np.zeros((2, 1), np.float32))
    rewards, _ = engine.step(np.arange(2), np.zeros((2, 2), np.float32), np.zeros((2, 1), np.float32))
    assert rewards[0] != rewards[1]


def test_the_global_generator_may_be_of_another_kind(monkeypatch):
    def step(*_):
        np.random.random()  # noqa: NPY002 - an environment may use it
        return np.zeros(1, np.float32), 0.0, True, False, {}

    monkeypatch.setattr(toys.Values, "step", step)
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with pytest.raises(InputError, match="whose steps draw from a generator of their own, got toys:Values-v0"):
            engines.check_repeatable(make(EnvOptions(id="toys:Values-v0", kwargs={"x": 1.0}), 1))
    finally:
        np.random.set_bit_generator(usual)


def test_an_environment_that_differs_between_ranks_ends_the_run(command, tmp_path):
    """The process that plays an episode must not matter. The check before the run plays in one process."""
    (tmp_path / "goals.py").write_text(
        "import os\n\nimport numpy as np\nfrom gymnasium.envs.classic_control import CartPoleEnv\n\n"
        "GOAL = 0.0 if 'PLAIN' in os.environ else np.random.default_rng().uniform()\n\n\n"
        "class Goal(CartPoleEnv):\n    def step(self, action):\n"
        "        observation, reward, *ends = super().step(action)\n"
        "        return observation, reward + GOAL, *ends\n"
    )
    small = "-e", "goals:Goal", "-a", "mlp", "-p", 4, "-r", 1, "-g", 1, "-s", 1, "--set", "held_out_episodes=2"
    found = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = command("run", *small, "-o", "runs", ranks=3, **found)
    assert done.code == 1
    assert "the environment goals:Goal plays another episode here than on rank 0, in step 1" in done.out + done.err
    command("run", *small, "-o", "same", ranks=3, **found, PLAIN="yes").ok()
