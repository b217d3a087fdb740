"""evolve run on the emulated device instead of a GPU; it has EMULATED_CAPACITY bytes."""

import os
import sys

from emulation import EmulatedDevice

from evolve.cli.app import launch
from evolve.numerics.device import use

use(EmulatedDevice(capacity=int(os.environ.get("EMULATED_CAPACITY", "1_000_000_000"))))

if __name__ == "__main__":
    sys.exit(launch("run"))
