"""The parts of `benchmarks/devices.py`."""
