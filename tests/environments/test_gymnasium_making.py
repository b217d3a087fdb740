"""A module of one's own that cannot be imported, or registers no environment of the asked name, is explained."""

import pytest

from evolve import environments
from evolve.config import EnvOptions
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


def test_an_id_without_a_version_has_the_properties_of_the_newest():
    options, newest = (EnvOptions(id=env_id, engine="gymnasium") for env_id in ("CartPole", "CartPole-v1"))
    for find in (environments.max_episode_steps, environments.is_quick, lambda o: environments.names(o.id, 4, 2)):
        assert find(options) == find(newest)
    assert environments.max_episode_steps(options) == 500
    assert environments.max_episode_steps(EnvOptions(id="CartPole-v0", engine="gymnasium")) == 200
    assert environments.max_episode_steps(EnvOptions(id="CartPole-v7", engine="gymnasium")) is None
