"""A module of one's own that cannot be imported, or registers no environment of the asked name, is explained."""

import sys
from types import SimpleNamespace

import gymnasium
import pytest

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments import gymnasium_making
from evolve.errors import InputError


@pytest.mark.parametrize(
    ("source", "kwargs", "message"),
    [
        (
            "import gymnasium\ngymnasium.spec('FetchReach-v4')",
            {},
            r"^env\.id: .* The module {} failed while it was imported: NameNotFound: .*\w\.$",
        ),
        ("import gymnasium\ngymnasium.register('My Line-v0', entry_point='x:Y')", {}, r"^env\.id: .*: My Line-v0\."),
        (
            "open('missing.json')",
            {"reach": 0.5},
            r"^env\.id: expected an environment that can be made, .*missing\.json",
        ),
        ("open('missing.json')", {}, r"^env\.id: expected an environment that can be made, .*missing\.json"),
    ],
)
def test_a_module_that_fails_is_explained(monkeypatch, tmp_path, request, source, kwargs, message):
    module = f"own_module_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=message.replace("{}", module)):
        environments.make(EnvOptions(id=f"{module}:Line-v0", engine="gymnasium", kwargs=kwargs), 1)


def test_a_wrapper_of_an_installed_package_is_imported_in_a_module_of_ones_own():
    options = EnvOptions(id="toys:Cart-v0", wrappers=({"name": "h5py._hl.files:File"},))
    with pytest.raises(InputError, match=r'Import both .*: env\.id="mine:Cart-v0" and env\.wrappers=\["mine:File"\]'):
        environments.make(options, 1)


def test_the_warnings_of_gymnasium_come_again_after_an_environment_was_made(monkeypatch):
    monkeypatch.setattr(gymnasium.logger, "min_level", gymnasium.logger.WARN)
    environments.make(EnvOptions(id="CartPole-v1"), 1).close()
    assert gymnasium.logger.min_level == gymnasium.logger.WARN


def test_an_id_without_a_version_has_the_properties_of_the_newest():
    options, newest = (EnvOptions(id=env_id, engine="gymnasium") for env_id in ("CartPole", "CartPole-v1"))
    for find in (environments.max_episode_steps, environments.is_quick, lambda o: environments.labels(o.id, 4, 2)):
        assert find(options) == find(newest)
    assert environments.max_episode_steps(options) == 500
    assert environments.max_episode_steps(EnvOptions(id="CartPole-v0", engine="gymnasium")) == 200
    assert environments.max_episode_steps(EnvOptions(id="CartPole-v7", engine="gymnasium")) is None


@pytest.fixture
def own(monkeypatch, tmp_path):
    """A function that writes a module of one's own, and returns its name."""

    def write(source):
        name = f"own_module_{abs(hash(source))}"
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        return name

    return write


def test_an_environment_that_asks_for_an_unknown_one_is_not_unknown_itself(own):
    module = own(
        "import gymnasium\n"
        "def make(): return gymnasium.make('Elsewhere/Missing-v3')\n"
        "gymnasium.register('Asks-v0', entry_point=make)\n"
    )
    try:
        for name in ("make", "Asks-v0"):
            message = rf"^env\.id: expected an environment that can be made, got {module}:{name} \(.*Elsewhere.*\)\.$"
            with pytest.raises(InputError, match=message):
                environments.make(EnvOptions(id=f"{module}:{name}"), 1)
    finally:
        gymnasium.registry.pop("Asks-v0", None)


def test_a_class_may_have_the_name_of_an_environment_of_gymnasium(own):
    module = own(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import MountainCarEnv as MountainCar, PendulumEnv\n"
        "class CartPole(PendulumEnv): pass\n"
        "class Acrobot(PendulumEnv): pass\n"
        "gymnasium.register('Acrobot-v9', entry_point=Acrobot, max_episode_steps=7)\n"
    )
    options = EnvOptions(id=f"{module}:CartPole")
    assert environments.make(options, 1).observation_size == 3
    assert environments.max_episode_steps(options) is None
    assert not environments.is_quick(options)
    # If a module has Gymnasium's own class, or registers its class, the registration counts.
    try:
        for name, size, limit in (("MountainCar", 2, 200), ("Acrobot", 3, 7)):
            options = EnvOptions(id=f"{module}:{name}")
            assert environments.make(options, 1).observation_size == size
            assert environments.max_episode_steps(options) == limit
    finally:
        gymnasium.registry.pop("Acrobot-v9", None)


def test_an_environment_that_its_wrapper_refuses_is_closed(own):
    module = own(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "closed = []\n"
        "class Closed(PendulumEnv):\n"
        "    def close(self): closed.append(self)\n"
        "class Refuses(gymnasium.Wrapper):\n"
        "    def __init__(self, env): raise ValueError('no')\n"
    )
    options = EnvOptions.model_validate({"id": f"{module}:Closed", "wrappers": [f"{module}:Refuses"]})
    with pytest.raises(InputError, match=r"^env\.wrappers\.0: expected a wrapper that fits"):
        environments.make(options, 1)
    assert len(sys.modules[module].closed) == 1


def test_a_wrapper_that_lacks_a_package_is_not_said_to_have_wrong_arguments(own):
    module = own(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "class Resizes(gymnasium.Wrapper):\n"
        "    def __init__(self, env): raise gymnasium.error.DependencyNotInstalled('opencv is not installed')\n"
    )
    options = EnvOptions.model_validate({"id": f"{module}:PendulumEnv", "wrappers": [f"{module}:Resizes"]})
    with pytest.raises(InputError, match=r"whose packages are installed, got Resizes \(.*opencv is not installed\)\.$"):
        environments.make(options, 1)


def test_an_environment_may_fail_when_it_is_closed(own):
    module = own(
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "class Stuck(PendulumEnv):\n"
        "    metadata = {'render_modes': []}\n"
        "    def close(self): raise RuntimeError('stuck')\n"
    )
    environments.check_randomized(EnvOptions(id=f"{module}:Stuck", randomize={"g": {"uniform": [5, 15]}}))
    assert not environments.try_drawing(EnvOptions(id=f"{module}:Stuck"))


def test_an_environment_without_a_render_mode_is_not_filmed(own):
    module = own("from gymnasium.envs.classic_control import PendulumEnv\ndef make(): return PendulumEnv()\n")
    options = EnvOptions(id=f"{module}:make", kwargs={"render_mode": "rgb_array"})  # as for a film
    with pytest.raises(
        InputError, match=r"^env\.id: .* made with render_mode='rgb_array', got .*a function has to pass"
    ):
        environments.make(options, 1)


def test_the_package_that_a_wrapper_needs_is_named(monkeypatch):
    def missing(_name):
        raise ModuleNotFoundError("No module named 'array_api_compat'", name="array_api_compat")

    monkeypatch.setattr(gymnasium.wrappers, "__getattr__", missing)
    options = EnvOptions.model_validate({"id": "CartPole-v1", "wrappers": ["NumpyToDevice"]})
    with pytest.raises(InputError, match=r"gymnasium\.wrappers imports array_api_compat: install it\.$"):
        environments.make(options, 1)


def test_a_constructor_that_panics_is_explained(own):
    module = own("class Panic(BaseException): pass\ndef make(): raise Panic('out of bounds')\n")
    with pytest.raises(InputError, match=rf"that can be made, got {module}:make \(Panic: out of bounds\)"):
        environments.make(EnvOptions(id=f"{module}:make"), 1)


def test_a_function_of_pettingzoo_is_not_supported(monkeypatch, tmp_path):
    (tmp_path / "pettingzoo.py").write_text("def env(): raise TypeError('no gymnasium.Env')\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pettingzoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"one agent here, so PettingZoo's environments are not supported\.$"):
        environments.make(EnvOptions(id="pettingzoo:env"), 1)
    monkeypatch.delitem(sys.modules, "pettingzoo")


def test_an_error_without_a_message_is_placed(own):
    module = own("def make():\n    assert 1 > 2\n")
    with pytest.raises(InputError, match=rf"{module}:make \(AssertionError in .*{module}\.py, line 2\)\.$"):
        environments.make(EnvOptions(id=f"{module}:make"), 1)


def test_a_known_package_is_imported_for_its_environments(monkeypatch, tmp_path):
    """Its documentation imports it in another line, and leaves the module out of the name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "miniworld"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "miniworld").mkdir()
    (tmp_path / "miniworld" / "__init__.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "gymnasium.register('MiniWorld-Toy-v3', entry_point=PendulumEnv, max_episode_steps=7)\n"
    )
    (tmp_path / "miniworld" / "wrappers.py").write_text("from gymnasium.wrappers import TimeAwareObservation as Timed")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        options = EnvOptions.model_validate({"id": "MiniWorld-Toy-v3", "wrappers": ["miniworld.wrappers:Timed"]})
        assert environments.max_episode_steps(options) == 7
        assert environments.make(options, 1).observation_size == 4
        with pytest.raises(InputError, match=r"got MiniWorld-Tow-v3\. Did you mean MiniWorld-Toy-v3"):
            environments.make(EnvOptions(id="MiniWorld-Tow-v3"), 1)
    finally:
        gymnasium.registry.pop("MiniWorld-Toy-v3", None)
        for name in ("miniworld", "miniworld.wrappers"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("own_handler", [False, True])
def test_each_warning_of_mujoco_is_logged_once(monkeypatch, caplog, own_handler):
    users = []
    fake = SimpleNamespace(handler=users.append if own_handler else None)
    fake.get_mju_user_warning = lambda: fake.handler
    fake.set_mju_user_warning = lambda handler: setattr(fake, "handler", handler)
    monkeypatch.setitem(sys.modules, "mujoco", fake)
    make = gymnasium_making.maker(EnvOptions(id="toys:Warns", randomize={"x": {"uniform": [1.0, 2.0]}}))
    for x in (1.0, 2.0, 1.0):
        make({"x": x})
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ([] if own_handler else ["MuJoCo: attribute 1.0", "MuJoCo: attribute 2.0"])
    assert len(users) == (3 if own_handler else 0)
    assert (fake.handler is None) != own_handler


def test_the_first_warning_of_mujoco_in_a_process_is_logged_too(monkeypatch, caplog, tmp_path):
    """Only the module of the environment imports MuJoCo."""
    (tmp_path / "late.py").write_text("""
import sys, types
from toys import Warns
fake = sys.modules["mujoco"] = types.SimpleNamespace(handler=None)
fake.get_mju_user_warning = lambda: fake.handler
fake.set_mju_user_warning = lambda handler: setattr(fake, "handler", handler)
""")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    del sys.modules["mujoco"]
    gymnasium.register("Late-v0", "late:Warns")
    try:
        gymnasium_making.maker(EnvOptions(id="Late-v0", kwargs={"x": 3.0}))()
    finally:
        gymnasium.registry.pop("Late-v0")
        sys.modules.pop("late", None)
    assert [record.getMessage() for record in caplog.records] == ["MuJoCo: attribute 3.0"]
