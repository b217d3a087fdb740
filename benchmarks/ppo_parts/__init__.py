"""The parts of benchmarks/ppo.py: tasks, both methods, records of runs, and the page."""
