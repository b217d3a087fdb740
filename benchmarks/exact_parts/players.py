"""Players of the rigid-body tasks, random or champions of the zoo, and recordings of their episodes.

An episode depends only on its task, its player and its seed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from evolve import environments, store
from evolve.config import EnvOptions
from evolve.environments import Recorder, Recording
from evolve.rollouts.inference import ObservationNormalizer
from evolve.shapes import Float32
from evolve.store import StoredChampion
from evolve.training import reload

ZOO = Path(__file__).parents[2] / "zoo"
TOGETHER = 32
"""Slots in which episodes are played; the kernels step as many worlds side by side."""
_HELD = 8  # steps that a saturated output stays
_NOISE = 0.4  # the largest deviation of the noise in a champion's weights
_ROWS = 256  # random outputs that are drawn at a time


@dataclass(frozen=True)
class Box2DTask:
    """A task, and the champion that plays it.

    kwargs: settings of the environment. champion: its file in the zoo.
    """

    id: str
    champion: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> EnvOptions:
        """The task of the exact engine."""
        return EnvOptions(id=self.id, engine="exact", kwargs=dict(self.kwargs))


BOX2D_TASKS = {
    "walker": Box2DTask("BipedalWalker-v3", "walker-es"),
    "hardcore": Box2DTask("BipedalWalkerHardcore-v3", "walker-es"),
    "lander": Box2DTask("LunarLander-v3", "lander"),
    "lander continuous": Box2DTask("LunarLanderContinuous-v3", "lander"),
    "lander with wind": Box2DTask("LunarLander-v3", "lander", {"enable_wind": True}),
}


class Player(Protocol):
    """Acts in all slots at once."""

    def begin(self, slot: int, seed: int) -> None:
        """Begin an episode in a slot."""

    def outputs(self, observations: Float32) -> Float32:
        """Return outputs [B, A] for observations [B, O]."""


class RandomPlayer:
    """Outputs that do not depend on observations: uniform on ±1, or saturated, which means ±1 for several steps."""

    def __init__(self, slots: int, action_size: int, saturated: bool) -> None:
        self._streams = [np.random.Generator(np.random.Philox(0))] * slots
        self._rows = np.zeros((slots, _ROWS, action_size), np.float32)
        self._next = np.full(slots, _ROWS)
        self._saturated = saturated

    def begin(self, slot: int, seed: int) -> None:
        """Begin an episode in a slot."""
        self._streams[slot] = np.random.Generator(np.random.Philox(seed))
        self._next[slot] = _ROWS

    def outputs(self, observations: Float32) -> Float32:
        """Return outputs [B, A]."""
        for slot in np.flatnonzero(self._next == _ROWS):
            self._rows[slot] = self._drawn(self._streams[slot])
            self._next[slot] = 0
        found = self._rows[np.arange(len(self._rows)), self._next]
        self._next += 1
        return found

    def _drawn(self, stream: np.random.Generator) -> Float32:
        shape = self._rows.shape[1:]
        if not self._saturated:
            return stream.uniform(-1, 1, shape).astype(np.float32)
        held = np.sign(stream.uniform(-1, 1, (_ROWS // _HELD, shape[1])))
        return np.repeat(held, _HELD, axis=0).astype(np.float32)


class ChampionPlayer:
    """A champion of the zoo, or a half-trained one: with noise of its own in its weights in each episode."""

    def __init__(self, slots: int, action_size: int, champion: str, noisy: bool) -> None:
        stored = store.read_any(ZOO / f"{champion}.champion")
        assert isinstance(stored, StoredChampion), "the zoo has champions only"
        assert stored.normalizer is not None, "both champions have normalized observations"
        self._network = reload(stored).network
        self._batch = self._network.batch(slots, "native")
        self._seen = np.zeros((slots, self._network.observation_size), np.float32)
        self._normalizer = ObservationNormalizer(self._seen, "native")
        self._champion, self._noisy, self._action_size = stored, noisy, action_size

    def begin(self, slot: int, seed: int) -> None:
        """Begin an episode in a slot."""
        weights = self._champion.held_out.weights
        if self._noisy:
            stream = np.random.Generator(np.random.Philox(seed))
            noise = stream.uniform(0, _NOISE) * stream.standard_normal(len(weights))
            weights = (weights + noise).astype(np.float32)
        where = np.array([slot])
        self._batch.load(where, weights[None], self._champion.held_out.mask[None], np.array([seed]))
        self._normalizer.begin(where, self._champion.normalizer[None])

    def outputs(self, observations: Float32) -> Float32:
        """Return outputs [B, A]; a continuous lander's power is by how much its engines are preferred."""
        self._seen[:] = observations
        found = self._batch.step(self._normalizer.normalize(len(observations)))
        if found.shape[1] == self._action_size:
            return found
        nothing, left, main, right = found.T
        return np.stack([main - np.maximum(nothing, np.maximum(left, right)), right - left], axis=1)


def champion_of(name: str) -> Float32:
    """Return the weights of a champion, an mlp with one hidden layer, with its normalizer folded into them.

    It then acts on raw observations, like the candidates of an experiment without normalization.
    """
    stored = store.read_any(ZOO / f"{name}.champion")
    assert isinstance(stored, StoredChampion), "the zoo has champions only"
    assert stored.normalizer is not None, "its observations are normalized"
    mean, scale = stored.normalizer.astype(np.float64)
    weights = stored.held_out.weights.astype(np.float64)
    (hidden,) = reload(stored).config.network.options.hidden
    first = weights[: (len(mean) + 1) * hidden].reshape(-1, hidden)
    first[:-1] *= scale[:, None]
    first[-1] -= mean @ first[:-1]
    return weights.astype(np.float32)


PLAYERS = ("random", "saturated", "champion", "half-trained")


def player_of(name: str, task: Box2DTask, action_size: int, slots: int = TOGETHER) -> Player:
    """Return one of PLAYERS."""
    if name in ("random", "saturated"):
        return RandomPlayer(slots, action_size, name == "saturated")
    return ChampionPlayer(slots, action_size, task.champion, noisy=name == "half-trained")


def play(task: Box2DTask, player: str, seeds: Sequence[int]) -> Iterator[Recording]:
    """Yield the episodes of seeds as the exact engine plays them, in the order in which they end."""
    engine = Recorder(environments.make(task.options, TOGETHER), TOGETHER, observations=True)
    acting = player_of(player, task, engine.action_size)
    observations = np.zeros((TOGETHER, engine.observation_size), np.float32)
    waiting = list(seeds)[::-1]
    live = np.zeros(TOGETHER, np.bool_)
    while waiting or live.any():
        for slot in np.flatnonzero(~live)[: len(waiting)].tolist():
            seed = waiting.pop()
            acting.begin(slot, seed)
            engine.reset(np.array([slot]), np.array([seed]), observations)
            live[slot] = True
        slots = np.flatnonzero(live)
        _, ended = engine.step(slots, acting.outputs(observations)[slots], observations)
        live[slots[ended]] = False
        yield from engine.finished
        engine.finished.clear()
