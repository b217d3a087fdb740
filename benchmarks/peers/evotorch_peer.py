"""CartPole by EvoTorch: PGPE with ClipUp, its own recipe for such tasks."""

from functools import partial

import gymnasium
import numpy as np
import torch
from evotorch.algorithms import PGPE
from evotorch.neuroevolution import GymNE


def train(seed, workers, steps):
    torch.manual_seed(seed)
    problem = GymNE(
        partial(environment, seed),
        "Linear(obs_length, 8) >> Tanh() >> Linear(8, act_length)",
        num_actors=workers if workers > 1 else None,
        num_episodes=4,
    )
    searcher = PGPE(
        problem,
        popsize=64,
        radius_init=2.25,
        center_learning_rate=0.075,
        stdev_learning_rate=0.1,
        optimizer_config={"max_speed": 0.15},
    )
    total = 0
    while total < steps:
        searcher.step()
        total = int(problem.status["total_interaction_count"])
        center = searcher.status["center"].clone()
        yield total, center.numpy().tobytes().hex(), partial(champion, problem, center)


def environment(seed, **settings):
    env = gymnasium.make("CartPole-v1", **settings)
    env.reset(seed=seed)  # GymNE resets without a seed, and continues the random numbers of this one
    return env


def champion(problem, center):
    network = problem.parameterize_net(center)

    def act(observations):
        with torch.no_grad():
            return np.asarray(network(torch.as_tensor(observations)).argmax(dim=1))

    return act
