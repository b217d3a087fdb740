"""evolve run on the emulated device, in place of a GPU."""

import sys

from emulation import EmulatedDevice

from evolve.cli.run import main
from evolve.numerics.device import use

use(EmulatedDevice())

if __name__ == "__main__":
    sys.exit(main())
