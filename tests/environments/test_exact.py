"""Exact tasks: the kernels equal the array reference, which follows the descriptions of the tasks."""

import math
import re
import threading

import gymnasium
import numpy as np
import pytest
from conftest import ROOT

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.exact import Draws
from evolve.environments.rendering import GYMNASIUM_INDICES, is_drawable_task
from evolve.errors import InputError
from evolve.numerics import native

OPTIONS = {
    "Bandit-v0": [{}, {"arms": 3, "pulls": 7}],
    "Cues-v0": [{}, {"cues": 1, "presentations": 3}, {"cues": 62, "presentations": 1}],
    "Reversal-v0": [{}, {"trials": 5, "switches": 0}],
    "TMaze-v0": [{}, {"turns": 2, "corridor": 0}, {"turns": 3, "corridor": 2, "trials": 15, "switches": 2}],
}
CASES = [(name, kwargs) for name in environments.TASKS for kwargs in OPTIONS.get(name, [{}])]
SLOTS = 21  # two tiles, one of them not full
CLASSICAL = [name for name, task in environments.TASKS.items() if is_drawable_task(name) and not task.has_world]


def engine_of(name, kwargs=(), compiled=True, slots=SLOTS, **options):
    return environments.make(EnvOptions(id=name, engine="exact", kwargs=dict(kwargs), **options), slots, compiled)


class Player:
    """Plays all slots of an engine side by side."""

    def __init__(self, engine, seeds):
        self.engine, self.seeds = engine, np.array(seeds)
        self.slots = np.arange(len(seeds))
        self.observations = np.zeros((len(seeds), engine.observation_size), np.float32)
        engine.reset(self.slots, self.seeds, self.observations)

    def step(self, outputs):
        """Return rewards and ends; episodes that have ended begin anew with other seeds."""
        rewards, ends = self.engine.step(self.slots, np.asarray(outputs, np.float32), self.observations)
        again = np.flatnonzero(ends)
        self.seeds[again] += 1000
        if len(again):
            self.engine.reset(again, self.seeds[again], self.observations)
        return rewards, ends


def returns(name, act, seeds, **kwargs):
    """Play one episode for each seed; act(observations, memory) gives outputs, and memory is a dictionary."""
    engine = engine_of(name, kwargs, slots=len(seeds))
    player, memory = Player(engine, seeds), {}
    total, over = np.zeros(len(seeds)), np.zeros(len(seeds), bool)
    while not over.all():
        rewards, ends = player.step(act(player.observations.copy(), memory))
        total += np.where(over, 0, rewards)
        over |= ends
    return total


def test_every_exact_task_is_tried_before_a_run():
    for name in sorted(environments.TASKS):
        fingerprints = environments.check_repeatable(engine_of(name, slots=2), slots=2)
        assert len(fingerprints) > 1, name  # () if an episode failed


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_the_kernels_equal_the_array_reference(name, kwargs):
    # Arrays take milliseconds for a step of a world: fewer of them, and physics/test_world.py looks closer.
    slots, limit, steps = (SLOTS, 90, 130) if not environments.TASKS[name].has_world else (3, 3, 5)
    seeds = [3 + 7919 * slot for slot in range(slots)]
    engines = [engine_of(name, kwargs, compiled, slots, max_episode_steps=limit) for compiled in (True, False)]
    players = [Player(engine, seeds) for engine in engines]
    random = np.random.Generator(np.random.Philox(1))
    actions = players[0].engine.action_size
    for step in range(steps):
        outputs = np.tanh(3 * random.standard_normal((slots, actions))).astype(np.float32)
        outputs[step % slots] = [math.nan, math.inf, -math.inf, -0.0][step % 4]
        if name == "MountainCarContinuous-v0":  # so that it arrives
            outputs = np.sign(players[0].observations[:, 1:]).astype(np.float32)
        found = [player.step(outputs) for player in players]
        seen = [player.observations for player in players]
        for ours, theirs in (*zip(*found, strict=True), seen):
            assert ours.tobytes() == theirs.tobytes(), step
    assert (players[0].seeds > np.array(seeds)).all()


@pytest.mark.parametrize("task", environments.TASKS.values())
def test_a_kernel_has_the_name_of_its_header(task):
    """NVRTC includes the header of a task by this name; gcc includes all headers."""
    header = ROOT / "evolve" / "environments" / "kernels" / f"{task.kernel}.h"
    assert re.search(rf"^(WORLD_)?TASK\({task.kernel}\)$", header.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", CLASSICAL)
def test_a_classical_task_follows_gymnasium(name):
    """From the same state by the same actions; Acrobot's errors grow, so that it is not followed for long."""
    engine = engine_of(name, slots=1)
    theirs = gymnasium.make(name).unwrapped
    observation = np.zeros((1, engine.observation_size), np.float32)
    random = np.random.Generator(np.random.Philox(2))
    slot = np.zeros(1, np.intp)
    for seed in range(20):
        engine.reset(slot, np.array([seed]), observation)
        theirs.reset(seed=seed)
        theirs.state = engine.slots.state(0)[GYMNASIUM_INDICES[name]]
        for _ in range(40):
            outputs = random.uniform(-1, 1, (1, engine.action_size)).astype(np.float32)
            (reward,), (ended,) = engine.step(slot, outputs, observation)
            expected, their_reward, terminated, _, _ = theirs.step(engine.decode(outputs)[0])
            np.testing.assert_allclose(observation[0], expected, rtol=1e-5, atol=1e-5)
            assert reward == pytest.approx(their_reward, rel=1e-5)
            assert bool(ended) == terminated
            if ended:
                break


@pytest.mark.parametrize("name", CLASSICAL)
def test_a_classical_task_begins_as_gymnasium_says(name):
    """First states have the same distribution as Gymnasium's, from other random numbers."""
    task = environments.TASKS[name](environments.TASKS[name].options_class())
    seeds = np.arange(4000)
    ours = task.observe(task.begin(Draws(seeds, np.zeros_like(seeds))))
    env = gymnasium.make(name)
    theirs = np.array([env.reset(seed=seed)[0] for seed in range(1000)]).T
    np.testing.assert_allclose(ours.mean(axis=1), theirs.mean(axis=1), atol=0.08)
    np.testing.assert_allclose(ours.std(axis=1), theirs.std(axis=1), rtol=0.1, atol=1e-3)
    assert gymnasium.spec(name).max_episode_steps == task.default_limit


@pytest.mark.parametrize("name", environments.TASKS)
def test_no_episodes_are_no_error(name):
    task = environments.TASKS[name](environments.TASKS[name].options_class())
    draws = Draws(np.zeros(0, np.int64), np.zeros(0, np.int64))
    moved = task.step(task.begin(draws), np.zeros((0, task.action_size), np.float32), draws)
    assert task.observe(moved.states).shape == (task.observation_size, 0)
    assert moved.rewards.shape == moved.over.shape == (0,)


def test_the_steps_of_an_episode_can_be_limited():
    player = Player(engine_of("Pendulum-v1", max_episode_steps=3), range(SLOTS))
    ends = [player.step(np.zeros((SLOTS, 1)))[1].all() for _ in range(6)]
    assert ends == [False, False, True] * 2


def test_actions_are_scaled():
    engine = engine_of("Pendulum-v1", action_scale=0.5, slots=1)
    assert engine.decode(np.array([[-3.0], [0.5]], np.float32))[0].tolist() == [-1.0]
    assert engine.decode(np.array([[-3.0], [0.5]], np.float32))[1].tolist() == [0.5]


def learned_cues(observations, memory):
    """The optimal player: it remembers the right answer to each cue."""
    C = observations.shape[1] - 2
    known = memory.setdefault("known", np.zeros((len(observations), C)))
    cue = observations[:, :C].argmax(axis=1)
    rows = np.arange(len(observations))
    looking = observations[:, C] != 0
    known[rows[looking], cue[looking]] = (observations[:, C] * observations[:, C + 1])[looking]
    return np.where(known[rows, cue] == 0, 1.0, known[rows, cue])[:, None]


def test_cues_are_learned_at_best_up_to_the_first_guess():
    found = returns("Cues-v0", learned_cues, range(300))
    assert found.mean() == pytest.approx(1 - 1 / 16, abs=0.01)
    assert found.min() >= 1 - 6 / 48  # each cue is missed once at most
    constant = returns("Cues-v0", lambda seen, _: np.ones((len(seen), 1)), range(300))
    assert constant.mean() == pytest.approx(0.5, abs=0.04)


def test_each_cue_is_shown_equally_often_in_random_order():
    shown = []
    returns("Cues-v0", lambda seen, _: (shown.append(seen[:, :3].argmax(axis=1)), np.ones((len(seen), 1)))[1],
            range(200), cues=3, presentations=4)  # fmt: skip
    order = np.array(shown)[::2]
    assert (np.sort(order, axis=0) == np.repeat(range(3), 4)[:, None]).all()
    for place in (0, 5, 11):
        assert np.bincount(order[place], minlength=3) == pytest.approx(200 / 3, abs=25)


def win_stay(observations, memory):
    arm = memory.setdefault("arm", np.ones(len(observations)))
    lost = (observations[:, 1] > 0) & (observations[:, 3] < 0)
    arm[lost] *= -1
    return arm[:, None]


def test_reversals_cost_one_trial_each():
    found = returns("Reversal-v0", win_stay, range(200))
    assert found.max() == pytest.approx((37 + 3 * 0.2) / 40)
    assert found.min() == pytest.approx((36 + 4 * 0.2) / 40)
    fixed = returns("Reversal-v0", lambda seen, _: np.ones((len(seen), 1)), range(200))
    assert fixed.mean() == pytest.approx(0.6, abs=0.03)


def test_a_bandit_pays_by_its_chances():
    engine = engine_of("Bandit-v0", slots=400)
    Player(engine, range(400))
    chances = np.stack([engine.slots.state(slot) for slot in range(400)], axis=1)[:5]
    pull = np.zeros((400, 5), np.float32)
    pull[:, 2] = 1
    found = returns("Bandit-v0", lambda *_: pull, range(400))
    np.testing.assert_allclose(found.mean(), 100 * chances[2].mean(), atol=2)
    assert np.corrcoef(found, chances[2])[0, 1] > 0.95


def walker(turns):
    """Walk to an end, the same one each time, because no observation tells which end is best."""

    def act(observations, memory):
        turned = memory.setdefault("turned", np.zeros(len(observations), int))
        turned[observations[:, 2] > 0] = 0
        at_junction = observations[:, 0] > 0
        outputs = np.where(at_junction, np.array(turns)[np.minimum(turned, len(turns) - 1)], 0.0)
        turned[at_junction] += 1
        return outputs[:, None]

    return act


@pytest.mark.parametrize("corridor", [0, 1, 4])
def test_a_maze_has_one_good_end(corridor):
    ends = [[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    options = {"turns": 2, "corridor": corridor, "switches": 0, "trials": 10}
    found = np.array([returns("TMaze-v0", walker(end), range(50), **options) for end in ends])
    np.testing.assert_allclose(np.sort(found, axis=0), np.array([0.2, 0.2, 0.2, 1.0])[:, None] * np.ones(50))
    assert len(set(found.argmax(axis=0))) == 4


def test_a_crash_costs_reward():
    crashing = returns("TMaze-v0", lambda seen, _: np.ones((len(seen), 1)), range(10), corridor=2)
    np.testing.assert_allclose(crashing, -0.4)
    standing = returns("TMaze-v0", lambda seen, _: np.zeros((len(seen), 1)), range(10), corridor=2)
    np.testing.assert_allclose(standing, -0.4)  # at the junction


def test_the_good_end_moves_to_another():
    found = returns("TMaze-v0", walker([1.0]), range(200))
    assert found.min() > 0.4
    assert found.max() < 0.8
    assert found.mean() == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("name", environments.TASKS)
def test_a_task_with_a_picture_can_be_drawn(name):
    engine = engine_of(name, slots=1)
    assert environments.try_drawing(EnvOptions(id=name, engine="exact")) == is_drawable_task(name)
    Player(engine, [1])
    if is_drawable_task(name):
        pytest.importorskip("pygame")
        frame = engine.frame(0)
        assert frame.shape[2] == 3
        assert len(np.unique(frame @ np.array([1, 256, 65536]))) > 2
    else:
        with pytest.raises(InputError, match="a task that can be drawn: Acrobot-v1"):
            engine.frame(0)


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_rigid_bodies_are_refused_in_a_thread_with_a_small_stack():
    found = {}

    def make(name):
        options = EnvOptions(id=name, engine="exact")
        try:
            found[name] = environments.make(options, 1).spaces is not None
        except InputError as refused:
            found[name] = str(refused)

    earlier = threading.stack_size(2**18)
    try:
        for name in ("LunarLander-v3", "CartPole-v1"):
            thread = threading.Thread(target=make, args=(name,))
            thread.start()
            thread.join()
    finally:
        threading.stack_size(earlier)
    assert found["CartPole-v1"] is True
    assert "env.engine: expected a thread with a stack of at least 512 kB" in found["LunarLander-v3"]
    assert "got 256 kB" in found["LunarLander-v3"]
    assert native.stack_bytes() == 0 or native.stack_bytes() > 2**19
