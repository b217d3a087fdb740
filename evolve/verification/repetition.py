"""Repeats a run on this machine, and compares it with its file.

`repetition` returns a `RunRepetition` or a `ChampionRepetition`. Their method `reevaluate` plays the episodes of
champions again, and `rerun` repeats the whole run. Both return a `Verdict` on the first difference. A champion file has
no log, so `reevaluate` plays its held-out episodes, and `rerun` compares the last digest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from evolve import strategies, training
from evolve.cluster import Coordinator, Transport
from evolve.config import EarlyStopOptions, names_function
from evolve.errors import EvolveError, pluralize
from evolve.genome import Genomes, candidate_digests, concatenate
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, PopulationResults, generation_keys
from evolve.store import HeldOut, Record, RunLog, Stored, StoredChampion, StoredRun
from evolve.training.resume import RunState
from evolve.training.stored import newest_champion
from evolve.verification import logs, playing
from evolve.verification.logs import EpisodeLog, FirstDifference
from evolve.verification.verdict import ENGINE, HERE, Side, Verdict, explain, manifest_texts, refined_kind

_GENERATIONS_AT_ONCE = 200  # champions that play together; more would need more memory for their results
_CONTRADICTIONS = {
    "init": "its genomes are not the initial genomes of the seed",
    "added": "its genomes are not those that the strategy asks for here",
    "log": "a fingerprint of its genomes does not follow from the seed",
    "weights": "the champion's genome contradicts its fingerprint",
    "traces": "the champion's traces contradict its episodes",
}
"""The summaries of differences in genomes or traces, by the kind of difference, if all episodes are equal."""


@dataclass(frozen=True)
class _Repetition:
    """The repetition of a run on this machine, and its comparison with the file.

    Attributes:
        run: The content of the file.
        experiment: The experiment. It counts a failed episode as the worst, so that a failure here does not end the
            repetition, but is compared with the log.
        coordinator: Distributes the episodes.
        local_manifest: The manifest of this process.
    """

    run: Stored
    experiment: training.Experiment
    coordinator: Coordinator
    local_manifest: Mapping[str, Any]

    def _repeat(self, log: RunLog) -> Iterator[Record]:
        """Run the experiment again for the generations of the file, without early stop and held-out episodes.

        Return the records of the generations one by one, as `training.iterate` does.
        """
        settings = {"generations": self.run.num_generations, "held_out_episodes": 0, "early_stop": EarlyStopOptions()}
        config = self.experiment.config.model_copy(update=settings)
        return training.iterate(replace(self.experiment, config=config), self.coordinator, log)

    @property
    def _manifests(self) -> tuple[dict[str, str], ...]:
        """The manifests of the file and of this process, as texts."""
        return manifest_texts(self.run.header.manifest, self.local_manifest)

    @property
    def _has_added_strategy(self) -> bool:
        return strategies.is_added(self.experiment.config.strategy)

    @property
    def _engines(self) -> tuple[tuple[str, str, str], ...]:
        """The `Verdict.configuration`: the engine of the file and the engine here; empty if they are the same."""
        in_file, here = training.config_of(self.run).env.engine, self.experiment.config.env.engine
        return () if in_file == here else ((ENGINE, in_file, here),)

    def _held_out_difference(self, stored: HeldOut, repeated: HeldOut) -> FirstDifference | None:
        """Return the difference of the held-out episodes in the file and here; None if they are equal."""
        # The environment seeds follow from the seed of the run alone. If they differ, the file was changed.
        if not np.array_equal(repeated.seeds, stored.seeds):
            return FirstDifference("log", "the environment seeds of its held-out episodes do not follow from its seed")
        different = ~logs.equal_numbers(repeated.returns, stored.returns)
        episodes = pluralize(len(stored.returns), "held-out episode")
        if different.any():
            episode = int(np.argmax(different))
            returns = float(stored.returns[episode]), float(repeated.returns[episode])
            summary = f"{np.count_nonzero(different)} of {episodes} have different returns, first episode {episode}: "
            summary += f"{returns[0]!r} against {returns[1]!r} on {HERE}"
            return FirstDifference("held-out", summary, episode=episode, returns=returns)
        if not logs.same_metrics(stored.metrics, repeated.metrics, np.isnan(stored.returns)).all():
            return FirstDifference("metrics", f"the champion's metrics on {episodes} differ on {HERE}")
        return None

    def _spaces_difference(self) -> FirstDifference | None:
        """Return the difference of the spaces in the file and here; None if they are equal, or the file has none."""
        # Another engine may declare other bounds, so compare the spaces only for the same engine.
        if self._engines or self.run.header.spaces in (None, self.experiment.spaces.to_json()):
            return None
        return FirstDifference("spaces", f"the spaces of observations and actions are others than on {HERE}")

    def _verdict(self, difference: FirstDifference | None, equal_summary: str = "", explained_as: str = "") -> Verdict:
        """Return the verdict on a file.

        Args:
            difference: The difference of the file from its repetition; None if there is no difference.
            equal_summary: The summary if there is no difference.
            explained_as: The kind of difference that `explain` explains. By default it is the kind of `difference`. But
                a "log" difference counts as "hidden" if the strategy is from another package, which may keep something
                outside its state.
        """
        if difference is None:
            return Verdict(True, equal_summary, configuration=self._engines)
        kind, step = difference.kind, None  # no difference of a whole run names a step
        place = difference.generation, difference.candidate, difference.episode, step
        sides = Side(str(self.run.path), difference.returns[0]), Side(HERE, difference.returns[1])
        if not explained_as:
            explained_as = "hidden" if kind == "log" and self._has_added_strategy else kind
        cause, why = explain(explained_as, step, self.run.header.seed)
        return Verdict(False, difference.summary, cause, why, *place, kind, sides, self._engines, self._manifests)


def repetition(
    run: Stored, experiment: training.Experiment, coordinator: Coordinator, transport: Transport
) -> "RunRepetition | ChampionRepetition":
    """Return the repetition of a run file or a champion file on the ranks of a transport."""
    # A failed episode here must not end the repetition, because the episode may have failed in the log, too.
    experiment = replace(experiment, config=experiment.config.with_section("env", on_failure="worst"))
    local_manifest = training.make_manifest(experiment, transport)
    if isinstance(run, StoredRun):
        return RunRepetition(run, experiment, coordinator, local_manifest)
    return ChampionRepetition(run, experiment, coordinator, local_manifest)


@dataclass(frozen=True)
class RunRepetition(_Repetition):
    """The repetition of a run file."""

    run: StoredRun

    def reevaluate(self, generations: Sequence[int] | None = None) -> Verdict:
        """Play again the episodes by which champions were selected, and compare them with the log.

        The final champion plays its held-out episodes again, and its validation episodes if there are any. The fitness
        of all candidates is computed again from the logged returns, unless it is a function that cannot be imported
        here. A front or an archive is selected again by the logged fitness and measures. If the file has all genomes,
        their digests are computed again.

        generations: The generations of the champions that play; by default all.
        """
        run = self.run
        numbers = range(run.num_generations) if generations is None else generations
        # Play the episodes of the champions again.
        for batch in self._batches(numbers):
            verdict = self._first_champion_verdict(batch)
            if verdict is not None:
                return verdict
        part = "" if len(numbers) == run.num_generations else f"{len(numbers)} of "
        champions = f"the champions of {part}{pluralize(run.num_generations, 'generation')}"
        summary = f"{champions}, {pluralize(sum(map(self._num_played, numbers)), 'episode')} evaluated again"
        summary += f", and {len(run.held_out.returns):,} held-out ones" if run.held_out is not None else ""
        # Compute the fitness again. If a function of the user is missing here, this is not a difference.
        try:
            difference = logs.fitness_difference(run, self.experiment, numbers)
        except EvolveError as error:
            difference = None
            summary += f"; but the fitness was not computed again ({str(error).splitlines()[0]})"
        if difference is not None and names_function(self.experiment.config.fitness):
            difference = replace(difference, kind="function")
        # Look for contradictions inside the file before any validation or held-out episode is played.
        difference = difference or logs.selection_difference(run, self.experiment) or self._validation_difference(run)
        return self._verdict(difference or self._remaining_difference(), summary)

    def rerun(self, on_generation: Callable[[Record], None]) -> Verdict:
        """Run the experiment again, for the number of generations in the file, and compare everything that is stored.

        on_generation: Called with each generation that is equal.
        """
        log = RunLog(self.run.path, self.run.header)
        # `append` replaces the attributes of the log, so a shallow copy keeps the state before a generation.
        before = copy(log)
        for generation, record in enumerate(self._repeat(log)):
            difference = logs.first_difference(generation, self.run.records[generation], record)
            if difference is None:
                on_generation(record)
                difference = self._validation_difference(log)
            if difference is not None:
                return self._explain(difference, record, before)
            before = copy(log)
        # The generations determine the checkpoint. If the checkpoint differs, the file was changed.
        if not playing.same_states(self.experiment, log, self.run):
            return self._verdict(FirstDifference("log", "the checkpoint does not belong to its generations"))
        summary = f"{pluralize(self.run.num_generations, 'generation')}, digest {self.run.digest}"
        return self._verdict(self._remaining_difference(), summary)

    def _batches(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield generations in batches of at most `_GENERATIONS_AT_ONCE`. One call of the coordinator plays a batch.

        All champions of a batch have the same step limit and the same number of episodes.
        """

        def limits(generation: int) -> tuple[int | None, int]:
            step_limit = training.recorded_limit(self.experiment, self.run.records, generation)
            return step_limit, self._num_played(generation)

        for _, group in groupby(numbers, limits):
            same_limits = list(group)
            for begin in range(0, len(same_limits), _GENERATIONS_AT_ONCE):
                yield same_limits[begin : begin + _GENERATIONS_AT_ONCE]

    def _num_played(self, generation: int) -> int:
        """Return the number of episodes that the champion of a generation played."""
        return logs.num_champion_episodes(self.experiment.config, self.run.records[generation])

    def _first_champion_verdict(self, numbers: Sequence[int]) -> Verdict | None:
        """Play the champions of some generations; return the verdict on the first different one, or None."""
        genomes, results = self._evaluate(numbers)
        fingerprints = genomes.fingerprints()
        traces = results.trace_fingerprints()
        metrics = results.metrics(self.experiment.config.env.metrics)
        for row, generation in enumerate(numbers):
            genome_kind = self._kind_of_genome_difference(generation, int(fingerprints[row]))
            here = logs.episode_logs(results, row, metrics, results.step_hashes(row))
            verdict = self._champion_verdict(generation, here, int(traces[row]), genome_kind)
            if verdict is not None:
                return verdict
        return None

    def _evaluate(self, numbers: Sequence[int]) -> tuple[Genomes, PopulationResults]:
        """Return the champions of some generations, and the results of their episodes here."""
        run, experiment, config = self.run, self.experiment, self.experiment.config
        records = [run.records[generation] for generation in numbers]
        candidates = [record.champion_candidate for record in records]
        # For each champion, the last of the keys of candidates 0 to c is the key of candidate c.
        common = config.common_random_numbers
        keys = [generation_keys(g, c + 1, common)[-1:] for g, c in zip(numbers, candidates, strict=True)]
        genomes = concatenate(*(record.champion for record in records))
        # Each champion has the normalizer of its own generation: [len(numbers), 2, O]. Without normalization, all are
        # None.
        stored = [training.normalizer_of(experiment, run, generation) for generation in numbers]
        normalizers = np.stack([n for n in stored if n is not None]) if config.normalize_observations else None
        seed, episodes = run.header.seed, range(self._num_played(numbers[0]))
        batch = EpisodeBatch.of(
            seed, Purpose.EPISODE, genomes, np.concatenate(keys), episodes, normalizers, candidates=np.array(candidates)
        )
        # All generations of a batch have the same step limit, see `_batches`.
        spec = training.with_recorded_limit(experiment, run.records, numbers[0]).rollout_spec
        return genomes, self.coordinator.evaluate(spec, batch)

    def _kind_of_genome_difference(self, generation: int, fingerprint: int) -> str | None:
        """Return the kind of difference (`explain`) in the genomes of a generation; None if there is no difference.

        fingerprint: The fingerprint of the stored champion, computed here.
        """
        record = self.run.records[generation]
        same = None
        if generation == 0:
            same = playing.initial_fingerprints(self.run, self.experiment) == record.genome_fingerprints
            # If most initial genomes differ, the run has another seed. If a few differ, the log was changed.
            if 2 * np.count_nonzero(same) < len(same):
                return self._kind_of_asked_genomes
        if fingerprint != int(record.genome_fingerprints[record.champion_candidate]):
            return "weights"
        return None if same is None or same.all() else "log"

    @property
    def _kind_of_asked_genomes(self) -> str:
        """The kind of difference if the strategy asks for other genomes here.

        The initial genomes of a built-in strategy follow from the seed ("init"). The code of a strategy of another
        package may have changed ("added").
        """
        return "added" if self._has_added_strategy else "init"

    def _champion_verdict(
        self, generation: int, here: list[EpisodeLog], trace_fingerprint: int, genome_kind: str | None
    ) -> Verdict | None:
        """Return the verdict on a champion if its log in the file differs from its log here; None if they are equal.

        Args:
            generation: The generation of the champion.
            here: The log on this machine. In a race it may have fewer episodes than the file.
            trace_fingerprint: The fingerprint of the champion's traces here; 0 if it is unknown.
            genome_kind: The kind of difference in the genomes, or None.
        """
        record = self.run.records[generation]
        candidate = int(record.champion_candidate)
        stored = logs.logs_of_record(record, candidate)
        for episode, log in enumerate(here):
            if not stored[episode].equals(log):
                return self.diagnose((generation, candidate, episode), log, genome_kind)
        # The episodes are equal, but other parts of the log may differ. A fingerprint of 0 is unknown. In a race, a
        # failed champion may have played more episodes than the log shows. Its traces are means over all its episodes,
        # and cannot be compared here.
        kind, contradiction = genome_kind, logs.inconsistency(record)
        comparable = len(here) == self.experiment.config.episodes or not np.isnan(record.champion_fitness)
        stored_fingerprint = int(record.trace_fingerprints[candidate])
        if stored_fingerprint and comparable and trace_fingerprint != stored_fingerprint:
            kind = kind or "traces"
        if not np.array_equal(record.champion_step_hashes, np.concatenate([log.step_hashes for log in here])):
            kind = kind or "log"
            contradiction = contradiction or "the champion's step hashes contradict its episodes"
        if kind is None and contradiction is None:
            return None
        kind = kind or "log"
        # These kinds concern the genomes of the whole generation, so the verdict names no candidate.
        wrong_candidate = None if contradiction is None and kind in ("init", "added", "log") else candidate
        summary = f"generation {generation}: {contradiction or _CONTRADICTIONS[kind]}"
        return self._verdict(FirstDifference(kind, summary, generation, wrong_candidate))

    def _validation_difference(self, run: RunState) -> FirstDifference | None:
        """Repeat the validation after the last generation of `run`, if the file has it; return the difference or None.

        run: The run of the file, or its repetition up to a generation.
        """
        stored = logs.validation_returns(self.run, run.num_generations)
        if not len(stored):
            return None
        player, seed = newest_champion(self.experiment, run), self.run.header.seed
        generations, episodes = run.num_generations, len(stored)
        repeated = training.validation_returns(self.experiment, self.coordinator, player, seed, generations, episodes)
        if np.array_equal(repeated, stored, equal_nan=True):
            return None
        after = f"after {pluralize(generations, 'generation')}"
        summary = f"the champion's returns on {pluralize(episodes, 'validation episode')} {after} differ on {HERE}"
        return FirstDifference("validation", summary, generations - 1)

    def _remaining_difference(self) -> FirstDifference | None:
        """Return the first difference in the digests, the spaces or the held-out episodes; None if there is none.

        Digests can be checked only if the file has all genomes. Missing held-out episodes of a complete run are a
        difference, too.
        """
        difference = logs.digest_difference(self.run) or self._spaces_difference()
        if difference is not None:
            return difference
        stored, wanted = self.run.held_out, self.experiment.config.held_out_episodes
        if stored is None:
            if self.run.complete and wanted:
                return FirstDifference("log", "the held-out evaluation is missing, though the run is complete")
            return None
        # A changed file may lack the episodes with low returns.
        if self.run.complete and len(stored.returns) < wanted:
            summary = f"the run is complete, but has only {len(stored.returns):,} of {wanted:,} held-out episodes"
            return FirstDifference("log", summary)
        player = newest_champion(self.experiment, self.run)
        # Compare the genomes first, because another genome would have other returns.
        if (candidate_digests(player[0]) != candidate_digests(stored.champion)).any():
            summary = "the champion of the held-out evaluation is not the champion of the checkpoint"
            return FirstDifference("log", summary)
        seed, episodes = self.run.header.seed, len(stored.returns)
        repeated = training.held_out(self.experiment, self.coordinator, player, seed, episodes)
        return self._held_out_difference(stored, repeated)

    def _explain(self, difference: FirstDifference, record: Record, before: RunLog) -> Verdict:
        """Return the verdict on the first difference between the run and its repetition, with its cause.

        Args:
            difference: The difference.
            record: The record of the generation in the repetition.
            before: The repetition before this generation.
        """
        # Without an episode, the kind of difference is all that is known.
        if (key := difference.key) is None:
            if difference.kind == "genome" and (self._has_added_strategy or difference.generation == 0):
                difference = replace(difference, kind=self._kind_of_asked_genomes)
            kind = refined_kind(difference.kind, difference.generation, self._manifests)
            return self._verdict(difference, explained_as=kind)
        # Generate the candidate again from the state before this generation, and play its episode for a diagnosis.
        generation, candidate, episode = key
        strategy, state = training.restore(self.experiment, before)
        genome = strategy.ask(state, generation, np.array([candidate]))
        return self.diagnose(key, logs.logs_of_record(record, candidate)[episode], genome=genome)

    def diagnose(
        self, key: tuple[int, int, int], here: EpisodeLog, genome_kind: str | None = None, genome: Genomes | None = None
    ) -> Verdict:
        """Return the verdict on an episode that differs here from its log.

        Args:
            key: (generation, candidate, episode).
            here: The log of the episode on this machine.
            genome_kind: The kind of difference in the genomes, or None.
            genome: The genome of the candidate (P = 1); by default the genome from `playing.genome_of`.
        """
        run, experiment = self.run, self.experiment
        generation, candidate, episode = key
        stored = logs.logs_of_record(run.records[generation], candidate)[episode]
        summary = f"generation {generation}: {logs.describe_difference(candidate, episode, stored, here)} on {HERE}"
        step, step_kind = logs.first_different_step(stored, here)
        # A wrong genome explains every difference of the episode.
        kind = genome_kind or step_kind
        cause, why = explain(kind, step, run.header.seed)
        if genome_kind is not None and step is not None:
            _, why_step_differs = explain(step_kind, step)
            why += f"; {why_step_differs}"
        if cause == "environment" and experiment.config.env.reuse is True:
            why += "; with env.reuse = true, an object may keep something of its earlier episodes"
        # The log has no observations and actions, so play the episode once more to show them.
        genome = genome or playing.genome_of(run, experiment, generation, candidate)
        played = None if step is None or genome is None else playing.play_recorded(run, experiment, key, genome)
        sides = playing.side(str(run.path), stored, None, step), playing.side(HERE, here, played, step)
        return Verdict(False, summary, cause, why, *key, step, kind, sides, self._engines, self._manifests)


@dataclass(frozen=True)
class ChampionRepetition(_Repetition):
    """The repetition of the run of a champion file."""

    run: StoredChampion

    def reevaluate(self) -> Verdict:
        """Play all held-out episodes again, and compare their returns, environment seeds and metrics."""
        stored = self.run.held_out
        repeated = training.evaluate_champion(self.run, self.experiment, self.coordinator, len(stored.returns))
        generations = pluralize(self.run.num_generations, "generation")
        episodes = pluralize(len(stored.returns), "held-out episode")
        difference = self._held_out_difference(stored, repeated) or self._spaces_difference()
        wanted = self.experiment.config.held_out_episodes
        few = f" (the experiment asks for {wanted:,})" if len(stored.returns) < wanted else ""
        return self._verdict(difference, f"the champion of {generations}, {episodes} again{few}")

    def rerun(self, on_generation: Callable[[Record], None]) -> Verdict:
        """Run the experiment again. Compare the digest, then the champion, its normalizer, the steps and the returns.

        on_generation: Called with each generation of the repetition.
        """
        run, log = self.run, RunLog(self.run.path, self.run.header)
        for record in self._repeat(log):
            on_generation(record)
        digest = "" if log.last is None else log.last.digest.decode()
        if digest != run.digest:
            summary = f"on {HERE} its run ends with digest {digest}, not {run.digest}"
            # Choose the kind by the likeliest cause.
            config, kind = self.experiment.config, "digest"  # the environments of a library may differ
            if config.env.engine == "exact":
                # A portable run differs nowhere, so the file was changed. Other runs depend on linear algebra, or on a
                # function of the user.
                kind = "portable" if training.is_portable(config) else "algebra"
                kind = "function" if names_function(config.fitness) else kind
            return self._verdict(FirstDifference(kind, summary))
        champion, normalizer = newest_champion(self.experiment, log)
        # The digest covers the generations, but not these contents of the champion file.
        is_equal = {
            "genome": np.array_equal(candidate_digests(champion), candidate_digests(run.held_out.champion)),
            "normalizer": logs.same_optional(normalizer, run.normalizer),
            "number of steps": log.steps == run.steps,
        }
        for name, content_is_equal in is_equal.items():
            if not content_is_equal:
                summary = f"its {name} differs from the {name} of its run, though the digest is equal"
                return self._verdict(FirstDifference("log", summary))
        verdict = self.reevaluate()
        return replace(verdict, summary=f"{verdict.summary}; digest {digest}") if verdict.equal else verdict
