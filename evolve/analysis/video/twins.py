"""What is drawn in place of environments that cannot draw themselves."""

from contextlib import closing
from dataclasses import replace

from evolve import environments
from evolve.environments.envpool_engine import can_draw
from evolve.environments.rendering import Mode
from evolve.errors import InputError
from evolve.training import Experiment


def drawable(experiment: Experiment, mode: Mode = "rgb_array") -> tuple[Experiment, str]:
    """Return an experiment whose environment can be drawn, and what has to be said of it.

    What EnvPool cannot draw is shown in Gymnasium's environment of the same name, where there is one. That plays other
    episodes from the same seeds.

    Args:
        experiment: Whose champion is shown.
        mode: How: as frames, or in a window.

    Raises:
        InputError: Gymnasium's environment has other observations or actions, or cannot be made.
    """
    env = experiment.config.env
    if env.engine != "envpool" or (mode == "rgb_array" and can_draw(env.id)):
        return experiment, ""
    config = experiment.config.model_copy(update={"env": env.model_copy(update={"engine": "gymnasium"})})
    with closing(environments.make(config.env, slots=1)) as engine:
        network = experiment.network
        if (engine.observation_size, engine.action_size) != (network.observation_size, experiment.action_size):
            raise InputError("env.engine", "an environment of Gymnasium that is EnvPool's twin", env.id)
    name = f"{engine.id} of Gymnasium"
    why = "has no window" if mode == "human" else "draws none of its own"
    said = f"an episode of {name}, since EnvPool, where it evolved and was evaluated, {why}"
    return replace(experiment, config=config), said
