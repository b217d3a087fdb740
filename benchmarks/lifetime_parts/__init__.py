"""The parts of `benchmarks/lifetime.py`: its runs, the bounds of its tasks, and its tables and figures."""
