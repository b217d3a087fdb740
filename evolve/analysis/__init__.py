"""Analyses runs: compares, draws, films and exports them, and writes reports. The contest of machines is here, too.

`runs` has the objects of the Python interface. `comparison` gathers run files into groups, and compares groups.
`statistics` has means, intervals and tests. `champion` finds the genome that represents a run. Only `figures` imports
matplotlib, only `html` Jinja2, only `video` PyAV and Pillow, and only `statistics` SciPy. No module needs a terminal.
"""
