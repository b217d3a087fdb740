"""The speed of the exact engine: its kernel alone, and whole generations; on request, gymnax's CartPole by JAX.

    python benchmarks/exact.py
    python benchmarks/exact.py --strategy openai-es -p 1024 --generations 0 20
    python benchmarks/exact.py --jax        # pip install -r benchmarks/requirements-jax.txt
    python benchmarks/exact.py --walker     # BipedalWalker and LunarLander, beside Gymnasium and EnvPool

Rates are steps of episodes per CPU second, so that other programs on the machine count little. A generation includes
everything from ask to record and the run file, in one process. Each line averages a few generations, from the named one
on. JAX plays as many episodes with the genomes of the last of these generations: all side by side, in one compiled loop
that runs until the last episode ends. Steps after the end of an episode do not count. With `--strategy random` episodes
stay short, and have all lengths.

With `--walker` bare environments of Gymnasium, EnvPool and the exact engine play recorded actions in turns, on one
core: a champion's actions, and random actions. Then the exact engine plays whole generations of walkers.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec

import numpy as np
from exact_parts import walker
from exact_parts.generations import TOGETHER, measure

from evolve.config import Config, parse
from evolve.numerics import native
from evolve.training import prepare

_INPUTS, _HIDDEN, _OUTPUTS = 4, 8, 2


@dataclass(frozen=True)
class Line:
    """Steps per episode, and steps per CPU second: of the kernel, of whole generations, and of JAX."""

    generation: int
    length: float
    kernel: float
    whole: float
    jax: float | None

    def __str__(self) -> str:
        last = self.generation + TOGETHER - 1
        rates = f"kernel {self.kernel / 1e6:.1f}, generation {self.whole / 1e6:.1f} ({self.whole / self.kernel:.2f})"
        beside = "" if self.jax is None else f"; JAX {self.jax / 1e6:.2f}, {self.whole / self.jax:.1f} times less"
        steps = f"{self.length:.0f} steps per episode; million steps per CPU second"
        return f"generations {self.generation} to {last}: {steps}: {rates}{beside}"


def rate_of_jax(weights: np.ndarray) -> float:
    """Return the useful steps per CPU second of episodes with weights [N, W] of a dag with one hidden layer."""
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    from gymnax.environments.classic_control.cartpole import CartPole  # noqa: PLC0415

    env, key = CartPole(), jax.random.key(0)
    params = env.default_params

    def policy(genome, observation):
        into, out = jnp.split(genome, [_INPUTS * _HIDDEN])
        hidden = jnp.tanh(observation @ into.reshape(_INPUTS, _HIDDEN))
        return jnp.argmax(jnp.concatenate([observation, hidden]) @ out.reshape(_INPUTS + _HIDDEN, _OUTPUTS))

    def advance(genomes, carry):
        step, observations, states, alive, lengths = carry
        actions = jax.vmap(policy)(genomes, observations)
        observations, states, _, ended, _ = jax.vmap(env.step_env, (None, 0, 0, None))(key, states, actions, params)
        return step + 1, observations, states, alive & ~ended, lengths + alive

    def goes_on(carry):
        return (carry[0] < params.max_steps_in_episode) & carry[3].any()

    @jax.jit
    def play(genomes, keys):
        begin = jax.vmap(env.reset_env, (0, None))(keys, params)
        alive, lengths = jnp.ones(len(keys), bool), jnp.zeros(len(keys), jnp.int32)
        return jax.lax.while_loop(goes_on, lambda carry: advance(genomes, carry), (0, *begin, alive, lengths))[4]

    genomes, keys = jnp.asarray(weights), jax.random.split(key, len(weights))
    play(genomes, keys).block_until_ready()  # compiles
    begin = time.process_time()
    steps = int(np.asarray(play(genomes, keys)).sum())
    return steps / (time.process_time() - begin)


def compare_cart_pole(asked: argparse.Namespace) -> None:
    """Print a line for some generations of CartPole, and for some later ones."""
    population, episodes = asked.population or 4096, asked.episodes or 4
    table = {
        "population": population,
        "episodes": episodes,
        "generations": max(asked.generations) + TOGETHER + 1,
        "env": {"id": "CartPole-v1", "engine": "exact"},
        "network": {"name": "dag", "hidden": [_HIDDEN]},
        "strategy": {"name": asked.strategy},
        "compute": {"threads": 1},
    }
    measured = measure(prepare(parse(Config, table)), sorted(asked.generations))
    lines = (
        Line(
            found.generation,
            found.length,
            found.steps / found.kernel_seconds,
            found.steps / found.seconds,
            rate_of_jax(found.weights) if asked.jax else None,
        )
        for found in measured
    )
    if asked.json:
        print(json.dumps([asdict(line) for line in lines]))
        return
    print(f"CartPole-v1, dag 4-{_HIDDEN}-2, {asked.strategy}, {population:,} × {episodes} episodes")
    for line in lines:
        print(line, flush=True)


def compare_walkers(asked: argparse.Namespace) -> None:
    """Print the tables of the tasks with rigid bodies."""
    walker.pin()
    engines = list(walker.rows(asked.recorded))
    whole = list(walker.generations(asked.population or 256, asked.episodes or 4))
    if asked.json:
        print(json.dumps(walker.as_json(engines, whole)))
    else:
        walker.show(engines, whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--strategy", default="prune", help="of CartPole's generations")
    parser.add_argument("-p", "--population", type=int, help="4096; walkers: 256")
    parser.add_argument("-r", "--episodes", type=int, help="4")
    parser.add_argument("--generations", type=int, nargs="+", default=[0, 12], metavar="G", help="of CartPole")
    parser.add_argument("--jax", action="store_true", help="let JAX play beside it")
    parser.add_argument("--walker", action="store_true", help="measure the tasks with rigid bodies instead")
    parser.add_argument("--recorded", type=int, default=32, metavar="N", help="with --walker: of each row")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.jax and not (find_spec("jax") and find_spec("gymnax")):
        raise SystemExit("--jax needs jax and gymnax. Run pip install -r benchmarks/requirements-jax.txt")
    if not native.available():
        raise SystemExit("expected native kernels, which are not built. Install a C compiler and run pip install -e .")
    if min(np.diff([-TOGETHER, *sorted(asked.generations)])) < TOGETHER:
        parser.error(f"--generations: expected numbers from 0 on, at least {TOGETHER} apart")
    if asked.walker:
        compare_walkers(asked)
    else:
        compare_cart_pole(asked)


if __name__ == "__main__":
    main()
