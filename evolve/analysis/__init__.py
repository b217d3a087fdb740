"""Analyses runs: compares, draws, films and exports them, and writes reports.

`runs` has the objects of the Python interface. `run_groups` groups runs that differ only in their seeds, and
`comparison` compares the groups. `statistics` has means, intervals and tests. `champion` finds the genome that
represents a run, `policy` computes its actions, and `exports` writes it for other programs. `contest` measures how fast
a machine evolves. Only `figures` imports matplotlib, only `html` Jinja2, only `video` PyAV and Pillow, and only
`statistics` SciPy. No module needs a terminal.
"""
