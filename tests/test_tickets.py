"""The study of lottery tickets: its runs are resumed, and its tables hold their results."""

import sys
from pathlib import Path

import pytest
from conftest import ROOT

import evolve
from evolve.errors import InputError

sys.path.insert(0, str(ROOT / "benchmarks"))

import tickets


def test_a_run_is_resumed_and_each_of_its_points_is_a_search(tmp_path, monkeypatch):
    monkeypatch.setattr(tickets, "GENERATIONS", 2)
    task = tickets.Task("CartPole-v1", {"name": "pgpe"}, 475.0, (0.0, 520.0))
    small = task.settings("magnitude", 1) | {"population": 4, "episodes": 1, "held_out_episodes": 3}
    monkeypatch.setattr(tickets.Task, "settings", lambda _, by, n: small | {
        "generations": 2 * n, "strategy": task.strategy | {"pruning_every": 2, "pruning_control": tickets.VARIANTS[by]},
    })  # fmt: skip
    found = tickets.curves(task, tmp_path, [1], rounds=2)
    assert {name: [p.connections for p in runs[0]] for name, runs in found.items()} == {
        "signal-to-noise": [386, 309], tickets.CONTROL: [386, 309], "magnitude": [386, 309],
    }  # fmt: skip
    directory = tmp_path / "CartPole-v1" / "magnitude"
    longer = tickets.searches(task, "magnitude", 1, directory, rounds=3)
    assert longer[:2] == found["magnitude"][0]
    run = evolve.load(directory / "seed-1.h5")
    assert (len(run.generations), run.held_out.mean, run.digest) == (6, longer[2].mean, longer[2].digest)
    write = Path.write_text

    def full_disk(path, *_, **__):
        write(path, "")
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full_disk)
        with pytest.raises(OSError, match="no space"):
            tickets.searches(task, "magnitude", 1, directory, rounds=4)
    assert tickets.searches(task, "magnitude", 1, directory, rounds=4)[:3] == longer
    (directory / "seed-1.json").unlink()
    with pytest.raises(InputError, match="at least 8"):
        tickets.searches(task, "magnitude", 1, directory, rounds=3)


def test_tables_have_medians_and_the_sparsest(tmp_path):
    runs = [[tickets.Point(100 // (n + 1), 500.0 - seed * n, "") for n in range(4)] for seed in (1, 10, 20)]
    found = dict.fromkeys(("signal-to-noise", tickets.CONTROL, "magnitude"), runs)
    assert tickets.table(found).splitlines()[3] == "| 25.0% | 25 |" + " **470** (440 to 497) |" * 3
    last = tickets.fewest(tickets.TASKS["cartpole"], found).splitlines()[2]
    assert last == "| signal-to-noise | **33** | 25, 33, 50 | `` `` `` |"
    hard = tickets.Task("CartPole-v1", {}, 499.5, (0.0, 520.0))
    never = tickets.fewest(hard, {"signal-to-noise": [runs[0], runs[2][1:]]})
    assert never.splitlines()[2] == "| signal-to-noise | **never** | 100, never | `` `` |"
    tickets.save(tickets.draw({tickets.TASKS["cartpole"]: found}), tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 5000
