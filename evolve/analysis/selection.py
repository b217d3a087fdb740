"""The genomes that strategies keep beside a champion, as objects: the front of nsga2, the archive of map-elites."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evolve import training
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.shapes import Float64, Int64
from evolve.store import StoredRun
from evolve.strategies.map_elites import MapElites
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


@dataclass(frozen=True)
class Elite:
    """The best genome in a cell of an archive.

    Attributes:
        cell: The indices of the cell along the descriptors.
        fitness: Its fitness.
        measures: Its descriptors by name.
        generation: The generation in which it took the cell.
        candidate: Its number in the population of that generation.
        genome: The genome, P = 1.
    """

    cell: tuple[int, ...]
    fitness: float
    measures: Mapping[str, float]
    generation: int
    candidate: int
    genome: Genomes

    def __repr__(self) -> str:
        return f"<Elite of cell {','.join(map(str, self.cell))}: fitness {self.fitness:.6g}>"


def elites_of(run: StoredRun) -> list[Elite]:
    """Return the elites of the archive after the last generation, in the order of their cells; see `Run.archive`."""
    experiment = training.reload_policy(run)
    strategy, state = training.restore(experiment, run)
    if not isinstance(strategy, MapElites):
        raise InputError(str(run.path), "a run with an archive (strategy map-elites)", "another one")
    names = strategy.measured
    return [
        Elite(
            strategy.indices(int(state.cells[place])),
            float(state.fitness[place]),
            dict(zip(names, state.measures[place].tolist(), strict=True)),
            int(state.origins[place, 0]),
            int(state.origins[place, 1]),
            state.genomes.take(np.array([place])),
        )
        for place in range(len(state))
    ]


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
