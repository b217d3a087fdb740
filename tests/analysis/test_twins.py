"""The environment that is drawn for a run whose own environment cannot be drawn."""

from evolve import store
from evolve.analysis.video import drawable
from evolve.training import reload

SHORT = ("--engine", "envpool", "--set", "env.max_episode_steps=20")


def test_what_envpool_cannot_draw_is_shown_in_gymnasium_and_said_so(record):
    experiment = reload(store.read(record("HalfCheetah-v4", *SHORT)))
    twin, said = drawable(experiment)
    assert (twin.config.env.engine, twin.network) == ("gymnasium", experiment.network)
    for name in ("HalfCheetah-v4", "Gymnasium", "EnvPool"):
        assert name in said


def test_what_envpool_can_draw_is_shown_itself(record):
    experiment = reload(store.read(record("CartPole-v1", *SHORT)))
    assert drawable(experiment) == (experiment, "")
