"""evolve run with chunks of a fixed size, TOY_CHUNK_SIZE, in place of those that shrink."""

import itertools
import os
import sys

from evolve.cli.run import main
from evolve.cluster import coordinator


def fixed(_episodes, _workers, _largest, _least):
    """Yield the size for ever."""
    return itertools.repeat(int(os.environ["TOY_CHUNK_SIZE"]))


if "TOY_CHUNK_SIZE" in os.environ:
    coordinator.shrinking_sizes = fixed

if __name__ == "__main__":
    sys.exit(main())
