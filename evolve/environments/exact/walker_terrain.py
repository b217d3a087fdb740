"""The ground of BipedalWalker: slightly rough, and with stumps, stairs and pits if it is hardcore.

It is drawn as Gymnasium draws it (Oleg Klimov, MIT licence), number by number, so a seed gives the same ground.
"""

from dataclasses import dataclass, field

from evolve.environments.physics.pcg64 import Pcg64

SCALE = 30.0
STEP = 14 / SCALE
"""Between the vertices of the ground, in meters."""
VERTICES = 200
START = 400 / SCALE / 4
"""The height of the ground where the walker begins."""
START_PAD = 20
"""Vertices of flat ground at the beginning."""
GRASS = 10
"""Vertices of rough ground between obstacles, at most. The episode ends as many before the end of the ground."""
CLOUDS, NUMBERS_OF_A_CLOUD = 10, 11

Corners = list[tuple[float, float]]


@dataclass
class Terrain:
    """The ground of one episode.

    Attributes:
        heights: [VERTICES], from left to right.
        blocks: The corners of each obstacle, from left to right.
    """

    heights: list[float] = field(default_factory=list)
    blocks: list[Corners] = field(default_factory=list)

    def add_block(self, x1: float, x2: float, y1: float, y2: float) -> None:
        """Add a rectangle."""
        self.blocks.append([(x1, y1), (x2, y1), (x2, y2), (x1, y2)])


def draw_terrain(generator: Pcg64, hardcore: bool) -> Terrain:
    """Draw the ground of an episode.

    Args:
        generator: Of the episode.
        hardcore: Whether there are obstacles.
    """
    terrain = Terrain()
    grass, stump, stairs, pit = range(4)
    state, counter, begins = grass, START_PAD, False
    velocity, y, original = 0.0, START, 0.0
    direction = width = steps = 0
    for i in range(VERTICES):
        x = i * STEP
        if state == grass and not begins:
            below = START - y
            velocity = 0.8 * velocity + 0.01 * ((below > 0) - (below < 0))
            if i > START_PAD:
                velocity += generator.uniform(-1, 1) / SCALE
            y += velocity
        elif state == pit and begins:
            counter = generator.integer(3, 5)
            for shift in (0.0, STEP * counter):
                terrain.add_block(x + shift, x + STEP + shift, y, y - 4 * STEP)
            counter += 2
            original = y
        elif state == pit:
            y = original - 4 * STEP if counter > 1 else original
        elif state == stump and begins:
            counter = generator.integer(1, 3)
            terrain.add_block(x, x + counter * STEP, y, y + counter * STEP)
        elif state == stairs and begins:
            direction = 1 if generator.random() > 0.5 else -1
            width, steps = generator.integer(4, 5), generator.integer(3, 5)
            original = y
            for s in range(steps):
                low, high = y + (-1 + s * direction) * STEP, y + (s * direction) * STEP
                terrain.add_block(x + (s * width) * STEP, x + ((1 + s) * width) * STEP, low, high)
            counter = steps * width
        elif state == stairs:
            y = original + ((steps * width - counter - direction) / width * direction) * STEP
        begins = False
        terrain.heights.append(y)
        counter -= 1
        if counter == 0:
            counter = generator.integer(GRASS // 2, GRASS)
            state = generator.integer(1, 4) if state == grass and hardcore else grass
            begins = True
    return terrain


def skip_clouds(generator: Pcg64) -> None:
    """Draw the clouds of an episode, which nobody sees here: the numbers after them are needed."""
    for _ in range(CLOUDS * NUMBERS_OF_A_CLOUD):
        generator.word()
