"""What is made of finished runs: groups and comparisons of them, figures, films and pages.

`runs` reads run files and gathers those of one configuration; `comparison` and `statistics` say which group is
better, and how sure that is; `champion` picks the genome that stands for a run. `figures` is the door to matplotlib,
`html` to Jinja2, `video` to imageio and Pillow, `statistics` to SciPy. Nothing here needs a terminal.
"""
