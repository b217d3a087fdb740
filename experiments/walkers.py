"""BipedalWalkers that no champion was trained on: `-e experiments.walkers:WeakLeg-v0` and the others.

Gymnasium's environment, with the same observations, rewards and course.
"""

import gymnasium
import numpy as np
from gymnasium.envs.box2d.bipedal_walker import BipedalWalker


class Changed(BipedalWalker):
    """A walker under another gravity (m/s², 10 as made), or with less torque in its second leg (a share of its own)."""

    def __init__(self, gravity: float = 10.0, leg: float = 1.0, **options):
        super().__init__(**options)
        self.world.gravity = (0.0, -gravity)
        self._shares = np.array([1.0, 1.0, leg, leg], np.float32)

    def step(self, action):
        """Step; the torque is proportional to the outputs of the network."""
        return super().step(np.clip(action, -1.0, 1.0) * self._shares)


for name, changes in {
    "Unchanged": {},
    "WeakLeg": {"leg": 0.75},
    "LameLeg": {"leg": 0.5},
    "Lighter": {"gravity": 7.5},
    "Heavier": {"gravity": 12.5},
}.items():
    gymnasium.register(f"{name}-v0", entry_point=Changed, kwargs=changes, max_episode_steps=1600)
