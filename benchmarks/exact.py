"""How fast the exact engine is: its kernel alone, and whole generations; on demand gymnax's CartPole, by JAX.

    python benchmarks/exact.py
    python benchmarks/exact.py --strategy openai-es -p 1024 --generations 0 20
    python benchmarks/exact.py --jax        # pip install -e '.[jax]'

Rates are steps of episodes per CPU second, so that neighbours on the machine count little. A generation is all of it,
from ask to record and the run file, by one process; each line is over a few generations, from the one it names on. JAX
plays as many episodes with the genomes of the last of these: all side by side, in one compiled loop that ends when none
is left. Steps of episodes that have ended already do not count. With `--strategy random` episodes stay short, and are
of all lengths.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from evolve.cluster import Coordinator, Transport
from evolve.config import Config, parse
from evolve.errors import install_command
from evolve.rollouts.play import NativePlay
from evolve.store import Header, create
from evolve.training import Experiment, iterate, make_rollout, making_rollouts, prepare

_TOGETHER = 4  # generations, of a line
_INPUTS, _HIDDEN, _OUTPUTS = 4, 8, 2


class TimedPlay(NativePlay):
    """Notes how long the kernel played, and which weights [n, W]."""

    seconds = 0.0
    fed: tuple[np.ndarray, ...] = ()

    def feed(self, feed):
        TimedPlay.fed += (feed.columns[0],)
        super().feed(feed)

    def run(self, steps, more):
        begin = time.process_time()
        made = super().run(steps, more)
        TimedPlay.seconds += time.process_time() - begin
        return made


@dataclass(frozen=True)
class Line:
    """Steps per episode, and steps per CPU second: of the kernel, of whole generations, and of JAX."""

    generation: int
    length: float
    kernel: float
    whole: float
    jax: float | None

    def __str__(self) -> str:
        last = self.generation + _TOGETHER - 1
        rates = f"kernel {self.kernel / 1e6:.1f}, generation {self.whole / 1e6:.1f} ({self.whole / self.kernel:.2f})"
        beside = "" if self.jax is None else f"; JAX {self.jax / 1e6:.2f}, {self.whole / self.jax:.1f} times less"
        steps = f"{self.length:.0f} steps per episode; million steps per CPU second"
        return f"generations {self.generation} to {last}: {steps}: {rates}{beside}"


def measure(experiment: Experiment, generations: list[int], with_jax: bool) -> Iterator[Line]:
    """Yield a line for each of the generations."""
    making_rollouts.NativePlay = TimedPlay
    with tempfile.TemporaryDirectory() as folder:
        log = create(Path(folder) / "seed-0.h5", Header(experiment.config.to_toml(), {}, 0, "CartPole-v1"))
        evolving = iterate(experiment, Coordinator(Transport(), make_rollout), log)
        for first in generations:
            while log.num_generations < first:
                next(evolving)
            TimedPlay.seconds, steps, begin = 0.0, 0, time.process_time()
            for _ in range(_TOGETHER):
                TimedPlay.fed = ()
                steps += next(evolving).steps
            whole, kernel = time.process_time() - begin, TimedPlay.seconds
            weights = np.concatenate(TimedPlay.fed)
            beside = rate_of_jax(weights) if with_jax else None
            yield Line(first, steps / _TOGETHER / len(weights), steps / kernel, steps / whole, beside)
        evolving.close()


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--strategy", default="prune")
    parser.add_argument("-p", "--population", type=int, default=4096)
    parser.add_argument("-r", "--episodes", type=int, default=4)
    parser.add_argument("--generations", type=int, nargs="+", default=[0, 12], metavar="G")
    parser.add_argument("--jax", action="store_true", help="let JAX play beside it")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.jax and not (find_spec("jax") and find_spec("gymnax")):
        raise SystemExit(f"--jax needs jax and gymnax. Run {install_command('jax')}")
    table = {
        "population": asked.population,
        "episodes": asked.episodes,
        "generations": max(asked.generations) + _TOGETHER + 1,
        "env": {"id": "CartPole-v1", "engine": "exact"},
        "network": {"name": "dag", "hidden": [_HIDDEN]},
        "strategy": {"name": asked.strategy},
    }
    lines = measure(prepare(parse(Config, table)), sorted(asked.generations), asked.jax)
    if asked.json:
        print(json.dumps([asdict(line) for line in lines]))
        return
    print(f"CartPole-v1, dag 4-{_HIDDEN}-2, {asked.strategy}, {asked.population:,} × {asked.episodes} episodes")
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
