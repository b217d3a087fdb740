"""The contest of machines: the time of fixed work, which digests prove to be the same everywhere.

`work` defines the work, and knows the digests of short runs (`golden.json`). `session` plays and times it on the ranks
of this job; only `evolve.cli.contest` starts processes. `machine` describes the machine, `results` has the records of a
contest and their file, and `ranking` compares files of several machines.
"""
