"""umda: the formulas of its docstring."""

import numpy as np
import pytest

from evolve import networks
from evolve.genome import Genomes
from evolve.numerics import normal_quantile
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import Results
from evolve.strategies.elitist import ScoredGenomes, Umda, UmdaOptions

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3]}, 4, 2)
W = NETWORK.num_weights


def made(P=16, weight_noise=0.0, **options):
    return Umda(UmdaOptions(weight_noise=weight_noise, **options), NETWORK, P, 5)


def elite(*masks):
    """Return members with the given masks, whose weights are all 10, all 20, …"""
    mask = np.array(masks, np.bool_)
    values = 10 * np.arange(1, len(masks) + 1, dtype=np.float32)
    return ScoredGenomes.evaluated(Genomes(np.where(mask, values[:, None], np.float32(0)), mask), np.zeros(len(masks)))


def test_probabilities_are_the_mean_mask_with_noise_inside_the_limits():
    some = np.arange(W) % 4
    state = elite(some > 0, some > 1, some > 2, some > 2)  # mean masks 0, 1/4, 2/4, 1
    noise = normal_quantile(Stream(5, Purpose.MASKS, 3).uniform(W)).astype(float)
    expected = [min(max(m + 0.1 * z, 0.05), 0.95) for m, z in zip([0, 0.25, 0.5, 1] * W, noise, strict=False)]
    assert made(mask_noise=0.1, min_probability=0.05).connection_probability(state, 3).tolist() == expected
    still = made(mask_noise=0.0, min_probability=0.125)
    assert still.connection_probability(state, 3)[:4].tolist() == [0.125, 0.25, 0.5, 0.875]


def test_children_are_sampled_and_inherit_from_their_parent():
    P = 1600
    one, other = np.arange(W) < W // 2, np.ones(W, np.bool_)
    state = elite(*[one] * 100, *[other] * 100)
    asked = made(P, mask_noise=0.0, min_probability=0.05).ask(state, 1)
    assert np.array_equal(asked.weights[:200], state.genomes.weights)  # the elite, K = 200, unchanged
    children = asked.take(np.arange(200, P))
    assert children.mask[:, : W // 2].mean() == pytest.approx(0.95, abs=0.01)
    assert children.mask[:, W // 2 :].mean() == pytest.approx(0.5, abs=0.02)
    for weights, mask in zip(children.weights, children.mask, strict=True):
        inherited = set(weights[: W // 2][mask[: W // 2]])
        assert len(inherited) == 1  # all from one parent
        parent = int(inherited.pop()) // 10 - 1
        rest = weights[W // 2 :][mask[W // 2 :]]
        assert (np.abs(rest) < 7).all() if parent < 100 else (rest == 10 * (parent + 1)).all()


def test_the_whole_elite_is_evaluated_again():
    umda = made(16)  # K = 2
    genomes = umda.ask(umda.start(), 0)
    state = umda.tell(umda.start(), genomes, Results(np.arange(16.0)))
    assert state.score.tolist() == [15, 14]
    state = umda.tell(state, umda.ask(state, 1), Results(np.array([1.0, 2.0] + [0.0] * 14)))
    assert state.score.tolist() == [8, 8]  # (15 + 1)/2 and (14 + 2)/2


def test_weight_noise_moves_only_present_weights():
    state = elite(np.ones(W))
    asked = made(200, weight_noise=0.5, min_probability=0.25, mask_noise=0.0).ask(state, 1)
    moved = asked.weights[1:][asked.mask[1:]] - 10
    assert moved.std() == pytest.approx(0.5, abs=0.02)
    assert not asked.weights[~asked.mask].any()
