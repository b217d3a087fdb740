"""What strategies keep beside a champion, as objects: the front of nsga2."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evolve import training
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.shapes import Float64, Int64
from evolve.store import StoredRun
from evolve.strategies.nsga2 import FrontState
from evolve.training.resume import check_generation


@dataclass(frozen=True)
class Member:
    """A genome on the front of a run.

    Attributes:
        fitness: Its mean fitness over all of its evaluations.
        measures: Its measures by name, such as "acting_connections", in the generation of the front.
        candidate: Its number in the population of that generation.
        evaluations: The generations in which it was evaluated; None if the front is not the last one.
        genome: The genome (P = 1); None if the front is not the last one, whose genomes alone are in the file.
    """

    fitness: float
    measures: Mapping[str, float]
    candidate: int
    evaluations: int | None = None
    genome: Genomes | None = None

    def __repr__(self) -> str:
        measures = ", ".join(f"{name} {value:g}" for name, value in self.measures.items())
        return f"<Member: fitness {self.fitness:.6g}, {measures}>"


def names_of_measures(run: StoredRun) -> tuple[str, ...]:
    """Return the names of the measures that the strategy of a run selects by, beside the fitness."""
    config = training.load_config(run.header.config, str(run.path))
    options = config.strategy.table()
    return (*options.get("minimize", ()), *options.get("maximize", ()))


def numbers_of_front(run: StoredRun, generation: int) -> tuple[Int64, Float64, Float64]:
    """Return the front after a generation: candidates [N], mean fitness [N] and measures [N, D], by the first measure.

    Raises InputError if the run has no front.
    """
    record = run.records[generation]
    if record.front is None or record.measures is None:
        raise InputError(str(run.path), "a run with a front (strategy nsga2)", "another one")
    found = np.flatnonzero(~np.isnan(record.front))
    order = found[np.lexsort((-record.front[found], record.measures[found, 0]))]
    return order, record.front[order], record.measures[order]


def members_of_front(run: StoredRun, generation: int | None) -> list[Member]:
    """Return the front after a generation, by default the last, see `Run.front`."""
    last = run.num_generations - 1
    number = last if generation is None else generation
    check_generation(run, number)
    names = names_of_measures(run)
    order, fitness, measures = numbers_of_front(run, number)
    kept: dict[int, tuple[int, Genomes]] = {}
    if number == last:
        experiment = training.reload_policy(run)
        _, state = training.restore(experiment, run)
        assert isinstance(state, FrontState)
        counts = state.parents.count.tolist()
        for place, candidate in enumerate(state.candidates.tolist()):
            kept[candidate] = counts[place], state.parents.genomes.take(np.array([place]))
    return [
        Member(value, dict(zip(names, row, strict=True)), candidate, *kept.get(candidate, ()))
        for candidate, value, row in zip(order.tolist(), fitness.tolist(), measures.tolist(), strict=True)
    ]
