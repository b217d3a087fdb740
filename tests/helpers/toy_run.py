"""evolve run with chunks of the sizes TOY_CHUNK_SIZES, repeated for ever, instead of shrinking chunks."""

import itertools
import os
import sys

from evolve.cli.app import launch
from evolve.cluster import coordinator


def fixed(*_, **__):
    """Yield the sizes for ever."""
    return itertools.cycle(map(int, os.environ["TOY_CHUNK_SIZES"].split()))


if "TOY_CHUNK_SIZES" in os.environ:
    coordinator.suitable_sizes = fixed

if __name__ == "__main__":
    sys.exit(launch("run"))
