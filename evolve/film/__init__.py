"""Films of episodes: the door to imageio (with PyAV) and Pillow, which come with the extra `video`."""

from evolve.film.film import FORMATS, Film, check
from evolve.film.picture import Label

__all__ = ["FORMATS", "Film", "Label", "check"]
