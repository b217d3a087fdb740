"""The parts of benchmarks/contest_2020.py: rows and their file, their measurement, tables, and the figure."""
