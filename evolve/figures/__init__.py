"""Figures: the only room that imports matplotlib, which comes with the extra `plot`."""

from evolve.figures.curves import Experiment, experiments
from evolve.figures.page import FORMATS, plot

__all__ = ["FORMATS", "Experiment", "experiments", "plot"]
