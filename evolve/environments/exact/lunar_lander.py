"""LunarLander: a lander with a main engine and two at its sides is to come down on its legs, between two flags.

Gymnasium's LunarLander-v3, discrete and continuous (Oleg Klimov, MIT licence), whose physics is Box2D's (Erin Catto,
zlib licence): the same seed gives the same moon, first push and dispersion of the engines, and each episode has
Gymnasium's observations, rewards and end, to the bit. `environments/physics/` has the physics. The wind is a tanh of
two sines. Ours are not libm's, as Gymnasium's are, and may differ in the last of 53 bits; the physics keeps 24 of them.

Four outputs, of which the largest counts: nothing, the left engine, the main engine, the right engine. Or two: the main
engine above 0, at 50 % to 100 %, and the side engines beyond ±0.5. A step is rewarded with the change of

    -100 |position| - 100 |velocity| - 100 |angle| + 10 for each leg on the ground

less 0.3 for the main engine and 0.03 for a side engine at full power. The episode ends with -100 when the lander
touches the ground or leaves the picture, and with 100 when it rests.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.environments.exact.task import ExactTask, bounded, largest
from evolve.environments.physics import layout, shapes
from evolve.shapes import Float32, UInt8

SCALE = 30.0
WIDTH, HEIGHT = 600 / SCALE, 400 / SCALE
LANDER_POLY = [(17, -10), (17, 0), (14, 17), (-14, 17), (-17, 0), (-17, -10)]
LEG_AWAY, LEG_DOWN = 20 / SCALE, 18 / SCALE
LEG_W, LEG_H = 2 / SCALE, 8 / SCALE
LEG_SPRING_TORQUE = 40
CHUNKS = 11
MOON_FRICTION, BOTTOM_FRICTION = 0.1, 0.2


class LunarLanderOptions(Options):
    """Settings, with Gymnasium's names and defaults."""

    continuous: bool = False
    gravity: float = Field(-10.0, gt=-12.0, lt=0.0)
    enable_wind: bool = False
    wind_power: float = Field(15.0, ge=0.0, le=1000.0)
    turbulence_power: float = Field(1.5, ge=0.0, le=1000.0)


class LunarLanderContinuousOptions(LunarLanderOptions):
    """The same settings; the engines are continuous by default."""

    continuous: bool = True


@dataclass(frozen=True)
class LunarLander(ExactTask[LunarLanderOptions]):
    """States: records of `layout.WORLD`."""

    kernel = "lunar_lander"
    settings = LunarLanderOptions
    has_world = True
    observation_size = 8
    state_size = 0
    limit = 1000

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        """Whether an action is the number of an engine."""
        return not self.options.continuous

    @property
    def action_size(self) -> int:
        """A."""
        return 2 if self.options.continuous else 4

    @cached_property
    def model(self) -> Any:
        """The bodies and joints, a record of `layout.MODEL`."""
        options = self.options
        model = np.zeros((), layout.MODEL)
        model["num_bodies"], model["num_joints"], model["num_edges"], model["base"] = 3, 2, CHUNKS, 1
        model["body_order"][:3], model["joint_order"][:2] = (2, 0, 1), (1, 0)
        model["gravity"] = options.gravity
        model["flag"] = options.continuous + 2 * options.enable_wind
        model["option"][:3] = min(self.action_scale, 1.0), options.wind_power, options.turbulence_power
        model["x"][: CHUNKS + 2] = 0, WIDTH, *(WIDTH / (CHUNKS - 1) * i for i in range(CHUNKS))
        corners = np.array([(a / SCALE, b / SCALE) for a, b in LANDER_POLY], np.float32)
        lander = shapes.hull(corners, 5.0, [shapes.mixed(ground, 0.1) for ground in (MOON_FRICTION, BOTTOM_FRICTION)])
        lander["p"] = WIDTH / 2, HEIGHT
        model["hull"][0] = lander
        for number, side in enumerate((-1, 1)):
            leg = shapes.box(
                LEG_W, LEG_H, 1.0, [shapes.mixed(ground, 0.2) for ground in (MOON_FRICTION, BOTTOM_FRICTION)]
            )
            leg["p"], leg["a"] = (WIDTH / 2 - side * LEG_AWAY, HEIGHT), side * 0.05
            model["hull"][1 + number] = leg
            hinge = model["hinge"][number]
            hinge["b"], hinge["anchor_b"] = 1 + number, (side * LEG_AWAY, LEG_DOWN)
            hinge["lower"], hinge["upper"] = (0.9 - 0.5, 0.9) if side < 0 else (-0.9, -0.9 + 0.5)
            hinge["speed"], hinge["torque"] = 0.3 * side, LEG_SPRING_TORQUE
        shapes.finish_hinges(model)
        return model

    def kernel_constants(self) -> UInt8:
        """Return the model, as the kernel takes it."""
        return np.frombuffer(self.model.tobytes(), np.uint8)

    def actions(self, outputs: Float32) -> Any:
        """Return the numbers of engines [k], or the shares of their power [k, 2]; 0 for NaN."""
        if self.discrete:
            return largest(outputs)
        return bounded(outputs * np.float64(min(self.action_scale, 1.0))).astype(np.float32)


@dataclass(frozen=True)
class LunarLanderContinuous(LunarLander):
    """The lander whose engines are continuous."""

    settings = LunarLanderContinuousOptions
