"""Compares two run files (`compare`), or a file with the published result of its experiment and seed.

`published.json` is the data behind docs/results.md. It has the settings of every experiment and, for each seed, the
number of generations and the digest of the last one. `experiments/results.py` writes this file. The package contains
the file, so an installed package needs no clone of the repository.

`compare_with_published` plays nothing and trusts the run file. `reevaluate` and `rerun` test whether the run file tells
the truth.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evolve.config import Config, differences, parse, without_implied
from evolve.errors import EvolveError, InputError, pluralize, sanitize
from evolve.store import Stored, StoredRun
from evolve.strategies import is_added
from evolve.training import config_of, is_portable, reload
from evolve.training.resume import CHAMPION_NORMALIZER
from evolve.verification import logs, playing
from evolve.verification.logs import EpisodeLog, FirstDifference
from evolve.verification.verdict import ENGINE, Cause, Side, Verdict, explain, manifest_texts, refined_kind

_FIND_CHANGED_LOG = "; `evolve verify --full` of each file tells which one"
"""The end of a reason which says that one of the two logs was changed."""
PUBLISHED = Path(__file__).with_name("published.json")


def compare(a: StoredRun, b: StoredRun, play: bool = True) -> Verdict:
    """Compare two runs in all contents; return the verdict, with the first difference and its cause.

    Times, ranks and manifests may differ. One file may have more held-out or validation episodes, or more genomes. The
    engines may differ, too, if they have played the same episodes.

    play: Whether the first different episode may be played here.
    """
    seeds = [("seed", a.header.seed, b.header.seed)] if a.header.seed != b.header.seed else []
    settings = without_implied(differences(config_of(a), config_of(b)))
    # The verdict if only the lengths of the runs differ. For another difference, some of its fields are replaced.
    common = pluralize(min(a.num_generations, b.num_generations), "generation")
    unequal = Verdict(
        False,
        f"equal for {common}, but {a.path} has {a.num_generations} and {b.path} {b.num_generations}",
        sides=(Side(str(a.path)), Side(str(b.path))),
        configuration=(*seeds, *settings),
        manifests=manifest_texts(a.header.manifest, b.header.manifest),
    )
    # Compare the generations that both runs have, then the settings, then the lengths.
    for generation, (ours, theirs) in enumerate(zip(a.records, b.records, strict=False)):
        first = logs.first_difference(generation, ours, theirs)
        if first is not None:
            return _explain_difference(a, b, first, unequal, play)
    keys = _different_settings(unequal)
    if keys:
        summary = f"equal in every generation, but with different settings: {keys}"
        return replace(unequal, summary=summary, cause="configuration", why=f"{keys}, or one of the files was changed")
    if a.num_generations != b.num_generations:
        return unequal
    # Compare all other contents. The generations determine them, so if they differ, a log was changed. But a strategy
    # of another package may keep a champion outside of its state, and then loses the champion when a run is resumed.
    changed = _changed_part(a, b)
    if changed is not None:
        cause, why = explain("hidden" if is_added(config_of(a).strategy) else "log", None)
        return replace(unequal, summary=changed, cause=cause, why=why + _FIND_CHANGED_LOG, what="log")
    # The runs are equal.
    digest = a.digest if a.records else "none"
    summary = f"{pluralize(a.num_generations, 'generation')}, digest {digest}"
    reason = _why_evaluations_may_differ(a, b)
    if reason and a.held_out is not None and b.held_out is not None:
        summary += f"; held-out episodes were not compared, because {reason}"
    return replace(unequal, equal=True, summary=summary)


def _changed_part(a: StoredRun, b: StoredRun) -> str | None:
    """Return a sentence on the first difference of two runs with equal generations; None if there is none."""
    part = _different_part(a, b) or _different_spaces(a, b)
    if part is not None:
        return f"the {part} differ, though every generation is equal"
    difference = logs.digest_difference(a) or logs.digest_difference(b)
    return None if difference is None else difference.summary


def _why_evaluations_may_differ(a: StoredRun, b: StoredRun) -> str:
    """Return the reason why held-out and validation episodes of two equal runs may differ; "" if they must be equal."""
    if (CHAMPION_NORMALIZER in a.checkpoint) != (CHAMPION_NORMALIZER in b.checkpoint):
        return "an earlier version of evolve played them with another normalizer in one of the runs"
    one, other = config_of(a), config_of(b)
    same_environment = one.evaluates_like(other.with_env_changes({"engine": one.env.engine}))
    return "" if same_environment else "they have different environments"


def _different_part(a: StoredRun, b: StoredRun) -> str | None:
    """Return the name of the first part that differs in two runs with equal generations; None if there is none."""
    start, other_start = (None if run.header.start is None else run.header.start.digest for run in (a, b))
    if start != other_start:
        return "genomes with which the runs began"
    if not _same_states(a, b):
        return "checkpoints"
    are_comparable = not _why_evaluations_may_differ(a, b)
    # Compare the validations that both runs have. The runs may have different ones, because early_stop may differ.
    validations = sorted(a.validations.keys() & b.validations.keys()) if are_comparable else []
    for generations in validations:
        ours, theirs = (logs.validation_returns(run, generations) for run in (a, b))
        n = min(len(ours), len(theirs))
        if not np.array_equal(ours[:n], theirs[:n], equal_nan=True):
            return f"validation returns after {pluralize(generations, 'generation')}"
    if a.held_out is not None and b.held_out is not None:
        # Compare the first n held-out episodes, which both runs played; n = 0 if they are not comparable. Then compare
        # the whole genome.
        n = min(len(a.held_out.returns), len(b.held_out.returns)) if are_comparable else 0
        for name, end in (("returns", n), ("seeds", n), ("weights", None), ("mask", None)):
            ours, theirs = (getattr(held_out, name)[:end] for held_out in (a.held_out, b.held_out))
            if not np.array_equal(ours, theirs, equal_nan=name == "returns"):
                return f"{'connections' if name == 'mask' else name} of the held-out evaluation"
        failed = np.isnan(a.held_out.returns[:n])
        metrics = {name: values[:n] for name, values in a.held_out.metrics.items()}
        other_metrics = {name: values[:n] for name, values in b.held_out.metrics.items()}
        if not logs.same_metrics(metrics, other_metrics, failed).all():
            return "metrics of the held-out evaluation"
    return None


def _different_spaces(a: StoredRun, b: StoredRun) -> str | None:
    """Return a name for the spaces of two runs if they differ; None if they are equal or cannot be compared."""
    # Another engine may declare other bounds, and earlier versions of evolve stored no spaces.
    if config_of(a).env.engine != config_of(b).env.engine or None in (a.header.spaces, b.header.spaces):
        return None
    return None if a.header.spaces == b.header.spaces else "spaces of observations and actions"


def _same_states(a: StoredRun, b: StoredRun) -> bool:
    """Return whether two checkpoints are equal, see `playing.same_states`; True if they cannot be compared here."""
    one, other = a.checkpoint, b.checkpoint
    # Try both orders, because only the second run of `same_checkpoints` may be of an earlier version of evolve.
    if logs.same_checkpoints(one, other) or logs.same_checkpoints(other, one):
        return True
    if not is_added(config_of(a).strategy):
        return False
    try:
        experiment = reload(a)
    except (EvolveError, ImportError):  # without the package of the strategy, only generations can be compared
        return True
    return playing.same_states(experiment, a, b)


def _explain_difference(a: StoredRun, b: StoredRun, first: FirstDifference, unequal: Verdict, play: bool) -> Verdict:
    """Return the verdict `unequal` with the first difference, its step and its cause. play: see `compare`."""
    # Find the first different step of an episode, and the observation and the action in it. Only champions have step
    # hashes, and no log has observations and actions, so play the episode of each run here.
    step, kind, sides = None, first.kind, unequal.sides
    if (key := first.key) is not None:
        generation, candidate, episode = key
        ours, theirs = (logs.logs_of_record(run.records[generation], candidate)[episode] for run in (a, b))
        our_play, their_play = (_play(run, key) if play else None for run in (a, b))
        step, kind = logs.first_different_step(_with_hashes(ours, our_play), _with_hashes(theirs, their_play))
        one, other = (str(run.path) for run in (a, b))
        sides = playing.side(one, ours, our_play, step), playing.side(other, theirs, their_play, step)
    # Find the cause. Other seeds or settings explain every difference, so these two causes come before all others.
    cause, why = explain(refined_kind(kind, first.generation, unequal.manifests), step)
    why += _FIND_CHANGED_LOG if cause == "log" else ""
    keys = _different_settings(unequal)
    if keys == "seed":
        cause, why = "random stream", "the seeds differ"
    elif keys:
        cause, why = "configuration", f"{keys}; {why}"
    located = replace(unequal, generation=first.generation, candidate=first.candidate, episode=first.episode, step=step)
    return replace(located, summary=first.summary, cause=cause, why=why, what=kind, sides=sides)


def _with_hashes(log: EpisodeLog, played: playing.PlayedEpisode | None) -> EpisodeLog:
    """Return `log`, or `played.log` if `log` lacks step hashes, and the episode played here has the same steps."""
    if log.step_hashes is None and played is not None and played.log.has_same_steps(log):
        return played.log
    return log


def _different_settings(verdict: Verdict) -> str:
    """Return the names of the different settings, without the engine: two engines can play equal episodes."""
    return ", ".join(key for key, _, _ in verdict.configuration if key != ENGINE)


def _play(run: StoredRun, key: tuple[int, int, int]) -> playing.PlayedEpisode | None:
    """Play an episode (generation, candidate, episode) of a run here.

    Return None if its genome, its environment or Gymnasium is missing.
    """
    try:
        experiment = reload(run)
        genome = playing.genome_of(run, experiment, key[0], key[1])
        return None if genome is None else playing.play_recorded(run, experiment, key, genome)
    except (EvolveError, ImportError):
        return None


@dataclass(frozen=True)
class PublishedSeed:
    """The published result of one seed of an experiment.

    Attributes:
        experiment: The name of the experiment.
        config: Its settings.
        seed: The seed.
        num_generations: The number of generations of the run.
        digest: The digest of the last generation, 64 hexadecimal characters.
        mean: The mean return of the champion in the held-out episodes of the experiment; None if unknown.
    """

    experiment: str
    config: Config
    seed: int
    num_generations: int
    digest: str
    mean: float | None = None

    def differences(self, config: Config) -> list[tuple[str, object, object]]:
        """Return triples (key, published value, value in `config`) of the different settings, without the engine."""
        return [triple for triple in differences(self.config, config) if triple[0] != ENGINE]


def read_published(path: Path = PUBLISHED) -> list[PublishedSeed]:
    """Return the published results. Raises InputError if the file is missing."""
    try:
        experiments = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        cure = "It is a part of the package: install evolve again."
        raise InputError(str(path), "the list of published results", str(error), cure) from None
    published = []
    for name, experiment in experiments.items():
        config = parse(Config, experiment["settings"])
        for result in experiment["results"]:
            seed, generations, digest = result["seed"], result["generations"], result["digest"]
            published.append(PublishedSeed(name, config, seed, generations, digest, result.get("mean")))
    return published


def compare_with_published(run: Stored, published: Sequence[PublishedSeed]) -> Verdict:
    """Compare the digest in a file with the published digest of its experiment and seed.

    The engine may be another one, because two engines can play the same episodes. A longer run is compared at the
    generation with which the published run ended.

    Args:
        run: A run file with a complete generation, or a champion file.
        published: The published results, see `read_published`.

    Raises:
        InputError: The experiment is not published, or not with this seed.
    """
    config = config_of(run)
    same_settings = [each for each in published if not each.differences(config)]
    verdicts = [_compare_with_seed(run, config, each) for each in same_settings if each.seed == run.header.seed]
    if not verdicts:
        raise _not_published(run, config, published, same_settings)
    # There are several verdicts if published experiments differ in their engines only. One equal digest is enough.
    return next((verdict for verdict in verdicts if verdict.equal), verdicts[0])


def _compare_with_seed(run: Stored, config: Config, published: PublishedSeed) -> Verdict:
    """Return the verdict on a file with the experiment and the seed of a published result."""
    name = f"seed {published.seed} of the published experiment {published.experiment}"
    length = pluralize(published.num_generations, "generation")
    engines = published.config.env.engine, config.env.engine
    unequal = Verdict(
        False,
        "",
        sides=(Side(name), Side(str(run.path))),
        configuration=((ENGINE, *engines),) if engines[0] != engines[1] else (),
        manifests=manifest_texts(run.header.manifest),
    )
    # Compare the lengths. A longer run file also has the digest of the last published generation.
    is_longer = run.num_generations > published.num_generations
    if run.num_generations < published.num_generations or (is_longer and not isinstance(run, StoredRun)):
        why = f"only the last digest is published, so continue the run to {length} first"
        if is_longer:
            why = "a champion file holds the digest of its last generation only; the run file holds all of them"
        summary = f"{name} has {length}, and this file {run.num_generations:,}"
        return replace(unequal, summary=summary, cause="configuration", why=why, what="shape")
    # Compare the digests. A digest covers all earlier generations.
    digest = run.records[published.num_generations - 1].digest.decode() if isinstance(run, StoredRun) else run.digest
    if digest != published.digest:
        summary = f"{name} has digest {published.digest} after {length}, and this file {digest}"
        cause, why = _explain_digest(run, config, published)
        return replace(unequal, summary=summary, cause=cause, why=why, what="digest")
    # Compare the held-out means, if both are known. The published mean may have been added up in another order.
    first = "the first " if is_longer else ""
    equal = replace(unequal, equal=True, summary=f"{name}, {first}{length}, digest {digest}")
    mean = _mean_return(run, config, published)
    if is_longer or mean is None or published.mean is None:
        return equal
    if math.isclose(mean, published.mean, rel_tol=1e-9, abs_tol=1e-9):
        return replace(equal, summary=f"{equal.summary}, held-out mean {mean:.6g}")
    summary = f"{name} has a held-out mean of {published.mean:.6g}, and this file {mean:.6g}"
    cause, why = explain("held-out", None)
    return replace(unequal, summary=summary, cause=cause, why=why, what="held-out")


def _mean_return(run: Stored, config: Config, published: PublishedSeed) -> float | None:
    """Return the mean return in a file on the published held-out episodes; None if the file has others, or fewer."""
    n = published.config.held_out_episodes
    returns = np.zeros(0) if run.held_out is None else run.held_out.returns[:n]
    # Another engine may play other held-out episodes, although the episodes of the training are equal.
    are_same = config.env.engine == published.config.env.engine and config.evaluates_like(published.config)
    return float(returns.mean()) if n and len(returns) == n and are_same else None


def _explain_digest(run: Stored, config: Config, published: PublishedSeed) -> tuple[Cause, str]:
    """Return the likeliest cause if a file has another digest than the published one, and the reason to assume it."""
    ours, theirs = config.env.engine, published.config.env.engine
    cause: Cause = "environment"
    if ours != theirs:
        why = f"the engines {ours} and {theirs} need not play the same episodes"
    elif ours != "exact":
        why = f"the environments come from a library ({ours}), whose results may differ between versions and processors"
    else:
        cause, why = explain("portable" if is_portable(config) else "algebra", None)
    return cause, f"{why}; {_origin(run)}"


def _origin(run: Stored) -> str:
    """Return the processor and the versions with which a file was made, in words. The text has a limited length."""
    (manifest,) = manifest_texts(run.header.manifest)
    packages = [key for key in manifest if key.startswith("packages.")]
    versions = [f"{key.removeprefix('packages.')} {manifest[key]}" for key in ("evolve", *packages) if key in manifest]
    processor = manifest.get("cpu", "an unknown processor")
    return sanitize(f"this file was made on {processor} by {', '.join(versions)}", 800)


def _not_published(
    run: Stored, config: Config, published: Sequence[PublishedSeed], other_seeds: Sequence[PublishedSeed]
) -> InputError:
    """Return the error for a file without a published result. other_seeds: the other results of its experiment."""
    cure = "To compare it with another run, name two files: python -m evolve.verify A.h5 B.h5."
    if other_seeds:
        seeds = ", ".join(str(each.seed) for each in other_seeds)
        expected = f"a published seed of {other_seeds[0].experiment} ({seeds})"
        return InputError(str(run.path), expected, f"seed {run.header.seed}", cure)
    # The nearest experiment has the same environment if possible, and the fewest different settings. There is at least
    # one, because no experiment has the same settings as the file.
    nearest = min(published, key=lambda each: (each.config.env.id != config.env.id, len(each.differences(config))))
    key, theirs, ours = nearest.differences(config)[0]
    expected = f"a run of a published experiment ({', '.join(dict.fromkeys(each.experiment for each in published))})"
    got = f"another experiment; the nearest is {nearest.experiment}, in which {key} is {theirs!r} and not {ours!r}"
    return InputError(str(run.path), expected, got, cure)
