"""Films of episodes: frames of an environment, with a strip that says what is seen and the network at work beside.

`film_episodes` plays episodes and films them, as mp4 or GIF; `Film` writes the pictures. Only this package imports
imageio (with PyAV) and Pillow, which come with the extra `video`.
"""

from evolve.analysis.video.camera import Subject, drawable, film_episodes
from evolve.analysis.video.film import FORMATS, Film, check_film, still
from evolve.analysis.video.picture import Label

__all__ = ["FORMATS", "Film", "Label", "Subject", "check_film", "drawable", "film_episodes", "still"]
