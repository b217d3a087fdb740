"""NumPy's generator PCG64 (O'Neill, 2014) as Gymnasium uses it: one per episode, seeded by the environment's seed.

The words are NumPy's, but the conversion to numbers is Python's. NumPy's conversion is compiled C whose compiler may
fuse a multiplication and an addition, so its bits may depend on the processor.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.environments.physics.frames import GENERATOR

_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_WORD = 2**64 - 1
_HALF = 2**32 - 1
_STATE = 2**128 - 1


@dataclass
class Pcg64:
    """A generator.

    Attributes:
        state: 128 bits.
        increment: 128 bits, odd; it selects the stream.
        has_half: Whether `half` is the next half of a word.
        half: The upper half of the last word whose lower half was used.
    """

    state: int
    increment: int
    has_half: bool = False
    half: int = 0

    @classmethod
    def seeded(cls, seed: int) -> "Pcg64":
        """Return the generator that Gymnasium makes from a seed, through NumPy's SeedSequence."""
        words = np.random.PCG64(np.random.SeedSequence(seed)).state["state"]
        return cls(words["state"], words["inc"])

    @classmethod
    def of(cls, record: Any) -> "Pcg64":
        """Return the generator of a record of `frames.GENERATOR`."""
        high, low, increment_high, increment_low, has_half, half = record.item()
        return cls(high << 64 | low, increment_high << 64 | increment_low, bool(has_half), half)

    def record(self) -> Any:
        """Return the generator as a record of `frames.GENERATOR`."""
        parts = (number >> shift & _WORD for number in (self.state, self.increment) for shift in (64, 0))
        return np.array((*parts, self.has_half, self.half), GENERATOR)

    def word(self) -> int:
        """Return the next 64 bits."""
        self.state = (self.state * _MULTIPLIER + self.increment) & _STATE
        mixed = (self.state >> 64 ^ self.state) & _WORD
        turn = self.state >> 122
        return (mixed >> turn | mixed << (64 - turn)) & _WORD

    def random(self) -> float:
        """Return a number that is uniform on [0, 1)."""
        return (self.word() >> 11) * 2.0**-53

    def uniform(self, low: float, high: float) -> float:
        """Return a number that is uniform on [low, high)."""
        return low + (high - low) * self.random()

    def integer(self, low: int, high: int) -> int:
        """Return a whole number of low … high - 1 (Lemire, 2019). If there is only one, nothing is drawn."""
        count = high - low
        if count == 1:
            return low
        threshold = (2**32 - count) % count
        product = self._half_word() * count
        while product & _HALF < threshold:
            product = self._half_word() * count
        return low + (product >> 32)

    def _half_word(self) -> int:
        self.has_half = not self.has_half
        if not self.has_half:
            return self.half
        word = self.word()
        self.half = word >> 32
        return word & _HALF
