"""The parts of `benchmarks/exact.py` and `benchmarks/exact_against_gymnasium.py` about rigid bodies."""
