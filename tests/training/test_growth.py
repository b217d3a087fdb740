"""A population that grows until enough steps were made in a generation."""

import numpy as np
import pytest
from conftest import run_on

from evolve import store
from evolve.strategies import STRATEGIES

WORDS = ("-e", "CartPole-v1", "--engine", "exact", "-p", 16, "-r", 2, "-d", 3, "-s", 4, "--set", "least_population=4",
         "--set", "num_interactions=150", "--set", "held_out_episodes=3")  # fmt: skip
GROWING = [name for name in STRATEGIES if STRATEGIES.kind({"name": name}).grows]
NAMES = f"{', '.join(GROWING[:-1])} or {GROWING[-1]}"


@pytest.fixture(scope="module")
def on_ranks(tmp_path_factory):
    """Return the folder of runs on three ranks."""
    where = tmp_path_factory.mktemp("on_ranks")
    run_on(3, *WORDS, "-g", 5, "--set", f"sweep.strategy.name={GROWING}", "-o", "ranks", where=where)
    return where / "ranks"


@pytest.mark.parametrize("name", GROWING)
def test_candidates_play_until_there_are_enough_steps_on_any_ranks_and_resumed(on_ranks, call, tmp_path, name):
    words = (*WORDS, "--strategy", name, "--set", "output.genomes=all")
    for generations, resume in ((3, ()), (5, ("--resume",))):
        call("run", *words, "-g", generations, "-o", "parts", *resume).ok()
    ranks, parts = (store.read(store.path_of(at, 4)) for at in (on_ranks / f"name={name}", tmp_path / "parts"))
    assert [r.digest for r in ranks.records] == [r.digest for r in parts.records]
    sizes = set()
    for record in parts.records:
        played = np.flatnonzero(record.lengths.any(axis=1))
        n = len(played)
        sizes.add(n)
        steps = record.lengths.sum(axis=1)
        assert played.tolist() == list(range(n))
        assert n % 4 == 0
        assert steps[: n - 4].sum() < 150
        assert n == 16 or steps.sum() >= 150
        assert np.isnan(record.fitness[n:]).all()
        assert record.fitness[:n] == pytest.approx(record.returns[:n].mean(axis=1))
    assert len(sizes) > 1
    call("verify", parts.path, "--full").ok()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (["num_interactions=300"], "least_population, population"),
        (["least_population=4"], "num_interactions"),
        (["num_interactions=150", "least_population=5"], "least_population, population"),
        (["num_interactions=150", "least_population=16"], "least_population, population"),
        (["num_interactions=150", "least_population=4", "racing.rounds=[1]"], "racing.rounds"),
        (
            ["num_interactions=150", "least_population=4", "strategy.name=ga"],
            f"strategy.name (--strategy): expected {NAMES},",
        ),
    ],
)
def test_a_population_that_cannot_grow_is_refused(call, settings, name):
    given = ["strategy.name=pgpe", *settings]
    options = [word for setting in given for word in ("--set", setting)]
    done = call("run", "-e", "CartPole-v1", "--engine", "exact", "-p", 16, "-r", 2, "-g", 1, *options, "-o", "x")
    assert done.code == 2
    assert done.err.startswith(f"evolve.run: {name}"), done.err
