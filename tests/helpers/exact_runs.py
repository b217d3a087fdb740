"""Short runs of the exact tasks; tests/golden.json has their digests: `python -m exact_runs BACKENDS [SET …]`."""

import hashlib
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import h5py

from evolve.cli.app import launch

CLASSICAL = ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
OWN = ["Bandit-v0", "Cues-v0", "Reversal-v0", "TMaze-v0"]
WALKERS = ["BipedalWalker-v3", "BipedalWalkerHardcore-v3"]
LANDERS = ["LunarLander-v3", "LunarLanderContinuous-v3"]
SHORT = ("-p", 10, "-r", 2, "-g", 2, "-d", 4, "-s", 17, "--set", "env.max_episode_steps=50",
         "--set", "held_out_episodes=0", "--set", "compute.check=false")  # fmt: skip
NORMALIZED = ("--set", "normalize_observations=true")
PLASTIC = ("--set", "network.plasticity=0.2", "--set", "network.neuromodulated=true")
BODIES = ("--set", "env.max_episode_steps=120")  # a lander takes 70 to the ground, a walker 12
WIND = ("--set", "env.kwargs={enable_wind=true}")
GROWING = ("-g", 4, "--set", "least_population=4", "--set", "num_interactions=150", "--set", "episode_cap=1.1")
# The digests are older than the present defaults of these strategies.
OPENAI_ES = ("--strategy", "openai-es", "--set", "strategy.sigma=0.1", "--set", "strategy.learning_rate=0.05")
PRUNE = ("--set", "strategy.survivors=1", "--set", "strategy.weight_noise=0")
UMDA = ("--strategy", "umda", "--set", "strategy.weight_noise=0",
        "--set", "strategy.mask_noise=0.1", "--set", "strategy.min_probability=0.05")  # fmt: skip
PGPE = ("--strategy", "pgpe", "--set", "strategy.max_speed=0.15", "--set", "strategy.initial_radius=2.25")
CHANGED = ("--set", "env.randomize={leg_1={choice=[-1,1]},leg_2={uniform=[0,1]},gravity={uniform=[-15,-5]}}",
           "--set", "env.kwargs={friction=1.0,changes_at=6,leg_1_later=0.5}")  # fmt: skip
SETS = {
    "dag": (CLASSICAL[::2], ("-a", "dag", *PRUNE)),
    "plastic": ([*CLASSICAL, *OWN], (*PLASTIC, *PRUNE, *NORMALIZED)),
    "hebbian-lstm": (["CartPole-v1", "Cues-v0", "TMaze-v0"], ("-a", "hebbian-lstm", *PRUNE, *NORMALIZED)),
    "mlp": (["Pendulum-v1"], ("-a", "mlp", *OPENAI_ES)),
    "low-rank": (CLASSICAL[1:2], ("-a", "mlp", *OPENAI_ES, "--set", "strategy.perturbation_rank=1")),
    "elman": (["Reversal-v0"], ("-a", "elman", "--strategy", "ga", "--set", "strategy.parents=3")),
    "plastic-mlp": (["Cues-v0"], ("-a", "plastic-mlp", "--strategy", "random")),
    "pgpe": (["Pendulum-v1"], ("-a", "mlp", *PGPE)),
    "snes": (["Pendulum-v1"], ("-a", "dag", "--strategy", "snes")),
    "sep-cma-es": (["Acrobot-v1"], ("-a", "dag", "--strategy", "sep-cma-es")),
    "cma-es": (["Acrobot-v1"], ("-a", "dag", "--strategy", "cma-es")),
    "growing": (["CartPole-v1"], ("-a", "mlp", *PGPE, *GROWING)),
    "binary-mask-mlp": (["CartPole-v1"], ("-a", "binary-mask-mlp", *UMDA)),
    "plastic-bodies": ([*WALKERS, *LANDERS], (*PLASTIC, *PRUNE, *NORMALIZED, *BODIES)),
    "mlp-bodies": ([WALKERS[0], LANDERS[1]], ("-a", "mlp", *OPENAI_ES, *NORMALIZED, *BODIES)),
    "lstm-bodies": ([WALKERS[1], LANDERS[0]], ("-a", "hebbian-lstm", *PRUNE, *NORMALIZED, *BODIES)),
    "changed-bodies": (WALKERS, ("-a", "dag", *PRUNE, *BODIES, *CHANGED)),
    "wind-bodies": (LANDERS[:1], ("-a", "elman", *PRUNE, *BODIES, *WIND)),
}
WITH_BODIES = tuple(name for name in SETS if name.endswith("-bodies"))
"""The sets of tasks with rigid bodies."""
WITHOUT_BODIES = ("numpy",)
"""The back ends that play no rigid bodies by default, because arrays are slow at whole episodes."""


def sets(backend):
    """Return the names of the sets that a back end plays by default."""
    return tuple(name for name in SETS if name not in WITH_BODIES or backend not in WITHOUT_BODIES)


def words(name, tasks=None, engine="exact"):
    """Return the arguments of `evolve run` for a set of runs, a sweep over tasks, by default all of the set."""
    every, more = SETS[name]
    tasks = tasks or every
    return [str(word) for word in ("--engine", engine, *SHORT, "--set", f"sweep.env.id={json.dumps(tasks)}", *more)]


def digests(directory, name):
    """Return the digests of a set of runs in a directory, by set and task.

    They cover fingerprints, too: short episodes of one task may differ in observations and actions, but not in rewards.
    """
    found = {}
    for path in Path(directory).rglob("*.h5"):
        with h5py.File(path) as file:
            assert file.attrs["complete"]
            parts = ("generation/digest", "fingerprint/episodes", "fingerprint/traces")
            bits = b"".join(file[part][()].tobytes() for part in parts)
            found[f"{name} {file.attrs['env']}"] = hashlib.sha256(bits).hexdigest()
    return found


def all_digests(backend, names=(), engine="exact"):
    """Return the digests of the runs of some sets, by default of all in `sets`."""
    found = {}
    for name in names or sets(backend):
        with tempfile.TemporaryDirectory() as directory:
            assert launch("run", [*words(name, engine=engine), "--backend", backend, "-o", directory]) == 0
            found |= digests(directory, name)
    return found


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # what the runs print
        digests = [all_digests(backend, sys.argv[2:]) for backend in sys.argv[1].split(",")]
    print(json.dumps(digests, indent=1))
