import hashlib
import struct

import numpy as np
import pytest
from old_digest import old_chain_digest

from evolve.errors import InputError
from evolve.genome import DIGEST_START, Genomes, candidate_digests, chain_digest, concatenate, one_genome, pruned


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
    with pytest.raises(ValueError, match=r"^mask: .*P=3, W=4"):
        Genomes(np.zeros((3, 4), np.float32), mask)


def test_take_copies():
    genomes = some()
    genomes.take(np.array([0])).weights[:] = 7
    assert not (genomes.weights == 7).any()


def test_concatenate_keeps_order():
    a, b = some(2), some(3)
    assert np.array_equal(concatenate(a, b).weights, np.vstack([a.weights, b.weights]))


def by_hand(*numbers):
    """Little-endian bytes of (format, value) pairs."""
    return b"".join(struct.pack(f"<{kind}", value) for kind, value in numbers)


WEIGHTS = [[0.5, 0.0, -1.25], [3.0, 2.0, 1.0]]
MASK = [[True, False, True], [True, True, True]]
RETURNS = [[1.5, -2.0], [float("nan"), 0.0]]
LENGTHS = [[7, 8], [9, 10]]
GIVEN = (
    Genomes(np.array(WEIGHTS, np.float32), np.array(MASK)),
    np.array(RETURNS),
    np.array(LENGTHS, np.int32),
)
ROWS = [by_hand(*(("f", w) for w in row)) for row in WEIGHTS]
MASK_ROWS = [by_hand(*(("?", m) for m in row)) for row in MASK]
QUIET_NAN = b"\0\0\0\0\0\0\xf8\x7f"
TAIL = by_hand(("d", 1.5), ("d", -2.0)) + QUIET_NAN + by_hand(("d", 0.0), ("i", 7), ("i", 8), ("i", 9), ("i", 10))


def test_digest_follows_its_docstring():
    genomes, returns, lengths = GIVEN
    one, two = (hashlib.sha256(row + mask).digest() for row, mask in zip(ROWS, MASK_ROWS, strict=True))
    digests = candidate_digests(genomes)
    assert digests.tobytes() == one + two
    expected = hashlib.sha256(DIGEST_START + one + two + TAIL).digest()
    assert chain_digest(DIGEST_START, digests, returns, lengths) == expected
    assert expected.hex() == "a6f82e3332c7ec5b382974f4c31310e870395d34975d12da9e63803d6d75de6a"


def test_metrics_are_hashed_by_name_and_count_0_in_failed_episodes():
    genomes, returns, lengths = GIVEN
    digests = candidate_digests(genomes)
    metrics = {"b": np.array([[1, 2], [3, 4]], np.int32), "a": np.array([[0.5, np.nan], [np.nan, 2.0]])}
    a = b"a\0" + by_hand(("d", 0.5)) + QUIET_NAN + by_hand(("d", 0.0), ("d", 2.0))
    b = b"b\0" + by_hand(("d", 1.0), ("d", 2.0), ("d", 0.0), ("d", 4.0))
    expected = hashlib.sha256(DIGEST_START + digests.tobytes() + TAIL + a + b).digest()
    assert chain_digest(DIGEST_START, digests, returns, lengths, metrics) == expected


def test_the_old_digest_follows_its_docstring():
    expected = hashlib.sha256(DIGEST_START + b"".join(ROWS) + b"".join(MASK_ROWS) + TAIL).digest()
    assert old_chain_digest(DIGEST_START, *GIVEN) == expected
    assert expected.hex() == "ca86fb0c123905fc680b5d98dbe1bb663f078118f9f42c73d29bd75a18cace54"


def digest(genomes, returns, lengths, previous=DIGEST_START):
    return chain_digest(previous, candidate_digests(genomes), returns, lengths)


def test_digest_chains_and_sees_every_bit():
    genomes, returns, lengths = some(), np.zeros((3, 2)), np.zeros((3, 2), np.int32)
    first = digest(genomes, returns, lengths)
    negative_zero = returns.copy()
    negative_zero[2, 1] = -0.0
    flipped = genomes.mask.copy()
    flipped[0, 0] ^= True
    others = [
        digest(genomes, returns, lengths, previous=first),
        digest(genomes, negative_zero, lengths),
        digest(Genomes(genomes.weights, flipped), returns, lengths),
        digest(genomes, returns, lengths + np.int32(1)),
        digest(genomes.take(np.array([1, 0, 2])), returns, lengths),
    ]
    assert len({first, *others}) == 6


def test_digest_of_a_candidate_depends_only_on_its_genome():
    genomes = some()
    assert np.array_equal(candidate_digests(genomes.take(np.array([2, 0]))), candidate_digests(genomes)[[2, 0]])


def test_digest_does_not_depend_on_the_layout_in_memory():
    genomes, returns, lengths = some(), np.arange(6.0).reshape(3, 2), np.arange(6, dtype=np.int32).reshape(3, 2)
    fortran = Genomes(np.asfortranarray(genomes.weights), np.asfortranarray(genomes.mask))
    assert digest(fortran, np.asfortranarray(returns), np.asfortranarray(lengths)) == digest(genomes, returns, lengths)


def test_digest_does_not_depend_on_the_sign_of_nan():
    genomes, lengths = some(), np.zeros((3, 1), np.int32)
    assert len({digest(genomes, np.full((3, 1), nan), lengths) for nan in (np.nan, -np.nan)}) == 1


def test_one_genome_is_asked_for_and_not_several():
    two = Genomes(np.zeros((2, 3), np.float32), np.ones((2, 3), np.bool_))
    assert one_genome(two.take(slice(1)), "start_from").weights.tolist() == [[0.0] * 3]
    with pytest.raises(InputError, match="start_from: expected one genome, got 2 of them"):
        one_genome(two, "start_from")
    with pytest.raises(InputError, match="x0: expected numbers, or a genome, got"):
        one_genome([10**400], "x0")
    for wrong in ([1j, 2], ["1", "2"]):
        with pytest.raises(InputError, match="x0: expected numbers, or a genome, got"):
            one_genome(wrong, "x0")


def test_genomes_are_equal_if_weights_and_masks_are():
    weights, mask = np.ones((2, 3), np.float32), np.ones((2, 3), np.bool_)
    assert Genomes(weights, mask) == Genomes(weights.copy(), mask.copy())
    assert Genomes(weights, mask) != Genomes(2 * weights, mask)
    assert Genomes(weights, mask) != Genomes(weights, ~mask)
    assert Genomes(weights, mask) != Genomes(weights[:1], mask[:1])
    assert Genomes(weights, mask) != "genomes"
