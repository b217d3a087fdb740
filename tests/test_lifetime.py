"""The study of learning within a life: learners in its tasks get the returns that were computed for them."""

import functools
import json
import sys
from argparse import Namespace

import numpy as np
import pytest
from conftest import ROOT

import evolve
from evolve import store
from evolve.config import parse, read_file
from evolve.environments.exact import TASKS, Draws
from evolve.training import chosen_genome

sys.path.insert(0, str(ROOT / "benchmarks"))

import pages
from lifetime_parts import bounds, presets, report, runs, tables
from lifetime_parts.lives import Lives, by_trial, play
from lifetime_parts.measures import Measured, measure
from resumable import run_all


def live(task, choose, lives=2000, **kwargs):
    """Return [lives, T]: the rewards of a learner, which maps (step, observations [O, lives]) to outputs."""
    kind = TASKS[task]
    made = kind(parse(kind.options_class, kwargs, "env.kwargs"))
    seeds = np.arange(lives)
    states = made.begin(Draws(seeds, np.zeros_like(seeds)))
    rewards = []
    for step in range(made.default_limit):
        outputs = choose(step, made.observe(states)).astype(np.float32)
        states, reward, _ = made.step(states, outputs, Draws(seeds, np.full_like(seeds, step)))
        rewards.append(reward)
    return np.array(rewards).T


class Switcher:
    """A learner that stays with the arm that was better; `knows` makes it use the times at which arms may switch."""

    def __init__(self, lives, knows):
        self.better = np.ones(lives)
        self.since = np.full(lives, 99)  # trials since the last switch that was seen
        self.knows = knows

    def __call__(self, step, seen):
        trial = step // 2
        if step % 2:  # the observation says whether the arm was the better one
            better = np.where(seen[3] > 0, seen[2], -seen[2])
            switched = (better != self.better) & (trial > 0)
            self.since = np.where(switched, 0, self.since + 1)
            self.better = better
            return np.zeros((len(better), 1))
        # The last trial of a window: an arm that has not switched in this window switches now.
        last = self.knows and trial in (12, 22, 32)
        due = last & (self.since >= 4)
        return np.where(due, -self.better, self.better)[:, None]


@pytest.mark.parametrize(("knows", "name"), [(False, "win-stay, lose-shift"), (True, "optimum")])
def test_reversal_gives_the_computed_returns(knows, name):
    rewards = live("Reversal-v0", Switcher(2000, knows))
    error = rewards.sum(axis=1).std() / np.sqrt(2000)
    assert rewards.sum(axis=1).mean() == pytest.approx(bounds.reversal()[name].mean, abs=4 * error)
    if knows:
        curve = rewards[:, ::2].mean(axis=0) * 40
        assert np.abs(curve - bounds.reversal_by_trial()).max() < 0.06
        assert bounds.reversal_by_trial().mean() == pytest.approx(bounds.reversal()["optimum"].mean)


def test_cues_give_the_computed_returns():
    known = np.zeros((6, 2000))
    each = np.arange(2000)

    def choose(step, seen):
        cue = seen[:6].argmax(axis=0)
        if step % 2:
            known[cue, each] = seen[6] * seen[7]
        return known[cue, each][:, None]

    rewards = live("Cues-v0", choose)
    error = rewards.sum(axis=1).std() / np.sqrt(2000)
    assert rewards.sum(axis=1).mean() == pytest.approx(bounds.cues()["optimum"].mean, abs=4 * error)
    assert bounds.cues_by_presentation().mean() == bounds.cues()["optimum"].mean


def best_of_bandit(arms, pulls):
    """Return the mean return of the best learner, by trying every decision after everything that may have been seen."""

    @functools.cache
    def worth(left, counts):
        if not left:
            return 0.0
        found = []
        for n, (hits, misses) in enumerate(counts):
            p = (hits + 1) / (hits + misses + 2)
            hit, miss = ((*counts[:n], pair, *counts[n + 1 :]) for pair in ((hits + 1, misses), (hits, misses + 1)))
            found.append(p * (1 + worth(left - 1, hit)) + (1 - p) * worth(left - 1, miss))
        return max(found)

    return worth(pulls, ((0, 0),) * arms)


def test_the_index_learner_is_as_good_as_the_best_learner_of_a_small_bandit():
    best = best_of_bandit(3, 9)
    index = bounds.play_bandit(bounds.index_learner(9), arms=3, pulls=9, lives=100_000).sum(axis=1)
    error = index.std() / np.sqrt(len(index))
    assert best - 0.03 - 4 * error < index.mean() < best + 4 * error
    # The value of one pull is the mean minus the price; no pull is worth a price above the mean.
    assert bounds.stopping_values(0.25, 1)[1, 0, 0] == 0.25
    assert bounds.stopping_values(0.75, 1)[1, 0, 0] == 0


def test_a_learner_that_counts_the_pulls_left_gets_more():
    values = bounds.bandit(lives=4000)
    assert list(values) == ["static", "win-stay, lose-shift", "greedy", "index", "all chances known"]
    order = [value.mean for value in values.values()]
    assert order == sorted(order)
    assert order[3] > order[2] + 1


def test_the_bandit_gives_the_simulated_returns():
    arm = np.zeros(2000, int)

    def choose(step, seen):
        nonlocal arm
        if step % 2:
            arm = np.where(seen[7] > 0, arm, (arm + 1) % 5)
        return np.eye(5)[arm]

    returns = live("Bandit-v0", choose).sum(axis=1)
    simulated = bounds.win_stay_lose_shift(lives=5000).sum(axis=1)
    error = np.hypot(returns.std() / np.sqrt(2000), simulated.std() / np.sqrt(5000))
    assert returns.mean() == pytest.approx(simulated.mean(), abs=4 * error)


def small(task, name, **kwargs):
    networks = {"hebbian-dag": {"hidden": [2], "plasticity": 1.0}, "elman": {"hidden": [2]}}
    settings = {
        "env": {"id": task, "engine": "exact", "kwargs": kwargs}, "network": {"name": name} | networks[name],
        "strategy": {"name": "ga"}, "generations": 2, "population": 6, "episodes": 2,
    }  # fmt: skip
    return runs.Job(settings, 1, f"{task}/{name}", "judge", presets.TASKS["cues"])


@pytest.mark.parametrize("task", ["Cues-v0", "Reversal-v0", "TMaze-v0", "Bandit-v0"])
def test_lives_have_the_returns_of_the_run_file(task, tmp_path):
    run = small(task, "hebbian-dag").run(tmp_path)
    lives = play(run.experiment, chosen_genome(run.experiment, store.read(run.path))[0], run.held_out.seeds)
    assert lives.returns.tolist() == run.held_out.returns.tolist()
    curve = by_trial(task, {}, lives)
    trials = {"Cues-v0": 8, "Bandit-v0": 100}.get(task, 40)
    assert curve.shape == (100, trials)
    total = curve.sum(axis=1) if task == "Bandit-v0" else curve.mean(axis=1)
    assert total == pytest.approx(lives.returns)


def test_presentations_are_counted_by_cue():
    shown = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 0, 0, 1, 1]]  # two cues twice, each in two steps
    rewards = np.array([1, 0, 1, 0, 0, 0, 1, 0]) / 4
    curve = by_trial("Cues-v0", {"cues": 2, "presentations": 2}, Lives(rewards[None], shown[None]))
    assert curve.tolist() == [[1.0, 0.5]]


def test_runs_are_taken_up_and_measured(tmp_path):
    jobs = [small("Cues-v0", name) for name in ("hebbian-dag", "elman")]
    said = []
    assert len(list(run_all(jobs, tmp_path, said.append))) == 2
    assert said[0].startswith("2 of 2 runs")
    assert said[2].startswith("Cues-v0/elman seed 1: ")
    said.clear()
    list(run_all(jobs, tmp_path, said.append))
    assert [line[:11] for line in said] == ["0 of 2 runs"]
    plastic, elman = (measure(job, tmp_path) for job in jobs)
    assert plastic.mean == jobs[0].load(tmp_path).held_out.mean
    assert elman.off is None
    assert plastic.off is not None
    assert plastic.off == jobs[0].load(tmp_path).evaluate(1000, network={"plasticity": 0.0}).mean
    assert measure(jobs[0], tmp_path) == plastic  # from the file beside the run


def test_a_report_keeps_the_tables_of_all_tasks_if_a_task_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(report.bounds, "bandit", lambda **_: {"static": bounds.Value(50.0)})
    page, notebook = tmp_path / "page.md", tmp_path / "notebook.md"
    page.write_text("<!-- bounds -->\n<!-- end of bounds -->\n")
    before = "".join(f"<!-- {name} -->\na table\n<!-- end of {name} -->\n" for name in ("presets", "digests"))
    notebook.write_text(before)
    said = []
    report.report(tmp_path, [1], said.append, page, notebook, tmp_path)
    assert notebook.read_text() == before
    assert "| bandit | 50 |" in page.read_text()
    assert "not all tasks are complete, so the tables and figures of all together stay as they are" in said


def some(mean, reached=None, off=None):
    return [
        Measured(seed, "0" * 64, mean + 0.01 * seed, mean + 0.01 * seed, off, 10, 1.0, reached, [])
        for seed in (1, 2, 3, 4, 5)
    ]


def test_tables_show_the_scores():
    results = {"hebbian-dag": some(0.9, (2_000_000, 3.0), 0.5), "elman": some(0.5)}
    head, _, plastic, elman = tables.reached(presets.TASKS["cues"], results).splitlines()
    assert head.count("|") == plastic.count("|") == elman.count("|") == 9
    assert plastic == "| hebbian-dag | **0.930** | 0.920 to 0.940 | 0.910 | 3 of 5 | 2.0 M steps, 3 s | 0.500 |  |"
    assert elman.startswith("| elman | **0.530** | 0.520 to 0.540 | 0.510 | 0 of 5 | never |  | 0.00")


def test_other_tables_have_a_row_for_each_network():
    results = {"hebbian-dag": some(0.9), "elman": some(0.5)}
    assert tables.all_seeds(results).splitlines()[2] == "| hebbian-dag | 0.910 | 0.920 | 0.930 | 0.940 | 0.950 |"
    assert tables.digests({"cues": results}).splitlines()[3] == f"| cues | elman | {' '.join(['`00000000`'] * 5)} |"
    learnt = {"elman": {(2, 4): 0.75, (2, 8): 0.5, (6, 4): 0.25, (6, 8): 0.0}}
    assert tables.swept(learnt).splitlines()[2:] == ["| elman | 2 | 0.75 | 0.50 |", "| elman | 6 | 0.25 | 0.00 |"]


def test_the_best_strategy_is_chosen(tmp_path, monkeypatch):
    task = presets.TASKS["cues"]
    means = {"sep-cma-es": 0.700, "openai-es": 0.694, "ga": 0.692}

    class Known(runs.Job):
        def run(self, _out):
            return self

        def evaluate(self, _episodes):
            return Namespace(mean=means[self.settings["strategy"]["name"]])

    jobs = [Known(**vars(job)) for job in runs.tuning(task, "elman")]
    monkeypatch.setattr(runs, "tuning", lambda *_: jobs)
    assert runs.choose(task, ["elman"], tmp_path)["elman"]["strategy"]["name"] == "sep-cma-es"
    means["openai-es"] = 0.701
    assert runs.choose(task, ["elman"], tmp_path)["elman"]["strategy"]["name"] == "openai-es"


def test_settings_chosen_by_hand_are_not_tuned(tmp_path):
    bandit = presets.TASKS["bandit"]
    assert bandit.by_hand == ("hebbian-dag",)
    assert runs.tuning(bandit, "hebbian-dag") == []
    assert runs.choose(bandit, ["hebbian-dag"], tmp_path) == {}
    assert len(runs.tuning(bandit, "elman")) == len(runs.tuning(presets.TASKS["cues"], "elman"))


def test_a_table_takes_its_place(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- cues -->\nold\n<!-- end of cues -->\n<!-- cues seeds -->\n<!-- end of cues seeds -->\n")
    pages.fill(page, "cues", "new")
    assert page.read_text().startswith("a\n<!-- cues -->\nnew\n<!-- end of cues -->\n<!-- cues seeds -->\n<!--")
    with pytest.raises(ValueError, match="has no lines <!-- bandit -->"):
        pages.fill(page, "bandit", "new")


def test_every_network_is_tuned_by_as_many_runs():
    task = presets.TASKS["cues"]
    each = {name: runs.tuning(task, name) for name in presets.NETWORKS}
    assert len({len(jobs) for jobs in each.values()}) == 1
    for jobs in each.values():
        assert len({(job.directory, job.seed) for job in jobs}) == len(jobs)
        assert not {job.seed for job in jobs} & set(task.settings["seeds"])


def test_experiments_have_the_chosen_settings():
    known = presets.read_chosen()
    for name, task in presets.TASKS.items():
        for network in known[task.tuned_as or name]:
            ours = presets.chosen(name, network)
            evolve.networks.make(ours[0], observation_size=4, action_size=1)
            if network == "hebbian-dag":
                found = read_file(ROOT / "experiments" / f"{name}.toml")
                assert (found["network"], found["strategy"]) == ours


def test_the_order_of_the_chosen_settings_is_kept():
    assert presets.CHOSEN.read_text() == json.dumps(presets.read_chosen(), indent=1) + "\n"
