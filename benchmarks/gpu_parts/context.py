"""Shared by all parts: the device, the time limit, partial results, and the error for a missing measurement."""

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolve.errors import InputError
from evolve.numerics.device import device, use
from evolve.numerics.device_protocol import Device

ROOT = Path(__file__).parents[2]


class NotMeasuredError(Exception):
    """A measurement cannot be made; the message is the reason."""


@dataclass
class Context:
    """The input of a part.

    Attributes:
        emulated: Whether the device is the emulated one of the tests, behind the door to CuPy, and all sizes are tiny.
        seconds: The time limit of the part.
        output: The JSON file; a part writes its figures beside it.
        partial: The file for results so far, which outlives a part that fails or is ended; None to keep none.
    """

    emulated: bool
    seconds: float
    output: Path
    partial: Path | None = None
    begin: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """The remaining seconds."""
        return self.seconds - (time.monotonic() - self.begin)

    def keep(self, **figures: Any) -> None:
        """Keep the figures that a part has measured so far."""
        if self.partial is not None:
            self.partial.write_text(json.dumps(figures, default=float))

    def device(self) -> Device:
        """Return the device. Raises NotMeasuredError if there is none."""
        if self.emulated:
            sys.path.insert(0, str(ROOT / "tests" / "helpers"))
            from emulation.cuda import EmulatedGpu  # noqa: PLC0415 - only of a checkout

            use(EmulatedGpu(capacity=2**31))
        try:
            return device()
        except InputError as error:
            raise NotMeasuredError(str(error)) from None


@dataclass
class Outcome:
    """The findings of a part.

    Attributes:
        verdict: A summary in a few words.
        good: Whether nothing was wrong.
        figures: Values for the JSON file.
    """

    verdict: str
    good: bool = True
    figures: dict = field(default_factory=dict)
