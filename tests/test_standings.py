"""Where experiments stand: every seed once, intervals that few seeds allow, tests only where they can tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evolve import figures, statistics, store
from evolve.config import Config
from evolve.standings import once, standings
from evolve.store import HeldOut, Record, Run


def run(seed, score, told=2, name="a", digest=b"0"):
    """A complete run whose champion came to a score."""
    fields = dict.fromkeys(Record.__dataclass_fields__)
    records = tuple(Record(**{**fields, "digest": digest + b"%d" % g, "champion_fitness": score}) for g in range(told))
    held_out = HeldOut(np.array([score]), np.zeros(1, np.int64), np.zeros(1, np.float32), np.ones(1, np.bool_))
    return Run(Path(f"{name}.h5"), store.Header("", {}, seed, "x"), True, records, {}, held_out, False)


def experiment(label, scores, env="CartPole-v1"):
    config = Config().with_env(Config().env.model_copy(update={"id": env}))
    return figures.Experiment(label, config, tuple(run(seed, float(score)) for seed, score in enumerate(scores)))


def test_a_seed_counts_once():
    long, short, copy = run(1, 5.0, 3, "long"), run(1, 4.0, 2, "short"), run(1, 5.0, 3, "copy")
    other, alone = run(1, 5.0, 3, "other", b"9"), run(2, 6.0, 1, "alone")
    (found,), left_out = once([figures.Experiment("x", Config(), (short, alone, long, copy, other))])
    assert [each.path.stem for each in found.runs] == ["long", "alone"]
    for words in ("short.h5 (2 of the 3 generations of long.h5)", "copy.h5 (equal to long.h5)",
                  "other.h5 (another run than long.h5: evolve.verify says where they part)"):  # fmt: skip
        assert words in left_out
    assert once([found]) == ([found], "")


def test_one_seed_has_no_interval_and_no_test():
    _, (best, other) = standings([experiment("a", [1.0]), experiment("b", [2.0])])
    assert (best.label, best.interval, best.p, best.against) == ("b", None, None, "best")
    assert (other.interval, other.p, other.against) == (None, None, "one seed")


def test_the_best_comes_first_and_tests_stay_within_an_environment():
    found = standings(
        [
            experiment("low", range(5)),
            experiment("other", range(1000, 1005), "Acrobot-v1"),
            experiment("high", range(10, 15)),
            experiment("middle", range(6, 11)),
        ]
    )[1]
    assert [each.label for each in found] == ["high", "middle", "low", "other"]
    assert [each.against for each in found] == ["best", "p = 0.016", "p = 0.016", ""]
    assert found[2].p == pytest.approx(2 * 2 / 252)  # of two tests


def test_of_few_seeds_it_is_said_that_they_are_few():
    found = standings([experiment("a", range(3)), experiment("b", range(10, 13))])[1]
    assert (found[1].p, found[1].against) == (pytest.approx(0.1), "p = 0.100, few seeds")


def test_equal_scores_are_told_apart_no_better_than_others():
    full, none = [500.0, 500.0, 500.0], [400.0, 400.0, 400.0]
    assert statistics.rank_test(np.array(full), np.array(none)) == pytest.approx(0.1)
    assert statistics.rank_test(np.array(full), np.array(full)) == 1
    found = standings([experiment("a", range(4)), experiment("b", range(4)), experiment("c", range(10, 14))])[1]
    assert [each.against for each in found] == ["best", "p = 0.057, few seeds", "p = 0.057, few seeds"]


def test_runs_that_were_judged_otherwise_are_another_experiment():
    config = Config()
    longer = config.model_copy(update={"evaluation_max_episode_steps": 900})
    found = figures.experiments([(run(0, 1.0), config), (run(0, 2.0), longer), (run(1, 3.0), config)])
    assert [(each.label, len(each.runs)) for each in found] == [
        ("CartPole-v1, hebbian-dag", 2), ("evaluation_max_episode_steps 900", 1)
    ]  # fmt: skip


def test_a_seed_without_a_score_is_not_tested():
    failed = replace(run(9, 0.0), held_out=None)
    failed = replace(failed, records=tuple(replace(r, champion_fitness=np.nan) for r in failed.records))
    worst = experiment("a", range(5))
    found = standings([replace(worst, runs=(*worst.runs, failed)), experiment("b", range(5))])[1]
    assert [each.against for each in found] == ["best", "a seed without a score"]
    assert found[1].interval is None


def test_the_interval_of_few_seeds_is_student_s():
    low, high = statistics.interval_of_seeds(np.array([1.0, 2.0, 3.0]))
    assert (low, high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert statistics.interval_of_seeds(np.array([4.0, 4.0])) == (4.0, 4.0)
    draw, covered = np.random.Generator(np.random.Philox(1)), 0
    for _ in range(400):
        low, high = statistics.interval_of_seeds(draw.normal(3.0, 1.0, 3))
        covered += low <= 3.0 <= high
    assert 368 <= covered <= 392


def test_what_the_rank_test_can_tell():
    assert not statistics.can_tell(3, 3)
    assert not statistics.can_tell(1, 30)
    for n, m in ((4, 4), (3, 5), (2, 8)):
        assert statistics.can_tell(n, m)
        assert statistics.rank_test(np.arange(n) + 0.0, np.arange(m) + 100.0) <= 0.05


def test_holm_s_correction():
    assert statistics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]
    assert statistics.holm([]) == []
