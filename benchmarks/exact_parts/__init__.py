"""The parts of `benchmarks/exact.py` and `benchmarks/exact_against_gymnasium.py` that are about rigid bodies."""
