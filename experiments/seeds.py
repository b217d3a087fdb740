"""The results of the experiments by seed: `published.json` of the package, which is kept without the run files."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evolve.config import read_file
from evolve.store import StoredRun
from evolve.store.disk import write_output

SEEDS = Path(__file__).parents[1] / "evolve" / "verification" / "published.json"


@dataclass(frozen=True)
class SeedResult:
    """The result of an experiment with one seed.

    Attributes:
        seed: The seed of the run.
        mean: The mean return of its final champion on held-out episodes.
        connections: The connections of this champion, out of `possible`.
        possible: The number of weights of the network.
        generations: The number of generations.
        steps: The environment steps of all generations.
        seconds: The duration of all generations.
        digest: The digest of the last generation.
    """

    seed: int
    mean: float
    connections: int
    possible: int
    generations: int
    steps: int
    seconds: float
    digest: str


def result_of(run: StoredRun) -> SeedResult:
    """Return the result of a run that has played its held-out episodes."""
    assert run.held_out is not None
    mask, records = run.held_out.mask, run.records
    return SeedResult(
        seed=int(run.header.seed),
        mean=float(np.nanmean(run.held_out.returns)),
        connections=int(np.count_nonzero(mask)),
        possible=mask.size,
        generations=len(records),
        steps=int(sum(record.steps for record in records)),
        seconds=round(float(sum(record.seconds for record in records)), 1),
        digest=records[-1].digest.decode(),
    )


def update(experiment: Path, runs: Sequence[StoredRun], file: Path = SEEDS) -> list[SeedResult]:
    """Add the results of an experiment's runs to the file; return all its results, in the order of seeds.

    Results of other settings than the experiment's present ones are removed.
    """
    known = json.loads(file.read_text()) if file.exists() else {}
    settings = {name: value for name, value in read_file(experiment).items() if name != "seeds"}
    before = known.get(experiment.stem, {})
    same = before.get("settings") == settings
    results = {each["seed"]: SeedResult(**each) for each in before["results"]} if same else {}
    results |= {run.header.seed: result_of(run) for run in runs}
    found = [results[seed] for seed in sorted(results)]
    if found:
        # Equal settings keep their order, so that the lines of other experiments do not change.
        known[experiment.stem] = {
            "settings": before["settings"] if same else settings,
            "results": list(map(asdict, found)),
        }
    else:
        known.pop(experiment.stem, None)
    write_output(file, _written(known).encode())
    return found


def _written(known: dict[str, Any]) -> str:
    """Return the text of the file, with a line for each seed."""
    parts = []
    for name, found in sorted(known.items()):
        lines = ",\n".join(f"      {json.dumps(each)}" for each in found["results"])
        settings = json.dumps(found["settings"])
        parts.append(f'  {json.dumps(name)}: {{\n    "settings": {settings},\n    "results": [\n{lines}\n    ]\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
