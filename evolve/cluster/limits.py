"""How long ranks wait for one another: limits of a job and not of an experiment, so environment variables set them."""

import os

from evolve.errors import InputError

CONNECT = "EVOLVE_CONNECT_SECONDS"
"""The variable that says how long the ranks may take to come together."""
SILENCE = "EVOLVE_SILENCE_SECONDS"
"""The variable that says for how long a host may be silent."""
_LEAST, _PER_RANK = 60.0, 0.5
_SILENCE = 30.0


def connect_seconds(size: int) -> float:
    """Return how long so many ranks may take to come together. Raises InputError for a setting that is no duration."""
    return _seconds(CONNECT, _LEAST + _PER_RANK * size)


def silence_seconds() -> float:
    """Return for how long a host may be silent. Raises InputError for a setting that is no duration."""
    return _seconds(SILENCE, _SILENCE)


def _seconds(variable: str, usual: float) -> float:
    text = os.environ.get(variable)
    if text is None:
        return usual
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds < 1e6:
        raise InputError(variable, "seconds, from 1 on", text)
    return seconds
