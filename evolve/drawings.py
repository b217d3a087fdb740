"""What commands draw of run files: the runs gathered into experiments, and the networks of champions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evolve import figures, store
from evolve.environments.names import names
from evolve.errors import RunError
from evolve.experiment import Experiment, load_config
from evolve.shapes import Bool, Float32
from evolve.store import Run


@dataclass(frozen=True)
class Champion:
    """A genome that stands for its run: weights, mask [W].

    generation: of which it is the best; None for the champion that was judged on held-out episodes at the end.
    """

    weights: Float32
    mask: Bool
    generation: int | None

    @property
    def title(self) -> str:
        """Whose it is, in words."""
        if self.generation is None:
            return "champion judged on held-out episodes"
        return f"best of generation {self.generation}"


def champion_of(run: Run, generation: int | None = None) -> Champion:
    """Return the best of a told generation; without one, the champion that a complete run was judged by.

    Where it was not judged, that is the best of the last generation told.
    """
    judged = run.held_out
    if generation is None and run.complete and judged is not None:
        return Champion(judged.weights, judged.mask, None)
    generation = run.told - 1 if generation is None else generation
    record = run.records[generation]
    return Champion(record.champion_weights, record.champion_mask, generation)


def gather(files: Sequence[Path]) -> tuple[list[Run], list[figures.Experiment]]:
    """Read run files; return them all, and the experiments of those that have told a generation.

    Raises InputError, and RunError when none has.
    """
    runs = [store.read(path) for path in files]
    told = [(run, load_config(run.header.config, str(run.path))) for run in runs if run.told]
    if not told:
        raise RunError(f"{', '.join(map(str, files))}: no generation has been told yet, so there is nothing to draw")
    return runs, figures.experiments(told)


def draw_champion(
    champion: Champion,
    experiment: Experiment,
    traces: Float32 | None = None,
    sheet: figures.Sheet = figures.FILE,
) -> Any:
    """Return the figure of the network of a champion, its connections as strong as its weights.

    Where it has learning rules, their coefficients A take the place of weights. traces: [W], to be shown instead.
    """
    mask, network, env = champion.mask, experiment.network, experiment.config.env.id
    wired = figures.wires(network, mask, champion.weights if traces is None else traces)
    all_of_them = figures.wires(network, np.ones_like(mask), champion.weights)
    others = wired.sizes[-1] - experiment.action_size  # outputs that are no action
    seen, done = names(env, network.observation_size, experiment.action_size)
    seen += ["bias"] * (wired.sizes[0] - network.observation_size)
    left = f"{len(wired.strength):,} of {len(all_of_them.strength):,} connections"
    if network.blocks[0].span:
        left += f" and {np.count_nonzero(mask):,} of {len(mask):,} coefficients"
    title = f"{env}, {champion.title}: {left} left"
    outputs = ["neuromodulator", *(f"output {n}" for n in range(1, others))][:others] + done
    weight = "coefficient A" if network.blocks[0].span else "weight"
    return figures.draw(wired, seen, outputs, title, weight if traces is None else "trace", sheet)
