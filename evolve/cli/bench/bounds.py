"""Lower bounds of a run's time: start-up, one step of the network, and one step of the bare environment."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from evolve import environments
from evolve.cli.bench.rollouts import record
from evolve.environments import ENGINES
from evolve.errors import InputError, RunError
from evolve.genome import Genomes, concatenate
from evolve.networks import Network
from evolve.numerics import native
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Float32
from evolve.training import Experiment, prepare

IMPORT_BUDGET, FIRST_STEP_BUDGET = 1.0, 2.0
"""The seconds that `import evolve.cli.run` may take, and a run up to its first environment step."""

# A program that runs `evolve run`, and prints the time at which the first rollout takes its first step. It replaces
# `tick` of both kinds of rollouts by a function that prints, restores the original, and calls it.
_RUN = """
import sys, time
from evolve.rollouts.exact_rollout import ExactRollout
from evolve.rollouts.rollout import Rollout
def announce(kind):
    step = kind.tick
    def first(self):
        print("first", time.time(), file=sys.stderr, flush=True)
        kind.tick = step
        return step(self)
    kind.tick = first
announce(Rollout)
announce(ExactRollout)
from evolve.cli.run import main
sys.exit(main())
"""

_EPISODES = {"exact": 256, "envpool": 64, "gymnasium": 16}
"""The number of episodes that each engine plays, approximately. Fast engines play more, to run long enough."""


def _seconds(words: Sequence[str]) -> tuple[float, float, str]:
    """Run Python with command-line arguments; return its seconds, the wall-clock time of its start, and its stderr."""
    begin, before = time.perf_counter(), time.time()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the start-up measurement failed: {done.stderr or done.stdout}")
    return time.perf_counter() - begin, before, done.stderr


def startup_seconds(words: Sequence[str], directory: str, rounds: int = 3) -> dict[str, Any]:
    """Return the seconds of three processes: bare Python, `import evolve.cli.run`, and a run up to its first step.

    Args:
        words: The command-line arguments of the run.
        directory: The directory for its run files.
        rounds: The number of measurements. The smallest time of each process counts.
    """
    # One generation of two candidates with one episode each: the shortest run that takes a step.
    small = [*words, "-g", "1", "-p", "2", "-r", "1", "--set", "held_out_episodes=0"]
    bare, imported, first = [], [], []
    for number in range(rounds):
        bare.append(_seconds(["-c", "pass"])[0])
        imported.append(_seconds(["-c", "import evolve.cli.run"])[0])
        _, before, output = _seconds(["-c", _RUN, *small, "-o", f"{directory}/{number}"])
        first.append(next(float(line.split()[1]) for line in output.splitlines() if line.startswith("first ")) - before)
    return {"python": min(bare), "import": min(imported), "first_step": min(first),
            "import_budget": IMPORT_BUDGET, "first_step_budget": FIRST_STEP_BUDGET}  # fmt: skip


def _initial(network: Network, slots: int) -> tuple[Genomes, Float32]:
    """Return a genome [slots, W] and an observation [slots, O] for each slot."""
    genomes = concatenate(*(network.init(Stream(0, Purpose.INIT, 0, slot)) for slot in range(slots)))
    uniform = Stream(0, Purpose.EPISODE).uniform(slots, network.observation_size)
    return genomes, (2 * uniform - 1).astype(np.float32)


def _steppers(network: Network, slots: int) -> dict[str, Callable[[], object]]:
    """Return a function for each back end that steps a batch of `slots` networks once."""
    genomes, observations = _initial(network, slots)
    found: dict[str, Callable[[], object]] = {}
    names: list[native.Backend] = ["numpy", "native"] if native.available() else ["numpy"]
    for name in names:
        batch = network.batch(slots, name)
        batch.load(np.arange(slots), genomes.weights, genomes.mask, np.arange(slots))
        found[name] = partial(batch.step, observations)
    return found


def network_row(network: Network, slots: int, rounds: int = 5, seconds: float = 0.05) -> dict[str, Any]:
    """Return the nanoseconds of one step of one network with each back end.

    The back ends take turns, and the smallest time of all rounds counts. In each round a back end makes as many steps
    as fit into about `seconds`.
    """
    steppers = _steppers(network, slots)
    best = dict.fromkeys(steppers, float("inf"))
    ticks = dict.fromkeys(steppers, 1)
    for _ in range(rounds + 1):  # one round more, which only finds the numbers of steps
        for name, step in steppers.items():
            begin = time.perf_counter()
            for _ in range(ticks[name]):
                step()
            best[name] = min(best[name], (time.perf_counter() - begin) / ticks[name])
            ticks[name] = max(1, int(seconds / best[name]))
    return {"slots": slots} | {name: took / slots * 1e9 for name, took in best.items()}


def network_rows(network: Network, batches: tuple[int, ...] = (1, 16, 64, 256)) -> list[dict[str, Any]]:
    """Return a row for each batch size, with the time of each back end that was built."""
    return [network_row(network, slots) for slots in batches]


def engine_rows(experiment: Experiment, genomes: Genomes, generation: int) -> list[dict[str, Any]]:
    """Return a row for each engine that has the environment: its name, steps, and microseconds of CPU time per step.

    Networks first play episodes in the engine, and their outputs are recorded. Then the engine replays these outputs,
    so the time of networks is not measured. An engine that lacks the environment has no row.
    """
    found = []
    config = experiment.config
    for engine in ENGINES:
        if engine == "exact" and not native.available():  # array operations are a reference, not a fast engine
            continue
        options = config.env.model_copy(update={"engine": engine})
        try:
            other = prepare(config.model_copy(update={"env": options}))
        except InputError:
            continue
        # At least as many candidates as give `_EPISODES`: the division is rounded up.
        candidates = range(min(len(genomes), -(-_EPISODES[engine] // config.episodes)))
        steps, seconds = environments.replay(options, record(other, genomes, candidates, generation), time.process_time)
        found.append({"engine": engine, "steps": steps, "microseconds": seconds / steps * 1e6})
    return sorted(found, key=lambda row: row["microseconds"])
