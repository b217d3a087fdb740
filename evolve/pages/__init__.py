"""Pages: what is known of runs, on one HTML page; the only room that imports Jinja2, which comes with `report`."""

from evolve.pages.facts import Story, Verdict
from evolve.pages.page import FORMATS, render, save

__all__ = ["FORMATS", "Story", "Verdict", "render", "save"]
