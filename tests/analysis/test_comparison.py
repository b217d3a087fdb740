"""Comparison of groups of runs: each seed counts once, intervals suit few seeds, tests need enough seeds."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evolve import networks, store
from evolve.analysis import statistics
from evolve.analysis.comparison import best_groups, best_run, compare_groups, held_out_score
from evolve.analysis.html.tables import comparison_table, conclude, differing_settings, held_out_table
from evolve.analysis.run_groups import (
    RunGroup,
    by_machine,
    deduplicate_seeds,
    group_runs,
    mask_unit,
    seeds_in_words,
    uneven_lengths,
)
from evolve.config import Config, EarlyStopOptions, parse
from evolve.errors import InputError
from evolve.store import HeldOut, Record, StoredRun


def run(seed, score, generations=2, name="a", digest=b"0"):
    """A complete run whose champion has a score."""
    fields = dict.fromkeys(Record.__dataclass_fields__) | {"champion_fitness": score}
    fields |= {"returns": np.full((1, 1), score), "metrics": {}, "steps": 600}
    records = tuple(Record(**fields | {"digest": digest + b"%d" % g}) for g in range(generations))
    held_out = HeldOut(np.array([score]), np.zeros(1, np.int64), np.zeros(1, np.float32), np.ones(1, np.bool_))
    return StoredRun(Path(f"{name}.h5"), store.Header("", {}, seed, "x"), True, records, {}, held_out, False)


def group(label, scores, env="CartPole-v1"):
    config = Config().with_env(Config().env.model_copy(update={"id": env}))
    return RunGroup(label, config, tuple(run(seed, float(score)) for seed, score in enumerate(scores)))


def test_the_best_run_of_a_group_ignores_seeds_without_a_score():
    assert best_run(group("x", [np.nan, 1.0, 3.0, 2.0])).header.seed == 2
    runs = tuple(replace(run(seed, score), held_out=None) for seed, score in enumerate((1.0, 4.0, np.nan)))
    assert best_run(RunGroup("x", Config(), runs)).header.seed == 1


def test_a_seed_counts_once():
    long, short, copy = run(1, 5.0, 3, "long"), run(1, 4.0, 2, "short"), run(1, 5.0, 3, "copy")
    other, alone = run(1, 5.0, 3, "other", b"9"), run(2, 6.0, 1, "alone")
    (found,), (left_out, *_) = deduplicate_seeds([RunGroup("x", Config(), (short, alone, long, copy, other))])
    assert [each.path.stem for each in found.runs] == ["long", "alone"]
    for words in ("short.h5 (2 of the 3 generations of long.h5)", "copy.h5 (equal to long.h5)",
                  "other.h5 (another run than long.h5: evolve.verify finds the first difference)"):  # fmt: skip
        assert words in left_out
    assert deduplicate_seeds([found]) == ([found], [])


def test_a_run_is_left_out_only_if_another_has_a_held_out_mean():
    failed, never, fine = run(0, np.nan), replace(run(1, 2.0), held_out=None), run(2, 3.0)
    for runs, said in (((failed, never), "Not evaluated"), ((failed, never, fine), "Left out, since not evaluated")):
        (note,) = compare_groups([RunGroup("x", Config(), runs)]).notes
        assert f"failed: a.h5. {said} on held-out episodes: a.h5." in note


def test_an_incomplete_run_is_to_be_completed_and_not_to_be_evaluated():
    begun = replace(run(0, 1.0, name="begun"), held_out=None, complete=False)
    (note,) = compare_groups([RunGroup("x", Config(), (begun, run(1, 2.0), run(2, 3.0)))]).notes
    assert (
        note
        == "Left out, since not complete: begun.h5 (2 generations). To complete: python -m evolve.run --resume FILE"
    )


def with_metric(label, values):
    """A group of runs, a metric of which has these values in a single held-out episode."""
    runs = []
    for seed, value in enumerate(values):
        one = run(seed, 100.0 - value)
        runs.append(replace(one, held_out=replace(one.held_out, metrics={"eaten": np.array([value])})))
    return RunGroup(label, Config(), tuple(runs))


def test_experiments_are_compared_by_a_metric():
    groups = [with_metric("few", [1, 2, 3, 4, 4]), with_metric("many", [4, 5, 6, 7, 8])]
    assert [row.label for row in compare_groups(groups).rows] == ["few", "many"]  # by returns
    found = compare_groups(groups, "eaten")
    assert found.score == "held-out champion's mean eaten"
    many, few = found.rows
    assert (many.label, many.mean, few.label, few.mean) == ("many", 6.0, "few", 2.8)
    assert few.interval[0] >= 1.0  # cut to the range of the metric
    assert few.effect == pytest.approx((0 + 0.5 + 0.5) / 25)  # two pairs of 25 are equal
    with pytest.raises(InputError, match=r"^metric: expected a metric that all runs .*\(eaten\), got 'eatem'\."):
        compare_groups(groups, "eatem")
    with pytest.raises(InputError, match=r"\(they have none\), got 'eaten'\."):
        compare_groups([*groups, group("other", [1.0])], "eaten")


def limited(seed, name, generations, **more):
    """Return a run of a sweep over a limit, with its configuration."""
    config = Config(generations=generations, **more)
    return replace(run(seed, 5.0, generations), path=Path(name) / f"seed-{seed}.h5"), config


def test_a_sweep_over_a_limit_has_a_group_for_each_value():
    sweep = [limited(seed, f"generations={g}", g) for g in (3, 30) for seed in (1, 2)]
    short, long = group_runs(dict(sweep))
    assert (short.label, long.label) == ("generations 3", "generations 30")
    assert [(len(each.runs), each.config.generations) for each in (short, long)] == [(2, 3), (2, 30)]
    assert any("different budgets" in note for note in compare_groups([short, long]).notes)
    stops = [limited(1, f"steps={n}", 3, early_stop={"steps": n}) for n in (10, 20)]
    assert [each.label for each in group_runs(dict(stops))] == [
        "early_stop.steps 10",
        "early_stop.steps 20",
    ]
    later = [limited(1, "a", 3), limited(2, "a", 30)]  # a seed was continued, or more seeds had more generations
    assert len(group_runs(dict(later))) == 1


def test_equal_runs_of_two_machines_can_be_told_apart():
    def made(seed, **manifest):
        found = run(seed, 5.0, 3)
        return replace(found, header=replace(found.header, manifest={"ranks": 1, "threads": 2} | manifest))

    there = [made(seed, cpu="fast", host="a") for seed in (1, 2)]
    here = [made(seed, cpu="slow", host="b") for seed in (1, 2)]
    both = RunGroup("x", Config(), (*there, *here))
    assert [(each.label, each.runs) for each in by_machine([both])] == [
        ("x, fast", tuple(there)), ("x, slow", tuple(here))
    ]  # fmt: skip
    alike = RunGroup("x", Config(), (made(1, cpu="fast", host="a"), made(1, cpu="fast", host="b", ranks=3)))
    assert [each.label for each in by_machine([alike])] == ["x, a, ranks 1", "x, b, ranks 3"]
    assert by_machine([RunGroup("x", Config(), (there[0], here[1]))])[0].label == "x", "each seed ran once"


def test_different_budgets_are_said():
    small, large = (Config(generations=g, population=8, episodes=2) for g in (4, 12))
    groups = [RunGroup(name, config, (run(1, 5.0),)) for name, config in (("a", small), ("b", large))]
    said = "CartPole-v1: the experiments have different budgets, of 64 to 192 episodes in a run."
    assert said in compare_groups(groups).notes
    assert said not in compare_groups([groups[0], replace(groups[0], label="c")]).notes
    # A limit of steps is the budget of runs that have reached it.
    for limit, is_reached in ((1, True), (10**9, False)):
        stop = {"early_stop": EarlyStopOptions(steps=limit)}
        capped = [
            replace(each, config=each.config.model_copy(update=stop), runs=(run(1, 5.0, each.config.generations),))
            for each in groups
        ]
        assert (said in compare_groups(capped).notes) is not is_reached


def test_runs_that_are_not_complete_are_named_even_if_no_run_was_evaluated():
    whole, begun = (replace(run(1, 5.0, name=name), held_out=None) for name in ("whole", "begun"))
    begun = replace(begun, complete=False)
    notes = compare_groups([RunGroup("a", Config(), (whole,)), RunGroup("b", Config(), (begun,))]).notes
    assert any("training fitness is compared" in note for note in notes)
    (named,) = [note for note in notes if note.startswith("Not complete: ")]
    assert str(begun.path) in named
    assert str(whole.path) not in named


def test_seeds_of_several_lengths_are_said():
    groups = [RunGroup("x", Config(), (run(1, 5.0, 3), run(2, 5.0, 30))), group("y", [1.0, 2.0])]
    assert uneven_lengths(groups).startswith("x: seeds have 3 to 30 generations")
    assert uneven_lengths(groups[:1]).startswith("seeds have 3 to 30 generations")
    assert uneven_lengths(groups[1:]) == ""
    said = "Means mix champions that were trained for different lengths: x (3 to 30 generations)."
    assert said in compare_groups(groups).notes
    bare = RunGroup("x", Config(), tuple(replace(each, held_out=None) for each in groups[0].runs))
    assert said in compare_groups([bare]).notes
    assert said not in compare_groups([bare, groups[1]]).notes, "x has no mean, because y was evaluated"
    longest = replace(run(3, 5.0, 30), held_out=None)  # not a part of the mean
    unmixed = RunGroup("x", Config(), (run(1, 5.0, 3), run(2, 5.0, 3), longest))
    assert not any("different lengths" in note for note in compare_groups([unmixed]).notes)


@pytest.mark.parametrize(("env", "differs"), [("CartPole-v1", True), ("BipedalWalker-v3", False)])
def test_engines_that_play_other_episodes_are_noted(env, differs):
    """Gymnasium plays the same episodes of tasks with rigid bodies."""
    exact = group("exact", range(5), env)
    gym = replace(exact, label="gym", config=exact.config.with_env_changes({"engine": "gymnasium"}))
    exact = replace(exact, config=exact.config.with_env_changes({"engine": "exact"}))
    assert any("differ in env.engine" in note for note in compare_groups([exact, gym]).notes) is differs


def test_a_title_counts_many_seeds():
    runs = [run(seed, 1.0) for seed in (3, 1, 3)]
    assert [seeds_in_words(runs[:1]), seeds_in_words(runs)] == ["seed 3", "seeds 1, 3"]
    assert seeds_in_words([run(seed, 1.0) for seed in range(9)]) == "9 seeds"


def test_the_conclusion_of_a_page_counts_the_seeds_of_its_mean():
    runs = run(1, 2.0), run(2, 4.0), replace(run(3, 9.0), held_out=None)
    (line,) = conclude([RunGroup("x", Config(), runs)], [], {"x": "31 of 32 connections"})
    assert "a mean return of 3.00 on held-out episodes (over 2 of 3 seeds)" in line


@pytest.mark.parametrize(("seeds", "said"), [(1, "seed 0"), (9, "over 9 seeds, 95 % interval")])
def test_the_conclusion_of_a_page_names_its_only_experiment(seeds, said):
    (line,) = conclude([group("x", range(seeds))], [], {"x": "31 of 32 connections"})
    assert line.startswith("CartPole-v1: hebbian-dag evolved by prune reaches a mean return of ")
    assert f"on held-out episodes ({said}" in line
    champion = "with" if seeds == 1 else "the best champion with"
    assert line.endswith(f"), {champion} 31 of 32 connections left.")


def test_the_best_fitness_of_a_page_ignores_generations_that_failed():
    failed, good = (replace(run(seed, score), held_out=None) for seed, score in ((1, np.nan), (2, 7.0)))
    recovered = replace(failed, records=failed.records + good.records + failed.records)
    (line,) = conclude([RunGroup("x", Config(), (failed, recovered))], [], {"x": "31 of 32 connections"})
    assert "has a best training fitness of 7.00 after" in line


def test_equal_groups_share_the_first_place():
    first, second, third = compare_groups([group("a", [5.0] * 5), group("c", range(5)), group("b", [5.0] * 5)]).rows
    assert (first.against_reference, second.against_reference) == ("equal", "equal")
    assert third.p is not None
    assert [row.role for row in (first, second, third)] == ["equal", "equal", ""]
    assert [row.best for row in (first, second, third)] == [True, True, False]


def test_groups_are_tested_against_a_control():
    """The middle group is the control: the better and the worse group are tested, and the scores choose nothing."""
    named = [("low", range(5)), ("control", range(6, 11)), ("high", range(20, 25))]
    groups = [group(f"{env}, {name}", scores, env) for env in ("Acrobot-v1", "CartPole-v1") for name, scores in named]
    found = compare_groups(groups, control="control")
    assert found.reference == "the control"
    for env in range(2):
        high, control, low = found.rows[3 * env : 3 * env + 3]
        texts = [row.against_reference for row in (high, control, low)]
        assert texts == ["p = 0.016, A = 1.00", "control", "p = 0.016, A = 0.00"]
        assert [row.best for row in (high, control, low)] == [True, False, False]
    few = compare_groups([group("a", [1.0]), group("b", [2.0])], control="a")
    assert [row.against_reference for row in few.rows] == ["", "control"]
    assert "too few seeds for a significant difference from the control" in few.notes[0]
    with pytest.raises(InputError, match=r"control: expected the name of one experiment of Acrobot-v1 \(low; control;"):
        compare_groups(groups, control="contrl")
    with pytest.raises(InputError, match="one experiment of CartPole-v1"):  # without an experiment of this name
        compare_groups([*groups[:3], *groups[3:4]], control="control")


def test_one_seed_has_no_interval_and_no_test():
    found = compare_groups([group("a", [1.0]), group("b", [2.0])])
    best, other = found.rows
    assert (best.label, best.interval, best.p, best.against_reference) == ("b", None, None, "best")
    assert (other.interval, other.p, other.against_reference) == (None, None, "")
    (note,) = found.notes
    assert "4 seeds" in note


def test_the_best_comes_first_and_tests_stay_within_an_environment():
    found = compare_groups(
        [
            group("low", range(5)),
            group("other", range(1000, 1005), "Acrobot-v1"),
            group("high", range(10, 15)),
            group("middle", range(6, 11)),
        ]
    ).rows
    assert [each.label for each in found] == ["high", "middle", "low", "other"]
    assert [each.against_reference for each in found] == ["best", "p = 0.016, A = 0.02", "p = 0.016, A = 0.00", ""]
    assert found[2].p == pytest.approx(2 * 2 / 252)  # of two tests


def test_the_environment_of_a_file_has_no_control_characters():
    one = group("a", range(5), "\x1b[31mPole")
    heavy = replace(one, label="b", config=one.config.with_env_changes({"kwargs": {"gravity": 20.0}}))
    found = compare_groups([one, heavy])
    assert "env.kwargs" in found.notes[0]
    assert "\x1b" not in "".join([*found.notes, *(row.env for row in found.rows)])


def test_a_network_may_refuse_the_sizes_with_which_its_unit_is_found(monkeypatch):
    monkeypatch.setattr(networks, "make", lambda *_: SimpleNamespace(blocks=()))
    assert mask_unit(Config()) == "connections"


def test_experiments_of_one_environment_may_be_different_tasks():
    plain, heavy = group("plain", range(5)), group("heavy", range(5))
    heavy = replace(heavy, config=heavy.config.with_env_changes({"kwargs": {"gravity": 20.0}}))
    (note,) = compare_groups([plain, heavy]).notes
    assert "env.kwargs" in note
    other = replace(plain, config=plain.config.model_copy(update={"episodes": 7}))
    (note,) = compare_groups([plain, other]).notes
    assert "budgets" in note
    randomized = plain.config.env.changed({"randomize": {"gravity": {"uniform": [9.0, 11.0]}}})
    trained = plain.config.model_copy(update={"env": randomized, "evaluation_randomize": {}})  # evaluated in the same
    assert compare_groups([plain, replace(plain, config=trained)]).notes == ()
    shorter = plain.config.model_copy(update={"evaluation_max_episode_steps": 5})
    (note,) = compare_groups([plain, replace(plain, config=shorter)]).notes
    assert "differ in evaluation_max_episode_steps, so" in note


def test_fitness_of_several_kinds_is_not_compared_without_a_word():
    plain = group("plain", range(5))
    costly = replace(plain, config=plain.config.model_copy(update={"fitness": "min", "connection_cost": 2.0}))
    assert compare_groups([plain, costly]).notes == ()  # held-out means are returns
    trained = [replace(each, runs=tuple(replace(r, held_out=None) for r in each.runs)) for each in (plain, costly)]
    said = "differ in fitness and connection_cost, so their fitness has different meanings"
    assert any(said in note for note in compare_groups(trained).notes)


def test_a_test_that_cannot_be_significant_is_not_made():
    found = compare_groups([group(name, range(n, n + 3)) for n, name in enumerate("abcdef")])
    assert [(each.p, each.against_reference) for each in found.rows] == [(None, "best")] + [(None, "")] * 5
    (note,) = found.notes  # said once
    assert "5 seeds" in note


def test_an_interval_ends_at_a_return_that_several_seeds_reach():
    full = group("a", [500.0, 400.0, 500.0])
    ((row,), (alone,)) = (compare_groups([one]).rows for one in (full, group("b", [500.0, 400.0])))
    low, high = statistics.interval(np.array([500.0, 400.0, 500.0]))
    assert high > 500
    assert row.interval == (low, 500.0)
    assert alone.interval is None
    wider = replace(full.runs[2].held_out, returns=np.array([300.0, 700.0]))
    seen = replace(full, runs=(*full.runs[:2], replace(full.runs[2], held_out=wider)))
    assert compare_groups([seen]).rows[0].interval[1] == pytest.approx(high)


def test_an_interval_does_not_depend_on_other_groups():
    low, high = group("low", [1.0, 2.0, 5.0]), group("high", [7.0, 8.0, 9.0])
    ours = statistics.interval(np.array([1.0, 2.0, 5.0]))
    for groups in ([low], [low, high]):
        assert compare_groups(groups).rows[-1].interval == ours
    assert held_out_score(low)[1] == ours


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((1000, 1000), ""),
        ((1000, 20_000), "different budgets, of 1,000 to 20,000 steps"),
        ((None, 20_000), "of no limit to 20,000 steps"),
    ],
)
def test_different_budgets_of_steps_are_noted(steps, said):
    groups = []
    for name, limit in zip("ab", steps, strict=True):
        config = Config().model_copy(update={"early_stop": EarlyStopOptions(steps=limit)})
        groups.append(replace(group(name, range(5)), config=config))
    notes = compare_groups(groups).notes
    assert [said in note for note in notes] == ([True] if said else [])


def test_seeds_that_used_up_one_budget_of_steps_were_trained_for_equal_lengths():
    runs = tuple(
        replace(each, records=tuple(replace(record, steps=100 // n) for record in each.records))
        for n, each in ((n, run(n, 1.0, generations=n)) for n in (2, 4))
    )
    config = Config().model_copy(update={"early_stop": EarlyStopOptions(steps=90)})
    for limit, mixed in ((config, False), (Config(), True)):
        notes = compare_groups([RunGroup("a", limit, runs)]).notes
        assert any("different lengths" in note for note in notes) is mixed


def test_runs_of_different_code_are_noted():
    runs = [
        replace(each, header=replace(each.header, manifest={"modules": {"task": digest, "same": "0"}}))
        for each, digest in zip(group("a", range(2)).runs, "xy", strict=True)
    ]
    apart = [replace(group(name, [0.0]), runs=(each,)) for name, each in zip("ab", runs, strict=True)]
    for groups in ([RunGroup("a", Config(), tuple(runs))], apart):
        assert "CartPole-v1: the runs were made with different versions of task." in compare_groups(groups).notes


def test_a_champion_that_was_evaluated_early_is_noted():
    early = replace(run(1, 2.0, name="early"), complete=False)
    (note,) = compare_groups([RunGroup("a", Config(), (run(0, 1.0), early))]).notes
    assert note.startswith("Evaluated before the run was complete: early.h5 (2 generations). To complete: ")


def test_the_interval_of_a_run_is_the_interval_of_its_held_out_returns():
    held_out = replace(run(1, 500.0).held_out, returns=np.array([500.0, 500.0, 460.0]))
    alone = RunGroup("x", Config(), (replace(run(1, 500.0), held_out=held_out),))
    assert held_out_score(alone) == (pytest.approx(486.7, abs=0.1), (pytest.approx(429.3, abs=0.1), 500.0), 1)
    assert held_out_score(RunGroup("x", Config(), (replace(run(1, 500.0), held_out=None),))) is None


def test_a_note_says_if_training_fitness_takes_the_place_of_held_out_returns():
    both = group("a", [1.0, 2.0, 3.0])
    part = replace(both, runs=(*both.runs[:2], replace(both.runs[2], held_out=None)))
    found = compare_groups([part, group("b", [5.0, 6.0, 7.0])])
    assert "held-out" in found.score
    assert [(row.label, len(row.scores), row.missing) for row in found.rows] == [("b", 3, 0), ("a", 2, 1)]
    assert "a.h5" in found.notes[0]
    none = compare_groups([replace(both, runs=tuple(replace(run, held_out=None) for run in both.runs))])
    assert "in training" in none.score
    assert "held-out" in none.notes[0]


def test_the_conclusion_of_a_page_says_if_champions_have_no_held_out_return():
    groups = [RunGroup(label, Config(), (replace(run(0, np.nan), records=run(0, 2.0).records),)) for label in "ab"]
    (line,) = conclude(groups, [], {})
    assert line == (
        "CartPole-v1: of 2 experiments a and b are equally good, with a mean of 2.00 in training, "
        "as no champion has a held-out return."
    )


def test_failed_episodes_are_counted_in_a_note():
    whole, part = run(0, 1.0, name="whole"), run(1, 2.0, name="part")
    returns = np.array([2.0, np.nan, 4.0, np.nan])
    part = replace(part, held_out=replace(part.held_out, returns=returns))
    found = compare_groups([RunGroup("x", Config(), (whole, part))])
    assert found.rows[0].scores.tolist() == [1.0, 3.0]
    assert found.notes == ("Held-out episodes that failed are left out of the means: part.h5 (2 of 4).",)


def test_equal_scores_are_no_easier_to_tell_apart_than_others():
    full, none = [500.0, 500.0, 500.0], [400.0, 400.0, 400.0]
    assert statistics.rank_test(np.array(full), np.array(none)) == pytest.approx(0.1)
    assert statistics.rank_test(np.array(full), np.array(full)) == 1
    found = compare_groups([group("a", range(5)), group("b", range(5)), group("c", range(10, 15))]).rows
    assert [each.against_reference for each in found] == ["best", "p = 0.016, A = 0.00", "p = 0.016, A = 0.00"]


def test_runs_whose_held_out_evaluation_differs_are_another_group():
    config = Config()
    longer = config.model_copy(update={"evaluation_max_episode_steps": 900})
    found = group_runs({run(0, 1.0): config, run(0, 2.0): longer, run(1, 3.0): config})
    assert [(each.label, len(each.runs)) for each in found] == [
        ("CartPole-v1, hebbian-dag", 2), ("evaluation_max_episode_steps 900", 1)
    ]  # fmt: skip
    assert [row[1:] for row in differing_settings(found).rows] == [("none",), ("900",)]


@pytest.mark.parametrize(("file", "said"), [(None, "a given genome"), ("runs/seed-7.h5", "runs/seed-7.h5")])
def test_starts_of_one_name_are_told_apart_by_their_digests(file, said):
    starts = [{"file": file, "digest": digest * 64} for digest in "ab"] + [{"file": "c.champion", "digest": "c" * 64}]
    configs = [parse(Config, {"start_from": {k: v for k, v in start.items() if v}}) for start in starts]
    labels = [each.label for each in group_runs({run(n, 1.0): config for n, config in enumerate(configs)})]
    assert labels == [f"start_from {name}" for name in (f"{said} aaaaaaaa", f"{said} bbbbbbbb", "c.champion")]


@pytest.mark.parametrize("directory", ["runs/walker", "runs/noise=0.5"])
def test_seeds_that_began_with_runs_of_one_directory_are_one_group(directory):
    def sizes(file):
        starts = [{"start_from": {"file": file, "digest": digest * 64}} for digest in "ab"]
        return [len(each.runs) for each in group_runs({run(n, 1.0): parse(Config, s) for n, s in enumerate(starts)})]

    assert sizes(directory) == [2]
    assert sizes("runs/seed-7.h5") == [1, 1]  # one file, replaced between the two runs


def test_the_names_of_strategies_stand_for_the_options_that_one_of_them_has():
    strategies = ({"name": "openai-es", "sigma": 0.1}, {"name": "openai-es", "sigma": 0.2}, {"name": "random"})
    for order in (strategies, strategies[::-1]):
        configs = [parse(Config, {"strategy": table}) for table in order]
        found = group_runs({run(0, float(n)): config for n, config in enumerate(configs)})
        table = differing_settings(found)
        rows = {name: values for name, *values in zip(*([c for c, _ in table.columns], *table.rows), strict=True)}
        assert list(rows) == ["experiment", "strategy.name", "strategy.sigma"]
        assert rows["strategy.sigma"] == [{"openai-es": str(t.get("sigma"))}.get(t["name"], "none") for t in order]


def test_settings_of_one_name_are_told_apart():
    def labels(*tables):
        return [each.label for each in group_runs({run(0, 1.0): parse(Config, table) for table in tables})]

    noisy = {"id": "module:Noisy", "kwargs": {"sigma": 0.1}}
    assert labels({"env": noisy, "strategy": {"name": "openai-es", "sigma": 0.2}},
                  {"env": noisy | {"kwargs": {"sigma": 0.3}}, "strategy": {"name": "openai-es", "sigma": 0.4}}) == [
        "kwargs.sigma 0.1, strategy.sigma 0.2", "kwargs.sigma 0.3, strategy.sigma 0.4"
    ]  # fmt: skip
    randomized = [{"env": {"randomize": {name: {"uniform": [0.5, 1.0]}}}} for name in ("length", "gravity")]
    assert labels(*randomized) == ["length.uniform [0.5, 1.0]", "gravity.uniform [0.5, 1.0]"]
    evaluated = [{"evaluation_randomize": {name: {"uniform": [0.5, 1.0]}}} for name in ("length", "gravity")]
    assert labels(*evaluated) == ["length.uniform [0.5, 1.0]", "gravity.uniform [0.5, 1.0]"]


def test_groups_that_differ_in_many_settings_are_named_by_their_directories():
    def of(folder, **settings):
        strategy = {"name": "openai-es", **settings}
        return replace(run(0, 1.0), path=Path(folder) / "seed-0.h5"), Config(strategy=strategy)

    few = of("a", sigma=0.2, beta1=0.8), of("b")
    assert [each.label for each in group_runs(dict(few))] == ["beta1 0.8, sigma 0.2", "beta1 0.9, sigma 0.5"]
    many = of("large steps", sigma=2.0, beta1=0.8, learning_rate=0.1, averaging=0.5), of("defaults")
    assert [each.label for each in group_runs(dict(many))] == ["large steps", "defaults"]
    together = [(replace(one, path=Path("x.h5")), config) for one, config in many]  # one directory names nothing
    assert all("sigma" in each.label for each in group_runs(dict(together)))


def test_a_seed_without_a_score_is_not_tested():
    failed = replace(run(9, 0.0), held_out=None)
    failed = replace(failed, records=tuple(replace(r, champion_fitness=np.nan) for r in failed.records))
    worst = group("a", range(5))
    found = compare_groups([replace(worst, runs=(*worst.runs, failed)), group("b", range(5))])
    assert {each.label: (each.missing, each.p) for each in found.rows} == {"a": (1, None), "b": (0, None)}
    assert found.notes[1:] == (
        "CartPole-v1: a group is tested against the best only if each seed of both has a score.",
    )
    few = compare_groups([replace(worst, runs=(*worst.runs, failed)), group("b", range(7, 12)), group("c", [1.0])])
    assert re.search(r"each seed of both has a score; too few seeds .* 5 seeds in each group ", few.notes[1])


def test_with_failed_held_out_episodes_no_group_is_the_best():
    """The episodes that fail may be the hard ones, so a mean over the others proves nothing."""
    whole, failing = group("whole", [1.0, 2.0, 3.0, 4.0]), group("failing", [11.0, 12.0, 13.0, 14.0])
    assert [row.best for row in compare_groups([whole, failing]).rows] == [True, False]
    first, *others = failing.runs
    returns = HeldOut(np.array([11.0, np.nan]), *(np.zeros(2, kind) for kind in (np.int64, np.float32, np.bool_)))
    failing = replace(failing, runs=(replace(first, held_out=returns), *others))
    found = compare_groups([whole, failing])
    assert [(row.label, row.best, row.p) for row in found.rows] == [("failing", False, None), ("whole", False, None)]
    said = "CartPole-v1: held-out episodes failed, so the experiments are not tested, and none counts as the best."
    assert said in found.notes
    assert {row.label: row.failed for row in found.rows} == {whole.label: 0, failing.label: 1}


def test_groups_of_different_tasks_are_not_tested():
    ours, theirs = group("ours", range(5)), group("theirs", range(10, 15))
    theirs = replace(theirs, config=theirs.config.with_env_changes({"kwargs": {"length": 2.0}, "engine": "exact"}))
    found = compare_groups([ours, theirs])
    assert [(row.best, row.p) for row in found.rows] == [(False, None)] * 2
    assert any("of different tasks" in note for note in found.notes)


def test_groups_that_cannot_be_tested_do_not_count_in_the_correction():
    few = group("few", [1.0, 2.0, 3.0, 4.0])
    best, other = replace(few, label="best", runs=group("best", [11.0, 12.0, 13.0, 14.0]).runs), group("other", [1.0])
    unknown = replace(other, runs=tuple(replace(each, held_out=None) for each in other.runs))
    ps = {row.label: row.p for row in compare_groups([best, few, unknown]).rows}
    assert ps["few"] == pytest.approx(2 / 70)
    assert ps["other"] is None


def test_a_group_without_scores_is_not_the_best():
    failed = replace(run(0, np.nan), held_out=None)
    groups = [RunGroup(label, Config(), (failed,)) for label in ("a", "b")]
    found = compare_groups(groups)
    assert [(row.best, row.against_reference) for row in found.rows] == [(False, "")] * 2
    assert comparison_table(found, groups).columns[-1][0] == "95 % interval"
    assert conclude(groups, [], {}) == ["CartPole-v1: none of 2 experiments has a score."]


def test_the_best_groups_are_those_of_all_environments():
    groups = [group("a1", [1]), group("b1", [9], "B-v0"), group("a3", [3]), group("a2", [2]), group("a0", [np.nan])]
    for most, best in ((1, ["a3"]), (2, ["b1", "a3"]), (3, ["b1", "a3", "a2"]), (9, ["a1", "b1", "a3", "a2", "a0"])):
        assert [each.label for each in best_groups(groups, most)] == best


def test_tables_have_a_column_for_each_metric():
    """A failed episode does not count. Experiments may have different metrics."""

    def measured(seed, **metrics):
        kept = run(seed, 0.0).held_out
        returns, seeds = np.array([1.0, 2.0, np.nan]), np.zeros(3, np.int64)
        metrics = {name: np.array(values) for name, values in metrics.items()}
        return replace(run(seed, 0.0), held_out=replace(kept, returns=returns, seeds=seeds, metrics=metrics))

    early = measured(1, eaten=[1, 2, 9], found=[True, True, False]), measured(2, eaten=[3, 4, 9])
    late = (measured(1, eaten_late=[0.5, 0.5, 9.0]),)
    groups = [RunGroup("early", Config(), early), RunGroup("late", Config(), late)]
    table = comparison_table(compare_groups(groups), groups)
    assert [name for name, _ in table.columns[-3:]] == ["mean eaten", "mean eaten_late", "mean found"]
    assert {row[0]: row[-3:] for row in table.rows} == {
        "early": ("2.50", "none", "1.00"), "late": ("none", "0.500", "none")
    }  # fmt: skip
    table = held_out_table({each: str(n) for n, each in enumerate(early)})
    assert [name for name, _ in table.columns[-3:]] == ["failed", "mean eaten", "mean found"]
    assert [row[-3:] for row in table.rows] == [("1", "1.50", "1.00"), ("1", "3.50", "none")]


@pytest.mark.parametrize(
    ("seeds", "said"),
    [(3, "there are too few seeds for a significant difference."), (5, "the difference was not tested.")],
)
def test_the_conclusion_of_a_page_says_why_no_test_was_made(seeds, said, absent):
    absent("scipy")
    groups = [group("a", range(seeds)), group("b", range(10, 10 + seeds))]
    assert conclude(groups, [], {})[0].endswith(said)
