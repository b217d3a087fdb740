"""Whether the same seed gives the same episode: tried before a run, by playing one in two environments.

They are played in lockstep, so that a hidden random stream which they share shows too. Then one is played beside
another that has begun an episode before, if the engine lets environments run a second episode.
"""

import math
import time
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from evolve.environments.engine import Engine, Transition
from evolve.errors import FAILURES, InputError, sanitize
from evolve.numerics.streams import Purpose, Stream

_SEED = 20
_STEPS = 40
_PAIR_SECONDS = 0.2  # about, for the steps of each pair of episodes; the first is compared in any case


def check(engine: Engine) -> None:
    """Raise InputError when two episodes of one seed differ; names the array, the step and both values.

    Raises it too for a task that is a function (see `register_task`) and does not do what it should.
    """
    outputs = (2 * Stream(_SEED, Purpose.CHECK).uniform(_STEPS, engine.action_size) - 1).astype(np.float32)
    for used in (False, True) if engine.reuses else (False,):
        try:
            found = _first_difference(engine.trial(_SEED, outputs, False), engine.trial(_SEED, outputs, used))
        except InputError:
            raise
        except FAILURES:  # the evaluation will meet it, and say where
            return
        if found is not None:
            which = "a used and a new environment differ" if used else "two episodes differ"
            expected = "an environment whose reset(seed=…) repeats an episode to the bit"
            cure = (
                "Draw from self.np_random only, and set everything up again in reset. (To run it all the same, with "
                "digests that prove nothing: compute.check=false.)"
            )
            raise InputError("env.id", expected, f"{engine.id}, where {which}: {found}", cure)


def _first_difference(one: Iterator[Transition], other: Iterator[Transition]) -> str | None:
    """Return where two episodes differ first, and how; None where they do not, or not within the time for it."""
    begin = math.inf  # environments may take long to make and to reset
    nothing: Transition = {}
    for step, (a, b) in enumerate(zip_longest(one, other, fillvalue=nothing)):
        found = _difference("", a, b)
        if found is not None:
            return f"{found} {f'of step {step}' if step else 'of reset'}"
        now = time.perf_counter()
        if now - begin > _PAIR_SECONDS:
            break
        begin = min(begin, now)
    return None


def _difference(name: str, a: Any, b: Any) -> str | None:
    """Return the name of the first part of a nest of arrays that is not the same bits, with both values."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        parts = ((f"{name}[{key!r}]" if name else str(key), a.get(key), b.get(key)) for key in {**a, **b})
    elif isinstance(a, tuple | list) and isinstance(b, tuple | list):
        parts = ((f"{name}[{index}]", x, y) for index, (x, y) in enumerate(zip_longest(a, b)))
    else:
        return _unequal(name, np.asarray(a), np.asarray(b))
    return next((found for part in parts if (found := _difference(*part)) is not None), None)


def _unequal(name: str, a: Any, b: Any) -> str | None:
    """Return the name of the first element of two arrays that is not the same bits, with both values."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{name} ({a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)})"
    if a.dtype == object or a.tobytes() == b.tobytes():
        return None
    x = a.reshape(-1)
    y = b.reshape(-1)
    at = next(i for i in range(x.size) if x[i].tobytes() != y[i].tobytes())
    place = f"{name}[{', '.join(map(str, np.unravel_index(at, a.shape)))}]" if a.shape else name
    return f"{place} ({sanitize(x[at].item())} against {sanitize(y[at].item())})"
