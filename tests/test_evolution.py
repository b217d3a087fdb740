"""What selection sees of a generation."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from evolve import store
from evolve.config import Config
from evolve.evolution import fitness_of
from evolve.genome import Genomes

MASK = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], np.bool_)
GENOMES = Genomes(MASK.astype(np.float32), MASK)
RETURNS = np.array([[10.0, 20.0], [14.0, 14.0], [-1.0, 1.0], [3.0, math.nan]])


@pytest.mark.parametrize(("cost", "expected"), [(0.0, [15, 14, 0]), (1.0, [14, 13.5, 0]), (4.0, [11, 12, 0])])
def test_fitness_is_the_mean_return_minus_what_the_connections_cost(cost, expected):
    everything = SimpleNamespace(returns=RETURNS, played=np.ones(RETURNS.shape, np.bool_))
    ours = fitness_of(Config(connection_cost=cost), GENOMES, everything)
    assert ours[:3].tolist() == expected
    assert math.isnan(ours[3])


def test_the_run_file_has_the_fitness_that_selection_saw(command, tmp_path):
    small = ("-e", "CartPole-v1", "-p", 6, "-r", 2, "-g", 2, "--set", "held_out_episodes=0")
    for cost in (0, 500):
        done = command("run", *small, "--set", f"connection_cost={cost}.0", "-o", cost)
        assert done.code == 0, done.err
    free, dear = (store.read(store.path_of(tmp_path / cost, 0)).records for cost in ("0", "500"))
    assert (free[0].returns == dear[0].returns).all()
    for record, cost in ((free[0], 0), (dear[0], 500), (dear[1], 500)):
        W = len(record.champion_weights)
        assert record.fitness == pytest.approx(record.returns.mean(axis=1) - cost * record.connections / W)
        assert record.champion_candidate == record.fitness.argmax()
