"""CartPole by evosax: OpenAI-ES, in gymnax's environment, all of it compiled by JAX."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from evosax.algorithms import Open_ES
from evosax.problems import MLP, GymnaxProblem

POPULATION, EPISODES = 64, 4


def train(seed, workers, steps):
    policy = MLP(layer_sizes=(8, 2), output_fn=lambda outputs, key: jnp.argmax(outputs, axis=-1))
    problem = GymnaxProblem("CartPole-v1", policy, num_rollouts=EPISODES, use_normalize_obs=False)
    key, *keys = jax.random.split(jax.random.key(seed), 4)
    first = policy.init(keys[0], jnp.zeros(4), keys[0])
    search = Open_ES(POPULATION, first, optimizer=optax.adam(0.1), std_schedule=optax.constant_schedule(0.3))
    params, played = search.default_params, problem.init(keys[1])
    state = search.init(keys[2], first, params)
    ask, tell = jax.jit(search.ask), jax.jit(search.tell)
    total = 0
    while total < steps:
        key, asked, evaluated, told = jax.random.split(key, 4)
        population, state = ask(asked, state, params)
        fitness, played, _ = problem.eval(evaluated, population, played)
        state, _ = tell(told, population, -fitness, state, params)
        total += round(float(fitness.sum()) * EPISODES)  # a step earns 1
        mean = search.get_mean(state)
        digest = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(mean)).hex()
        yield total, digest, partial(champion, policy, mean)


def champion(policy, mean):
    return jax.jit(lambda observations: policy.apply(mean, observations))
