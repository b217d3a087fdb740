"""Figures: the only room that imports matplotlib, which comes with the extra `plot`."""

from evolve.figures.curves import Experiment, experiments
from evolve.figures.drawing import draw, wires
from evolve.figures.page import FORMATS, plot

__all__ = ["FORMATS", "Experiment", "draw", "experiments", "plot", "wires"]
