"""Films of episodes: frames of an environment, with a strip that says what is seen, as mp4 or GIF.

`Film` writes pictures, `Camera` films an episode while it is played, `clip` makes a short film of one. Only this
package imports imageio (with PyAV) and Pillow, which come with the extra `video`.
"""

from evolve.analysis.video.camera import Camera, clip
from evolve.analysis.video.film import FORMATS, Film, check_film
from evolve.analysis.video.picture import Label

__all__ = ["FORMATS", "Camera", "Film", "Label", "check_film", "clip"]
