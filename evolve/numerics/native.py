"""Access to the native CPU kernels, a library in C that is compiled with the package if there is a C compiler.

ctypes loads the library. `call` calls a function of the library. For many calls of a function, `bind` is faster. C
structures are declared in the modules that fill them. If the library was not built, array operations compute the same
bits.
"""

import ctypes
import hashlib
import math
import os
import resource
import sysconfig
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evolve.errors import InputError, RunError, Setting, how_to_build
from evolve.numerics.device import device
from evolve.shapes import Float32, Slots, UInt64, ceil_div

Backend = Literal["numpy", "native", "cupy"]
INT64 = ctypes.c_int64
FLOAT = ctypes.c_float
DOUBLE = ctypes.c_double
ADDRESS = ctypes.c_void_p
_CACHE_LINE = 16  # in float32 numbers
_BYTE = ctypes.c_char
_TYPES = {int: INT64, np.int32: INT64, np.int64: INT64, float: DOUBLE, np.float64: DOUBLE, np.float32: FLOAT}
"""The C types of the numbers that `call` passes. All other arguments are addresses."""


def library_path() -> Path:
    """Return the path of the library, whether or not it was built."""
    return Path(__file__).with_name(f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}")


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the library of native kernels; None if it was not built.

    Raises:
        RunError: The library was built from other headers, or by an earlier version. Then its C structures may differ
            from the structures that Python fills. Or it was built with -ffast-math. Or this system cannot load the
            library, for example because the C library here is too old. Falling back to array operations in silence
            would hide why the run is slow.
    """
    try:
        library = ctypes.CDLL(str(library_path()))
    except OSError as error:
        if not library_path().exists():
            return None
        cure = f"{how_to_build()} Or delete the library: NumPy computes the same bits, and is slower."
        raise RunError(f"native kernels: expected a library that this system can load, got {error}. {cure}") from None
    built_from, headers_here = _text(library, "sources"), header_fingerprint()
    if headers_here and built_from != headers_here:
        got = f"got a library of other headers ({built_from or 'without a fingerprint'})"
        expected = f"expected a library of the headers beside it ({headers_here})"
        raise RunError(f"native kernels: {expected}, {got}. {how_to_build()}")
    if "; fast-math" in _text(library, "build"):
        expected = "expected a build without -ffast-math, which changes bits"
        raise RunError(f"native kernels: {expected}, got one with it. Remove it from CFLAGS. {how_to_build()}")
    return library


def header_fingerprint() -> str:
    """Return the fingerprint of the kernels' C headers, as setup.py computes it; "" if there are no headers here."""
    package = Path(__file__).parents[1]
    # Sorted as in setup.py, so that both hash the same bytes.
    headers = sorted(path.relative_to(package).as_posix() for path in package.glob("*/kernels/*.h"))
    if not headers:
        return ""
    text = b"".join((package / header).read_bytes() for header in headers)
    return hashlib.sha256(text).hexdigest()[:16]


def _text(library: ctypes.CDLL, name: str) -> str:
    """Return the text in the library's array `evolve_<name>`; "" without such an array."""
    if not hasattr(library, f"evolve_{name}"):
        return ""
    first = _BYTE.in_dll(library, f"evolve_{name}")
    return ctypes.string_at(ctypes.addressof(first)).decode("ascii", "replace")


def available() -> bool:
    """Return whether the native kernels were built."""
    return load_library() is not None


def bind(name: str, arguments: Sequence[Any] = (), returns: Any = None) -> Any:
    """Return a function of the library, for calls from Python.

    Args:
        name: The name of the function in C, without the prefix `evolve_`.
        arguments: The ctypes types of its arguments, such as `ADDRESS` and `INT64`.
        returns: The ctypes type of its result; None for no result.

    Raises:
        RuntimeError: The kernels were not built.
        RunError: The library lacks the function, because an earlier version was built.
    """
    library = load_library()
    if library is None:
        raise RuntimeError("the native kernels were not built")
    try:
        function = library[f"evolve_{name}"]  # a new object, so that no other caller changes the types set below
    except AttributeError:
        missing = f"native kernels: expected a library with evolve_{name}, got one that was built without it"
        raise RunError(f"{missing}. {how_to_build()}") from None
    function.argtypes = arguments
    function.restype = returns
    return function


def call(name: str, *arguments: Any) -> None:
    """Call the function `evolve_<name>` of the library, which returns nothing.

    `_TYPES` has the C types of numbers. None is passed as a null pointer. Arrays are passed by address. An array that
    is not C-contiguous is copied, so the function must not write to it.
    """
    types = [_TYPES.get(type(argument), ADDRESS) for argument in arguments]
    # The list keeps copies alive until the function returns.
    contiguous = [np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value for value in arguments]
    bind(name, types)(*(address(value) if isinstance(value, np.ndarray) else value for value in contiguous))


def function_address(function: Any) -> int:
    """Return the address of a function of the library; 0 for None."""
    return 0 if function is None else ctypes.cast(function, ADDRESS).value or 0


def constant(name: str) -> int:
    """Return a constant of the kernels: the integer that the function `evolve_<name>` returns."""
    return int(bind(name, returns=ctypes.c_int)())


def stack_bytes() -> int:
    """Return the largest size of this thread's stack in bytes; 0 if it is unknown, or if the stack has no limit."""
    # The stack of the first thread grows up to the limit of the process. The call below may give its present size.
    if threading.get_native_id() == os.getpid():
        limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
        return 0 if limit == resource.RLIM_INFINITY else limit
    library = ctypes.CDLL(None)
    if not hasattr(library, "pthread_getattr_np"):  # only glibc and musl have it
        return 0
    library.pthread_self.restype = ctypes.c_ulong
    # 128 bytes are more than any system's `pthread_attr_t` has.
    attributes, lowest, size = ctypes.create_string_buffer(128), ctypes.c_void_p(), ctypes.c_size_t()
    if library.pthread_getattr_np(ctypes.c_ulong(library.pthread_self()), attributes):  # not 0: the call has failed
        return 0
    library.pthread_attr_getstack(attributes, ctypes.byref(lowest), ctypes.byref(size))
    library.pthread_attr_destroy(attributes)
    return size.value


def lanes() -> int:
    """Return the number of slots in a tile. A kernel steps them together, each in its lane of the SIMD registers."""
    return constant("lanes")


def build() -> str:
    """Return the compiler's description of the build, such as "GCC 12.2.0; optimized; …"; "" if unknown."""
    library = load_library()
    return "" if library is None else _text(library, "build")


def backend(name: str) -> Backend:
    """Return the back end for a value of the setting `compute.backend`.

    "auto" means native if the kernels were built, else numpy. Raises InputError for "native" if the kernels were not
    built, and for "cupy" if no GPU is usable.
    """
    if name == "cupy":
        device()
        return "cupy"
    if name == "numpy" or (name == "auto" and not available()):
        return "numpy"
    if not available():
        numpy = Setting("compute.backend", "numpy")
        cure = f"Install a C compiler. {how_to_build()} Or use ", numpy, ": the bits are the same."
        raise InputError("compute.backend", "a back end that was built", name, *cure)
    return "native"


def host_backend(name: str) -> Literal["numpy", "native"]:
    """Return the back end for work that is too small for a GPU. name: A value of the setting `compute.backend`."""
    # `on_host` is never "cupy". The last line shows this to the type checker.
    on_host = backend("auto" if name == "cupy" else name)
    return "numpy" if on_host == "numpy" else "native"


def aligned(*shape: int) -> Float32:
    """Return zeros [*shape] float32 that begin on a cache line."""
    size = math.prod(shape)
    # NumPy does not align arrays to cache lines, so allocate one line more, and begin at the first whole line.
    raw = np.zeros(size + _CACHE_LINE, np.float32)
    begin = -(raw.ctypes.data // 4) % _CACHE_LINE
    return raw[begin : begin + size].reshape(shape)


def address(array: Any) -> int:
    """Return the address of a C-contiguous array. For writable arrays this is four times faster than NumPy."""
    try:
        return ctypes.addressof(_BYTE.from_buffer(array))
    except (TypeError, ValueError):  # read-only, or empty
        return int(array.ctypes.data)


class NativeStep:
    """The native kernel `evolve_<name>`, which advances the slots of a network by one step.

    Args:
        name: The name of the function, without the prefix.
        structure: Its first argument, with the addresses of the slots' arrays. The caller must keep these arrays alive.
        action_size: A.
        lanes: The number of slots in a tile.
    """

    def __init__(self, name: str, structure: ctypes.Structure, action_size: int, lanes: int) -> None:
        self._name = name
        self._structure = structure
        self._address = ctypes.addressof(structure)
        self._action_size = action_size
        self._lanes = lanes
        self._step = bind(name, [ADDRESS, ADDRESS, ADDRESS, INT64])
        has_settle = hasattr(load_library(), f"evolve_{name}_settle")  # False if the network has no traces
        self._settle = bind(f"{name}_settle", [ADDRESS, ADDRESS, INT64]) if has_settle else None

    @property
    def addresses(self) -> dict[str, int]:
        """The addresses of the network's C functions and of its structure, by field of the C structure `play`."""
        return {
            "places": function_address(bind(f"{self._name}_places")),
            "advance": function_address(bind(f"{self._name}_advance")),
            "settle": function_address(self._settle),
            "network": self._address,
        }

    def set(self, **values: int | None) -> None:
        """Set fields of the structure. The caller must keep the arrays at the given addresses alive."""
        for name, value in values.items():
            setattr(self._structure, name, value)

    def __call__(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> actions [n, A]."""
        rows = np.ascontiguousarray(observations, np.float32)
        actions = np.empty((len(rows), self._action_size), np.float32)
        self._step(self._address, address(rows), address(actions), len(rows))
        return actions

    def attach(self, observations: Float32, actions: Float32) -> Callable[[int], None]:
        """Return a function of n that advances the first n slots by one step, faster than a call of this object.

        observations: [B, O], C-contiguous. The function reads this array.
        actions: [B, A], C-contiguous. The function writes this array. The caller must keep both arrays alive.
        """
        addresses = self._address, observations.ctypes.data, actions.ctypes.data
        return partial(self._step, *map(ADDRESS, addresses))

    def settle(self, slots: Slots) -> None:
        """Apply the trace updates that the kernel has delayed, in all tiles that contain the given slots."""
        tiles = slots // self._lanes
        if len(tiles) > 1:
            # Remove duplicates. np.unique would import modules that a worker does not need.
            tiles = np.flatnonzero(np.bincount(tiles))
        if self._settle is not None:
            self._settle(self._address, address(tiles), len(tiles))


def normal(words: UInt64) -> Float32:
    """Return the standard normal deviates [n] of raw words [n], as `Stream.normal` defines them."""
    deviates = np.empty(len(words), np.float32)
    call("normal", words, deviates, len(words))
    return deviates


def apply(name: Literal["tanh", "exp", "sigmoid"], x: Float32) -> Float32:
    """Return tanh, exp or sigmoid of x [n], computed by the native kernels."""
    # The kernel takes whole rows of `lanes()` numbers.
    rows = ceil_div(len(x), lanes())
    padded = np.zeros(rows * lanes(), np.float32)
    padded[: len(x)] = x
    y = np.zeros_like(padded)
    call(name, padded, y, rows)
    return y[: len(x)]
