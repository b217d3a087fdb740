"""Figures: the only room that imports matplotlib, which comes with the extra `plot`."""

from evolve.figures.bars import judged, load
from evolve.figures.curves import Experiment, costly, experiments, what_masks_count
from evolve.figures.drawing import draw, wires
from evolve.figures.page import plot
from evolve.figures.standing import stand
from evolve.figures.style import FILE, FORMATS, NARROW, WIDE, Sheet, number, save, svg

__all__ = [
    "FILE",
    "FORMATS",
    "NARROW",
    "WIDE",
    "Experiment",
    "Sheet",
    "costly",
    "draw",
    "experiments",
    "judged",
    "load",
    "number",
    "plot",
    "save",
    "stand",
    "svg",
    "what_masks_count",
    "wires",
]  # fmt: skip
