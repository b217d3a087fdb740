import hashlib

import numpy as np
import pytest

from evolve.genome import DIGEST_START, Genomes, chain_digest, concatenate, pruned


def some(P=3, W=4):
    draw = np.random.Generator(np.random.Philox(1))
    return pruned(draw.normal(size=(P, W)).astype(np.float32), draw.random((P, W)) < 0.7)


def test_absent_connections_weigh_positive_zero():
    genomes = pruned(np.full((1, 2), -1, np.float32), np.array([[True, False]]))
    assert genomes.weights.tolist() == [[-1.0, 0.0]]
    assert not np.signbit(genomes.weights[0, 1])
    assert genomes.connections().tolist() == [1]


@pytest.mark.parametrize("mask", [np.ones((2, 3), np.bool_), np.ones((3, 4), np.int8)])
def test_shapes_are_checked_at_the_boundary(mask):
    with pytest.raises(ValueError, match=r"mask: expected \[P, W\] bool \(P=3, W=4\), got"):
        Genomes(np.zeros((3, 4), np.float32), mask)


def test_take_copies():
    genomes = some()
    genomes.take(np.array([0])).weights[:] = 7
    assert not (genomes.weights == 7).any()


def test_concatenate_keeps_order():
    a, b = some(2), some(3)
    assert np.array_equal(concatenate(a, b).weights, np.vstack([a.weights, b.weights]))


def test_digest_is_what_the_docstring_says():
    genomes, returns, lengths = some(), np.arange(6.0).reshape(3, 2), np.arange(6, dtype=np.int32).reshape(3, 2)
    by_hand = hashlib.sha256(
        DIGEST_START + genomes.weights.tobytes() + genomes.mask.tobytes() + returns.tobytes() + lengths.tobytes()
    )
    assert chain_digest(DIGEST_START, genomes, returns, lengths) == by_hand.digest()


def test_digest_chains_and_sees_every_bit():
    genomes, returns, lengths = some(), np.zeros((3, 2)), np.zeros((3, 2), np.int32)
    first = chain_digest(DIGEST_START, genomes, returns, lengths)
    negative_zero = returns.copy()
    negative_zero[2, 1] = -0.0
    flipped = genomes.mask.copy()
    flipped[0, 0] ^= True
    others = [
        chain_digest(first, genomes, returns, lengths),
        chain_digest(DIGEST_START, genomes, negative_zero, lengths),
        chain_digest(DIGEST_START, Genomes(genomes.weights, flipped), returns, lengths),
        chain_digest(DIGEST_START, genomes, returns, lengths + np.int32(1)),
    ]
    assert len({first, *others}) == 5


def test_digest_does_not_depend_on_the_sign_of_nan():
    genomes, lengths = some(), np.zeros((3, 1), np.int32)
    digests = {chain_digest(DIGEST_START, genomes, np.full((3, 1), nan), lengths) for nan in (np.nan, -np.nan)}
    assert len(digests) == 1
