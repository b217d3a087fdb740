"""Playing chosen episodes of a run again, alone, to compare them with the log, to film them or to watch them."""

from evolve.playback.filming import Camera, clip
from evolve.playback.playing import EachStep, make_engine, play
from evolve.playback.selection import Episode, choose, choose_champions, environment_seed, genome_of, newborn

__all__ = [
    "Camera",
    "EachStep",
    "Episode",
    "choose",
    "choose_champions",
    "clip",
    "environment_seed",
    "genome_of",
    "make_engine",
    "newborn",
    "play",
]
