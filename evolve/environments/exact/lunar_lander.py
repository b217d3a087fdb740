"""LunarLander: a lander with a main engine and two side engines has to land on its legs, between two flags.

The task is Gymnasium's LunarLander-v3, discrete and continuous (Oleg Klimov, MIT licence), with Box2D's physics (Erin
Catto, zlib licence; see `environments/physics/`). The same seed gives the same moon, first push and dispersion of the
engines. An episode has the bits of Gymnasium's observations and rewards, and the same end.

Only with wind may an episode differ from Gymnasium's. The wind is the tanh of a sum of two sines. Gymnasium calls libm
for these functions. This module computes them itself, so the last of the 53 bits of a float64 may differ. The physics
then rounds the wind to the 24 bits of a float32, so only about one step in ten million differs (an estimate).

With discrete actions, the largest of four outputs fires no engine, the left engine, the main engine or the right
engine. With continuous actions, output 0 above 0 fires the main engine, at 50 % to 100 % of its power. Output 1 beyond
±0.5 fires a side engine. The reward of a step is the change of

    -100 |position| - 100 |velocity| - 100 |angle| + 10 for each leg on the ground

minus a cost: 0.3 for the main engine and 0.03 for a side engine, at full power. Position and velocity are scaled as in
the observation, and relative to the pad between the flags. The last reward is -100 if the hull touches the ground, or
the lander leaves the moon to the left or right. The last reward is 100 if the lander comes to rest.
"""

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.environments.exact.task import Draws, ExactTask, Moved, Pcg64, bounded, largest
from evolve.environments.physics import frames, polygons
from evolve.environments.physics.frames import cross
from evolve.environments.physics.polygons import vectors
from evolve.environments.physics.world import reset_bodies, step_worlds
from evolve.numerics.portable import ROUND, sincos
from evolve.shapes import Float32, Float64, UInt8

# Gymnasium's constants, with its names. Lengths are in meters, but LANDER_POLY is in pixels. SCALE is in pixels per
# meter.
SCALE = 30.0
WIDTH, HEIGHT = 600 / SCALE, 400 / SCALE
LANDER_POLY = [(17, -10), (17, 0), (14, 17), (-14, 17), (-17, 0), (-17, -10)]
LEG_AWAY, LEG_DOWN = 20 / SCALE, 18 / SCALE
LEG_W, LEG_H = 2 / SCALE, 8 / SCALE
LEG_SPRING_TORQUE = 40
CHUNKS = 11  # the number of vertices of the moon's surface
MOON_FRICTION, BOTTOM_FRICTION = 0.1, 0.2
INITIAL_RANDOM = 1000.0  # the largest force of the first push in x and in y, in newtons
# The impulse of a step at full power, for each meter of an engine's offset (`_apply_forces`).
MAIN_ENGINE_POWER, SIDE_ENGINE_POWER = 13.0, 0.6
FPS = 50  # steps per second
# ln 2 in two parts. Small multiples of the first part are exact (Cody and Waite).
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")


class LunarLanderOptions(Options):
    """The settings of the lander, with Gymnasium's names and defaults."""

    continuous: bool = False
    """Whether two outputs set the power of the engines. By default the largest of four outputs chooses an engine."""
    gravity: float = Field(-10.0, gt=-12.0, lt=0.0)
    """The vertical acceleration of a free fall in m/s²; negative values point down."""
    enable_wind: bool = False
    """Whether wind pushes and turns the lander while no leg is on the ground."""
    wind_power: float = Field(15.0, ge=0.0, le=1000.0)
    """The largest horizontal force of the wind in newtons, if `enable_wind`."""
    turbulence_power: float = Field(1.5, ge=0.0, le=1000.0)
    """The largest torque of the wind in newton meters, if `enable_wind`."""


class LunarLanderContinuousOptions(LunarLanderOptions):
    """The settings of the lander, with continuous engines by default."""

    continuous: bool = True
    """Whether two outputs set the power of the engines. If not, the largest of four outputs chooses an engine."""


class _Engines(NamedTuple):
    """The powers of the engines, from 0 to 1, and the direction (-1 or 1) of the side engine that fires: [k] each."""

    main: Float64
    side: Float64
    direction: Float64


def _shaping(observations: Float64) -> Float64:
    """Return the shaping term [k] of observations [8, k]. Its change is the reward, apart from the engines' costs."""
    x, y, vx, vy, angle, _, leg_1, leg_2 = observations
    distance, speed = np.sqrt(x * x + y * y), np.sqrt(vx * vx + vy * vy)
    return -100 * distance - 100 * speed - 100 * np.abs(angle) + 10 * leg_1 + 10 * leg_2


def _gust(step: Any) -> Float64:
    """Return the strength of the wind [k], in (-1, 1), in steps [k] of its pattern."""
    t = step.astype(np.float64)
    return _tanh(sincos(0.02 * t)[0] + sincos(math.pi * 0.01 * t)[0])


def _tanh(x: Float64) -> Float64:
    """Return tanh(x) in float64, within 3 ulp, for |x| < 20. tanh(|x|) is e / (e + 2) with e = exp(2 |x|) - 1."""
    # 2 |x| = n ln 2 + r, with an integer n. Adding ROUND and subtracting it again rounds to an integer.
    twice = 2.0 * np.abs(x)
    n = (twice * (1.0 / 0.69314718055994530942) + ROUND) - ROUND
    r = (twice - n * _LN2_HIGH) - n * _LN2_LOW
    # exp(r) = 1 + p r, with a series for p. |r| is at most ln 2 / 2, so the terms after r**13 are below the last bit.
    # Then e = 2**n exp(r) - 1. `power` is 2**n, made from its exponent bits.
    p = np.ones_like(r)
    for i in range(14, 1, -1):
        p = 1.0 + p * r / i
    power = ((n.astype(np.int64) + 1023) << 52).view(np.float64)
    e = power * (p * r) + (power - 1.0)
    y = e / (e + 2.0)
    return np.where(x < 0, -y, y)


_PARAMETERS = ("gravity", "wind_power", "turbulence_power")
"""The options in the field `parameter` of a world, in the order of kernels/lunar_lander.h."""


class LunarLander(ExactTask[LunarLanderOptions]):
    """The lander as an exact task, discrete by default. Its states are records of `frames.WORLD` [k]."""

    kernel = "lunar_lander"
    options_class = LunarLanderOptions
    has_world = True
    observation_size = 8
    state_size = len(_PARAMETERS)
    randomizable = _PARAMETERS
    default_limit = 1000

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        """Whether an action is one of four choices: an engine, or no engine."""
        return not self.options.continuous

    @property
    def action_size(self) -> int:
        """A, one output for each choice, or one for the main engine and one for the side engines."""
        return 2 if self.options.continuous else 4

    @cached_property
    def model(self) -> Any:
        """The bodies and joints, a record of `frames.MODEL`."""
        model = np.zeros((), frames.MODEL)
        # The first edge of the ground is the bottom of the picture (base = 1). All other edges are the moon.
        model["num_bodies"], model["num_joints"], model["num_edges"], model["base"] = 3, 2, CHUNKS, 1
        # Box2D's island solver begins at the body that was created last.
        model["body_order"][:3], model["joint_order"][:2] = (2, 0, 1), (1, 0)
        # The kernel reads two options of the task in the bits of `flag`: `continuous` in bit 0, `enable_wind` in bit 1.
        model["flag"] = self.options.continuous + 2 * self.options.enable_wind
        model["option"][0] = self.action_share
        model["x"][: CHUNKS + 2] = 0, WIDTH, *(WIDTH / (CHUNKS - 1) * i for i in range(CHUNKS))
        corners = np.array([(a / SCALE, b / SCALE) for a, b in LANDER_POLY], np.float32)
        # A body has two coefficients of friction, one for the moon, and one for the bottom.
        grounds = MOON_FRICTION, BOTTOM_FRICTION
        # The densities (5 and 1), frictions (0.1 and 0.2), angles (radians) and speed of the legs are Gymnasium's.
        lander = polygons.hull(corners, 5.0, [polygons.mixed_friction(ground, 0.1) for ground in grounds])
        leg_friction = [polygons.mixed_friction(ground, 0.2) for ground in grounds]
        lander["p"] = WIDTH / 2, HEIGHT
        model["hull"][0] = lander
        for number, side in enumerate((-1, 1)):
            leg = polygons.box(LEG_W, LEG_H, 1.0, leg_friction)
            leg["p"], leg["a"] = (WIDTH / 2 - side * LEG_AWAY, HEIGHT), side * 0.05
            model["hull"][1 + number] = leg
            hinge = model["hinge"][number]
            # Body a is the lander, number 0, and `anchor_a` is its origin. So the zeros in these fields are right.
            hinge["b"], hinge["anchor_b"] = 1 + number, (side * LEG_AWAY, LEG_DOWN)
            hinge["lower"], hinge["upper"] = (0.9 - 0.5, 0.9) if side < 0 else (-0.9, -0.9 + 0.5)
            hinge["speed"], hinge["torque"] = 0.3 * side, LEG_SPRING_TORQUE
        polygons.finish_hinges(model)
        return model

    def kernel_constants(self) -> UInt8:
        """Return the bytes of the model, which the kernel reads."""
        return np.frombuffer(self.model.tobytes(), np.uint8)

    def begin(self, draws: Draws) -> Any:
        """Return the states, records of `frames.WORLD` [k], after a first step: Gymnasium's `reset` makes one, too."""
        states = self.blank_worlds(draws.seeds)
        reset_bodies(states, self.model)
        states["gravity"] = states["parameter"][:, 0]
        # `_draw_episode` sets the force of the first push. So call it after `reset_bodies`, which clears forces.
        for state, seed in zip(states, draws.seeds.tolist(), strict=True):
            self._draw_episode(state, seed)
        # No engine fires in the first step, but the wind may blow, and the dispersion is drawn.
        self._apply_forces(states, _Engines(*np.zeros((3, len(states)))))
        step_worlds(states, self.model)
        states["shaping"] = _shaping(self.observe(states))
        return states

    def _draw_episode(self, state: Any, seed: int) -> None:
        """Draw the moon, the first push, and the first step of the wind's pattern, into a record of `frames.WORLD`."""
        generator = Pcg64.seeded(seed)
        height = [generator.uniform(0, HEIGHT / 2) for _ in range(CHUNKS + 1)]
        height[CHUNKS // 2 - 2 : CHUNKS // 2 + 3] = [HEIGHT / 4] * 5  # the flat pad
        # Smooth the surface. As in Gymnasium, the factor is 0.33 instead of 1/3, and height[-1] counts as the left
        # neighbour of height[0].
        smooth = [0.33 * (height[i - 1] + height[i] + height[i + 1]) for i in range(CHUNKS)]
        state["height"][: CHUNKS + 2] = 0, 0, *smooth  # two vertices of the bottom, then the moon
        state["body"]["force"][0] = [generator.uniform(-INITIAL_RANDOM, INITIAL_RANDOM) for _ in range(2)]
        if self.options.enable_wind:
            state["wind"], state["turbulence"] = generator.integer(-9999, 9999), generator.integer(-9999, 9999)
        state["generator"] = generator.to_record()

    def observe(self, states: Any) -> Float64:
        """Return [8, k]: position, velocity, angle, angular speed, and for each leg whether it is on the ground."""
        bodies = states["body"]
        lander = bodies[:, 0]
        (x, y), (vx, vy) = lander["p"].astype(np.float64).T, lander["v"].astype(np.float64).T
        return np.array([
            (x - WIDTH / 2) / (WIDTH / 2),
            (y - (HEIGHT / 4 + LEG_DOWN)) / (HEIGHT / 2),
            vx * (WIDTH / 2) / FPS,
            vy * (HEIGHT / 2) / FPS,
            lander["a"],
            20.0 * lander["w"].astype(np.float64) / FPS,
            *(bodies["grounded"][:, leg] != 0 for leg in (1, 2)),
        ])  # fmt: skip

    def step(self, states: Any, outputs: Float32, draws: Draws) -> Moved:
        """Step the landers [k]; network outputs [k, A] fire their engines."""
        states = states.copy()
        engines = self._engines(outputs)
        self._apply_forces(states, engines)
        step_worlds(states, self.model)
        observations = self.observe(states)
        shaping = _shaping(observations)
        reward = shaping - states["shaping"] - engines.main * 0.30 - engines.side * 0.03
        states["shaping"] = shaping
        lost = (states["crashed"] != 0) | (np.abs(observations[0]) >= 1.0)
        # A lander that is both lost and at rest gets 100, because Gymnasium tests for rest last.
        landed = states["body"]["awake"][:, 0] == 0
        return Moved(states, np.where(landed, 100.0, np.where(lost, -100.0, reward)), lost | landed)

    def _engines(self, outputs: Float32) -> _Engines:
        """Return the powers and directions of the engines that outputs [k, A] choose."""
        if self.discrete:
            # Actions 1 and 3 fire a side engine, in the direction -1 or 1; action 2 fires the main engine.
            action = largest(outputs).astype(np.float64)
            return _Engines(np.where(action == 2, 1.0, 0.0), np.where(action % 2 == 1, 1.0, 0.0), action - 2)
        up, side = self.actions(outputs).astype(np.float64).T
        fires = np.abs(side) > 0.5
        main = np.where(up > 0, (up + 1.0) * 0.5, 0.0)
        return _Engines(main, np.where(fires, np.abs(side), 0.0), np.where(side > 0, 1.0, -1.0))

    def _apply_forces(self, states: Any, engines: _Engines) -> None:
        """Apply the forces of the wind and the impulses of the engines, before the physics makes a step.

        An engine acts at the offset (ox, oy) from the lander's position. The numbers and the order of the terms are
        Gymnasium's, because another order may give other bits. Gymnasium's height of the side engines is 17 in the term
        for x, but 14 in the term for y.
        """
        lander = states["body"][:, 0]
        if self.options.enable_wind:
            # The wind blows, and its pattern advances, while no leg is on the ground.
            blows = (states["body"]["grounded"][:, 1:3] == 0).all(axis=1)
            _, wind, turbulence = states["parameter"][:, :3].T
            force = (_gust(states["wind"]) * wind).astype(np.float32)
            torque = (_gust(states["turbulence"]) * turbulence).astype(np.float32)
            lander["force"][:, 0] = np.where(blows, lander["force"][:, 0] + force, lander["force"][:, 0])
            lander["torque"] = np.where(blows, lander["torque"] + torque, lander["torque"])
            states["wind"] += blows
            states["turbulence"] += blows
        # Gymnasium draws the dispersion in each step, even if no engine fires.
        forward, sideways = self._dispersion(states)
        sine, cosine = sincos(lander["a"].astype(np.float64))
        x, y = lander["p"].astype(np.float64).T
        # The main engine is below the center.
        below = 4 / SCALE + 2 * forward
        ox, oy = sine * below + -cosine * sideways, -cosine * below - sine * sideways
        impulse = -ox * MAIN_ENGINE_POWER * engines.main, -oy * MAIN_ENGINE_POWER * engines.main
        self._push(lander, engines.main > 0, impulse, (x + ox, y + oy))
        # A side engine is away from the axis, to the left or to the right.
        away = 3 * sideways + engines.direction * 12 / SCALE
        ox, oy = sine * forward + -cosine * away, -cosine * forward - sine * away
        impulse = -ox * SIDE_ENGINE_POWER * engines.side, -oy * SIDE_ENGINE_POWER * engines.side
        self._push(lander, engines.side > 0, impulse, (x + ox - sine * 17 / SCALE, y + oy + cosine * 14 / SCALE))

    def _dispersion(self, states: Any) -> tuple[Float64, Float64]:
        """Draw the dispersion of the engines in a step: offsets along and across the lander, [k] each."""
        drawn = []
        for state in states:
            generator = Pcg64.from_record(state["generator"])
            drawn.append([generator.uniform(-1.0, 1.0) / SCALE for _ in range(2)])
            state["generator"] = generator.to_record()
        forward, sideways = np.reshape(drawn, (-1, 2)).T
        return forward, sideways

    def _push(self, lander: Any, fires: Any, impulse: tuple[Float64, Float64], point: tuple[Float64, Float64]) -> None:
        """Apply impulses (x, y), [k] each, at points (x, y) to the landers [k] for which `fires` is true."""
        hull = self.model["hull"][0]
        # This is Box2D's b2Body::ApplyLinearImpulse, which takes float32.
        push, at = np.array(impulse, np.float32), np.array(point, np.float32)
        v = vectors(lander["v"]) + hull["inverse_mass"] * push
        w = lander["w"] + hull["inverse_inertia"] * cross(at - vectors(lander["c"]), push)
        lander["v"] = np.where(fires, v, vectors(lander["v"])).T
        lander["w"] = np.where(fires, w, lander["w"])

    def actions(self, outputs: Float32) -> Any:
        """Return Gymnasium's actions of outputs [k, A]: choices [k], or powers [k, 2] in [-1, 1]; NaN becomes 0."""
        if self.discrete:
            return largest(outputs)
        return bounded(outputs * np.float64(self.action_share)).astype(np.float32)


class LunarLanderContinuous(LunarLander):
    """The lander with continuous engines."""

    options_class = LunarLanderContinuousOptions
