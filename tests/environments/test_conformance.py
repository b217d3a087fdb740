"""Every engine keeps the contract: an episode depends on its seed and actions, and on nothing else."""

import gymnasium
import numpy as np
import pytest
import toys
from toys import Rated, Texts

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.engine import DEFAULT_FPS
from evolve.environments.gymnasium_engine import step_fault
from evolve.errors import EpisodeTimeout, InputError

ENVIRONMENTS = [
    "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Taxi-v4", "FrozenLake-v1",
    "BipedalWalker-v3", "LunarLander-v3", "InvertedPendulum-v5", "HalfCheetah-v5", "toys:Switches-v0", "toys:Memory-v0",
    "toys:Chords-v0",
]  # fmt: skip
STEPS = 40


def play(engine, slots, seeds):
    """Run the episodes of `seeds` side by side in the first slots; return the observations and rewards of each."""
    n = len(slots)
    observations = np.zeros((n, engine.observation_size), np.float32)
    outputs = [
        np.random.Generator(np.random.Philox(s)).uniform(-1, 1, (STEPS, engine.action_size)).astype(np.float32)
        for s in seeds
    ]
    everywhere = np.arange(n)
    engine.reset(everywhere, np.array(seeds), observations)
    seen, over = [[row.copy()] for row in observations], [False] * n
    for t in range(STEPS):
        rewards, ended = engine.step(everywhere, np.stack([o[t] for o in outputs]), observations)
        for slot in range(n):
            if not over[slot]:
                seen[slot] += [observations[slot].copy(), np.array([rewards[slot]])]
            over[slot] |= bool(ended[slot])
        if ended.any():
            engine.reset(np.flatnonzero(ended), np.array(seeds)[ended], observations)
    return [np.concatenate(one) for one in seen]


NOT_IN_ENVPOOL = {"Taxi-v4", "toys:Switches-v0", "toys:Memory-v0", "toys:Chords-v0"}


@pytest.fixture(params=[(name, e) for name in environments.ENGINES for e in ENVIRONMENTS], ids=str)
def options(request):
    engine, name = request.param
    if engine == "exact" and name not in environments.TASKS:
        pytest.skip("there is no such exact task")
    if engine == "envpool":
        pytest.importorskip("envpool")
        name = "Taxi-v3" if name == "Taxi-v4" else name
        if name in NOT_IN_ENVPOOL:
            pytest.skip("EnvPool has no such environment")
    return EnvOptions(id=name, engine=engine)


def test_an_episode_does_not_remember(options):
    """Same seed, same bits: alone or beside others, in a new engine or after many episodes, in any order."""
    alone = {}
    for seed in range(3):
        engine = environments.make(options, 1)
        (alone[seed],) = play(engine, [0], [seed])
        engine.close()
    engine = environments.make(options, 3)
    for order in ([2, 0, 1], [0, 2, 1]):
        for seed, seen in zip(order, play(engine, range(3), order), strict=True):
            assert np.array_equal(seen, alone[seed]), f"seed {seed} of {options.id}"
    engine.close()


def test_seeds_matter(options):
    if options.id == "FrozenLake-v1":
        pytest.skip("always starts in the same corner")
    engine = environments.make(options, 2)
    one, two = play(engine, range(2), [1, 2])
    engine.close()
    assert not np.array_equal(one, two)


def test_move_goes_on_with_the_same_episode(options):
    engine = environments.make(options, 2)
    (expected,) = play(engine, [0], [7])
    observations = np.zeros((2, engine.observation_size), np.float32)
    engine.reset(np.arange(2), np.array([1, 7]), observations)
    engine.move(np.array([1]), np.array([0]))
    observations[0] = observations[1]
    assert np.array_equal(observations[0], expected[: engine.observation_size])
    outputs = np.random.Generator(np.random.Philox(7)).uniform(-1, 1, (STEPS, engine.action_size)).astype(np.float32)
    engine.step(np.arange(1), outputs[:1], observations)
    O = engine.observation_size
    assert np.array_equal(observations[0], expected[O : 2 * O])
    engine.close()


def test_box2d_worlds_remember_and_are_therefore_not_reused():
    """Why `reuse = "auto"` makes a new BipedalWalker for every episode: an old one gives other bits."""
    reused = environments.make(EnvOptions(id="BipedalWalker-v3", reuse=True), 1)
    fresh = environments.make(EnvOptions(id="BipedalWalker-v3"), 1)
    assert fresh.reuses is False
    apart = 0
    for seed in range(6):
        (a,), (b,) = (play(engine, [0], [seed]) for engine in (reused, fresh))
        apart += not np.array_equal(a, b)
    reused.close()
    fresh.close()
    assert apart, "Box2D no longer remembers: environments could be reused"


def test_slots_can_stand_idle(options):
    """Episodes begun and stepped in a few slots only are the same as anywhere."""
    engine = environments.make(options, 6)
    (expected,) = play(engine, [0], [4])
    O, busy = engine.observation_size, np.array([1, 4])
    observations = np.zeros((6, O), np.float32)
    engine.reset(busy, np.array([9, 4]), observations)
    outputs = np.random.Generator(np.random.Philox(4)).uniform(-1, 1, (STEPS, engine.action_size)).astype(np.float32)
    for t in range(3):
        rewards, ended = engine.step(busy, outputs[[t, t]], observations)
        if ended.any():
            break
        assert rewards[1] == expected[O + t * (O + 1) + O]
        assert np.array_equal(observations[4], expected[O + t * (O + 1) : O + t * (O + 1) + O])
    assert not observations[[0, 2, 3, 5]].any()
    engine.close()


def test_wrappers_and_kwargs_come_from_the_configuration():
    wrappers = [{"name": "gymnasium.wrappers:TimeAwareObservation", "kwargs": {"normalize_time": False}}]
    engine = environments.make(EnvOptions.model_validate({"id": "Pendulum-v1", "wrappers": wrappers}), 1)
    assert engine.observation_size == 3 + 1
    engine.close()
    engine = environments.make(EnvOptions(id="toys:Switches-v0", kwargs={"length": 2}), 1)
    observations = np.zeros((1, engine.observation_size), np.float32)
    engine.reset(np.arange(1), np.array([1]), observations)
    ends = [bool(engine.step(np.arange(1), np.zeros((1, 7), np.float32), observations)[1][0]) for _ in range(2)]
    assert ends == [False, True]


def test_an_environment_may_change_its_arguments():
    """As `config.pop("g")` does: the next environment gets them as the experiment has them."""
    kwargs, drawn, seen = {"config": {"g": 5.0}}, {"more": {"choice": [{"m": [2.0]}]}}, {"seen": []}
    wrappers = [{"name": "toys:Notes", "kwargs": seen}]
    table = {"id": "toys:Consumes", "kwargs": kwargs, "randomize": drawn, "wrappers": wrappers}
    options = EnvOptions.model_validate(table)
    before = options.model_dump_json()
    engine = environments.make(options, 2)
    for _ in range(2):
        engine.reset(np.arange(2), np.arange(2), np.zeros((2, 3), np.float32))
    assert not engine.faults
    assert options.model_dump_json() == before
    engine.close()


def test_a_wrapper_of_gymnasium_gets_tuples_which_some_of_them_insist_on():
    wrappers = [{"name": "ReshapeObservation", "kwargs": {"shape": [3, 1]}}]
    engine = environments.make(EnvOptions.model_validate({"id": "Pendulum-v1", "wrappers": wrappers}), 1)
    assert engine.spaces.observation.shape == (3, 1)


def test_a_wrapper_of_gymnasium_gets_arrays_as_bounds():
    bounds = {"min_obs": [-1.0, -2.0, -3.0], "max_obs": [1.0, 2.0, 3.0]}
    wrappers = [{"name": "RescaleObservation", "kwargs": bounds}]
    engine = environments.make(EnvOptions.model_validate({"id": "Pendulum-v1", "wrappers": wrappers}), 1)
    assert engine.spaces.observation.high.tolist() == bounds["max_obs"]
    wrappers[0]["kwargs"]["min_obs"] = [-1.0, "low", -3.0]
    with pytest.raises(InputError, match=r"^env\.wrappers\.0: .* RescaleObservation"):
        environments.make(EnvOptions.model_validate({"id": "Pendulum-v1", "wrappers": wrappers}), 1)


@pytest.mark.parametrize(("engine", "name"), [("gymnasium", "Pendulum-v1"), ("envpool", "CliffWalking-v0")])
def test_episode_length_can_be_limited(engine, name):
    """EnvPool's CliffWalking ignores the limit that it is made with."""
    if engine == "envpool":
        pytest.importorskip("envpool")
    engine = environments.make(EnvOptions(id=name, engine=engine, max_episode_steps=2), 2)
    observations, outputs = np.zeros((2, engine.observation_size), np.float32), np.zeros((1, engine.action_size))
    engine.reset(np.array([1]), np.array([1]), observations)
    ends = []
    for slot in (1, 0):
        ends += engine.step(np.array([slot]), outputs.astype(np.float32), observations)[1].tolist()
        engine.move(np.array([1]), np.array([0]))
    assert ends == [False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "Bipedal-v3"}, "Did you mean BipedalWalker-v3"),
        ({"id": "BipedalWalker-v2"}, "Did you mean BipedalWalker-v3"),
        ({"id": "nowhere:Thing-v0"}, "module that can be imported"),
        ({"id": ":Thing-v0"}, "the name of an environment, or module:Name, got ':Thing-v0'"),
        ({"id": "toys:Texts"}, "MultiBinary, or of a Dict or Tuple of them, got Text.*wrapper"),
        ({"id": "Pendulum-v1", "kwargs": {"mass": 2}}, "env.kwargs"),
        ({"id": "Pendulum-v1", "kwargs": {"max_episode_steps": 2}}, r"limit of steps is env\.max_episode_steps\.$"),
        ({"id": "Pendulum-v1", "wrappers": [{"name": "gymnasium.wrappers:Nothing"}]}, "env.wrappers"),
        ({"id": "BipedalWalker-v2", "engine": "envpool"}, 'BipedalWalker-v3.* Or use env.engine="gymnasium"'),
        ({"id": "Pendulum-v1", "engine": "envpool", "kwargs": {"mass": 2}}, "env.kwargs"),
        ({"id": "Pendulum-v1", "engine": "envpool", "kwargs": {"batch_size": 1}}, "env.kwargs: .* 'batch_size'"),
        ({"id": "Pendulum-v1", "engine": "envpool", "wrappers": [{"name": "a:B"}]}, "env.wrappers"),
        ({"id": "TicTacToe-v1", "engine": "envpool"}, "one agent, got TicTacToe-v1 of EnvPool, which has several"),
        ({"id": "CarRacing-v3", "engine": "exact"}, 'Known: Acrobot-v1, .* Or use env.engine="gymnasium"'),
        ({"id": "Cues-v0"}, 'The exact engine has it: env.engine="exact"'),
        ({"id": "Pendulum-v1", "engine": "exact", "wrappers": [{"name": "a:B"}]}, "env.wrappers"),
        ({"id": "Acrobot-v1", "engine": "exact", "kwargs": {"g": 9.8}}, "env.kwargs.g"),
        ({"id": "Cues-v0", "engine": "exact", "kwargs": {"cues": 63}}, "env.kwargs.cues: expected .* 62, got 63"),
        ({"id": "TMaze-v0", "engine": "exact", "kwargs": {"trials": 19}}, "at least 20 trials with switches=3"),
    ],
)
def test_what_cannot_be_made_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        environments.make(EnvOptions.model_validate(options), 1)


@pytest.mark.parametrize(("name", "limit"), [("CartPole-v1", 500), ("CliffWalking-v0", None)])
def test_the_limits_that_envpool_declares(name, limit):
    pytest.importorskip("envpool", exc_type=ImportError)  # the system may lack libEGL
    assert environments.max_episode_steps(EnvOptions(id=name, engine="envpool")) == limit


def test_envpool_names_a_missing_library_of_the_system(monkeypatch):
    envpool = pytest.importorskip("envpool", exc_type=ImportError)
    options = EnvOptions(id="CartPole-v1", engine="envpool")

    def fail(*_args, **_kwargs):
        raise ImportError("EnvPool Procgen requires the system Qt 5 runtime on Linux.")

    monkeypatch.setattr(envpool, "make", fail)
    monkeypatch.setattr(envpool, "make_spec", fail)
    with pytest.raises(InputError, match=r"^env\.id: expected an environment whose libraries .*CartPole-v1 \(.*Qt 5"):
        environments.make(options, 1)
    assert environments.max_episode_steps(options) is None


def test_a_limit_that_envpool_tells_only_with_arguments_is_unknown(monkeypatch):
    envpool = pytest.importorskip("envpool", exc_type=ImportError)

    def fail(name):  # as VizdoomCustom without its file
        raise RuntimeError('File "./scenarios/.cfg" does not exist')

    monkeypatch.setattr(envpool, "make_spec", fail)
    assert environments.max_episode_steps(EnvOptions(id="CartPole-v1", engine="envpool")) is None


def test_an_unversioned_id_is_completed():
    assert environments.make(EnvOptions(id="CartPole"), 1).id == "CartPole-v1"
    assert environments.make(EnvOptions(id="toys:Switches-v0"), 1).id == "toys:Switches-v0"


@pytest.mark.parametrize(("where", "steps"), [("reset", 0), ("step", 3)])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("how", ["raise", "panic"])
def test_every_fault_is_noted_and_announced(where, steps, recorded, how, monkeypatch):
    def panic(env):
        raise toys.PanicError

    monkeypatch.setattr(toys.Faulty, "close", panic)
    engine = environments.make(EnvOptions(id="toys:Faulty-v0", kwargs={"share": 1.0, "where": where, "how": how}), 3)
    assert environments.check_repeatable(engine) == ()
    observer = environments.Recorder(engine, 3, observations=False) if recorded else engine
    announced = []
    observer.on_fault = lambda: announced.append(sorted(engine.faults))
    slots = np.arange(3)
    observations = np.zeros((3, engine.observation_size), np.float32)
    observer.reset(slots, np.array([1, 2, 3]), observations)
    for _ in range(steps):
        rewards, ends = observer.step(slots, np.zeros((3, engine.action_size), np.float32), observations)
    assert announced == [[0], [0, 1], [0, 1, 2]]
    assert all("the motor burnt out" in message for message in observer.faults.values())
    if steps:
        assert np.isnan(rewards).all()
        assert ends.all()
    engine.close()


@pytest.mark.parametrize("method", ["reset", "step"])
def test_the_episodes_of_an_environment_that_panics_are_played(method, monkeypatch):
    def panic(*_, **__):
        raise toys.PanicError

    monkeypatch.setattr(toys.Values, method, panic)
    engine = environments.make(EnvOptions(id="toys:Values-v0"), 1)
    assert engine.suggested_slots() == 8
    assert environments.check_repeatable(engine) == ()  # its trial fails


@pytest.mark.parametrize(("reaction", "stepped"), [("stop", 0), ("worst", 1)])
def test_after_a_reset_that_hangs_the_run_ends_without_a_step(monkeypatch, reaction, stepped):
    """Each of the other environments, which may need the same server, could hang for as long."""
    reset, step, calls = toys.Memory.reset, toys.Memory.step, []
    monkeypatch.setattr(toys.Memory, "step", lambda env, action: calls.append(env) or step(env, action))
    engine = environments.make(EnvOptions(id="toys:Memory-v0", on_failure=reaction), 2)
    slots, observations = np.arange(2), np.zeros((2, engine.observation_size), np.float32)
    outputs = np.zeros((2, engine.action_size), np.float32)
    engine.reset(slots, slots, observations)

    def hang(env, **more):
        raise EpisodeTimeout("no answer")

    monkeypatch.setattr(toys.Memory, "reset", hang)
    engine.reset(slots[:1], slots[:1], observations)
    rewards, ends = engine.step(slots, outputs, observations)
    assert np.isnan(rewards).tolist() == [True, False]
    assert ends[0]
    assert len(calls) == stepped
    monkeypatch.setattr(toys.Memory, "reset", reset)  # a script may go on after the error
    engine.faults.clear()
    engine.reset(slots, slots, observations)
    engine.step(slots, outputs, observations)
    assert len(calls) == stepped + 2
    engine.close()


@pytest.mark.parametrize("engine", environments.ENGINES)
def test_a_replay_of_no_episode_has_the_rate_0(engine):
    steps, seconds = environments.replay(EnvOptions(id="CartPole-v1", engine=engine), [])
    assert steps / seconds == 0


def test_a_fault_is_described_as_in_an_episode_alone():
    def faults(seeds):
        kwargs = {"share": 1.0, "how": "raise or shape"}
        engine = environments.make(EnvOptions(id="toys:Faulty-v0", kwargs=kwargs), len(seeds))
        slots, observations = np.arange(len(seeds)), np.zeros((len(seeds), engine.observation_size), np.float32)
        engine.reset(slots, np.array(seeds), observations)
        for _ in range(3):
            engine.step(slots, np.zeros((len(seeds), engine.action_size), np.float32), observations)
        engine.close()
        # The first lines of a traceback name the code that called the environment; the last line is the error.
        return [engine.faults[slot].splitlines()[-1] for slot in slots]

    together = faults(range(12))
    assert together == [faults([seed])[0] for seed in range(12)]
    first = next(slot for slot, fault in enumerate(together) if "(7,), not (3,)" in fault)
    assert any("the motor burnt out" in fault for fault in together[first + 1 :])


def test_a_fault_is_not_explained_by_the_result_of_another_slot():
    engine = environments.make(EnvOptions(id="toys:Wordy", kwargs={"place": 2}), 2)
    observations = np.zeros((2, 2), np.float32)
    engine.reset(np.arange(1), np.array([1]), observations)
    engine.step(np.arange(2), np.zeros((2, engine.action_size), np.float32), observations)
    assert list(engine.faults) == [1]
    assert "there is no environment in this slot" in engine.faults[1]
    engine.close()


def old_interface(since):
    return environments.make(EnvOptions(id="toys:OldInterface-v0", kwargs={"since": since}), 1)


@pytest.mark.parametrize(("since", "method"), [(1, "step"), (3, "step"), (-1, "reset")])
def test_an_old_interface_is_refused_at_the_door(since, method):
    with pytest.raises(InputError, match=method) as refused:
        environments.check_repeatable(old_interface(since))
    assert refused.value.argument == "env.id"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Seedless", r"toys:Seedless: reset must take seed and options, as reset\(self, \*, seed=None"),
        ("Spaceless", r"expected an environment with an observation_space and an action_space, got toys:Spaceless \("),
        ("Abstract", r"an observation_space and an action_space, got toys:Abstract \(NotImplementedError\)\.$"),
        ("Sized", r"missing 1 required positional argument: 'size'\)\. Its arguments are env\.kwargs\.$"),
        ("Parallel", r"PettingZoo's environments are not supported\.$"),
    ],
)
def test_a_class_that_forgets_a_part_of_the_interface_is_refused_at_the_door(name, said):
    with pytest.raises(InputError, match=said):
        environments.check_repeatable(environments.make(EnvOptions(id=f"toys:{name}"), 1))


def test_a_wrong_keyword_inside_reset_is_an_error_of_the_episode():
    engine = environments.make(EnvOptions(id="toys:Misspelt"), 1)
    assert environments.check_repeatable(engine) == ()
    engine.reset(np.zeros(1, np.intp), np.zeros(1, np.int64), np.zeros((1, engine.observation_size), np.float32))
    assert "unexpected keyword argument 'sed'" in engine.faults[0]


def test_an_environment_whose_spaces_are_refused_is_closed(monkeypatch):
    monkeypatch.setattr(Texts, "closed", 0)
    with pytest.raises(InputError):
        environments.make(EnvOptions(id="toys:Texts"), 1)
    assert Texts.closed == 1


def test_an_invalid_rate_of_frames_counts_as_none(monkeypatch):
    for rate in ("as you like", 10**400):
        monkeypatch.setitem(Rated.metadata, "render_fps", rate)
        assert environments.make(EnvOptions(id="toys:Rated"), 1).fps == DEFAULT_FPS
    assert environments.make(EnvOptions(id="toys:unrated"), 1).fps == DEFAULT_FPS
    assert not environments.try_drawing(EnvOptions(id="toys:unrated"))


@pytest.mark.parametrize(("place", "said"), [(1, "reward of step must be one number, not '"), (2, "terminated of step"),
                                             (3, "truncated of step must be one bool, not 'False'")])  # fmt: skip
def test_a_text_is_neither_a_reward_nor_an_end(place, said):
    with pytest.raises(InputError, match=said):
        environments.check_repeatable(environments.make(EnvOptions(id="toys:Wordy", kwargs={"place": place}), 1))


class Tensor:
    """A number with the attributes of a tensor of PyTorch: `size` is a method."""

    def __init__(self, value):
        self.value = np.asarray(value)
        self.shape = self.value.shape

    def size(self):
        return self.shape

    def __array__(self, dtype=None, copy=None):
        return self.value

    def __float__(self):
        return float(self.value)


def test_a_tensor_may_be_a_reward_and_an_end():
    space = gymnasium.spaces.Discrete(2)
    assert step_fault(space, (0, Tensor(0.5), Tensor(True), Tensor([False]), {})) is None
    fault = step_fault(space, (0, Tensor(0.5), Tensor([True, False]), Tensor(False), {}))
    assert fault.startswith("terminated of step must be one bool")


def test_an_interface_that_breaks_in_an_episode_is_named_without_a_traceback():
    engine = old_interface(2)
    observations = np.zeros((1, 2), np.float32)
    engine.reset(np.array([0]), np.array([5]), observations)
    outputs = np.zeros((1, engine.action_size), np.float32)
    engine.step(np.array([0]), outputs, observations)
    assert engine.faults == {}
    engine.step(np.array([0]), outputs, observations)
    assert "4 values" in engine.faults[0]
    assert "Traceback" not in engine.faults[0]
    engine.faults.clear()
    engine = old_interface(-1)
    engine.reset(np.array([0]), np.array([5]), observations)
    assert "(observation, info)" in engine.faults[0]


@pytest.mark.parametrize("line", ["[].nothing", "raise SystemExit(3)"])
def test_a_module_of_a_wrapper_that_cannot_be_imported_is_named(line, tmp_path, monkeypatch):
    (tmp_path / "half.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"env\.wrappers: .*that can be imported, got half:Wrapper") as refused:
        environments.make(EnvOptions.model_validate({"id": "half:Walk-v0", "wrappers": ["half.Wrapper"]}), 1)
    assert isinstance(refused.value.__cause__, AttributeError | SystemExit)


def test_a_wrapper_of_another_package_is_named_in_full():
    for name, advised in (("Notes", "toys:Notes"), ("Nowhere", "module:Nowhere")):
        with pytest.raises(InputError) as refused:
            environments.make(EnvOptions.model_validate({"id": "toys:Switches-v0", "wrappers": [name]}), 1)
        assert str(refused.value).endswith(f'name its module, too: env.wrappers=["{advised}"].')
    with pytest.raises(InputError, match="Did you mean TimeAwareObservation") as refused:
        environments.make(EnvOptions.model_validate({"id": "CartPole-v1", "wrappers": ["TimeAwareObservatio"]}), 1)
    assert "its module" not in str(refused.value)


def test_a_wrapper_of_gymnasium_needs_no_module():
    options = EnvOptions.model_validate({"id": "Pendulum-v1", "wrappers": ["TimeAwareObservation"]})
    assert options.wrappers[0].name == "gymnasium.wrappers:TimeAwareObservation"
    assert environments.make(options, 1).observation_size == 4
    dotted = EnvOptions.model_validate({"wrappers": ["my.module.Wrapper"]})
    assert dotted.wrappers[0].name == "my.module:Wrapper"


@pytest.mark.parametrize(
    ("env_id", "advised"),
    [
        ("ALE/Pong-v5", "ale_py:ALE/Pong-v5"),
        ("PongNoFrameskip-v4", "ale_py:PongNoFrameskip-v4"),
        ("MiniGrid-Empty-5x5-v0", 'pip install minigrid, then env.id="minigrid:MiniGrid-Empty-5x5-v0"'),
        ("FetchReach-v4", "gymnasium_robotics:FetchReach-v4"),
        ("dm_control/cartpole-balance-v0", "pip install 'shimmy[dm-control]', then"),
        ("pettingzoo.classic:tictactoe_v3", "one agent"),
        ("simple_spread_v3", "one agent"),
        ("cartpole_v1", "Did you mean CartPole-v1?"),
        ("toys.Switches", 'env.id="toys:Switches"'),
        ("toys:switches_v0", "no class or function switches_v0. Did you mean Switches"),
    ],
)
def test_environments_of_other_packages_are_known(env_id, advised):
    with pytest.raises(InputError) as refused:
        environments.make(EnvOptions(id=env_id), 1)
    assert advised in str(refused.value)
