import json

import pytest


@pytest.mark.parametrize("engine", ["gymnasium", "envpool"])
def test_the_bench_compares_the_same_work(command, engine):
    if engine == "envpool":
        pytest.importorskip("envpool")
    words = ("-e", "CartPole-v1", "--engine", engine, "-p", 6, "-r", 2, "-d", 3)
    done = command("bench", *words, "--workers", 1, 2, "--pairs", 1, "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert {row["slots"] for row in figures["inference"]} == {1, 16, 64, 256}
    assert all(row["numpy"] > 0 for row in figures["inference"])
    (one,), (two,) = figures["rollouts"]["1"], figures["rollouts"]["2"]
    assert one["steps"] == two["steps"] > 12
    assert (one["ranks"], two["ranks"]) == (2, 3)
    assert len(two["idle"]) == 2
    assert min(one["ratio"], two["ratio"], one["bytes"], one["coordinator_cpu"]) > 0


def test_the_table_names_its_columns(command):
    done = command("bench", "-e", "CartPole-v1", "-p", 4, "-r", 1, "--pairs", 1, "--workers", 1)
    assert done.code == 0, done.err
    for word in ("nanoseconds per network step", "bare steps/s", "engine steps/s", "median ratio"):
        assert word in done.out
