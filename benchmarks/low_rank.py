"""What perturbations of low rank gain in whole generations of a wide mlp, from `ask` to the record.

    python benchmarks/low_rank.py
    python benchmarks/low_rank.py --hidden 1024 1024 --threads 1 --steps 200

All episodes have the same number of steps, so all runs do the same work. Each repeat trains with every rank in turn, so
that all of them meet the same noise. The first generation is left out. The seconds are the medians of all other
generations of all repeats; the ratio is the median of the ratios of the repeats.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pages import markdown

import evolve

HEADER = ["steps of an episode", "rank", "seconds of a generation", "full rank's seconds ÷ these"]


def train(args: argparse.Namespace, steps: int, rank: int) -> list[float]:
    """Return the seconds of the generations of a run but the first. rank: 0 for full rank."""
    env = {"id": "Pendulum-v1", "engine": "exact", "max_episode_steps": steps}
    strategy = {"name": "openai-es", "sigma": 0.05, "learning_rate": 0.01}
    with tempfile.TemporaryDirectory() as folder:
        run = evolve.train(
            env=env,
            network={"name": "mlp", "hidden": args.hidden},
            strategy=strategy | ({"perturbation_rank": rank} if rank else {}),
            population=args.population,
            episodes=1,
            generations=args.generations,
            seed=1,
            compute={"threads": args.threads},
            held_out_episodes=0,
            output=folder,
            progress=False,
        )
        return list(run.table()["seconds"][1:])


def main() -> None:
    """Train; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512])
    parser.add_argument("--population", type=int, default=256)
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for steps in args.steps:
        seconds: dict[int, list[list[float]]] = {rank: [] for rank in (0, *args.ranks)}
        for _ in range(args.repeats):
            for rank, found in seconds.items():
                found.append(train(args, steps, rank))
        for rank, found in seconds.items():
            ratios = [
                statistics.median(full) / statistics.median(own) for full, own in zip(seconds[0], found, strict=True)
            ]
            median = statistics.median(second for repeat in found for second in repeat)
            rows.append([str(steps), str(rank or "full"), f"{median:.3f}", f"{statistics.median(ratios):.2f}"])
    print(markdown(HEADER, rows))


if __name__ == "__main__":
    main()
