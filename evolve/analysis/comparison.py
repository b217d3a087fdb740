"""Compares groups of runs by mean, interval and rank test, and notes why their scores may not be comparable.

`compare_groups` takes the groups of `run_groups` and returns a `Ranking` with a `Comparison` for each group. Figures,
pages and commands show it. Other functions select the best groups and runs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from evolve import environments
from evolve.analysis import statistics
from evolve.analysis.generations import evaluation_of
from evolve.analysis.run_groups import RunGroup, by_environment
from evolve.config import EnvOptions, Options
from evolve.errors import InputError, pluralize, sanitize
from evolve.shapes import Float64
from evolve.store import HeldOut, Record, StoredRun

# The kinds of scores, in words.
HELD_OUT = "held-out champion's mean return"
TRAINING = "best fitness of the last generation, in training"
_FEWEST_SCORES = 3  # fewer scores have no interval
_HOW_TO_EVALUATE = "To evaluate: python -m evolve.evaluate FILE"
_NOT_EVALUATED = (
    "No run was evaluated on held-out episodes, so training fitness is compared, which flatters every run. "
    f"{_HOW_TO_EVALUATE}"
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The scores of a group of runs, compared with the reference: the best group of the same environment, or a control.

    Attributes:
        label: The label of the group.
        env: The environment, without control characters.
        scores: [n], the scores of the seeds that have one.
        missing: The number of seeds without a score.
        failed: The number of held-out episodes that failed, in all runs of the group.
        interval: The 95 % interval of the mean score; None for fewer than three scores. It is cut at a bound of the
            task, see `_bounds`.
        p: The p value of the two-sided rank test against the reference (with Holm's correction); None without a test.
        effect: The probability that a seed of this group has a higher score than a seed of the reference, where equal
            scores count half (A of Vargha and Delaney, 2000); None without a test.
        best: Whether no group of its environment has a higher mean; False if this is the only group, or has no score.
        role: "control" for the control, if there is one. Otherwise "best" for the group with the highest mean, or
            "equal" for each of several such groups. Empty for other groups.
    """

    label: str
    env: str
    scores: Float64
    missing: int
    failed: int
    interval: statistics.Interval | None
    p: float | None = None
    effect: float | None = None
    best: bool = False
    role: str = ""

    @property
    def name(self) -> str:
        """The label without the environment."""
        return self.label.removeprefix(f"{self.env}, ")

    @property
    def mean(self) -> float:
        """The mean score; NaN if there are no scores."""
        return statistics.mean(self.scores)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The texts of a row: the number of scores, the mean, the interval, and `against_reference`."""
        interval = "–" if self.interval is None else statistics.between(self.interval)
        return str(len(self.scores)), statistics.number(self.mean), interval, self.against_reference

    @property
    def against_reference(self) -> str:
        """The role of the group; without a role, p and A (`effect`) against the reference; empty without a test."""
        if self.role or self.p is None:
            return self.role
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"{p}, A = {self.effect:.2f}"


@dataclass(frozen=True)
class Ranking:
    """A comparison of groups, ordered by environment, best first.

    Attributes:
        score: The kind of the scores, in words.
        reference: The group against which the others of its environment are tested: "the best" or "the control".
        rows: The groups.
        notes: Sentences about runs without a score, failed episodes, different tasks, and groups without a test.
    """

    score: str
    reference: str
    rows: tuple[Comparison, ...]
    notes: tuple[str, ...]


def compare_groups(groups: Sequence[RunGroup], metric: str | None = None, control: str | None = None) -> Ranking:
    """Compare groups.

    A score is the held-out mean, the champion's mean return on held-out episodes. Seeds without a held-out mean are
    left out, with a note. If no seed has a held-out mean, scores are the best fitness of the last generation.

    metric: The name of a metric of `env.metrics`. A score is then the champion's mean of the metric over held-out
        episodes, and the largest mean counts as the best.
    control: The name of a group in each environment (`RunGroup.name`) against which the others are tested, instead of
        the best. Choose it before the scores are known, because a choice by scores biases the tests.

    Raises InputError if a run with held-out episodes lacks the metric, if no run has held-out episodes, or if an
    environment has no group with the name of the control.
    """
    runs = _runs_of(groups)
    evaluated = any_evaluated(runs)
    score, kind = (_held_out_mean, HELD_OUT) if evaluated else (_last_best, TRAINING)
    if metric is not None:
        _check_metric(runs, metric)
        score = partial(_held_out_mean, metric=metric)
        kind = f"held-out champion's mean {sanitize(metric)}"
    reference = "the best" if control is None else "the control"
    # `evaluated` is also False if all held-out episodes of evaluated runs failed. So here test `held_out` itself.
    notes = [_note_on_missing(runs)]
    if all(run.held_out is None for run in runs):
        notes = [_NOT_EVALUATED, _note_on_missing([run for run in runs if not run.complete])]
    rows: list[Comparison] = []
    for groups_of_env in by_environment(groups):
        if control is not None:
            _check_control(groups_of_env, control)
        incomparable = why_incomparable(groups_of_env, evaluated)
        untested = [_untested(group, score, metric) for group in groups_of_env]
        tested, missing_tests = _test(untested, control, are_comparable=not incomparable)
        rows += tested
        notes += [incomparable, _different_budgets(groups_of_env), _different_code(groups_of_env)]
        notes += [_mixed_lengths(groups_of_env, score), missing_tests]
    # Leave out empty and repeated notes.
    return Ranking(kind, reference, tuple(rows), tuple(dict.fromkeys(filter(None, notes))))


def _check_metric(runs: Sequence[StoredRun], metric: str) -> None:
    """Raise InputError if a run with held-out episodes lacks the metric, or if no run has held-out episodes."""
    names_of_runs = [set(run.held_out.metrics) for run in runs if run.held_out is not None]
    common = sorted(set.intersection(*names_of_runs)) if names_of_runs else []
    if metric not in common:
        expected = f"a metric that all runs have in held-out episodes ({', '.join(common) or 'they have none'})"
        raise InputError("metric", expected, repr(metric), "`env.metrics` names the metrics of a run.")


def _check_control(groups: Sequence[RunGroup], control: str) -> None:
    """Raise InputError unless exactly one of the groups in an environment has the name of the control."""
    names = [group.name for group in groups]
    if names.count(control) != 1:
        env = sanitize(groups[0].config.env.id)
        raise InputError("control", f"the name of one experiment of {env} ({'; '.join(names)})", repr(control))


def _different_budgets(groups: Sequence[RunGroup]) -> str:
    """Return a note if groups in one environment have different budgets; empty otherwise.

    The budget of a group is its limit of steps, `early_stop.steps`. If runs play all generations before they reach the
    limit, or if there is no limit, the budget is the number of episodes of all generations.
    """
    differ = f"{sanitize(groups[0].config.env.id)}: the experiments have different budgets"
    limits = {group.config.early_stop.steps for group in groups}
    steps = sorted(limit for limit in limits if limit is not None)
    if len(limits) > 1:
        least = "no limit" if None in limits else f"{steps[0]:,}"
        return f"{differ}, of {least} to {steps[-1]:,} steps (early_stop.steps)."
    # Here all groups have the same limit, or none has one. If each run that played all generations also reached the
    # limit, the limit is the budget.
    finished = [run for group in groups for run in group.runs if run.num_generations == group.config.generations]
    if steps and all(run.steps >= steps[0] for run in finished):
        return ""
    budgets = [group.config.population * group.config.episodes * group.config.generations for group in groups]
    if min(budgets) == max(budgets):
        return ""
    return f"{differ}, of {min(budgets):,} to {max(budgets):,} episodes in a run."


def _mixed_lengths(groups: Sequence[RunGroup], score: Callable[[StoredRun], float]) -> str:
    """Return a note if a mean score mixes champions that were trained for different lengths; empty otherwise."""
    mixed = []
    for group in groups:
        counted = [run for run in group.runs if np.isfinite(score(run))]
        lengths = [run.num_generations for run in counted]
        # Runs that have used up the same budget of steps were trained for equal lengths.
        budget = group.config.early_stop.steps
        used_up_budget = budget is not None and all(run.steps >= budget for run in counted)
        if lengths and min(lengths) < max(lengths) and not used_up_budget:
            mixed.append(f"{group.name} ({min(lengths):,} to {max(lengths):,} generations)")
    return f"Means mix champions that were trained for different lengths: {statistics.listed(mixed)}." if mixed else ""


def why_incomparable(groups: Sequence[RunGroup], evaluated: bool) -> str:
    """Return a note if the scores of groups in one environment cannot be compared; empty otherwise.

    The groups may have different tasks or fitness functions, or held-out episodes may have failed. If the hard episodes
    are the ones that fail, the mean over the other episodes is too high.

    evaluated: Whether the scores are returns of held-out episodes, and not fitness in training.
    """
    configs = [group.config for group in groups]
    trained = [config.env for config in configs]
    played = [config.in_evaluation().env for config in configs] if evaluated else trained
    env = sanitize(trained[0].id)
    # A setting that differs in held-out episodes, but not in training, is a setting `evaluation_…` of the experiment.
    different = []
    for name in ("kwargs", "randomize", "wrappers", "max_episode_steps"):
        if _differ(played, name):
            different.append(f"env.{name}" if _differ(trained, name) else f"evaluation_{name}")
    if _engines_differ(trained):
        different.append("env.engine")
    if different:
        return f"{env}: the experiments differ in {' and '.join(different)}, so their returns are of different tasks."
    if not evaluated:
        different = [name for name in ("fitness", "connection_cost") if _differ(configs, name)]
        meanings = f"{' and '.join(different)}, so their fitness has different meanings"
        return f"{env}: the experiments differ in {meanings}." if different else ""
    if len(groups) > 1 and any(map(_num_failed, groups)):
        return f"{env}: held-out episodes failed, so the experiments are not tested, and none counts as the best."
    return ""


def _num_failed(group: RunGroup) -> int:
    """Return the number of held-out episodes of a group that failed."""
    return sum(int(np.isnan(run.held_out.returns).sum()) for run in group.runs if run.held_out is not None)


def _engines_differ(envs: Sequence[EnvOptions]) -> bool:
    """Return whether experiments have engines that play different episodes."""
    if {env.engine for env in envs} == {"exact", "gymnasium"}:
        exact = next(env for env in envs if env.engine == "exact")
        try:
            # Both engines play the same episodes if the task has a world of rigid bodies, and only then.
            return not environments.exact_task(exact).has_world
        except InputError:  # a task of another package, which is not installed here
            return True
    return _differ(envs, "engine")


def _different_code(groups: Sequence[RunGroup]) -> str:
    """Return a note if runs in one environment used different versions of a module of the user; empty otherwise."""
    digests_of: dict[str, set[str]] = {}  # by the names of modules
    for run in _runs_of(groups):
        modules = run.header.manifest.get("modules")
        if isinstance(modules, dict):  # any program may have written the manifest
            for name, digest in modules.items():
                digests_of.setdefault(name, set()).add(str(digest))
    changed = [sanitize(name) for name, digests in sorted(digests_of.items()) if len(digests) > 1]
    if not changed:
        return ""
    env = sanitize(groups[0].config.env.id)
    return f"{env}: the runs were made with different versions of {statistics.listed(changed)}."


def _differ(tables: Sequence[Options], name: str) -> bool:
    """Return whether the value of a setting differs between tables."""
    return any(getattr(table, name) != getattr(tables[0], name) for table in tables)


def _runs_of(groups: Sequence[RunGroup]) -> list[StoredRun]:
    """Return the runs of all groups."""
    return [run for group in groups for run in group.runs]


def held_out_score(group: RunGroup) -> tuple[float, statistics.Interval | None, int] | None:
    """Return the held-out mean of a group, its interval, and the number of evaluated seeds; None if there are none.

    The interval is over seeds, and needs three. In a group of a single run, the interval is over episodes.
    """
    row = _untested(group, _held_out_mean)
    if not len(row.scores):
        return None
    evaluation = evaluation_of(group.runs[0]) if len(group.runs) == 1 else None
    interval = row.interval if evaluation is None else evaluation.interval
    return row.mean, interval, len(row.scores)


def best_run(group: RunGroup) -> StoredRun:
    """Return the run of a group with the best held-out mean; if no run was evaluated, with the best last generation."""
    score = _held_out_mean if any_evaluated(group.runs) else _last_best
    # A comparison with NaN is always false, so `max` could return a run without a score.
    return max(group.runs, key=lambda run: score(run) if np.isfinite(score(run)) else -np.inf)


def best_groups(groups: Sequence[RunGroup], most: int) -> list[RunGroup]:
    """Return at most `most` groups, in their order: the best of each environment, then the second best of each, …"""
    score = _held_out_mean if any_evaluated(_runs_of(groups)) else _last_best
    # The place of each group in its environment, from 0 on.
    places: dict[str, int] = {}
    for groups_of_env in by_environment(groups):
        means = {group.label: statistics.mean(np.array(list(map(score, group.runs)))) for group in groups_of_env}
        ranked = sorted(means, key=lambda label: np.nan_to_num(means[label], nan=-np.inf), reverse=True)
        places |= {label: place for place, label in enumerate(ranked)}
    best = sorted(places, key=lambda label: places[label])[:most]
    return [group for group in groups if group.label in best]


def any_evaluated(runs: Iterable[StoredRun]) -> bool:
    """Return whether any run has a held-out mean. Otherwise runs are compared by their fitness in training."""
    return any(np.isfinite(_held_out_mean(run)) for run in runs)


def _held_out_mean(run: StoredRun, metric: str | None = None) -> float:
    """Return the mean return, or the mean of a metric, in held-out episodes; NaN without them."""
    if run.held_out is None:
        return np.nan
    returns, metrics = run.held_out.returns, run.held_out.metrics
    return statistics.mean(returns) if metric is None else statistics.metrics_means(metrics, returns)[metric]


def _last_best(run: StoredRun) -> float:
    """Return the best fitness of the last generation."""
    return float(run.records[-1].champion_fitness)


def _note_on_missing(runs: Sequence[StoredRun]) -> str:
    """Return a note about runs without a held-out mean and about failed held-out episodes; it may be empty."""
    all_failed, not_evaluated, incomplete, early, some_failed = [], [], [], [], []
    for run in runs:
        path = sanitize(str(run.path))
        so_far = f"{path} ({pluralize(run.num_generations, 'generation')})"
        if run.held_out is None and run.complete:
            not_evaluated.append(path)
        elif run.held_out is None:
            incomplete.append(so_far)
        elif np.isnan(_held_out_mean(run)):
            all_failed.append(path)
        else:
            if failed := np.count_nonzero(np.isnan(run.held_out.returns)):
                some_failed.append(f"{path} ({failed} of {len(run.held_out.returns)})")
            if not run.complete:
                early.append(so_far)
    # If no run has a held-out mean, runs are compared by their fitness in training, and none is left out.
    left_out = "Left out, since not" if any_evaluated(runs) else "Not"
    # A champion that was trained for fewer generations must not be compared with the others. So the cure for it is to
    # complete the run, not to evaluate the champion.
    how_to_complete = "To complete: python -m evolve.run --resume FILE"
    notes = [
        ("Every held-out episode failed", all_failed, ""),
        (f"{left_out} evaluated on held-out episodes", not_evaluated, _HOW_TO_EVALUATE),
        (f"{left_out} complete", incomplete, how_to_complete),
        ("Evaluated before the run was complete", early, how_to_complete),
        ("Held-out episodes that failed are left out of the means", some_failed, ""),
    ]
    return " ".join(f"{note}: {statistics.listed(files)}. {cure}".strip() for note, files, cure in notes if files)


def _untested(group: RunGroup, score: Callable[[StoredRun], float], metric: str | None = None) -> Comparison:
    """Return the scores of a group, without a role and without a test.

    score: Returns the score of a run; a number that is not finite counts as no score.
    metric: The name of the metric of which the score is the mean; None for returns.
    """
    scores = statistics.finite(np.array([score(run) for run in group.runs]))
    few = len(scores) < _FEWEST_SCORES
    # Fitness in training has no bounds: it need not be a mean of returns.
    bounds = _bounds(group, metric) if any_evaluated(group.runs) else ()
    interval = None if few else statistics.interval(scores, *bounds)
    env, missing = sanitize(group.config.env.id), len(group.runs) - len(scores)
    return Comparison(group.label, env, scores, missing, _num_failed(group), interval)


def _bounds(group: RunGroup, metric: str | None) -> statistics.Interval:
    """Return the smallest and the largest return, or value of a metric, in all episodes of a group.

    A bound is infinite if only one seed reaches it, see `statistics.shared_bounds`. The bounds come from this group
    alone, so its interval does not depend on the groups with which it is compared.
    """
    lows, highs = [], []
    for run in group.runs:
        found = [np.zeros(0)]
        parts: list[Record | HeldOut] = [*run.records]
        if run.held_out is not None:
            parts.append(run.held_out)
        for part in parts:
            if metric is None:
                found.append(statistics.finite(part.returns))
            elif metric in part.metrics:  # a failed episode has no values of metrics
                found.append(statistics.finite(part.metrics[metric][np.isfinite(part.returns)].astype(np.float64)))
        values = np.concatenate(found)
        lows.append(values.min(initial=np.inf))
        highs.append(values.max(initial=-np.inf))
    return statistics.shared_bounds(np.array(lows), np.array(highs))


def _test(rows: Sequence[Comparison], control: str | None, are_comparable: bool) -> tuple[list[Comparison], str]:
    """Sort the groups of one environment, best first, and test each group against the best, or against the control.

    Return the sorted groups with their p values, and a note about tests that could not be made.

    control: The name of the control; None to test against the best.
    are_comparable: Whether the scores can be compared. Otherwise no group is the best, and no group is tested.
    """
    # A group without scores has the mean NaN, and comes last.
    ranked = sorted(rows, key=lambda row: np.nan_to_num(row.mean, nan=-np.inf), reverse=True)
    if len(ranked) < 2 or not are_comparable:
        return ranked, ""
    # Give the groups their roles, and find the reference.
    ranked = [replace(row, best=row.mean == ranked[0].mean) for row in ranked]
    if control is None:
        role = "equal" if sum(row.best for row in ranked) > 1 else "best"
        ranked = [replace(row, role=role if row.best else "") for row in ranked]
        reference, name = ranked[0], "the best"
    else:
        ranked = [replace(row, role="control" if row.name == control else "") for row in ranked]
        reference, name = next(row for row in ranked if row.role), "the control"
    others = [row for row in ranked if row is not reference]
    # A group is tested only if each seed of this group and of the reference has a score, and if the two groups have
    # enough seeds for a significant difference.
    complete = [row for row in others if not (row.missing or reference.missing)]
    testable = [row for row in complete if statistics.can_be_significant(len(row.scores), len(reference.scores))]
    # Holm's correction multiplies the smallest p by the number of tests. If no p can then be significant, test nothing.
    tests = len(testable)
    if not any(statistics.can_be_significant(len(row.scores), len(reference.scores), tests) for row in testable):
        testable = []
    try:
        ps = statistics.holm([statistics.rank_test(row.scores, reference.scores) for row in testable])
    except InputError as error:  # no SciPy
        return ranked, f"Nothing is tested: {error}"
    for row, p in zip(testable, ps, strict=True):
        effect = statistics.superiority(row.scores, reference.scores)
        ranked[ranked.index(row)] = replace(row, p=p, effect=effect)
    # Say why other groups are not tested.
    reasons = []
    if len(complete) < len(others):
        reasons.append(f"a group is tested against {name} only if each seed of both has a score")
    if len(testable) < len(complete):
        # The least number of seeds with which two groups of equal size can differ significantly.
        enough = next(n for n in range(2, 1000) if statistics.can_be_significant(n, n, len(others)))
        cure = f"{enough} seeds in each group are enough"
        reasons.append(f"too few seeds for a significant difference from {name}: {cure}")
    return ranked, f"{reference.env}: {'; '.join(reasons)}." if reasons else ""
