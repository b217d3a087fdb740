"""Observation normalization: the formula, the same on every back end, and the same bits however a run is made."""

import h5py
import numpy as np
import pytest
from conftest import make_runs, run_on
from hypothesis import given
from hypothesis import strategies as st

from evolve import store
from evolve.numerics.native import available
from evolve.rollouts import Moments
from evolve.rollouts.inference import ObservationNormalizer

BACKENDS = ["numpy", pytest.param("native", marks=pytest.mark.skipif(not available(), reason="no compiler"))]
O = 5


def normalizers(n, seed=1):
    draw = np.random.Generator(np.random.Philox(seed))
    return np.stack([draw.normal(size=(n, O)), draw.uniform(0.1, 9, (n, O))], axis=1).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_observations_are_normalized_and_their_moments_kept(backend):
    observations, given = np.zeros((3, O), np.float32), normalizers(3)
    normalizer = ObservationNormalizer(observations, backend)
    normalizer.begin(np.arange(3), given)
    rows = np.random.Generator(np.random.Philox(2)).normal(size=(4, 3, O)).astype(np.float32) * 3
    for row in rows:
        observations[:] = row
        seen = normalizer.normalize(3)
        assert seen.dtype == np.float32
        assert np.array_equal(seen, np.clip((row - given[:, 0]) * given[:, 1], -5, 5))
        assert (np.abs(seen) == 5).any()  # the limit is met
    wide = rows.astype(np.float64)
    expected = np.stack([((wide[0] + wide[1]) + wide[2]) + wide[3],
                         ((wide[0] ** 2 + wide[1] ** 2) + wide[2] ** 2) + wide[3] ** 2], axis=1)  # fmt: skip
    assert np.array_equal(normalizer.moments(np.arange(3)), expected)
    normalizer.move(np.array([2]), np.array([0]))
    assert np.array_equal(normalizer.moments(np.array([0])), expected[2:])
    normalizer.begin(np.array([0]), given[:1])
    assert not normalizer.moments(np.array([0])).any()


@pytest.mark.skipif(not available(), reason="no compiler")
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([1e-30, 1.0, 1e30]))
def test_native_equals_reference_to_the_bit(seed, n, scale):
    draw, observations = np.random.Generator(np.random.Philox(seed)), np.zeros((40, O), np.float32)
    both = [ObservationNormalizer(observations, backend) for backend in ("numpy", "native")]
    for one in both:
        one.begin(np.arange(40), normalizers(40, seed))
    for _ in range(3):
        observations[:] = draw.normal(size=(40, O)) * scale
        assert both[0].normalize(n).tobytes() == both[1].normalize(n).tobytes()
    assert both[0].moments(np.arange(40)).tobytes() == both[1].moments(np.arange(40)).tobytes()


def test_moments_are_those_of_everything_seen():
    draw = np.random.Generator(np.random.Philox(3))
    moments, everything = Moments.none(O), []
    assert moments.normalizer().tolist() == [[0.0] * O, [1.0] * O]
    for _ in range(3):
        lengths = draw.integers(1, 9, (4, 2)).astype(np.int32)
        seen = [[draw.normal(3, 2, (n, O)).astype(np.float32).astype(float) for n in row] for row in lengths]
        everything += [step for row in seen for episode in row for step in episode]
        each = np.array([[[e.sum(axis=0), (e**2).sum(axis=0)] for e in row] for row in seen])
        moments = moments.merged(lengths, each)
    centre, scale = moments.normalizer()
    assert moments.count == len(everything)
    assert np.allclose(centre, np.mean(everything, axis=0), rtol=1e-6)
    assert np.allclose(scale, 1 / np.std(everything, axis=0), rtol=1e-5)
    again = Moments.from_arrays(moments.to_arrays(), O)
    assert (again.count, again.sums.tobytes()) == (moments.count, moments.sums.tobytes())


def test_a_constant_observation_is_not_magnified():
    moments = Moments.none(1).merged(np.array([[10]], np.int32), np.array([[[[20.0], [40.0]]]]))
    assert moments.normalizer().tolist() == [[2.0], [100.0]]


@pytest.mark.parametrize("spoil", ["missing", "shape", "type"])
def test_damaged_moments_are_refused(spoil):
    arrays = Moments.none(O).to_arrays()
    for name in list(arrays):
        wrong = {"shape": arrays[name][..., :-1], "type": arrays[name].astype(np.float32)}
        damaged = {
            k: wrong.get(spoil) if k == name else v for k, v in arrays.items() if spoil != "missing" or k != name
        }
        with pytest.raises(ValueError, match=r"missing|expected"):
            Moments.from_arrays(damaged, O)


RUN = ("-e", "Acrobot-v1", "-p", 6, "-r", 2, "-d", 3, "--set", "normalize_observations=true", "--set",
       "normalizer_generations=1", "--set", "env.max_episode_steps=40", "--set", "held_out_episodes=3", "--set",
       "output.genomes=all")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    where = tmp_path_factory.mktemp("normalized")
    make_runs(where, *RUN, "-g", 3, "-o", "alone", "--backend", "numpy")
    run_on(3, *RUN, "-g", 3, "-o", "three", "--set", "compute.slots=2", where=where)
    return where


def test_digests_are_equal_on_any_ranks_and_after_a_restart(made, call):
    runs = [store.read(made / name / "seed-0.h5") for name in ("alone", "three")]
    assert runs[0].records[-1].digest == runs[1].records[-1].digest
    assert np.array_equal(runs[0].held_out.returns, runs[1].held_out.returns)
    call("run", *RUN, "-g", 2, "-o", "half").ok()
    done = call("run", *RUN, "-g", 3, "-o", "half", "--resume").ok()
    assert runs[0].records[-1].digest.decode() in done.out
    normalizer = runs[0].records[2].normalizer
    assert normalizer.shape == (2, 6)
    assert runs[0].records[0].normalizer.tolist() == [[0.0] * 6, [1.0] * 6]
    assert (normalizer[1] != 1).all()
    assert np.array_equal(normalizer, runs[1].records[1].normalizer)  # frozen


@pytest.mark.parametrize(
    "words",
    [("verify",), ("verify", "--full"), ("replay", "--held-out", "--episode", 2), ("evaluate", "--episodes", 3),
     ("replay", "--generation", 1, "--candidate", 4, "--episode", 1), ("replay", "--generation", 3, "--candidate", 1)],
    ids=lambda words: "-".join(map(str, words)),
)  # fmt: skip
def test_every_command_normalizes_as_the_run_did(made, call, tmp_path, words):
    (tmp_path / "seed-0.h5").write_bytes((made / "three" / "seed-0.h5").read_bytes())
    call(words[0], "seed-0.h5", *words[1:]).ok()


def test_a_file_without_its_normalizers_is_refused(made, call, tmp_path):
    path = tmp_path / "seed-0.h5"
    path.write_bytes((made / "three" / "seed-0.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        del file["generation/normalizer"]
    call("verify", path).refused("the normalizer of generation 0")
