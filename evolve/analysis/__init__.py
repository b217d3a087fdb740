"""Analysis of finished runs: groups and comparisons, figures, films and reports; and the contest of machines.

`runs` has the objects of the Python interface, `comparison` gathers run files into groups and compares groups,
`statistics` has means, intervals and tests, and `champion` finds the genome that represents a run. Only `figures`
imports matplotlib, only `html` Jinja2, only `video` PyAV and Pillow, only `statistics` SciPy. No module needs a
terminal.
"""
