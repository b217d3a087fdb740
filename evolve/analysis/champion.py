"""The genomes that a run has found: its champion, the members of its front, and the elites of its archive.

Other functions write a champion file, choose the episode of a champion for a film, and return its mean Hebbian traces.
`NetworkObserver` returns the activity of a network in an episode.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from evolve import training, verification
from evolve.cluster import Coordinator
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.networks import Activity, Batch
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch
from evolve.rollouts.inference import ObservationNormalizer
from evolve.shapes import Float32, Float64, Int64
from evolve.store import Stored, StoredChampion, StoredRun, check_begun, disk, write_champion
from evolve.strategies import Results
from evolve.strategies.map_elites import MapElites
from evolve.strategies.nsga2 import FrontState, first_front
from evolve.training.stored import check_which, num_observations
from evolve.verification import Episode
from evolve.verification.playing import episode_batch

SUFFIX = ".champion"
"""The ending of a champion file's name."""


@dataclass(frozen=True)
class Champion:
    """A genome that represents its run.

    Attributes:
        genome: The genome, P = 1.
        generation: The generation in which it was the best candidate; None for a held-out champion, and for a genome
            of a front or an archive.
        name: The description of a genome of a front or an archive; empty for other genomes.
    """

    genome: Genomes
    generation: int | None
    name: str = ""

    @property
    def title(self) -> str:
        """The words for this genome in titles."""
        if self.name:
            return self.name
        return "held-out champion" if self.generation is None else f"best of generation {self.generation}"


def champion_of(run: Stored, generation: int | None = None) -> Champion:
    """Return the best candidate of a complete generation; by default the held-out champion of a run or champion file.

    If a run is not complete, or has no held-out evaluation, the default is the best candidate of its last generation.
    """
    if isinstance(run, StoredChampion):
        return Champion(run.held_out.champion, None)
    # If a complete run is extended, its file keeps the held-out evaluation of the earlier champion until the run is
    # complete again.
    if generation is None and run.complete and run.held_out is not None:
        return Champion(run.held_out.champion, None)
    generation = run.num_generations - 1 if generation is None else generation
    return Champion(run.records[generation].champion, generation)


def chosen_champion(run: Stored, experiment: training.Experiment, choice: training.GenomeChoice) -> Champion:
    """Return the chosen genome. An empty choice is the held-out champion, or the best of the last generation.

    Raises InputError if there is no such genome.
    """
    check_which(run, choice)
    if choice.is_final_champion or choice.generation is not None:
        return champion_of(run, choice.generation)
    genome, _ = training.chosen_genome(experiment, run, choice)
    return Champion(genome, None, choice.title)


def champion_to_draw(run: Stored, choice: training.GenomeChoice, traces: bool) -> tuple[Champion, training.Experiment]:
    """Return the chosen genome, and the experiment of its run.

    traces: Whether mean traces are drawn. They need episodes, and thus the environment.

    Raises InputError if there is no such genome, or if it has no traces, and RunError without a complete generation.
    """
    check_begun("there is no champion", run)
    experiment = training.reload(run) if traces else training.reload_policy(run)
    champion = chosen_champion(run, experiment, choice)
    # `mean_traces` would play a genome of a front or an archive with the normalizer of the held-out champion.
    if traces and champion.name:
        expected = "the final champion, or the best candidate of a generation"
        raise InputError("traces", expected, f"the {champion.name}")
    if traces and not experiment.network.num_traces:
        raise InputError("traces", "a network that leaves Hebbian traces", experiment.config.network.name)
    return champion, experiment


def export_champion(run: Stored, path: Path) -> StoredChampion:
    """Write a champion file with the final champion of a run or champion file, and its held-out returns.

    Returns the contents of the new file. Raises InputError if the run has no held-out returns of its champion yet, or
    if the file cannot be written. The name must end with `SUFFIX`, so that no file of another kind is replaced.
    """
    disk.check_writable(path, (SUFFIX,))
    held_out = run.held_out
    if held_out is None:
        cure = f"Evaluate its champion first: python -m evolve.evaluate {shlex.quote(str(run.path))}"
        try:
            disk.check_unlocked(run.path)
        except InputError:
            cure = "Another process is writing the file: wait for its end, or evaluate and export a copy of the file."
        raise InputError(str(run.path), "a run with held-out returns of its champion", "none yet", cure)
    experiment = training.reload_policy(run)
    champion, normalizer = training.chosen_genome(experiment, run)
    # `evolve verify` repeats the held-out returns of a champion file with its genome, so the two must belong together.
    if not (np.array_equal(champion.weights[0], held_out.weights) and np.array_equal(champion.mask[0], held_out.mask)):
        raise InputError(str(run.path), "held-out returns of its champion", "held-out returns of another genome")
    # A file of an earlier version lacks the spaces; a new file has them.
    header = replace(run.header, spaces=experiment.spaces.to_json())
    # In a run that starts from this file, the weight of the normalizer is the number of observations that it has seen.
    observations = 0 if normalizer is None else num_observations(experiment, run)
    stored = StoredChampion(
        path, header, held_out, normalizer, run.digest, run.num_generations, run.steps, run.seconds, observations
    )
    write_champion(stored)
    return stored


def mean_traces(run: Stored, experiment: training.Experiment, champion: Champion, coordinator: Coordinator) -> Float32:
    """Return a champion's mean traces [W] over the episodes of its generation, or over its held-out episodes.

    The coordinator plays these episodes. The network of the experiment must leave traces.
    """
    purpose = Purpose.HELD_OUT if champion.generation is None else Purpose.EPISODE
    first_episode = verification.choose_episode(run, experiment, champion.generation, purpose=purpose)
    # All episodes have the keys (generation and candidate) and the normalizer of the first one.
    first = episode_batch(run, experiment, first_episode)
    if champion.generation is None:
        assert run.held_out is not None
        episodes = len(run.held_out.returns)
        experiment = experiment.in_evaluation()
    else:
        assert isinstance(run, StoredRun)
        episodes = experiment.config.episodes
        # Settings such as `episode_cap` give a generation its own limit of steps.
        experiment = training.with_recorded_limit(experiment, run.records, champion.generation)
    batch = EpisodeBatch.of(
        run.header.seed, purpose, champion.genome, first.keys, range(episodes), first.normalizers,
        candidates=np.array([first_episode.candidate]),
    )  # fmt: skip
    return coordinator.evaluate(experiment.rollout_spec, batch).traces[0]


def typical_episode(run: Stored, experiment: training.Experiment, champion: Champion) -> tuple[Episode, str]:
    """Return the held-out episode in which a champion has its median return, and a description of the episode.

    If every held-out episode failed, return a failed one. A champion without held-out episodes plays the first episode
    of its generation.

    champion: The held-out champion, or the best candidate of a generation.
    """
    if champion.generation is not None or run.held_out is None:
        return verification.choose_episode(run, experiment, champion.generation), "its first episode"
    # Failed episodes have NaN, which is sorted last. Of an even number, take the lower of the two middle returns.
    returns = run.held_out.returns
    num_returns = np.count_nonzero(~np.isnan(returns)) or len(returns)  # if all failed, choose among all
    number = int(np.argsort(returns, kind="stable")[(num_returns - 1) // 2])
    episode = verification.choose_episode(run, experiment, episode=number, purpose=Purpose.HELD_OUT)
    return episode, f"the episode of median return, number {number}"


class NetworkObserver:
    """A copy of the network of an episode. It receives the same observations, and does not affect the episode."""

    def __init__(self, run: Stored, experiment: training.Experiment, episode: Episode) -> None:
        # Batches report their activity only with the back end numpy. All back ends give the same bits.
        self._batch: Batch = experiment.network.batch(1, "numpy")
        batch_of_one = episode_batch(run, experiment, episode)
        slot = np.zeros(1, np.intp)
        self._batch.load(slot, episode.genome.weights, episode.genome.mask, batch_of_one.environment_seeds())
        self._observations = np.zeros((1, experiment.network.observation_size), np.float32)
        self._normalizer = None
        if experiment.config.normalize_observations:
            self._normalizer = ObservationNormalizer(self._observations, "numpy")
            self._normalizer.begin(slot, batch_of_one.normalizers)

    @property
    def has_activity(self) -> bool:
        """Whether this kind of network reports its activity."""
        return hasattr(self._batch, "activity")

    def see(self, observation: Float32) -> Activity:
        """Return the activity at an observation [O]. Call it with every observation of the episode, in order."""
        self._observations[0] = observation  # a copy, because the normalizer reads this array
        self._batch.step(self._observations if self._normalizer is None else self._normalizer.normalize(1))
        return self._batch.activity(0)  # type: ignore[attr-defined]  # see `has_activity`


@dataclass(frozen=True)
class Member:
    """A genome on the front of a run.

    Attributes:
        fitness: Its mean fitness over all of its evaluations.
        measures: Its measures by name, such as "acting_connections". They are means over the same evaluations.
        candidate: Its number in the population of the generation of the front.
        evaluations: The number of generations in which it was evaluated; None if the front is not the last one.
        genome: The genome (P = 1); None if the front is not the last one, because the file has only the last genomes.
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
    """Return the elites of the archive after the last generation, in the order of their cells; see `Run.archive`.

    Raises InputError if the run has no archive.
    """
    strategy, state = training.restore(training.reload_policy(run), run)
    if not isinstance(strategy, MapElites):
        raise missing_error(run, "archive")
    return [
        Elite(
            # The state has only the filled cells, so `place` is the place in its arrays, not the number of a cell.
            strategy.indices(int(state.cells[place])),
            float(state.fitness[place]),
            dict(zip(strategy.measured, state.measures[place].tolist(), strict=True)),
            int(state.origins[place, 0]),
            int(state.origins[place, 1]),
            state.genomes.take(np.array([place])),
        )
        for place in range(len(state))
    ]


def missing_error(run: StoredRun, missing: Literal["front", "archive"]) -> InputError:
    """Return the error for a run that has no front, or no archive, of a built-in strategy."""
    expected = {
        "front": "a run with a front (strategy nsga2)",
        "archive": "a run with an archive (strategy map-elites)",
    }
    # A strategy of another package may record a front or an archive, but evolve does not know its goals or its grid.
    has_other = bool(run.records) and getattr(run.records[-1], missing) is not None
    cure = f"The fitness of its own {missing} is run.generations[-1].record.{missing} in Python." if has_other else ""
    return InputError(str(run.path), expected[missing], f"a run of {training.config_of(run).strategy.name}", cure)


def names_of_measures(run: StoredRun) -> tuple[str, ...]:
    """Return the names of the measures by which the strategy of a run selects, besides the fitness."""
    options = training.config_of(run).strategy.table()
    return (*options.get("minimize", ()), *options.get("maximize", ()))


class Front(NamedTuple):
    """The numbers of the candidates on a front [N], their mean fitness [N], and their mean measures [N, D]."""

    candidates: Int64
    fitness: Float64
    measures: Float64


def front_history(run: StoredRun) -> list[Front]:
    """Return the front after each generation, sorted by the first measure. Raises InputError if the run has no front.

    The strategy selects by means over generations, but the file has only the values of each generation. So this
    function repeats the selections.
    """
    experiment = training.reload_policy(run)
    strategy, W = experiment.strategy(run.header.seed), experiment.network.num_weights
    state, fronts = strategy.start(), []
    for record in run.records:
        # A strategy of another package may record a front, too.
        if record.front is None or record.measures is None or not isinstance(state, FrontState):
            raise missing_error(run, "front")
        # Selection reads no genome, so all genomes share one number in memory.
        shape = len(record.fitness), W
        genomes = Genomes(np.broadcast_to(np.float32(0), shape), np.broadcast_to(np.False_, shape))
        state = strategy.tell(state, genomes, Results(record.fitness, measures=record.measures))
        rows = first_front(state)
        fronts.append(Front(state.candidates[rows], state.parents.score[rows], state.measures[rows]))
    return fronts


def members_of_front(run: StoredRun, generation: int | None) -> list[Member]:
    """Return the front after a generation, by default the last; see `Run.front`.

    Raises InputError if the run has no such generation, or no front.
    """
    last = run.num_generations - 1
    number = last if generation is None else generation
    check_which(run, training.GenomeChoice(number))
    names = names_of_measures(run)
    front = front_history(run)[number]
    # The evaluations and the genome of each candidate in the checkpoint, which exists only for the last generation.
    in_checkpoint: dict[int, tuple[int, Genomes]] = {}
    if number == last:
        _, state = training.restore(training.reload_policy(run), run)
        assert isinstance(state, FrontState)
        counts = state.parents.count.tolist()
        for n, candidate in enumerate(state.candidates.tolist()):
            in_checkpoint[candidate] = counts[n], state.parents.genomes.take(np.array([n]))
    members = []
    for candidate, fitness, values in zip(*(column.tolist() for column in front), strict=True):
        evaluations, genome = in_checkpoint.get(candidate, (None, None))
        members.append(Member(fitness, dict(zip(names, values, strict=True)), candidate, evaluations, genome))
    return members
