"""The first C version of a network step, built beside the kernel so that both are timed on the same machine."""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from evolve.shapes import Float32


@cache
def _library() -> ctypes.CDLL | None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "prototype.so"
        source = Path(__file__).with_name("prototype.c")
        words = [compiler, "-O3", "-ffp-contract=off", "-shared", "-fPIC", str(source), "-o", str(built), "-lm"]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            return None
        return ctypes.CDLL(str(built))


class Prototype:
    """A batch of hebbian-dag slots; calling it steps every slot once, with ρ = 1 and the traces limited to ±10.

    nodes: [sum(D)], those of the last slot; traces: [slots, W].
    """

    def __init__(self, library: ctypes.CDLL, sizes: tuple[int, ...], weights: Float32, observations: Float32) -> None:
        slots, W = weights.shape
        self.traces, self.nodes = np.zeros_like(weights), np.zeros(sum(sizes), np.float32)
        sums = np.zeros(sum((layer + 1) * size for layer, size in enumerate(sizes[1:])), np.float32)
        D = np.array(sizes, np.int64)
        self._step, self._kept = library.prototype_step, (D, weights, self.traces, self.nodes, sums, observations)
        first, *others = (ctypes.c_void_p(array.ctypes.data) for array in self._kept)
        integers = [ctypes.c_int64(n) for n in (len(sizes) - 1, W, slots)]
        self._arguments = (first, *integers, *others, ctypes.c_float(1.0), ctypes.c_float(10.0))

    def __call__(self) -> None:
        """Step every slot once."""
        self._step(*self._arguments)


def stepper(sizes: tuple[int, ...], weights: Float32, observations: Float32) -> Prototype | None:
    """Return the prototype for D = sizes, weights [slots, W], observations [slots, O]; None without a C compiler."""
    library = _library()
    return None if library is None else Prototype(library, sizes, weights, observations)
