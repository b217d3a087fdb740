"""Champion files: reading returns what was written; damaged files and files of another kind are refused."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from tampering import attribute, put, remove

from evolve import store
from evolve.errors import InputError

W, O, N = 5, 3, 7


@pytest.fixture
def champion(tmp_path):
    held_out = store.HeldOut(np.arange(N) / 3, np.arange(N), np.linspace(-1, 1, W, dtype=np.float32), np.arange(W) > 1)
    header = store.Header("seeds = [3]\n", {"evolve": "x"}, 3, "CartPole-v1")
    normalizer = np.arange(2 * O, dtype=np.float32).reshape(2, O)
    return store.StoredChampion(tmp_path / "a.champion", header, held_out, normalizer, "0f" * 32, 12, 3456, 7.5)


@pytest.mark.parametrize("normalized", [True, False])
def test_what_was_written_is_read(champion, normalized):
    champion = champion if normalized else replace(champion, normalizer=None)
    store.write_champion(champion)
    found = store.read_champion(champion.path)
    assert found.header == champion.header
    assert (found.digest, found.num_generations, found.steps, found.seconds) == ("0f" * 32, 12, 3456, 7.5)
    for name in ("returns", "seeds", "weights", "mask"):
        assert getattr(found.held_out, name).tobytes() == getattr(champion.held_out, name).tobytes()
    assert (found.normalizer is None) == (not normalized)
    if normalized:
        assert np.array_equal(found.normalizer, champion.normalizer)


def test_it_is_small(champion):
    many = replace(champion.held_out, weights=np.ones(5000, np.float32), mask=np.ones(5000, bool))
    store.write_champion(replace(champion, held_out=many))
    assert champion.path.stat().st_size < 60_000


def test_either_kind_of_file_is_told_from_the_other(champion, tmp_path):
    store.write_champion(champion)
    store.create(tmp_path / "run.h5", champion.header).close()
    assert isinstance(store.read_any(champion.path), store.StoredChampion)
    assert isinstance(store.read_any(tmp_path / "run.h5"), store.StoredRun)
    with pytest.raises(InputError, match="got a champion file"):
        store.read(champion.path)
    with pytest.raises(InputError, match="expected a champion file"):
        store.read_champion(tmp_path / "run.h5")


def test_a_directory_that_cannot_be_written_is_named(champion, tmp_path):
    with pytest.raises(InputError, match=r"a\.champion .*nowhere"):
        store.write_champion(replace(champion, path=tmp_path / "nowhere" / "a.champion"))


@pytest.mark.parametrize(
    "damage",
    [
        attribute("champion_schema", 99),
        attribute("champion_schema", "one"),
        attribute("config", None),
        attribute("manifest", "[]"),
        attribute("seed", -1),
        attribute("digest", "0f"),
        attribute("digest", "no digest"),
        attribute("steps", "many"),
        attribute("seconds", None),
        remove("evaluation/weights"),
        put("evaluation/mask", np.ones(W + 1, bool)),
        put("evaluation/weights", np.ones(W)),
        put("evaluation/returns", np.zeros(0)),
        put("evaluation/normalizer", np.ones((3, O), np.float32)),
        put("evaluation/normalizer", h5py.SoftLink("/evaluation/weights")),
    ],
)
def test_damaged_files_are_refused(champion, damage):
    store.write_champion(champion)
    with h5py.File(champion.path, "r+") as file:
        damage(file)
    with pytest.raises(InputError):
        store.read_champion(champion.path)


@pytest.mark.parametrize("keep", [0, 100, 0.5])
def test_truncated_files_are_refused(champion, keep):
    store.write_champion(champion)
    whole = champion.path.read_bytes()
    champion.path.write_bytes(whole[: keep if isinstance(keep, int) else int(keep * len(whole))])
    with pytest.raises(InputError, match=r"truncated or foreign.* copy it again\. Name"):
        store.read_any(champion.path)
