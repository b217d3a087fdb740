"""Analysis of finished runs: groups and comparisons, figures, films and reports; and the contest of machines.

`runs` has the objects of the Python interface, `comparison` gathers run files into groups and compares groups,
`statistics` has means, intervals and tests, and `champion` finds the genome that represents a run. `figures` is the
door to matplotlib, `html` to Jinja2, `video` to imageio and Pillow, `statistics` to SciPy. No module needs a terminal.
"""
