"""The contest of machines: how long a machine takes for fixed work, which digests prove to be the same everywhere.

`work` defines what is played, and knows the digests of short runs (`golden.json`). `session` plays and times it on the
ranks that there are; only `evolve.cli.contest` starts processes. `machine` describes the machine, `results` are the
records of a contest and their file, and `ranking` compares files of several machines.
"""
