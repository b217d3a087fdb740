"""map-elites: an archive with the best genome of each kind of behaviour, such as the gaits of a walker.

Mouret and Clune, "Illuminating Search Spaces by Mapping Elites" (2015). `descriptors` name D numbers that describe a
candidate: metrics averaged over its episodes, or numbers of connections. These numbers select a cell of the archive,
which is a grid of D dimensions. The candidate takes this cell if the cell is empty, or if the candidate is fitter than
the elite there.

    cell       in each dimension floor(cells · (number - low) / (high - low)), [low, high] the bounds. A number outside
               the bounds is in the first or the last cell. A candidate with a NaN among its numbers has no cell
    parents    two elites for each child, drawn uniformly from the filled cells
    child      x + `weight_noise` · n + `line_noise` · m · (y - x), x and y the parents. Each weight has its own n, and
               all weights of the child share one m; n, m ~ N(0, 1). The child has the connections of x.
               (Vassiliades and Mouret, "Discovering the Elite Hypervolume by Leveraging Interspecies Correlation",
               2018)

Of candidates of equal fitness the first one takes the cell. A candidate of equal fitness does not replace an elite. An
elite is not evaluated again, so the fitness of a cell never falls. A lucky episode may thus fill a cell for good: give
each candidate several episodes. The champion is the elite of the largest fitness; of equal elites, the one in the first
cell.

With `emitters` = K about half of the candidates come from K emitters. An emitter is a search by sep-cma-es (Fontaine,
Togelius, Nikolaidis and Hoover, "Covariance Matrix Adaptation for the Rapid Illumination of Behavior Space", 2020). The
first floor(P/(2K)) candidates come from the first emitter, and so on. All others are children. The rules of an emitter:

    start      at a random elite, with the connections of this elite, and σ = `sigma`
    order      of its candidates: first the candidates that find an empty cell, the best fitness first; then the
               candidates in filled cells, the largest gain first; then candidates without a cell, or with the fitness
               NaN. The gain is the fitness minus the fitness of the elite in the cell. All are compared with the
               archive before this generation
    update     sep-cma-es by this order. Its parents are the first half, even if fewer than half entered the archive
    restart    if none of its candidates found an empty cell or a gain above 0
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, no_genomes
from evolve.numerics.perturbation import perturbed
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Bool, Float32, Float64, Int64
from evolve.strategies import strategy as contract
from evolve.strategies.acting import ACTING, GENOME_MEASURES, Paths, measure
from evolve.strategies.cma import SepCma, SepCmaOptions, SepCmaState

_DEFAULT_CELLS = 16  # in each dimension
_MAX_CELLS = 2**17
_MIN_PER_EMITTER = 4  # the smallest number of candidates of an emitter

Range = Annotated[tuple[float, float], Field(strict=False)]


class MapElitesOptions(Options):
    """Settings of `[strategy]` for map-elites."""

    descriptors: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=8)] = (ACTING,)
    """The numbers that describe a candidate: names in env.metrics, "acting_connections" or "connections". Children have
    the connections of a parent, so without metrics most networks fill a single cell."""
    cells: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = ()
    """The number of cells along each descriptor; by default 16."""
    bounds: Annotated[tuple[Range, ...], Field(strict=False)] = ()
    """The range [low, high] of each descriptor; by default [0, 1], or [0, W] for a number of connections."""
    weight_noise: float = Field(0.1, ge=0, le=1e6)
    """The standard deviation of the noise that is added to a weight."""
    line_noise: float = Field(0.2, ge=0, le=1e6)
    """The standard deviation of the step along the line to another elite, as a share of its length."""
    emitters: int = Field(0, ge=0, le=1000)
    """The number of emitters, searches by sep-cma-es that make half of the candidates, as in CMA-ME."""
    sigma: float = Field(0.5, gt=0, le=1e6)
    """The initial σ of the emitters."""


def cells_of(measures: Float64, bounds: Float64, grid: Int64) -> Int64:
    """Return [P]: the number of each candidate's cell in row-major order of the grid; -1 if a descriptor is NaN.

    Args:
        measures: [P, D], the descriptors of the candidates.
        bounds: [D, 2], the range of each descriptor.
        grid: [D], the number of cells along each descriptor.
    """
    low, high = bounds.T
    with np.errstate(over="ignore", invalid="ignore"):  # infinite measures are in the first or the last cell
        positions = (measures - low) / (high - low) * grid
    known = ~np.isnan(positions).any(axis=1)
    # Integers have no NaN and no infinity. So replace NaN, and clip infinity, before the conversion.
    positions = np.where(np.isnan(positions), 0.0, positions)
    inside = np.minimum(np.maximum(positions, 0.0), grid - 1.0)
    indices = np.floor(inside).astype(np.int64)
    numbers = np.ravel_multi_index(tuple(indices.T), tuple(grid.tolist()))
    return np.where(known, numbers, -1)


def best_of_cells(cells: Int64, fitness: Float64) -> Int64:
    """Return the row of the best fitness in each cell that is not empty, in ascending order of the cells.

    Of rows with equal fitness the first one counts. Rows with a NaN or without a cell (-1) are left out.

    Args:
        cells: [n], the cell of each row.
        fitness: [n].
    """
    rows = np.flatnonzero((cells >= 0) & ~np.isnan(fitness))
    order = rows[np.lexsort((-fitness[rows], cells[rows]))]  # stable, so the first of equal rows comes first
    _, first = np.unique(cells[order], return_index=True)
    return order[first].astype(np.int64)


@dataclass(frozen=True)
class Emitter:
    """An emitter: the state of its sep-cma-es, and the connections [W] of its candidates."""

    state: SepCmaState = contract.stored(SepCmaState)
    mask: Bool = contract.stored("W", np.bool_)


@dataclass(frozen=True)
class Archive:
    """The elites of the N filled cells, in ascending order of the cells.

    genomes: the N elites.
    cells: [N], the number of each elite's cell.
    fitness: [N].
    measures: [N, D], the descriptors.
    origins: [N, 2], the generation of each elite, and its number among the candidates of that generation.
    generations: [1], the number of generations so far.
    emitters: the K emitters; () while all cells are empty.
    """

    genomes: Genomes = contract.stored(Genomes)
    cells: Int64 = contract.stored("N", np.int64)
    fitness: Float64 = contract.stored("N")
    measures: Float64 = contract.stored("N D")
    origins: Int64 = contract.stored("N 2", np.int64)
    generations: Int64 = contract.stored("1", np.int64)
    emitters: tuple[Emitter, ...] = ()

    def __len__(self) -> int:
        return len(self.cells)


class MapElites(contract.Strategy[Archive]):
    """map-elites for P = `population` candidates of a layout.

    Attributes:
        grid: [D], the number of cells along each descriptor.
        bounds: [D, 2], the range of each descriptor.
    """

    portable = True  # `ask` and `tell` give the same bits on every machine
    traces = "none"  # `tell` reads no traces of networks
    compares_generations = True  # new candidates are compared with older elites
    warm_starts = True  # a search can begin with a given genome

    def __init__(self, options: MapElitesOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        self._options, self._layout, self._P, self._seed = options, layout, population, seed
        self.measured = options.descriptors
        ranges = [(0.0, float(layout.num_weights) if name in GENOME_MEASURES else 1.0) for name in self.measured]
        self.grid: Int64 = np.array(options.cells or [_DEFAULT_CELLS] * len(ranges), np.int64)
        self.bounds: Float64 = np.array(options.bounds or ranges, np.float64)
        self.capacity = self._num_cells = math.prod(self.grid.tolist())
        self._paths = Paths(layout)
        # A cache: the parents of all children are drawn once for each generation.
        self._parents_of = contract.NewestValue(self._draw_parents)
        K = options.emitters
        self._per_emitter = population // 2 // K if K else 0  # the number of candidates of each emitter
        if K and self._per_emitter < _MIN_PER_EMITTER:
            expected = f"at most {population // (2 * _MIN_PER_EMITTER)} with a population of {population}"
            raise InputError("strategy.emitters", expected, K, f"Each needs at least {_MIN_PER_EMITTER} candidates.")
        if K:
            self._cma_of(np.ones(layout.num_weights, np.bool_))  # raises InputError for too few weights

    @staticmethod
    def validate(options: MapElitesOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout without weights, and settings that contradict each other or have no effect."""
        contract.require_evolved_weights(layout, "map-elites")
        if options.sigma != MapElitesOptions().sigma and not options.emitters:
            raise InputError("strategy.emitters", "1 or more, if there is a sigma", options.emitters)
        D = len(options.descriptors)
        if len(set(options.descriptors)) < D:
            raise InputError("strategy.descriptors", "different names", list(options.descriptors))
        for name in ("cells", "bounds"):
            values = getattr(options, name)
            if values and len(values) != D:
                raise InputError(f"strategy.{name}", f"one value for each of {D} descriptors", list(values))
        if any(not -np.inf < low < high < np.inf for low, high in options.bounds):
            raise InputError("strategy.bounds", "two finite numbers each, the smaller first", list(options.bounds))
        grid = options.cells or (_DEFAULT_CELLS,) * D
        if math.prod(grid) > _MAX_CELLS:
            raise InputError("strategy.cells", f"at most {_MAX_CELLS:,} cells in all", list(grid))

    def measures(self, genomes: GenomeSource, metrics: Mapping[str, Float64]) -> Float64:
        """Return [P, D]: the descriptors."""
        return measure(self._paths, self.measured, genomes, metrics, ["strategy.descriptors"] * len(self.measured))

    def start(self) -> Archive:
        """Return the state before generation 0: no cell is filled."""
        genomes, no_cells = no_genomes(self._layout.num_weights), np.zeros(0, np.int64)
        measures, origins = np.zeros((0, len(self.measured))), np.zeros((0, 2), np.int64)
        return Archive(genomes, no_cells, np.zeros(0), measures, origins, generations=np.zeros(1, np.int64))

    def ask(self, state: Archive, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: genomes of the emitters, and children of elites.

        While all cells are empty, the candidates are initial genomes. With a given genome (`StartLayout`), they are
        this genome and mutants of it.
        """
        candidates = contract.requested_candidates(self._P, candidates)
        has_start = isinstance(self._layout, contract.StartLayout)
        if len(state):
            parents = self._parents_of(state, generation)[:, candidates]
            first, second = state.genomes.take(parents[0]), state.genomes.take(parents[1])
        else:
            # With a given genome, all initial genomes equal it, and the candidates are mutants of it.
            first = second = contract.initial_genomes(self._layout, self._seed, generation, candidates)
            if not has_start:
                return first
        # The children. The stream of a candidate gives first m, for the line, and then n, for each weight.
        noise = Streams(self._seed, Purpose.WEIGHT_NOISE, generation, candidates)
        steps = np.float32(self._options.line_noise) * noise.normal_rows(1)
        weights = first.weights + np.float32(self._options.weight_noise) * noise.normal_rows(self._layout.num_weights)
        weights += steps * (second.weights - first.weights)
        # `first` is a copy, so its mask may change.
        mask = first.mask
        # The candidates of the emitters replace the children that were computed for their rows.
        for number, emitter in enumerate(state.emitters):
            rows = np.flatnonzero(candidates // self._per_emitter == number)
            sigma: Float64 = np.full(len(rows), emitter.state.progress.sigma)
            centre, scale = emitter.state.mean, np.sqrt(emitter.state.covariance)
            key = self._seed, Purpose.WEIGHT_NOISE, generation
            weights[rows] = perturbed(centre, emitter.mask, sigma, key, candidates[rows], scale)
            mask[rows] = emitter.mask
        weights[~mask] = 0
        if has_start and not len(state):  # the given genome itself is candidate 0
            weights[candidates == 0] = first.weights[candidates == 0]
        return Genomes(weights, mask)

    def tell(self, state: Archive, genomes: GenomeSource, results: contract.Results) -> Archive:
        """Let each candidate take its cell, if it is better than the elite there."""
        contract.check_population(genomes, results, self._P, self._layout.num_weights)
        measures = self.told_measures(genomes, results)
        # The rows of the arrays below are the n elites, then the candidates. So a candidate of equal fitness does not
        # take the cell of an elite.
        n = len(state)
        cells = np.concatenate([state.cells, cells_of(measures, self.bounds, self.grid)])
        fitness = np.concatenate([state.fitness, results.fitness])
        best = best_of_cells(cells, fitness)
        is_new = best >= n
        # A lazy source computes only the candidates that take a cell.
        new = genomes.take(best[is_new] - n)
        new_origins = np.column_stack([np.full(self._P, state.generations[0]), np.arange(self._P)])
        after = Archive(
            contract.interleaved(is_new, new, state.genomes.take(best[~is_new])),
            cells[best],
            fitness[best],
            np.concatenate([state.measures, measures])[best],
            np.concatenate([state.origins, new_origins])[best],
            state.generations + 1,
        )
        return replace(after, emitters=self._next_emitters(state, after, genomes, cells[n:], results.fitness))

    def champion(self, state: Archive) -> Genomes:
        """Return the elite of the largest fitness; if there is no elite, the given genome, or an initial genome."""
        if not len(state):
            return contract.initial_genomes(self._layout, self._seed, 0, range(1))
        return state.genomes.take(contract.ranking(state.fitness)[:1])

    def champion_generation(self, state: Archive) -> int | None:
        """Return the generation in which the champion took its cell."""
        return int(state.origins[contract.ranking(state.fitness)[0], 0]) if len(state) else None

    def select(self, state: Archive, /, **which: Any) -> Genomes:
        """Return the elite of a cell."""
        if "cell" not in which:
            return super().select(state, **which)  # raises InputError
        return state.genomes.take(np.array([self._place(state, which["cell"])]))

    def origin(self, state: Archive, cell: Sequence[int]) -> tuple[int, int]:
        """Return the generation of the elite of a cell, and its number among the candidates."""
        generation, candidate = state.origins[self._place(state, cell)].tolist()
        return generation, candidate

    def outcome(self, state: Archive) -> dict[str, Float64]:
        """Return "archive" [C]: the fitness of the elite in each cell, NaN in an empty one."""
        archive = np.full(self._num_cells, np.nan)
        archive[state.cells] = state.fitness
        return {"archive": archive}

    def to_arrays(self, state: Archive) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        arrays = contract.arrays_of(state, "elites_")
        emitters = [contract.arrays_of(emitter, "emitters_") for emitter in state.emitters]
        if emitters:
            arrays |= {name: np.stack([emitter[name] for emitter in emitters]) for name in emitters[0]}
        return arrays

    def from_arrays(self, arrays: contract.Arrays) -> Archive:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        sizes = {"W": self._layout.num_weights, "D": len(self.measured)}
        archive = contract.state_of(Archive, arrays, "elites_", sizes)
        cells, origins = archive.cells, archive.origins
        # A run file may come from a stranger. `_place` needs ascending cells, and `outcome` needs cells of the grid.
        if len(cells) and not (cells[0] >= 0 and cells[-1] < self._num_cells and (cells[1:] > cells[:-1]).all()):
            raise ValueError("elites_cells: expected ascending numbers of cells")
        if not ((origins >= 0) & (origins < (archive.generations[0], self._P))).all():
            raise ValueError("elites_origins: expected numbers of generations and candidates")
        return replace(archive, emitters=self._stored_emitters(arrays)) if len(cells) else archive

    def _stored_emitters(self, arrays: contract.Arrays) -> tuple[Emitter, ...]:
        """Return the emitters that `to_arrays` stored. Raises ValueError for a missing array or another shape."""
        K, W = self._options.emitters, self._layout.num_weights
        stacked = {name: array for name, array in arrays.items() if name.startswith("emitters_")}
        if any(array.shape[:1] != (K,) for array in stacked.values()):
            raise ValueError(f"emitters: expected {K} of them in each array")

        def stored_emitter(number: int) -> Emitter:
            own_arrays = {name: array[number] for name, array in stacked.items()}
            return contract.state_of(Emitter, own_arrays, "emitters_", {"W": W, "n": W})  # n = W, see `_cma_of`

        return tuple(map(stored_emitter, range(K)))

    def _next_emitters(
        self, before: Archive, after: Archive, genomes: GenomeSource, cells: Int64, fitness: Float64
    ) -> tuple[Emitter, ...]:
        """Return the emitters after a generation; () without elites.

        Args:
            before: The archive before the generation.
            after: The archive after the generation.
            genomes: The P candidates.
            cells: [P], the cells of the candidates.
            fitness: [P], the fitness of the candidates.
        """
        K, size = self._options.emitters, self._per_emitter
        if not (K and len(after)):
            return ()
        # Compare all candidates with the archive before this generation: first the fitness of the elite in each
        # candidate's cell. The last entry is for the cell -1.
        elite_fitness = np.append(self.outcome(before)["archive"], np.nan)[cells]
        has_cell = (cells >= 0) & ~np.isnan(fitness)
        finds_empty = has_cell & np.isnan(elite_fitness)
        # In an empty cell the fitness takes the place of the gain.
        with np.errstate(invalid="ignore"):  # infinite minus infinite is NaN: no gain
            gain = np.where(finds_empty, fitness, fitness - elite_fitness)
        gain = np.where(has_cell & ~np.isnan(gain), gain, -np.inf)
        enters = finds_empty | (gain > 0)
        # The rank of each candidate in the order at the top of this module, 0 for the best.
        ranks: Float64 = np.empty(self._P)
        ranks[np.lexsort((-gain, ~finds_empty))] = np.arange(self._P)
        # Update or restart each emitter. All draw a start, so a restart does not depend on the restarts of others.
        starts = after.genomes.take(Stream(self._seed, "emitters", int(before.generations[0])).below(len(after), K))
        emitters = []
        for number in range(K):
            own = np.arange(number * size, (number + 1) * size)
            if before.emitters and enters[own].any():
                emitter = before.emitters[number]
                cma = self._cma_of(emitter.mask)
                # sep-cma-es ranks by fitness, so the negative ranks stand for the fitness.
                adapted = cma.tell(emitter.state, genomes.take(own), contract.Results(-ranks[own]))
                emitters.append(replace(emitter, state=adapted))
            else:
                mask = starts.mask[number]
                emitters.append(Emitter(self._cma_of(mask, starts.weights[[number]]).start(), mask))
        return tuple(emitters)

    def _cma_of(self, mask: Bool, weights: Float32 | None = None) -> SepCma:
        """Return the sep-cma-es of an emitter with the connections `mask` [W].

        weights: [1, W], the weights at which a search begins; None if the strategy is only used after its start.
        """
        # The state covers all W weights, because emitters with different masks must have arrays of one shape. Absent
        # connections stay at 0. They do not count as dimensions. If they did, ‖p_σ‖/χ would be too small, and σ would
        # shrink.
        start = np.zeros((1, len(mask)), np.float32) if weights is None else weights
        layout = contract.StartLayout(self._layout, Genomes(start, np.ones(start.shape, np.bool_)))
        dimensions = max(1, int(mask.sum()))
        return SepCma(SepCmaOptions(sigma=self._options.sigma), layout, self._per_emitter, self._seed, dimensions)

    def _draw_parents(self, state: Archive, generation: int) -> Int64:
        """Return [2, P]: the places in the archive of each candidate's two parents."""
        return Stream(self._seed, Purpose.PARENTS, generation).below(len(state), 2, self._P)

    def _place(self, state: Archive, cell: Sequence[int]) -> int:
        """Return the place of a cell's elite in the archive. Raises InputError if there is no such elite."""
        sizes = self.grid.tolist()
        # A NumPy array is no `Sequence`.
        if isinstance(cell, np.ndarray):
            cell = cell.tolist()
        if isinstance(cell, str) or not isinstance(cell, Sequence):
            raise InputError("cell", "a list of indices", repr(cell), "Give the indices as numbers, such as (0, 0).")
        if len(cell) != len(sizes) or not all(index in range(size) for index, size in zip(cell, sizes, strict=True)):
            first, last = _indices_text([0] * len(sizes)), _indices_text([size - 1 for size in sizes])
            raise InputError("cell", f"a cell from {first} to {last}", _indices_text(cell))
        number = int(np.ravel_multi_index(tuple(map(int, cell)), tuple(sizes)))
        place = int(np.searchsorted(state.cells, number))
        if place == len(state) or state.cells[place] != number:
            expected = "a filled cell"
            if len(state):
                # Name a filled cell near the given one in the error.
                nearest = state.cells[int(np.argmin(np.abs(state.cells - number)))]
                expected = f"one of the {len(state)} filled cells, such as {_indices_text(self.indices(nearest))}"
            raise InputError("cell", expected, _indices_text(cell))
        return place

    def indices(self, number: int) -> tuple[int, ...]:
        """Return the indices of a cell along the descriptors."""
        indices = np.unravel_index(number, tuple(self.grid.tolist()))
        return tuple(int(index) for index in indices)


def _indices_text(cell: Sequence[int]) -> str:
    return ",".join(map(str, cell))
