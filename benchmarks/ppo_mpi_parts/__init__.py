"""The parts of benchmarks/ppo_mpi.py: the ranks and their clocks, the networks, and the algorithm."""
