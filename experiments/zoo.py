"""Write docs/zoo.md, the cards of zoo/*.champion, and film the champions that are named: experiments/zoo.py [NAME …]

A film shows a typical held-out episode: its return is nearest to the champion's mean.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import evolve
from evolve import environments, store
from evolve.analysis import video
from evolve.verification import choose_episode

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "zoo.md"
FILMS = ROOT / "docs" / "films"
NAMES = ("cartpole", "pendulum", "acrobot", "car", "lander", "cheetah",
         "walker-quick", "walker-es", "walker-far", "walker-farther", "walker-sparse", "walker-sparser",
         "walker-sparsest", "walker-pruned", "walker-plastic",
         "walker-hardcore", "walker-hardcore-far", "walker-hardcore-gpu-far")  # fmt: skip
SIZES = ((640, 6), (560, 6), (560, 4), (560, 3))
"""Pixels of width, and seconds: a film has the first of these sizes that keeps to the budget."""
MOST_BYTES = 2**20
"""The largest film: the repository keeps every committed version."""
HEAD = """# The zoo

The [champion files](champions.md) `zoo/NAME.champion` are from the experiments in `experiments/`, each from the first
seed of its experiment.

```sh
evolve verify zoo/*                                                 # play all again: a minute or two
evolve verify --engine gymnasium zoo/walker-* zoo/lander.champion   # in Gymnasium, to the bit: some ten minutes
```

`pendulum` and `cheetah` need EnvPool (`pip install -e '.[envpool]'`).

A film shows the held-out episode with the return nearest to the mean, and the network at work. The brightness of a
circle is the output of a neuron, the brightness of a line the signal of a connection (blue positive, orange
negative). Films omit connections that cannot act; the tables count all connections of the mask. EnvPool cannot draw
MuJoCo's tasks, so Gymnasium's environment of the same name shows these champions. The *time* of a run is from shared
machines, with other work; [the notes on results](results.md#results) say how long some take on quiet cores.
"""


def typical(champion: evolve.ChampionFile) -> int:
    """Return the held-out episode whose return is nearest to the mean of all."""
    held_out = champion.held_out
    assert held_out is not None
    return int(np.nanargmin(np.abs(held_out.returns - held_out.mean)))


def film(name: str, champion: evolve.ChampionFile) -> None:
    """Write the film of a champion, with at most `MOST_BYTES`."""
    FILMS.mkdir(exist_ok=True)
    environments.draw_without_display()
    stored = store.read_champion(champion.path)
    chosen = choose_episode(stored, champion.experiment, episode=typical(champion))
    shown, instead = video.drawable(champion.experiment)
    playing = "champion in Gymnasium" if instead else "held-out champion"
    subject = video.Subject(stored, shown, chosen, playing)
    path = FILMS / f"{name}.gif"
    for width, seconds in SIZES:
        video.film_episodes([subject], path, width, cut_after=seconds)
        if path.stat().st_size <= MOST_BYTES:
            return
    sys.exit(f"{path} has more than {MOST_BYTES:,} bytes: add a smaller size to SIZES")


def published_time(name: str) -> str:
    """Return the duration of runs in the table of results: the first of three, or the median of more."""
    text = (ROOT / "docs" / "results.md").read_text()
    (row,) = re.findall(rf"^\| `{name}`: .*$", text, re.M)
    cell = row.strip("| ").split("|")[-1]
    where = "as in" if "," in cell else "the median of the seeds in"
    return f"{re.split(r',| [(]', cell)[0].strip()}, {where} [the results](results.md)"


def card(name: str, champion: evolve.ChampionFile) -> str:
    """Return the section of a champion."""
    config = champion.config
    held_out = champion.held_out
    assert held_out is not None
    assert held_out.interval is not None
    low, high = held_out.interval
    genome = champion.champion().genome
    of = f"{int(genome.connections()[0]):,} of {genome.weights.shape[1]:,} connections"
    rows = {
        "experiment": f"`experiments/{name}.toml`, seed {champion.seed}",
        "network, strategy": f"{config.network.name}, {of}; {config.strategy.name}",
        "held-out mean": f"**{held_out.mean:.1f}** (95 % interval {low:.1f} to {high:.1f}), "
        f"{len(held_out.returns)} episodes",
        "generations": f"{champion.num_generations}",
        "environment steps": f"{champion.steps / 1e6:.1f} million",
        "time": published_time(name),
        "digest of the run": f"`{champion.digest}`",
        "verify": f"`evolve verify zoo/{name}.champion`",
    }
    if (start := config.start_from) is not None:
        which = "champion" if start.generation is None else f"best candidate of generation {start.generation}"
        rows["environment steps"] += f" after the {which} of `{start.file}`"
    lines = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    film = f"![{name}, the champion of {config.env.id}, and its network](films/{name}.gif)"
    return f"## {name}: {config.env.id}\n\n{film}\n\n| | |\n|---|---|\n{lines}\n"


def main(words: Sequence[str] | None = None) -> None:
    """Film the named champions, and write the page of all champions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0] + ".")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args(words).names
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"expected champions ({', '.join(NAMES)}), got {unknown[0]}")
    champions = {name: evolve.load(ROOT / "zoo" / f"{name}.champion") for name in NAMES}
    for name in names:
        film(name, champions[name])
    PAGE.write_text("\n".join([HEAD, *(card(name, champion) for name, champion in champions.items())]))


if __name__ == "__main__":
    main()
