"""Films: pictures that are written while an episode is played, whole or not at all."""

import numpy as np
import pytest

from evolve import store
from evolve.analysis.video import Film, Label, clip
from evolve.errors import RunError
from evolve.training import reload
from evolve.verification import choose

END = 25  # pictures, at 50 a second


def pictures_of(path):
    """Return the pictures of a film, [N, H, W, 3]."""
    import imageio.v3 as iio

    return np.stack(list(iio.imiter(path, plugin="pyav")))


def test_a_clip_is_short_and_narrow(record, tmp_path):
    run = store.read(record("BipedalWalker-v3", "--set", "env.max_episode_steps=30"))
    experiment = reload(run)
    chosen = choose(run, experiment, 1)
    results = clip(run, experiment, chosen, tmp_path / "clip.mp4", seconds=0.2, width=301)
    assert float(results.returns[0]) == chosen.logged
    pictures = pictures_of(tmp_path / "clip.mp4")
    shown = len(pictures) - END
    assert shown <= 10 + 2
    assert pictures.shape[1:3] == (242, 302)  # two rows, and even
    assert (tmp_path / "clip.mp4").stat().st_size < 100_000


def test_a_film_that_is_not_finished_leaves_nothing(tmp_path):
    frame = np.zeros((40, 61, 3), np.uint8)
    for name in ("x.mp4", "x.gif"):
        film = Film(tmp_path / name, 50).__enter__()
        film.add(frame, Label("x", "y", 0, 0.0))
        assert len(list(tmp_path.iterdir())) == 1
        film.__exit__(KeyError, KeyError(), None)
    assert not list(tmp_path.iterdir())
    with pytest.raises(RunError, match="nothing has been filmed"), Film(tmp_path / "x.gif", 50):
        pass
    assert not list(tmp_path.iterdir())
