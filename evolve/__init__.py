"""evolve: neuroevolution over MPI, with the same bits on any number of ranks."""

__version__ = "0.1.0"
