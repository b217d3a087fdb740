"""The report: tables, figures and films of runs on one HTML page that needs nothing else to be read.

`render` makes the page, `save` writes it. `tables` fills its tables; `report.html` and
`report.css` are its template. Only this package imports Jinja2 (in `page`), which comes with the extra `report`.
"""

from evolve.analysis.html.page import FORMATS, check_libraries, render, save

__all__ = ["FORMATS", "check_libraries", "render", "save"]
