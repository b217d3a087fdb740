"""What all parts share: the device, how long they may take, and how they say that something was not measured."""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from evolve.errors import InputError
from evolve.numerics.device import device, use
from evolve.numerics.device_protocol import Device

ROOT = Path(__file__).parents[2]


class NotMeasuredError(Exception):
    """Something could not be measured; says why."""


@dataclass
class Context:
    """What a part is told.

    Attributes:
        emulated: Whether the device is the emulated one of the tests, and everything tiny.
        seconds: How long the part may take.
        output: The file of JSON; what a part draws goes beside it.
    """

    emulated: bool
    seconds: float
    output: Path
    begin: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self.begin)

    def device(self) -> Device:
        """Return the device. Raises NotMeasuredError where there is none."""
        if self.emulated:
            sys.path.insert(0, str(ROOT / "tests" / "helpers"))
            from emulation import EmulatedDevice  # noqa: PLC0415 - only of a checkout

            use(EmulatedDevice(capacity=2**31))
        try:
            return device()
        except InputError as error:
            raise NotMeasuredError(str(error)) from None


@dataclass
class Outcome:
    """What a part has found.

    Attributes:
        verdict: In a few words.
        good: Whether nothing was wrong.
        figures: For JSON.
    """

    verdict: str
    good: bool = True
    figures: dict = field(default_factory=dict)
