"""Groups of runs compared: every seed once, intervals that few seeds allow, tests only where they can tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evolve import store
from evolve.analysis import statistics
from evolve.analysis.comparison import compare_groups
from evolve.analysis.groups import RunGroup, deduplicate_seeds, group_runs
from evolve.config import Config
from evolve.store import HeldOut, Record, StoredRun


def run(seed, score, generations=2, name="a", digest=b"0"):
    """A complete run whose champion has a score."""
    fields = dict.fromkeys(Record.__dataclass_fields__)
    records = tuple(
        Record(**{**fields, "digest": digest + b"%d" % g, "champion_fitness": score}) for g in range(generations)
    )
    held_out = HeldOut(np.array([score]), np.zeros(1, np.int64), np.zeros(1, np.float32), np.ones(1, np.bool_))
    return StoredRun(Path(f"{name}.h5"), store.Header("", {}, seed, "x"), True, records, {}, held_out, False)


def group(label, scores, env="CartPole-v1"):
    config = Config().with_env(Config().env.model_copy(update={"id": env}))
    return RunGroup(label, config, tuple(run(seed, float(score)) for seed, score in enumerate(scores)))


def test_a_seed_counts_once():
    long, short, copy = run(1, 5.0, 3, "long"), run(1, 4.0, 2, "short"), run(1, 5.0, 3, "copy")
    other, alone = run(1, 5.0, 3, "other", b"9"), run(2, 6.0, 1, "alone")
    (found,), left_out = deduplicate_seeds([RunGroup("x", Config(), (short, alone, long, copy, other))])
    assert [each.path.stem for each in found.runs] == ["long", "alone"]
    for words in ("short.h5 (2 of the 3 generations of long.h5)", "copy.h5 (equal to long.h5)",
                  "other.h5 (another run than long.h5: evolve.verify finds the first difference)"):  # fmt: skip
        assert words in left_out
    assert deduplicate_seeds([found]) == ([found], "")


def test_one_seed_has_no_interval_and_no_test():
    _, (best, other) = compare_groups([group("a", [1.0]), group("b", [2.0])])
    assert (best.label, best.interval, best.p, best.against_best) == ("b", None, None, "best")
    assert (other.interval, other.p, other.against_best) == (None, None, "one seed")


def test_the_best_comes_first_and_tests_stay_within_an_environment():
    found = compare_groups(
        [
            group("low", range(5)),
            group("other", range(1000, 1005), "Acrobot-v1"),
            group("high", range(10, 15)),
            group("middle", range(6, 11)),
        ]
    )[1]
    assert [each.label for each in found] == ["high", "middle", "low", "other"]
    assert [each.against_best for each in found] == ["best", "p = 0.016", "p = 0.016", ""]
    assert found[2].p == pytest.approx(2 * 2 / 252)  # of two tests


def test_few_seeds_are_called_few():
    found = compare_groups([group("a", range(3)), group("b", range(10, 13))])[1]
    assert (found[1].p, found[1].against_best) == (pytest.approx(0.1), "p = 0.100, few seeds")


def test_equal_scores_are_no_easier_to_tell_apart_than_others():
    full, none = [500.0, 500.0, 500.0], [400.0, 400.0, 400.0]
    assert statistics.rank_test(np.array(full), np.array(none)) == pytest.approx(0.1)
    assert statistics.rank_test(np.array(full), np.array(full)) == 1
    found = compare_groups([group("a", range(4)), group("b", range(4)), group("c", range(10, 14))])[1]
    assert [each.against_best for each in found] == ["best", "p = 0.057, few seeds", "p = 0.057, few seeds"]


def test_runs_whose_held_out_evaluation_differs_are_another_group():
    config = Config()
    longer = config.model_copy(update={"evaluation_max_episode_steps": 900})
    found = group_runs([(run(0, 1.0), config), (run(0, 2.0), longer), (run(1, 3.0), config)])
    assert [(each.label, len(each.runs)) for each in found] == [
        ("CartPole-v1, hebbian-dag", 2), ("evaluation_max_episode_steps 900", 1)
    ]  # fmt: skip


def test_a_seed_without_a_score_is_not_tested():
    failed = replace(run(9, 0.0), held_out=None)
    failed = replace(failed, records=tuple(replace(r, champion_fitness=np.nan) for r in failed.records))
    worst = group("a", range(5))
    found = compare_groups([replace(worst, runs=(*worst.runs, failed)), group("b", range(5))])[1]
    assert [each.against_best for each in found] == ["best", "a seed without a score"]
    assert found[1].interval is None
