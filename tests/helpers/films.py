"""Films as arrays."""

import numpy as np


def read_film(path):
    """Return the pictures of a film, [N, H, W, 3], and its codec, its pictures per second, and its pixel format."""
    import av

    with av.open(path) as film:
        (stream,) = film.streams.video
        pictures = np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(stream)])
        return pictures, (stream.codec_context.name, stream.average_rate, stream.pix_fmt)
