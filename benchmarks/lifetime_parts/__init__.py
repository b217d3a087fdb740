"""The parts of `benchmarks/lifetime.py`: what is run, computed about the tasks, and made of the runs."""
